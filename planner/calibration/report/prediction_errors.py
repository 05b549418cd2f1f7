"""Errors of predictions against measurements, by group: of times, of memory, and of choices."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array

APART = 0.03
"""Relative difference of two measured times below which neither is better."""
FEWEST = 3
"""Runs that make a group of choices."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Of predicted against measured times; fractions."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    """Mean signed relative error: positive is too slow."""
    spearman: float | None
    interval80_coverage: float | None

    @staticmethod
    def of(predicted: Array, measured: Array, inside: Array | None = None) -> Errors | None:
        """The errors of some runs; None without runs."""
        if not len(measured):
            return None
        relative = predicted / measured - 1.0
        size = np.abs(relative)
        return Errors(
            float(size.mean()),
            float(np.median(size)),
            float(np.quantile(size, 0.9)),
            float(relative.mean()),
            spearman(predicted, measured),
            None if inside is None else float(np.mean(inside)),
        )


def ranks(values: Array) -> Array:
    """Ranks from 0, equal values sharing the mean of theirs."""
    order = np.argsort(values, kind="stable")
    position = np.empty(len(values))
    position[order] = np.arange(len(values))
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.bincount(index, position) / count)[index])


def spearman(a: Array, b: Array) -> float | None:
    """Correlation of ranks; None where either does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """How well predictions choose among plans measured for the same job. Fractions."""

    groups: int
    mean_regret: float
    """How much slower than the best measured plan the one predicted fastest is, on average."""
    max_regret: float
    pairwise: float | None
    """Pairs more than 3 % apart that are put in the right order."""
    spearman: float | None
    """Mean over groups."""


def choice(groups: Sequence[tuple[Array, Array]]) -> GroupChoice | None:
    """Over groups of (predicted, measured) times of different plans of one job."""
    if not groups:
        return None
    regrets, right, pairs, correlations = [], 0, 0, []
    for predicted, measured in groups:
        regrets.append(float(measured[int(np.argmin(predicted))] / np.min(measured) - 1.0))
        first, second = np.triu_indices(len(measured), 1)
        ratio = measured[first] / measured[second]
        apart = np.maximum(ratio, 1.0 / ratio) > 1.0 + APART
        right += int(np.sum(((predicted[first] < predicted[second]) == (ratio < 1.0))[apart]))
        pairs += int(apart.sum())
        found = spearman(predicted, measured)
        correlations += [] if found is None else [found]
    return GroupChoice(
        len(groups),
        float(np.mean(regrets)),
        float(np.max(regrets)),
        right / pairs if pairs else None,
        float(np.mean(correlations)) if correlations else None,
    )


def same_job(run: Run) -> tuple[Hashable, ...]:
    """What runs share that differ in the plan only: source, model, batch, hardware, software."""
    work = run.workload
    assert work is not None
    return (run.source, run.model, work.sequence, work.batch, run.accelerator, run.accelerators, run.release)


def plan_of(run: Run) -> Hashable:
    """What was run: degrees, micro-batch, recomputation, precision of the first reading."""
    first = run.variants[0]
    return (tuple(sorted(first.layout.items())), first.options, run.mode)


def job_groups(runs: Sequence[Run], predicted: Array, measured: Array) -> list[tuple[Array, Array]]:
    """Groups of at least three really different plans of one job."""
    found: dict[Hashable, dict[Hashable, int]] = {}
    for index, run in enumerate(runs):
        if np.isfinite(measured[index]) and run.variants:
            found.setdefault(same_job(run), {}).setdefault(plan_of(run), index)
    groups = [np.array(list(plans.values())) for plans in found.values() if len(plans) >= FEWEST]
    return [(predicted[index], measured[index]) for index in groups]


def by(runs: Sequence[Run], key: str) -> Mapping[str, list[int]]:
    """Indices of runs by source, model or accelerator."""
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(str(getattr(run, key)), []).append(index)
    return groups
