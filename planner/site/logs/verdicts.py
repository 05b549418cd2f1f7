"""How a run ended: the signs of a failure that stand behind its last step, and the verdict that they make.

The signs are ``verdicts.toml``. A run that went on after a sign was not ended by it. Without one, a run that stops
before its last step is cut off; one whose steps became slower for good, or straggle, is slow; any other is healthy.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from planner.site.logs.records import LoggedRun, Steady, Verdict, Word

FAILED = ("crashed", "out of memory", "hung", "diverged")
"""Verdicts of runs that teach no speed unless somebody asks for it."""
NEAR = 200
"""Lines within which a sign that says more takes the place of a failure in general: a stack of calls is that long."""
STRAGGLING = 0.1
"""Share of lines that straggle in a run that is slow."""
LONGEST = 160
"""Characters of a line that are kept."""
_RANK = re.compile(r"\[[Rr]ank\s?(\d{1,6})\]|^\s*\[?(?:default|rank)?(\d{1,6})\]?:\s|\brank\s*: (\d{1,6})\b")
_FINITE = re.compile(r"""\b(?:loss|lm loss|CE loss|CrossEntropyLoss)["']?\s*[:=]\s*["']?\d""")
_ROOT = re.compile(r"^\s*rank\s+: (\d{1,6}) \(local_rank")
"""The rank that torchrun names as the first that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A row of ``verdicts.toml``."""

    verdict: Word
    source: str
    line: re.Pattern[str]
    cause: str
    next: str
    hints: tuple[str, ...]
    specific: bool


def _sign(row: dict[str, object]) -> Sign:
    hints = row.get("hints") or [row["word"]]
    assert isinstance(hints, list)
    return Sign(
        verdict=cast(Word, row["verdict"]),
        source=str(row["source"]),
        line=re.compile(str(row["line"])),
        cause=str(row["cause"]),
        next=str(row["next"]),
        hints=tuple(hints),
        specific=bool(row.get("specific", row["verdict"] != "crashed")),
    )


SIGNS = tuple(
    _sign(row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["sign"]
)
_HINTED = tuple((hint, sign) for sign in SIGNS for hint in sign.hints)


@dataclass(slots=True)
class Ending:
    """What was read behind the last step of a run."""

    verdict: Verdict | None = None
    general: bool = False
    """Whether that is a failure in general."""
    calls: dict[int, int] = field(default_factory=dict)
    """Rank -> number of the collective in which it waited."""

    def note(self, line: str, number: int, step: int) -> None:
        """Notes what a line says of the end.

        Args:
            line: Of the log.
            number: Its number.
            step: The last step that was logged.
        """
        if self.verdict is not None and self.verdict.word == "diverged" and _FINITE.search(line):
            self.verdict = None
        if self.general and self.verdict and self.verdict.rank is None and (root := _ROOT.match(line)):
            self.verdict = replace(self.verdict, rank=int(root[1]))
        for hint, sign in _HINTED:
            if hint in line and (match := sign.line.search(line)):
                self._found(sign, match, line, number, step)
                return

    def went_on(self) -> None:
        """Forgets what did not end the run: a step was logged behind it."""
        if self.verdict is not None and self.verdict.word != "diverged":
            self.verdict = None
            self.general = False
            self.calls.clear()

    def _found(self, sign: Sign, match: re.Match[str], line: str, number: int, step: int) -> None:
        groups = {name: text for name, text in match.groupdict().items() if text}
        rank = _rank(line)
        if rank is not None and "number" in groups:
            self.calls[rank] = int(groups["number"])
        near = self.verdict is not None and number - (self.verdict.line or 0) <= NEAR
        if self.verdict is not None and not (self.general and sign.specific and near):
            return
        self.general = not sign.specific
        self.verdict = Verdict(
            word=sign.verdict,
            cause=sign.cause.format(**groups) if groups else sign.cause.partition(": {")[0],
            next=sign.next,
            line=number,
            rank=rank,
            step=step or None,
            text=line.strip()[:LONGEST],
        )


def _rank(line: str) -> int | None:
    match = _RANK.search(line)
    return next((int(text) for text in match.groups() if text), None) if match else None


def verdict(run: LoggedRun, ending: Ending) -> Verdict:
    """The verdict on a run by its end; of its steps :func:`judged` says more."""
    sign = ending.verdict
    done = 0 < run.total <= run.last
    if sign is not None and not (done and sign.word != "diverged"):
        return replace(sign, cause=sign.cause + _behind(ending))
    if 0 < run.last < run.total and not run.whole_run_s:
        return Verdict(
            word="cut off",
            cause=f"the log ends at step {run.last:,} of {run.total:,} without an end or an error",
            next="nothing is wrong with its steps",
            step=run.last,
        )
    return Verdict(word="healthy")


def _behind(ending: Ending) -> str:
    """The rank that was behind the others when they waited, in words."""
    if len(set(ending.calls.values())) < 2:
        ranks = sorted(ending.calls)
        return f"; {len(ranks)} ranks waited in it: {', '.join(map(str, ranks[:8]))}" if len(ranks) > 1 else ""
    rank = min(ending.calls, key=lambda one: ending.calls[one])
    return f"; rank {rank} was behind, in number {ending.calls[rank]}"


def judged(run: LoggedRun, counted: Sequence[Steady]) -> Verdict:
    """The verdict on a run with its steps: slow where they became slower for good, or straggle."""
    if run.verdict.word != "healthy":
        return run.verdict
    for steady in counted:
        straggling = steady.left_out.get("straggling", 0)
        if steady.slower or straggling > STRAGGLING * (steady.steps + straggling):
            cause = (
                f"{steady.regime} take longer than those before" if steady.slower else f"{straggling:,} steps straggle"
            )
            return Verdict(
                word="slow", cause=cause, next="look for clocks that throttle, a slow node, or data that wait"
            )
    return run.verdict
