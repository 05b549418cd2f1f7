"""What residuals are made of: by effect, by group, and what like runs differ by however good a model is.

Two views of the same squared log residuals ``r = log(predicted / measured)``. By **effect**: how much of them one
factor on each kind of time (products, attention, communication ...) would explain, given how much of every step it is.
By **group**: how much is common to all runs, to a source, a release, an accelerator or a model, and how much is scatter
between runs that share all of these.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import factorial

import numpy as np
from numpy.typing import NDArray

from planner import cost
from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import plan_of, same_job
from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

EFFECTS: dict[str, tuple[str, ...]] = {
    "matrix products": ("matrix",),
    "attention": ("attention",),
    "memory-bound": ("vector", "embedding"),
    "logits and loss": ("logits",),
    "recomputation": ("recompute",),
    "launch and overheads": ("launch", "overhead"),
    "bubble and transfers": ("bubble", "p2p"),
    "tensor parallel": ("tp",),
    "context parallel": ("cp",),
    "expert parallel": ("ep",),
    "data parallel": ("dp", "copies"),
    "optimizer": ("optimizer",),
    "growth with scale": ("jitter",),
}
"""Effect -> the parts of a step's breakdown that it is."""
IMBALANCE = "expert imbalance"
"""The effect that is no part: what the step takes longer because experts get uneven loads."""
PHYSICAL = 0.3
"""Standard deviation (log) of the factor on an effect that is still physical: the same for all."""
SMALLEST = 0.005
"""Mean share of the step below which an effect is not asked about."""
_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Effect:
    """One kind of time. Fractions."""

    name: str
    share: float
    """Share of the predicted step, mean over runs."""
    factor: float
    """What the residuals ask to multiply it with."""
    explained: float
    """Share of the squared residuals: its Shapley value."""


@dataclass(frozen=True, slots=True)
class Component:
    """What runs of one group have in common. Log scale."""

    name: str
    levels: int
    """Groups of this kind."""
    size: float
    """Root mean square over runs."""
    share: float
    """Share of the squared residuals."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Configurations that were measured more than once. Fractions."""

    configurations: int
    runs: int
    error: float
    """Mean absolute difference from what the configuration measures on average: no model of the configuration alone
    does better."""


def shares(frame: Frame, using: Efficiencies, row: NDArray[np.intp]) -> tuple[tuple[str, ...], Array]:
    """Effects' names, and their shares of the predicted step: shape (len(row), effects), each row adding up to 1.

    `row` names the readings of the frame that were taken (:attr:`~planner.calibration.fit.frame.FramePrediction.row`).
    """
    grid = frame.grid(using)
    even = replace(grid, stack=replace(grid.stack, expert_imbalance=1.0 + 0.0 * grid.stack.expert_imbalance))

    def column(value: object) -> Array:
        return np.broadcast_to(np.asarray(value, dtype=float), frame.owner.shape)[row]

    whole = column(cost.evaluate(grid).time)
    parts = {name: column(value) for name, value in cost.breakdown(even).items()}
    columns = [sum(parts[part] for part in made_of) for made_of in EFFECTS.values()]
    columns.append(whole - column(cost.evaluate(even).time))
    return (*EFFECTS, IMBALANCE), np.stack([one / whole for one in columns], axis=1)


def by_effect(residual: Array, names: Sequence[str], share: Array) -> tuple[list[Effect], float]:
    """How much of the squared residuals a factor on each effect explains, most first; and what none explains.

    ``-r = sum_k b_k share_k + e`` with ``b ~ N(0, PHYSICAL^2)``: ridge regression, the noise by expectation
    maximisation. A set of effects S explains ``v(S) = y' X_S (X_S' X_S + lambda)^-1 X_S' y / y' y``; an effect gets its
    Shapley value, its mean gain in v over all orders in which effects may be added. It is never negative, and all add
    up to v of all.
    """
    kept = [k for k in range(len(names)) if share[:, k].mean() > SMALLEST]
    x = share[:, kept]
    y = -residual
    penalty = _noise(x, y) / PHYSICAL**2
    factor = np.linalg.solve(x.T @ x + penalty * np.eye(len(kept)), x.T @ y)
    value = _values(x, y, penalty)
    gained = _shapley(value, len(kept))
    effects = [
        Effect(names[k], float(share[:, k].mean()), float(np.exp(factor[i])), float(gained[i]))
        for i, k in enumerate(kept)
    ]
    return sorted(effects, key=lambda effect: -effect.explained), 1.0 - float(value[-1])


def _noise(x: Array, y: Array) -> float:
    """Variance of what factors with their prior do not explain."""
    noise = float(y @ y) / len(y)
    for _ in range(50):
        spread = np.linalg.inv(x.T @ x / noise + np.eye(x.shape[1]) / PHYSICAL**2)
        left = y - x @ (spread @ (x.T @ y) / noise)
        noise = max(float(left @ left + np.trace(x @ spread @ x.T)) / len(y), 1e-12)
    return noise


