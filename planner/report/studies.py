"""The pages of a design study and of predictions against measured runs: every point or run, and what matters."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.base.units import format_percent
from planner.report import key_figures, per_dollar, plans, quantities, vega_lite
from planner.report.html_page import Block, Chart, Content, Lines, Section, TextTable
from planner.report.quantities import seconds
from planner.schema.reports import Validation
from planner.schema.study import UNITS, StudyResult, Trial, Value

MOST_POINTS = 3000
"""That are drawn, the front among them; every point is in the document."""


def of_study(found: StudyResult, origin: str) -> Content:
    """The best points, all points as a scatter, what explains their differences."""
    s = found.search
    how = f"{s.tried:,} of {s.outer_points:,} points, {s.method}; {s.feasible:,} feasible"
    how += f"; {s.bounded_away:,} bounded away" if s.bounded_away else ""
    best = [(_place(found, place), [_axes(point.axes, found), _figures(point.objectives)])
            for place, point in enumerate(found.best)]  # fmt: skip
    warned = [*filter(None, [per_dollar.unpriced(found)])]
    ends = [*filter(None, [per_dollar.edges(found, {axis.path: axis.path for axis in found.question.axes})])]
    lines = [("Warning", warned), *best, ("Tried", ends), ("Search", [how])]
    return Content(
        f"Design study: {found.question.name}",
        origin,
        [
            Section("Recommendation", (Lines([line for line in lines if line[1]]),)),
            Section("Points", (*_scatter(found), _front(found))),
            *_matters(found),
            Section("Sources and assumptions", (_about(found), plans.assumed(found.assumptions))),
        ],
        [*key_figures.of_study(found)],
    )


def _place(found: StudyResult, place: int) -> str:
    names = found.question.objectives
    return f"Best by {names[place]}" if place < len(names) else f"#{place + 1}"


def _figure(name: str, value: Value, found: StudyResult) -> str:
    """An objective, an axis or a measure, with its unit."""
    if name in found.question.objectives and not isinstance(value, str):
        return quantities.objective(name, value)
    units = UNITS | found.question.units | {axis.path: axis.unit for axis in found.question.axes}
    return quantities.axis(value, units.get(name, ""))


def _axes(values: Mapping[str, Value], found: StudyResult) -> str:
    return ", ".join(f"{axis} {_figure(axis, value, found)}" for axis, value in values.items())


def _figures(objectives: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {quantities.objective(name, value)}" for name, value in objectives.items())


def _scatter(found: StudyResult) -> Iterator[Chart]:
    """Objectives, measures and axes that are numbers; names stand in the hover."""
    tried = [trial for trial in found.trials if trial.objectives]
    front = {point.number for point in found.pareto}
    drawn = sorted(tried, key=lambda trial: trial.number not in front)[:MOST_POINTS]
    names = list(dict.fromkeys(name for t in tried[:1] for name in {**t.objectives, **t.measures}))
    names += [axis.path for axis in found.question.axes if axis.ordered]
    if not tried or not names:
        return
    keys = {f"f{place}": name for place, name in enumerate(names)}
    values = [_point(trial, keys, found, trial.number in front) for trial in reversed(drawn)]
    axes = {key: _titled(name, found) for key, name in keys.items()}
    few = "" if len(drawn) == len(tried) else f" {len(drawn):,} of {len(tried):,} are drawn."
    summary = f"Every point that trains all workloads; hover for its axes.{few}"
    yield Chart(
        "All points", summary, vega_lite.points(values, axes, ("front", "feasible", "not feasible")), _front(found)
    )


def _titled(name: str, found: StudyResult) -> str:
    units = UNITS | found.question.units | {axis.path: axis.unit for axis in found.question.axes}
    return f"{name} ({units[name]})" if units.get(name) else name


def _point(trial: Trial, keys: Mapping[str, str], found: StudyResult, front: bool) -> dict[str, object]:
    every: dict[str, Value] = {**trial.axes, **trial.measures, **trial.objectives}
    figures = {key: every[name] for key, name in keys.items() if name in every}
    texts = {f"{key}_text": _figure(keys[key], value, found) for key, value in figures.items()}
    kind = "front" if front else "feasible" if trial.feasible else "not feasible"
    return {"id": f"point-{trial.number}", "label": _axes(trial.axes, found), "kind": kind, **figures, **texts}


def _front(found: StudyResult) -> TextTable:
    rows = [(f"{p.number}", _axes(p.axes, found), _figures(p.objectives)) for p in found.pareto]
    return TextTable(
        "The Pareto front", ("point", "axes", "objectives"), rows, [f"point-{p.number}" for p in found.pareto]
    )


def _matters(found: StudyResult) -> list[Section]:
    blocks: list[Block] = []
    if found.importance:
        ranked = sorted(found.importance.items(), key=lambda each: -each[1])
        values = [{"row": a, "part": "share", "value": 100 * s, "text": format_percent(s)} for a, s in ranked]
        table = TextTable("Importance", ("axis", "share"), [(axis, format_percent(share)) for axis, share in ranked])
        of = found.question.objectives[0]
        summary = f"Share of the variation of {of} that each axis explains ({found.importance_method})."
        blocks.append(Chart("What matters", summary, vega_lite.bars(values, "%", ["share"]), table))
    known = [(s.axis, s.elasticity) for s in found.sensitivity if s.elasticity is not None]
    if known:
        values = [{"row": a, "part": "elasticity", "value": e, "text": f"{e:+.3f} %"} for a, e in known]
        table = TextTable("Sensitivity (+1 %)", ("axis", "change"), [(axis, f"{e:+.3f} %") for axis, e in known])
        summary = f"1 % more of an axis changes {found.question.objectives[0]} of the best point by so many per cent."
        blocks.append(Chart("Sensitivity (+1 %)", summary, vega_lite.bars(values, "% change", ["elasticity"]), table))
    units = {axis.path: axis.unit for axis in found.question.axes}
    for headers, rows in per_dollar.tables(found, {path: path for path in units}, units):
        named = ("figure", *headers[1:-1], "worth it")  # a column without a name has a button without one
        blocks.append(TextTable(f"Per dollar, {headers[0]}", named, rows))
    return [Section("What matters", blocks)] if blocks else []


def _about(found: StudyResult) -> Lines:
    q = found.question
    lines = [
        ("Base", [_listed(q.base)]),
        (
            "Workloads",
            [", ".join(f"{k} {v}" for k, v in each.items() if not isinstance(v, dict | list)) for each in q.workloads],
        ),
        ("Constraints", [_listed(each) for each in q.constraints]),
        ("Made by", [f"clusterwright {found.generator.version}"]),
        ("Inputs", [f"{name}: {digest}" for name, digest in found.generator.inputs.items()]),
    ]
    return Lines([each for each in lines if each[1]])


def _listed(table: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items() if isinstance(value, str | int | float))


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
    chart = Chart("Mean error of the step time", f"By {found.by}.", vega_lite.bars(values, "%", ["error"]), table)
    return Content("Predictions against measured runs", origin, [Section("Accuracy", (lines, chart))])


def _share(value: float | None) -> str:
    return "–" if value is None else format_percent(value)


def of_runs(path: Path) -> Content:
    """Every run of the CSV that ``validate -o`` writes, predicted against measured.

    Raises:
        WrongQuestion: it has no such columns, or no run with both.
    """
    try:
        read = list(csv_rows.table(path, "a table of runs"))
    except csv.Error:
        raise WrongQuestion(f"{path}: not a CSV") from None
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
    spec = vega_lite.against([asdict(run) for run in runs], "s", min(ends) / 1.1, 1.1 * max(ends))
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
