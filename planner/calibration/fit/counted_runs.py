"""Which measured runs a fit looks at and is judged on, how much each counts (by lab, not by row), and peaks of memory.

Frameworks hold more than they allocate: freed blocks of other sizes, alignment. How much more differs between runs by a
few per cent. One factor on all live bytes, the same for every framework that allocates as it goes, is fitted to the
runs whose peak was measured. A compiler that plans its buffers beforehand has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import same_job
from planner.calibration.report.validation import memory_residuals
from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies

PRETRAINING = ("pretrain", "mlperf-pretrain")
SWEEP = 20
"""Plans of one job from which on a lab has swept them rather than tuned one."""
NEAR_BEST = 1.5
"""Plans of a sweep that take up to so many times the fastest count: beyond lie plans that nobody would run, where
frameworks break in ways of their own."""
SUBMITTERS = "MLPerf submitters"
BETWEEN, WITHIN = 0.148, 0.09
"""Standard deviations (log) of a lab's own bias, and of its runs about it: measured with whole labs left out."""


def core(frame: Frame) -> NDArray[np.intp]:
    """Indices of the runs that count: transformers' pre-training of grade A or B with a step time; of a sweep over
    plans, those near the best. No row is left out by hand. Blocks with a recurrence or a sparse index have no parameter
    of their own: their runs are judged (`validate`), and nothing else is fitted to them.
    """
    rows = [i for i, run in enumerate(frame.runs) if _counts(run)]
    fastest: dict[Hashable, list[float]] = {}
    for i in rows:
        fastest.setdefault(same_job(frame.runs[i]), []).append(frame.runs[i].measured or np.inf)
    return np.array(
        [
            i
            for i in rows
            if len(times := fastest[same_job(frame.runs[i])]) < SWEEP
            or (frame.runs[i].measured or np.inf) <= NEAR_BEST * min(times)
        ],
        dtype=np.intp,
    )


def _counts(run: Run) -> bool:
    model = run.workload.model if run.workload else None
    fitted = model is None or (model.recurrence is None and model.indexer is None and not model.compressed)
    known = run.family in ("dense", "moe") and run.task in PRETRAINING and fitted
    return known and run.grade in ("A", "B") and run.measured is not None


def lab(run: Run) -> str:
    """Who ran it, as labs are left out: submitters of a benchmark who run its vendors' recipes are one lab a vendor."""
    if not run.submitted:
        return run.lab
    vendor = run.cluster.accelerator.vendor if run.cluster else ""
    return run.lab if run.lab == vendor else f"{SUBMITTERS} ({vendor})"


def recipe(run: Run) -> str:
    """Whose recipe it runs: a vendor's own runs, and those of submitters who run its recipes, are one."""
    lab_name = lab(run)
    vendor = run.cluster.accelerator.vendor if run.cluster else ""
    return vendor if lab_name in (vendor, f"{SUBMITTERS} ({vendor})") else lab_name


def cell(run: Run) -> str:
    """Runs whose errors are alike: one lab's, under one release, on one generation, of one kind of model."""
    generation = run.cluster.accelerator.generation if run.cluster else ""
    return f"{lab(run)}, {run.runtime}@{run.year}, {generation}, {run.family}"


def weights(groups: Sequence[str]) -> Array:
    """What each row says where a group of n shares a bias: ``1 / (n between^2 + within^2)``, of mean 1."""
    sizes = Counter(groups)
    weight = 1.0 / (np.array([sizes[group] for group in groups]) * BETWEEN**2 + WITHIN**2)
    return np.asarray(weight / weight.mean())


FACTORS = tuple(float(x) for x in np.round(np.arange(0.7, 1.31, 0.05), 2))
"""On what each framework is taken to hold beyond allocated bytes: 2 to 9 % were seen by SimuMax on its own machines, 30
to 40 % under frameworks that keep buffers of their own."""
FEWEST = 8
"""Runs that a factor is fitted to; with fewer the prior stays."""


def allocating(using: Efficiencies, factor: float) -> Efficiencies:
    """The efficiencies with that factor on what every framework that allocates as it goes holds beyond its bytes."""
    runtimes = {
        name: replace(entry, activation_factor=round(1.0 + factor * (entry.activation_factor - 1.0), 4))
        for name, entry in using.runtimes.items()
    }
    return replace(using, runtimes=runtimes)


def _residuals(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and ``log(predicted / measured)`` under every factor, shape (factors, runs)."""
    by_factor = [memory_residuals(frame, frame.predict(allocating(using, factor))) for factor in FACTORS]
    return by_factor[0][0], np.array([residuals for _, residuals in by_factor])


def _best(residuals: Array, labs: Sequence[str]) -> int:
    """The factor of least error, every lab counting alike."""
    names = np.array(labs)
    error_by_lab = [np.abs(residuals[:, names == name]).mean(axis=1) for name in sorted(set(labs))]
    return int(np.mean(error_by_lab, axis=0).argmin())


def with_fitted_peaks(frame: Frame, using: Efficiencies) -> Efficiencies:
    """The efficiencies with the factor that predicts the measured peaks best; as they are, with too few of those."""
    if not frame.runs:
        return using
    rows, residuals = _residuals(frame, using)
    if len(rows) < FEWEST:
        return using
    return allocating(using, FACTORS[_best(residuals, [lab(frame.runs[i]) for i in rows])])


def held_out_peaks(frame: Frame, using: Efficiencies) -> tuple[NDArray[np.intp], Array]:
    """Runs whose peak was measured, and their residuals by the factor of a fit that left their lab out."""
    rows, residuals = _residuals(frame, using)
    labs = [lab(frame.runs[i]) for i in rows]
    if len(set(labs)) < 2:
        return rows, memory_residuals(frame, frame.predict(using))[1]
    held_out = np.empty(len(rows))
    for name in sorted(set(labs)):
        of_lab = np.array([lab_name == name for lab_name in labs])
        best = _best(residuals[:, ~of_lab], [lab_name for lab_name in labs if lab_name != name])
        held_out[of_lab] = residuals[best, of_lab]
    return rows, held_out
