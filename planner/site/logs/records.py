"""What one reading of a training log holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Per = Literal["step", "token", "sequence"]
"""What a logged duration is of: a step, one token on one accelerator, or one sequence of the global batch."""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One line on how long steps took: the mean since the line before."""

    step: int
    seconds: float
    """Of what `per` says."""
    per: Per
    batch: int | None = None
    """Sequences of the step, where the line says them."""
    disturbed: bool = False
    """Whether an evaluation or a checkpoint was reported since the line before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRun:
    """The steps of one configuration, in the order of the log."""

    format: str
    """Name of the format (:mod:`planner.site.logs.formats`); empty where no step was logged."""
    runtime: str
    """Id of the runtime that prints so."""
    steps: tuple[LoggedStep, ...]
    stated: Mapping[str, str] = field(default_factory=dict)
    """Columns of ``docs/runs.md`` that the log's own dump of its configuration fills."""
    device: str = ""
    """The accelerator as its driver calls it, where that is logged."""
    memory_bytes: float | None = None
    """Largest peak that was logged."""
    memory_kind: str = ""
    out_of_memory: bool = False
    """Whether the last thing that happened is that memory ran out."""
    conflicts: tuple[str, ...] = ()
    """Settings that the log states twice, differently: not taken over."""
    whole_run_s: float | None = None
    """Mean seconds of a step over the whole run, where the log sums it up: warm-up and evaluations are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What the steps that count say of one batch. Seconds of what `per` says."""

    per: Per
    batch: int | None
    median: float
    spread: float
    """Interquartile range over the median."""
    steps: int
    """Lines that count."""
    left_out: Mapping[str, int]
    """Reason -> lines that do not."""
