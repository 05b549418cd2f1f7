"""How records and documents show themselves in a notebook: on one line, in their long form, as tables, as plots.

The name of a table's column ends with the unit of its values. Plots are drawn with matplotlib (the extra
``clusterwright[plot]``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any, dataclass_transform

from planner.base.errors import WrongQuestion
from planner.base.units import (
    format_bytes,
    format_count,
    format_percent,
    format_power,
    format_risk,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG = ("source", "date", "notes", "assumed", "prices")
"""Fields of a record with an id that say where it comes from: ``clusterwright catalog show`` has them."""
MOST = 4
"""Values of a list that are all shown."""
WIDTH = 100
"""Characters of a line."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class OneLine:
    """Base of records: every class below it is a frozen dataclass, made by keywords, whose `repr` is a line.

    The line states what is not left at its default, as far as it fits.

    >>> from planner import node
    >>> node("t4-4")
    <Node: id='t4-4', kind='workstation', provider='OEM', accelerator='T4', accelerators=4, nics=1, ...>
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Makes the class a dataclass, whose `repr` stays that of its base unless it has one of its own."""
        super().__init_subclass__(**given)
        dataclass(frozen=True, kw_only=True, repr=False)(cls)

    def __repr__(self) -> str:
        stated = [f.name for f in fields(self) if getattr(self, f.name) != _default(f)]  # type: ignore[arg-type]
        parts = [f"{name}={_short(getattr(self, name))}" for name in stated]
        hidden = (*LONG, "name") if "id" in stated else ()
        kept = [part for name, part in zip(stated, parts, strict=True) if name not in hidden]
        ends = accumulate(len(part) + 2 for part in kept)
        shown = [part for part, end in zip(kept, ends, strict=True) if end <= WIDTH] or kept[:1]
        return f"<{type(self).__name__}: {', '.join([*shown, *['...'] * (len(shown) < len(parts))])}>"


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _short(value: object) -> str:
    """A value in a few characters: a record by its id, a table by its keys."""
    if is_dataclass(value):
        return str(getattr(value, "id", f"{type(value).__name__}(...)"))
    if isinstance(value, Mapping | tuple):
        plain = not isinstance(value, Mapping) and len(value) <= MOST and not any(map(is_dataclass, value))
        return repr(value) if plain else f"[{len(value)}]"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def spelled(value: object) -> str:
    """A value with every field of every record in it, as dataclasses spell them: what digests are made of."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{field.name}={spelled(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__qualname__}({inner})"
    if isinstance(value, tuple):
        return f"({', '.join(map(spelled, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {spelled(item)}' for key, item in value.items())}}}"
    return repr(value)


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


def drawing(rows: int) -> Axes:
    """An empty drawing, as high as so many rows take.

    Raises:
        WrongQuestion: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise WrongQuestion("plots need matplotlib: pip install 'clusterwright[plot]'") from None
    drawn: Axes = plt.subplots(figsize=(8.0, 1.2 + 0.4 * rows), layout="constrained")[1]
    return drawn


def stacked(rows: Mapping[str, Mapping[str, float]], unit: str) -> Axes:
    """Horizontal bars, the first row on top: label -> part -> value in `unit`; parts in order of their largest."""
    drawn = drawing(len(rows))
    sizes = {part: max(row.get(part, 0.0) for row in rows.values()) for row in rows.values() for part in row}
    start = dict.fromkeys(rows, 0.0)
    for part in sorted((part for part, size in sizes.items() if size), key=lambda part: -sizes[part]):
        values = [row.get(part, 0.0) for row in rows.values()]
        drawn.barh(list(rows), values, left=list(start.values()), label=part)
        start = {label: start[label] + value for label, value in zip(rows, values, strict=True)}
    drawn.invert_yaxis()
    drawn.set_xlabel(unit)
    drawn.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
    return drawn


def points(across: Sequence[float], up: Sequence[float], front: Sequence[bool], titles: tuple[str, str]) -> Axes:
    """Points over two figures, those of the front marked."""
    drawn = drawing(8)
    for kind, colour, marker in ((False, "#999999", "o"), (True, "#0072B2", "D")):
        chosen = [place for place, on_front in enumerate(front) if on_front == kind]
        xs, ys = ([values[place] for place in chosen] for values in (across, up))
        drawn.scatter(xs, ys, c=colour, marker=marker, label="front" if kind else "point")
    drawn.set_xlabel(titles[0])
    drawn.set_ylabel(titles[1])
    drawn.legend()
    return drawn
