"""Rows of the table of measured runs that plans name their nearest of."""

from __future__ import annotations

from collections.abc import Iterator

from planner.axes.table import PRECISION, RECOMPUTE
from planner.calibration.fit.frame import Frame
from planner.calibration.report.validation import described, sequence_of
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.variants import RunVariant
from planner.figures import own_runs
from planner.figures.conformal_intervals import TRANSFORMERS
from planner.figures.efficiency import Efficiencies
from planner.models.parameters import parameters

METHODS = {"mlperf-pretrain": "pretrain", "sft": "finetune"}
"""Task of a run -> method of a plan, where they are called otherwise."""
OWN = "own run"
"""Who measured a site's runs."""


def rows(frame: Frame, using: Efficiencies, lab: str = "") -> Iterator[dict[str, str | float]]:
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
