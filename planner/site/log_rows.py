"""Logs to measured rows: which steps count, which configuration ran, and whether log and plan are of one run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from planner.base.errors import WrongQuestion, did_you_mean
from planner.base.units import format_many, format_seconds
from planner.calibration.runs import names
from planner.calibration.runs.columns import number
from planner.catalog import Catalog
from planner.schema.plan import Plan
from planner.site import cells, folder, sharing
from planner.site.findings import RunFinding, of_run
from planner.site.forecasts import beside_plan
from planner.site.logs import reading
from planner.site.logs.formats import NAMES
from planner.site.logs.joining import joined, rank_key
from planner.site.logs.records import LoggedRun
from planner.site.logs.verdicts import FAILED

NEEDED = ("model", "family", "accelerator", "num_accelerators", "seq_len", "global_batch_seqs", "tp", "pp", "runtime")
"""Columns without which a measurement is of nothing in particular."""
TAKEN = ("step_time_s", "steps", "step_time_spread", "metric")
"""Columns that only a measurement fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row for the journal, and how it came about."""

    row: Mapping[str, str]
    notes: tuple[str, ...]
    """What was counted and what was not, in words."""


def given(texts: Sequence[str], catalog: Catalog, *, measured: bool = False) -> dict[str, str]:
    """``COLUMN=VALUE`` as cells.

    Args:
        texts: The cells.
        catalog: Where names of accelerators and runtimes stand.
        measured: Whether columns that only a measurement fills may be among them: ``runs edit``, not ``--set``.

    Raises:
        WrongQuestion: no such column, one that is measured, or a value that it cannot hold.
    """
    row = {}
    flag = "" if measured else "--set "
    for text in texts:
        column, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise WrongQuestion(f"{flag}{text}: write COLUMN=VALUE, as accelerator=H100-SXM5-80GB")
        if column in TAKEN and not measured:
            raise WrongQuestion(f"{flag}{column}: comes from the log, or from --step-time and --oom")
        if column not in folder.COLUMNS or column in folder.OWN:
            hint = did_you_mean(column, folder.COLUMNS, most=1)
            raise WrongQuestion(f"{flag}{column}: no such column{hint} (docs/runs.md)")
        if why := sharing.wrong(column, value, catalog):
            raise WrongQuestion(f"{flag}{column}={value}: {why}")
        row[column] = value
    if "accelerator" in row:  # a published name of it, too
        row["accelerator"] = names.accelerator(row["accelerator"], catalog.accelerators) or row["accelerator"]
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of logs before they are read."""

    plans: Sequence[Plan]
    """What may have run, one or several; of several the one that a log does not contradict."""
    stated: Mapping[str, str]
    """Cells that a person states; they stand above the plan's."""
    catalog: Catalog
    """Where names of accelerators and runtimes stand."""
    failed: bool = False
    """Whether runs that failed teach their speed, too."""
    remedy: str = "name the plan that ran, or leave out --plan"
    """What to do where a log is of none of the plans."""


def read(path: Path) -> list[LoggedRun]:
    """The runs of a log.

    Raises:
        WrongQuestion: it cannot be read, or is no training log that is known.
    """
    runs = reading.read(path)
    if not runs:
        raise WrongQuestion(f"{path}: no line of it is a step as one of these prints it: {', '.join(NAMES)}")
    return runs


def read_all(paths: Sequence[Path]) -> list[tuple[Path, list[LoggedRun]]]:
    """The runs of logs, each with the file that it begins in: files of ranks, and of a run that was rotated or resumed,
    are put together.

    Raises:
        WrongQuestion: one cannot be read, or is no training log that is known and no further rank's of one that is.
    """
    logs = [(path, reading.read(path)) for path in paths]
    read_ranks = {rank_key(path) for path, runs in logs if runs}
    for path, runs in logs:
        if not runs and rank_key(path) not in read_ranks:
            read(path)
    return joined(logs)


def of_log(path: Path, runs: Sequence[LoggedRun], known: Known, site: str) -> list[Measured]:
    """The measured rows of a log.

    Raises:
        WrongQuestion: it has too few steps, contradicts every plan, does not say what ran, or is of runs that failed.
    """
    of_plan = of_plans(runs, known)
    every = [finding for run in of_plan for finding in findings(path, run, known)]
    timed = [finding for finding in every if not finding.reason or finding.run.out_of_memory]
    taught = [finding for finding in timed if known.failed or finding.run.out_of_memory or not _failed(finding)]
    if not timed:
        longest = max(every, key=lambda finding: len(finding.run.steps) + len(finding.run.ticks))
        ended = f" ({longest.verdict})" if _failed(longest) else ""
        raise WrongQuestion(f"{path}: {longest.reason}{ended}")
    if not taught:
        raise WrongQuestion(f"{path}: {timed[0].verdict}; what failed teaches no speed unless --failed asks for it")
    rows = [_measured(path, finding, site, known.plans) for finding in taught]
    notes = tuple(_left_out(len(runs) - len(of_plan), [finding for finding in timed if finding not in taught]))
    return [replace(rows[0], notes=(*rows[0].notes, *notes)), *rows[1:]]


