"""Megatron-LM: ``pretrain_gpt.py`` (of hybrids ``pretrain_hybrid.py``) with its arguments and environment.

Flags read in, and tried on, NVIDIA/Megatron-LM core_v0.16.1 and d98e8a64 (0.20).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.axes.table import ATTENTION_KERNEL
from planner.launchers import checks, megatron_hybrid, megatron_model, plan_facts, table, torchrun
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

TABLE = launcher_table("megatron")
PRECISIONS = ("fp32", *dict.fromkeys(value for option in TABLE.saying("precision") for value in option.values))
OPTIMIZERS = tuple(TABLE.options["optimizer"].values)
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The command of one node."""
    hybrid = megatron_hybrid.is_one(plan.workload.shape)
    program = values["megatron-lm"] + "/" + (megatron_hybrid.PROGRAMS[0] if hybrid else "pretrain_gpt.py")
    argv = arguments(plan, values)
    job = checks.with_check(plan, job, "megatron")
    return replace(
        job,
        command=(*torchrun.rendezvous(plan, values), LaunchProgram(checks.NAME), program, *argv),
        argv=argv,
        environment={**performance(plan), **job.environment, **environment(plan), **plan.env},
    )


def arguments(plan: Plan, values: Values) -> tuple[str, ...]:
    """All that the plan says, as options."""
    return tuple(table.argv(TABLE, facts(plan, values)))


def facts(plan: Plan, values: Values) -> table.Facts:
    """What options of the table say, of a plan and its job."""
    p = plan.parallelism
    shape = plan.workload.shape
    hybrid = megatron_hybrid.is_one(shape)
    pieces = layout(plan) if not hybrid and has_layout(plan) else None
    decided = {
        "layout": pieces,
        "vpp": None if hybrid or pieces else p.vpp,
        "cp_algorithm": (p.cp_algorithm or "p2p") if p.cp > 1 else None,
        "cp_levels": context_levels(plan),
        "etp": p.etp if shape["moe"] else None,
        "p2p_overlap": plan.overlap.p2p if p.vpp > 1 else None,
        "gather_overlap": gathers_beside(plan),
        "zero_replicas": plan_facts.replicas(plan) if p.zero_stage else None,
        "dispatcher": dispatcher(plan),
        **recomputation(plan),
        "offloaded_share": plan_facts.offloaded_share(plan) if plan.offload.get("optimizer") else None,
        "graphs.scope": {"full": "full_iteration", "modules": captured(plan)}.get(plan.graphs or ""),
        "offloaded_modules": offloaded_modules(plan) or None,
        "started_from": values["load"] if plan.workload.method["kind"] == "finetune" else None,
        "job.data-path": [word for pair in blend(values["data-path"]) for word in pair if word],
        **megatron_model.facts(shape, plan.workload.sequence, p.tp, values),
        **(megatron_hybrid.facts(plan) if hybrid else {}),
    }
    return table.plan_says(plan, values, decided)


def blend(text: str) -> list[tuple[str, str]]:
    """(weight, prefix) of each data set of ``0.7 /data/a 0.3 /data/b``; of a path alone, which may hold spaces."""
    words = text.split()
    several = len(words) > 1 and len(words) % 2 == 0 and all(re.fullmatch(r"\d*\.?\d+", word) for word in words[::2])
    return list(zip(words[::2], words[1::2], strict=True)) if several else [("", text)]


def dispatcher(plan: Plan) -> str | None:
    """How tokens reach experts on other ranks; None without experts."""
    return (plan.dispatcher or "alltoall") if plan.workload.shape["moe"] else None


def has_layout(plan: Plan) -> bool:
    """Whether the layers of every chunk are listed, because even ones would be other ones."""
    return plan_facts.values(plan)["stages"] == "uneven" or bool(plan.parallelism.pp > 1 and plan.workload.mtp_layers)


def gathers_beside(plan: Plan) -> bool:
    """Whether weights are gathered beside the forward pass."""
    return plan.overlap.dp and plan.parallelism.zero_stage > 0


