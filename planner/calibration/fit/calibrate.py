"""The whole calibration: from a runs file and the priors to fitted efficiencies, their report, and cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.base.errors import WrongQuestion
from planner.calibration.fit import other_parameters, peaks, site
from planner.calibration.fit.core import composed, core
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit, fit, weights
from planner.calibration.fit.parameters import parameters
from planner.calibration.report.metrics import Errors
from planner.calibration.report.validation import described
from planner.calibration.runs.other_families import FAMILIES, OtherFrame
from planner.calibration.runs.run import Run
from planner.catalog import Catalog
from planner.cost.figures import Array
from planner.performance import intervals
from planner.performance.efficiency import Efficiencies, accelerator_keys
from planner.performance.intervals import Width


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit with the rows it was made of."""

    frame: Frame
    rows: NDArray[np.intp]
    """Runs it was fitted to, and is judged on."""
    extra: NDArray[np.intp]
    """Runs it was fitted to besides."""
    prior: Efficiencies
    fit: Fit


def calibrate(frame: Frame, prior: Efficiencies) -> Calibration:
    """Fits all parameters to the core of a frame.

    Raises:
        WrongQuestion: it has no core run.
    """
    rows, extra = core(frame), composed(frame)
    if not len(rows):
        raise WrongQuestion(
            "no grade A pre-training run with a step time that can be predicted; "
            "`clusterwright validate` gives the reason for each"
        )
    every = np.concatenate([rows, extra])
    weight = weights([frame.runs[i].source for i in every])
    return Calibration(frame, rows, extra, prior, fit(frame, prior, parameters(), every, weight))


def held_out(calibration: Calibration, groups: Sequence[str]) -> Iterator[tuple[str, NDArray[np.intp], Fit]]:
    """Leaves out one group of the core at a time: its name, its places in the core, and the fit without it.

    `groups` names the group of every run of the core.
    """
    names = np.array(groups)
    frame, rows, extra = calibration.frame, calibration.rows, calibration.extra
    for name in sorted(set(groups)):
        inside = names == name
        kept = np.concatenate([rows[~inside], extra])
        weight = weights([frame.runs[i].source for i in kept])
        found = fit(frame, calibration.prior, parameters(), kept, weight, start=calibration.fit.theta, rounds=8)
        yield name, np.flatnonzero(inside), found


def cross_validated(
    calibration: Calibration, groups: Sequence[str], advance: Callable[[int, str], None] | None = None
) -> Array:
    """Predicted times of the core, each by a fit that left its group out. Seconds."""
    predicted = np.empty(len(calibration.rows))
    for name, places, found in held_out(calibration, groups):
        predicted[places] = calibration.frame.predict(found.efficiencies).time[calibration.rows[places]]
        if advance:
            advance(1, name)
    return predicted


def on_new_generations(calibration: Calibration) -> Array:
    """Log residuals of the core, each predicted as if nothing had been measured on its generation of accelerators: by a
    fit that left its runs out, with the figures of any accelerator.
    """
    frame, rows = calibration.frame, calibration.rows
    parts = [cluster.accelerator for i in rows if (cluster := frame.runs[i].cluster)]
    residuals = np.empty(len(rows))
    for generation, places, found in held_out(calibration, [part.generation for part in parts]):
        known = found.efficiencies
        own = {key for part in parts if part.generation == generation for key in accelerator_keys(part)}
        others = {key: value for key, value in known.accelerators.items() if key not in own}
        times = frame.predict(Efficiencies(others, known.runtimes)).time[rows[places]]
        residuals[places] = np.log(times / frame.measured[rows[places]])
    return residuals


def after_site(calibration: Calibration, groups: Sequence[str], few: int = 3, draws: int = 10) -> tuple[float, float]:
    """Mean over groups of the error on a left-out group's other runs, before and after adapting to `few` of them."""
    chance = np.random.default_rng(0)
    frame, before, after = calibration.frame, [], []
    for _, places, found in held_out(calibration, groups):
        if len(places) <= few:
            continue
        alone = Frame(frame.catalog, [frame.runs[i] for i in calibration.rows[places]])
        was, now = [], []
        for _ in range(draws):
            picked = chance.choice(len(places), few, replace=False)
            rest = np.setdiff1d(np.arange(len(places)), picked)
            adapted = site.adapted(alone, found.efficiencies, picked)
            measured = alone.measured[rest]
            was.append(np.abs(alone.predict(found.efficiencies).time[rest] / measured - 1).mean())
            now.append(np.abs(alone.predict(adapted.efficiencies).time[rest] / measured - 1).mean())
        before.append(float(np.mean(was)))
        after.append(float(np.mean(now)))
    return float(np.mean(before)), float(np.mean(after))


