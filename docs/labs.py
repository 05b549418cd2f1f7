"""Predictions of whole labs, or of whole frameworks, by fits that saw nothing of them: times, memory, choices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.axes.table import PRECISION
from planner.base.processes import ALONE, Workers, spread
from planner.calibration.fit import counted_runs
from planner.calibration.fit.calibrate import Calibration, fitted_to
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame, FramePrediction
from planner.calibration.report.prediction_errors import plan_of, same_job
from planner.calibration.report.validation import memory_residuals, situation
from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array
from planner.figures import step_time_interval

Name = Callable[[Run], str]


def framework(run: Run) -> str:
    """The software that a run was trained with, as frameworks are left out."""
    return run.runtime


def memory_of(run: Run) -> float:
    """Bytes of a run's accelerator."""
    assert run.cluster is not None
    return run.cluster.accelerator.memory


def held_out(calibration: Calibration, name: Name = lab, workers: Workers = ALONE) -> tuple[Array, Array, Array]:
    """Seconds, log memory residuals and the share of its accelerator that a peak is predicted to fill, of every run of
    the frame, its group left out of the fits.
    """
    frame = calibration.frame
    names = np.array([name(run) for run in frame.runs])
    groups = [names == group for group in sorted(set(names))]
    time, memory = np.full(len(names), np.nan), np.full(len(names), np.nan)
    share = np.zeros(len(names))
    capacity = np.array([memory_of(run) for run in frame.runs])
    for place, predicted in spread(_without, calibration, groups, workers):
        inside = np.flatnonzero(groups[place])
        time[inside], share[inside] = predicted.time[inside], predicted.memory[inside] / capacity[inside]
        measured, residuals = memory_residuals(frame, predicted)
        inside_lab = np.isin(measured, inside)
        memory[measured[inside_lab]] = residuals[inside_lab]
    return time, memory, share


def _without(calibration: Calibration, inside: NDArray[np.bool_]) -> FramePrediction:
    """Every run of the frame by fits, of times and of peaks, that saw nothing of some."""
    frame, rows = calibration.frame, calibration.rows
    fitted = fitted_to(calibration, rows[~inside[rows]])
    others = Frame(frame.catalog, [run for run, is_inside in zip(frame.runs, inside, strict=True) if not is_inside])
    return frame.predict(counted_runs.with_fitted_peaks(others, fitted.efficiencies))


@dataclass(frozen=True, slots=True)
class GroupError:
    """How far predictions of one group are off. Fractions; bias and scatter are of logarithms."""

    name: str
    runs: int
    mape: float
    bias: float
    scatter: float


def errors(residuals: Array, names: Sequence[str]) -> list[GroupError]:
    """Errors of every group of residuals (log of predicted over measured)."""
    labels = np.array(names)
    rows = []
    for name in sorted(set(names)):
        of_name = residuals[labels == name]
        of_name = of_name[np.isfinite(of_name)]
        if len(of_name):
            rows.append(
                GroupError(
                    name,
                    len(of_name),
                    float(np.abs(np.expm1(of_name)).mean()),
                    float(of_name.mean()),
                    float(of_name.std()),
                )
            )
    return rows


@dataclass(frozen=True, slots=True)
class Covered:
    """How many runs of a left-out group lie inside their 80 % intervals, and how wide those are (log, median)."""

    name: str
    runs: int
    share: float
    half: float


def coverage(calibration: Calibration, residuals: Array, name: Name = lab) -> list[Covered]:
    """Coverage of every group, by intervals that the residuals of the other groups give.

    Arguments:
        calibration: whose core runs are judged.
        residuals: of those, each by a fit that left its group out.
        name: what is left out.
    """
    frame, rows = calibration.frame, calibration.rows
    members = [frame.runs[i] for i in rows]
    prediction = frame.predict(calibration.fit.efficiencies)
    readings = prediction.row[rows]
    apart = frame.apart(prediction)[rows]
    situations = [
        situation(run, frame.reading(row).options[PRECISION]) for run, row in zip(members, readings, strict=True)
    ]
    labels = np.array([name(run) for run in members])
    by_lab = [lab(run) for run in members]
    table = []
    for group in sorted(set(labels)):
        of_group = labels == group
        known = step_time_interval.fitted(
            residuals[~of_group],
            [member for member, mine in zip(situations, of_group, strict=True) if not mine],
            [member for member, mine in zip(by_lab, of_group, strict=True) if not mine],
        )
        half = np.array(
            [
                step_time_interval.half_width(known, member)[0]
                for member, mine in zip(situations, of_group, strict=True)
                if mine
            ]
        )
        half = np.hypot(half, step_time_interval.WITHIN * apart[of_group])
        inside = np.abs(residuals[of_group]) <= half
        table.append(Covered(str(group), int(of_group.sum()), float(inside.mean()), float(np.median(half))))
    return table


@dataclass(frozen=True, slots=True)
class Regret:
    """How much slower than the best measured plan the chosen one is, over groups of plans of one job. Fractions."""

    name: str
    groups: int
    mean: float
    largest: float
    naive: float
    """Regret of a rule that people use: least TP, then least PP, then the largest micro-batch."""
    better: int
    """Groups where the choice is no worse than the rule's."""


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """One job of at least two really different plans: rows of the frame."""

    kind: str
    plan: int
    """Predicted fastest among those predicted to fit (all, if none is)."""
    rule: int
    """What the naive rule takes among the same."""
    best: int
    """Measured fastest."""


def choices(frame: Frame, time: Array, fits: NDArray[np.bool_], named: Callable[[Run], str | None]) -> list[ChosenPlan]:
    """Every group of at least two really different plans of one job.

    Plans that ran out of memory are not measured and cannot be chosen here.
    """
    jobs: dict[Hashable, dict[Hashable, int]] = {}
    for index, run in enumerate(frame.runs):
        if named(run) is not None and run.measured is not None and np.isfinite(time[index]):
            jobs.setdefault((named(run), same_job(run)), {}).setdefault(plan_of(run), index)
    rows = []
    for job, plans in jobs.items():
        if len(plans) < 2:
            continue
        pool = [i for i in plans.values() if fits[i]] or list(plans.values())
        chosen = min(pool, key=lambda i: float(time[i]))
        rule = min(pool, key=lambda i: _simplest(frame.runs[i]))
        best = min(plans.values(), key=lambda i: float(frame.measured[i]))
        rows.append(ChosenPlan(str(job[0]), chosen, rule, best))  # type: ignore[index]
    return rows


def regrets(frame: Frame, time: Array, fits: NDArray[np.bool_], named: Callable[[Run], str | None]) -> list[Regret]:
    """Over all :func:`choices`, by kind of group."""
    by_kind: dict[str, list[tuple[float, float]]] = {}
    for choice in choices(frame, time, fits, named):
        behind = [float(frame.measured[i] / frame.measured[choice.best] - 1.0) for i in (choice.plan, choice.rule)]
        by_kind.setdefault(choice.kind, []).append((behind[0], behind[1]))
    rows = []
    for kind, pairs in sorted(by_kind.items()):
        ours, other = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
        rows.append(
            Regret(
                kind, len(pairs), float(ours.mean()), float(ours.max()), float(other.mean()), int((ours <= other).sum())
            )
        )
    return rows


def _simplest(run: Run) -> tuple[int, int, int]:
    layout = run.variants[0].layout
    return layout["tp"], layout["pp"], -layout["micro"]
