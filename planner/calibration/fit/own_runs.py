"""Adapting to one site from its own runs: a factor on the whole step first, then traits by what the runs can tell.

A site's clocks, kernels and habits shift all its steps alike before anything else: one factor, held loosely (0.3 on a
log scale), takes that up from three runs. What is left moves the traits in which frameworks differ, each held to what
is shipped, so that few runs hardly move them and two dozen do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import SCALE, Fit, Parameter, fit
from planner.calibration.report.validation import situation
from planner.cost.figures import Array
from planner.performance import step_time_interval
from planner.performance.efficiency import Efficiencies
from planner.performance.intervals import Width

PRIOR_RUNS = 3
"""How many own runs the shipped scatter counts as: two that happen to agree make nothing sure."""
_TRAITS = (
    ("whole_step", 0.15, 10.0),
    ("vector", 0.15, 6.0),
    ("attention", 0.10, 2.0),
    ("launches", 0.25, 1e4),
    ("tp_host", 0.50, 1.0),
    ("tp_overlap", 0.15, 1.0),
    ("dp_overlap", 0.20, 1.0),
    ("step_overhead", 0.50, 10.0),
)
"""Figures of a runtime that a site's runs may move: standard deviation (log) and largest value. The whole step varies
as labs were seen to (0.15), and frameworks besides; traits by about what releases of one framework did."""
SCATTER = 0.2
"""What one run of a site is off by that none of these explains (log): with less, three runs of a left-out lab made its
other runs no better predicted."""


def parameters(frame: Frame, using: Efficiencies) -> tuple[Parameter, ...]:
    """What the runtimes of a frame's runs may change: of all of a runtime's releases together, so that plans under
    another release than the runs' follow.
    """
    names = set()
    for run in frame.runs:
        assert run.cluster is not None
        names.add(_name(using.runtime(run.known_as, run.year, run.mode, run.cluster.accelerator.generation).id))
    return tuple(
        Parameter(
            f"{name}.{field}", "runtimes", tuple(k for k in sorted(using.runtimes) if _name(k) == name), field, sd, most
        )
        for name in sorted(names)
        for field, sd, most in _TRAITS
    )


def _name(entry: str) -> str:
    """The runtime of an entry: ``megatron-core`` of ``megatron-core@2025``."""
    return re.split("[+@/]", entry)[0]


def adapted(frame: Frame, shipped: Efficiencies, rows: NDArray[np.intp] | None = None) -> Fit:
    """Fits the scale factors to a site's runs (all of the frame's, or some), starting from what is shipped."""
    chosen = np.flatnonzero(np.isfinite(frame.measured)) if rows is None else rows
    weight = np.full(len(chosen), (SCALE / SCATTER) ** 2)
    return fit(frame, shipped, parameters(frame, shipped), chosen, weight)


def changed(found: Fit, shipped: Efficiencies) -> Efficiencies:
    """Only the entries that a site's fit moved: all that its overlay needs to hold."""
    fitted = found.efficiencies
    return Efficiencies({}, {key: entry for key, entry in fitted.runtimes.items() if entry != shipped.runtimes[key]})


def held_out(frame: Frame, shipped: Efficiencies) -> Array:
    """Predicted seconds of each run of a frame, by a fit to the site's other configurations; NaN where none was
    measured. Repetitions are left out together: what is predicted alike before the fit is one configuration.
    """
    rows, before = np.flatnonzero(np.isfinite(frame.measured)), frame.predict(shipped).time
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
        key: Width(float(np.sqrt((prior + sum(each)) / (PRIOR_RUNS + len(each)))), len(each))
        for key, each in squares.items()
    }
