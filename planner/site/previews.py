"""What `learn` would learn from logs, run by run, with nothing written (``learn --dry-run``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.base.units import format_seconds
from planner.schema.record import dump
from planner.schema.reports import FittingPlan
from planner.site import cells, log_rows
from planner.site.findings import RunFinding
from planner.site.forecasts import beside_plan
from planner.site.log_rows import NEEDED, Known
from planner.site.logs.joining import joined
from planner.site.logs.records import LoggedRun
from planner.site.logs.verdicts import FAILED

MEASURED = (*log_rows.TAKEN, "memory_gb_per_gpu", "memory_kind", "grade")
"""Columns of a row that say what was measured, not what ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One measurement that would be learned, or the reason why it would not."""

    finding: RunFinding
    fits_instead: tuple[FittingPlan, ...] = ()
    """Plans that fit, with their prices, where the run ran out of memory."""
    compared: str = ""
    """Its step next to what the plan that was named predicts."""
    fits_elsewhere: str = ""
    """What would fit where none of these does."""

    @property
    def files(self) -> list[str]:
        """Names of the files that hold it."""
        return list(self.finding.run.files)

    @property
    def cells(self) -> dict[str, str]:
        """Column -> cell of what ran, as far as the log, a plan and a person say it."""
        return {
            column: text.removeprefix("--task ").removeprefix("--method ")
            for column, text in self.finding.row.items()
            if column not in MEASURED and text
        }

    @property
    def missing(self) -> list[str]:
        """Columns that nobody has said, and without which nothing is learned."""
        return cells.missing(self.finding.row, NEEDED)

    @property
    def refused(self) -> str:
        """Why it would not be learned, in words; empty where it would be, or where a column is all that lacks."""
        task = self.finding.row.get("task", "")
        if task.startswith("--"):
            return f"runs with {task} are not learned from: no column of the journal states it"
        if self.finding.verdict.word in FAILED and not self.finding.run.out_of_memory:
            return f"{self.finding.verdict.word}: what failed teaches no speed unless --failed asks for it"
        return "" if self.finding.run.out_of_memory else self.finding.reason

    @property
    def is_read(self) -> bool:
        """Whether the log says how long a step took, or how the run failed."""
        finding = self.finding
        return finding.step_time_s is not None or finding.token_s is not None or finding.verdict.word in FAILED

    @property
    def to_paste(self) -> str:
        """The flags that would say what is missing."""
        return " ".join(f"--set {column}=..." for column in self.missing)

    def document(self) -> dict[str, Any]:
        """It as JSON types."""
        finding = self.finding
        peak = finding.run.memory_bytes
        return {
            "files": self.files,
            "format": finding.run.format,
            "step_time_s": finding.step_time_s,
            "steps": int(finding.row.get("steps", 0)) or None,
            "tokens_per_s_per_gpu": finding.tokens_per_s,
            "peak_memory_gib": None if peak is None else peak / 2.0**30,
            "verdict": finding.verdict.word,
            "fits_instead": [dump(plan) for plan in self.fits_instead],
            "fits_elsewhere": self.fits_elsewhere,
            "ending": {name: part for name, part in asdict(finding.verdict).items() if name != "word"},
            "cells": self.cells,
            "missing": self.missing,
            "refused": self.refused,
            "notes": list(finding.notes),
        }

    def lines(self) -> Iterator[str]:
        """It in words, a line each."""
        finding = self.finding
        rate = f", {finding.tokens_per_s:,.0f} tokens/s per accelerator" if finding.tokens_per_s else ""
        peak = finding.run.memory_bytes
        memory = f", peak of {peak / 2.0**30:.1f} GiB" if peak else ""
        time = f"{format_seconds(finding.step_time_s)} a step" if finding.step_time_s else "no step time"
        yield f"{' + '.join(self.files)}: {time}{rate}{memory}"
        if self.compared:
            yield self.compared
        yield str(finding.verdict)
        if finding.verdict.next:
            yield f"next: {finding.verdict.next}"
        yield from map(str, self.fits_instead)
        if self.fits_elsewhere:
            yield f"nothing fits on its accelerators; {self.fits_elsewhere}"
        yield ", ".join(f"{column}={text}" for column, text in self.cells.items()) or "says nothing of what ran"
        yield from finding.notes
        if self.refused:
            yield f"not learned: {self.refused}"
        if self.missing:
            yield f"does not say {', '.join(self.missing)}: {self.to_paste}"


def of_logs(logs: Sequence[Path], known_of: Callable[[Path], Known]) -> tuple[list[Preview], list[str]]:
    """What logs say, run by run, and why others say nothing.

    Args:
        logs: Files, of which some may hold parts of one run.
        known_of: What is known of a log.
    """
    read: list[tuple[Path, list[LoggedRun]]] = []
    previews: list[Preview] = []
    reasons: list[str] = []
    for path in logs:
        try:
            read.append((path, log_rows.read(path)))
        except WrongQuestion as error:
            reasons.append(str(error))
    for path, runs in joined(read):
        try:
            findings = [one for run in runs for one in log_rows.findings(path, run, known_of(path))]
        except WrongQuestion as error:
            reasons.append(str(error))
            continue
        plans = known_of(path).plans
        plan = plans[0] if len(plans) == 1 else None
        of_log = [
            Preview(finding=finding, compared=beside_plan(plan, finding.step_time_s) if plan else "")
            for finding in findings
        ]
        previews += of_log
        reasons += [f"{path}: {one.refused or one.finding.reason}" for one in of_log if not one.is_read]
    return previews, reasons
