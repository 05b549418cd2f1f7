"""What one reading of a training log holds, and the lines of a log: logs of any size need the memory of one line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from planner.base import reading
from planner.base.errors import WrongQuestion

Per = Literal["step", "token", "sequence"]
"""What a logged duration is of: a step, one token on one accelerator, or one sequence of the global batch."""
Word = Literal["healthy", "slow", "crashed", "out of memory", "hung", "diverged", "cut off"]
"""How a run ended."""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One line on how long steps took: the mean since the line before."""

    step: int
    seconds: float
    """Seconds of what `per` says."""
    per: Per
    batch: int | None = None
    """Sequences of the step, where the line says them."""
    disturbed: bool = False
    """Whether an evaluation or a checkpoint was reported since the line before."""
    rounding: float = 0.0
    """Half a unit of the last digit that was printed, as a share of the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One line on how much time has passed until a step."""

    step: int
    clock_s: float
    resolution_s: float
    """Seconds to which the time is printed, rounded down."""
    step_resolution: float = 0.0
    """Steps to which their number is printed: ``1.23k`` is one of ten."""
    per: Per = "step"
    """What `step` counts."""
    begins: bool = False
    """Whether time is counted from here on, and not until here."""
    disturbed: bool = False
    """Whether an evaluation or a checkpoint was reported since the line before."""
    average_s: float | None = None
    """Seconds of a step by the bar's own moving average, which weighs the newest third as much as all before."""
    total: int = 0
    """Steps of the run, where the line says them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a run ended, and what says so."""

    word: Word
    cause: str = ""
    """In words; empty of a healthy one."""
    next: str = ""
    """What to do."""
    line: int | None = None
    """Number of the line in its log."""
    rank: int | None = None
    step: int | None = None
    """The last step that was logged before."""
    text: str = ""
    """The beginning of the line."""

    def __str__(self) -> str:
        """``hung: ... (line 812, rank 3, behind step 9)``."""
        places = {"line": self.line, "rank": self.rank, "behind step": self.step}
        where = ", ".join(f"{name} {number:,}" for name, number in places.items() if number is not None)
        return ": ".join(part for part in (self.word, self.cause) if part) + (f" ({where})" if where else "")


HEALTHY = Verdict(word="healthy")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The steps of one configuration, in the order of the log."""

    format: str
    """Name of the format (:mod:`planner.site.logs.formats`); empty where no step was logged."""
    runtime: str
    """Id of the runtime that prints so."""
    steps: tuple[LoggedStep, ...]
    ticks: tuple[Tick, ...] = ()
    """Where lines say how much time has passed, in place of `steps`."""
    stated: Mapping[str, str] = field(default_factory=dict)
    """Columns of ``docs/runs.md`` that the log's own dump of its configuration fills."""
    device: str = ""
    """The accelerator as its driver calls it, where that is logged."""
    memory_bytes: float | None = None
    """Largest peak that was logged."""
    memory_kind: str = ""
    verdict: Verdict = HEALTHY
    """How it ended."""
    conflicts: tuple[str, ...] = ()
    """Settings that the log states twice, differently: not taken over."""
    whole_run_s: float | None = None
    """Mean seconds of a step over the whole run, where the log sums it up: warm-up and evaluations are in it."""
    unread: str = ""
    """Why lines about steps say no step time, where they say none."""
    total: int = 0
    """Steps that the run was to have; 0 where no line says so."""
    files: tuple[str, ...] = ()
    """Names of the files that hold it."""
    notes: tuple[str, ...] = ()
    """How lines and files were put together, in words."""

    @property
    def out_of_memory(self) -> bool:
        """Whether memory ran out at the end."""
        return self.verdict.word == "out of memory"

    @property
    def first(self) -> int:
        """Number of the first logged step; 0 of none."""
        return min((line.step for line in self.steps or self.ticks), default=0)

    @property
    def last(self) -> int:
        """Number of the last logged step; 0 of none."""
        return max((line.step for line in self.steps or self.ticks), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What the steps that count say of one batch. Seconds of what `per` says."""

    per: Per
    batch: int | None
    seconds: float
    """Median of lines about steps; mean of differences of elapsed time."""
    spread: float
    """Interquartile range over the median."""
    steps: int
    """Lines that count."""
    left_out: Mapping[str, int]
    """Reason -> lines that do not."""
    rounding: float = 0.0
    """Share of the step time that was lost when it was printed."""
    regime: str = ""
    """Which steps these are, where the step time changes for good; else empty."""
    slower: bool = False
    """Whether these steps take longer than those of the regime before."""
    mixed: bool = False
    """Whether they are of two kinds, between which the median of all lies."""


LONGEST = 1 << 16
"""Bytes of a line that are looked at: a configuration dumped as one line of JSON takes some 20 kB."""
CHUNK = 1 << 20
MOST_LINES = 5_000_000
"""Of a log."""
_CODED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles of terminals (ECMA-48, control sequences)."""
_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""How a file begins that Windows shells redirected."""


def lines(path: Path) -> Iterator[str]:
    """Every line of a log (or of a gzipped one), without its end and without a terminal's control sequences.

    A carriage return, behind which progress bars write again, ends a line too. What is not UTF-8 is replaced, and of a
    line longer than :data:`LONGEST` bytes the rest is left out.

    Raises:
        WrongQuestion: it is no file, cannot be read, its gzip data are damaged, or it is too long.
    """
    if not path.is_file():
        raise WrongQuestion(f"{path}: {'a folder; name the log in it' if path.is_dir() else 'no such file'}")
    try:
        with reading.bounded_file(path, "learn takes the last part, too (tail -n 100000)", MOST_LINES) as file:
            yield from _split(iter(lambda: file.read1(CHUNK), b""))
    except OSError as error:
        raise WrongQuestion(f"{path}: {error.strerror or error}") from None


def _split(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = ""
    decoder = None
    for chunk in chunks:
        decoder = decoder or codecs.getincrementaldecoder(_MARKS.get(chunk[:2], "utf-8-sig"))(errors="replace")
        *whole, rest = (rest + decoder.decode(chunk)).replace("\r", "\n").split("\n")
        yield from map(_plain, whole)
        rest = rest[:LONGEST]
    # A number at the end of a line that was cut off is not all of it.
    yield _plain(rest).rstrip("0123456789.,")


def _plain(line: str) -> str:
    line = line[:LONGEST]
    return _CODED.sub("", line) if "\x1b" in line else line
