"""What a site has measured, as records of the documents of its plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from planner.schema.record import Record


@dataclass(frozen=True, kw_only=True)
class MeasuredSection(Record):
    """The runs of a site that followed this plan: same model, machines, framework, degrees, micro-batch, precision,
    ZeRO stage and recomputation.
    """

    runs: Annotated[int, Field(ge=1)]
    step_time_s: Annotated[float, Field(gt=0)]
    """Median of the runs."""
    memory_bytes: Annotated[float, Field(gt=0)] | None
    """Largest peak that a run logged."""


@dataclass(frozen=True, kw_only=True)
class ShortlistSection(Record):
    """Why these plans, in this order, are worth running."""

    target: str | None
    """That all of them can be started with."""
    tied: float
    """Relative difference of step times within which plans are ordered by other reasons."""
    regret: dict[str, float]
    """Runs of such a list -> how much slower the best of them was than the best plan of its job, on average over
    published jobs: what the first alone gives away.
    """


@dataclass(frozen=True, kw_only=True)
class SiteSection(Record):
    """What the runs of a site did to a set of plans."""

    name: str
    runs: int
    """That its efficiencies are fitted to."""
    frameworks: int
    error_before: float | None
    """Mean error of the built-in efficiencies on those runs, a fraction."""
    error_after: float | None
    """The same of a fit to the others of them."""
    out_of_memory: tuple[str, ...]
    """Plans left out because they ran out of memory there."""
    next_rank: int | None
    """The first plan that has not been run: whose run tells most."""
