"""The tables of docs/learning.md on logs: which formats are read, what their lines count, and who prints them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from planner.site.logs.formats import FORMATS, NAMES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "learning.md"
LINES = ROOT / "tests" / "data" / "log_lines.toml"
_MARKED = re.compile(r"(<!-- log formats -->\n)(.*?)(<!-- end of log formats -->\n)", re.DOTALL)


def filled(page: str) -> str:
    """A page with the table between its marks."""
    return _MARKED.sub(lambda found: found[1] + "".join(_lines()) + found[3], page)


def _lines() -> Iterator[str]:
    yield "| format | a line's time is of | memory | printed by | tried on lines that were published in |\n"
    yield "|---|---|---|---|---|\n"
    published = tomllib.loads(LINES.read_text(encoding="utf-8"))
    for name in NAMES:
        shapes = [shape for shape in FORMATS if shape.name == name]
        kinds = {shape.memory_kind for shape in shapes if shape.memory or _says_memory(shape.step)}
        counts = "; ".join(dict.fromkeys(shape.counts for shape in shapes))
        sources = "; ".join(dict.fromkeys(shape.source for shape in shapes))
        lines = "; ".join(source for source, row in published.items() if row["format"] == name) or "-"
        yield f"| {name} | {counts} | {', '.join(sorted(kinds)) or '-'} | {sources} | {lines} |\n"


def _says_memory(pattern: re.Pattern[str]) -> bool:
    return bool(pattern.groupindex.keys() & {"mib", "gib", "gb", "mb", "b"})
