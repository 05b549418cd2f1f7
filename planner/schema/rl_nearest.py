"""The published step that a placement of RL post-training is nearest to. SI units."""

from __future__ import annotations

from planner.schema.choices import Placement
from planner.schema.record import Record


class RLNearestStep(Record):
    """The measured step that a placement is nearest to."""

    id: str
    """Its row of ``benchmarks/data/rl_runs.csv``."""
    source: str
    reference: str
    """Repository, commit and file, or paper, that published it."""
    model: str
    accelerator: str
    trains: int
    """Accelerators that train."""
    rolls_out: int
    placement: Placement
    staleness: float
    trainer: str
    engine: str
    responses: int
    """Responses of a step."""
    response_mean: float | None
    """Tokens; None: not published, and assumed in the prediction."""
    response_cap: float
    measured_s: float
    predicted_s: float
    distance: float
    """0 of a step with the same labels and counts."""
    differs: tuple[str, ...]
    """In what it is another step, in words."""
