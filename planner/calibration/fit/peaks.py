"""Peaks of memory: the one figure of them that is fitted to runs, and their residuals with each run's fold left out.

Frameworks hold more than they allocate: freed blocks of other sizes, alignment. How much more differs between runs by a
few per cent; one factor on all live bytes, the same for every framework that allocates as it goes, is taken from the
runs whose peak was measured. A compiler that plans its buffers beforehand has none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.report.validation import memory_residuals
from planner.cost.figures import Array
from planner.performance.efficiency import Efficiencies

FACTORS = tuple(float(x) for x in np.round(np.arange(1.02, 1.101, 0.01), 2))
"""Held over allocated bytes that were seen: 2 to 9 % more (SimuMax's comparison on its own machines)."""
FOLDS = 5
FEWEST = 8
"""Runs that a factor is fitted to; with fewer the prior stays."""


def allocating(using: Efficiencies, factor: float) -> Efficiencies:
    """The efficiencies with that factor in every framework that allocates as it goes."""
    found = {
        name: replace(entry, activation_factor=factor) if entry.activation_factor > 1.0 else entry
        for name, entry in using.runtimes.items()
    }
    return Efficiencies(using.accelerators, found)


def _residuals(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and ``log(predicted / measured)`` under every factor, shape (factors, runs)."""
    found = [memory_residuals(frame, frame.predict(allocating(using, factor))) for factor in FACTORS]
    return found[0][0], np.array([residuals for _, residuals in found])


def fitted(frame: Frame, using: Efficiencies) -> Efficiencies:
    """The efficiencies with the factor that predicts the measured peaks best; as they are, with too few of those."""
    rows, residuals = _residuals(frame, using)
    if len(rows) < FEWEST:
        return using
    return allocating(using, FACTORS[int(np.abs(residuals).mean(axis=1).argmin())])


def left_out(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and their residuals by the factor that every fifth of them was left out of."""
    rows, residuals = _residuals(frame, using)
    if len(rows) < FEWEST:
        return rows, memory_residuals(frame, frame.predict(using))[1]
    fold, found = np.arange(len(rows)) % FOLDS, np.empty(len(rows))
    for each in range(FOLDS):
        best = int(np.abs(residuals[:, fold != each]).mean(axis=1).argmin())
        found[fold == each] = residuals[best, fold == each]
    return rows, found
