"""Predictions of a runs file as it stands, held against its measurements, group by group."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.axes.table import PRECISION
from planner.calibration.fit.frame import Frame, FramePrediction
from planner.calibration.report import prediction_errors
from planner.calibration.runs.measured_run import Run
from planner.cost import stage_memory
from planner.cost.figures import Array
from planner.figures import conformal_intervals, step_time_interval
from planner.figures.conformal_intervals import Width
from planner.figures.efficiency import Efficiencies
from planner.figures.step_time_interval import Situation
from planner.schema.reports import FitErrors, LeverErrors

BY = {"source": "source", "model": "base", "accelerator": "accelerator", "task": "task_there"}
TRANSFORMERS = ("dense", "moe")
PER_RUN = (
    "id",
    "source",
    "model",
    "measured_s",
    "predicted_s",
    "low_s",
    "high_s",
    "error",
    "memory_bytes",
    "low_memory_bytes",
    "high_memory_bytes",
    "measured_memory_bytes",
    "fits",
    "inferred",
    "reason",
)
"""Columns of the file that ``-o`` writes."""


@dataclass(frozen=True, slots=True)
class Judged:
    """All runs of a file, those that were predicted, and their intervals."""

    runs: Sequence[Run]
    predicted: Sequence[Run]
    """Runs of the frame, in its order."""
    time: Array
    low: Array
    high: Array
    memory: Array
    """Bytes on the fullest accelerator."""
    reading: Array
    """Peak of memory as its measurement counts it: what the framework's allocator holds, or all of it."""
    memory_half: Array
    """Half-width of the memory's 80 % interval, on a log scale."""
    capacity: Array
    fits: NDArray[np.bool_]
    readings: Sequence[str]
    """What was inferred of each run."""

    @property
    def measured(self) -> Array:
        """Seconds per step; NaN where none was measured."""
        return np.array([run.measured or np.nan for run in self.predicted])


class OtherRuns(NamedTuple):
    """Runs without layouts, and their predicted times in seconds."""

    runs: Sequence[Run] = ()
    times: Sequence[float] | Array = ()


def judged(
    runs: Sequence[Run],
    frame: Frame,
    prediction: FramePrediction,
    known: Mapping[str, Width],
    without_layouts: OtherRuns = OtherRuns(),  # noqa: B008
    memory_known: Mapping[str, Width] | None = None,
) -> Judged:
    """Joins runs, predictions and interval widths."""
    others, times = without_layouts
    predicted = [*frame.runs, *others]
    precisions = [
        *(frame.reading(row).options[PRECISION] for row in prediction.row),
        *(run.precision for run in others),
    ]
    alone = [half_width(known, *pair) for pair in zip(predicted, precisions, strict=True)]
    apart = np.concatenate([frame.apart(prediction), np.zeros(len(others))])
    half = np.hypot(alone, step_time_interval.WITHIN * apart)
    time = np.concatenate([prediction.time, np.asarray(times, dtype=float)])
    unknown = np.full(len(others), np.nan)
    return Judged(
        runs,
        predicted,
        time,
        time * np.exp(-half),
        time * np.exp(half),
        np.concatenate([prediction.memory, unknown]),
        np.concatenate([readings(frame, prediction), unknown]),
        np.array([conformal_intervals.found_memory(memory_known or {}, run.runtime)[0] for run in predicted]),
        np.concatenate([frame.capacity[prediction.row], unknown]),
        np.concatenate([prediction.fits, np.ones(len(others), dtype=bool)]),
        [", ".join(run.inferred) for run in predicted],
    )


def readings(frame: Frame, prediction: FramePrediction) -> Array:
    """Predicted peaks as their measurements count them: an allocator's own count leaves out what is beside it."""
    in_allocator = np.array([run.in_allocator for run in frame.runs])
    return np.asarray(prediction.memory - in_allocator * prediction.outside_allocator)


def memory_residuals(frame: Frame, prediction: FramePrediction) -> tuple[NDArray[np.intp], Array]:
    """Indices of a frame's runs whose peak was measured, and ``log(predicted / measured)`` of each."""
    rows = np.array([i for i, run in enumerate(frame.runs) if run.memory_measured and run.measured_bytes], dtype=int)
    measured = np.array([frame.runs[i].measured_bytes or np.nan for i in rows])
    return rows, np.log(readings(frame, prediction)[rows] / measured)


