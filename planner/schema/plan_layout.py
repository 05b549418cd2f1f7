"""How a plan cuts the work, as records of its document: ranks, stages, batches, recomputation, overlap."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from planner.schema.hardware import SPLIT_SCHEDULES, FusedDispatcher, SplitSchedule
from planner.schema.record import Record, Sparse

Dispatcher = Literal["alltoall", "allgather", "deepep", "hybridep"]
FUSED: tuple[Dispatcher, ...] = get_args(FusedDispatcher)
"""Back ends of Megatron's ``flex`` dispatcher."""
ContextAlgorithm = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""How context-parallel ranks share a sequence (:mod:`planner.models.context`), in Transformer Engine's words."""
CONTEXT_ALGORITHMS: tuple[ContextAlgorithm, ...] = get_args(ContextAlgorithm)
RankOrder = Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
Schedule = Literal["none", "1f1b", "interleaved-1f1b"] | SplitSchedule
"""How the passes of a pipeline follow each other."""
SCHEDULES: tuple[Schedule, ...] = ("none", "1f1b", "interleaved-1f1b", *SPLIT_SCHEDULES)
ZeroStage = Literal[0, 1, 2, 3]
ZeroScope = Literal["full", "node"]


class OlderRelease(Record):
    """What an older release of the runtime makes of a plan, where the question stated none and the newest was taken."""

    release: str
    step_time_s: float | None
    """Seconds of a step of this plan under that release; none where it lacks something."""
    lacks: tuple[str, ...]
    """Axes, or values of one (``zero=3``), that the plan uses and that release does not have."""


class RuntimeSection(Record):
    """The training framework."""

    name: str
    release: str
    older: Sparse[OlderRelease] = None
    """Only in documents of questions that state no release."""
    bytes_per_parameter: dict[str, float]
    """Held: parameters, gradients. Moved: gradient_wire, parameter_wire. gathers_working_copy: 1 if the sharded fp32
    master copy is gathered in 16 bit layer by layer, so that `parameters` are not held a second time. update: copies of
    a shard's gradients during the update."""
    offload_needs_zero: Sparse[tuple[ZeroStage, ...]] = None
    """ZeRO stages that offloading the optimizer goes with; only in documents of plans that offload it where not all
    do."""
    balances_head: Sparse[bool] = None
    """Whether pipeline stages are cut by cost with the head counted; only in documents where they are."""
    places_head: Sparse[bool] = None
    """Whether the last stage gives up layers for the head; only in documents where it may."""
    cuts_by_work: Sparse[bool] = None
    """Whether stages are cut by the work of layers of several kinds; only in documents where they are."""
    chunked_loss: Sparse[bool] = None
    """Whether logits are made a few tokens at a time; only in documents where they are."""


class Stage(Record):
    """One pipeline stage."""

    pool: int
    layers: int
    tp: int
    dp: int
    chunks: Sparse[tuple[int, ...]] = None
    """Layers of each of its chunks; only in documents of plans cut by work, where these differ by more than one."""


class StageMemory(Record):
    """Bytes on one accelerator of a pipeline stage, in its own memory; the parts add up to the total."""

    total_bytes: float
    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float
    resident_bytes: float


class GroupStage(Record):
    """One stage of the pipelines of a group."""

    pool: int
    layers: int
    tp: int
    cp: int
    ep: int
    recompute: str
    time_s: float
    """Seconds of one micro-batch, forward and backward, with transfers."""
    memory_bytes: float
    """On each of its accelerators."""
    held: Sparse[StageMemory] = None
    """What a rank holds, part by part; not in documents of before 2026-12."""


class Group(Record):
    """Like pipelines of a plan over several pools. A copy is `width` pipelines side by side."""

    copies: int
    width: int
    """Pipelines that share optimizer states (ZeRO 1) and experts."""
    micro: int
    """Sequences of a micro-batch of one pipeline."""
    micro_batches: int
    """Micro-batches of one pipeline in a step; the last may be smaller."""
    sequences: int
    """Sequences of the global batch on all copies together."""
    time_s: float
    """From the start of a step to its end on this group."""
    stages: tuple[GroupStage, ...]


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
    cp_algorithm: ContextAlgorithm | None = None
    """How context-parallel ranks share a sequence; None without them (and in documents older than the field: p2p)."""
    cp_exchanging: Sparse[int] = None
    """Neighbours among these that exchange heads; only in documents where that is neither one rank nor all of them."""
    groups: tuple[Group, ...] = ()
    """Pipelines of a plan over several pools; empty where all are identical."""


class Batch(Record):
    """How samples are cut. Sequences."""

    global_: Annotated[int, Field(alias="global")]
    micro: int
    accumulation: int
    """Micro-batches per step and replica."""
    per_pool: tuple[int, ...]
    """Sequences of the global batch that each pool works on."""


class RecomputeSection(Record):
    """Which activations are computed again."""

    policy: str
    layers_fraction: float
    selective: bool


class Offloaded(Record):
    """What lives in host memory, where that is a part of the optimizer states, or these are copied while others are
    updated, or activations.
    """

    optimizer_share: float
    """Share of the optimizer states."""
    optimizer_overlap: bool
    """Whether gradients and weights are copied while the host updates others."""
    host_bytes_per_s: float
    """Bytes per second of an accelerator's link to host memory, one direction."""
    host_update_s: float
    """Seconds of a step for the host's update: gradients out, the host's update and weights back, one after the other;
    0 without a share there."""
    device_update_s: float
    """The accelerator's own update of what is left."""
    activations: tuple[str, ...]
    """Modules of layers whose inputs are there until the backward pass, by Megatron Core's names; all: what layers
    keep."""
    activations_bytes: float
    """Bytes of the fullest stage in the host's memory, for each accelerator."""


class Overlap(Record):
    """Which communication overlaps with compute."""

    tp: bool
    dp: bool
    ep: Sparse[bool] = None
    """Experts' exchanges while another micro-batch computes; only in documents where they are."""
    p2p: bool
