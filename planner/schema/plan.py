"""The documents that leave the program: a plan, and a set of ranked plans. SI units throughout; schema version 1.

What a document does not say cannot be known by who reads it: every figure that a prediction rests on and every
assumption is in it, so that it can be checked (:mod:`planner.verify`), explained and launched from the file alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.schema import tables
from planner.schema.record import Answer, Document, Record

SCHEMA_VERSION = 1
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
Schedule = Literal["none", "1f1b", "interleaved-1f1b"]
ZeroStage = Literal[0, 1, 2, 3]
ZeroScope = Literal["full", "node"]


@dataclass(frozen=True, kw_only=True)
class Generator(Record):
    """What made the document."""

    version: str
    seed: int
    inputs: dict[str, str]
    """Input (catalog, models, files given) -> sha256 prefix of its content."""


@dataclass(frozen=True, kw_only=True)
class WorkloadSection(Record):
    """What is trained."""

    model: str
    name: str
    parameters: int
    active_parameters: int
    sequence: int
    """Tokens per sequence."""
    tokens: float
    """Tokens to train on."""
    method: dict[str, Any]
    """kind (pretrain, finetune, lora), rank, targets."""
    optimizer: dict[str, Any]
    """id, bytes per parameter of states and master copy, bytes moved by an update."""
    shape: dict[str, Any]
    """The model's record: everything a launcher needs to build it."""
    mtp_layers: int | None = None
    """Multi-token prediction modules trained with the model, each one more layer of the last stage and the head once
    more; neither in `shape` nor in the parameters. Only in documents where there are some."""


@dataclass(frozen=True, kw_only=True)
class ExpandedPool(Record):
    """Memory in addition to the accelerators' own."""

    bytes: float
    """Of one unit."""
    bytes_per_s: float
    latency_s: float
    scope: Literal["accelerator", "node", "pool"]
    """Who shares a unit."""
    access: Literal["serial", "concurrent"]


@dataclass(frozen=True, kw_only=True)
class Pool(Record):
    """Nodes of one kind."""

    node: str
    count: int
    accelerator: str
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
    network: str | None = None
    """Its own fabric, where a plan is over several pools; not in documents of before 2026-12."""
    expanded: ExpandedPool | None = None
    """Only in documents where there is such memory."""
    preemptions_per_node_s: float | None = None
    """How often the owner takes a node back, per second; only in plans over several pools where one does."""
    restart_s: float | None = None
    """Until the job continues after an interruption of this pool; only where the pools of a plan differ in it."""


@dataclass(frozen=True, kw_only=True)
class DimensionSection(Record):
    """One dimension of a network."""

    topology: str
    size: int
    bytes_per_s: float
    """That one accelerator sends, one direction."""
    latency_s: float
    """Of a hop."""


@dataclass(frozen=True, kw_only=True)
class FabricSection(Record):
    """The network between nodes."""

    id: str
    kind: str
    nic_bytes_per_s: float
    latency_s: float
    topology: str
    leaf_nodes: int
    oversubscription: float
    dimensions: tuple[DimensionSection, ...] | None = None
    """Innermost first, in place of links, NICs and leaves; only in documents where the network has dimensions."""


@dataclass(frozen=True, kw_only=True)
class PoolLink(Record):
    """What joins two pools."""

    pools: tuple[int, int]
    bytes_per_s: float
    """Of one node, one direction."""
    latency_s: float
    basis: str


@dataclass(frozen=True, kw_only=True)
class ClusterSection(Record):
    """What it runs on."""

    name: str
    accelerators: int
    pools: tuple[Pool, ...]
    fabric: FabricSection
    """Of the first pool."""
    region: str | None
    links: tuple[PoolLink, ...] = ()
    """Between pools."""


@dataclass(frozen=True, kw_only=True)
class RuntimeSection(Record):
    """The training framework."""

    name: str
    release: str
    bytes_per_parameter: dict[str, float]
    """Held: parameters, gradients. Moved: gradient_wire, parameter_wire. gathers_working_copy: 1 if the sharded fp32
    master copy is gathered in 16 bit layer by layer, so that `parameters` are not held a second time. update: copies of
    a shard's gradients during the update."""


@dataclass(frozen=True, kw_only=True)
class Stage(Record):
    """One pipeline stage."""

    pool: int
    layers: int
    tp: int
    dp: int


