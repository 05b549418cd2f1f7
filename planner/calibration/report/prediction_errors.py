"""Errors of predictions against measurements, by group: of times, of memory, of choices, and of single levers.

A pair of measured runs that differ in one lever alone shows which value is faster, and by how much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from planner.axes.options import OptionValues
from planner.axes.table import (
    DP_OVERLAP,
    EP_OVERLAP,
    GRAPHS,
    OFFLOAD,
    P2P_OVERLAP,
    PRECISION,
    RANK_ORDER,
    RECOMPUTE,
    SEQUENCE_PARALLEL,
    TP_OVERLAP,
    ZERO,
    ZERO_SCOPE,
)
from planner.axes.values import NO_RECOMPUTE, Recompute
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.variants import RunVariant
from planner.cost.figures import Array
from planner.schema.reports import ChoiceErrors, FitErrors, LeverErrors

APART = 0.03
"""Relative difference of two measured times below which neither is better."""
FEWEST = 3
"""Runs that make a group of choices."""


def errors(predicted: Array, measured: Array, inside: Array | None = None) -> FitErrors | None:
    """Errors of the predicted times of some runs; None without runs."""
    if not len(measured):
        return None
    relative = predicted / measured - 1.0
    size = np.abs(relative)
    return FitErrors(
        mape=float(size.mean()),
        median_ape=float(np.median(size)),
        p90_ape=float(np.quantile(size, 0.9)),
        bias=float(relative.mean()),
        spearman=spearman(predicted, measured),
        interval80_coverage=None if inside is None else float(np.mean(inside)),
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


def choice(groups: Sequence[tuple[Array, Array]]) -> ChoiceErrors:
    """Over groups of (predicted, measured) times of different plans of one job."""
    if not groups:
        return ChoiceErrors(groups=0, mean_regret=None, max_regret=None, pairwise=None, spearman=None)
    regrets = []
    right = 0
    pairs = 0
    correlations = []
    for predicted, measured in groups:
        regrets.append(float(measured[int(np.argmin(predicted))] / np.min(measured) - 1.0))
        first, second = np.triu_indices(len(measured), 1)
        ratio = measured[first] / measured[second]
        apart = np.maximum(ratio, 1.0 / ratio) > 1.0 + APART
        right += int(np.sum(((predicted[first] < predicted[second]) == (ratio < 1.0))[apart]))
        pairs += int(apart.sum())
        correlation = spearman(predicted, measured)
        correlations += [] if correlation is None else [correlation]
    return ChoiceErrors(
        groups=len(groups),
        mean_regret=float(np.mean(regrets)),
        max_regret=float(np.max(regrets)),
        pairwise=right / pairs if pairs else None,
        spearman=float(np.mean(correlations)) if correlations else None,
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
    jobs: dict[Hashable, dict[Hashable, int]] = {}
    for index, run in enumerate(runs):
        if np.isfinite(measured[index]) and run.variants:
            jobs.setdefault(same_job(run), {}).setdefault(plan_of(run), index)
    groups = [np.array(list(plans.values())) for plans in jobs.values() if len(plans) >= FEWEST]
    return [(predicted[index], measured[index]) for index in groups]


def by(runs: Sequence[Run], key: str) -> Mapping[str, list[int]]:
    """Indices of runs by source, model or accelerator."""
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(str(getattr(run, key)), []).append(index)
    return groups


LEVERS: dict[str, Callable[[Run, OptionValues], Hashable]] = {
    "overlap of experts' exchanges": lambda _, options: options[EP_OVERLAP],
    "dispatcher of experts": lambda run, _: run.dispatcher,
    "CUDA graphs": lambda _, options: options[GRAPHS],
    "what is recomputed": lambda _, options: replace(options[RECOMPUTE], offloaded=0.0, function_in_8_bit=0.0),
    "offloaded optimizer": lambda _, options: options[OFFLOAD],
    "offloaded activations": lambda _, options: options[RECOMPUTE].offloaded,
    "ZeRO stage": lambda _, options: (options[ZERO], options[ZERO_SCOPE]),
    "sequence parallelism": lambda _, options: options[SEQUENCE_PARALLEL],
    "precision": lambda _, options: options[PRECISION],
}
"""What a run says of each; degrees and batches are no levers here."""
GRADES = "AB"
"""Grades of rows that are paired: rows of grade C only show that something runs."""


def pairs(runs: Sequence[Run], predicted: Array, measured: Array, what: str) -> list[LeverErrors]:
    """Judged pairs of the runs that state a lever, by lever, where there are any; the last entry, `what`, is of all
    levers.

    Args:
        runs: What was measured.
        predicted: Seconds of a step of each.
        measured: The same as measured; NaN where nothing was.
        what: Name of the last entry.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        if run.variants and run.grade in GRADES and np.isfinite(measured[index]):
            alike[_but_for_levers(run)].append(index)
    by_lever: dict[str, list[tuple[int, int]]] = {lever: [] for lever in LEVERS}
    for members in alike.values():
        for one, other in combinations(members, 2):
            if lever := _differing(runs[one], runs[other]):
                by_lever[lever].append((one, other))
    every = [pair for run_pairs in by_lever.values() for pair in run_pairs]
    return [
        _judged(lever, run_pairs, predicted, measured)
        for lever, run_pairs in (*by_lever.items(), (what, every))
        if run_pairs
    ]


