"""Tables and titles of documents as notebooks show them. The name of a column ends with the unit of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from planner.base.units import (
    format_bytes,
    format_count,
    format_percent,
    format_power,
    format_risk,
    format_seconds,
    format_usd,
)

SUFFIX = {
    "bytes": "bytes",
    "bandwidth": "bytes_per_s",
    "compute": "flops_per_s",
    "time": "s",
    "power": "w",
    "money": "usd",
    "price per hour": "usd_per_hour",
    "energy price": "usd_per_kwh",
    "carbon intensity": "g_per_kwh",
}
"""Dimension or unit of the values of a column -> end of the name of the column."""


def counted(titles: Sequence[str], what: str) -> str:
    """The number of documents and the title of the first, the best: ``5 plans; the best: ...``."""
    best = "".join(f"; the best: {title}" for title in titles[:1])
    return f"{len(titles):,} {what}{'' if len(titles) == 1 else 's'}{best}"


def axes(values: Mapping[str, float | int | str]) -> str:
    """The axes of a point and their values: ``accelerator.memory 8.6e+10, node.accelerators 8``."""
    texts = {axis: f"{value:.4g}" if isinstance(value, float) else value for axis, value in values.items()}
    return ", ".join(f"{axis} {text}" for axis, text in texts.items())


def column(name: str, unit: str) -> str:
    """Name of a column: what it holds, with the suffix of its dimension or unit."""
    suffix = SUFFIX.get(unit, unit.lower().replace("/", "_per_"))
    return "_".join(filter(None, (name.replace("-", "_"), suffix)))


# ---- HTML ------------------------------------------------------------------------------------------------------------

MOST_SHOWN = 20
"""Rows of a table in a notebook; a frame has all."""
_FORMATS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "per_s": lambda value: f"{format_count(value)}/s",
    "s": format_seconds,
    "usd": format_usd,
    "mfu": format_percent,
    "chance": format_risk,
    "w": format_power,
}
"""End of the name of a column -> the text of one of its figures."""


def as_html(rows: Sequence[Mapping[str, Any]], shown: Sequence[str] = ()) -> str:
    """An HTML table of the columns in `shown` (empty: of all) that hold a value in some row."""
    names = shown or list(dict.fromkeys(key for row in rows for key in row))
    filled = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    head = "".join(f"<th>{escape(name)}</th>" for name in filled)
    lines = ["".join(f"<td>{escape(_cell(name, row.get(name)))}</td>" for name in filled) for row in rows[:MOST_SHOWN]]
    rest = f"<p>{len(rows) - MOST_SHOWN:,} more rows</p>" if len(rows) > MOST_SHOWN else ""
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{rest}"


def _cell(column: str, value: object) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    for ending, written in _FORMATS.items():
        if column == ending or column.endswith(f"_{ending}"):
            return written(value)
    return f"{value:,.4g}"