@dataclass(frozen=True, kw_only=True)
class GroupStage(Record):
    """One stage of the pipelines of a group."""

    pool: int
    layers: int
    tp: int
    cp: int
    ep: int
    recompute: str
    time_s: float
    """Of one micro-batch, forward and backward, with transfers."""
    memory_bytes: float
    """On each of its accelerators."""


@dataclass(frozen=True, kw_only=True)
class Group(Record):
    """Like pipelines of a plan over several pools. A copy is `width` pipelines side by side."""

    copies: int
    width: int
    """Pipelines that share optimizer states (ZeRO 1) and experts."""
    micro: int
    """Sequences of a micro-batch of one pipeline."""
    micro_batches: int
    """Of one pipeline, in a step; the last may be smaller."""
    sequences: int
    """Of the global batch, on all copies together."""
    time_s: float
    """From the start of a step to its end on this group."""
    stages: tuple[GroupStage, ...]


@dataclass(frozen=True, kw_only=True)
class Parallelism(Record):
    """How ranks are cut. Where there are groups, degrees are the largest of them, and dp counts all pipelines."""

    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    dp: int
    dp_shard: int
    """Ranks that share one sharded copy of dense parameters' states (1: none do)."""
    rank_order: RankOrder
    schedule: Schedule
    sequence_parallel: bool
    zero_stage: ZeroStage
    zero_scope: ZeroScope
    stages: tuple[Stage, ...]
    groups: tuple[Group, ...] = ()
    """Pipelines of a plan over several pools; empty where all are identical."""


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
    """How samples are cut. Sequences."""

    global_: Annotated[int, Field(alias="global")]
    micro: int
    accumulation: int
    """Micro-batches per step and replica."""
    per_pool: tuple[int, ...]
    """Sequences of the global batch that each pool works on."""


@dataclass(frozen=True, kw_only=True)
class RecomputeSection(Record):
    """Which activations are computed again."""

    policy: str
    layers_fraction: float
    selective: bool


@dataclass(frozen=True, kw_only=True)
class Overlap(Record):
    """Which communication overlaps with compute."""

    tp: bool
    dp: bool
    p2p: bool


@dataclass(frozen=True, kw_only=True)
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
    """Of the group; not in documents of before 2026-12, where a rule holds for any."""
    pools: tuple[int, ...] | None = None
    """All pools of the group's ranks, where they matter; a rule without pools applies to any."""


@dataclass(frozen=True, kw_only=True)
class CallChoice(Record):
    """What one kind of call of the step uses, and what it would have used."""

    op: str
    group: str
    ranks: int
    bytes: float
    """Of one call."""
    count: float
    """Calls a step."""
    choice: str
    """Back end with algorithm and protocol."""
    runner_up: str
    """The next best, empty where there is no other."""
    alone_s: float
    """Of one call, by the table."""
    base_s: float
    """Of one call with `base`."""
    extrapolated: bool
    """Whether the table has no measurement near (sizes or ranks beyond its own)."""
    saved_s: float
    """Of the step: what of it showed, times what the choice saves."""
    pools: tuple[int, ...] | None = None
    """Pools of its ranks; only in plans over several."""


@dataclass(frozen=True, kw_only=True)
class CommunicationChoice(Record):
    """How the rules were chosen."""

    table: str
    """Where the times come from: a file's name, or the model."""
    sha256: str
    """Of that file, first 16 digits."""
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
    """Of the step, over `base`."""
    step_time_s: float
    """The plan's step with it."""
    calls: tuple[CallChoice, ...]

    @property
    def modelled(self) -> bool:
        """Whether the times come from the model: of a file, whatever its name, there is a digest."""
        return self.table == "modelled" and not self.sha256


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
    buffers_bytes: float
    resident_bytes: float
    expanded: ExpandedSection | None = None
    """What lies in expanded memory, in none of the figures above; only in documents where there is such memory."""


@dataclass(frozen=True, kw_only=True)
class Interval(Record):
    """An 80 % prediction interval."""

    low: float
    high: float
    basis: str


@dataclass(frozen=True, kw_only=True)
class Prediction(Record):
    """What the step is predicted to take."""

    step_time_s: float
    breakdown: dict[str, float]
    """Cause -> seconds; adds up to `step_time_s`."""
    tokens_per_s: float
    mfu: float
    """Model FLOP utilisation: FLOPs as in Narayanan et al. 2021 over the dense peak of the precision."""
    model_flops: float
    """Per step."""
    memory: MemorySection
    intervals: dict[str, Interval]
    """Of `step_time_s`, and of the total of `memory` as `memory_bytes`."""


