"""Measured runs from Python: how far predictions are off, and efficiencies fitted to them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.api.entry import asks
from planner.base import resources
from planner.base.units import format_many
from planner.catalog import load
from planner.question.document_options import CalibrateQuestion, LearnQuestion, ValidateQuestion
from planner.question.given import path
from planner.question.values import parse_risk
from planner.schema.record import Report, dump


@asks(ValidateQuestion)
def validate(asked: ValidateQuestion) -> Report:
    """How far predictions are from measured runs: a table of every run, ``document`` with the errors of groups.

    Args: as declared.

    Raises:
        WrongQuestion: the file cannot be read as runs.

    >>> found = validate()  # doctest: +SKIP
    >>> found.document["overall"]["mape"] < 0.2  # doctest: +SKIP
    True
    """
    document, per_run = validated(asked)
    overall = document["overall"]
    error = "" if overall["mape"] is None else f", {overall['mape']:.1%} off on average"
    return Report(
        document=document,
        summary=f"{overall['n']:,} runs, {overall.get('covered', overall['n']):,} predicted{error}",
        table=tuple(_typed(per_run)),
    )


def validated(asked: ValidateQuestion) -> tuple[dict[str, Any], str]:
    """The errors of groups, and a CSV of every run's prediction.

    Raises:
        WrongQuestion: the file cannot be read as runs.
    """
    from planner.calibration import run
    from planner.rl import measured, validation
    from planner.site import folder

    site = folder.named(path(asked.site))
    shipped = resources.runs() if site is None else site.runs
    known = load(path(asked.catalog), path(asked.site))
    if (file := path(asked.runs)) is not None and (steps := measured.rows(file)) is not None:
        return validation.validate(known, steps)
    return run.validate(known, path(asked.runs) or shipped, asked.by, parse_risk(asked.oom_risk))


@asks(CalibrateQuestion)
def calibrate(asked: CalibrateQuestion) -> Report:
    """Fits efficiencies to measurements and writes them as a catalog folder: ``plan(..., catalog=output)`` uses it.

    Args: as declared.

    Raises:
        WrongQuestion: not one of the things to fit, a file that cannot be read, or nothing in it to fit.

    >>> calibrate("my-runs.csv", output="my-catalog", site=True)  # doctest: +SKIP
    """
    from planner.base.processes import Workers
    from planner.calibration import run

    fitted = run.FitOptions(
        cross_validate=asked.cross_validate,
        site=asked.site,
        measure=asked.measure,
        table=path(asked.table),
        collectives=path(asked.collectives),
        accelerator=asked.accelerator,
        device=asked.device,
        tiny=asked.tiny,
        workers=Workers(asked.workers, asked.engine),
    )
    document = run.calibrate(path(asked.runs), Path(asked.output).expanduser(), fitted)
    table_of = document.get("factors") or document.get("kinds") or document.get("errors") or []
    return Report(
        document=document,
        summary=f"{document['rows']:,} rows fitted; {', '.join(document['files'])}",
        table=tuple(table_of),
    )


@asks(LearnQuestion)
def learn(asked: LearnQuestion) -> Report:
    """Reads step times out of training logs into a site's journal and adapts its predictions to them.

    Args: as declared.

    Raises:
        WrongQuestion: no site, a log that says too little, or a plan of another run.

    >>> learn("train.log", plan="plan.json", site="my-site")  # doctest: +SKIP
    """
    from planner.api import learning, learnt_steps

    if learnt_steps.is_asked(asked):
        learnt = learnt_steps.lesson(asked)
        phases = tuple(vars(phase) for phase in learnt.phases)
        return Report(document=dump(learnt), summary=learnt.source, table=phases)
    if asked.dry_run:
        previews, reasons = learning.preview(asked)
        document = learning.previewed(previews, reasons)
        summary = f"{format_many(len(previews), 'run')}, nothing written"
        return Report(document=document, summary=summary, table=tuple(document["runs"]))
    lesson = learning.lesson(asked)
    rows = tuple(dict(row.measured.row) for row in lesson.rows)
    return Report(document=lesson.document(), summary=lesson.judgement(), table=rows)


def _typed(text: str) -> Iterator[dict[str, Any]]:
    """Rows of a CSV, numbers as numbers and nothing for what is empty."""
    for row in csv.DictReader(io.StringIO(text)):
        yield {column: _value(column, value) for column, value in row.items()}


def _value(column: str, value: str) -> str | float | bool | None:
    if column.endswith(("_s", "_bytes", "error")):
        return float(value) if value else None
    return value == "True" if column == "fits" and value else value or None