def _values(x: Array, y: Array, penalty: float) -> Array:
    """What every set of effects explains; bit k of the index says whether effect k is in it. Shape (2^k,)."""
    many = x.shape[1]
    inside = (np.arange(2**many)[:, None] >> np.arange(many)) & 1
    gram, slope = x.T @ x, x.T @ y
    value = np.empty(2**many)
    for start in range(0, 2**many, 4096):
        mask = inside[start : start + 4096].astype(float)
        systems = gram * mask[:, :, None] * mask[:, None, :] + penalty * np.eye(many)
        right = slope * mask
        value[start : start + 4096] = np.sum(right * np.linalg.solve(systems, right[:, :, None])[:, :, 0], axis=1)
    return np.asarray(value / max(float(y @ y), 1e-300))


def _shapley(value: Array, many: int) -> Array:
    index = np.arange(2**many)
    size = np.array([int(i).bit_count() for i in index])
    weight = np.array([factorial(s) * factorial(many - s - 1) / factorial(many) for s in range(many)])
    shapley = np.empty(many)
    for k in range(many):
        without = index[(index >> k) & 1 == 0]
        shapley[k] = np.sum(weight[size[without]] * (value[without | (1 << k)] - value[without]))
    return shapley


def by_group(residual: Array, labels: Mapping[str, Sequence[Hashable]]) -> list[Component]:
    """What all runs have in common, what groups of each kind have, and the scatter that is left.

    Crossed random effects, ``r = mu + sum_k u_k[group] + e``, their variances by maximum likelihood (expectation
    maximisation on Henderson's mixed-model equations), so that a group of few runs is not taken at its
    word. A part's share is ``part' r / r' r``: they add up to 1. Kinds of one group, or of as many groups as runs, are
    left out: they are the common bias and the scatter.
    """
    n = len(residual)
    kinds = {name: np.unique([str(v) for v in values], return_inverse=True)[1] for name, values in labels.items()}
    kinds = {name: place for name, place in kinds.items() if 1 < place.max() + 1 < n}
    bias = np.full(n, residual.mean())
    groups = [bias, *_in_common(residual - bias, list(kinds.values()))]
    groups.append(residual - sum(groups))
    names = ["all runs", *kinds, "scatter"]
    levels = [1, *(int(place.max()) + 1 for place in kinds.values()), n]
    total = max(float(residual @ residual), 1e-300)
    return [
        Component(name, level, float(np.sqrt(np.mean(part**2))), float(part @ residual / total))
        for name, level, part in zip(names, levels, groups, strict=True)
    ]


def _in_common(y: Array, kinds: Sequence[NDArray[np.intp]]) -> list[Array]:
    """What each kind of group adds to the residual of every run in it."""
    if not kinds:
        return []
    counts = [int(place.max()) + 1 for place in kinds]
    edges = np.cumsum([0, *counts])
    design = np.zeros((len(y), edges[-1]))
    for place, start in zip(kinds, edges, strict=False):
        design[np.arange(len(y)), start + place] = 1.0
    noise = float(np.var(y)) / 2 + 1e-12
    spread = np.full(len(kinds), float(np.var(y)) / 2 + 1e-12)
    gram, right = design.T @ design, design.T @ y
    added = np.zeros(edges[-1])
    for _ in range(_ROUNDS):
        inverse = np.linalg.inv(gram + np.diag(np.repeat(noise / spread, counts)))
        added = inverse @ right
        trace = np.diag(inverse)
        for k, (start, stop) in enumerate(pairwise(edges)):
            inside = added[start:stop]
            spread[k] = max(float(inside @ inside + noise * trace[start:stop].sum()) / counts[k], 1e-9)
        noise = max(float(y @ y - added @ right) / len(y), 1e-12)
    return [added[start + place] for place, start in zip(kinds, edges[:-1], strict=True)]


def repeats(runs: Iterable[Run], across_releases: bool) -> Repeats | None:
    """Runs of one configuration told apart by nothing, or by the software's release only; None without any."""
    by_plan: dict[Hashable, list[float]] = {}
    for run in runs:
        if run.measured is not None and run.variants:
            job = same_job(run)
            key = job[:-1] if across_releases else job
            by_plan.setdefault((key, plan_of(run)), []).append(float(np.log(run.measured)))
    several = [np.array(times) for times in by_plan.values() if len(times) > 1]
    if not several:
        return None
    # The mean that a row is held against holds the row itself: n / (n - 1) makes up for it.
    off = np.concatenate([np.abs(t - t.mean()) * np.sqrt(len(t) / (len(t) - 1)) for t in several])
    return Repeats(len(several), len(off), float(off.mean()))
