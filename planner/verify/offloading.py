"""What lives in host memory: shares of the optimizer states, and activations of modules by name.

Read in Megatron-LM core_v0.16.1 and d98e8a64 (megatron/core/transformer: transformer_config.py, attention.py,
moe/experts.py; optimizer/cpu_offloading/hybrid_optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.verify.finding import TOLERANCE, Check, Claim, unless_same
from planner.verify.memory import (
    FRAGMENTATION,
    IMBALANCE,
    REFERENCE,
    SIXTEEN_BIT,
    least_inputs,
    most_beside_layers,
    most_in_flight,
    offloaded_share,
    shard,
    state_bytes,
    trained,
)
from planner.verify.model import LayerShape

MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Modules whose inputs are offloaded by name."""
GRADIENT = 4.0
"""Bytes of a gradient that the host updates from."""
OF_EXPERTS = ("mlp_norm", "expert_fc1", "moe_act")


def offloaded_is_said_once(c: Claim) -> Iterator[str]:
    """A share from 0 to 1, above 0 where states are said to be offloaded; copies of states overlap where some are."""
    away = c.plan.offload
    yield from (f"offload.{part} is no part that is offloaded" for part in away if part not in ("optimizer", "weights"))
    if away.get("weights") and (not away.get("optimizer") or c.plan.parallelism.zero_stage != 3):
        yield "weights are offloaded, which goes with the optimizer's states and with zero 3"
    if (parts := c.plan.offloaded) is None:
        return
    share = parts.optimizer_share
    stated = bool(c.plan.offload.get("optimizer"))
    if not 0.0 <= share <= 1.0 or (share > 0) != stated:
        yield f"a share of {share:g} of the optimizer states, which are {'' if stated else 'not '}said to be offloaded"
    if parts.optimizer_overlap and not share:
        yield "copies of optimizer states overlap, and none are offloaded"
    if len({*parts.activations}) < len(parts.activations):
        yield f"{'+'.join(parts.activations)}: a module stands twice"
    if len(c.plan.cluster.pools) > 1:
        yield "plans over several pools are costed without offload"


def host_memory_is_one(c: Claim) -> Iterator[str]:
    """Where it is stated (not in older documents) something is offloaded: of a node ``accelerators (states + gradients
    in 32 bit + activations)``, the states' bytes from the sharding; of the fullest stage as much as is said to be
    offloaded.
    """
    host = c.plan.prediction.memory.host
    away = c.plan.offloaded
    m = c.plan.prediction.memory
    states = bool(c.plan.offload.get("optimizer"))
    if host is not None and not (states or (away and away.activations)):
        yield "nothing lies in host memory, which is stated"
    if host is None or not 0 <= host.stage < len(c.placed):
        return
    per_node = c.plan.cluster.pools[0].accelerators_per_node
    total = per_node * (host.optimizer_bytes + host.activations_bytes)
    yield from unless_same("total_bytes in host memory", host.total_bytes, total)
    weight_bytes = hosted_weight_bytes(c) if c.plan.offload.get("weights") else 0.0
    held = (offloaded_share(c) * (state_bytes(c) + GRADIENT * trained(c)) + weight_bytes) * shard(c, host.stage)
    yield from unless_same("optimizer_bytes in host memory", host.optimizer_bytes, held)
    if away and host.stage == m.stage:
        yield from unless_same("activations_bytes in host memory", host.activations_bytes, away.activations_bytes)


def hosted_weight_bytes(c: Claim) -> float:
    """Bytes of a weight that lies in host memory beside its fp32 copy: none where that is all there is; with those of
    the frozen model that DPO compares with.
    """
    per_parameter = c.plan.runtime.bytes_per_parameter
    work = c.plan.workload
    compared = REFERENCE if work.task == "dpo" and work.method["kind"] != "lora" else 0.0
    if (frozen := per_parameter.get("frozen", 0.0)) > 0:
        return frozen + compared
    return compared + (0.0 if per_parameter["gathers_working_copy"] > 0 else per_parameter["parameters"])


