"""Open grids: the figures of a class, legal layouts on the last axis, options on rectangular axes before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.axes.axis import PlanAxis
from planner.axes.options import DIMENSIONS, OptionGrid, OptionValues, grid_of_one
from planner.axes.table import (
    PRECISION,
    RECOMPUTE,
    SCHEDULE,
)
from planner.axes.values import (
    FOLDED,
    SPLIT_SCHEDULES,
)
from planner.cost import layer_times
from planner.cost.figures import (
    Device,
    Figure,
    Grid,
    Layout,
    MeasuredLayers,
    Network,
    Shape,
    Stack,
    Times,
    mapped,
)
from planner.cost.figures import Options as OptionFigures
from planner.cost.nearness import Label
from planner.cost.second_memory import Expansion
from planner.figures.own_runs import NearRuns
from planner.space.blocks import Block

WIRED = "wired"
"""A row's machine, where `Figures` holds several networks (or networks and devices) as columns."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a grid needs beside layouts and options."""

    shape: Shape
    devices: dict[str, Device]
    """By precision."""
    network: Network
    """Its number of accelerators is replaced by the row's."""
    stack: Stack
    accelerators_per_node: int
    profiles: Mapping[str, layer_times.LayerTable] = field(default_factory=dict)
    """Layer times measured elsewhere, by the precision that they hold for."""
    expanded: Expansion | None = None
    own: NearRuns | None = None
    """A site's runs, where what they were off by shifts plans near them."""
    uncompiled: Stack | None = None
    """The software under a schedule that computes weight gradients apart, where its compiled kernels cannot."""

    def software(self, schedule: str) -> Stack:
        """The software as a schedule lets it run."""
        return self.uncompiled if self.uncompiled is not None and schedule in SPLIT_SCHEDULES else self.stack


def _on_axis(values: Sequence[float] | Sequence[str], dimension: int) -> NDArray[Any]:
    """Values along one dimension of the options, length 1 on the others and on the rows'."""
    shape = [1] * (len(DIMENSIONS) + 1)
    shape[dimension] = len(values)
    array = np.array(values)
    return (array if array.dtype.kind == "U" else array.astype(float)).reshape(shape)


def _scalar(values: Sequence[Any], dimension: int) -> Any:
    """The one value on a dimension of a single plan's options."""
    return values[0]


def _near_own_runs(
    figures: Figures, schedule: str, precision: Label, recompute: Label, accelerators: Figure, layout: Layout
) -> Stack:
    """The software, its whole step stretched on every plan by what a site's runs near it were off by."""
    stack = figures.software(schedule)
    if figures.own is None:
        return stack
    factor = figures.own.factor(precision, recompute, accelerators, layout)
    return replace(stack, whole_step=stack.whole_step * factor)


def open_grid(figures: Figures, block: Block) -> Grid:
    """The block as a grid of figures, SI: options on the leading axes, layouts on the last (:attr:`Block.shape`)."""
    options, rows = block.axes, block.rows
    devices = [figures.devices[name] for name in options[PRECISION]]
    columns: dict[str, Figure] = {name: column.astype(float) for name, column in rows.items() if name != WIRED}
    network = figures.network
    if WIRED in rows:
        wired = rows[WIRED]

        def own(figure: Figure) -> Figure:
            return figure[wired] if isinstance(figure, np.ndarray) else figure

        network, devices = mapped(network, own), [mapped(device, own) for device in devices]
    device = devices[0] if len(devices) == 1 else _by_precision(devices)
    return _grid(figures, network, device, columns, options, _on_axis)


def single_grid(figures: Figures, layout: dict[str, int], options: OptionValues) -> Grid:
    """One candidate as a grid of scalars, SI."""
    columns: dict[str, Figure] = {name: float(value) for name, value in layout.items()}
    device = figures.devices[options[PRECISION]]
    return _grid(figures, figures.network, device, columns, grid_of_one(options), _scalar)


