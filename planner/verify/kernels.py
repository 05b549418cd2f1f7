"""What kernel libraries stop at in a job's first step: each rule with the lines of the source that stops.

Read in TransformerEngine d0067d0d (transformer_engine/pytorch, attention in attention/dot_product_attention) and
Megatron-LM core_v0.16.1 (megatron/core/transformer). Attention in 8 bit, biases of scores and packed sequences have
rules of their own there; no plan has one of them. That a sequence divides by 2 cp is among the divisors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan_layout import FUSED
from planner.schema.plan_prediction import SplitPasses
from planner.verify.finding import TOLERANCE, Check, Claim, unless_same

MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe")
"""Modules of a layer that are recomputed by name."""
SMALL_BLOCKS = ("mxfp8", "mxfp4", "nvfp4")
"""Precisions whose blocks the matrix units scale themselves: those with 4-bit products do."""
WIDEST_HEAD, HEAD_STEP = 256, 8
"""Elements of a head's query or value at most, and what they divide by."""


def context_kernel_runs(c: Claim) -> Iterator[str]:
    """Windows below the sequence need ``all_gather`` or ``a2a`` (context_parallel.py, lines 5054-5060), sinks ``a2a``
    (5062-5067). Of x ranks that exchange heads, ``max(k / tp, 1) % x = 0`` (4246): all cp in ``a2a``; in ``a2a+p2p``
    (two groups of ranks, 5020-5022) more than one, fewer than cp, and a divisor of it.
    """
    p = c.plan.parallelism
    m = c.model
    length = c.plan.workload.sequence
    stages = [(s.tp, s.cp) for g in p.groups for s in g.stages] or [(p.tp, p.cp)]
    way = p.cp_algorithm or "p2p"
    if p.cp == 1 and p.cp_algorithm is not None:
        yield f"cp_algorithm {p.cp_algorithm} without context parallelism"
    if p.cp == 1:
        return
    if m.window is not None and m.window.size < length and way not in ("a2a", "all_gather"):
        yield f"a window of {m.window.size:,} in {length:,} tokens over cp {p.cp} by {way}"
    if m.sinks and way != "a2a":
        yield f"attention sinks over cp {p.cp} by {way}"
    if p.cp_exchanging is not None and way != "a2a+p2p":
        yield f"{p.cp_exchanging} ranks exchange heads by {way}"
    for tp, cp in sorted(set(stages)):
        x = {"a2a": cp, "a2a+p2p": p.cp_exchanging or 1}.get(way, 1)
        if way == "a2a+p2p" and (not 1 < x < cp or cp % x):
            yield f"of cp {cp} {x} ranks exchange heads by {way}"
        for heads in (m.kv_heads, m.full.kv_heads) if m.full else (m.kv_heads,):
            if max(heads // tp, 1) % x:
                yield f"{heads} key/value heads over tp {tp} and {x} ranks that exchange them"


def heads_have_kernels(c: Claim) -> Iterator[str]:
    """Over context-parallel ranks attention is never unfused (utils.py, line 1169), and fused kernels take heads of at
    most 256 elements, in steps of 8 (926-934).
    """
    latent = c.model.latent
    head_dim = c.model.full.head_dim if c.model.full else c.model.head_dim
    qk = latent.nope_dim + latent.rope_dim if latent else head_dim
    widest = max(qk, latent.value_dim if latent else qk)
    if c.plan.parallelism.cp > 1 and (widest > WIDEST_HEAD or widest % HEAD_STEP):
        yield f"heads of {widest} elements over cp {c.plan.parallelism.cp}"


def modules_are_there(c: Claim) -> Iterator[str]:
    """Modules recomputed by name exist in the model's layers (transformer_config.py, lines 1197-1222)."""
    kind, _, listed = c.plan.recompute.policy.partition(":")
    moe, latent = c.model.moe, c.model.latent
    for module in listed.split("+") if kind == "selective" and listed else ():
        present = {
            "layernorm": moe is not None or latent is not None,
            "moe_act": moe is not None,
            "mla_up_proj": latent is not None,
            "mlp": any(layer.dense for layer in c.layers),
            "moe": moe is not None,
        }
        if module not in MODULES:
            yield f"{module} is no module of a layer"
        elif not present.get(module, True):
            yield f"{module} is recomputed, which the model does not have"


def scaling_runs(c: Claim) -> Iterator[str]:
    """Scaled blocks need products of their own (quantization.py, lines 162-180); what delayed scaling saw of an output
    that is dropped is lost: modules ``moe_act`` and ``layernorm`` exclude it (transformer_config.py, lines 1241-1247).
    """
    precision = c.plan.precision
    policy = c.plan.recompute.policy
    for pool in c.plan.cluster.pools if precision in SMALL_BLOCKS else ():
        if "fp4" not in pool.peak_flops:
            yield f"{precision} on {pool.accelerator}"
    if precision == "fp8-delayed" and any(module in policy for module in ("moe_act", "layernorm")):
        yield f"delayed scaling with {policy}"


def graphs_capture(c: Claim) -> Iterator[str]:
    """A whole step is captured of dense models, as experts' tokens vary; modules where no whole layers or mixtures are
    recomputed (Megatron-LM core_v0.16.1, core/transformer/transformer_config.py); either where activations stay and no
    dropout is made again; modules with ZeRO 2 and 3 where no exchanges overlap (core_v0.18.0,
    core/distributed/fsdp/mcore_fsdp_adapter.py).
    """
    graphs = c.plan.graphs
    away = c.plan.offloaded
    kept = c.plan.recompute.policy
    modules = (kept.partition(":")[2] or "core_attn").split("+") if kept.startswith("selective") else []
    covered = c.plan.recompute.layers_fraction or "moe" in modules
    overlapped = graphs == "modules" and c.plan.overlap.ep and c.plan.parallelism.zero_stage >= 2
    wrong = {
        "full with experts": graphs == "full" and c.model.moe is not None,
        f"modules with recompute {kept}": graphs == "modules" and covered,
        "activations in host memory": graphs and away and away.activations,
        f"dropout with recompute {kept}": graphs and c.model.dropout and {"core_attn", "mlp"} & {*modules},
        "modules with zero 2 or 3 and overlapping exchanges": overlapped,
        "several pools": graphs and len(c.plan.cluster.pools) > 1,
    }
    yield from (f"CUDA graphs: {what}" for what, is_so in wrong.items() if is_so)


def dispatcher_runs(c: Claim) -> Iterator[str]:
    """Tokens are dispatched to experts on other ranks of one pool, whose accelerator has the dispatcher's kernels.

    Megatron-Bridge 067f987d (training/flex_dispatcher_backend.py) names the accelerators that DeepEP and HybridEP run
    on. The pool lists its dispatchers (:class:`planner.schema.hardware.Accelerator`); older documents don't.
    """
    name = c.plan.dispatcher
    p = c.plan.parallelism
    pools = c.plan.cluster.pools
    kernels = pools[0].dispatchers
    lacks_kernels = name in FUSED and kernels is not None and name not in kernels
    wrong = {
        "without experts on other ranks": c.model.moe is None or p.ep * p.etp == 1,
        "several pools": len(pools) > 1,
        "with overlap or expert tensor parallelism": name == "allgather" and (c.plan.overlap.ep or p.etp > 1),
        f"on {pools[0].accelerator}": lacks_kernels,
    }
    yield from (f"dispatcher {name}: {what}" for what, is_so in wrong.items() if name and is_so)


def attention_kernel_runs(c: Claim) -> Iterator[str]:
    """The kernel is one of those that the pool lists; FlashAttention-4 works on whole sequences (utils.py, line 1175),
    and neither it nor FlashAttention-3 has dropout (lines 1105-1111).

    FlashAttention-3 is for Hopper alone, FlashAttention-4 from there on (lines 579, 583): the catalog lists them so.
    """
    name = c.plan.attention_kernel
    pools = c.plan.cluster.pools
    wrong = {
        "several pools": len(pools) > 1,
        "shared sequences": name == "flash-4" and c.plan.parallelism.cp > 1,
        "dropout": name in ("flash-3", "flash-4") and c.model.dropout,
        f"on {pools[0].accelerator}": name not in (pools[0].attention_kernels or ()),
    }
    yield from (f"attention kernel {name}: {what}" for what, is_so in wrong.items() if name and is_so)


def muon_runs(c: Claim) -> Iterator[str]:
    """Matrices are whole: without ZeRO or under stage 1 over all ranks, neither in fp16 nor with states in host memory,
    and all of them trained (Megatron-LM core_v0.18.0, training/arguments.py, core/optimizer/__init__.py).
    """
    p, w = c.plan.parallelism, c.plan.workload
    if not w.optimizer.get("iterations"):
        return
    wrong = {
        f"zero {p.zero_stage}": p.zero_stage > 1,
        "shards of a node": p.zero_scope != "full",
        "fp16": c.plan.precision == "fp16",
        "states in host memory": bool(c.plan.offload.get("optimizer")),
        f"method {w.method['kind']}": w.method["kind"] not in ("pretrain", "finetune"),
        "several pools": len(c.plan.cluster.pools) > 1,
    }
    yield from (f"{w.optimizer['id']} with {what}" for what, is_so in wrong.items() if is_so)


CHECKS: tuple[Check, ...] = (
    context_kernel_runs,
    heads_have_kernels,
    modules_are_there,
    scaling_runs,
    graphs_capture,
    dispatcher_runs,
    attention_kernel_runs,
    muon_runs,
)


OUTSIDE = ("bubble", "dp", "copies", "optimizer", "jitter", "overhead")
"""Causes that take time outside the slowest rank's passes."""


def passes_are_of_the_step(c: Claim) -> Iterator[str]:
    """``M (F + I + W)`` of the slowest rank is the step without its bubble and what surrounds passes, weight gradients
    are of its matrix products and its head, and no other rank takes longer; of such schedules alone.
    """
    p = c.plan.parallelism
    stated = c.plan.prediction.passes
    causes = c.plan.prediction.breakdown
    if (stated is None) != (p.schedule not in SPLIT_SCHEDULES):
        yield f"passes are {'not ' * (stated is None)}stated, and the schedule is {p.schedule}"
    if stated is None:
        return
    steps = c.micro_batches
    slowest = sum(stated.slowest_s)
    inside = sum(seconds for cause, seconds in causes.items() if cause not in OUTSIDE)
    yield from unless_same("what the slowest rank's passes take", steps * slowest, inside)
    if not all(math.isfinite(x) and x >= 0 for x in (*stated.slowest_s, *stated.others_s)):
        yield f"passes of {stated.slowest_s} and {stated.others_s} s"
    if steps * stated.slowest_s[2] > (causes.get("matrix", 0.0) + causes.get("logits", 0.0)) * (1 + TOLERANCE):
        yield f"weight gradients take {stated.slowest_s[2]:.6g} s of a micro-batch, more than all matrix products"
    if sum(stated.others_s) > slowest * (1 + TOLERANCE):
        yield f"other ranks take {sum(stated.others_s):.6g} s a micro-batch, the slowest {slowest:.6g}"


def bubble_follows_from_passes(c: Claim) -> Iterator[str]:
    """What the slowest rank waits (Qi et al. 2023, arXiv 2401.10241; DualPipeV; planner/cost/split_schedules.py)."""
    p = c.plan.parallelism
    stated = c.plan.prediction.passes
    if stated is None or p.schedule not in SPLIT_SCHEDULES:
        return
    idle_s = idle(p.schedule, p.pp, p.vpp, c.micro_batches, stated)
    yield from unless_same("bubble", c.plan.prediction.breakdown.get("bubble", 0.0), idle_s)


def idle(schedule: str, pp: int, vpp: int, steps: float, passes: SplitPasses) -> float:
    """Seconds that the slowest rank waits in a step."""
    (_, slow_i, slow_w), (f, i, w) = passes.slowest_s, passes.others_s
    others = pp - 1
    ahead = max(sum(passes.slowest_s) - (f + i + w), 0.0)
    if schedule == "zbv":
        fills = others * max(i - w, i / 2, f / 2) - (steps - 1) * ahead
        back = others * (i - slow_i / 2) - pp * slow_w / 2
        round_its_end = pp * (i - slow_i) / 2 + (pp - 0.5) * w - (pp + 1) * slow_w / 2
        return max(fills, back, round_its_end, 0.0)
    if schedule == "dualpipe-v":
        pairs = max(others * (f + (i - w) / 2), others * f, others * (i + (f - w) / 2) - f / 2)
        return max(pairs - 1.25 * pp * ahead, 0.0)
    lacking = pp * max(slow_w - w, 0.0)
    return max(others * max(f + i - w, i) - lacking, others * f) / vpp


SCHEDULE_CHECKS: tuple[Check, ...] = (passes_are_of_the_step, bubble_follows_from_passes)
