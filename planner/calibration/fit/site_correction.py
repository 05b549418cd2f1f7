"""Adapting to one site from its own runs: the error of each run corrects plans under its framework, the nearer the more
(:mod:`planner.cost.nearness`).

A site's clocks, kernels and habits shift all its steps: that becomes a factor on the runtime's whole step, for
any plan of any kind. What its runs were off by beyond it stays with them, for plans on one pool near them. The site's
document states the errors before the fit, after it, and with each run predicted by a fit to all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import errors
from planner.calibration.report.validation import memory_residuals, situation
from planner.cost.figures import Array
from planner.cost.nearness import SITE, OwnRuns, covariance, scatters, weighed
from planner.cost.stage_memory import TAIL
from planner.figures import step_time_interval
from planner.figures.conformal_intervals import FEWEST, Width, found_memory, width
from planner.figures.efficiency import Efficiencies
from planner.figures.own_runs import FURTHEST, runtime_of
from planner.schema.plan_prediction import MOST_OWN_RUNS

PRIOR_RUNS = 3
"""How many own runs the shipped scatter counts as: two that happen to agree make nothing sure."""
SHORTEST = 0.01
"""Share of a step that its passes take at least, whatever was measured."""
STILL_FITS = TAIL / math.log(0.95 / 0.05)
"""Widest half-width at which a peak still fits at a risk of 5 %, over ``log(capacity / peak)``
(:func:`planner.cost.stage_memory.usable`).
"""
FURTHEST_SHORT = math.log(2.0)
"""Most that one run out of memory widens the interval: further off, it was hardly the plan that is stated."""


@dataclass(frozen=True, slots=True)
class SharedFactor:
    """What a site's runs under one runtime have in common."""

    runtime: str
    factor: float
    """On the whole step."""
    spread: float
    """Standard deviation of its logarithm, given the runs."""
    freedom: float
    """Effective degrees of freedom of all that was learned from these runs."""


@dataclass(frozen=True, slots=True)
class SiteFit:
    """What a site's runs change."""

    efficiencies: Efficiencies
    shared: tuple[SharedFactor, ...]


def adapted(frame: Frame, shipped: Efficiencies, rows: NDArray[np.intp] | None = None) -> SiteFit:
    """Fits to a site's runs (all of the frame's, or some), starting from what is shipped: of each runtime the newest
    :data:`~planner.schema.plan_prediction.MOST_OWN_RUNS`.
    """
    chosen = np.flatnonzero(np.isfinite(frame.measured)) if rows is None else rows
    names = np.array(frame.runtimes(shipped))
    predicted = frame.predict(shipped)
    runs_by_runtime: dict[str, OwnRuns] = {}
    for name in sorted(set(names[chosen])):
        used = chosen[names[chosen] == name][-MOST_OWN_RUNS:]
        at = frame.configurations.at(predicted.row[used])
        residual = _residuals(frame, predicted.time, predicted.fixed, used)
        runs_by_runtime[name] = weighed(at, residual, scatters(at, residual))
    runtimes = {
        key: replace(entry, whole_step=entry.whole_step * float(np.exp(runs_by_runtime[name].shared)))
        if (name := runtime_of(key)) in runs_by_runtime
        else entry
        for key, entry in shipped.runtimes.items()
    }
    return SiteFit(
        Efficiencies(shipped.accelerators, runtimes, runs_by_runtime),
        tuple(_shared(*named_runs) for named_runs in runs_by_runtime.items()),
    )


def _residuals(frame: Frame, time: Array, fixed: Array, used: NDArray[np.intp]) -> Array:
    """``log((measured - fixed) / (predicted - fixed))``."""
    measured = frame.measured[used]
    passes = time[used] - fixed[used]
    off = np.log(np.maximum(measured - fixed[used], SHORTEST * measured) / passes)
    return np.asarray(np.clip(off, -FURTHEST, FURTHEST))  # what a file of own runs may say


def _shared(name: str, runs: OwnRuns) -> SharedFactor:
    """``sd^2 = site^2 - site^4 sum cov^-1``; freedom: ``trace((cov - scatter^2) cov^-1)``."""
    inverse = np.linalg.inv(covariance(runs.at) + np.diag(runs.scatter**2))
    spread = float(np.sqrt(SITE**2 - SITE**4 * np.sum(inverse)))
    freedom = len(inverse) - float(np.sum(runs.scatter**2 * np.diag(inverse)))
    return SharedFactor(name, float(np.exp(runs.shared)), spread, freedom)


