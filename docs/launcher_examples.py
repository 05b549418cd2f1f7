"""The table of published examples that ``import`` is held to, from the list that the tests read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "launchers.md"
DATA = ROOT / "tests" / "data" / "launcher_examples.json"
_MARKED = re.compile(r"(<!-- launcher examples -->\n)(.*?)(<!-- end of launcher examples -->\n)", re.DOTALL)
_COMPARED = {
    "megatron": "`parse_args`, `validate_args`, `core_transformer_config_from_args`; 25 fields",
    "torchtitan": "`ConfigManager().parse_args`; 9 fields, 2 of the model",
    "trainer": "`parse_args` of its `main.py`; 9 fields",
}
"""Reader -> the program's own parser, and how much of what it says is compared."""


def filled(page: str) -> str:
    """A page with the table between its marks."""
    return _MARKED.sub(lambda found: found[1] + "".join(_lines()) + found[3], page)


def _lines() -> Iterator[str]:
    repositories: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
    yield "| repository | commit or version | compared with | read | equal | refused |\n|---|---|---|---|---|---|\n"
    read = equal = refused = 0
    for each in repositories:
        no = [script for script in each["scripts"] if "refused" in script]
        yes = len(each["scripts"]) - len(no)
        compared = yes - sum("invalid" in script and "without" not in script for script in each["scripts"])
        read, equal, refused = read + yes, equal + compared, refused + len(no)
        short = each["commit"][:12] if len(each["commit"]) == 40 else each["commit"]
        yield f"| {each['repository']} | {short} | {_COMPARED[each['by']]} | {yes} | {compared} | {len(no)} |\n"
    yield f"| all | | | {read} | {equal} | {refused} |\n\n"
    for each in repositories:
        yield f"{each['repository']}:\n\n"
        for folder, names in _by_folder(each["scripts"]).items():
            yield f"- {f'`{folder}`: ' if folder else ''}{', '.join(names)}\n"
        yield "\n"


def _by_folder(scripts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Names of scripts by their folder, with what is refused or invalid about them."""
    found: dict[str, list[str]] = {}
    for script in scripts:
        folder, _, name = script["path"].rpartition("/")
        started = next((word for word in script.get("arguments", ()) if "modelopt" in folder), "")
        note = f" (refused: {script['refused']})" if "refused" in script else ""
        note = f" (which its own parser refuses: {script['invalid']})" if "invalid" in script else note
        note = f"{note[:-1]}; compared without {script['without']})" if "without" in script else note
        found.setdefault(folder, []).append(f"{name}{f' {started}' if started else ''}{note}")
    return found