@dataclass(frozen=True, kw_only=True)
class Goodput(Record):
    """Share of time that trains, and what takes the rest."""

    fraction: float
    mtbf_s: float
    """Mean seconds between interruptions of the whole job."""
    checkpoint_interval_s: float
    checkpoint_blocks_s: float
    restart_s: float
    basis: str


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Energy(Record):
    """Electricity of the whole run."""

    power_w: float | None
    """While training, at the plug of the facility (with PUE)."""
    energy_j: float | None
    usd: float | None
    carbon_kg: float | None
    basis: str


@dataclass(frozen=True, kw_only=True)
class Constraint(Record):
    """A named limit, the plan's value and what is left of it."""

    name: str
    limit: float
    value: float
    slack: float
    binding: bool
    unit: str


@dataclass(frozen=True, kw_only=True)
class Assumption(Record):
    """Something the answer rests on that was not read in a source, or not asked for."""

    what: str
    why: str
    flag: str
    """How to change it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Document):
    """One way to train the workload on the cluster."""

    shown = tables.PLAN_SHOWN

    kind: Literal["plan"] = "plan"
    schema_version: Literal[1] = 1
    rank: int
    generator: Generator
    workload: WorkloadSection
    cluster: ClusterSection
    runtime: RuntimeSection
    parallelism: Parallelism
    batch: Batch
    precision: str
    recompute: RecomputeSection
    offload: dict[str, bool]
    placement: dict[str, float] | None = None
    """Shares of optimizer, weights (with gradients) and activations that live in expanded memory; only in documents
    where there is such memory."""
    overlap: Overlap
    communication: tuple[CommunicationRule, ...]
    communication_choice: CommunicationChoice | None = None
    """Why those rules; not in documents of before 2026-12, and null without rules. The prediction is without it."""
    env: dict[str, str]
    prediction: Prediction
    money: Money
    energy: Energy
    constraints: tuple[Constraint, ...]
    assumptions: tuple[Assumption, ...]
    waived: tuple[str, ...] | None = None
    """Rules of division that the question waived and this plan breaks: heads_divide, kv_heads_divide, hidden_divides.
    It is priced as if parts were equal, and nothing launches it. Only in such documents."""

    def rows(self) -> list[dict[str, Any]]:
        """One row: how it is cut, what is predicted, what it costs."""
        return [tables.plan_row(self)]

    def title(self) -> str:
        """What is trained on what, how, and how fast."""
        return tables.plan_title(self)


@dataclass(frozen=True, kw_only=True)
class SearchSection(Record):
    """How the answer was found."""

    candidates: int
    feasible: int
    """That fit into memory."""
    costed: int
    """Whose time was computed; an exact bound excluded the others."""
    proven_optimal: bool
    method: str
    objective: str
    near_duplicates: Annotated[int, Field(alias="alike")]
    """Variants of which the first plan is the best: same degrees, precision and recomputation, other micro-batches,
    interleaving and switches."""
    gap: float = 0.0
    """How much better, at most, a plan of the space could be than the best one found (relative)."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint(Record):
    """A plan that no other beats in both objective and memory (or, over counts, in both time and money)."""

    label: str
    accelerators: int
    step_time_s: float
    days: float
    usd_total: float | None
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Reasons(Record):
    """Why the first plan is first."""

    binds: tuple[str, ...]
    gains: dict[str, float]
    """Resource -> relative change of the step time at +10 % of it."""
    why_not: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanSet(Answer[Plan]):
    """Ranked plans."""

    shown = tables.PLAN_SHOWN

    kind: Literal["plan-set"] = "plan-set"
    schema_version: Literal[1] = 1
    search: SearchSection
    plans: tuple[Plan, ...]
    reasons: Reasons
    front: tuple[FrontPoint, ...]
    meta: dict[str, Any]
    """Times and host: all that differs between two runs of one question."""

    def parts(self) -> tuple[Plan, ...]:
        """The plans, best first."""
        return self.plans

    def rows(self) -> list[dict[str, Any]]:
        """A row for each plan."""
        return [tables.plan_row(plan) for plan in self.plans]

    def title(self) -> str:
        """How many plans, and the best."""
        return tables.counted(len(self.plans), "plan", self.plans[:1])
