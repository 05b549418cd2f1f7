"""The whole calibration: from a runs file and the priors to fitted efficiencies, their report, and cross-validation.

Few parameters may move, each named, physical, and with how far physics lets it go (:func:`parameters`). Their priors
are the entries of ``hardware_catalog/priors``, set from kernel and collective measurements and from the frameworks' own
sources. A parameter multiplies one figure of one or several entries. Kept are those that make left-out labs better
predicted: what kernels of a generation reach. Overlaps, launches and fusions of a framework are its traits; fitted to
the one lab that runs it they say nothing of the next (see docs/accuracy-details.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.axes.table import PRECISION
from planner.base.errors import WrongQuestion
from planner.base.processes import ALONE, Workers, spread
from planner.calibration.fit import counted_runs
from planner.calibration.fit.counted_runs import cell, core, lab, weights
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit, Parameter, fit
from planner.calibration.report.prediction_errors import errors
from planner.calibration.report.validation import described, situation
from planner.calibration.runs import other_families
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.other_families import FAMILIES, OtherFrame
from planner.catalog import Catalog
from planner.cost.figures import Array
from planner.figures import conformal_intervals, step_time_interval
from planner.figures.conformal_intervals import Width
from planner.figures.efficiency import Efficiencies

BOARDS = {
    "ampere": ("A30", "A40", "A100-PCIE-80GB", "RTX-A6000", "RTX-A5000", "RTX-A4000"),
    "hopper": ("H100-SXM5-96GB", "H100-PCIE-80GB"),
    "blackwell": ("GB200", "GB300", "B300-SXM-288GB"),
    "cdna4": (),
}
"""Generations that whole steps were measured on, and boards with entries of their own that move with them."""

_OF_A_GENERATION = (
    ("matrix.bf16", 0.06, 1.0),
    ("matrix.fp16", 0.06, 1.0),
    ("attention", 0.15, 0.75),
    ("memory", 0.12, 1.0),
)
"""Figure, standard deviation of its log, largest value. Kernel tables of one part differ by 5 to 15 %."""
_LOW_PRECISION = (
    ("hopper", "fp8", 0.15),
    ("blackwell", "fp8", 0.15),
    ("blackwell", "mxfp8", 0.15),
    ("blackwell", "nvfp4", 0.2),
    ("cdna4", "fp8", 0.15),
)
"""Rates of 8-bit and 4-bit products, of which fewer kernels were measured."""


def _of_generations() -> Iterator[Parameter]:
    for generation, boards in BOARDS.items():
        for field, sd, most in _OF_A_GENERATION:
            yield Parameter(f"{generation}.{field}", "accelerators", (generation, *boards), field, sd, most)
    for generation, precision, sd in _LOW_PRECISION:
        field = f"matrix.{precision}"
        entries = (generation, *BOARDS[generation])
        yield Parameter(f"{generation}.{field}", "accelerators", entries, field, sd, 1.0)


CANDIDATES = tuple(_of_generations())
"""All that could be fitted, in a fixed order."""
FITTED = (
    "hopper.memory",
    "blackwell.matrix.bf16",
    "blackwell.attention",
    "blackwell.memory",
    "blackwell.matrix.fp8",
    "blackwell.matrix.mxfp8",
    "cdna4.matrix.fp8",
)
"""Those that labs left out are predicted better by than by their priors (`benchmarks/fitted_parameters.py`)."""


def parameters() -> tuple[Parameter, ...]:
    """Those that are fitted, in a fixed order."""
    return tuple(each for each in CANDIDATES if each.name in FITTED)


ROUNDS = 6
"""Steps of a fit that starts from the fit to all."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit with the rows it was made of."""

    frame: Frame
    rows: NDArray[np.intp]
    """Runs it was fitted to, and is judged on."""
    prior: Efficiencies
    fit: Fit


def calibrate(frame: Frame, prior: Efficiencies, fitted: Sequence[Parameter] = parameters()) -> Calibration:
    """Fits some parameters to the core of a frame.

    Raises:
        WrongQuestion: it has no core run.
    """
    rows = core(frame)
    if not len(rows):
        raise WrongQuestion(
            "no grade A or B pre-training run with a step time that can be predicted; "
            "`clusterwright validate` gives the reason for each"
        )
    weight = weights([cell(frame.runs[i]) for i in rows])
    return Calibration(frame, rows, prior, fit(frame, prior, fitted, rows, weight))


def fitted_to(calibration: Calibration, kept: NDArray[np.intp]) -> Fit:
    """The fit to some runs of the core, from the fit to all."""
    if len(kept) == len(calibration.rows):
        return calibration.fit
    frame = calibration.frame
    weight = weights([cell(frame.runs[i]) for i in kept])
    full = calibration.fit
    return fit(frame, calibration.prior, full.parameters, kept, weight, start=full.theta, rounds=ROUNDS)


