"""The Pareto front of a study: the points that nothing beats, and how much of the objectives' space they cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]
"""Shape (points, objectives); less is better in each."""


def undominated(costs: Costs) -> NDArray[np.intp]:
    """Indices of the points that no other beats, by the first objective; of equal points the first."""
    order = np.lexsort(costs.T[::-1])
    kept: list[int] = []
    for index in order.tolist():
        if not any(bool(np.all(costs[other] <= costs[index])) for other in kept):
            kept.append(index)
    return np.array(kept, dtype=np.intp)


def hypervolume(costs: Costs, reference: Sequence[float] | Costs) -> float:
    """Volume that the points dominate up to a reference point, by slicing along the last objective.

    ``HV = sum over slices (z_{i+1} - z_i) HV_{d-1}(points up to z_i)``
    """
    limit = np.asarray(reference, dtype=float)
    inside = costs[np.all(costs < limit, axis=1)]
    if not len(inside):
        return 0.0
    if len(limit) == 1:
        return float(limit[0] - np.min(inside))
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    heights = np.append(inside[:, -1], limit[-1])
    total = 0.0
    for n in range(len(inside)):
        thick = float(heights[n + 1] - heights[n])
        if thick > 0:
            total += thick * hypervolume(inside[: n + 1, :-1], limit[:-1])
    return total


def share(costs: Costs, everything: Costs) -> float:
    """Hypervolume of a front as a share of the box between the best and the worst of `everything`."""
    best, worst = np.min(everything, axis=0), np.max(everything, axis=0)
    wide = worst > best
    if not np.any(wide):
        return 1.0
    scaled = (costs[:, wide] - best[wide]) / (worst - best)[wide]
    return hypervolume(scaled, np.ones(int(np.count_nonzero(wide))))
