"""Which measured runs a fit looks at and is judged on, and how much each counts: by lab, not by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import same_job
from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array

PRETRAINING = ("pretrain", "mlperf-pretrain")
SWEEP = 20
"""Plans of one job from which on a lab has swept them rather than tuned one."""
NEAR_BEST = 1.5
"""Of a sweep, plans up to so many times the fastest count: beyond lie plans that nobody would run, where frameworks
break in ways of their own."""
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
    found = lab(run)
    vendor = run.cluster.accelerator.vendor if run.cluster else ""
    return vendor if found in (vendor, f"{SUBMITTERS} ({vendor})") else found


def cell(run: Run) -> str:
    """Runs whose errors are alike: one lab's, under one release, on one generation, of one kind of model."""
    generation = run.cluster.accelerator.generation if run.cluster else ""
    return f"{lab(run)}, {run.runtime}@{run.year}, {generation}, {run.family}"


def weights(groups: Sequence[str]) -> Array:
    """What each row says where a group of n shares a bias: ``1 / (n between^2 + within^2)``, of mean 1."""
    sizes = Counter(groups)
    found = 1.0 / (np.array([sizes[group] for group in groups]) * BETWEEN**2 + WITHIN**2)
    return np.asarray(found / found.mean())
