"""Adapting to one site from three to five of its own runs: few scale factors on what is shipped, shrunk towards it.

A site's clocks, layouts and fabrics move all its steps together; what kernels do relative to one another they do
not change. So a site's fit moves, per generation of accelerator, the rate of all products, the memory's and the NICs'
reachable fraction, and per runtime the overlap; each with a standard deviation of 10 to 15 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit, Parameter, fit
from planner.calibration.report.validation import situation
from planner.performance import spread
from planner.performance.efficiency import Efficiencies
from planner.performance.intervals import Width

PRIOR_RUNS = 3
"""How many own runs the shipped scatter counts as: two that happen to agree make nothing sure."""
_OF_A_GENERATION = (("power_capped", 0.15, 1.5), ("memory", 0.10, 1.0), ("nic", 0.15, 1.0))


def parameters(frame: Frame, using: Efficiencies) -> tuple[Parameter, ...]:
    """The scale factors of the accelerators and runtimes that a frame's runs are on."""
    parts = sorted({_entry(frame, index, using) for index in range(len(frame.runs))})
    names = sorted({_stack(frame, index, using) for index in range(len(frame.runs))})
    found = [
        Parameter(f"{part}.{field}", "accelerators", (part,), field, sd, most)
        for part in parts
        for field, sd, most in _OF_A_GENERATION
    ]
    return (*found, *(Parameter(f"{name}.dp_overlap", "runtimes", (name,), "dp_overlap", 0.2, 1.0) for name in names))


def _entry(frame: Frame, index: int, using: Efficiencies) -> str:
    cluster = frame.runs[index].cluster
    assert cluster is not None
    part = cluster.accelerator
    return using.accelerator(part).id


def _stack(frame: Frame, index: int, using: Efficiencies) -> str:
    run = frame.runs[index]
    assert run.cluster is not None
    return using.runtime(run.known_as, run.year, run.mode, run.cluster.accelerator.generation).id


def adapted(frame: Frame, shipped: Efficiencies, rows: NDArray[np.intp] | None = None) -> Fit:
    """Fits the scale factors to a site's runs (all of the frame's, or some), starting from what is shipped."""
    chosen = np.flatnonzero(np.isfinite(frame.measured)) if rows is None else rows
    return fit(frame, shipped, parameters(frame, shipped), chosen, np.ones(len(chosen)))


def changed(found: Fit, shipped: Efficiencies, frame: Frame) -> Efficiencies:
    """Only the entries that a site's fit moved: all that its overlay needs to hold.

    An accelerator's stand under its own id, the most particular there is: no other fit's entry hides the site's, and
    parts that the site did not run on keep theirs.
    """
    fitted = found.efficiencies
    parts = {run.cluster.accelerator.id: run.cluster.accelerator for run in frame.runs if run.cluster}
    entries = {name: (fitted.accelerator(part), shipped.accelerator(part)) for name, part in parts.items()}
    return Efficiencies(
        {name: replace(new, id=name, name=parts[name].name) for name, (new, old) in entries.items() if new != old},
        {key: entry for key, entry in fitted.runtimes.items() if entry != shipped.runtimes[key]},
    )


def widths(frame: Frame, shipped: Efficiencies, known: Mapping[str, Width]) -> dict[str, Width]:
    """What a site's own runs leave of a prediction's error, by kind of work (:attr:`Situation.site`): the root mean
    square of each run's residual by a fit to the others, among which the shipped scatter of a run counts as
    :data:`PRIOR_RUNS`. It takes the place of the lab's own bias.

    Arguments:
        frame: the site's runs.
        shipped: efficiencies that they are adapted from.
        known: shipped terms of intervals.
    """
    rows = np.flatnonzero(np.isfinite(frame.measured))
    squares: dict[str, list[float]] = {}
    for row in rows:
        others = rows[rows != row]
        using = adapted(frame, shipped, others).efficiencies if len(others) else shipped
        residual = float(np.log(frame.predict(using).time[row] / frame.measured[row]))
        squares.setdefault(situation(frame.runs[row], "").site, []).append(residual**2)
    prior = PRIOR_RUNS * known[spread.RUN].half ** 2
    return {
        key: Width(float(np.sqrt((prior + sum(each)) / (PRIOR_RUNS + len(each)))), len(each))
        for key, each in squares.items()
    }
