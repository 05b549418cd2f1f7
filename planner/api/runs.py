"""Measured runs from Python: how far predictions are off, and efficiencies fitted to them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from planner.api.entry import between, entry
from planner.base import resources
from planner.catalog import load
from planner.question.flag_values import parse_risk
from planner.schema.record import Report


@entry
def validate(
    runs: str | Path | None = None,
    *,
    by: Literal["source", "model", "accelerator"] = "source",
    oom_risk: float | str = "5 %",
    catalog: str | Path | None = None,
    site: str | Path | None = None,
) -> Report:
    """How far predictions are from measured runs: a table of every run, ``document`` with the errors of groups.

    Args:
        runs: A CSV with the columns of ``docs/runs.md``; none: the site's, without a site the published ones.
        by: What runs are grouped by.
        oom_risk: Chance of running out of memory at which runs are called infeasible.
        catalog: Folder of your own hardware or calibration over the built-in catalog.
        site: Folder of a site, whose fitted catalog is used.

    Raises:
        WrongQuestion: the file cannot be read as runs.

    >>> found = validate()  # doctest: +SKIP
    >>> found.document["overall"]["mape"] < 0.2  # doctest: +SKIP
    True
    """
    from planner.calibration import run
    from planner.site import folder

    there = folder.named(_path(site))
    read = Path(runs).expanduser() if runs is not None else resources.runs() if there is None else there.runs
    document, per_run = run.validate(load(_path(catalog), _path(site)), read, by, parse_risk(oom_risk))
    overall = document["overall"]
    error = "" if overall["mape"] is None else f", {overall['mape']:.1%} off on average"
    return Report(
        document=document,
        summary=f"{overall['n']:,} runs, {overall['covered']:,} predicted{error}",
        table=tuple(_typed(per_run)),
    )


@entry
def calibrate(
    runs: str | Path | None = None,
    *,
    output: str | Path,
    cross_validate: bool = True,
    site: bool = False,
    measure: bool = False,
    table: str | Path | None = None,
    collectives: str | Path | None = None,
    accelerator: str | None = None,
    device: str = "auto",
    tiny: bool = False,
    workers: int = 1,
    engine: str | None = None,
) -> Report:
    """Fits efficiencies to measurements and writes them as a catalog folder: ``plan(..., catalog=output)`` uses it.

    Args:
        runs: A CSV of measured runs.
        output: Folder to write to.
        cross_validate: Whether each source is left out in turn: the errors to believe, and the intervals.
        site: Whether the runs are a few of one site, and what is shipped is adapted to them, little.
        measure: Whether to time kernels on this machine instead (needs PyTorch).
        table: A CSV of timed kernels, instead of runs or before them.
        collectives: A CSV of timed collectives instead.
        accelerator: Id of what was timed.
        device: What to time: ``"cuda:1"``, ``"cpu"``.
        tiny: Whether a few small kernels are enough, to see that it works.
        workers: Processes that make the fits which hold runs out.
        engine: A Dask cluster that makes them, as ``"dask://HOST:PORT"``.

    Raises:
        WrongQuestion: not one of the things to fit, a file that cannot be read, or nothing in it to fit.

    >>> calibrate("my-runs.csv", output="my-catalog", site=True)  # doctest: +SKIP
    """
    from planner.base.processes import Workers
    from planner.calibration import run

    between("workers", workers, 1, 256)
    document = run.calibrate(
        _path(runs), Path(output).expanduser(), cross_validate=cross_validate, site=site, measure=measure,
        table=_path(table), collectives=_path(collectives), accelerator=accelerator, device=device, tiny=tiny,
        workers=Workers(workers, engine),
    )  # fmt: skip
    table_of = document.get("factors") or document.get("kinds") or document.get("errors") or []
    return Report(
        document=document,
        summary=f"{document['rows']:,} rows fitted; {', '.join(document['files'])}",
        table=tuple(table_of),
    )


@entry
def learn(
    logs: str | Path | Sequence[str | Path] = (),
    *,
    site: str | Path | None = None,
    plan: str | Path | None = None,
    rank: int | None = None,
    set: str | Sequence[str] = (),
    step_time: str | None = None,
    oom: bool = False,
) -> Report:
    """Reads step times out of training logs into a site's journal and adapts its predictions to them.

    Args:
        logs: Training logs.
        site: Folder of the site (or the environment variable ``CLUSTERWRIGHT_SITE``).
        plan: A plan or a set of plans: what ran, where the logs do not say it.
        rank: Which plan of a set.
        set: Columns of ``docs/runs.md`` that neither says: ``"accelerator=H100-SXM5-80GB"``.
        step_time: In place of logs, a time: ``"4.31s"``.
        oom: In place of logs: the plan ran out of memory.

    Raises:
        WrongQuestion: no site, a log that says too little, or a plan of another run.

    >>> learn("train.log", plan="plan.json", site="my-site")  # doctest: +SKIP
    """
    from planner.api import learning

    several = [logs] if isinstance(logs, str | Path) else logs
    found = learning.lesson(
        [Path(log).expanduser() for log in several], plan=_path(plan), rank=rank,
        given=(set,) if isinstance(set, str) else set, step_time=step_time, oom=oom, site=_path(site),
    )  # fmt: skip
    return Report(
        document=found.document(), summary=found.judgement(), table=tuple(dict(row.measured.row) for row in found.rows)
    )


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given).expanduser()


def _typed(text: str) -> Iterator[dict[str, Any]]:
    """Rows of a CSV, numbers as numbers and nothing for what is empty."""
    for row in csv.DictReader(io.StringIO(text)):
        yield {column: _value(column, value) for column, value in row.items()}


def _value(column: str, value: str) -> str | float | bool | None:
    if column.endswith(("_s", "_bytes", "error")):
        return float(value) if value else None
    return value == "True" if column == "fits" and value else value or None
