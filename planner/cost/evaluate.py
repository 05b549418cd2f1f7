"""A grid of plans in, their step time and memory out; and for few of them, what that time is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost import (
    data_parallel,
    expanded_memory,
    fine_tuning,
    layer_times,
    pipeline,
    split_schedules,
    stage_memory,
    tower,
    transformer,
)
from planner.cost.figures import Figure, Grid
from planner.cost.layer_activations import offloads
from planner.cost.pipeline import Flow, Stages
from planner.cost.products import LayerPart
from planner.cost.stage_memory import Memory
from planner.cost.transformer import Layer


@dataclass(frozen=True, slots=True)
class StepPasses:
    """What one micro-batch costs on one rank: it depends on tp, cp, ep, etp and the micro-batch only, not on pp, dp,
    vpp.
    """

    layers: tuple[Layer, ...]
    """A leading and a body layer, or one of each kind."""
    ends: tuple[LayerPart, LayerPart]
    """Embedding and head."""
    weights: tuple[Figure, Figure, Figure] | None = None
    """Seconds of weight gradients of a leading layer, another one and the head, where a schedule takes them apart."""

    def taken(self, rows: NDArray[np.intp]) -> StepPasses:
        """The totals of the given rows (last axis); parts are left behind."""

        def take(figure: Figure) -> Figure:
            return figure[..., rows] if np.ndim(figure) and figure.shape[-1] > 1 else figure

        return self._changed(take)

    def paired(self, axis: int, points: NDArray[np.intp], rows: NDArray[np.intp]) -> StepPasses:
        """The totals of pairs: of each row (last axis), those at one point of an option axis; parts are left behind."""

        def pair(figure: Figure) -> Figure:
            if np.ndim(figure) <= axis + 1 or figure.shape[axis] == 1:
                return figure[..., rows] if np.ndim(figure) and figure.shape[-1] > 1 else figure
            place = rows if figure.shape[-1] > 1 else np.zeros_like(rows)
            pairs_first = np.moveaxis(figure, axis, 0)[points, ..., place]
            return np.expand_dims(np.moveaxis(pairs_first, 0, -1), axis)

        return self._changed(pair)

    def least(self, axis: int) -> StepPasses:
        """Totals that none along an option axis undercuts; parts are left behind."""

        def lowest(figure: Figure) -> Figure:
            spread = np.ndim(figure) > axis and figure.shape[axis] > 1
            return np.min(figure, axis=axis, keepdims=True) if spread else figure

        return self._changed(lowest, lambda figure: -lowest(-figure))

    def _changed(
        self, change: Callable[[Figure], Figure], of_taken_off: Callable[[Figure], Figure] | None = None
    ) -> StepPasses:
        """Totals as `change` gives them, and those that are taken off others as `of_taken_off` does."""
        unread = of_taken_off or change
        layers = tuple(
            Layer(
                change(x.forward),
                change(x.backward),
                change(x.selective),
                {},
                change(x.hidden),
                change(x.modules),
                unread(np.asarray(x.unread)),
            )
            for x in self.layers
        )
        embedding, head = (LayerPart(change(x.forward), change(x.backward)) for x in self.ends)
        lead, body, top = self.weights or (0.0, 0.0, 0.0)
        weights = (change(lead), change(body), change(top)) if self.weights else None
        return StepPasses(layers, (embedding, head), weights)


def passes(grid: Grid) -> StepPasses:
    """Prices each kind of layer, the embedding and the head: as modelled, or as measured where that is known."""
    modelled = transformer.layers(grid), (transformer.embedding(grid), transformer.head(grid))
    layers, ends = fine_tuning.tuned(grid, *layer_times.overridden(grid, *modelled))
    if np.count_nonzero(grid.shape.tower_parameters):
        ends = ends[0] + tower.seconds(grid), ends[1]
    if offloads(grid):
        layers = copying(grid, layers)
    step_passes = StepPasses(layers if grid.expanded is None else _stashing(grid, layers), ends)
    return (
        replace(step_passes, weights=_weights(grid, modelled[0], step_passes))
        if np.count_nonzero(grid.options.schedule)
        else step_passes
    )


def _weights(grid: Grid, modelled: tuple[Layer, ...], priced: StepPasses) -> tuple[Figure, Figure, Figure]:
    """Seconds of weight gradients, by their share of the backward passes in the model: of a leading layer, another one
    and the head (layers of several kinds have no such schedule: :mod:`planner.space.split_schedules`).
    """
    layer_pairs = zip((0.0 * grid.shape.moe_share, grid.shape.moe_share), modelled, priced.layers, strict=True)
    lead, body = (split_schedules.weight_seconds(grid, moe) * y.backward / x.backward for moe, x, y in layer_pairs)
    return lead, body, split_schedules.head_weight_seconds(grid)


def copying(grid: Grid, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers with what copying activations to host memory and back takes longer than passes that hide it:
    ``max(moved / host link - pass, 0)`` each way.

    Copies have streams of their own, and no kernels. A backward pass waits for what it reads; a forward pass for
    memory, or as TRL's does (:mod:`planner.cost.layer_activations` names the sources). Both count as backward: what is
    recomputed is not copied again.
    """
    slowed = []
    for layer, activations in zip(layers, stage_memory.kept_by_layers(grid), strict=True):
        seconds = activations.moved / grid.device.host_bandwidth
        late = np.maximum(seconds - layer.forward, 0.0) + np.maximum(seconds - layer.backward, 0.0)
        parts = layer.parts | {"offload": LayerPart(0.0, late)}
        slowed.append(replace(layer, backward=layer.backward + late, parts=parts))
    return tuple(slowed)


