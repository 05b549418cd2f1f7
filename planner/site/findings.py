"""What a run of a log says: cells of a measured row, its step time, and why it has none where that is so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.base.units import format_many, format_seconds
from planner.calibration.runs.columns import MEASURED, impossible_cell
from planner.site.cells import Cells, missing
from planner.site.logs import reading
from planner.site.logs.records import LoggedRun, Per, Steady, Verdict
from planner.site.logs.steady import steady
from planner.site.logs.verdicts import judged

RATES: Mapping[Per, tuple[str, ...]] = {
    "step": (),
    "sequence": ("global_batch_seqs",),
    "token": ("global_batch_seqs", "seq_len", "num_accelerators"),
}
"""What a logged duration is of -> columns that make it a step's."""
FASTEST_S = 0.002
"""Seconds of a step at least: rates that say less are of something else, as of tokens in logs of MLPerf's GPT-3."""
_WHOLE = re.compile(r"[1-9]\d{0,11}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinding:
    """One measurement of a run: of one batch, in one regime."""

    run: LoggedRun
    row: Cells
    """Cells, with the step time where there is one."""
    notes: tuple[str, ...]
    """What was counted and what was not, in words."""
    verdict: Verdict
    absent: tuple[str, ...] = ()
    """Columns without which a rate that is logged makes no step time."""
    reason: str = ""
    """Why there is no step time; empty where there is one, or where a column is all that lacks."""
    token_s: float | None = None
    """Seconds of a token on one accelerator, where that is what is logged."""

    before_s: float | None = None
    """Seconds of a step before memory ran out: shown, and not learned."""

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step."""
        text = self.row.get("step_time_s")
        return float(text) if text else self.before_s

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of one accelerator in a second."""
        counts = [self.row.get(column, "") for column in RATES["token"]]
        if self.step_time_s and all(_WHOLE.fullmatch(count) for count in counts):
            batch, sequence, accelerators = map(int, counts)
            return batch * sequence / accelerators / self.step_time_s
        return 1.0 / self.token_s if self.token_s else None


def of_run(run: LoggedRun, base: Cells) -> list[RunFinding]:
    """What a run says, for each batch and regime; one finding without a step time where it says none, or says what no
    run can have been.

    Args:
        run: Of a log.
        base: Cells of its configuration, from the log, a plan and a person.
    """
    findings = _of_run(run, base)
    impossible = (impossible_cell({**finding.row, "task": ""}) for finding in findings)
    return [
        replace(finding, row=_untimed(finding.row), token_s=None, before_s=None, reason=f"{why}: no run can have that")
        if why
        else finding
        for finding, why in zip(findings, impossible, strict=True)
    ]


def _untimed(row: Cells) -> Cells:
    return {column: text for column, text in row.items() if column not in MEASURED}


def _of_run(run: LoggedRun, base: Cells) -> list[RunFinding]:
    notes = (*run.notes, *(f"{conflict}: not taken over" for conflict in run.conflicts))
    row = {**base, **_memory(run)}
    counted = reading.measured(run)
    if run.out_of_memory:
        how = f"ran out of memory after {format_many(len(run.steps or run.ticks), 'logged step')}"
        before_s = _of_steady(run, counted[0], row, (), run.verdict).step_time_s if counted else None
        row |= {"metric": "oom"}
        notes = (how, *notes)
        return [RunFinding(run=run, row=row, notes=notes, verdict=run.verdict, reason=how, before_s=before_s)]
    verdict = judged(run, counted)
    if not counted and run.whole_run_s:
        row |= {"step_time_s": f"{run.whole_run_s:.6g}", "grade": "B"}
        how = "mean of the whole run, warm-up and evaluations in it: grade B"
        return [RunFinding(run=run, row=row, notes=(how, *notes), verdict=verdict)]
    if not counted:
        token_s = next((one.seconds for one in steady(run.steps) if one.per == "token"), None)
        why = reading.why_unread(run)
        return [RunFinding(run=run, row=row, notes=notes, verdict=verdict, reason=why, token_s=token_s)]
    warnings = (*notes, *_regimes(counted))
    return [_of_steady(run, one, row, (_counted(run, one), *warnings), verdict) for one in counted]


def _of_steady(run: LoggedRun, measured: Steady, base: Cells, notes: tuple[str, ...], verdict: Verdict) -> RunFinding:
    row = {**base, "steps": str(measured.steps), "step_time_spread": f"{measured.spread:.4f}"}
    if measured.batch:
        row["global_batch_seqs"] = str(measured.batch)
    seconds = measured.seconds
    token_s = seconds if measured.per == "token" else None
    needed = RATES[measured.per]
    if absent := missing(row, needed):
        return RunFinding(run=run, row=row, notes=notes, verdict=verdict, absent=tuple(absent), token_s=token_s)
    if odd := [column for column in needed if not _WHOLE.fullmatch(row[column])]:
        reason = f"{odd[0]} is {row[odd[0]]!r}: must be a whole number"
        return RunFinding(run=run, row=row, notes=notes, verdict=verdict, reason=reason, token_s=token_s)
    if measured.per != "step":
        seconds *= float(row["global_batch_seqs"])
    if measured.per == "token":
        seconds *= float(row["seq_len"]) / float(row["num_accelerators"])
    if seconds < FASTEST_S:
        reason = f"{seconds:.2g} s a step: no step is so short"
        if measured.per != "step":
            reason = f"{seconds:.2g} s a step: what it logs in a second is no count of sequences"
        return RunFinding(run=run, row=row, notes=notes, verdict=verdict, reason=reason)
    row["step_time_s"] = f"{seconds:.6g}"
    return RunFinding(run=run, row=row, notes=notes, verdict=verdict, token_s=token_s)


def _memory(run: LoggedRun) -> dict[str, str]:
    if run.memory_bytes is None:
        return {}
    return {"memory_gb_per_gpu": f"{run.memory_bytes / 1e9:.4g}", "memory_kind": f"max {run.memory_kind}"}


def _regimes(counted: Sequence[Steady]) -> Iterator[str]:
    """The warning that a step time changed for good, or that bars of several runs stand in the log."""
    regimes = [one for one in counted if one.regime]
    if regimes:
        unit = "" if regimes[0].per == "step" else f" a {regimes[0].per}"
        times = ", then ".join(f"{format_seconds(one.seconds)}{unit} ({one.regime})" for one in regimes)
        if " of bar " in regimes[0].regime:
            yield f"warning: bars of several runs take different times: {times}; name a log of one of them"
        else:
            yield f"warning: the step time changes for good: {times}; find out why before you rely on either"


def _counted(run: LoggedRun, measured: Steady) -> str:
    left = ", ".join(f"{count:,} {reason}" for reason, count in measured.left_out.items())
    several = len({step.batch for step in run.steps}) > 1
    batch = f", batch {measured.batch:,}" if several and measured.batch else ""
    counts = f"{measured.steps:,} steps count{f' ({left} left out)' if left else ''}"
    return f"{run.format}{batch}: {counts}, spread {100 * measured.spread:.1f} %"
