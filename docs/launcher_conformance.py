"""The table of what each target of ``export`` was held to, from what the conformance tests wrote down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from planner.launchers import EXPORTERS

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "launcher_conformance.json"
_MARKED = re.compile(r"(<!-- conformance -->\n)(.*?)(<!-- end of conformance -->\n)", re.DOTALL)


def filled(page: str) -> str:
    """A page with the table between its marks."""
    return _MARKED.sub(lambda found: found[1] + "".join(_lines()) + found[3], page)


def _lines() -> Iterator[str]:
    table: dict[str, dict[str, int | str]] = json.loads(DATA.read_text(encoding="utf-8"))
    counted = "plans taken | values compared | broken files refused"
    yield f"| target | version | level | code that read the files | {counted} | started on CPU | counted by |\n"
    yield "|---|---|---|---|---|---|---|---|---|\n"
    for name, exporter in EXPORTERS.items():
        counts = [str(table[name][key]) for key in ("plans", "fields", "refused")]
        jobs = "yes" if exporter.level in ("ran-cpu", "dry-scheduled") else "no"
        counts += [f"{table[name]['steps']} steps, model and mesh equal" if "steps" in table[name] else jobs]
        counts += [str(table[name]["test"])]
        yield f"| {name} | {exporter.version} | {exporter.level} | {exporter.validated_by} | {' | '.join(counts)} |\n"
