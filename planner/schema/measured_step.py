"""A measured step compared with a stated configuration, as a section of its document. SI units."""

from __future__ import annotations

from typing import Literal

from planner.schema.record import Record

Verdict = Literal["as predicted", "slow", "fast"]


class MeasuredPhase(Record):
    """A phase of a measured step, or the whole of it, and its prediction."""

    phase: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    """Ends of its 80 % interval; docs/rl.md says what the width of each phase of post-training rests on."""
    verdict: Verdict
    causes: tuple[str, ...]
    """What would explain it, with the figure at which it does."""


class MeasuredStep(Record):
    """Whether a measured step is normal."""

    source: str
    """What it was read from."""
    phases: tuple[MeasuredPhase, ...]
    """What loses most seconds first; the step itself is one, and the only one but of post-training."""
    unread: tuple[str, ...]
    """Times in a log that are no phase."""
    verdict: str
    """All of it in a sentence."""
