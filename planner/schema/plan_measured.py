"""What a site has measured, as records of the documents of its plans."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.record import Record


class MeasuredSection(Record):
    """The runs of a site that followed this plan: same model, machines, framework, degrees, micro-batch, precision,
    ZeRO stage and recomputation.
    """

    runs: Annotated[int, Field(ge=1)]
    """That trained."""
    ran_out: Annotated[int, Field(ge=0)]
    """Further runs of it, which ran out of memory."""
    step_time_s: Annotated[float, Field(gt=0)]
    """Median of the runs: the plan's step time, from which its days, dollars and joules follow."""
    predicted_s: Annotated[float, Field(gt=0)]
    """What the site's efficiencies predict in its place; the breakdown adds up to it."""
    half_width: Annotated[float, Field(gt=0)]
    """Half-width of the 80 % interval of a step, on a log scale: how far steps, and runs, were apart."""
    memory_bytes: Annotated[float, Field(gt=0)] | None
    """Largest peak that a run logged."""


class ShortlistSection(Record):
    """Why these plans, in this order, are worth running."""

    target: str | None
    """That all of them can be started with."""
    runtime: str | None
    """The framework that the target runs; None: any."""
    tied: float
    """Relative difference of step times within which plans are ordered by other reasons."""
    regret: dict[str, float]
    """Runs of such a list -> how much slower the best of them was than the best plan of its job, on average over
    published jobs: what the first alone gives away.
    """


class SiteSection(Record):
    """What the runs of a site did to a set of plans."""

    name: str
    runs: int
    """That its efficiencies are fitted to."""
    frameworks: int
    error_before: float | None
    """Mean error of the built-in efficiencies on those runs, a fraction."""
    error_after: float | None
    """Mean error on those runs of a fit to the others of them."""
    out_of_memory: tuple[str, ...]
    """Plans left out because they ran out of memory there."""
    fastest_run: str | None
    """The fastest plan that was run, where none of the set was."""
    changed: bool
    """Whether the journal has changed since the fit to it, which is still in force."""
    next_rank: int | None
    """The first plan that has not been run: whose run tells most."""
