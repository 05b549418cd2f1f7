"""The oracle of how layers are split over stages: the split of one pipeline with the least step time, exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.mixed.layer_split import StageCosts, stage_times


def one(costs: StageCosts, index: int) -> StageCosts:
    """The costs of one pipeline, still with a first axis (of length 1)."""
    return costs.taken(slice(index, index + 1))


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
