"""How far a site's own runs shift the prediction of a plan: kriging over what plans differ in.

A run was off by ``r = log((measured - f) / (predicted - f))``, f what a step takes outside its passes. What a site's
runs under one framework are off by is taken to be a normal variable, of a part that all of them share, a part that
fades with the distance between two plans, and scatter:

    cov(r_i, r_j) = site^2 + near^2 exp(-d_ij) + scatter_i^2 [i = j]

The mean of it for a plan, given the runs, is a sum over them: ``sum_i w_i (site^2 + near^2 exp(-d_i))``, w the
solution of ``cov w = r`` (Rasmussen and Williams 2006, equation 2.25). Its first term, the same for all plans, is a
factor on the runtime's whole step; :func:`shift` is the second. A run that broke scatters more (:func:`scatters`), and
pulls the rest less.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array, Figure

SITE = 0.12
"""What a site is off by in all its runs (standard deviation, log): as intervals assume of labs that nobody has seen
(`ASSUMED` in `figures/step_time_interval.py`). Published labs, known to those who wrote the priors, show 0.04."""
NEAR, SCATTER = 0.13, 0.05
"""What it is off by in plans like one another, and in one run alone."""
OTHER = {"model": 0.6, "generation": 0.6, "precision": 0.5, "recompute": 0.4}
"""Distance between plans that differ in one of these: twice as far is as much less close again."""
DOUBLED = {"accelerators": 0.05, "tp": 0.4, "pp": 0.4, "cp": 0.4, "ep": 0.4, "micro": 0.3}
"""Distance between plans of which one has twice as many. All distances are of largest likelihood, to a digit, for the
residuals of labs and frameworks, the lab left out of the fit, each weighing by the root of its runs
(`docs/accuracy-details.md`)."""
MOST_OFF, ROUNDS = 2.0, 10
"""Standard deviations that a run is off at most from what the others say; what is beyond is scatter of its own, found
again so often."""

Label = str | NDArray[np.str_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfiguration:
    """What runs, or plans, differ in as far as their errors do. Labels and counts, scalars or arrays that broadcast."""

    model: Label
    """Its block: copies with fewer layers have the same."""
    generation: Label
    precision: Label
    recompute: Label
    accelerators: Figure
    tp: Figure
    pp: Figure
    cp: Figure
    ep: Figure
    micro: Figure

    def at(self, index: Any) -> RunConfiguration:
        """Some of columns, shape (runs,)."""
        return RunConfiguration(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


def closeness(one: RunConfiguration, other: RunConfiguration) -> Figure:
    """How close plans are, 1 (the same) to 0: ``exp(-d)``,
    ``d = sum_k c_k [a_k != b_k] + sum_k c_k |log2(a_k / b_k)|``, over labels and over counts.
    """
    distance: Figure = 0.0
    for name, far in OTHER.items():
        distance = distance + far * (getattr(one, name) != getattr(other, name))
    for name, far in DOUBLED.items():
        distance = distance + far * np.abs(np.log2(getattr(one, name) / getattr(other, name)))
    return np.exp(-distance)


@dataclass(frozen=True, slots=True)
class OwnRuns:
    """A site's runs under one framework, columns of shape (runs,)."""

    at: RunConfiguration
    residual: Array
    """Log of measured over predicted passes."""
    scatter: Array
    """Standard deviation of each by itself."""
    weight: Array
    """What a run says: w in ``cov w = r``."""

    @property
    def shared(self) -> float:
        """Log of the factor on every plan: ``site^2 sum_i w_i``."""
        return float(SITE**2 * np.sum(self.weight))


def weighed(at: RunConfiguration, residual: Array, scatter: Array) -> OwnRuns:
    """Runs, columns of shape (runs,), with what each says."""
    weight = np.linalg.solve(covariance(at) + np.diag(scatter**2), residual)
    return OwnRuns(at, residual, scatter, np.asarray(weight, dtype=float))


def scatters(at: RunConfiguration, residual: Array) -> Array:
    """How much each run scatters: :data:`SCATTER`, or so much that what the others say of it is :data:`MOST_OFF`
    standard deviations away at most: ``scatter_i^2 += (z_i^2 / most^2 - 1) / cov^-1_ii``,
    ``z_i = w_i / sqrt(cov^-1_ii)``.
    """
    known = covariance(at)
    variance = np.full(len(residual), SCATTER**2)
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(known + np.diag(variance))
        precision = np.diag(inverse)
        z = (inverse @ residual) / np.sqrt(precision)
        variance = np.maximum(variance + (z**2 / MOST_OFF**2 - 1.0) / precision, SCATTER**2)
    return np.asarray(np.sqrt(variance))


def covariance(at: RunConfiguration) -> Array:
    """Covariance of what runs are off by, without their scatter: ``site^2 + near^2 exp(-d)``."""
    return np.asarray(SITE**2 + NEAR**2 * closeness(at.at(np.s_[:, None]), at))


def shift(runs: OwnRuns, plans: RunConfiguration) -> Figure:
    """Log of the factor on plans beyond the one on all: ``near^2 sum_i w_i exp(-d_i)``.

    Added run by run, so that a plan among many gets the same figure as alone.
    """
    weighted: Figure = 0.0
    for i, weight in enumerate(runs.weight):
        weighted = weighted + weight * closeness(runs.at.at(i), plans)
    return NEAR**2 * weighted