def of_plans(runs: Sequence[LoggedRun], known: Known) -> Sequence[LoggedRun]:
    """The runs that may be of one of the plans, of a log with several configurations; all where none may be."""
    return [run for run in runs if len(runs) == 1 or not known.plans or _is_of_any(run, known)] or runs


def _failed(finding: RunFinding) -> bool:
    return finding.verdict.word in FAILED


def _left_out(others: int, failed: Sequence[RunFinding]) -> Iterator[str]:
    """What of a log is not learned, in words."""
    if others:
        yield f"{format_many(others, 'further configuration')} of this log left out: of no plan that was named"
    for finding in failed:
        yield f"a run that failed is left out: {finding.verdict}"


def of_value(seconds: float | None, plan: Plan | None, stated: Mapping[str, str], site: str) -> Measured:
    """The row of a time that a person states; None: the run ran out of memory.

    Raises:
        WrongQuestion: the plan and what is said do not describe a run.
    """
    row = {**(cells.of_plan(plan) if plan else {}), **stated}
    row |= {"step_time_s": f"{seconds:.6g}"} if seconds else {"metric": "oom"}
    notes = f"{format_seconds(seconds)} a step, as stated" if seconds else "out of memory, as stated"
    return Measured(
        row=_completed(row, site, "--step-time" if seconds else "--oom", [plan] if plan else []), notes=(notes,)
    )


def seconds(text: str, flag: str = "--step-time") -> float:
    """``4.31s``, ``4310 ms`` or ``4.31``: seconds of a step.

    Raises:
        WrongQuestion: another text; a comma may mean either thousands or decimals.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min)?\s*", text, re.ASCII)
    value = float(match[1]) * {"ms": 1e-3, "min": 60.0}.get(match[2] or "s", 1.0) if match else 0.0
    if value <= 0:
        raise WrongQuestion(f"{flag} {text}: write seconds of a step with a point for decimals, as 4.31s")
    return value


def findings(path: Path, run: LoggedRun, known: Known) -> list[RunFinding]:
    """What a run of a log says, with what a plan and a person say of it.

    Raises:
        WrongQuestion: the log contradicts every plan, or several plans could be what ran.
    """
    logged = cells.of_log(run, known.catalog)
    batches = {str(step.batch) for step in run.steps if step.batch}
    if len(batches) == 1:
        logged["global_batch_seqs"] = batches.pop()
    return of_run(run, {**logged, **_planned(path, logged, known), **known.stated})


def _measured(path: Path, finding: RunFinding, site: str, plans: Sequence[Plan]) -> Measured:
    """The row of a finding."""
    if finding.absent:
        absent = ", ".join(finding.absent)
        raise WrongQuestion(f"{path}: logs a rate, and does not say {absent} {_remedy(finding.absent)}")
    return Measured(row=_completed(finding.row, site, str(path), plans), notes=finding.notes)


def _is_of_any(run: LoggedRun, known: Known) -> bool:
    """Whether a run may be of one of the plans: of a log with several configurations, those that are count."""
    logged = cells.of_log(run, known.catalog)
    return any(not cells.contradictions(logged, cells.of_plan(plan), known.catalog) for plan in known.plans)


def _planned(path: Path, logged: cells.Cells, known: Known) -> dict[str, str]:
    """The configuration of the plan that the log is of; nothing where there is no plan."""
    plans = known.plans
    if not plans:
        return {}
    rows = [cells.of_plan(plan) for plan in plans]
    by_row = [cells.contradictions(logged, row, known.catalog) for row in rows]
    able = [row for row, against in zip(rows, by_row, strict=True) if not against]
    if len(able) == 1:
        return able[0]
    if able:
        raise WrongQuestion(f"{path}: {len(able)} of the {len(plans)} plans could be what ran; name it with --rank N")
    closest = min(by_row, key=len)
    raise WrongQuestion(
        f"{path}: is not of {'this plan' if len(plans) == 1 else 'any of these plans'}: "
        f"{'; '.join(map(str, closest))}; {known.remedy}"
    )


def _remedy(absent: Sequence[str]) -> str:
    return f"(--plan FILE, or --set {absent[0]}=...)"


def _completed(row: Mapping[str, str], site: str, where: str, plans: Sequence[Plan]) -> dict[str, str]:
    """The row with all that every row of a site says."""
    full = {"grade": "A", "task": "pretrain", **row, "source": site, "lab": site, "date": date.today().isoformat()}
    if full["task"].startswith("--"):
        compared = beside_plan(plans[0], number(row, "step_time_s")) if len(plans) == 1 else ""
        raise WrongQuestion(
            f"{where}: runs with {full['task']} are not learned from: no column of the journal states it"
            f"{f'. {compared}' if compared else ''}"
        )
    if absent := cells.missing(full, NEEDED):
        raise WrongQuestion(f"{where}: does not say {', '.join(absent)} {_remedy(absent)}")
    return folder.identified({column: text for column, text in full.items() if column in folder.COLUMNS}, site)