def update_follows_from_link(c: Claim) -> Iterator[str]:
    """``share parameters (gradient + weight + traffic of the update) / link`` seconds on the host, beside the rest on
    the accelerator: added up, or, where copies overlap, the longest of the three and the accelerator's own. Weights
    that live on the host cross in passes, and their gradients.
    """
    if (away := c.plan.offloaded) is None or not away.optimizer_share or c.plan.workload.optimizer.get("iterations"):
        return
    per_parameter = c.plan.runtime.bytes_per_parameter
    optimizer = c.plan.workload.optimizer
    alone = c.element > SIXTEEN_BIT and per_parameter["gathers_working_copy"] <= 0
    in_passes = bool(c.plan.offload.get("weights"))  # These cross the link then, not with the update.
    lanes = (
        0.0 if in_passes else per_parameter["gradient_wire"],
        0.0 if in_passes else per_parameter["parameter_wire"],
        optimizer["step_bytes"] - SIXTEEN_BIT * alone,
    )
    updated = max(shard(c, stage) for stage in range(len(c.placed)))
    derived = away.optimizer_share * trained(c) * updated * sum(lanes) / away.host_bytes_per_s
    yield from unless_same("host_update_s", away.host_update_s, derived)
    host, device = away.host_update_s, away.device_update_s
    if away.optimizer_share >= 1 and device:
        yield f"{device:g} s of updates on the accelerator, which has no states"
    seconds = max(host * max(lanes) / sum(lanes), device) if away.optimizer_overlap else host + device
    yield from unless_same("the optimizer's seconds", c.plan.prediction.breakdown.get("optimizer", 0.0), seconds)


def modules_can_be_offloaded(c: Claim) -> Iterator[str]:
    """Known modules that the model has; ``attn_proj`` with ``core_attn`` (transformer_config.py, line 1287), and not
    beside recomputation of whole layers, of mixtures or of attention itself, which leave no such input (attention.py,
    1558).
    """
    named = c.plan.offloaded.activations if c.plan.offloaded else ()
    policy = c.plan.recompute.policy
    if named in ((), ("all",)):
        return
    yield from (f"{module!r} is no module" for module in named if module not in MODULES)
    lacks = [module for module in named if module in OF_EXPERTS and c.model.moe is None]
    lacks += [module for module in named if module == "attn_norm" and c.model.latent is None]
    yield from (f"{module} is offloaded, which {c.model.id} does not have by itself" for module in lacks)
    if "attn_proj" in named and "core_attn" not in named:
        yield "attn_proj is offloaded without core_attn"
    again = policy.startswith("selective") and "core_attn" in (policy.partition(":")[2] or "core_attn").split("+")
    inside = "moe" in policy.partition(":")[2].split("+") and {"expert_fc1", "moe_act"} & {*named}
    if c.plan.recompute.layers_fraction > 0 or (again and "core_attn" in named) or inside:
        yield f"inputs of {'+'.join(named)} with recompute {policy}"


