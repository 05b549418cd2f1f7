"""Charts as Vega-Lite specifications (https://vega.github.io/vega-lite/docs/), version 6. Texts in them are data: no
expression is made of what a document holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Distinct to the colour-blind (Okabe and Ito, Color Universal Design, 2008), on light and on dark."""
ROW = 26
"""Pixels of a bar with its gap."""
AXIS = {"labelLimit": 240, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "domain": False}
LEGEND = {"orient": "bottom", "labelFontSize": 12, "labelLimit": 180, "symbolSize": 120}
Values = Sequence[Mapping[str, Any]]


def spec(values: Values, height: int | None = None, **more: Any) -> dict[str, Any]:
    """What all charts share: as wide as the page, no background, so that text takes the page's colours."""
    sized = {} if height is None else {"height": height}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        **sized,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "config": {"view": {"stroke": None}, "font": "system-ui, sans-serif", "axis": AXIS, "legend": LEGEND},
        "data": {"values": list(values)},
        **more,
    }


def bars(
    values: Values, unit: str, parts: Sequence[str], *, limit: float | None = None, intervals: Values = ()
) -> dict[str, Any]:
    """Horizontal bars, stacked where a row has several parts.

    `values` have ``row``, ``part`` (of `parts`, which order the colours), ``value`` in `unit` and ``text`` as read.
    A `limit` is a rule across all rows. Each of `intervals` is a line on its ``row`` from ``low`` to ``high``.
    """
    bar = {
        "mark": {"type": "bar", "cursor": "default"},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "value", "type": "quantitative", "title": unit, "axis": {"tickCount": 6}},
            "color": coloured(parts, values),
            "order": {"field": "place", "type": "quantitative"},
            "tooltip": tooltip({"row": "", "part": "part", "text": "is"}),
        },
    }
    placed = [{**each, "place": parts.index(each["part"])} for each in values]
    rule = {
        "data": {"values": [{"limit": limit}]},
        "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 2, "aria": False},
        "encoding": {"x": {"field": "limit", "type": "quantitative"}},
    }
    within = {
        "data": {"values": list(intervals)},
        "mark": {"type": "rule", "strokeWidth": 3, "aria": False},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": None},
            "x": {"field": "low", "type": "quantitative"},
            "x2": {"field": "high"},
            "tooltip": tooltip({"row": "", "text": "80 %"}),
        },
    }
    rows = len({each["row"] for each in values})
    return spec(placed, ROW * rows, layer=[bar, *[rule] * (limit is not None), *[within] * bool(intervals)])


def coloured(parts: Sequence[str], values: Values, field: str = "part") -> dict[str, Any]:
    """Each of `parts` in its own colour whatever else occurs, so that charts compare; a legend of those that
    occur, unless so many share a colour that only the hover and the table can tell.
    """
    found = {each[field] for each in values}
    shown = [(part, PALETTE[place % len(PALETTE)]) for place, part in enumerate(parts) if part in found]
    names, colours = [part for part, _ in shown], [colour for _, colour in shown]
    legend = {"columns": LEGEND_COLUMNS} if 1 < len(parts) <= len(PALETTE) else None
    scale = {"domain": names, "range": colours}
    return {"field": field, "type": "nominal", "title": None, "scale": scale, "legend": legend}


LEGEND_COLUMNS = {"expr": "max(2, floor(width / 150))"}


