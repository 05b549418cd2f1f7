"""What a plan takes, as records of its document: step time, memory, days, dollars, joules."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.plan_layout import StageMemory
from planner.schema.record import Record, Sparse


class ExpandedSection(Record):
    """Bytes in one accelerator's part of the expanded memory, of the stage that is fullest; parts add up to the
    total.
    """

    total_bytes: float
    capacity_bytes: float
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float


CALLED = {"vector": "element-wise", "tp": "TP", "cp": "CP", "ep": "EP", "dp": "DP", "resident": "runtime"}
"""Causes of a step's time and kinds of memory that people call otherwise than documents do."""


def called(name: str) -> str:
    """A cause of a step's time or a kind of memory, in words."""
    return CALLED.get(name, name)


class HostMemory(Record):
    """Bytes in a node's own memory, all its accelerators holding as much as those of the stage that puts most there."""

    total_bytes: float
    """Bytes of a node."""
    capacity_bytes: float | None
    """Capacity of a node; null where the catalog does not know it."""
    stage: int
    optimizer_bytes: float
    """Bytes of each accelerator's states, with the gradients in 32 bit that they are updated from."""
    activations_bytes: float
    """Bytes of each accelerator."""


class MemorySection(Record):
    """Bytes on the fullest accelerator, in its own memory; the parts add up to the total."""

    total_bytes: float
    capacity_bytes: float
    oom_risk: float | None = None
    """Largest chance of running out of memory that was asked for; the limit of the memory constraint is what it leaves
    of the capacity. Not in documents of before 2026-11."""
    oom_chance: float | None = None
    """Chance that the true peak exceeds the capacity: ``1 / (1 + (capacity / total)^(ln 9 / ln(high / total)))``, high
    the upper end of the 80 % interval `memory_bytes`."""
    stage: int
    """Pipeline stage that is fullest, from 0."""
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    graph_inputs_bytes: Sparse[float] = None
    """Bytes of these that CUDA graphs of modules read from buffers of their own; 0 where one graph has the whole step,
    and only in documents of plans with graphs."""
    buffers_bytes: float
    resident_bytes: float
    expanded: Sparse[ExpandedSection] = None
    """What lies in expanded memory, in none of the figures above; only in documents where there is such memory."""
    host: Sparse[HostMemory] = None
    """What lies in host memory; only in documents of plans that put something there."""
    by_stage: Sparse[tuple[StageMemory, ...]] = None
    """Memory of every pipeline stage; not where there is one, nor in documents of before 2026-12, nor of groups, whose
    stages say it themselves."""


class Interval(Record):
    """An 80 % prediction interval."""

    low: float
    high: float
    basis: str


MOST_OWN_RUNS = 100
"""Runs of one framework that are weighed, the newest: a plan's document states each, and checks every pair of them."""


class OwnRun(Record):
    """A run of a site, as far as plans are near it or far from it."""

    model: str
    """Its block: hidden width, MLP's width, heads, and experts where there are some."""
    generation: str
    precision: str
    recompute: str
    accelerators: int
    tp: int
    pp: int
    cp: int
    ep: int
    micro: int
    residual: float
    """Log of what its passes took over what was predicted."""
    scatter: float
    """Standard deviation of that by itself."""
    weight: float
    """What it says, the other runs given: w in ``cov w = residual``."""


class OwnRunsSection(Record):
    """What a site's runs under the plan's framework shift its prediction by.

    ``near_factor = exp(near^2 sum w_i exp(-d_i))``, d the distance from the plan to a run: a figure for each label in
    which they differ, and for each doubling of a count. ``cov_ij = site^2 + near^2 exp(-d_ij) + scatter_i^2 [i = j]``.
    """

    shared_factor: float
    """On the passes of any plan."""
    near_factor: float
    """On this one's besides."""
    without_s: float
    """Seconds of a step without both."""
    model: str
    """The plan's block."""
    generation: str
    site: float
    near: float
    other: dict[str, float]
    """Label -> distance of plans that differ in it."""
    doubled: dict[str, float]
    """Count -> distance of plans of which one has twice as many."""
    runs: Annotated[tuple[OwnRun, ...], Field(max_length=MOST_OWN_RUNS)]