def offloaded_bytes_are_possible(c: Claim) -> Iterator[str]:
    """Activations in host memory: between inputs of the modules named (:func:`moved`) less those of two layers that are
    on their way, and these inputs. Of everything, at least inputs of layers, of which few stay (:func:`on_their_way`).
    """
    away = c.plan.offloaded
    stage = c.plan.prediction.memory.stage
    if away is None or not 0 <= stage < len(c.placed):
        return
    stated = away.activations_bytes
    if stated < 0 or (stated and not away.activations):
        yield f"{stated:.6g} B of activations in host memory, where {away.activations or 'nothing'} is offloaded"
    p = c.plan.parallelism
    layers = c.placed[stage]
    m = c.plan.prediction.memory
    flying = most_in_flight(c, stage)
    if away.activations == ("all",):
        few = on_their_way(c)
        if stated < max(least_inputs(c, stage) - few, 0.0) * (1 - TOLERANCE):
            yield f"{stated:.6g} B of activations in host memory are fewer than the inputs of layers"
        if m.activations_bytes > FRAGMENTATION * (few + flying * most_beside_layers(c, stage)):
            yield f"all activations are in host memory, and {m.activations_bytes:.6g} B of them on the accelerator"
    if not away.activations or any(module not in MODULES for module in away.activations):
        return
    most = [moved(c, layer, max(IMBALANCE, c.plan.workload.imbalance or 1.0)) for layer in layers]
    least = [moved(c, layer, 1.0, least=True) for layer in layers]
    low = max(min(c.micro_batches, p.pp - stage) * sum(least) - 2.0 * max(most, default=0.0), 0.0)
    high = FRAGMENTATION * (flying * sum(most) + bool(c.plan.overlap.ep) * max(most, default=0.0))
    if not low * (1 - TOLERANCE) <= stated <= high:
        yield f"{stated:.6g} B of activations in host memory, outside {low:.6g}..{high:.6g}"


def on_their_way(c: Claim) -> float:
    """Bytes of five of a layer's widest tensors of a micro-batch (huggingface/trl, models/activation_offloading.py)."""
    m = c.model
    p = c.plan.parallelism
    copies = max(IMBALANCE, c.plan.workload.imbalance or 1.0) * (m.moe.experts_per_token * p.etp if m.moe else 0.0)
    inner = max(m.ffn or 0, copies * (m.moe.ffn / p.etp if m.moe else 0.0)) / p.tp
    return 5.0 * c.element * c.tokens * max(m.hidden, inner)


def moved(c: Claim, layer: LayerShape, imbalance: float, *, least: bool = False) -> float:
    """Bytes of the inputs of one layer's offloaded modules of one micro-batch, ``e t`` of a hidden state, of queries,
    keys and values, of what attention gives, of what experts get and of what their function reads.

    At least: products keep inputs cast to 8 bit, and what recomputation drops is not there, norms where a product is
    not fused with them; of a block that also crosses, one attention's.
    """
    m = c.model
    p = c.plan.parallelism
    t = c.tokens
    e = c.element
    named = c.plan.offloaded.activations if c.plan.offloaded else ()
    narrow = 1.0 if least else e
    hidden = t * m.hidden / (p.tp if p.sequence_parallel else 1)
    attentions = layer.attentions
    latent = m.latent
    again = c.plan.recompute.policy.partition(":")[2].split("+")
    fused = not (latent or m.compressed)
    head_dim = m.full.head_dim if m.full and layer.whole else m.head_dim
    qk, v = (latent.nope_dim + latent.rope_dim, latent.value_dim) if latent else (head_dim, head_dim)
    queries = m.heads * max(qk, v) / p.tp
    keys = max(m.kv_heads / p.tp, 1.0) * (qk + v)
    copies = t * m.moe.experts_per_token * p.etp / p.tp * imbalance if m.moe and layer.mixture else 0.0
    module_bytes = {
        "attn_norm": layer.attentions * e * hidden,
        "qkv_linear": (min(attentions, 1) if least else attentions)
        * (narrow * (fused or "layernorm" not in again) + e * fused)
        * hidden,
        "core_attn": layer.attentions * e * t * (queries + keys) * (not (least and "mla_up_proj" in again)),
        "attn_proj": layer.attentions * narrow * t * m.heads * v / p.tp,
        "mlp_norm": layer.mixture * e * hidden,
        "expert_fc1": narrow * copies * (m.moe.latent or m.hidden if m.moe else 0),
        "moe_act": e * (1.0 + m.gated) * copies * (m.moe.ffn / p.etp if m.moe else 0),
    }
    return sum(module_bytes.get(module, 0.0) for module in named)


CHECKS: tuple[Check, ...] = (
    offloaded_is_said_once,
    host_memory_is_one,
    update_follows_from_link,
    modules_can_be_offloaded,
    offloaded_bytes_are_possible,
)