def _differing(one: Run, other: Run) -> str:
    """The lever that two runs state differently, if they state one so, and leave the same open of all others."""
    values = {name: (_read(one, lever), _read(other, lever)) for name, lever in LEVERS.items()}
    unlike = [name for name, (first, second) in values.items() if first != second]
    return unlike[0] if len(unlike) == 1 and all(len(value) == 1 for value in values[unlike[0]]) else ""


def _read(run: Run, lever: Callable[[Run, OptionValues], Hashable]) -> set[Hashable]:
    """Values of the lever in the readings that recompute no whole layers, where there are any.

    With whole layers recomputed, exchanges never overlap.
    """
    some = [variant.options for variant in run.variants if not variant.options[RECOMPUTE].layers]
    return {lever(run, options) for options in some or [variant.options for variant in run.variants]}


def _but_for_levers(run: Run) -> Hashable:
    """What two runs must share: hardware, software, job and every reading of the layout, levers left out."""
    work = run.workload
    assert work is not None
    job = (run.source, run.model, run.task, work.sequence, work.batch, work.method, work.imbalance)
    ground = (run.accelerator, run.accelerators, run.framework, run.runtime, run.release)
    layouts = frozenset(_neutral(variant) for variant in run.variants)
    return (*job, *ground, run.mode, run.head_placed, run.routing, layouts)


def _neutral(variant: RunVariant) -> Hashable:
    options = variant.options
    kept = Recompute(NO_RECOMPUTE.name, 0.0, 0.0, function_in_8_bit=options[RECOMPUTE].function_in_8_bit)
    rest = (options[TP_OVERLAP], options[DP_OVERLAP], options[P2P_OVERLAP], options[RANK_ORDER], kept)
    return (tuple(sorted(variant.layout.items())), *rest)


def _judged(lever: str, pair_list: Sequence[tuple[int, int]], predicted: Array, measured: Array) -> LeverErrors:
    first, second = np.array(pair_list).T
    actual, expected = measured[first] / measured[second], predicted[first] / predicted[second]
    apart = np.maximum(actual, 1.0 / actual) > 1.0 + APART
    right = ((expected > 1.0) == (actual > 1.0)) & (expected != 1.0)
    error = np.exp(np.abs(np.log(expected / actual))) - 1.0
    ordered = float(np.mean(right[apart])) if apart.any() else None
    return LeverErrors(
        lever=lever,
        pairs=len(pair_list),
        apart=int(apart.sum()),
        ordered=ordered,
        ratio_error=float(np.median(error)),
    )