class NearestRun(Record):
    """A measured run that a plan is near to, and what is predicted for that run."""

    lab: str
    """Who measured it; ``own run`` of a site's own."""
    run: str
    """Its row of the published runs (``validate`` reads them), or of the site's."""
    runs: int
    """Runs that it stands for: those of its layout, of which it is the one of median error."""
    model: str
    accelerator: str
    accelerators: int
    runtime: str
    precision: str
    degrees: str
    """Degrees above 1: ``tp=8 pp=2``."""
    batch: int
    """Sequences of its step."""
    measured_s: float
    """Seconds of its step."""
    predicted_s: float
    """What a step is predicted to take with the shipped efficiencies, or with the site's of a run of its own."""
    distance: float
    """A figure for each label in which the plan differs from it and for each doubling of a count; 0 is the same."""
    how_near: str
    """What both share, in words."""


class TextBatches(Record):
    """Texts of several lengths: how full their packs are, and the same plan with texts that are not packed."""

    filled: float
    """Share of a sequence's positions that is text."""
    per_step: float
    """Texts of a step."""
    sorted_s: float
    """Seconds for as many where texts of one length come together."""
    padded_s: float
    """Seconds for as many where each is padded to the longest of its micro-batch, in any order."""


class SplitPasses(Record):
    """Seconds of a micro-batch's passes on a rank: forward, backward for gradients of inputs, and for those of weights;
    half of the transfers with each of the first two. The bubble follows from them.
    """

    slowest_s: tuple[float, float, float]
    others_s: tuple[float, float, float]
    """Mean of all other ranks."""


class Prediction(Record):
    """What the step is predicted to take; of a plan that was measured, what it took."""

    step_time_s: float
    """Seconds of a step; of a measured plan (:class:`planner.schema.plan.MeasuredSection`), the measurement."""
    breakdown: dict[str, float]
    """Cause -> predicted seconds; adds up to the predicted step time."""
    tokens_per_s: float
    mfu: float
    """Model FLOP utilisation: FLOPs as in Narayanan et al. 2021 over the dense peak of the precision."""
    model_flops: float
    """Per step."""
    memory: MemorySection
    intervals: dict[str, Interval]
    """Intervals of `step_time_s`, and of the total of `memory` as `memory_bytes`."""
    own_runs: Sparse[OwnRunsSection] = None
    """Only in documents of a site with runs under the plan's framework, on one pool."""
    text_batches: Sparse[TextBatches] = None
    """Only where lengths of texts are stated."""
    passes: Sparse[SplitPasses] = None
    """Only where a schedule computes weight gradients apart."""


class Goodput(Record):
    """Share of time that trains, and what takes the rest."""

    fraction: float
    mtbf_s: float
    """Mean seconds between interruptions of the whole job."""
    checkpoint_interval_s: float
    checkpoint_blocks_s: float
    restart_s: float
    basis: str


class ComparableOffers(Record):
    """Current prices of an hour of one accelerator, the cheapest of each provider. US dollars per accelerator-hour."""

    providers: tuple[str, ...]
    low_usd: float
    median_usd: float
    high_usd: float
    oldest: str
    """Date of the oldest of them."""


class PriceUsed(Record):
    """The price that money was computed from."""

    node: str
    """The catalog entry that is sold: the node itself, or the equivalent cloud instance."""
    basis: str
    usd_per_hour: float
    region: str
    date: str
    source: str
    assumed: str
    offers: ComparableOffers | None = None
    """What else an hour of the accelerator is sold for."""


class Money(Record):
    """What training on all tokens costs."""

    days: float
    steps: float
    usd_per_hour: float | None
    usd_total: float | None
    tokens_per_usd: float | None
    price: PriceUsed | None
    goodput: Goodput
    prices: tuple[PriceUsed, ...] = ()
    """One for each pool, where a plan uses several."""


class Energy(Record):
    """Electricity of the whole run."""

    power_w: float | None
    """While training, at the plug of the facility (with PUE)."""
    energy_j: float | None
    usd: float | None
    carbon_kg: float | None
    basis: str
