"""How much of the objective's variation over the whole space each axis explains: a functional ANOVA (fANOVA).

A fANOVA splits a function on a product space, every point equally likely, into parts of one axis, of two, and so on,
each of mean zero over any of its axes; their variances add up to the whole (Hooker 2007; Hutter, Hoos and Leyton-Brown,
ICML 2014, who apply it to a forest fitted to trials). Nothing is fitted here: points are evaluated exactly, all of a
small space, else a sample.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.study.program.evaluation import Evaluator

WHOLE = 1500
"""Points up to which all of a space are evaluated."""
SAMPLED = 256
"""Points of a larger one."""
LEAST = 32
"""Points that must train for importances to mean anything."""
GROUPS = 8
"""Most groups of an axis' values, where points are a sample."""


@dataclass(frozen=True)
class Importance:
    """Shares of the variance of the first objective's logarithm."""

    alone: dict[str, float]
    """Axis -> what it explains by itself; the largest first."""
    pairs: dict[tuple[str, str], float]
    """Two axes -> what they explain together, beyond each by itself; empty where it is not known."""
    method: str


def importance(evaluator: Evaluator, seed: int) -> Importance:
    """What the axes explain. Constraints are left out.

    A small space is decomposed exactly: over all points, or over those of the values with which every workload trains,
    as long as half of the points that train are among them. Else main effects are estimated from the points that train.
    """
    study = evaluator.study
    sizes = tuple(len(axis.values) for axis in study.axes)
    whole = study.size <= WHOLE
    if whole:
        points = [study.point(number) for number in range(study.size)]
    else:
        unit = spread(len(sizes), SAMPLED, seed)
        points = [tuple(int(x) for x in row) for row in np.floor(unit * np.array(sizes)).astype(int)]
    name = study.objectives[0]
    costs = [outcome.objectives.get(name) for outcome in evaluator.loosened().many(points)]
    values = np.array([math.nan if value is None else math.log(value) for value in costs])
    trained = np.isfinite(values)
    count = int(np.count_nonzero(trained))
    paths = [axis.path for axis in study.axes]
    if whole and count > 1:
        kept = complete(trained.reshape(sizes))
        grid = values.reshape(sizes)[np.ix_(*kept)]
        if 2 * grid.size >= count:
            return _exact(paths, grid, study.size)
    if count < LEAST:
        return Importance({}, {}, f"not known: of {len(points):,} points spread over the space {count:,} train")
    places = np.array(points)[trained]
    groups = [places[:, n] * GROUPS // max(size, GROUPS) for n, size in enumerate(sizes)]
    shares = {path: explained(group, values[trained]) for path, group in zip(paths, groups, strict=True)}
    method = f"fANOVA, main effects estimated from {count:,} points evaluated exactly"
    return Importance(_falling(shares), {}, method)


def _exact(paths: list[str], grid: NDArray[np.float64], points: int) -> Importance:
    alone, interactions = decomposed(grid)
    pairs = {(paths[i], paths[j]): share for (i, j), share in sorted(interactions.items(), key=lambda item: -item[1])}
    some = f"{grid.size:,} of {points:,} points, values with which everything trains"
    method = f"fANOVA, exact: {some if grid.size < points else f'all {points:,} points'}"
    return Importance(_falling(dict(zip(paths, alone, strict=True))), pairs, method)


def complete(trained: NDArray[np.bool_]) -> list[NDArray[np.intp]]:
    """Places on every axis between which everything trains: the value with the largest share of points that do not is
    left out until none is left, of equal ones that of the longest axis.
    """
    kept = [np.arange(size) for size in trained.shape]
    while trained.size and not trained.all():
        shares = [
            1.0 - trained.mean(axis=tuple(n for n in range(trained.ndim) if n != axis)) for axis in range(trained.ndim)
        ]
        axis = max(range(trained.ndim), key=lambda n: (float(shares[n].max()), len(shares[n])))
        worst = int(shares[axis].argmax())
        trained = np.delete(trained, worst, axis=axis)
        kept[axis] = np.delete(kept[axis], worst)
    return kept


def _falling(shares: dict[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def decomposed(values: NDArray[np.float64]) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Shares of the variance on a complete grid, one dimension an axis: of each axis, and of each two beyond those.

    ``S_i = mean(f_i^2) / V`` with ``f_i = E[f | x_i] - E[f]``; ``S_ij = mean(f_ij^2) / V`` with
    ``f_ij = E[f | x_i, x_j] - E[f] - f_i - f_j``.
    """
    dimensions = range(values.ndim)
    centred = values - values.mean()
    total = float(np.mean(centred**2))
    if total <= 1e-24:
        return [0.0] * values.ndim, {}

    def over(*kept: int) -> NDArray[np.float64]:
        return np.asarray(centred.mean(axis=tuple(n for n in dimensions if n not in kept), keepdims=True))

    alone = [over(n) for n in dimensions]
    pairs = {
        (i, j): float(np.mean((over(i, j) - alone[i] - alone[j]) ** 2)) / total
        for i, j in itertools.combinations(dimensions, 2)
    }
    return [float(np.mean(effect**2)) / total for effect in alone], pairs


def explained(groups: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """Share of a variance that lies between groups of a sample, corrected for their number:
    ``1 - (1 - V_i / V) (n - 1) / (n - k)``, V_i the variance between the means of k groups of n points.
    """
    total = float(np.sum((values - values.mean()) ** 2))
    parts = [values[groups == group] for group in np.unique(groups)]
    if total == 0.0 or len(parts) < 2 or len(parts) == len(values):
        return 0.0
    within = float(sum(np.sum((part - part.mean()) ** 2) for part in parts))
    return max(0.0, 1.0 - within / total * (len(values) - 1) / (len(values) - len(parts)))


def spread(dimensions: int, n: int, seed: int) -> NDArray[np.float64]:
    """Points in the unit cube, shape (n, dimensions), spread evenly along every axis (Latin hypercube)."""
    rng = np.random.default_rng(seed)
    columns = [(rng.permutation(n) + rng.random(n)) / n for _ in range(dimensions)]
    return np.stack(columns, axis=1)
