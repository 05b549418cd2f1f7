"""The whole calibration: from a runs file and the priors to fitted efficiencies, their report, and cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.accuracy.calibration import Fit, fit, weights
from planner.accuracy.core import composed, core
from planner.accuracy.frame import Efficiencies, Frame
from planner.accuracy.parameters import parameters
from planner.cost.figures import Array


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
    """Fits all parameters to the core of a frame."""
    rows, extra = core(frame), composed(frame)
    every = np.concatenate([rows, extra])
    weight = weights([frame.runs[i].source for i in every])
    return Calibration(frame, rows, extra, prior, fit(frame, prior, parameters(), every, weight))


def held_out(calibration: Calibration, groups: Sequence[str]) -> Iterator[tuple[str, NDArray[np.intp], Array]]:
    """Leaves out one group of the core at a time: its name, its places in the core, and its predicted times.

    `groups` names the group of every run of the core.
    """
    names = np.array(groups)
    frame, rows, extra = calibration.frame, calibration.rows, calibration.extra
    for name in sorted(set(groups)):
        inside = names == name
        kept = np.concatenate([rows[~inside], extra])
        weight = weights([frame.runs[i].source for i in kept])
        found = fit(frame, calibration.prior, parameters(), kept, weight, start=calibration.fit.theta, rounds=8)
        yield name, np.flatnonzero(inside), frame.predict(found.efficiencies).time[rows[inside]]


def cross_validated(calibration: Calibration, groups: Sequence[str]) -> Array:
    """Predicted times of the core, each by a fit that left its group out. Seconds."""
    predicted = np.empty(len(calibration.rows))
    for _, places, times in held_out(calibration, groups):
        predicted[places] = times
    return predicted
