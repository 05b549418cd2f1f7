"""Every axis of a plan, one row each. Whatever the program says of axes follows from these rows.

A layout (tp, pp, vpp, cp, ep, etp, dp, micro-batch, batch, nodes) is a row of the search: which combinations exist
follows from divisibility. Everything else is an option that any layout can take. To add an axis, see docs/design.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from planner.axes import values
from planner.axes.axis import PlanAxis, count, on_or_off, switch
from planner.axes.values import ALONE, ONE_F_ONE_B, RANK_ORDERS, MemoryPlacement, Recompute
from planner.schema.plan_layout import (
    ATTENTION_KERNELS,
    CONTEXT_ALGORITHMS,
    SCHEDULES,
    Dispatcher,
    RankOrder,
    ZeroScope,
    ZeroStage,
)
from planner.schema.workload import PRECISIONS


def _degree(
    name: str,
    help: str,
    *,
    pools: tuple[object, ...] | None = None,
    mentioned: Literal["always", "used"] = "used",
) -> PlanAxis[int]:
    """A degree of parallelism: a runtime names it in `since` by its name alone."""
    return PlanAxis(
        name=name,
        help=help,
        kind="count",
        neutral=1,
        read=count,
        unstated="1",
        mentioned=mentioned,
        pools=pools,
        since=lambda degree: iter((name,) if degree > 1 else ()),
        label=name.upper(),
    )


def _switch(
    name: str,
    help: str,
    *,
    figure: str = "",
    since: Callable[[bool], Iterator[str]] | None = None,
    **more: Any,
) -> PlanAxis[bool]:
    """A switch that sets one figure of its own name, and that `since` names where it is on."""
    return PlanAxis(
        name=name,
        help=help,
        kind="switch",
        neutral=False,
        read=switch,
        spell=on_or_off,
        figures=lambda on: {figure or name: float(on)},
        since=since or (lambda on: iter((name,) if on else ())),
        **more,
    )


def _named(name: str) -> Callable[[Any], Iterator[str]]:
    """`since` for axes whose values have dates of their own (``zero=3``)."""
    return lambda value: iter((f"{name}={value}",))


def _used(name: str, *plain: object) -> Callable[[Any], Iterator[str]]:
    """`since` for axes with one date for all values but the plain ones."""
    return lambda value: iter(() if value in plain else (name,))


def _number(stage: str) -> ZeroStage:
    return next(each for each in get_args(ZeroStage) if str(each) == stage)


def _joined(word: str) -> Callable[[bool], str]:
    return lambda on: word + on_or_off(bool(on))


# ---- layouts ---------------------------------------------------------------------------------------------------------

TP = _degree("tp", "tensor-parallel ranks", mentioned="always")
PP = _degree("pp", "pipeline stages", mentioned="always")
VPP = _degree("vpp", "chunks of layers on each pipeline rank (interleaving)", pools=(1,))
CP = _degree("cp", "context-parallel ranks, which share each sequence")
EP = _degree("ep", "expert-parallel ranks")
ETP = _degree("etp", "tensor-parallel ranks of each expert", pools=(1,))
DP: PlanAxis[int] = PlanAxis(
    name="dp",
    help="data-parallel replicas",
    mentioned="always",
    kind="count",
    neutral=1,
    read=count,
    label="DP",
)
MICRO: PlanAxis[int] = PlanAxis(
    name="micro",
    help="sequences of a micro-batch",
    mentioned="always",
    kind="count",
    neutral=1,
    read=count,
    unstated="1",
    label="micro-batch",
    fragment=lambda sequences: f"{sequences:,}",
)
BATCH: PlanAxis[int] = PlanAxis(
    name="batch",
    help="sequences of a step",
    kind="count",
    neutral=1,
    read=count,
    option="--batch N",
    mentioned="never",
    label="batch",
    fragment=lambda sequences: f"{sequences:,}",
)
NODES: PlanAxis[int] = PlanAxis(
    name="nodes",
    help="nodes",
    kind="count",
    neutral=1,
    read=count,
    option="--cluster NODE:COUNT",
    mentioned="never",
)

# ---- options ---------------------------------------------------------------------------------------------------------

PRECISION: PlanAxis[str] = PlanAxis(
    name="precision",
    help="format of matrix products, and how it is scaled",
    kind="choice",
    neutral="bf16",
    choices=PRECISIONS,
    read=str,
    option="--precision",
    mentioned="never",
    of_groups=True,
    since=_named("precision"),
    label="precision",
)


def _recomputed(policy: Recompute) -> Mapping[str, float]:
    return {
        "recompute_layers": policy.layers,
        "recompute_selective": policy.selective,
        "recompute_offloaded": policy.offloaded,
        "function_in_8_bit": policy.function_in_8_bit,
        **{values.MODULES[module]: 1.0 for module in policy.modules},
    }


def _recomputed_since(policy: Recompute) -> Iterator[str]:
    yield f"recompute={policy.name.partition(':')[0]}"
    if policy.modules:
        yield "recompute_modules"


RECOMPUTE: PlanAxis[Recompute] = PlanAxis(
    name="recompute",
    help="activations that the backward pass computes again",
    kind="text",
    neutral=values.NO_RECOMPUTE,
    form="none, selective, full, block:SHARE, selective:MODULE+MODULE",
    read=values.recompute,
    spell=lambda policy: policy.name,
    figures=_recomputed,
    mentioned="always",
    unstated="none",
    since=_recomputed_since,
    exported=lambda policy: policy.partition(":")[0],
    label="recompute",
)
SEQUENCE_PARALLEL = _switch(
    "sequence_parallel",
    "tensor-parallel ranks share the sequence between their regions",
    joint="tensor",
    unstated="off",
    preferred="on",
    goes_with=("tp",),
    of_groups=True,
    condition="that goes with tp above 1. ",
    label="sequence parallel",
    fragment=on_or_off,
)
TP_OVERLAP = _switch(
    "tp_overlap",
    "tensor-parallel communication overlaps matrix products",
    joint="tensor",
    goes_with=("tp",),
    condition="that goes with sequence parallelism. ",
    mentioned="never",
    of_groups=True,
    label="overlap TP / DP / p2p / EP",
    fragment=on_or_off,
)
ZERO: PlanAxis[ZeroStage] = PlanAxis(
    name="zero",
    help="ZeRO stage: data-parallel ranks share optimizer states (1), gradients (2), parameters (3)",
    kind="choice",
    neutral=0,
    choices=tuple(str(stage) for stage in get_args(ZeroStage)),
    read=_number,
    figures=lambda stage: {"zero": float(stage)},
    joint="sharding",
    preferred="1",
    mentioned="always",
    of_groups=True,
    pools=(0, 1),
    condition="with a pipeline, zero 2 and 3 don't go. ",
    since=_named("zero"),
    label="ZeRO",
)
ZERO_SCOPE: PlanAxis[ZeroScope] = PlanAxis(
    name="zero_scope",
    help="ranks that share one copy: all, or those of one node or of so many",
    kind="text",
    neutral=values.EVERYWHERE,
    form="full, node, nodes:COUNT",
    read=values.zero_scope,
    figures=lambda scope: {"zero_nodes": float(values.nodes_of(scope))},
    joint="sharding",
    unstated="full",
    condition="that goes with zero above 0 and dp above 1; nodes:COUNT where COUNT divides the nodes of a stage. ",
    pools=(values.EVERYWHERE,),
    exported=lambda scope: scope.partition(":")[0],
    since=lambda scope: iter(("zero_scope=full" if scope == values.EVERYWHERE else "zero_scope=node",)),
    label="ZeRO",
    fragment=lambda scope: ("", " in a node", f" in {values.nodes_of(scope)} nodes")[min(values.nodes_of(scope), 2)],
)
DP_OVERLAP = _switch(
    "dp_overlap",
    "data-parallel communication overlaps the backward pass",
    joint="sharding",
    unstated="off",
    preferred="on",
    goes_with=("dp", "cp"),
    of_groups=True,
    label="overlap TP / DP / p2p / EP",
    fragment=_joined(" / "),
)
P2P_OVERLAP = _switch(
    "p2p_overlap",
    "transfers between interleaved stages overlap passes",
    goes_with=("vpp",),
    condition="that goes with interleaving (vpp above 1). ",
    mentioned="never",
    pools=(False,),
    label="overlap TP / DP / p2p / EP",
    fragment=_joined(" / "),
)
EP_OVERLAP = _switch(
    "ep_overlap",
    "experts' exchanges overlap another micro-batch's passes",
    goes_with=("ep",),
    unstated="off",
    condition="goes with ep and micro-batches above 1, vpp too if pp is, neither layers nor moe recomputed, "
    "an MLP or experts in every layer, and a dispatcher other than allgather. ",
    pools=(False,),
    label="overlap TP / DP / p2p / EP",
    fragment=_joined(" / "),
)
RANK_ORDER: PlanAxis[RankOrder] = PlanAxis(
    name="rank_order",
    help="order of dimensions over ranks, innermost first",
    kind="choice",
    neutral=RANK_ORDERS[0],
    choices=RANK_ORDERS,
    read=lambda text: RANK_ORDERS[text == RANK_ORDERS[1]],
    figures=lambda order: {"pp_inner": float(order == RANK_ORDERS[1])},
    unstated=RANK_ORDERS[0],
    condition="that goes with pp and dp above 1. ",
    pools=RANK_ORDERS[:1],
    since=_named("rank_order"),
    label="rank order",
)
OFFLOAD: PlanAxis[float] = PlanAxis(
    name="offload",
    help="share of the optimizer states in host memory, or weights and gradients with them",
    kind="text",
    neutral=0.0,
    form="none, optimizer, optimizer:SHARE, optimizer+weights",
    read=values.states_offloaded,
    spell=values.offload_name,
    figures=lambda share: {"offload": min(float(share), 1.0), "offload_weights": float(share > 1)},
    joint="sharding",
    unstated="none",
    pools=("none",),
    since=lambda share: iter(("offload=optimizer",) if share else ()),
    exported=lambda name: values.PART if ":" in name else name,
    label="offload",
)
PLACEMENT: PlanAxis[MemoryPlacement] = PlanAxis(
    name="placement",
    help="shares of optimizer states, weights and activations in expanded memory",
    kind="text",
    neutral=values.NOWHERE,
    form="none, or optimizer, weights, activations joined by +, each whole or with its share (weights:0.5)",
    read=values.placement,
    spell=lambda placed: placed.name,
    figures=lambda placed: {f"expanded_{kind}": getattr(placed, kind) for kind in values.PLACED},
    unstated="none",
    pools=("none",),
    label="placement",
)
_SHARING = {"all_gather": "context_gathered", "a2a": "context_exchanged", "a2a+p2p": "context_layered"}
"""Ways to share a sequence -> the figure that is 1; in a ring (``p2p``) none is."""


def sharing(way: str) -> Mapping[str, float]:
    """How context-parallel ranks share a sequence, as figures."""
    return {figure: float(way == known) for known, figure in _SHARING.items()}


CP_ALGORITHM: PlanAxis[str] = PlanAxis(
    name="cp_algorithm",
    help="how context-parallel ranks share a sequence",
    kind="choice",
    neutral=ALONE,
    choices=(ALONE, *CONTEXT_ALGORITHMS),
    read=str,
    figures=sharing,
    unstated=ALONE,
    plain=("p2p",),
    pools=(ALONE,),
    since=_used("cp_algorithm", ALONE, "p2p"),
    label="context parallelism by",
    fragment=lambda way: "p2p" if way == ALONE else way,
)
OFFLOAD_OVERLAP = _switch(
    "offload_overlap",
    "gradients and weights are copied while the host updates others",
    joint="sharding",
    unstated="off",
    condition="that goes with an offloaded optimizer. ",
    pools=(False,),
    label="offload",
    fragment=lambda on: " overlapped" if on else "",
)
ACTIVATION_OFFLOAD: PlanAxis[tuple[str, ...]] = PlanAxis(
    name="activation_offload",
    help="modules whose inputs live in host memory until the backward pass",
    kind="text",
    neutral=(),
    form="none, all, or MODULE+MODULE",
    read=values.activation_offload,
    spell=lambda modules: "+".join(modules) or ALONE,
    figures=lambda modules: {f"offload_{module}": 1.0 for module in modules},
    joint="recompute",
    unstated="none",
    pools=("none",),
    since=_used("activation_offload", ()),
    exported=lambda name: name if name in (ALONE, values.WHOLE) else "modules",
    label="offload",
    fragment=lambda name: "" if name == ALONE else f", {name}",
)
GRAPHS: PlanAxis[str] = PlanAxis(
    name="graphs",
    help="what CUDA graphs launch: attention and routers layer by layer, or all passes of a step",
    kind="choice",
    neutral=ALONE,
    choices=(ALONE, "modules", "full"),
    read=str,
    figures=values.captured,
    joint="recompute",
    unstated="none",
    condition="a whole step goes without experts, modules where no whole layers or mixtures are recomputed, nor with "
    "zero 2 and 3 while experts' exchanges overlap; neither where dropout is made again. ",
    pools=("none",),
    since=_used("graphs", ALONE),
    label="CUDA graphs",
)
SCHEDULE: PlanAxis[str] = PlanAxis(
    name="schedule",
    help="how the passes of a pipeline follow each other",
    kind="choice",
    neutral=ONE_F_ONE_B,
    choices=SCHEDULES,
    read=str,
    figures=lambda name: {"schedule": values.SPLIT_SCHEDULES.get(name, 0.0)},
    pools=(ALONE, ONE_F_ONE_B),
    plain=(ALONE, "interleaved-1f1b"),
    since=_named("schedule"),
    exported=lambda name: name if name in values.SPLIT_SCHEDULES else ONE_F_ONE_B,
    label="schedule",
)
_SENT = {ALONE: 0.0, "alltoall": 1.0, "deepep": 2.0, "hybridep": 2.0, "allgather": 3.0}
"""Dispatchers -> what they send, as :mod:`planner.cost.experts` has it: as the runtime's figures say, every copy by one
all-to-all, copies for one scale-up domain over the NIC once, or all tokens to all ranks."""


def sent(dispatcher: str) -> float:
    """What copies of tokens a dispatcher sends, as figures hold it."""
    return _SENT[dispatcher]


DISPATCHER: PlanAxis[str] = PlanAxis(
    name="dispatcher",
    help="how tokens reach experts on other ranks",
    kind="choice",
    packages={"deepep": "DeepEP", "hybridep": "DeepEP (its HybridEP)"},
    neutral=ALONE,
    choices=(ALONE, *get_args(Dispatcher)),
    read=str,
    figures=lambda name: {"dispatcher": sent(name)},
    unstated="none",
    pools=("none",),
    # Named by no release: an older one sends copies as its own figures say (planner/planning/releases.py).
    label="dispatcher",
    fragment=lambda name: "alltoall" if name == ALONE else name,
)
ATTENTION_KERNEL: PlanAxis[str] = PlanAxis(
    name="attention_kernel",
    help="kernel of attention, in place of the runtime's choice",
    kind="choice",
    packages={f"flash-{version}": f"FlashAttention {version}" for version in (2, 3, 4)},
    neutral=ALONE,
    choices=(ALONE, *ATTENTION_KERNELS),
    read=str,
    figures=lambda name: {"attention_kernel": float((ALONE, *ATTENTION_KERNELS).index(name))},
    unstated="none",
    any_layout=True,
    unshared=("flash-4",),
    undropped=("flash-3", "flash-4"),
    listed="attention_kernels",
    condition="flash-4 goes with cp 1, neither flash-3 nor flash-4 with dropout. ",
    pools=("none",),
    since=lambda name: iter(() if name == ALONE else (f"attention_kernel={name}",)),
    label="attention kernel",
)

DEGREES: tuple[PlanAxis[int], ...] = (TP, PP, VPP, CP, EP, ETP, DP)
LAYOUT_AXES: tuple[PlanAxis[int], ...] = (*DEGREES, MICRO, BATCH, NODES)
OPTION_AXES: tuple[PlanAxis[Any], ...] = (
    *(PRECISION, RECOMPUTE, SEQUENCE_PARALLEL, TP_OVERLAP, ZERO, ZERO_SCOPE, DP_OVERLAP, P2P_OVERLAP, EP_OVERLAP),
    *(RANK_ORDER, OFFLOAD, PLACEMENT, CP_ALGORITHM, OFFLOAD_OVERLAP, ACTIVATION_OFFLOAD, GRAPHS, SCHEDULE, DISPATCHER),
    ATTENTION_KERNEL,
)
LEVERS: tuple[PlanAxis[Any], ...] = (
    GRAPHS,
    DISPATCHER,
    ATTENTION_KERNEL,
    ZERO_SCOPE,
    OFFLOAD,
    OFFLOAD_OVERLAP,
    ACTIVATION_OFFLOAD,
    RECOMPUTE,
)
"""Axes of which the base space holds some values, and a lever the others (:mod:`planner.space.levers`)."""
AXES: Mapping[str, PlanAxis[Any]] = {axis.name: axis for axis in (*LAYOUT_AXES, *OPTION_AXES)}
"""By name, in the order in which messages list them."""
PINNED = tuple(name for name, axis in AXES.items() if axis not in (BATCH, NODES))
"""Axes that a pin is for; the other two have options of their own."""
_FIRST: tuple[PlanAxis[Any], ...] = (
    *LAYOUT_AXES,
    *(ZERO, PRECISION, RECOMPUTE, SEQUENCE_PARALLEL, TP_OVERLAP, DP_OVERLAP, P2P_OVERLAP, ZERO_SCOPE, EP_OVERLAP),
    *(CP_ALGORITHM, RANK_ORDER, OFFLOAD, OFFLOAD_OVERLAP, ACTIVATION_OFFLOAD, GRAPHS, DISPATCHER, SCHEDULE),
)
IN_ANSWERS: tuple[PlanAxis[Any], ...] = (*_FIRST, *(axis for axis in AXES.values() if axis not in _FIRST))
"""In the order in which answers name them; those that have no place of their own come last."""
