"""Layers to the stages of one pipeline whose stages are unlike: exact, with memory checked stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Stages of many pipelines: pipelines on the first axis, stages on the second, policies on the third."""

    each: Array
    """Seconds of a layer and micro-batch, shape (pipelines, stages, policies)."""
    max_layers: Array
    """Most layers that fit, same shape."""
    fixed: Array
    """Seconds that a stage takes besides its layers, same shape or 1 policy."""
    least: NDArray[np.int64]
    """Layers that a stage must hold, shape (stages,) or (pipelines, stages)."""

    def taken(self, rows: NDArray[np.intp] | slice) -> StageCosts:
        """The costs of some of the pipelines."""
        least = self.least if self.least.ndim == 1 else self.least[rows]
        return StageCosts(self.each[rows], self.max_layers[rows], self.fixed[rows], least)


@dataclass(frozen=True, slots=True)
class LayerSplit:
    """Layers and policies of every stage, and what a micro-batch takes."""

    layers: NDArray[np.int64]
    """Shape (pipelines, stages); nothing fits where a row is 0."""
    policy: NDArray[np.int64]
    slowest: Array
    """Seconds of a micro-batch on the slowest stage; infinite where nothing fits. Shape (pipelines,)."""
    total: Array
    """Seconds of a micro-batch through all stages."""

    def taken(self, rows: NDArray[np.bool_] | slice) -> LayerSplit:
        """The deals of some of the pipelines."""
        return LayerSplit(self.layers[rows], self.policy[rows], self.slowest[rows], self.total[rows])


@dataclass(frozen=True, slots=True)
class _Bisected:
    """Costs of stages as bisection reads them dozens of times: pipelines stand last, where NumPy is fast."""

    each: Array
    """Shape (policies, stages, pipelines), as the others."""
    max_layers: Array
    fixed: Array

    def held(self, slowest: Array) -> Array:
        """Most layers of each stage whose micro-batch takes no longer than `slowest`, shape (stages, pipelines):

        ``max over policies of min(max_layers, (slowest - fixed) / each)``, rounded down.
        """
        n = np.subtract(slowest, self.fixed, out=np.empty_like(self.each))
        np.divide(n, self.each, out=n)
        np.multiply(n, 1.0 + 1e-12, out=n)
        np.floor(n, out=n)
        np.minimum(n, self.max_layers, out=n)
        return np.asarray(np.maximum(np.max(n, axis=0), 0.0))


