"""What plans of a runtime and a model may have in host memory: optimizer states, and activations of modules by name."""

from __future__ import annotations

from collections.abc import Sequence

from planner.schema.hardware import Cluster, Runtime
from planner.schema.workload import Model
from planner.space.axes import (
    ALONE,
    CORE_ATTENTION,
    GRAPHS,
    NOWHERE,
    OFFLOADED_MODULES,
    PART,
    PLACEMENTS,
    WHOLE,
    WHOLE_MIXTURE,
    MemoryPlacement,
    Recompute,
    Sharding,
    activation_offload,
    offload_name,
    placement,
    states_offloaded,
)
from planner.space.pins import Pins


def states(runtime: Runtime, pins: Pins) -> list[float]:
    """Shares of the optimizer states in host memory: none or all of them, or those that a pin names."""
    known = _known(runtime, "offload", (ALONE,))
    pinned = pins.bounds.get("offload")
    shares = [states_offloaded(name) for name in pinned.values] if pinned else [0.0, 1.0]
    return [share for share in shares if (offload_name(share) if share in (0.0, 1.0) else PART) in known]


def activations(model: Model, runtime: Runtime, pins: Pins) -> list[tuple[str, ...]]:
    """Modules whose inputs live in host memory: none, unless a pin names those of the runtime and the model."""
    able = {WHOLE, *offloadable(model)} & {*_known(runtime, "activation_offload", ())}
    pinned = pins.bounds.get("activation_offload")
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


def graphs_of(model: Model, runtime: Runtime, pins: Pins) -> list[int]:
    """What CUDA graphs launch: nothing, unless a pin names what the runtime can capture; a whole step of dense models
    alone, as experts' tokens vary (Megatron-LM d98e8a64, docs/user-guide/features/cuda_graph.md).
    """
    known = runtime.axes.get("graphs", (ALONE,)) if "graphs" in pins else (ALONE,)
    able = [name for name in GRAPHS if name in known and pins.allow("graphs", name)]
    return [GRAPHS.index(name) for name in able if name != GRAPHS[2] or model.moe is None]


def with_graphs(
    model: Model, policies: Sequence[Recompute], away: Sequence[tuple[str, ...]], graphs: Sequence[int]
) -> list[tuple[int, tuple[Recompute, ...], tuple[tuple[str, ...], ...]]]:
    """What CUDA graphs launch with policies and modules that go with it: those of modules recompute no whole layers
    or mixtures (Megatron-LM core_v0.16.1, core/transformer/transformer_config.py), and what draws random numbers is not
    captured where it is made again (the same: attention, and MLPs, with dropout); neither is tried here with
    activations in host memory, which the newest release alone captures.
    """
    return [
        (each, *found)
        for each in graphs
        for found in with_policies(
            [p for p in policies if not each or _captures(model, p, each)], [m for m in away if not m or not each]
        )
        if found[0]
    ]


def _captures(model: Model, policy: Recompute, graphs: int) -> bool:
    """Whether graphs go with what is recomputed."""
    draws = policy.selective or "mlp" in policy.modules
    covers = policy.layers or WHOLE_MIXTURE in policy.modules
    return not (graphs == 1 and covers) and not (model.dropout and draws)


def captured(shardings: tuple[Sharding, ...], graphs: int, overlap: bool) -> tuple[Sharding, ...]:
    """Those that CUDA graphs go with: of modules not ZeRO 2 and 3 while experts' exchanges overlap (Megatron-LM
    core_v0.18.0, core/distributed/fsdp/mcore_fsdp_adapter.py).
    """
    return tuple(each for each in shardings if each.zero < 2) if graphs == 1 and overlap else shardings


def figures(each: Sequence[tuple[str, ...]]) -> dict[str, list[bool]]:
    """Field of the options -> whether each of several choices has that module's input in host memory."""
    named = sorted({module for modules in each for module in modules})
    return {f"offload_{module}": [module in modules for modules in each] for module in named}


def placements(cluster: Cluster, pins: Pins) -> tuple[MemoryPlacement, ...]:
    """What may live in expanded memory: nothing without it; else all that is searched, or what the pin names.

    No runtime says whether it can place so: such hardware is asked about before software for it exists.
    """
    pinned = pins.bounds.get("placement")
    known = (NOWHERE,) if cluster.accelerator.expanded_memory is None else PLACEMENTS
    if pinned is None:
        return known
    return tuple(placement(name) for name in pinned.values if len(known) > 1 or name == NOWHERE.name)


def _known(runtime: Runtime, axis: str, neutral: tuple[str, ...]) -> tuple[object, ...]:
    known = runtime.axes.get(axis, neutral)
    return neutral if known == "any" else tuple(known)
