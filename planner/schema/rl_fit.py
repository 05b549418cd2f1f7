"""What ``fit`` of an RL post-training prints: the fewest accelerators of every kind. SI units, US dollars."""

from __future__ import annotations

from typing import Any, Literal

from planner.schema.choices import Placement
from planner.schema.record import Record, Sparse
from planner.schema.rl import RLWork


class FittingStep(Record):
    """The fewest accelerators of a kind on which a step fits, or is as short as wanted, with its best placement."""

    accelerator: str
    accelerators: int
    node: str
    nodes: int
    """Nodes, or one that gives a part of its accelerators."""
    holds_from: int
    """Fewest accelerators on which any step fits."""
    below: int | None
    """The next smaller count, on which this was tried and failed; None: there is none."""
    placement: Placement
    staleness: float
    trains: int
    """Accelerators that train."""
    rolls_out: int
    """Accelerators that generate; colocated the same ones."""
    step_s: float
    step_low_s: float
    step_high_s: float
    """Ends of the 80 % interval of the step."""
    tokens_per_s: float
    memory_bytes: float
    """Bytes that training takes on the fullest accelerator."""
    capacity_bytes: float
    usd_per_step: float | None
    usd: float | None
    """US dollars of all steps; None: no current offer in the catalog."""
    days: float
    """Days that all steps take."""
    best: tuple[str, ...] = ()
    """What it is of all rows: fewest, cheapest, fastest."""

    def row(self) -> dict[str, Any]:
        """A row of a table."""
        return {**vars(self), "best": ", ".join(self.best)}


class FittingSteps(Record):
    """Where a post-training fits (``fit --task grpo --json``)."""

    kind: Literal["rl-fit"] = "rl-fit"
    schema_version: Literal[1] = 1
    work: RLWork
    step_time_s: Sparse[float]
    """Longest step that is wanted."""
    most: int
    """Accelerators of one kind that were tried together."""
    fits: tuple[FittingStep, ...]
    fits_none: tuple[str, ...]
    """Kinds of which no count that was tried does."""