def stage_times(costs: StageCosts, layers: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """Seconds of a micro-batch on every stage under the fastest recomputation that fits, and that policy's number.

    `layers` and both results have the shape (pipelines, stages); seconds are infinite where nothing fits.
    """
    n = layers[..., None].astype(float)
    times = np.where(costs.max_layers >= n, costs.each * n + costs.fixed, np.inf)
    policy = np.argmin(times, axis=-1)
    return np.take_along_axis(times, policy[..., None], axis=-1)[..., 0], policy


def dealt_times(costs: StageCosts, layers: NDArray[np.int64], policy: NDArray[np.int64]) -> Array:
    """Seconds of a micro-batch on every stage with these layers under these policies of recomputation, whether they
    fit or not; all of shape (pipelines, stages).
    """
    times = costs.each * layers[..., None] + costs.fixed
    return np.asarray(np.take_along_axis(times, policy[..., None], axis=-1)[..., 0])


def split_layers(costs: StageCosts, layers: int) -> LayerSplit:
    """The split of all layers whose slowest stage is fastest, of all pipelines at once: ``min max time``, and of those
    one of little total time.

    The least time at which all stages together hold the layers is found by bisection; surplus layers leave the stages
    where a layer takes longest.
    """
    rows = np.flatnonzero(_may_hold(costs, layers))
    able = costs.taken(rows)
    bisected = _Bisected(*(np.ascontiguousarray(figures.T) for figures in (able.each, able.max_layers, able.fixed)))
    least = np.broadcast_to(able.least, able.max_layers.shape[:2]).T
    high = np.max(bisected.each * layers + bisected.fixed, axis=(0, 1)) * 1.01
    low = np.zeros(len(rows))
    for _ in range(45):
        middle = 0.5 * (low + high)
        held = bisected.held(middle)
        enough = (held.sum(0) >= layers) & np.all(held >= least, axis=0)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    dealt = _without_surplus(bisected.held(high).T, np.min(able.each, axis=-1), least.T, layers)
    times, policy = stage_times(able, dealt)
    slowest, total = np.max(times, axis=-1), np.sum(times, axis=-1)
    return _spread(rows, len(costs.fixed), LayerSplit(dealt, policy, slowest, total))


def split_chains(costs: Mapping[int, StageCosts], layers: int) -> dict[int, LayerSplit]:
    """:func:`split_layers` for the pipelines of several chains, those of as many stages at once: a call costs more than
    a few pipelines do.
    """
    splits: dict[int, LayerSplit] = {}
    for stages in {cost.each.shape[1] for cost in costs.values()}:
        some = {i: cost for i, cost in costs.items() if cost.each.shape[1] == stages}
        split = split_layers(_joined([*some.values()]), layers)
        start = 0
        for i, cost in some.items():
            splits[i] = split.taken(slice(start, start := start + len(cost.each)))
    return splits


def _joined(parts: Sequence[StageCosts]) -> StageCosts:
    """The stages of all parts, one after the other."""
    least = [np.broadcast_to(times.least, times.each.shape[:2]) for times in parts]
    names = ("each", "max_layers", "fixed")
    times, max_layers, fixed = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    return StageCosts(times, max_layers, fixed, np.concatenate(least))


def _may_hold(costs: StageCosts, layers: int) -> NDArray[np.bool_]:
    """Whether the stages of a pipeline have room for all layers, however long they take."""
    max_layers = np.max(costs.max_layers, axis=-1)
    best = np.min(np.where(costs.max_layers >= 1, costs.each, np.inf), axis=-1)
    return np.asarray(np.all((max_layers >= costs.least) & np.isfinite(best), axis=-1) & (max_layers.sum(-1) >= layers))


def _spread(rows: NDArray[np.intp], count: int, split: LayerSplit) -> LayerSplit:
    """The deals of some rows among all of them; nothing fits in the others."""
    fits = np.isfinite(split.slowest)
    layers, policy = np.zeros((2, count, split.layers.shape[1]), dtype=np.int64)
    slowest, total = np.full((2, count), np.inf)
    layers[rows[fits]], policy[rows] = split.layers[fits], split.policy
    slowest[rows[fits]], total[rows[fits]] = split.slowest[fits], split.total[fits]
    return LayerSplit(layers, policy, slowest, total)


def _without_surplus(held: Array, limits: Array, least: NDArray[np.int64], layers: int) -> NDArray[np.int64]:
    """Takes layers away, dearest first, until as many as there are remain."""
    dealt = np.minimum(held, layers).astype(np.int64)
    order = np.argsort(-limits, axis=-1, kind="stable")
    rows = np.arange(len(dealt))
    for rank in range(dealt.shape[1]):
        stage = order[:, rank]
        surplus = dealt.sum(-1) - layers
        take = np.clip(surplus, 0, dealt[rows, stage] - least[rows, stage])
        dealt[rows, stage] -= take
    return dealt


def stage_costs(parts: Sequence[tuple[Array, Array, Array, int]]) -> StageCosts:
    """Costs from (each, max_layers, fixed, least) of stage after stage, arrays of shape (pipelines, policies)."""
    return StageCosts(
        np.stack([p[0] for p in parts], 1),
        np.stack([p[1] for p in parts], 1),
        np.stack([p[2] for p in parts], 1),
        np.array([p[3] for p in parts], dtype=np.int64),
    )
