"""What a site's own steps of RL post-training say: phases that were learned, and the factors that plans take from them.

SI units.
"""

from __future__ import annotations

from typing import Literal

from planner.schema.record import Record

SitePhaseName = Literal["generation", "training", "other"]


class SiteFactor(Record):
    """Seconds of a phase at a site over the built-in prediction."""

    phase: SitePhaseName
    factor: float
    runs: int


class SiteFactors(Record):
    """The site whose runs a plan counts."""

    name: str
    factors: tuple[SiteFactor, ...]
    """What the first placement takes; a phase that the site has not measured there is left out."""


class LearntPhase(Record):
    """A phase of a measured run next to its prediction by the built-in figures."""

    phase: SitePhaseName
    accelerator: str
    software: str
    """The engine, or the trainer's runtime."""
    measured_s: float
    predicted_s: float
    runs: int
    """Runs of the site that have this phase on these accelerators, this one among them."""
    factor: float
    """What plans of the kind take from them."""


class RLLesson(Record):
    """What ``learn`` read out of a log of RL post-training."""

    kind: Literal["rl-lesson"] = "rl-lesson"
    schema_version: Literal[1] = 1
    journal: str
    written: bool
    new: bool
    """Whether the run was not in the journal before."""
    source: str
    phases: tuple[LearntPhase, ...]
    left_out: tuple[str, ...]
    """Phases of the log that teach nothing, and why."""