def half_width(known: Mapping[str, Width], run: Run, precision: str) -> float:
    """Half-width of the 80 % interval of a run's time, log scale, of what its row says alone: readings that it leaves
    open add their spread (:attr:`~planner.calibration.fit.frame.Frame.apart`).
    """
    if run.family in TRANSFORMERS:
        return step_time_interval.half_width(known, situation(run, precision))[0]
    return conformal_intervals.found(known, *described(run))[0]


def situation(run: Run, precision: str) -> Situation:
    """What a run's prediction is of, as far as its error depends on it."""
    generation, kind, runtime = described(run)
    return Situation(
        generation=generation,
        precision=precision,
        kind=kind,
        runtime=runtime,
        framework=run.runtime,
        method=run.task,
        sequence=sequence_of(run),
    )


def described(run: Run) -> tuple[str, str, str]:
    """What decides which runs are comparable: generation, kind of model, runtime."""
    assert run.cluster is not None
    return run.cluster.accelerator.generation, run.family, run.known_as[-1] if run.known_as else run.runtime


def sequence_of(run: Run) -> int:
    """Tokens of a run's sequences; 0 where its model has none."""
    return run.workload.sequence if run.workload else 0


def report(judgement: Judged, by: str, oom_risk: float = 0.05) -> dict[str, Any]:
    """The whole document: overall, and by source, model or accelerator; feasibility at 50 % and at a risk."""
    groups = []
    everything = prediction_errors.by(judgement.runs, BY[by])
    inside = prediction_errors.by(judgement.predicted, BY[by])
    for name, members in everything.items():
        groups.append(
            {"name": name, **_group(judgement, [judgement.runs[i] for i in members], inside.get(name, []), oom_risk)}
        )
    every = list(range(len(judgement.predicted)))
    return {
        "kind": "validation",
        "schema_version": 1,
        "by": by,
        "overall": _group(judgement, judgement.runs, every, oom_risk),
        "coverage": coverage(judgement.runs),
        "groups": groups,
        "levers": [asdict(lever) for lever in levers(judgement)],
        "not_covered": not_covered(judgement.runs),
        "inferred": inferred(judgement.runs),
    }


def levers(judgement: Judged) -> list[LeverErrors]:
    """Pairs of runs that differ in one lever."""
    return prediction_errors.pairs(judgement.predicted, judgement.time, judgement.measured, "all")


def _group(judgement: Judged, runs: Sequence[Run], places: Sequence[int], oom_risk: float) -> dict[str, Any]:
    index = np.array(places, dtype=np.intp)
    measured = judgement.measured[index]
    timed = np.isfinite(measured)
    chosen, actual = index[timed], measured[timed]
    inside = (judgement.low[chosen] <= actual) & (actual <= judgement.high[chosen])
    errors = prediction_errors.errors(judgement.time[chosen], actual, inside.astype(float))
    members = [judgement.predicted[i] for i in index]
    groups = prediction_errors.job_groups(members, judgement.time[index], measured)
    return {
        "n": len(runs),
        "covered": len(chosen),
        **(asdict(errors) if errors else dict.fromkeys(field.name for field in fields(FitErrors))),
        "memory": _memory(judgement, index),
        "oom": _out_of_memory(judgement, index, oom_risk),
        "choice": asdict(prediction_errors.choice(groups)),
    }


def _memory(judgement: Judged, index: NDArray[np.intp]) -> dict[str, Any]:
    """Over runs whose memory was read off a device."""
    rows = np.array([i for i in index if judgement.predicted[i].memory_measured], dtype=np.intp)
    actual = np.array([judgement.predicted[i].measured_bytes or np.nan for i in rows])
    reading = judgement.reading[rows]
    factor = np.exp(judgement.memory_half[rows])
    inside = (reading / factor <= actual) & (actual <= reading * factor)
    errors = prediction_errors.errors(reading, actual, inside.astype(float)) if len(rows) else None
    kept = ("mape", "median_ape", "p90_ape", "bias", "interval80_coverage")
    return {"n": len(rows), **{name: getattr(errors, name) if errors else None for name in kept}}


