"""How a plan cuts the work, as records of its document, and where these hold the plan's axes.

Records in Python have axes in typed sections, a document of schema version 2 has them flat and once. The sections
``{"parallelism": {"tp": 8, "stages": [...]}, "dispatcher": "deepep"}`` are written as
``{"axes": {"tp": 8, "dispatcher": "deepep"}, "parallelism": {"stages": [...]}}``. What a pin can hold stands among the
axes, spelt as a pin spells it; sections keep what follows from it. Documents of version 1 have the sections whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from planner.schema.hardware import SPLIT_SCHEDULES, FusedDispatcher, SplitSchedule
from planner.schema.record import Record, Sparse
from planner.schema.versions import of_version_1

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
AttentionKernel = Literal["cudnn", "flash-2", "flash-3", "flash-4", "triton"]
ATTENTION_KERNELS: tuple[AttentionKernel, ...] = get_args(AttentionKernel)
ZeroStage = Literal[0, 1, 2, 3]
ZeroScope = Annotated[str, Field(pattern=r"^(full|node|nodes:([2-9]|[1-9]\d{1,5}))$")]
"""Ranks that share one sharded copy: all, those of a scale-up domain, or those of so many (``nodes:4``)."""


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


class Configuration(Record):
    """What is chosen of a plan: a value on every axis, with what follows of ranks, stages and batches."""

    parallelism: Parallelism
    batch: Batch
    precision: str
    recompute: RecomputeSection
    offload: dict[str, bool]
    """optimizer: whether states live in host memory; weights, where they and gradients do, too."""
    offloaded: Sparse[Offloaded] = None
    """Only in documents where that is a part of them, or overlaps, or where activations live there."""
    placement: Sparse[dict[str, float]] = None
    """Shares of optimizer, weights (with gradients) and activations that live in expanded memory; only in documents
    where there is such memory."""
    overlap: Overlap
    dispatcher: Sparse[Dispatcher] = None
    """How tokens reach experts on other ranks: every copy by one all-to-all, all tokens to all ranks, or copies
    for one scale-up domain over the NIC once; only in documents where it was asked for, or experts are spread
    over domains and the last is priced."""
    graphs: Sparse[Literal["modules", "full"]] = None
    """What CUDA graphs launch: attention and routers (dense MLPs, too) layer by layer, or all passes of a step; only in
    documents where they do."""
    attention_kernel: Sparse[AttentionKernel] = None
    """The kernel of attention; only in documents where it was asked for, else the runtime chooses."""
    waived: Sparse[tuple[str, ...]] = None
    """Rules of division that the question waived and this plan breaks: heads_divide, kv_heads_divide, hidden_divides.
    It is priced as if parts were equal, and nothing launches it. Only in such documents."""


# ---- axes in sections and in documents -------------------------------------------------------------------------------

Stated = int | bool | str
"""A value as documents state it: numbers and switches as they are, all else as a pin writes it."""
ALONE = "none"
PLACES: dict[str, tuple[str, ...]] = {
    **{axis: ("parallelism", axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")},
    "micro": ("batch", "micro"),
    "batch": ("batch", "global"),
    "precision": ("precision",),
    "recompute": ("recompute", "policy"),
    "sequence_parallel": ("parallelism", "sequence_parallel"),
    "tp_overlap": ("overlap", "tp"),
    "zero": ("parallelism", "zero_stage"),
    "zero_scope": ("parallelism", "zero_scope"),
    "dp_overlap": ("overlap", "dp"),
    "p2p_overlap": ("overlap", "p2p"),
    "ep_overlap": ("overlap", "ep"),
    "rank_order": ("parallelism", "rank_order"),
    "cp_algorithm": ("parallelism", "cp_algorithm"),
    "graphs": ("graphs",),
    "schedule": ("parallelism", "schedule"),
    "dispatcher": ("dispatcher",),
    "attention_kernel": ("attention_kernel",),
}
"""Axis -> section and key that hold its value as it is, in the order of a document."""
BY_NAME = tuple(axis for axis, place in PLACES.items() if place == (axis,))
"""Axes that are no part of a section."""
NEUTRAL: dict[str, Stated] = {
    "ep_overlap": False,
    **dict.fromkeys(("cp_algorithm", "graphs", "dispatcher", "attention_kernel"), ALONE),
}
"""What is stated for a section that has no value."""
HOST = ("optimizer_share", "optimizer_overlap", "activations")
"""Keys of the section ``offloaded`` that are the axes offload, offload_overlap and activation_offload."""
PLACED = ("optimizer", "weights", "activations")
"""What the section ``placement`` gives a share of."""
SPELT: dict[str, Stated] = {"offload": ALONE, "offload_overlap": False, "activation_offload": ALONE, "placement": ALONE}
"""Axes of which sections hold the value in another form -> the value of plans that do not use them."""
NODES = "nodes"
"""The axis that pools state, each its own count."""
FIRST = ("kind", "schema_version", "rank", "generator", "workload", "cluster", "runtime")
"""Keys of a plan's document that stand before its axes."""
_GETTERS: dict[str, Callable[[Any], Any]] = {
    axis: attrgetter(".".join(place).replace("global", "global_")) for axis, place in PLACES.items()
}


def stated(plan: Any) -> dict[str, Stated]:
    """Every axis of a plan's record with its value, as documents state it."""
    values = {axis: value_of(plan) for axis, value_of in _GETTERS.items()}
    host = plan.offloaded
    share = host.optimizer_share if host else float(plan.offload.get("optimizer", False))
    return {
        **{axis: NEUTRAL[axis] if value is None else value for axis, value in values.items()},
        "offload": _spelt({"optimizer": share, "weights": float(plan.offload.get("weights", False))}),
        "offload_overlap": bool(host and host.optimizer_overlap),
        "activation_offload": "+".join(host.activations if host else ()) or ALONE,
        "placement": _spelt(plan.placement or {}),
        NODES: sum(pool.count for pool in plan.cluster.pools),
    }