def held_out(
    calibration: Calibration, groups: Sequence[str], workers: Workers = ALONE
) -> Iterator[tuple[str, NDArray[np.intp], Fit]]:
    """Leaves out one group of the core at a time: its name, its places in the core, and the fit without it.

    `groups` names the group of every run of the core. With several workers they come in any order.
    """
    names = np.array(groups)
    wanted = sorted(set(groups))
    kept = [calibration.rows[names != name] for name in wanted]
    for place, fitted in spread(fitted_to, calibration, kept, workers):
        yield wanted[place], np.flatnonzero(names == wanted[place]), fitted


def cross_validated(
    calibration: Calibration,
    groups: Sequence[str],
    advance: Callable[[int, str], None] | None = None,
    workers: Workers = ALONE,
) -> Array:
    """Predicted times of the core, each by a fit that left its group out. Seconds."""
    predicted = np.empty(len(calibration.rows))
    for name, places, fitted in held_out(calibration, groups, workers):
        predicted[places] = calibration.frame.predict(fitted.efficiencies).time[calibration.rows[places]]
        if advance:
            advance(1, name)
    return predicted


def skipped(calibration: Calibration) -> list[str]:
    """Which cross-validation its runs do not allow, in words."""
    members = [calibration.frame.runs[i] for i in calibration.rows]
    columns = []
    if len({lab(run) for run in members}) < 2:
        return [f"all runs are of {lab(members[0])}: no lab can be held out, the built-in intervals stay"]
    if len(generations := {described(run)[0] for run in members}) < 2:
        columns.append(f"all runs are on {generations.pop()}: nothing learned of unmeasured generations")
    return columns


def document(calibration: Calibration, left_out: Array | None, left: Sequence[str] = ()) -> dict[str, Any]:
    """What was fitted, how far it moved from its priors, and the errors on the runs fitted and left out; `left` says
    which cross-validation was not made.
    """
    frame, rows, fit_result = calibration.frame, calibration.rows, calibration.fit
    measured = frame.measured[rows]
    moved = _moved(fit_result)
    fitted = errors(frame.predict(fit_result.efficiencies).time[rows], measured)
    return {
        "kind": "calibration",
        "schema_version": 1,
        "rows": len(rows),
        "parameters": len(moved),
        "degrees_of_freedom": fit_result.freedom,
        "fit": asdict(fitted) if fitted else None,
        "left_out": asdict(unseen) if left_out is not None and (unseen := errors(left_out, measured)) else None,
        "skipped": list(left),
        "factors": moved,
    }


def _moved(fitted: Fit) -> list[dict[str, Any]]:
    return [
        {"name": parameter.name, "factor": float(np.exp(theta)), "spread": float(spread)}
        for parameter, theta, spread in zip(fitted.parameters, fitted.theta, fitted.spread, strict=True)
    ]


def interval_widths(calibration: Calibration, left_out: Array) -> dict[str, Width]:
    """The terms of intervals, from residuals of fits that had seen nothing of each run's lab; fine-tuning runs, which
    no fit sees, with what is fitted to all.
    """
    frame, rows = calibration.frame, calibration.rows
    predicted = frame.predict(calibration.fit.efficiencies)
    tuned = [i for i, run in enumerate(frame.runs) if run.task not in conformal_intervals.PRETRAINING and _tuned(run)]
    every = [*rows, *tuned]
    times = np.concatenate([left_out, predicted.time[tuned]])
    known = [situation(frame.runs[i], frame.reading(predicted.row[i]).options[PRECISION]) for i in every]
    residuals = np.log(times / frame.measured[every])
    return step_time_interval.fitted(residuals, known, [lab(frame.runs[i]) for i in every])


def _tuned(run: Run) -> bool:
    return run.family in conformal_intervals.TRANSFORMERS and run.measured is not None and run.grade in ("A", "B")


def other_widths(
    catalog: Catalog, runs: Sequence[Run], prior: Efficiencies, workers: Workers = ALONE
) -> dict[str, Width]:
    """Interval widths of encoders, convolutional networks and recommenders, a fifth of their sources left out at a
    time; none where they are from one source.
    """
    frame = OtherFrame(catalog, [run for run in runs if run.covered and run.measured and run.family in FAMILIES])
    members = [frame.runs[i] for i in other_families.timed(frame)] if frame.runs else []
    if len({run.source for run in members}) < 2:
        return {}
    measured = frame.measured[other_families.timed(frame)]
    residuals = np.log(other_families.cross_validated(frame, prior, workers) / measured)
    known = conformal_intervals.widths(residuals, [described(run) for run in members], [run.group for run in members])
    return {key: width_of for key, width_of in known.items() if key != "all"}


def memory_widths(frame: Frame, using: Efficiencies) -> dict[str, Width]:
    """Interval widths of peak memory from every run of a frame whose peak was measured; none without such runs."""
    rows, residuals = counted_runs.held_out_peaks(frame, using)
    members = [frame.runs[i] for i in rows]
    return conformal_intervals.memory_widths(residuals, [run.runtime for run in members], [lab(run) for run in members])