def skipped(calibration: Calibration) -> list[str]:
    """Which cross-validation its runs do not allow, in words."""
    members = [calibration.frame.runs[i] for i in calibration.rows]
    found = []
    if len({run.group for run in members}) < 2:
        return [f"all runs are of {members[0].group}: no source can be held out, the built-in intervals stay"]
    if len(generations := {described(run)[0] for run in members}) < 2:
        found.append(f"all runs are on {generations.pop()}: nothing learned of unmeasured generations")
    return found


def document(calibration: Calibration, left_out: Array | None, left: Sequence[str] = ()) -> dict[str, Any]:
    """What was fitted, how far it moved from its priors, and the errors on the runs fitted and left out; `left` says
    which cross-validation was not made.
    """
    frame, rows, found = calibration.frame, calibration.rows, calibration.fit
    measured = frame.measured[rows]
    moved = _moved(found)
    fitted = Errors.of(frame.predict(found.efficiencies).time[rows], measured)
    return {
        "kind": "calibration",
        "schema_version": 1,
        "rows": len(rows),
        "parameters": len(moved),
        "degrees_of_freedom": found.freedom,
        "fit": asdict(fitted) if fitted else None,
        "left_out": asdict(errors) if left_out is not None and (errors := Errors.of(left_out, measured)) else None,
        "skipped": list(left),
        "factors": moved,
    }


def site_document(frame: Frame, shipped: Efficiencies, found: Fit) -> dict[str, Any]:
    """As :func:`document`, of a site's runs: their errors before and after."""
    before = Errors.of(frame.predict(shipped).time, frame.measured)
    after = Errors.of(frame.predict(found.efficiencies).time, frame.measured)
    return {
        "kind": "calibration",
        "schema_version": 1,
        "rows": len(frame.runs),
        "parameters": len(found.parameters),
        "degrees_of_freedom": found.freedom,
        "before": asdict(before) if before else None,
        "fit": asdict(after) if after else None,
        "left_out": None,
        "factors": _moved(found),
    }


def _moved(found: Fit) -> list[dict[str, Any]]:
    return [
        {"name": parameter.name, "factor": float(np.exp(theta)), "spread": float(spread)}
        for parameter, theta, spread in zip(found.parameters, found.theta, found.spread, strict=True)
    ]


def interval_widths(calibration: Calibration, left_out: Array) -> dict[str, Width]:
    """Interval widths from residuals of fits that left each run's source out, or the whole of its generation;
    nothing of unmeasured generations where all runs are of one.
    """
    frame, rows, extra = calibration.frame, calibration.rows, calibration.extra
    weight = weights([frame.runs[i].source for i in rows])
    without = fit(frame, calibration.prior, parameters(), rows, weight, start=calibration.fit.theta, rounds=8)
    times = np.concatenate([left_out, frame.predict(without.efficiencies).time[extra]])
    every = np.concatenate([rows, extra])
    residuals = np.log(times / frame.measured[every])
    members = [frame.runs[i] for i in every]
    known = intervals.widths(residuals, [described(run) for run in members], [run.group for run in members])
    if len({described(frame.runs[i])[0] for i in rows}) < 2:
        return known
    return known | {intervals.UNMEASURED: intervals.width(np.abs(on_new_generations(calibration)))}


def other_widths(catalog: Catalog, runs: Sequence[Run], prior: Efficiencies) -> dict[str, Width]:
    """Interval widths of encoders, convolutional networks and recommenders, a fifth of their sources left out at a
    time; none where they are from one source.
    """
    frame = OtherFrame(catalog, [run for run in runs if run.covered and run.measured and run.family in FAMILIES])
    members = [frame.runs[i] for i in other_parameters.timed(frame)] if frame.runs else []
    if len({run.source for run in members}) < 2:
        return {}
    measured = frame.measured[other_parameters.timed(frame)]
    residuals = np.log(other_parameters.cross_validated(frame, prior) / measured)
    known = intervals.widths(residuals, [described(run) for run in members], [run.group for run in members])
    return {key: each for key, each in known.items() if key != "all"}


def fine_tuning_width(frame: Frame, using: Efficiencies) -> dict[str, Width]:
    """Interval width of fine-tuning, from every run of it in a frame: no fit saw them; none with too few."""
    rows = [i for i, run in enumerate(frame.runs) if run.task not in intervals.PRETRAINING and run.measured]
    if len(rows) < intervals.FEWEST:
        return {}
    residuals = np.log(frame.predict(using).time[rows] / frame.measured[rows])
    return {intervals.FINE_TUNING: intervals.width(np.abs(residuals))}


def memory_widths(frame: Frame, using: Efficiencies) -> dict[str, Width]:
    """Interval widths of peak memory from every run of a frame whose peak was measured; none without such runs."""
    rows, residuals = peaks.left_out(frame, using)
    members = [frame.runs[i] for i in rows]
    return intervals.memory_widths(residuals, [run.runtime for run in members], [run.group for run in members])