def _spelt(shares: Mapping[str, float]) -> str:
    """Parts with their shares as a pin writes them, every digit kept: ``optimizer+activations:0.5``."""
    parts = [kind if share == 1 else f"{kind}:{float(share)!r}" for kind, share in shares.items() if share]
    return "+".join(parts) or ALONE


def _shares(text: object, kinds: tuple[str, ...], axis: str) -> dict[str, float]:
    """The share of every kind, from the text that :func:`_spelt` wrote."""
    shares = dict.fromkeys(kinds, 0.0)
    for part in [] if text == ALONE else str(text).split("+"):
        kind, colon, share = part.partition(":")
        try:
            shares[kind], known = float(share) if colon else 1.0, kind in kinds and not shares[kind]
        except (KeyError, ValueError):
            known = False
        if not known or not 0 < shares[kind] <= 1:
            raise ValueError(f"axes.{axis}: {text!r:.60} is neither none nor {', '.join(kinds)} with shares (:0.5)")
    return shares


def flat(table: dict[str, Any], axes: Mapping[str, Stated]) -> dict[str, Any]:
    """A plan's sections as JSON types with its axes in one table, and nowhere else."""
    for *section, key in PLACES.values():
        (table[section[0]] if section else table).pop(key, None)
    for key in ("overlap", "offload", "placement"):
        table.pop(key, None)
    for key in HOST if "offloaded" in table else ():
        del table["offloaded"][key]
    return {**{key: table.pop(key) for key in FIRST}, "axes": dict(axes), **table}


def sections(plan: Mapping[str, Any]) -> Any:
    """A plan's document of any version as the records read it, the axes of version 2 in their sections.

    Raises:
        ValueError: an axis is unknown, contradicts the rest of the plan, or stands in a section, too.
    """
    if plan.get("schema_version") == 1:
        return of_version_1(plan)
    if not isinstance(axes := plan.get("axes"), Mapping):
        raise ValueError("axes: a plan of version 2 has them all in a table")
    axes = {**SPELT, **axes}
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in plan.items() if key != "axes"}
    for axis, place in PLACES.items():
        if axis in axes:
            value = axes.pop(axis)
            if value is None:
                raise ValueError(f"axes.{axis}: null; a plan that does not use it says {NEUTRAL.get(axis, 1)!r}")
            _put(table, place, _unless_neutral(axis, value))
    _put_offload(table, axes)
    _put_placement(table, axes)
    _count_nodes(table, axes)
    if axes:
        raise ValueError(f"axes.{next(iter(axes))}: no such axis; known are {', '.join((*PLACES, *SPELT, NODES))}")
    return table


def sectioned(axes: Mapping[str, Stated]) -> dict[str, Any]:
    """The values of axes where the records have them: ``{"parallelism": {"tp": 8, ...}, "overlap": {...}, ...}``."""
    table: dict[str, Any] = {}
    for axis, place in PLACES.items():
        if axis in axes:
            _put(table, place, _unless_neutral(axis, axes[axis]))
    return table


def _unless_neutral(axis: str, value: object) -> object:
    """A value as sections hold it: None for what they do not state."""
    unused = axis in NEUTRAL and (type(value), value) == (type(NEUTRAL[axis]), NEUTRAL[axis])
    return None if unused else value


def _put(table: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    """Puts a value where the records have it."""
    *outer, key = place
    section = table.setdefault(outer[0], {}) if outer else table
    if not isinstance(section, dict):
        return  # The records say what is wrong with it.
    if key in section:
        raise ValueError(f"{'.'.join(place)}: it stands among the axes of a plan of version 2")
    section[key] = value


def _put_offload(table: dict[str, Any], axes: dict[str, Any]) -> None:
    """What lives in host memory; a section of its own only where that is more than all optimizer states."""
    shares = _shares(axes.pop("offload"), ("optimizer", "weights"), "offload")
    share = shares["optimizer"]
    overlap = axes.pop("offload_overlap")
    modules = str(axes.pop("activation_offload"))
    activations = [] if modules == ALONE else modules.split("+")
    _put(table, ("offload",), {"optimizer": share > 0} | ({"weights": True} if shares["weights"] else {}))
    if "offloaded" in table or 0 < share < 1 or overlap or activations:
        for key, value in zip(HOST, (share, overlap, activations), strict=True):
            _put(table, ("offloaded", key), value)


def _put_placement(table: dict[str, Any], axes: dict[str, Any]) -> None:
    """What lives in expanded memory; plans that have none say nothing of it."""
    shares = _shares(axes.pop("placement"), PLACED, "placement")
    memory = _inside(table, "prediction", "memory")
    if any(shares.values()) or _inside(memory, "expanded"):
        _put(table, ("placement",), shares)


def _count_nodes(table: dict[str, Any], axes: dict[str, Any]) -> None:
    pools = _inside(table, "cluster", "pools")
    counts = [_inside(pool, "count") for pool in pools] if isinstance(pools, list) else []
    if (nodes := axes.pop(NODES, None)) is not None and all(type(count) is int for count in counts):
        if nodes != sum(counts):
            raise ValueError(f"axes.{NODES}: {nodes!r:.60}, and its pools have {sum(counts)}")


def _inside(table: object, *keys: str) -> Any:
    """What stands below these keys; None where nothing does."""
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table
