"""What plans state of the measured runs behind them: how sure comparisons are, and which runs are nearest.

Comparisons are of pairs of measured runs of one job, each predicted by a fit that left its lab out. Of all runs the
table is made of which plans name their nearest rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner import cost
from planner.axes.table import PRECISION, RECOMPUTE
from planner.calibration.fit.calibrate import Calibration
from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import same_job
from planner.calibration.report.validation import described, sequence_of
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.variants import RunVariant
from planner.cost.figures import Array
from planner.figures import own_runs, plan_differences
from planner.figures.conformal_intervals import TRANSFORMERS, Width
from planner.figures.efficiency import Efficiencies
from planner.models.parameters import parameters


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of runs of one source's job: columns of shape (pairs,)."""

    residual: Array
    """Log of the predicted over the measured ratio of their step times."""
    apart: Array
    """:func:`planner.figures.plan_differences.distance` of their predicted steps."""
    source: NDArray[np.str_]

    def of(self, rows: NDArray[np.bool_]) -> Pairs:
        """Some of them."""
        return Pairs(self.residual[rows], self.apart[rows], self.source[rows])


def pairs(calibration: Calibration, left_out: Array) -> Pairs:
    """All pairs of core runs that differ in their plan alone.

    Args:
        calibration: Whose core runs are paired.
        left_out: Seconds of a step of each, by a fit that left its lab out.
    """
    frame, rows = calibration.frame, calibration.rows
    members = [frame.runs[i] for i in rows]
    first, second = _pairs_of_jobs(members)
    shares = _shares(calibration)
    residual = np.log(left_out / frame.measured[rows])
    return Pairs(
        residual=residual[first] - residual[second],
        apart=np.abs(shares[first] - shares[second]).sum(axis=1) / 2.0,
        source=np.array([members[i].source for i in first]),
    )


def _pairs_of_jobs(runs: Sequence[Run]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    jobs: dict[Hashable, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        jobs[same_job(run), run.task, run.runtime].append(index)
    both = [pair for members in jobs.values() for pair in combinations(members, 2)]
    first, second = np.array(both, dtype=np.intp).reshape(-1, 2).T
    return first, second


def _shares(calibration: Calibration) -> Array:
    """Share of each cause in the predicted step of every core run, shape (runs, causes)."""
    frame = calibration.frame
    using = calibration.fit.efficiencies
    readings = frame.predict(using).row[calibration.rows]
    causes = cost.breakdown(frame.grid(using)).values()
    seconds = np.stack([np.broadcast_to(cause, frame.owner.shape)[readings] for cause in causes], axis=1)
    return np.asarray(seconds / seconds.sum(axis=1, keepdims=True))


def widths(calibration: Calibration, left_out: Array) -> dict[str, Width]:
    """The terms of the error of a difference, for a file of intervals."""
    every = pairs(calibration, left_out)
    return plan_differences.fitted(every.residual, every.apart, every.source)


def held(every: Pairs) -> dict[str, float]:
    """Source -> share of its pairs inside the 80 % interval that the pairs of all other sources give."""
    shares = {}
    for source in sorted(set(every.source)):
        others = every.of(every.source != source)
        own = every.of(every.source == source)
        known = plan_differences.fitted(others.residual, others.apart, others.source)
        half = np.array([plan_differences.half_width(known, apart) or 0.0 for apart in own.apart])
        shares[str(source)] = float(np.mean(np.abs(own.residual) <= half))
    return shares


METHODS = {"mlperf-pretrain": "pretrain", "sft": "finetune"}
"""Task of a run -> method of a plan, where they are called otherwise."""
OWN = "own run"
"""Who measured a site's runs."""


def nearest_rows(frame: Frame, using: Efficiencies, lab: str = "") -> Iterator[dict[str, str | float]]:
    """Every run of transformers of grade A or B that was timed, with what is predicted for it.

    Args:
        frame: The runs.
        using: What they are predicted with.
        lab: Who measured them all; empty: as each says.
    """
    prediction = frame.predict(using)
    for run, row, predicted in zip(frame.runs, prediction.row, prediction.time, strict=True):
        if run.measured and run.family in TRANSFORMERS and (lab or run.grade in ("A", "B")):
            yield _row(run, frame.reading(row), float(predicted), lab or run.lab)


def _row(run: Run, reading: RunVariant, predicted: float, lab: str) -> dict[str, str | float]:
    assert run.workload is not None and run.cluster is not None and run.measured is not None
    generation, kind, runtime = described(run)
    model = run.workload.model
    return {
        "lab": lab,
        "name": run.base or run.model,
        "model": own_runs.block(model),
        "generation": generation,
        "precision": reading.options[PRECISION],
        "recompute": reading.options[RECOMPUTE].name,
        "accelerator": run.cluster.accelerator.id,
        "runtime": runtime,
        "kind": kind,
        "method": METHODS.get(run.task, run.task),
        "accelerators": float(run.accelerators),
        **{axis: float(reading.layout[axis]) for axis in ("tp", "pp", "cp", "ep", "micro")},
        "parameters": float(parameters(model).total),
        "sequence": float(sequence_of(run)),
        "batch": float(run.workload.batch),
        "measured_s": run.measured,
        "predicted_s": predicted,
        "runs": 1.0,
        "id": run.id,
    }
