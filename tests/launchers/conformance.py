"""What the tests of launchers found, kept for the table of docs/launchers.md."""

import json
import os
from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "launcher_conformance.json"
"""Target -> plans taken, most values compared of one, broken files refused, the test that counted them, steps run."""


def leaves(value: object) -> int:
    """Values in nested records; a list is one."""
    return sum(leaves(inner) for inner in value.values()) if isinstance(value, dict) else 1


def kept(name: str, **found: int) -> None:
    """Holds the table to what was found just now; CLUSTERWRIGHT_REGENERATE=1 writes it anew."""
    table = json.loads(DATA.read_text(encoding="utf-8"))
    if os.environ.get("CLUSTERWRIGHT_REGENERATE") == "1":
        test = Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).name
        # Whole jobs are started besides: the rest is counted by the test that reads files.
        table[name] = table.get(name, {}) | found | ({} if "steps" in found else {"test": test})
        DATA.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    assert table[name] == table[name] | found
