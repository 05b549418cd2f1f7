"""The pages of predictions against measured runs: errors by group, and every run."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.units import format_percent
from planner.report import charts
from planner.report.blocks import Chart, Content, Lines, Section, TextTable
from planner.report.quantities import seconds
from planner.schema.reports import Validation


def of_validation(found: Validation, origin: str) -> Content:
    """Errors by group; :func:`of_runs` shows every run."""
    known = [group for group in found.groups if group.covered and group.mape is not None]
    ranked = sorted(known, key=lambda group: -group.covered)
    values = [
        {
            "row": g.name,
            "part": "error",
            "value": 100 * (g.mape or 0.0),
            "text": f"{_share(g.mape)}, {g.covered:,} runs",
        }
        for g in ranked
    ]
    rows = [
        (g.name or "all", f"{g.n:,}", f"{g.covered:,}", _share(g.mape), _share(g.median_ape), _share(g.bias),
         _share(g.interval80_coverage))
        for g in (found.overall, *ranked)
    ]  # fmt: skip
    headers = (found.by, "runs", "covered", "mean error", "median", "bias", "in 80 % interval")
    table = TextTable("Errors", headers, rows)
    o = found.overall
    lines = Lines([
        ("Error", [f"{_share(o.mape)} on average, {_share(o.median_ape)} median, over {o.covered:,} of {o.n:,} runs"]),
        ("Intervals", [f"{_share(o.interval80_coverage)} of the runs lie in their 80 % interval"]),
    ])  # fmt: skip
    chart = Chart("Mean error of the step time", f"By {found.by}.", charts.bars(values, "%", ["error"]), table)
    return Content("Predictions against measured runs", origin, [Section("Accuracy", (lines, chart))])


def _share(value: float | None) -> str:
    return "–" if value is None else format_percent(value)


def of_runs(path: Path) -> Content:
    """Every run of the CSV that ``validate -o`` writes, predicted against measured.

    Raises:
        WrongQuestion: it has no such columns, or no run with both.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            read = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WrongQuestion(f"{path}: {getattr(error, 'strerror', None) or 'not a CSV'}") from None
    runs = [run for run in (_run(each) for each in read) if run]
    if not runs:
        raise WrongQuestion(
            f"{path}: no row with measured_s and predicted_s "
            "(clusterwright validate RUNS.csv -o per-run.csv writes such)"
        )
    ends = [figure for run in runs for figure in (run.measured, run.predicted)]
    near = sum(abs(run.predicted / run.measured - 1.0) <= NEAR for run in runs) / len(runs)
    share = f"{format_percent(near, 0)} are within {format_percent(NEAR, 0)}"
    summary = f"{len(runs):,} runs; {share}. On the line both are equal."
    worst = sorted(runs, key=lambda run: -abs(math.log(run.predicted / run.measured)))[:MOST_ROWS]
    rows = [(r.label, seconds(r.measured), seconds(r.predicted)) for r in worst]
    table = TextTable(f"The {len(rows):,} runs that are furthest off", ("run", "measured", "predicted"), rows)
    # A tenth beside the points: one run has no span of its own.
    spec = charts.against([asdict(run) for run in runs], "s", min(ends) / 1.1, 1.1 * max(ends))
    chart = Chart("Step times", summary, spec, table)
    return Content("Predicted against measured", path.name, [Section("Runs", (chart,))])


NEAR = 0.1
MOST_ROWS = 50
"""Of a table of runs; the file has all."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """A measured run and its prediction; seconds."""

    label: str
    measured: float
    predicted: float
    text: str


def _run(row: Mapping[str, str | None]) -> RunPoint | None:
    try:
        measured, predicted = float(row.get("measured_s") or 0), float(row.get("predicted_s") or 0)
    except ValueError:
        return None
    if not (0.0 < measured < math.inf and 0.0 < predicted < math.inf):
        return None
    label = " ".join(filter(None, (row.get("source"), row.get("model"), row.get("id"))))
    text = f"{seconds(measured)} measured, {seconds(predicted)} predicted"
    return RunPoint(label, measured, predicted, text)
