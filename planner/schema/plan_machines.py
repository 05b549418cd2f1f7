"""What a plan runs on and what was measured of it: machines, the library of each collective, and a site's own runs.

All of them are records of a plan's document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field

from planner.schema.hardware import Dtype, FusedDispatcher
from planner.schema.plan_layout import AttentionKernel
from planner.schema.record import Record, Sparse


class ExpandedPool(Record):
    """Memory in addition to the accelerators' own."""

    bytes: float
    """Bytes of one unit."""
    bytes_per_s: float
    latency_s: float
    scope: Literal["accelerator", "node", "pool"]
    """Who shares a unit."""
    access: Literal["serial", "concurrent"]


Value = float | bool | str | None
"""Value of a field of a catalog's record; None: it has none."""
_FLOPS = dict.fromkeys((f".{dtype}" for dtype in get_args(Dtype)), (1e12, "TFLOP/s"))
SHOWN_IN = {"bandwidth": (1e9, "GB/s"), "memory": (2.0**30, "GiB"), "l2": (2.0**20, "MiB"), "tdp": (1.0, "W"), **_FLOPS}
"""Ends of figures' names -> what one of the unit that people read is in SI, and its name."""


class ChangedFigure(Record):
    """A figure of an accelerator that is not what the catalog says of the one of that name."""

    figure: str
    """As the catalog's record has it: ``memory_bandwidth``, ``peak.bf16``. SI units."""
    catalog: Value
    used: Value

    def text(self, value: Value) -> str:
        """One of the two values as people read it: ``4,800 GB/s``."""
        if not isinstance(value, float):
            return "none" if value is None else str(value)
        scale, unit = next((shown for end, shown in SHOWN_IN.items() if self.figure.endswith(end)), (1.0, ""))
        return f"{value / scale:,.6g} {unit}".rstrip()

    def __str__(self) -> str:
        return f"{self.figure} {self.text(self.used)} (catalog: {self.text(self.catalog)})"


class Pool(Record):
    """Nodes of one kind."""

    node: str
    count: int
    accelerator: str
    vendor: str
    """Who makes the accelerator."""
    accelerators_per_node: int
    accelerator_memory_bytes: float
    peak_flops: dict[str, float]
    scaleup_bytes_per_s: float | None
    nics_per_node: int
    nic_bytes_per_s: float | None
    max_power_w: float | None
    zone: str = ""
    """Where it is, as given in the question; pools of one zone share a network."""
    offered: int | None = None
    """Nodes that there were to choose from, where a plan over several pools may leave some out."""
    network: Sparse[str] = None
    """Its own fabric, where a plan is over several pools; not in documents of before 2026-12."""
    changed: Sparse[tuple[ChangedFigure, ...]] = None
    """Figures of the accelerator that are not the catalog's; only in documents where some are."""
    expanded: Sparse[ExpandedPool] = None
    """Only in documents where there is such memory."""
    dispatchers: Sparse[tuple[FusedDispatcher, ...]] = None
    """Fused dispatchers whose kernels the accelerator has; only in plans that name a dispatcher."""
    attention_kernels: Sparse[tuple[AttentionKernel, ...]] = None
    """Attention kernels that the catalog has figures of on the accelerator; only in plans that name one."""
    preemptions_per_node_s: Sparse[float] = None
    """How often the owner takes a node back, per second; only in plans over several pools where one does."""
    restart_s: Sparse[float] = None
    """Until the job continues after an interruption of this pool; only where the pools of a plan differ in it."""


class DimensionSection(Record):
    """One dimension of a network."""

    topology: str
    size: int
    bytes_per_s: float
    """That one accelerator sends, one direction."""
    latency_s: float
    """Seconds of a hop."""


class FabricSection(Record):
    """The network between nodes."""

    id: str
    kind: str
    nic_bytes_per_s: float
    latency_s: float
    topology: str
    leaf_nodes: int
    oversubscription: float
    dimensions: Sparse[tuple[DimensionSection, ...]] = None
    """Innermost first, in place of links, NICs and leaves; only in documents where the network has dimensions."""