def _out_of_memory(judgement: Judged, index: NDArray[np.intp], oom_risk: float) -> dict[str, Any]:
    """Rows that ran out of memory: how many are foreseen; rows that ran: how many are called infeasible.

    Both at a risk of 50 % (the median prediction against the capacity), and at another.
    """
    ran_out = [i for i in index if judgement.predicted[i].out_of_memory]
    ran = [i for i in index if judgement.predicted[i].measured and not judgement.predicted[i].out_of_memory]
    usable = np.array(
        [stage_memory.usable(c, w, oom_risk) for c, w in zip(judgement.capacity, judgement.memory_half, strict=True)]
    )
    careful = ~(judgement.memory > usable)
    return {
        "n": len(ran_out),
        "foreseen": sum(not judgement.fits[i] for i in ran_out),
        "ran": len(ran),
        "called_infeasible": sum(not judgement.fits[i] for i in ran),
        "at_risk": {
            "oom_risk": oom_risk,
            "foreseen": sum(not careful[i] for i in ran_out),
            "called_infeasible": sum(not careful[i] for i in ran),
        },
    }


def coverage(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """How many of the rows that state enough are predicted; the denominator is what states enough."""
    asked = {
        "dense and MoE pre-training, grades A and B": [
            r for r in runs if r.family in TRANSFORMERS and r.task == "pretrain" and r.grade in "AB" and r.states_enough
        ],
        "encoder, CNN and DLRM": [r for r in runs if r.family not in TRANSFORMERS and r.states_enough],
    }
    return [
        {"rows": name, "n": len(rows), "covered": sum(r.covered and r.measured is not None for r in rows)}
        for name, rows in asked.items()
    ]


def gain(frame: Frame, using: Efficiencies) -> dict[str, Any] | None:
    """Errors on the runs that a profile of layer times holds for, with it and without; None if it holds for none."""
    rows = frame.profiled[np.isfinite(frame.measured[frame.profiled])]
    if not len(rows):
        return None
    errors_by_name: dict[str, Any] = {"n": len(rows)}
    for name, profiled in (("measured", True), ("modelled", False)):
        errors = prediction_errors.errors(frame.predict(using, profiled).time[rows], frame.measured[rows])
        errors_by_name[name] = asdict(errors) if errors else None
    return errors_by_name


def inferred(runs: Sequence[Run]) -> dict[str, int]:
    """How many predicted rows each rule of inference touched, most first."""
    rules = Counter(rule for run in runs if run.covered for rule in dict.fromkeys(run.inferred))
    return dict(sorted(rules.items(), key=lambda reason: (-reason[1], reason[0])))


def not_covered(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Why rows are not predicted, most frequent first."""
    reasons = Counter(
        (run.source, run.reason or "no time or throughput") for run in runs if not run.covered or run.measured is None
    )
    return [
        {"source": s, "reason": reason, "n": n}
        for (s, reason), n in sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    ]


def per_run(judgement: Judged) -> str:
    """A CSV of every run: predicted and measured, its interval, what was inferred, why not."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(PER_RUN)
    place = {id(run): index for index, run in enumerate(judgement.predicted)}  # a user's ids may repeat
    for run in judgement.runs:
        i = place.get(id(run))
        if i is None:
            table.writerow([run.id, run.source, run.model, *[""] * 10, "", run.reason])
            continue
        error = f"{judgement.time[i] / run.measured - 1:.4f}" if run.measured else ""
        cells = [f"{x:.6g}" for x in (judgement.time[i], judgement.low[i], judgement.high[i])]
        memory = judgement.reading[i]
        factor = np.exp(judgement.memory_half[i])
        held = [
            *(f"{x:.6g}" if np.isfinite(x) else "" for x in (memory, memory / factor, memory * factor)),
            f"{run.measured_bytes or 0:.6g}" if run.measured_bytes else "",
        ]
        measured = f"{run.measured:.6g}" if run.measured else ""
        fits = bool(judgement.fits[i])
        inferred = judgement.readings[i]
        table.writerow([run.id, run.source, run.model, measured, *cells, error, *held, fits, inferred, ""])
    return text.getvalue()
