"""Peaks of memory: the one figure of them that is fitted to runs, and their residuals with each run's fold left out.

Frameworks hold more than they allocate: freed blocks of other sizes, alignment. How much more differs between runs by a
few per cent; one factor on all live bytes, the same for every framework that allocates as it goes, is taken from the
runs whose peak was measured. A compiler that plans its buffers beforehand has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.report.validation import memory_residuals
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

FACTORS = tuple(float(x) for x in np.round(np.arange(0.7, 1.31, 0.05), 2))
"""On what each framework is taken to hold beyond allocated bytes: 2 to 9 % were seen by SimuMax on its own machines, 30
to 40 % under frameworks that keep buffers of their own."""
FEWEST = 8
"""Runs that a factor is fitted to; with fewer the prior stays."""


def allocating(using: Efficiencies, factor: float) -> Efficiencies:
    """The efficiencies with that factor on what every framework that allocates as it goes holds beyond its bytes."""
    found = {
        name: replace(entry, activation_factor=round(1.0 + factor * (entry.activation_factor - 1.0), 4))
        for name, entry in using.runtimes.items()
    }
    return replace(using, runtimes=found)


def _residuals(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and ``log(predicted / measured)`` under every factor, shape (factors, runs)."""
    found = [memory_residuals(frame, frame.predict(allocating(using, factor))) for factor in FACTORS]
    return found[0][0], np.array([residuals for _, residuals in found])


def _best(residuals: Array, labs: Sequence[str]) -> int:
    """The factor of least error, every lab counting alike."""
    names = np.array(labs)
    each = [np.abs(residuals[:, names == name]).mean(axis=1) for name in sorted(set(labs))]
    return int(np.mean(each, axis=0).argmin())


def fitted(frame: Frame, using: Efficiencies) -> Efficiencies:
    """The efficiencies with the factor that predicts the measured peaks best; as they are, with too few of those."""
    if not frame.runs:
        return using
    rows, residuals = _residuals(frame, using)
    if len(rows) < FEWEST:
        return using
    return allocating(using, FACTORS[_best(residuals, [lab(frame.runs[i]) for i in rows])])


def left_out(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and their residuals by the factor of a fit that left their lab out."""
    rows, residuals = _residuals(frame, using)
    labs = [lab(frame.runs[i]) for i in rows]
    if len(set(labs)) < 2:
        return rows, memory_residuals(frame, frame.predict(using))[1]
    found = np.empty(len(rows))
    for name in sorted(set(labs)):
        own = np.array([each == name for each in labs])
        best = _best(residuals[:, ~own], [each for each in labs if each != name])
        found[own] = residuals[best, own]
    return rows, found