def column_grid(figures: Figures, layouts: Mapping[str, NDArray[np.int64]], options: Sequence[OptionValues]) -> Grid:
    """Candidates of one precision and one schedule as a grid of columns, SI.

    Args:
        figures: What all of them share.
        layouts: Axis -> integers of shape (candidates,).
        options: Values of each candidate.
    """
    columns: dict[str, Figure] = {name: column.astype(float) for name, column in layouts.items()}
    each = [grid_of_one(values).points for values in options]
    points = OptionGrid(tuple(tuple(point for (point,) in listed) for listed in zip(*each, strict=True)))
    return _grid(figures, figures.network, figures.devices[options[0][PRECISION]], columns, points, _column)


def paired_grid(figures: Figures, block: Block, axis: PlanAxis[Any], at: NDArray[np.intp]) -> Grid:
    """The block as a grid of figures in which each row has one point on the dimension of an axis: that at its place."""
    alone = tuple(DIMENSIONS).index(axis.dimension)
    device = _by_precision([figures.devices[name] for name in block.axes[PRECISION]])
    columns: dict[str, Figure] = {name: column.astype(float) for name, column in block.rows.items()}

    def place(values: Sequence[Any], dimension: int) -> NDArray[Any]:
        return np.array(values)[at] if dimension == alone else _on_axis(values, dimension)

    return _grid(figures, figures.network, device, columns, block.axes, place)


def _column(values: Sequence[Any], dimension: int) -> NDArray[Any]:
    """A value of each candidate, whichever dimension of the options it lies on."""
    return np.array(values)


def _grid(
    figures: Figures,
    network: Network,
    device: Device,
    columns: dict[str, Figure],
    options: OptionGrid,
    place: Callable[[Sequence[Any], int], Any],
) -> Grid:
    """A grid of layouts and options, of pairs of them, or of one of each; `place` puts values along a dimension of the
    options.
    """
    nodes = columns.pop("nodes")
    (schedule,) = set(options[SCHEDULE])
    layout = Layout(**columns, looped=float(schedule not in FOLDED))
    accelerators = nodes * figures.accelerators_per_node
    precision = place(options[PRECISION], 0)
    policy = place([each.name for each in options[RECOMPUTE]], 1)
    return Grid(
        shape=figures.shape,
        device=device,
        network=replace(network, accelerators=accelerators),
        stack=_near_own_runs(figures, schedule, precision, policy, accelerators, layout),
        layout=layout,
        measured=measured_at(figures, tuple(dict.fromkeys(options[PRECISION])), layout, device),
        options=OptionFigures(**options.figures(place)),
        expanded=figures.expanded,
    )


def as_figures(options: OptionValues) -> OptionFigures:
    """One value of every option axis as numbers: shares from 0 to 1, switches 0 or 1."""
    return OptionFigures(**grid_of_one(options).figures(_scalar))


def _by_precision(devices: Sequence[Device]) -> Device:
    """Accelerators in several precisions as one: what differs lies along the axis of precisions."""
    found: dict[str, Figure] = {}
    for name in Device.__dataclass_fields__:
        each = [getattr(device, name) for device in devices]
        if any(isinstance(figure, np.ndarray) for figure in each):
            spread = np.stack(np.broadcast_arrays(*each))
            found[name] = spread.reshape(len(each), *[1] * (len(DIMENSIONS) - 1), -1)
        else:
            found[name] = each[0] if len(set(each)) == 1 else _on_axis(each, 0)
    return Device(**found)


def measured_at(figures: Figures, precisions: Sequence[str], layout: Layout, device: Device) -> MeasuredLayers | None:
    """What profiles say of the layouts in each precision; None if none does."""
    if not figures.profiles.keys() & set(precisions):
        return None
    known = [figures.profiles.get(name) for name in precisions]
    found = [layer_times.at(table, layout.tp, layout.micro) if table else layer_times.NOTHING for table in known]
    if len(found) == 1:
        return MeasuredLayers(times=found[0], device=device, network=figures.network, stack=figures.stack)
    shape = np.shape(layout.tp)

    def joined(name: str) -> NDArray[np.float64]:
        each = np.stack([np.broadcast_to(getattr(times, name), shape) for times in found])
        return each.reshape(len(found), *[1] * (len(DIMENSIONS) - 1), *shape)

    times = Times(**{name: joined(name) for name in Times.__dataclass_fields__})
    return MeasuredLayers(times=times, device=device, network=figures.network, stack=figures.stack)
