"""What plans of a runtime and a model may recompute, capture, or keep in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from planner.axes.options import KeptPasses, Sharding
from planner.axes.table import ACTIVATION_OFFLOAD, GRAPHS, OFFLOAD, PLACEMENT, RECOMPUTE
from planner.axes.values import (
    ALONE,
    CORE_ATTENTION,
    FULL,
    MODULES,
    NO_RECOMPUTE,
    NOWHERE,
    OFFLOADED_MODULES,
    PART,
    PLACEMENTS,
    SELECTIVE,
    WHOLE,
    WHOLE_MIXTURE,
    MemoryPlacement,
    Recompute,
    activation_offload,
    offload_name,
    placement,
    recompute,
    states_offloaded,
)
from planner.models.blocks import feeding
from planner.schema.hardware import Cluster, Runtime
from planner.schema.plan_layout import ZeroStage
from planner.schema.workload import Model, Workload
from planner.space.pins import Pins

LOST_BY_DELAYED = {"layernorm", "moe_act"}
"""Modules that delayed scaling excludes (Megatron-LM core_v0.16.1, transformer_config.py, lines 1241-1247)."""


def modules_of(model: Model) -> tuple[str, ...]:
    """Modules that the layers of a model have and that can be recomputed by themselves.

    Norms alone: those that no matrix product is fused with, before latents and before experts (Megatron-LM
    core_v0.16.1, core/models/gpt/gpt_layer_specs.py: elsewhere they are part of the product behind them).
    """
    experts, latents = model.moe is not None, model.latent is not None
    dense = feeding(model, "mlp") > 0
    there = {"layernorm": experts or latents, "moe_act": experts, "mla_up_proj": latents, "mlp": dense, "moe": experts}
    return tuple(module for module in MODULES if there[module])


def policies(workload: Workload, runtime: Runtime, kinds: tuple[str, ...], pins: Pins) -> tuple[Recompute, ...]:
    """Recomputation policies that the runtime has: its own, or those that a pin names and the model has modules for."""
    known = runtime.axes.get(RECOMPUTE.name, ("none",))
    plain = [p for p in (NO_RECOMPUTE, SELECTIVE, FULL) if known == "any" or p.name in known]
    if known == "any" or "block" in known:
        plain[-1:-1] = [recompute("block:0.25"), recompute("block:0.5"), recompute("block:0.75")]
    pinned = pins.bounds.get(RECOMPUTE.name)
    if pinned is not None:
        asked = [recompute(name) for name in pinned.values if known == "any" or name.partition(":")[0] in known]
        able = set(modules_of(workload.model)) & set(runtime.recompute_modules)
        if "fp8-delayed" in kinds:
            able -= LOST_BY_DELAYED
        return tuple(policy for policy in asked if able.issuperset(policy.modules))
    return tuple(plain)


def states(runtime: Runtime, pins: Pins) -> list[float]:
    """Shares of the optimizer states in host memory: none or all of them, or those that a pin names; weights with them
    only if a pin does.
    """
    known = values_of(runtime, OFFLOAD.name)
    pinned = pins.bounds.get(OFFLOAD.name)
    shares = [states_offloaded(name) for name in pinned.values] if pinned else [0.0, 1.0]
    return [share for share in shares if (PART if 0.0 < share < 1.0 else offload_name(share)) in known]


def with_stages(runtime: Runtime, share: float) -> tuple[ZeroStage, ...]:
    """ZeRO stages that go with what is in host memory: weights live there as shards alone (ZeRO 3)."""
    if share > 1:
        return (3,)
    return runtime.offload_needs_zero if share and runtime.offload_needs_zero else get_args(ZeroStage)


def activations(model: Model, runtime: Runtime, pins: Pins) -> list[tuple[str, ...]]:
    """Modules whose inputs live in host memory: none, unless a pin names those of the runtime and the model."""
    able = {WHOLE, *offloadable(model)} & {*values_of(runtime, ACTIVATION_OFFLOAD.name, ())}
    pinned = pins.bounds.get(ACTIVATION_OFFLOAD.name)
    asked = [activation_offload(name) for name in pinned.values] if pinned else [()]
    return [modules for modules in asked if able.issuperset(modules)]


def offloadable(model: Model) -> tuple[str, ...]:
    """Modules of a model whose inputs can live in host memory: of norms those that no product is fused with."""
    there = {"attn_norm": model.latent, "mlp_norm": model.moe, "expert_fc1": model.moe, "moe_act": model.moe}
    return tuple(module for module in OFFLOADED_MODULES if there.get(module, True) is not None)


def goes_with(policy: Recompute, modules: tuple[str, ...]) -> bool:
    """Whether what is recomputed leaves inputs to offload: not by layers, nor attention twice (Megatron-LM d98e8a64,
    core/transformer/attention.py: no group where it is checkpointed), nor inside of mixtures.
    """
    if modules in ((), (WHOLE,)):
        return True
    inside = WHOLE_MIXTURE in policy.modules and {"expert_fc1", "moe_act"} & set(modules)
    return not (policy.layers or (policy.selective and CORE_ATTENTION in modules) or inside)


def with_policies(
    policies: Sequence[Recompute], away: Sequence[tuple[str, ...]]
) -> list[tuple[tuple[Recompute, ...], tuple[tuple[str, ...], ...]]]:
    """Policies with the modules that go with all of them."""
    ways = {modules: tuple(p for p in policies if goes_with(p, modules)) for modules in away}
    return [(way, tuple(m for m in away if ways[m] == way)) for way in dict.fromkeys(ways.values())]


def graphs_of(model: Model, runtime: Runtime, pins: Pins) -> list[str]:
    """What CUDA graphs launch: nothing, unless a pin names what the runtime can capture; a whole step of dense models
    alone, as experts' tokens vary (Megatron-LM d98e8a64, docs/user-guide/features/cuda_graph.md).
    """
    known = runtime.axes.get(GRAPHS.name, (ALONE,)) if GRAPHS.name in pins else (ALONE,)
    able = [name for name in GRAPHS.choices if name in known and pins.allow(GRAPHS.name, name)]
    return [name for name in able if name != "full" or model.moe is None]


def with_graphs(
    model: Model, policies: Sequence[Recompute], away: Sequence[tuple[str, ...]], graphs: Sequence[str]
) -> list[KeptPasses]:
    """Each policy with modules and graphs that go with it: CUDA graphs of modules recompute no whole layers or mixtures
    (Megatron-LM core_v0.16.1, core/transformer/transformer_config.py), and what draws random numbers is not captured
    where it is made again (the same: attention, and MLPs, with dropout); neither is tried here with activations in host
    memory, which the newest release alone captures.
    """
    return [
        KeptPasses(policy, modules, each)
        for each in graphs
        for way, moved in with_policies(
            [p for p in policies if each == ALONE or _captures(model, p, each)],
            [m for m in away if not m or each == ALONE],
        )
        for policy in way
        for modules in moved
    ]


def _captures(model: Model, policy: Recompute, graphs: str) -> bool:
    """Whether graphs go with what is recomputed."""
    draws = policy.selective or "mlp" in policy.modules
    covers = policy.layers or WHOLE_MIXTURE in policy.modules
    return not (graphs == "modules" and covers) and not (model.dropout and draws)


def captured(
    shardings: tuple[Sharding, ...], passes: Sequence[KeptPasses], overlap: bool
) -> dict[tuple[Sharding, ...], list[KeptPasses]]:
    """Passes by the shardings that go with what CUDA graphs launch of them: graphs of modules not with ZeRO 2 and 3
    while experts' exchanges overlap (Megatron-LM core_v0.18.0, core/distributed/fsdp/mcore_fsdp_adapter.py).
    """
    unsharded = tuple(each for each in shardings if each.zero < 2)
    able: dict[tuple[Sharding, ...], list[KeptPasses]] = {}
    for point in passes:
        able.setdefault(unsharded if point.graphs == "modules" and overlap else shardings, []).append(point)
    return able


def placements(cluster: Cluster, pins: Pins) -> tuple[MemoryPlacement, ...]:
    """What may live in expanded memory: nothing without it; else all that is searched, or what the pin names.

    No runtime says whether it can place so: such hardware is asked about before software for it exists.
    """
    pinned = pins.bounds.get(PLACEMENT.name)
    known = (NOWHERE,) if cluster.accelerator.expanded_memory is None else PLACEMENTS
    if pinned is None:
        return known
    return tuple(placement(name) for name in pinned.values if len(known) > 1 or name == NOWHERE.name)


def values_of(runtime: Runtime, axis: str, neutral: tuple[str, ...] = (ALONE,)) -> tuple[object, ...]:
    """The values that a runtime lists on an axis."""
    known = runtime.axes.get(axis, neutral)
    return neutral if known == "any" else tuple(known)
