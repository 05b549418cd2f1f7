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
from planner.catalog import Catalog
from planner.schema.plan import Plan
from planner.site import cells, folder, sharing
from planner.site.logs import reading
from planner.site.logs.formats import NAMES
from planner.site.logs.records import LoggedRun, Per, Steady

NEEDED = ("model", "family", "accelerator", "num_accelerators", "seq_len", "global_batch_seqs", "tp", "pp", "runtime")
"""Columns without which a measurement is of nothing in particular."""
TAKEN = ("step_time_s", "steps", "step_time_spread", "metric")
"""Columns that only a measurement fills."""
RATES: Mapping[Per, tuple[str, ...]] = {
    "step": (),
    "sequence": ("global_batch_seqs",),
    "token": ("global_batch_seqs", "seq_len", "num_accelerators"),
}
"""What a logged duration is of -> columns that make it a step's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row for the journal, and how it came about."""

    row: Mapping[str, str]
    notes: tuple[str, ...]
    """What was counted and what was not, in words."""


def given(texts: Sequence[str], catalog: Catalog) -> dict[str, str]:
    """``COLUMN=VALUE`` as cells.

    Raises:
        WrongQuestion: no such column, one that is measured, or a value that it cannot hold.
    """
    row = {}
    for text in texts:
        column, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise WrongQuestion(f"--set {text}: write COLUMN=VALUE, as accelerator=H100-SXM5-80GB")
        if column in TAKEN:
            raise WrongQuestion(f"--set {column}: comes from the log, or from --step-time and --oom")
        if column not in folder.COLUMNS or column in folder.OWN:
            hint = did_you_mean(column, folder.COLUMNS, most=1)
            raise WrongQuestion(f"--set {column}: no such column{hint} (docs/runs.md)")
        if why := sharing.wrong(column, value, catalog):
            raise WrongQuestion(f"--set {column}={value}: {why}")
        row[column] = value
    if "accelerator" in row:  # a published name of it, too
        row["accelerator"] = names.accelerator(row["accelerator"], catalog.accelerators) or row["accelerator"]
    return row


def of_log(path: Path, plans: Sequence[Plan], stated: Mapping[str, str], catalog: Catalog, site: str) -> list[Measured]:
    """The measured rows of a log.

    Arguments:
        path: The log.
        plans: What may have run, one or several; of several the one that the log does not contradict.
        stated: Cells that a person states; they stand above the plan's.
        catalog: Where names of accelerators and runtimes stand.
        site: Name of the site.

    Raises:
        WrongQuestion: it cannot be read, is no training log that is known, has too few steps, contradicts every plan,
            or does not say what ran.
    """
    runs = reading.read(path)
    if not runs:
        raise WrongQuestion(f"{path}: no line of it is a step as one of these prints it: {', '.join(NAMES)}")
    of_plan = [run for run in runs if len(runs) == 1 or not plans or _is_of_any(run, plans, catalog)] or runs
    rows = [row for run in of_plan for row in _of_run(path, run, plans, stated, catalog, site)]
    if rows and (others := len(runs) - len(of_plan)):
        note = f"{format_many(others, 'further configuration')} of this log left out: of no plan that was named"
        rows[0] = replace(rows[0], notes=(*rows[0].notes, note))
    if not rows:
        longest = max(runs, key=lambda run: len(run.steps) + len(run.ticks))
        raise WrongQuestion(f"{path}: {reading.why_unread(longest)}")
    return rows


def of_value(seconds: float | None, plan: Plan | None, stated: Mapping[str, str], site: str) -> Measured:
    """The row of a time that a person states; None: the run ran out of memory.

    Raises:
        WrongQuestion: the plan and what is said do not describe a run.
    """
    row = {**(cells.of_plan(plan) if plan else {}), **stated}
    row |= {"step_time_s": f"{seconds:.6g}"} if seconds else {"metric": "oom"}
    notes = f"{format_seconds(seconds)} a step, as stated" if seconds else "out of memory, as stated"
    return Measured(row=_completed(row, site, "--step-time" if seconds else "--oom"), notes=(notes,))


