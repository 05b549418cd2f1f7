"""How far off the predicted ratio of two step times may be: what two plans share cancels.

Predictions of two plans err alike as far as their steps are made of the same causes: a rate of matrix products that is
10 % too high shortens both. What is left grows with the distance of the two plans, which is the part of a step that is
of other causes. a and b are the shares of each cause in the two steps:

    half = apart + by_distance d,    d = sum_k |a_k - b_k| / 2

Both terms are fitted to pairs of measured runs of one job (`planner/calibration/fit/evidence.py`). Two plans with
nothing in common err independently: ``half = sqrt(h_1^2 + h_2^2)``. No difference is less sure than that.

half: half-width of the 80 % interval of the logarithm of the ratio.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.figures.conformal_intervals import LEVEL, Width, quantile

APART, BY_DISTANCE = "differences/apart", "differences/by distance"
"""Names of the two terms among the sets of an interval file."""
FEWEST = 4
"""Sources whose pairs of runs make a fit."""
_ROUNDS, _LEAST = 100, 1e-4
"""Rounds of reweighting; least residual that a weight is taken of, and least term."""


def distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """The part of a step that is of other causes, 0 to 1, from the seconds of each cause in two steps:
    ``d = sum_k |a_k - b_k| / 2``.
    """
    whole = sum(first.values())
    other_whole = sum(second.values())
    causes = first.keys() | second.keys()
    return sum(abs(first.get(k, 0.0) / whole - second.get(k, 0.0) / other_whole) for k in sorted(causes)) / 2.0


def half_width(known: Mapping[str, Width], apart: float) -> float | None:
    """Half-width of the 80 % interval of a log ratio of two plans so far apart, ``half = apart + by_distance d``; None
    where no pair was measured.
    """
    if APART not in known or BY_DISTANCE not in known:
        return None
    return known[APART].half + known[BY_DISTANCE].half * apart


def fitted(residuals: Array, apart: Array, sources: NDArray[np.str_]) -> dict[str, Width]:
    """The two terms that hold 80 % of the pairs of a further source; none where too few sources have pairs.

    Quantile regression of ``|residual|`` on the distance (Koenker and Bassett 1978), each source of the same weight,
    by iteratively reweighted least squares. Both terms are then scaled by one factor: with K sources the one that holds
    ``LEVEL (K + 1) / K`` of their pairs (Lee, Barber and Willett, arXiv 2306.06342).

    Args:
        residuals: Log of the predicted over the measured ratio of each pair, shape (pairs,).
        apart: Distance of each pair.
        sources: Who measured each.
    """
    source, counts = np.unique(sources, return_inverse=True, return_counts=True)[1:]
    if len(counts) < FEWEST:
        return {}
    size = np.abs(residuals)
    weight = 1.0 / counts[source]
    columns = np.stack([np.ones_like(apart), apart], axis=1)

    terms = np.array([quantile(size, weight, LEVEL), 0.0])
    for _ in range(_ROUNDS):
        beyond = size - columns @ terms
        slope = np.where(beyond > 0.0, LEVEL, 1.0 - LEVEL) / np.maximum(np.abs(beyond), _LEAST)
        weighted = columns * (weight * slope)[:, None]
        terms = np.maximum(np.linalg.solve(weighted.T @ columns, weighted.T @ size), _LEAST)

    share = min(LEVEL * (len(counts) + 1) / len(counts), 1.0)
    terms = terms * quantile(size / (columns @ terms), weight, share)
    return {name: Width(float(term), len(size)) for name, term in zip((APART, BY_DISTANCE), terms, strict=True)}