def environment(plan: Plan) -> dict[str, str]:
    """``CUDA_DEVICE_MAX_CONNECTIONS``: 1 for tensor or context parallelism before Blackwell, never 1 for FSDP, and many
    where experts' exchanges run beside another micro-batch.
    """
    p = plan.parallelism
    # Megatron asks for it with Transformer Engine 2.10 and later, so that weights stay (training/arguments.py).
    away = {"NVTE_CPU_OFFLOAD_V1": "1"} if offloaded_modules(plan) else {}
    # And this of graphs by Transformer Engine where memory is in expandable segments, as :func:`performance` has it.
    away |= {"NCCL_GRAPH_REGISTER": "0"} if plan.graphs == "modules" else {}
    if plan.overlap.ep:
        return {CONNECTIONS: "32", **away}
    if p.zero_stage >= 2:
        return {CONNECTIONS: "8", **away}
    older = any("fp4" not in pool.peak_flops for pool in plan.cluster.pools)
    return {CONNECTIONS: "1", **away} if older and (p.tp > 1 or p.cp > 1) else away


SM_MARGIN = "16"
"""Multiprocessors that norms leave to communication beside them, as Megatron-Bridge's recipes do (067f987d)."""


def performance(plan: Plan) -> dict[str, str]:
    """What Megatron-Bridge's recipes set and the prediction takes for granted: no memory lost between blocks of other
    sizes, none held for streams, and processors left to communication where it overlaps.
    """
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}
    if plan.overlap.dp or plan.overlap.tp:
        variables |= dict.fromkeys(("NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN"), SM_MARGIN)
    return variables


def layout(plan: Plan) -> str:
    """Chunks as a layout string: ``Et*7|t*9|t*9|t*6mL`` (E embedding, t layer, m multi-token prediction, L loss)."""
    sizes, modules = plan_facts.chunks(plan), plan.workload.mtp_layers or 0
    words = [_repeated("t", n) for n in (*sizes[:-1], sizes[-1] - modules)]
    return f"E{'|'.join(words)}{_repeated('m', modules)}L"


def _repeated(word: str, times: int) -> str:
    return f"{word}*{times}" if times > 1 else word * times