def _stashing(grid: Grid, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers with what it takes to keep activations in expanded memory, and to read them again."""
    slowed = []
    every_activations = stage_memory.kept_by_layers(grid)
    for layer, activations in zip(layers, every_activations, strict=True):
        kept = activations.kept * grid.stack.activation_factor
        part = LayerPart(*expanded_memory.stash(grid, kept, layer.forward, layer.backward))
        parts = layer.parts | {"expanded": part}
        forward = layer.forward + part.forward
        backward = layer.backward + part.backward
        slowed.append(replace(layer, forward=forward, backward=backward, parts=parts))
    return tuple(slowed)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Step time (seconds) in the three terms that are added up, and memory (bytes). Arrays broadcast against each
    other.
    """

    steady: Figure
    """Micro-batches through the pipeline."""
    exposed: Figure
    """Data-parallel communication that nothing hides."""
    fixed: Figure
    """Optimizer and per-step overhead."""
    memory: Figure

    @property
    def time(self) -> Figure:
        """Seconds a step takes."""
        return self.steady + self.exposed + self.fixed


def jitter(grid: Grid) -> Figure:
    """Factor by which a site, and waiting for the slowest rank, stretch a step: ``w (1 + j log2(nodes))``."""
    nodes = np.maximum(grid.network.accelerators / np.minimum(grid.network.domain, 8.0), 1.0)
    return grid.stack.whole_step * (1.0 + grid.stack.jitter * np.log2(nodes))


@dataclass(frozen=True, slots=True)
class Terms:
    """Intermediate results that a breakdown needs again."""

    stages: Stages
    flow: Flow
    exposed: Figure
    update: Figure
    jitter: Figure
    memories: tuple[Memory, ...]


def terms(grid: Grid, priced: StepPasses | None = None) -> Terms:
    """All terms of the grid's cost."""
    s, flow, exposed, update, wait = _timed(grid, passes(grid) if priced is None else priced)
    return Terms(s, flow, exposed, update, wait, stage_memory.stages(grid, s.split))


def _timed(grid: Grid, priced: StepPasses) -> tuple[Stages, Flow, Figure, Figure, Figure]:
    """The terms that take time."""
    s = pipeline.stages(grid, priced.layers, priced.ends, priced.weights)
    f = pipeline.flow(grid, s)
    return s, f, data_parallel.exposed(grid, s.split, f), data_parallel.update(grid, s.split), jitter(grid)


def evaluate(grid: Grid, priced: StepPasses | None = None, held: Figure | None = None) -> StepCost:
    """Step time and memory of every candidate of the grid.

    ``time = (steady + exposed) jitter + update + overhead``. `priced` may hold the micro-batch costs computed once for
    the distinct (tp, cp, ep, etp, micro-batch) and spread over rows, and `held` the bytes where they are known.
    """
    s, flow, exposed, update, wait = _timed(grid, passes(grid) if priced is None else priced)
    held = stage_memory.largest(stage_memory.stages(grid, s.split)) if held is None else held
    return StepCost(flow.time * wait, exposed * wait, update + grid.stack.step_overhead, held)


@dataclass(frozen=True, slots=True)
class Busiest:
    """The stage that sets the pace."""

    counts: tuple[Figure, ...]
    """Layers on it: leading dense ones and others, or each kind."""
    at_start: Figure
    """1 if it is the first stage."""
    at_end: Figure
    """1 if it holds the logits."""


def busiest(grid: Grid, s: Stages) -> Busiest:
    """The slowest stage; of equals the last, then one between."""
    (stage, *first), *others = s.passes(grid)
    seconds: Figure = sum(first)
    at_start: Figure = np.ones_like(grid.layout.pp, dtype=bool)
    at_end: Figure = pipeline.with_head(grid.layout)
    counts = stage.counts
    for number, (stage, *stage_passes) in enumerate(others, 1):
        slower = stage.exists & (sum(stage_passes) >= seconds)
        seconds = np.where(slower, sum(stage_passes), seconds)
        at_start = at_start & ~slower
        at_end = np.where(slower, (number == len(others)) & (grid.layout.looped > 0), at_end)
        counts = tuple(np.where(slower, a, b) for a, b in zip(stage.counts, counts, strict=True))
    return Busiest(counts, at_start, at_end)


def breakdown(grid: Grid, priced: StepPasses | None = None) -> dict[str, Figure]:
    """Seconds of a step by cause; the values add up to the step time.

    Work is that of the slowest stage over all micro-batches; what other stages add while the pipeline fills and
    drains is the bubble.
    """
    priced = passes(grid) if priced is None else priced
    t = terms(grid, priced)
    s = t.stages
    layout = grid.layout
    steps = pipeline.micro_batches(layout)
    busy = busiest(grid, s)
    n, at_start = busy.counts, busy.at_start
    parts: dict[str, Figure] = {}
    for name in priced.layers[-1].parts:
        layer_parts = [layer.parts[name] for layer in priced.layers]
        parts[name] = steps * pipeline.together(n, [part.forward + part.backward for part in layer_parts])
    parts["recompute"] = steps * pipeline.together(n, [layer.again for layer in s.layers])
    parts["embedding"] = steps * at_start * (s.embedding.forward + s.embedding.backward)
    if np.count_nonzero(grid.shape.tower_parameters):
        tower_passes = tower.seconds(grid)
        parts["tower"] = steps * at_start * (tower_passes.forward + tower_passes.backward)
        parts["embedding"] = parts["embedding"] - parts["tower"]
    parts["logits"] = steps * busy.at_end * (s.head.forward + s.head.backward)
    parts["ep"] = parts["ep"] + pipeline.together([steps * x for x in n], [layer.alone for layer in s.layers])
    parts["p2p"] = steps * s.transfer
    parts["bubble"] = t.flow.bubble
    held = data_parallel.most_held(grid, s.split)
    copied = data_parallel.data_parallel_traffic(grid, held, s.split.first, t.flow.forward, t.flow.backward).copied
    if np.count_nonzero(copied):
        parts["copies"] = copied
    parts["dp"] = t.exposed - copied
    site = grid.stack.whole_step
    parts = {name: site * seconds for name, seconds in parts.items()}
    parts["optimizer"] = t.update
    parts["jitter"] = (t.flow.time + t.exposed) * (t.jitter - site)
    parts["overhead"] = grid.stack.step_overhead + 0.0 * parts["bubble"]
    return parts
