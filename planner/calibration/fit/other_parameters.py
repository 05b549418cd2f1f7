"""What calibration may move for encoders, convolutional networks and recommenders, and their cross-validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.base.processes import ALONE, Workers, spread
from planner.calibration.fit.least_squares import Fit, Parameter, fit, weights
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.other_families import FAMILIES, OtherFrame
from planner.catalog import Catalog
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

FOLDS = 5
EXAMPLES = ("pytorch-ddp@2020",)
HUGECTR = ("hugectr", "hugectr@2021", "hugectr@2022")
DDP = ("pytorch-ddp", "pytorch-ddp/blackwell")
BOARDS = ("H100-PCIE-80GB", "L40S", "L40", "L4", "A30", "A40", "A100-PCIE-80GB", "RTX-A6000", "RTX-A5000", "RTX-A4000")


def parameters() -> tuple[Parameter, ...]:
    """All of them, in a fixed order."""
    return (
        Parameter("convolution", "runtimes", ("mxnet", *EXAMPLES), "convolution", 0.3, 1.5),
        Parameter("mxnet.vector", "runtimes", ("mxnet",), "vector", 0.3, 4.0),
        Parameter("mxnet.kernel", "runtimes", ("mxnet",), "kernel", 0.4, 1e-4),
        Parameter("hugectr.gather", "runtimes", HUGECTR, "gather", 0.4, 4.0),
        Parameter("hugectr.kernel", "runtimes", HUGECTR, "kernel", 0.4, 1e-4),
        Parameter("hugectr.exchange", "runtimes", HUGECTR, "exchange", 0.4, 1.0),
        Parameter("pytorch-ddp.vector", "runtimes", DDP, "vector", 0.3, 4.0),
        Parameter("pytorch-ddp.dp_overlap", "runtimes", DDP, "dp_overlap", 0.3, 1.0),
        Parameter("examples.kernel", "runtimes", EXAMPLES, "kernel", 0.4, 1e-3),
        Parameter("examples.vector", "runtimes", EXAMPLES, "vector", 0.3, 4.0),
        Parameter("examples.gather", "runtimes", EXAMPLES, "gather", 0.4, 4.0),
        Parameter("boards.power_capped", "accelerators", BOARDS, "power_capped", 0.2, 1.0),
    )


def timed(frame: OtherFrame) -> NDArray[np.intp]:
    """Runs with a measured time of their own."""
    not_repeated = np.array([not run.repeated for run in frame.runs])
    return np.flatnonzero(np.isfinite(frame.measured) & not_repeated)


def _weights(frame: OtherFrame, rows: NDArray[np.intp]) -> Array:
    return weights([f"{frame.runs[i].family} {frame.runs[i].source}" for i in rows])


def fitted(frame: OtherFrame, prior: Efficiencies, rows: NDArray[np.intp] | None = None) -> Fit:
    """The parameters fitted to some rows (all that are timed). A family of a source counts as the root of its rows."""
    rows = timed(frame) if rows is None else rows
    return fit(frame, prior, parameters(), rows, _weights(frame, rows))


def extended(catalog: Catalog, runs: Sequence[Run], base: Efficiencies) -> Efficiencies:
    """Efficiencies fitted to transformers, with those of the other families fitted on top of them."""
    known = [run for run in runs if run.covered and run.measured and run.family in FAMILIES]
    return fitted(OtherFrame(catalog, known), base).efficiencies if known else base


def folds(sources: Sequence[str]) -> dict[str, int]:
    """Source -> fold: the largest first, each to the fold with the fewest rows so far."""
    names, count = np.unique(np.array(sources), return_counts=True)
    load = [0] * FOLDS
    fold_of = {}
    for size, name in sorted(zip(-count, names, strict=True)):
        fold = load.index(min(load))
        fold_of[str(name)] = fold
        load[fold] -= int(size)
    return fold_of


def cross_validated(frame: OtherFrame, prior: Efficiencies, workers: Workers = ALONE) -> Array:
    """Times of the timed rows, each by a fit that left out its source's fold. Seconds."""
    rows = timed(frame)
    sources = [frame.runs[i].source for i in rows]
    fold = np.array([folds(sources)[source] for source in sources])
    times = np.empty(len(rows))
    wanted = sorted(set(fold))
    for place, fitted_fold in spread(_fitted_to, (frame, prior), [rows[fold != number] for number in wanted], workers):
        left = fold == wanted[place]
        times[left] = frame.predict(fitted_fold.efficiencies).time[rows[left]]
    return times


def _fitted_to(given: tuple[OtherFrame, Efficiencies], rows: NDArray[np.intp]) -> Fit:
    return fitted(*given, rows)
