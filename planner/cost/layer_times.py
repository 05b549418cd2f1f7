"""Layer times measured elsewhere, in place of the model's own.

A profile knows forward, backward and update times at some micro-batches and tensor-parallel degrees. Between measured
micro-batches time is linear, outside them the nearest one's rate holds. At another tensor-parallel degree, with context
parallelism, sequence parallelism or overlap that were not measured, the model's own ratio to the nearest measured
degree is applied: every part of a layer that the profile timed is scaled by one factor each way, so that a breakdown
still adds up. Communication that it did not time, the pipeline, data parallelism and memory stay as modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import elements, transformer
from planner.cost.figures import Figure, Grid, Times
from planner.cost.products import LayerPart
from planner.cost.transformer import Layer

COMPUTE = ("matrix", "attention", "vector", "launch")
"""Parts of a layer that a profile times whatever else it times."""
FIELDS = (
    "forward",
    "backward",
    "embedding_forward",
    "embedding_backward",
    "head_forward",
    "head_backward",
)


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds at one micro-batch, in the order of :data:`FIELDS`."""

    micro: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LayerTable:
    """A profile of one model on one accelerator."""

    points: Mapping[int, tuple[Point, ...]]
    """Tensor-parallel degree -> its points, micro-batch ascending."""
    update: Mapping[int, float]
    """Tensor-parallel degree -> seconds of the whole optimizer step; 0 if not measured."""
    sequence_parallel: bool
    communication: bool


def at(table: LayerTable, tp: Figure, micro: Figure) -> Times:
    """Measured times at some micro-batches, for the nearest measured tensor-parallel degree.

    ``t(m) = t_a + (t_b - t_a) (m - a) / (b - a)`` between measured micro-batches a and b, ``t(m) = t_a m / a`` beyond
    the outermost a. The nearest degree is that of least ``|log2(tp / measured)|``; of two, the smaller.
    """
    tp, micro = np.broadcast_arrays(np.asarray(tp, dtype=float), np.asarray(micro, dtype=float))
    degrees = np.array(sorted(table.points), dtype=float)
    nearest = degrees[np.argmin(np.abs(np.log2(tp[..., None] / degrees)), axis=-1)]
    columns = {name: np.zeros(micro.shape) for name in (*FIELDS, "update")}
    for degree in table.points:
        is_nearest = nearest == degree
        for name, values in zip(FIELDS, _interpolated(table.points[degree], micro), strict=True):
            columns[name] = np.where(is_nearest, values, columns[name])
        columns["update"] = np.where(is_nearest, table.update[degree], columns["update"])
    held = {"sequence_parallel": float(table.sequence_parallel), "communication": float(table.communication)}
    times: dict[str, Figure] = {**held, **columns}
    return Times(tp=nearest, **{name: value + 0.0 * nearest for name, value in times.items()})


def _interpolated(points: tuple[Point, ...], micro: Figure) -> list[Figure]:
    known = np.array([point.micro for point in points], dtype=float)
    columns = np.array([point.seconds for point in points]).T
    beyond = micro / np.clip(micro, known[0], known[-1])
    return [np.interp(micro, known, column) * beyond for column in columns]


NOTHING = Times(tp=1.0, sequence_parallel=0.0, communication=0.0, update=0.0, **dict.fromkeys(FIELDS, 0.0))
"""Times of a plan that no profile holds for."""


def profiled(grid: Grid) -> Grid:
    """What was timed, as the model sees it: the same micro-batch on the measured degree, nothing else cut or hidden."""
    assert grid.measured is not None
    times = grid.measured.times
    return replace(
        grid,
        device=grid.measured.device,
        network=grid.measured.network,
        stack=grid.measured.stack,
        shape=replace(grid.shape, pattern=None),
        layout=replace(grid.layout, tp=times.tp, cp=1.0, ep=1.0, etp=1.0),
        options=replace(grid.options, sequence_parallel=times.sequence_parallel, tp_overlap=0.0),
        measured=None,
        expanded=None,
    )


def _factor(measured: Figure, modelled: Figure) -> Figure:
    """``measured / modelled``; 1 where nothing was measured."""
    return np.where(measured > 0, measured / np.where(modelled > 0, modelled, 1.0), 1.0)


def overridden(
    grid: Grid, layers: tuple[Layer, ...], ends: tuple[LayerPart, LayerPart]
) -> tuple[tuple[Layer, ...], tuple[LayerPart, LayerPart]]:
    """Layers and ends (embedding, head) scaled by measured over modelled time of what was timed: of a mean layer."""
    if grid.measured is None:
        return layers, ends
    times = grid.measured.times
    reference = profiled(grid)
    body = transformer.layers(reference)[1].parts
    timed = LayerPart(
        sum(body[name].forward for name in COMPUTE) + times.communication * body["tp"].forward,
        sum(body[name].backward for name in COMPUTE) + times.communication * body["tp"].backward,
    )
    factor = LayerPart(_factor(times.forward, timed.forward), _factor(times.backward, timed.backward))
    first, last = transformer.embedding(reference), transformer.head(reference)
    return tuple(_scaled(layer, factor, times.communication) for layer in layers), (
        _times(ends[0], times.embedding_forward, times.embedding_backward, first),
        _times(ends[1], times.head_forward, times.head_backward, last),
    )


def _times(end: LayerPart, forward: Figure, backward: Figure, modelled: LayerPart) -> LayerPart:
    return LayerPart(
        end.forward * _factor(forward, modelled.forward), end.backward * _factor(backward, modelled.backward)
    )


def _scaled(layer: Layer, factor: LayerPart, communication: Figure) -> Layer:
    parts = {}
    for name, part in layer.parts.items():
        timed = 1.0 if name in COMPUTE else communication if name == "tp" else 0.0
        ahead = 1.0 + timed * (factor.forward - 1.0)
        back = 1.0 + timed * (factor.backward - 1.0)
        parts[name] = LayerPart(part.forward * ahead, part.backward * back)
    forward, backward = (
        sum((getattr(part, way) for part in parts.values()), start=0.0) for way in ("forward", "backward")
    )
    modules = layer.modules * factor.forward
    unread = layer.unread * factor.forward
    return Layer(forward, backward, layer.selective * factor.forward, parts, layer.hidden, modules, unread)


def update_factor(grid: Grid) -> Figure:
    """Measured over modelled time of the optimizer step, ``tp t rate / (N trained step_bytes)``; 1 if not measured."""
    if grid.measured is None:
        return 1.0
    s = grid.shape
    times = grid.measured.times
    parameters = s.embedding_parameters + s.final_parameters + (1.0 - s.tied) * s.head_parameters
    parameters = parameters + s.layers * (s.attention_parameters + s.mlp_parameters)
    modelled = parameters / times.tp * s.trained * elements.step_bytes(grid) / grid.measured.device.memory_rate
    return _factor(times.update, modelled)