class PoolLink(Record):
    """What joins two pools."""

    pools: tuple[int, int]
    bytes_per_s: float
    """Bytes per second of one node, one direction."""
    latency_s: float
    basis: str


class ClusterSection(Record):
    """What it runs on."""

    name: str
    accelerators: int
    pools: tuple[Pool, ...]
    fabric: FabricSection
    """Fabric of the first pool."""
    region: str | None
    links: tuple[PoolLink, ...] = ()
    """Between pools."""


def pool_names(cluster: ClusterSection) -> tuple[str, ...]:
    """Names of a plan's pools: their node, with its zone, numbered where that is still the same."""
    return numbered([in_zone(pool.node, pool.zone) for pool in cluster.pools])


def in_zone(node: str, zone: str | None) -> str:
    """A node's id with the zone that it stands in, if it is known: ``dgx-v100:8@zone-b`` asks for such."""
    return f"{node}@{zone}" if zone else node


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """The names, those that several have with a number: ``dgx-h100#1``, ``dgx-h100#2``."""
    return tuple(
        name if names.count(name) == 1 else f"{name}#{names[: at + 1].count(name)}" for at, name in enumerate(names)
    )


def nodes_used(cluster: ClusterSection) -> tuple[str, ...]:
    """Nodes of each pool, as people read them: ``4 x dgx-h100@zone-a``."""
    return tuple(f"{pool.count:,} x {in_zone(pool.node, pool.zone)}" for pool in cluster.pools)


def node_counts(cluster: ClusterSection) -> tuple[tuple[str, int], ...]:
    """Nodes of each pool, and how many."""
    return tuple((pool.node, pool.count) for pool in cluster.pools)


class CommunicationRule(Record):
    """What to use for one kind of call."""

    op: str
    group: str
    bytes_min: float
    bytes_max: float
    backend: str
    algorithm: str
    """Empty: the library's own choice."""
    protocol: str
    ranks: int | None = None
    """Ranks of the group; not in documents of before 2026-12, where a rule holds for any."""
    pools: Sparse[tuple[int, ...]] = None
    """All pools of the group's ranks, where they matter; a rule without pools applies to any."""


class CallChoice(Record):
    """What one kind of call of the step uses, and what it would have used."""

    op: str
    group: str
    ranks: int
    bytes: float
    """Bytes of one call."""
    count: float
    """Calls a step."""
    choice: str
    """Back end with algorithm and protocol."""
    runner_up: str
    """The next best, empty where there is no other."""
    alone_s: float
    """Seconds of one call, by the table."""
    base_s: float
    """Seconds of one call with `base`."""
    extrapolated: bool
    """Whether the table has no measurement near (sizes or ranks beyond its own)."""
    saved_s: float
    """Seconds of the step that are saved: what of it showed, times what the choice saves."""
    pools: Sparse[tuple[int, ...]] = None
    """Pools of its ranks; only in plans over several."""


class CommunicationChoice(Record):
    """How the rules were chosen."""

    table: str
    """Where the times come from: a file's name, or the model."""
    sha256: str
    """SHA-256 of that file, first 16 digits."""
    base: str
    """The best single choice of back end: what a plan without rules would use."""
    live: tuple[str, ...]
    """Back ends in use."""
    most: int
    """Back ends that may be live."""
    margin: float
    """A call leaves the base only for a gain of more than this share, and beyond the spread of the measurements."""
    gap: float
    """How much better, at most, another choice could be under the same table (relative)."""
    saved_s: float
    """Seconds of the step that are saved over `base`."""
    step_time_s: float
    """The plan's step with it."""
    calls: tuple[CallChoice, ...]
    switch_s: float | None = None
    """Host time of a change of back end, of a choice by a table."""
    launcher: str | None = None
    """What follows the rules: the router, or NCCL's tuner plugin."""
    sms: float | None = None
    """SMs that further back ends could keep busy, where that was limited."""

    @property
    def modelled(self) -> bool:
        """Whether the times come from the model: of a file, whatever its name, there is a digest."""
        return self.table == "modelled" and not self.sha256


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
    memory_runs: Sparse[int] = None
    """Runs out of memory that predictions of memory are widened by; only where no run has a time."""