def tooltip(fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Fields -> what stands before each in a hover."""
    return [{"field": name, "type": "nominal", "title": title or " "} for name, title in fields.items()]


SHORT = {"labelExpr": "format(datum.value, abs(datum.value) < 1000 ? '~r' : '~s')", "tickCount": 8}
"""``1.9M`` for 1,900,000; ``0.08`` for 0.08."""


def points(values: Values, axes: Mapping[str, str], kinds: Sequence[str]) -> dict[str, Any]:
    """Points over two axes that a reader chooses from `axes` (field -> title); a click chooses a point by its ``id``.

    `values` have ``id``, ``label``, ``kind`` (of `kinds`) and a number for each axis, where it is known; where an
    axis's ``_low`` and ``_high`` are known, too, a line joins them. A point that has a ``name`` carries it.
    """
    names, titles = list(axes), list(axes.values())
    first, second = names[0], names[1] if len(names) > 1 else names[0]
    picked = [
        {"name": name, "value": value, "bind": {"input": "select", "options": names, "labels": titles, "name": label}}
        for name, value, label in (("across", first, "Across: "), ("up", second, "Up: "))
    ]
    shapes = [kind for kind in kinds if any(each["kind"] == kind for each in values)]
    within = any(f"{name}_low" in value for value in values for name in names)
    axis: dict[str, Any] = {"type": "quantitative", "title": None, "scale": {"zero": False}, "axis": SHORT}
    place = {"x": {"field": "x", **axis}, "y": {"field": "y", **axis}}
    clear = {"condition": {"test": "chosen === '' || datum.id === chosen", "value": 0.9}, "value": 0.35}
    marks = {
        "mark": {"type": "point", "filled": True, "cursor": "pointer"},
        "encoding": {
            **place,
            "color": coloured(kinds, values, "kind"),
            "shape": {"field": "kind", "type": "nominal", "title": None, "scale": {"domain": shapes}},
            "size": {"condition": [{"test": f"datum.id === chosen || {ADVISED}", "value": 260}], "value": 90},
            "opacity": clear,
            "tooltip": tooltip({"label": "", **{f"{name}_text": title for name, title in axes.items()}}),
        },
    }
    named = {
        "transform": [{"filter": "isValid(datum.name)"}],
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 8, "dy": -4, "fontSize": 12},
        "encoding": {**place, "text": {"field": "name", "type": "nominal"}, "opacity": clear},
    }
    return spec(
        values,
        300,
        params=[*picked, {"name": "chosen", "value": ""}, {"name": "titles", "value": dict(axes)}],
        transform=[
            {"calculate": "datum[across]", "as": "x"},
            {"calculate": "datum[up]", "as": "y"},
            # A point without an interval has one of no length: an axis that no interval is known of keeps its extent.
            *(_end(to, name, end) for to, name in (("x", "across"), ("y", "up")) for end in ("_low", "_high")),
            {"filter": "isValid(datum.x) && isValid(datum.y)"},
        ],
        layer=[
            *(_interval(name, place) for name in "xy" if within),
            marks,
            *[named] * any("name" in value for value in values),
            _title("across", {"x": {"expr": "width"}, "y": {"expr": "height + 34"}, "align": "right"}),
            _title("up", {"x": 0, "y": -10, "align": "left"}),
        ],
        padding={"top": 24, "bottom": 10, "left": 5, "right": 5},
    )  # fmt: skip


ADVISED = "datum.kind === 'recommended'"


def _end(axis: str, chosen: str, end: str) -> dict[str, str]:
    """The calculation of one end of a point's interval on the axis that a reader has chosen."""
    known = f"datum[{chosen} + '{end}']"
    return {"calculate": f"isValid({known}) ? {known} : datum.{axis}", "as": f"{axis}{end}"}


def _interval(axis: str, place: Mapping[str, Any]) -> dict[str, Any]:
    """A line from the low to the high end of what points have on an axis."""
    ends = {axis: {**place[axis], "field": f"{axis}_low"}, f"{axis}2": {"field": f"{axis}_high"}}
    return {
        "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.45, "aria": False},
        "encoding": {**place, **ends},
    }


def _title(axis: str, placed: Mapping[str, Any]) -> dict[str, Any]:
    """The title of the axis that a reader has chosen, which stands in print, too."""
    text = {"type": "text", "fontSize": 12, "text": {"expr": f"titles[{axis}]"}, "aria": False, **placed}
    return {"data": {"values": [{}]}, "mark": text}


def spans(values: Values, unit: str, parts: Sequence[str], rows: Sequence[str], marks: Values = ()) -> dict[str, Any]:
    """Spans of time on rows: ``row``, ``part``, ``start``, ``end`` in `unit`, and ``text`` for the hover.

    Each of `marks` is an upright line on its ``row`` where its ``part`` has a limit, ``start``.
    """
    y = {"field": "row", "type": "nominal", "sort": list(rows), "title": None}
    shared = {"color": coloured(parts, values), "tooltip": tooltip({"row": "", "part": "part", "text": "is"})}
    bar = {
        "mark": {"type": "bar", "aria": len(values) <= MOST_NAMED, "cursor": "default"},
        "encoding": {"y": y, "x": {"field": "start", "title": unit, **SPAN}, "x2": {"field": "end"}, **shared},
    }
    if not marks:
        return spec(values, ROW * len(rows), **bar)
    tick = {
        "data": {"values": list(marks)},
        "mark": {"type": "tick", "thickness": 4, "aria": False},
        "encoding": {"y": y, "x": {"field": "start", **SPAN}, **shared},
    }
    return spec(values, ROW * len(rows), layer=[bar, tick])


def lines(values: Values, across: str, up: str, parts: Sequence[str], crossings: Values) -> dict[str, Any]:
    """A line for each of `parts` over ``x``, at ``y``, dashed where ``level`` is true; with points, `crossings`."""
    place = {
        "x": {"field": "x", "type": "quantitative", "title": across, "axis": {"tickCount": 6}},
        "y": {"field": "y", "type": "quantitative", "title": up, "axis": {"tickCount": 6}},
        "color": coloured(parts, values),
    }
    dashes = {"condition": {"test": "datum.level", "value": [6, 4]}, "value": [1, 0]}
    line = {"mark": {"type": "line", "aria": False}, "encoding": {**place, "strokeDash": dashes}}
    point = {
        "data": {"values": list(crossings)},
        "mark": {"type": "point", "filled": True, "size": 110},
        "encoding": {**place, "tooltip": tooltip({"part": "", "text": "is"})},
    }
    return spec(values, 260, layer=[line, point])


SPAN = {"type": "quantitative", "scale": {"nice": False}, "axis": {"tickCount": 8}}
MOST_NAMED = 60
"""Marks that a screen reader is given one by one; of more, the table states the same in fewer words."""


def against(values: Values, unit: str, least: float, most: float) -> dict[str, Any]:
    """Predicted over measured on logarithmic axes, with the diagonal on which both are equal."""
    axis = {"type": "quantitative", "scale": {"type": "log", "domain": [least, most]}}
    diagonal = {
        "data": {"values": [{"x": least, "y": least}, {"x": most, "y": most}]},
        "mark": {"type": "line", "strokeDash": [4, 4], "strokeWidth": 1, "aria": False},
        "encoding": {"x": {"field": "x", **axis}, "y": {"field": "y", **axis}},
    }
    dots = {
        "mark": {"type": "circle", "size": 26, "opacity": 0.45, "color": PALETTE[0], "aria": False},
        "encoding": {
            "x": {"field": "measured", "title": f"measured, {unit}", **axis},
            "y": {"field": "predicted", "title": f"predicted, {unit}", **axis},
            "tooltip": tooltip({"label": "", "text": "is"}),
        },
    }
    return spec(values, 420, layer=[diagonal, dots])


def columns(values: Values, unit: str, parts: Sequence[str]) -> dict[str, Any]:
    """Stacked columns: ``row`` across, ``part`` stacked, ``value`` in `unit`."""
    return spec(
        values,
        240,
        mark={"type": "bar", "cursor": "default", "width": {"expr": f"min({WIDEST}, 0.6 * bandwidth('x'))"}},
        encoding={
            "x": {"field": "row", "type": "ordinal", "sort": None, "title": None, "axis": {"labelAngle": 0}},
            "y": {"field": "value", "type": "quantitative", "title": unit},
            "color": coloured(parts, values),
            "tooltip": tooltip({"row": "", "part": "part", "text": "is"}),
        },
    )


WIDEST = 80
"""Pixels of a column, where there are few."""


def parts_of(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """The parts that occur, in the order of their first occurrence."""
    return list(dict.fromkeys(str(each["part"]) for each in values))
