"""What kernel libraries stop at in a job's first step: each rule with the lines of the source that stops.

Read in TransformerEngine d0067d0d (transformer_engine/pytorch, attention in attention/dot_product_attention) and
Megatron-LM core_v0.16.1 (megatron/core/transformer). Attention in 8 bit, biases of scores and packed sequences have
rules of their own there; no plan has one of them. That a sequence divides by 2 cp is among the divisors.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.verify.finding import Check, Claim

MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp")
"""Modules of a layer that are recomputed by name."""
SMALL_BLOCKS = ("mxfp8", "nvfp4")
"""Precisions whose blocks the matrix units scale themselves: those with 4-bit products do."""
WIDEST_HEAD, HEAD_STEP = 256, 8
"""Elements of a head's query or value at most, and what they divide by."""


def context_kernel_runs(c: Claim) -> Iterator[str]:
    """Windows below the sequence need ``all_gather`` or ``a2a`` (context_parallel.py, lines 5054-5060), sinks ``a2a``
    (5062-5067), for which ``max(k / tp, 1) % cp = 0`` (4246).
    """
    p, m, length = c.plan.parallelism, c.model, c.plan.workload.sequence
    stages = [(s.tp, s.cp) for g in p.groups for s in g.stages] or [(p.tp, p.cp)]
    way = p.cp_algorithm or "p2p"
    if p.cp == 1 and p.cp_algorithm is not None:
        yield f"cp_algorithm {p.cp_algorithm} without context parallelism"
    if p.cp == 1:
        return
    if m.window is not None and m.window.size < length and way == "p2p":
        yield f"a window of {m.window.size:,} in {length:,} tokens over cp {p.cp} by {way}"
    if m.sinks and way != "a2a":
        yield f"attention sinks over cp {p.cp} by {way}"
    for tp, cp in sorted(set(stages)):
        if way == "a2a" and max(m.kv_heads // tp, 1) % cp:
            yield f"{m.kv_heads} key/value heads over tp {tp} and cp {cp} by a2a"


def heads_have_kernels(c: Claim) -> Iterator[str]:
    """Over context-parallel ranks attention is never unfused (utils.py, line 1169), and fused kernels take heads of at
    most 256 elements, in steps of 8 (926-934).
    """
    latent = c.model.latent
    own = c.model.full.head_dim if c.model.full else c.model.head_dim
    qk = latent.nope_dim + latent.rope_dim if latent else own
    widest = max(qk, latent.value_dim if latent else qk)
    if c.plan.parallelism.cp > 1 and (widest > WIDEST_HEAD or widest % HEAD_STEP):
        yield f"heads of {widest} elements over cp {c.plan.parallelism.cp}"


def modules_are_there(c: Claim) -> Iterator[str]:
    """Modules recomputed by name exist in the model's layers (transformer_config.py, lines 1197-1222)."""
    kind, _, listed = c.plan.recompute.policy.partition(":")
    moe, latent = c.model.moe, c.model.latent
    for module in listed.split("+") if kind == "selective" and listed else ():
        there = {
            "layernorm": moe is not None or latent is not None,
            "moe_act": moe is not None,
            "mla_up_proj": latent is not None,
            "mlp": any(layer.dense for layer in c.layers),
        }
        if module not in MODULES:
            yield f"{module} is no module of a layer"
        elif not there.get(module, True):
            yield f"{module} is recomputed, which the model does not have"


def scaling_runs(c: Claim) -> Iterator[str]:
    """Scaled blocks need products of their own (quantization.py, lines 162-180); what delayed scaling saw of an output
    that is dropped is lost: modules ``moe_act`` and ``layernorm`` exclude it (transformer_config.py, lines 1241-1247).
    """
    precision, policy = c.plan.precision, c.plan.recompute.policy
    for pool in c.plan.cluster.pools if precision in SMALL_BLOCKS else ():
        if "fp4" not in pool.peak_flops:
            yield f"{precision} on {pool.accelerator}"
    if precision == "fp8-delayed" and any(each in policy for each in ("moe_act", "layernorm")):
        yield f"delayed scaling with {policy}"


CHECKS: tuple[Check, ...] = (context_kernel_runs, heads_have_kernels, modules_are_there, scaling_runs)