def context_levels(plan: Plan) -> tuple[int, int] | None:
    """Context-parallel ranks that exchange heads, and of these groups a ring (``a2a+p2p``)."""
    p = plan.parallelism
    return (p.cp_exchanging, p.cp // p.cp_exchanging) if p.cp_exchanging else None


def recomputation(plan: Plan) -> dict[str, Any]:
    """The facts of recomputation, by the names of Megatron's configuration behind ``recompute.``; None is unsaid."""
    policy = plan.recompute.policy
    if policy == "none":
        return {}
    if policy.startswith("selective"):
        listed = policy.partition(":")[2] or "core_attn"
        return {"recompute.granularity": "selective", "recompute.modules": listed.split("+")}
    whole = policy == "full"
    return {
        "recompute.granularity": "full",
        "recompute.method": "uniform" if whole else "block",
        "recompute.layers": 1 if whole else recomputed(plan),
    }


def captured(plan: Plan) -> tuple[str, ...]:
    """Modules of the model's layers that CUDA graphs can hold: all but experts, nor dense MLPs where experts' exchanges
    run beside another micro-batch (core/transformer/transformer_config.py).
    """
    moe = plan.workload.shape["moe"]
    dense = not moe or (not plan.overlap.ep and (moe["leading_dense_layers"] or moe["every"] > 1))
    return ("attn", *(("moe_router", "moe_preprocess") if moe else ()), *(("mlp",) if dense else ()))


def offloaded_modules(plan: Plan) -> tuple[str, ...]:
    """Modules whose inputs live in host memory until the backward pass."""
    return plan.offloaded.activations if plan.offloaded else ()


def recomputed(plan: Plan) -> int:
    """Layers of a chunk that ``block`` recomputes: the plan's share of the largest chunk, rounded up."""
    return math.ceil(plan.recompute.layers_fraction * max(plan_facts.chunks(plan)))


def _optimizer(plan: Plan) -> str:
    return str(plan.workload.optimizer["id"])


def refuses(plan: Plan) -> Iterator[str]:
    """What ``validate_args`` or a layer would stop at, and what has no flag."""
    p, shape = plan.parallelism, plan.workload.shape
    yield from plan_facts.runs_on(plan, "nvidia", "amd")
    yield from plan_facts.stages_fill_pools(plan)
    on_stages = {stage.pool for group in p.groups for stage in group.stages if stage.cp > 1}
    for index, pool in enumerate(plan.cluster.pools if p.cp > 1 else ()):
        if "bf16" not in pool.peak_flops and (not p.groups or index in on_stages):
            yield f"context parallelism on {pool.accelerator} (pool {index}): its kernels begin with Ampere"
    if p.vpp > 1 and p.pp == 2 and not plan.overlap.p2p:
        yield "interleaving on 2 stages needs overlapped transfers (p2p_overlap)"
    if p.sequence_parallel and p.tp == 1:
        yield "sequence parallelism without tensor parallelism (Megatron would switch it off with a warning)"
    if plan.overlap.tp and not p.sequence_parallel:
        yield "--tp-comm-overlap needs sequence parallelism"
    modules = plan.workload.mtp_layers or 0
    if modules and shape["learned_positions"]:
        yield "multi-token prediction needs rotary positions"
    if (last := plan_facts.chunks(plan)[-1]) < modules:
        yield f"all {modules} modules of multi-token prediction are in the last chunk, which holds {last} layers"
    if shape["moe"] and p.tp > 1 and not p.sequence_parallel:
        yield "a mixture of experts with tensor parallelism needs sequence parallelism (Megatron stops at run time)"
    if shape["moe"] and megatron_model.all_biased(shape) and p.etp > 1:
        yield f"biases of experts need etp 1, not {p.etp}"
    if shape["moe"] and megatron_model.all_biased(shape) and shape["moe"]["shared_ffn"]:
        yield "shared experts have no biases"
    if shape["moe"] and megatron_model.all_biased(shape) and p.zero_stage and _optimizer(plan) == "muon":
        yield "biases of experts with Muon's shards of whole matrices (core/optimizer/__init__.py)"
    yield from megatron_model.refuses(shape, plan.workload.sequence)
    yield from megatron_hybrid.refuses(plan) if megatron_hybrid.is_one(shape) else ()
    if plan.offload.get("optimizer") and p.zero_stage != 1:
        yield "--optimizer-cpu-offload goes with the distributed optimizer (ZeRO-1)"
    if plan.env.get(CONNECTIONS, environment(plan).get(CONNECTIONS)) != environment(plan).get(CONNECTIONS):
        yield f"env {CONNECTIONS}={plan.env[CONNECTIONS]}: this plan needs {environment(plan)[CONNECTIONS]}"


def loses(plan: Plan) -> Iterator[Loss]:
    """Fields without a flag that leave the job what it is."""
    yield from plan_facts.other_runtime(plan, ("megatron-core",))
    yield from plan_facts.shape_losses(plan)
    yield from megatron_model.loses(plan.workload.shape, plan.parallelism.tp)
    if megatron_hybrid.is_one(plan.workload.shape):
        yield from megatron_hybrid.loses(plan)
    if _optimizer(plan) == "muon":
        yield Loss("workload.optimizer", "needs Megatron-LM core_v0.18.0 and its package emerging-optimizers")
    if str(ATTENTION_KERNEL.of(plan)).startswith("flash"):
        needs = "needs Megatron-LM core_v0.19.0 and Transformer Engine 2.18, which name a version"
        yield Loss(ATTENTION_KERNEL.name, needs)
    share = plan.recompute.layers_fraction * max(plan_facts.chunks(plan))
    if plan.recompute.policy.startswith("block") and share != recomputed(plan):
        yield Loss("recompute.layers_fraction", f"rounded up to {recomputed(plan)} layers of a chunk")


EXPORTER = by_table("megatron", emit=emit, refuses=refuses, loses=loses)
