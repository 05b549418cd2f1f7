"""What a site's catalog makes of runs before they are learned, and which runs are too far off to be the ones stated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.axes.table import PRECISION
from planner.base.errors import WrongQuestion
from planner.base.units import format_seconds
from planner.calibration.fit.frame import Frame
from planner.calibration.report.validation import half_width, readings
from planner.calibration.runs.measured_run import Run
from planner.catalog import Catalog
from planner.cost import model_flops
from planner.figures import conformal_intervals
from planner.figures.efficiency import Efficiencies
from planner.schema.plan import Plan

DOUBTFUL = 2.0
"""Times that a prediction of what really ran is hardly ever off: 8 of 2,380 published runs are, outside one sweep over
plans that nobody would run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForecast:
    """What a site's catalog made of a run before it was learned."""

    step_time_s: float
    mfu: float
    memory_bytes: float
    """Peak, counted as the run's own was."""
    half_width: float
    """Half-width of the 80 % interval of a step, on a log scale."""


def predicted(runs: Sequence[Run], catalog: Catalog) -> list[RunForecast | None]:
    """What the catalog as it is makes of each run."""
    frame = Frame(catalog, runs, by_kind=True)
    efficiencies = Efficiencies.of(catalog)
    if not frame.runs:
        return [None] * len(runs)
    found = frame.predict(efficiencies)
    grid = frame.grid(efficiencies)
    columns = (model_flops(grid), grid.device.peak * grid.network.accelerators)
    flops, peak = (np.broadcast_to(column, frame.owner.shape)[found.row] for column in columns)
    mfu = flops / found.time / peak
    peaks = readings(frame, found)
    known = conformal_intervals.read(catalog)
    forecasts = {
        run.id: RunForecast(
            step_time_s=float(time),
            mfu=float(share),
            memory_bytes=float(held),
            half_width=half_width(known, run, frame.reading(row).options[PRECISION]),
        )
        for run, time, share, held, row in zip(frame.runs, found.time, mfu, peaks, found.row, strict=True)
        if math.isfinite(time)
    }
    return [forecasts.get(run.id) for run in runs]


def _usual(is_fast: bool) -> str:
    """What usually explains a step that is far from its prediction."""
    if is_fast:
        return "the time of a micro-batch, the batch of one accelerator in place of all, or another model"
    return (
        "steps that wait for data, a slow network, fewer accelerators than stated, or what the row leaves out"
        " (recomputation, states in host memory, a sharding)"
    )


def beside_plan(plan: Plan, time: float | None) -> str:
    """A measured step next to what its plan predicts, whether it can be learned or not; empty without a time."""
    if not time:
        return ""
    predicted = plan.prediction.step_time_s
    interval = plan.prediction.intervals.get("step_time_s")
    low = interval.low if interval else predicted / DOUBTFUL
    high = interval.high if interval else predicted * DOUBTFUL
    span = f"; 80 %: {format_seconds(low)} to {format_seconds(high)}" if interval else ""
    off = f"{100 * (predicted / time - 1):+.0f} %{span}"
    text = f"{format_seconds(time)} a step measured, {format_seconds(predicted)} predicted ({off})"
    return text if low <= time <= high else f"{text}. What usually explains it: {_usual(time < low)}"


CORRECTED = "Correct it with --set or --plan FILE --rank N"


def refuse_doubtful(what: str, time: float | None, forecast: RunForecast | None, cure: str = CORRECTED) -> None:
    """Refuses a run that is further off than predictions of what really ran.

    Args:
        what: Of which configuration it is said to be.
        time: Seconds of a step that were measured.
        forecast: What was predicted.
        cure: What to do about it.

    Raises:
        WrongQuestion: it is so far off, with what usually explains that.
    """
    if time is None or forecast is None or 1.0 / DOUBTFUL < forecast.step_time_s / time < DOUBTFUL:
        return
    off = max(forecast.step_time_s / time, time / forecast.step_time_s)
    usual = _usual(time < forecast.step_time_s)
    raise WrongQuestion(
        f"{what}: {format_seconds(time)} a step measured, {format_seconds(forecast.step_time_s)} predicted, "
        f"{off:.1f} times off. Nothing was written. What usually explains it: {usual}. {cure}; "
        "--accept learns it as it is"
    )
