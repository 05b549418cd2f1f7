"""Megatron-LM's models whose layers are of several kinds: ``pretrain_hybrid.py`` and its pattern of layers.

Read in NVIDIA/Megatron-LM core_v0.18.0 and d98e8a64 (0.20): core/models/hybrid (hybrid_layer_allocation.py,
hybrid_layer_specs.py), core/ssm/mamba_mixer.py. A layer is a mixer or an MLP, each behind a norm of its own, as
Nemotron-H's are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.launchers import plan_facts
from planner.launchers.target import Loss
from planner.models.huggingface.pattern import LETTERS
from planner.schema.plan import Plan

PROGRAMS = ("pretrain_hybrid.py", "pretrain_mamba.py")
"""Of core_v0.18.0 and later; the one that core_v0.17.0 has for the same pattern."""
SPECIFICATION = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
FIXED: dict[str, Any] = {
    **{"kind": "mamba2", "convolution": 4, "convolution_bias": True, "bias": False, "norm": "full"},
    "chunk": 128,
}
"""What its Mamba layers are whatever the options."""
_LETTERS: dict[tuple[str, str], str] = {block: letter for letter, block in LETTERS.items()}


def is_one(shape: dict[str, Any]) -> bool:
    """Whether a model's layers are each a Mamba-2 mixer, attention, an MLP or a mixture alone."""
    carried = shape.get("recurrence") or {}
    return carried.get("kind") == FIXED["kind"] and all(block in _LETTERS for block in _blocks(shape))


def facts(plan: Plan) -> dict[str, Any]:
    """The pattern, chunk by chunk, and the state of its Mamba layers, in place of a number of layers."""
    carried = plan.workload.shape["recurrence"]
    return {
        "shape.layers": None,
        "specification": SPECIFICATION,
        "pattern": pattern(plan),
        **{f"recurrence.{field}": value for field, value in carried.items()},
    }


def pattern(plan: Plan) -> str:
    """``MEM*E|MEMEM``: a letter a layer, bars between pipeline chunks."""
    letters, chunks = "".join(_LETTERS[block] for block in _blocks(plan.workload.shape)), []
    for size in plan_facts.chunks(plan):
        chunks.append(letters[:size])
        letters = letters[size:]
    return "|".join(chunks)


def _blocks(shape: dict[str, Any]) -> list[tuple[str, str]]:
    """What mixes tokens in each layer and what follows, in order."""
    mixers, feeds = shape.get("mixers") or ("attention",), shape.get("feeds") or ("mlp",)
    return [(mixers[i % len(mixers)], feeds[i % len(feeds)]) for i in range(shape["layers"])]


def refuses(plan: Plan) -> Iterator[str]:
    """What its Mamba layers or a hybrid's steps have not."""
    shape, p = plan.workload.shape, plan.parallelism
    yield from _refused_states(plan, shape["recurrence"])
    if plan.workload.mtp_layers:
        yield "modules of multi-token prediction are patterns of their own, which a plan does not have"
    if plan.overlap.ep:
        yield "HybridModel has no combined steps of two micro-batches (--overlap-moe-expert-parallel-comm)"
    if plan.graphs:
        yield "CUDA graphs of Mamba layers are not priced (graphs=none)"
    if shape["qk_norm"] != "none" or shape["sinks"]:
        yield "norms on queries and keys, or sinks, are no part of its attention layers"
    if p.cp > 1:
        yield "context parallelism of Mamba layers is not priced (cp=1)"


def _refused_states(plan: Plan, carried: dict[str, Any]) -> Iterator[str]:
    for field, fixed in FIXED.items():
        if field != "chunk" and carried[field] != fixed:
            yield f"recurrence.{field} = {carried[field]}: its Mamba layers have {fixed}"
    tp = plan.parallelism.tp
    if carried["key_heads"] % tp:
        yield f"--mamba-num-groups {carried['key_heads']}: tp {tp} must divide it (core/ssm/mamba_mixer.py)"
    joined = 2 * carried["heads"] * carried["value_dim"] + 2 * carried["key_heads"] * carried["key_dim"]
    if plan.precision.startswith(("fp8", "mxfp8")) and (joined + carried["heads"]) % 16:
        yield f"in 8 bit {joined + carried['heads']:,} outputs of a Mamba layer's first product must divide by 16"


def loses(plan: Plan) -> Iterator[Loss]:
    """The release that it needs, and a kernel's chunk."""
    yield Loss("workload.shape.mixers", "needs Megatron-LM core_v0.18.0 (pretrain_hybrid.py) and its package mamba-ssm")
    if (chunk := plan.workload.shape["recurrence"]["chunk"]) != FIXED["chunk"]:
        yield Loss(
            "workload.shape.recurrence.chunk", f"its kernel works on {FIXED['chunk']} tokens at once, not {chunk}"
        )