def changed(site_fit: SiteFit, shipped: Efficiencies) -> Efficiencies:
    """Only the entries that a site's fit moved: all that its overlay needs to hold."""
    moved = {key: entry for key, entry in site_fit.efficiencies.runtimes.items() if entry != shipped.runtimes[key]}
    return Efficiencies({}, moved, site_fit.efficiencies.own)


def held_out(frame: Frame, shipped: Efficiencies) -> Array:
    """Predicted seconds of each run of a frame, by a fit to the site's other configurations; NaN where none was
    measured. Repetitions are left out together: what is predicted alike before the fit is one configuration.
    """
    rows = np.flatnonzero(np.isfinite(frame.measured))
    before = frame.predict(shipped).time
    predicted = np.full(len(frame.runs), np.nan)
    for row in rows:
        others = rows[before[rows] != before[row]]
        using = adapted(frame, shipped, others).efficiencies if len(others) else shipped
        predicted[row] = frame.predict(using).time[row]
    return predicted


def widths(frame: Frame, predicted: Array, known: Mapping[str, Width]) -> dict[str, Width]:
    """What a site's own runs leave of a prediction's error, by kind of work (:attr:`Situation.site`): the root mean
    square of each run's residual by a fit to the others, among which the shipped scatter of a run counts as
    :data:`PRIOR_RUNS`. It takes the place of the lab's own bias.

    Arguments:
        frame: the site's runs.
        predicted: seconds of each, by a fit to the others (:func:`held_out`).
        known: shipped terms of intervals.
    """
    squares: dict[str, list[float]] = {}
    for row in np.flatnonzero(np.isfinite(predicted)):
        residual = float(np.log(predicted[row] / frame.measured[row]))
        squares.setdefault(situation(frame.runs[row], "").site, []).append(residual**2)
    prior = PRIOR_RUNS * known[step_time_interval.RUN].half ** 2
    return {
        key: Width(float(np.sqrt((prior + sum(squares_of)) / (PRIOR_RUNS + len(squares_of)))), len(squares_of))
        for key, squares_of in squares.items()
    }


def memory_widths(frame: Frame, using: Efficiencies, known: Mapping[str, Width]) -> dict[str, Width]:
    """Half-widths of peak memory under each runtime that a site has run.

    A run that held more than was predicted, or ran out of memory where that fits, widens the interval until it reaches
    what was held, so that plans near it are as unsure; never so far that what has trained would not fit.
    With :data:`~planner.figures.conformal_intervals.FEWEST` runs they alone say how sure memory is.

    Args:
        frame: The site's runs, those that ran out of memory too.
        using: Efficiencies fitted to them.
        known: Half-widths of what is shipped.
    """
    prediction = frame.predict(using)
    rows, residuals = memory_residuals(frame, prediction)
    residual_of = dict(zip(rows.tolist(), residuals.tolist(), strict=True))
    room = np.log(frame.capacity[prediction.row] / prediction.memory)
    by_runtime: dict[str, Width] = {}
    for runtime in sorted({run.runtime for run in frame.runs}):
        members = [i for i, run in enumerate(frame.runs) if run.runtime == runtime]
        own = [residual_of[i] for i in members if i in residual_of]
        short = [min(float(room[i]), FURTHEST_SHORT) for i in members if frame.runs[i].out_of_memory]
        if not own and not short:
            continue
        half = width(np.abs(own)).half if len(own) >= FEWEST else found_memory(known, runtime)[0]
        least_room = min((float(room[i]) for i in members if not frame.runs[i].out_of_memory), default=math.inf)
        reached = max(half, *short, *(-residual for residual in own))
        most = max(half, STILL_FITS * least_room)
        by_runtime[runtime] = Width(min(reached, most), len(own) + len(short))
    return by_runtime


def site_document(frame: Frame, shipped: Efficiencies, site_fit: SiteFit, held_out: Array) -> dict[str, Any]:
    """As :func:`planner.calibration.fit.calibrate.document`, of a site's runs: their errors before and after, and of
    each by a fit to the others.
    """
    before = errors(frame.predict(shipped).time, frame.measured)
    after = errors(frame.predict(site_fit.efficiencies).time, frame.measured)
    return {
        "kind": "calibration",
        "schema_version": 1,
        "rows": len(frame.runs),
        "parameters": len(site_fit.shared),
        "degrees_of_freedom": sum(factor.freedom for factor in site_fit.shared),
        "before": asdict(before) if before else None,
        "fit": asdict(after) if after else None,
        "left_out": asdict(unseen) if (unseen := errors(held_out, frame.measured)) else None,
        "frameworks": len({run.runtime for run in frame.runs}),
        "factors": [
            {"name": f"{factor.runtime}.whole_step", "factor": factor.factor, "spread": factor.spread}
            for factor in site_fit.shared
        ],
    }
