"""Answers drawn with matplotlib (the extra ``clusterwright[plot]``): what a notebook shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from planner.base.errors import WrongQuestion

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes(rows: int) -> Axes:
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
    drawn = axes(len(rows))
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
    drawn = axes(8)
    for kind, colour, marker in ((False, "#999999", "o"), (True, "#0072B2", "D")):
        chosen = [place for place, on_front in enumerate(front) if on_front == kind]
        xs, ys = ([values[place] for place in chosen] for values in (across, up))
        drawn.scatter(xs, ys, c=colour, marker=marker, label="front" if kind else "point")
    drawn.set_xlabel(titles[0])
    drawn.set_ylabel(titles[1])
    drawn.legend()
    return drawn
