"""Layers to the stages of one pipeline whose stages are unlike: exact, with memory checked stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.solver import Linear, Problem, dot, total


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


@dataclass(frozen=True, slots=True)
class _Bisected:
    """The same stages as bisection reads them dozens of times: pipelines stand last, where NumPy is fast."""

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


def _may_hold(costs: StageCosts, layers: int) -> NDArray[np.bool_]:
    """Whether the stages of a pipeline have room for all layers, however long they take."""
    max_layers = np.max(costs.max_layers, axis=-1)
    best = np.min(np.where(costs.max_layers >= 1, costs.each, np.inf), axis=-1)
    return np.asarray(np.all((max_layers >= costs.least) & np.isfinite(best), axis=-1) & (max_layers.sum(-1) >= layers))


def _spread(rows: NDArray[np.intp], count: int, found: LayerSplit) -> LayerSplit:
    """The deals of some rows among all of them; nothing fits in the others."""
    fits = np.isfinite(found.slowest)
    layers, policy = np.zeros((2, count, found.layers.shape[1]), dtype=np.int64)
    slowest, total = np.full((2, count), np.inf)
    layers[rows[fits]], policy[rows] = found.layers[fits], found.policy
    slowest[rows[fits]], total[rows[fits]] = found.slowest[fits], found.total[fits]
    return LayerSplit(layers, policy, slowest, total)


def _without_surplus(held: Array, each: Array, least: NDArray[np.int64], layers: int) -> NDArray[np.int64]:
    """Takes layers away, dearest first, until as many as there are remain."""
    dealt = np.minimum(held, layers).astype(np.int64)
    order = np.argsort(-each, axis=-1, kind="stable")
    rows = np.arange(len(dealt))
    for rank in range(dealt.shape[1]):
        stage = order[:, rank]
        surplus = dealt.sum(-1) - layers
        take = np.clip(surplus, 0, dealt[rows, stage] - least[rows, stage])
        dealt[rows, stage] -= take
    return dealt


def best_split(costs: StageCosts, layers: int, micro_batches: int) -> tuple[NDArray[np.int64], float]:
    """The split of one pipeline with the least step time, exact: ``min (M - 1) max + sum``; and that time.

    For every bound on the slowest stage, from the least possible one up, a dynamic program over stages finds the least
    sum; bounds end where ``(M - 1) bound`` and the least sum of all exceed the best found.

    Raises:
        ValueError: the layers do not fit.
    """
    table = _stage_table(costs, layers)
    bounds = np.unique(table[np.isfinite(table)])
    least_sum, _ = _least_sum(table, np.inf, layers)
    best: tuple[float, NDArray[np.int64]] = (np.inf, np.zeros(0, dtype=np.int64))
    for bound in bounds:
        if (micro_batches - 1) * bound + least_sum >= best[0]:
            break
        total, dealt = _least_sum(table, bound, layers)
        if np.isfinite(total):
            reached = float(np.max(table[np.arange(len(dealt)), dealt]))
            best = min(best, ((micro_batches - 1) * reached + total, dealt), key=lambda found: found[0])
    if not np.isfinite(best[0]):
        raise ValueError(f"{layers} layers do not fit")
    return best[1], best[0]


def _stage_table(costs: StageCosts, layers: int) -> Array:
    """Seconds of stage i with n layers, shape (stages, layers + 1); infinite where that is not possible."""
    stages = costs.fixed.shape[1]
    table = np.full((stages, layers + 1), np.inf)
    for n in range(1, layers + 1):
        times, _ = stage_times(costs, np.full((1, stages), n, dtype=np.int64))
        table[:, n] = np.where(n >= costs.least, times[0], np.inf)
    return table


def _least_sum(table: Array, bound: float, layers: int) -> tuple[float, NDArray[np.int64]]:
    """``f_i(l) = min over n of table_i(n) + f_(i+1)(l - n)`` with every stage within the bound."""
    allowed = np.where(table <= bound, table, np.inf)
    stages = len(allowed)
    after = np.full(layers + 1, np.inf)
    after[0] = 0.0
    choices: list[NDArray[np.int64]] = []
    for i in reversed(range(stages)):
        n, left = np.arange(layers + 1)[:, None], np.arange(layers + 1)[None, :]
        rest = np.where(left >= n, after[np.maximum(left - n, 0)], np.inf)
        sums = allowed[i][:, None] + rest
        choices.append(np.argmin(sums, axis=0))
        after = np.min(sums, axis=0)
    if not np.isfinite(after[layers]):
        return np.inf, np.zeros(stages, dtype=np.int64)
    dealt, left_over = [], layers
    for choice in reversed(choices):
        dealt.append(int(choice[left_over]))
        left_over -= dealt[-1]
    return float(after[layers]), np.array(dealt)


def one(costs: StageCosts, index: int) -> StageCosts:
    """The costs of one pipeline, still with a first axis (of length 1)."""
    return costs.taken(slice(index, index + 1))


def program(costs: StageCosts, layers: int, micro_batches: int) -> float:
    """The least step time of :func:`best_split` as an integer program with named constraints; slower, the oracle.

    ``deal``: every layer on one stage; ``once_i``: one number of layers on stage i; ``slowest_i``: its time.
    """
    table = _stage_table(costs, layers)
    asked = Problem()
    slowest = asked.continuous("slowest")
    picked: list[dict[int, Linear]] = []
    for i, row in enumerate(table):
        options = np.flatnonzero(np.isfinite(row))
        picked.append({int(n): asked.binary(f"stage_{i}_{n}") for n in options})
    times = [dot((table[i][n] for n in chosen), chosen.values()) for i, chosen in enumerate(picked)]
    asked.minimise((micro_batches - 1) * slowest + total(times))
    asked.constrain(total(n * x for chosen in picked for n, x in chosen.items()) == layers, "deal")
    for i, chosen in enumerate(picked):
        asked.constrain(total(chosen.values()) == 1, f"once_{i}")
        asked.constrain(times[i] <= slowest, f"slowest_{i}")
    return asked.solve(gap=0.0).objective


def stage_costs(parts: Sequence[tuple[Array, Array, Array, int]]) -> StageCosts:
    """Costs from (each, max_layers, fixed, least) of stage after stage, arrays of shape (pipelines, policies)."""
    return StageCosts(
        np.stack([p[0] for p in parts], 1),
        np.stack([p[1] for p in parts], 1),
        np.stack([p[2] for p in parts], 1),
        np.array([p[3] for p in parts], dtype=np.int64),
    )