def seconds(text: str) -> float:
    """``4.31s``, ``4310 ms`` or ``4.31``: seconds of a step.

    Raises:
        WrongQuestion: another text; a comma may mean either thousands or decimals.
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|min)?\s*", text, re.ASCII)
    value = float(match[1]) * {"ms": 1e-3, "min": 60.0}.get(match[2] or "s", 1.0) if match else 0.0
    if value <= 0:
        raise WrongQuestion(f"--step-time {text}: write seconds of a step with a point for decimals, as 4.31s")
    return value


def _of_run(
    path: Path, run: LoggedRun, plans: Sequence[Plan], stated: Mapping[str, str], catalog: Catalog, site: str
) -> list[Measured]:
    logged = cells.of_log(run, catalog)
    batches = {str(step.batch) for step in run.steps if step.batch}
    if len(batches) == 1:
        logged["global_batch_seqs"] = batches.pop()
    base = {**logged, **_planned(path, logged, plans, catalog), **stated, **_memory(run)}
    notes = (*run.notes, *(f"{conflict}: not taken over" for conflict in run.conflicts))

    def measured(row: Mapping[str, str], how: str) -> Measured:
        return Measured(row=_completed({**base, **row}, site, str(path)), notes=(how, *notes))

    if run.out_of_memory:
        return [
            measured(
                {"metric": "oom"}, f"ran out of memory after {format_many(len(run.steps or run.ticks), 'logged step')}"
            )
        ]
    counted = reading.measured(run)
    if not counted and run.whole_run_s:
        row = {"step_time_s": f"{run.whole_run_s:.6g}", "grade": "B"}
        return [measured(row, "mean of the whole run, warm-up and evaluations in it: grade B")]
    rows = [measured(_times(step, base, path), _counted(run, step)) for step in counted]
    return [replace(row, notes=(*row.notes, *_regimes(counted))) for row in rows]


def _is_of_any(run: LoggedRun, plans: Sequence[Plan], catalog: Catalog) -> bool:
    """Whether a run may be of one of the plans: of a log with several configurations, those that are count."""
    logged = cells.of_log(run, catalog)
    return any(not cells.contradictions(logged, cells.of_plan(plan), catalog) for plan in plans)


def _memory(run: LoggedRun) -> dict[str, str]:
    if run.memory_bytes is None:
        return {}
    return {"memory_gb_per_gpu": f"{run.memory_bytes / 1e9:.4g}", "memory_kind": f"max {run.memory_kind}"}


def _planned(path: Path, logged: cells.Cells, plans: Sequence[Plan], catalog: Catalog) -> dict[str, str]:
    """The configuration of the plan that the log is of; nothing where there is no plan."""
    if not plans:
        return {}
    rows = [cells.of_plan(plan) for plan in plans]
    by_row = [cells.contradictions(logged, row, catalog) for row in rows]
    able = [row for row, against in zip(rows, by_row, strict=True) if not against]
    if len(able) == 1:
        return able[0]
    if able:
        raise WrongQuestion(f"{path}: {len(able)} of the {len(plans)} plans could be what ran; name it with --rank N")
    closest = min(by_row, key=len)
    raise WrongQuestion(
        f"{path}: is not of {'this plan' if len(plans) == 1 else 'any of these plans'}: "
        f"{'; '.join(map(str, closest))}; name the plan that ran, or leave out --plan"
    )


def _times(steady: Steady, base: Mapping[str, str], path: Path) -> dict[str, str]:
    """Step time, spread, number of steps, and the batch where the lines themselves say it."""
    row = {"steps": str(steady.steps), "step_time_spread": f"{steady.spread:.4f}"}
    if steady.batch:
        row["global_batch_seqs"] = str(steady.batch)
    full = {**base, **row}
    seconds = steady.seconds
    if absent := cells.missing(full, RATES[steady.per]):
        raise WrongQuestion(f"{path}: logs a rate, and does not say {', '.join(absent)} {_remedy(absent)}")
    if steady.per != "step":
        seconds *= _number(full, "global_batch_seqs", path)
    if steady.per == "token":
        seconds *= _number(full, "seq_len", path) / _number(full, "num_accelerators", path)
    return {**row, "step_time_s": f"{seconds:.6g}"}


def _number(row: Mapping[str, str], column: str, path: Path) -> float:
    if not re.fullmatch(r"[1-9]\d{0,11}", row[column], re.ASCII):
        raise WrongQuestion(f"{path}: {column} is {row[column]!r}: must be a whole number")
    return float(row[column])


def _remedy(absent: Sequence[str]) -> str:
    return f"(--plan FILE, or --set {absent[0]}=...)"


def _completed(row: Mapping[str, str], site: str, where: str) -> dict[str, str]:
    """The row with all that every row of a site says.

    Raises:
        WrongQuestion: something is missing without which nobody knows what was measured, or no column states it.
    """
    full = {"grade": "A", "task": "pretrain", **row, "source": site, "lab": site, "date": date.today().isoformat()}
    if full["task"].startswith("--"):
        raise WrongQuestion(
            f"{where}: runs with {full['task']} are not learned from: no column of the journal states it"
        )
    if absent := cells.missing(full, NEEDED):
        raise WrongQuestion(f"{where}: does not say {', '.join(absent)} {_remedy(absent)}")
    return folder.identified({column: text for column, text in full.items() if column in folder.COLUMNS}, site)


def _regimes(counted: Sequence[Steady]) -> Iterator[str]:
    """The warning that a step time changed for good."""
    regimes = [step for step in counted if step.regime]
    if regimes:
        times = ", then ".join(f"{format_seconds(step.seconds)} ({step.regime})" for step in regimes)
        yield f"warning: the step time changes for good: {times}; find out why before you rely on either"


def _counted(run: LoggedRun, steady: Steady) -> str:
    left = ", ".join(f"{count:,} {reason}" for reason, count in steady.left_out.items())
    several = len({step.batch for step in run.steps}) > 1
    return (
        f"{run.format}{f', batch {steady.batch:,}' if several and steady.batch else ''}: {steady.steps:,} steps count"
        f"{f' ({left} left out)' if left else ''}, spread {100 * steady.spread:.1f} %"
    )
