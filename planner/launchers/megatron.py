"""Megatron-LM: ``pretrain_gpt.py`` (of hybrids ``pretrain_hybrid.py``) with its arguments and environment.

Flags read in, and tried on, NVIDIA/Megatron-LM core_v0.16.1 and d98e8a64 (0.20).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import megatron_hybrid, megatron_model, plan_facts, profiles, rotary_and_norms, start
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, LaunchProgram, Loss, Values
from planner.schema.plan import Plan
from planner.schema.plan_layout import FUSED

PRECISION = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16", "--accumulate-allreduce-grads-in-fp32"),
    "fp8": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"),
    "fp8-delayed": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "delayed"),
    "fp8-blockwise": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "blockwise"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format", "e2m1", "--fp4-recipe", "nvfp4"),
}
"""With ``--bf16`` gradients are kept and reduced in 32 bit, as the plan counts them; with ``--fp16`` only when told."""
FSDP_STRATEGY = {2: "optim_grads", 3: "optim_grads_params"}
OPTIMIZER = {"adamw": "adam", "sgd-momentum": "sgd", "sgd": "sgd", "muon": "muon"}
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The command of one node."""
    program = megatron_hybrid.PROGRAMS[0] if megatron_hybrid.is_one(plan.workload.shape) else "pretrain_gpt.py"
    argv = arguments(plan, values)
    return replace(
        job,
        command=(*start.rendezvous(plan, values), LaunchProgram(values["megatron-lm"] + "/" + program), *argv),
        argv=argv,
        environment={**performance(plan), **job.environment, **environment(plan), **plan.env},
    )


def arguments(plan: Plan, values: Values) -> tuple[str, ...]:
    """All that the plan says, as options."""
    return (
        *_parallelism(plan),
        *megatron_model.options(plan.workload.shape, plan.workload.sequence, plan.parallelism.tp, values),
        *(megatron_hybrid.options(plan) if megatron_hybrid.is_one(plan.workload.shape) else ()),
        *_dispatched(plan),
        *(("--mtp-num-layers", str(plan.workload.mtp_layers)) if plan.workload.mtp_layers else ()),
        *_batch(plan),
        *_memory(plan),
        *_training(plan, values),
    )


def dispatched(plan: Plan) -> dict[str, str]:
    """Names of Megatron's configuration for how tokens reach experts -> what they are; nothing without experts."""
    if not plan.workload.shape["moe"]:
        return {}
    name = plan.dispatcher or "alltoall"
    fused = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": name}
    return fused if name in FUSED else {"moe_token_dispatcher_type": name}


def _dispatched(plan: Plan) -> Iterator[str]:
    for name, value in dispatched(plan).items():
        yield from ("--" + name.replace("_", "-"), value)


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
    found = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_NCCL_AVOID_RECORD_STREAMS": "1"}
    if plan.overlap.dp or plan.overlap.tp:
        found |= dict.fromkeys(("NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN"), SM_MARGIN)
    return found


def layout(plan: Plan) -> str:
    """Chunks as a layout string: ``Et*7|t*9|t*9|t*6mL`` (E embedding, t layer, m multi-token prediction, L loss)."""
    sizes, modules = plan_facts.chunks(plan), plan.workload.mtp_layers or 0
    words = [_repeated("t", n) for n in (*sizes[:-1], sizes[-1] - modules)]
    return f"E{'|'.join(words)}{_repeated('m', modules)}L"


def _repeated(word: str, times: int) -> str:
    return f"{word}*{times}" if times > 1 else word * times


def _parallelism(plan: Plan) -> Iterator[str]:
    p = plan.parallelism
    yield from ("--tensor-model-parallel-size", str(p.tp), "--pipeline-model-parallel-size", str(p.pp))
    if megatron_hybrid.is_one(plan.workload.shape):
        pass  # bars in its pattern
    elif plan_facts.values(plan)["stages"] == "uneven" or (p.pp > 1 and plan.workload.mtp_layers):
        yield from ("--pipeline-model-parallel-layout", layout(plan))
    elif p.vpp > 1:
        yield from ("--num-virtual-stages-per-pipeline-rank", str(p.vpp))
    yield from ("--context-parallel-size", str(p.cp))
    yield from ("--cp-comm-type", p.cp_algorithm or "p2p") if p.cp > 1 else ()
    yield from ("--hierarchical-context-parallel-sizes", *map(str, levels)) if (levels := context_levels(plan)) else ()
    yield from ("--expert-model-parallel-size", str(p.ep)) if p.ep > 1 else ()
    yield from ("--expert-tensor-parallel-size", str(p.etp)) if plan.workload.shape.get("moe") else ()
    yield from ("--sequence-parallel",) if p.sequence_parallel else ()
    yield from ("--use-tp-pp-dp-mapping",) if p.rank_order == "tp-cp-ep-pp-dp" else ()
    yield from ("--tp-comm-overlap",) if plan.overlap.tp else ()
    yield from ("--no-overlap-p2p-communication",) if p.vpp > 1 and not plan.overlap.p2p else ()
    yield from ("--overlap-moe-expert-parallel-comm",) if plan.overlap.ep else ()
    yield from _sharding(plan)


def context_levels(plan: Plan) -> tuple[int, int] | None:
    """Context-parallel ranks that exchange heads, and of these groups a ring (``a2a+p2p``)."""
    p = plan.parallelism
    return (p.cp_exchanging, p.cp // p.cp_exchanging) if p.cp_exchanging else None


def _sharding(plan: Plan) -> Iterator[str]:
    p = plan.parallelism
    if p.zero_stage:
        yield "--use-distributed-optimizer"
        if plan_facts.replicas(plan) > 1:
            yield from ("--num-distributed-optimizer-instances", str(plan_facts.replicas(plan)))
    if p.zero_stage >= 2:
        yield from ("--use-megatron-fsdp", "--data-parallel-sharding-strategy", FSDP_STRATEGY[p.zero_stage])
        yield from ("--no-gradient-accumulation-fusion", "--ckpt-format", "fsdp_dtensor")
    if plan.overlap.dp:
        yield "--overlap-grad-reduce"
        yield from ("--overlap-param-gather",) if p.zero_stage else ()


def _batch(plan: Plan) -> Iterator[str]:
    yield from ("--micro-batch-size", str(plan.batch.micro), "--global-batch-size", str(plan.batch.global_))


def _memory(plan: Plan) -> Iterator[str]:
    policy = plan.recompute.policy
    if policy.startswith("selective"):
        listed = policy.partition(":")[2] or "core_attn"
        yield from ("--recompute-granularity", "selective", "--recompute-modules", *listed.split("+"))
    elif policy != "none":
        method = "uniform" if policy == "full" else "block"
        number = 1 if policy == "full" else recomputed(plan)
        yield from ("--recompute-granularity", "full", "--recompute-method", method)
        yield from ("--recompute-num-layers", str(number))
    if plan.offload.get("optimizer"):
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", str(plan_facts.offloaded_share(plan)))
        yield "--use-precision-aware-optimizer"
    if plan.offloaded and plan.offloaded.optimizer_overlap:
        yield "--overlap-cpu-optimizer-d2h-h2d"
    if plan.graphs == "full":
        yield from ("--cuda-graph-impl", "local", "--cuda-graph-scope", "full_iteration")
        yield "--no-check-for-nan-in-loss-and-grad"
    elif plan.graphs:
        yield from (
            "--cuda-graph-impl",
            "transformer_engine",
            "--cuda-graph-scope",
            *captured(plan),
            "--te-rng-tracker",
        )
    if named := offloaded_modules(plan):
        yield from ("--fine-grained-activation-offloading", "--offload-modules", *named)


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


def _training(plan: Plan, values: Values) -> Iterator[str]:
    yield from PRECISION[plan.precision]
    yield from ("--cross-entropy-loss-fusion", "--optimizer", OPTIMIZER[_optimizer(plan)])
    yield from ("--muon-tp-mode", "duplicated") if _optimizer(plan) == "muon" else ()
    # Python's collector stops ranks one after the other unless all collect at the same step.
    yield from ("--manual-gc", "--manual-gc-interval", "100", "--lr", values["lr"])
    # The prediction counts no evaluation; without an interval Megatron divides by None (training.py 3307 of 0.16.1).
    steps = str(plan_facts.steps(plan))
    yield from ("--train-iters", steps, "--eval-iters", "0", "--eval-interval", steps)
    # Read again where it saves: a job that is started anew goes on, and finds nothing there the first time.
    if plan.workload.method["kind"] == "finetune":
        yield from ("--pretrained-checkpoint", values["load"])
    yield from (
        "--load",
        values["save"],
        "--save",
        values["save"],
        "--save-interval",
        str(plan_facts.steps_between_checkpoints(plan)),
    )
    yield from ("--data-path", values["data-path"])
    yield from ("--tokenizer-type", values["tokenizer-type"], "--tokenizer-model", values["tokenizer-model"])


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
    yield from megatron_hybrid.loses(plan) if megatron_hybrid.is_one(plan.workload.shape) else ()
    if _optimizer(plan) == "muon":
        yield Loss("workload.optimizer", "needs Megatron-LM core_v0.18.0 and its package emerging-optimizers")
    share = plan.recompute.layers_fraction * max(plan_facts.chunks(plan))
    if plan.recompute.policy.startswith("block") and share != recomputed(plan):
        yield Loss("recompute.layers_fraction", f"rounded up to {recomputed(plan)} layers of a chunk")


EXPORTER = Exporter(
    name="megatron",
    title="Megatron-LM pretrain_gpt.py",
    version="core_v0.16.1",
    role="trainer",
    runtime="megatron-core",
    expresses={
        **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "stages", "pools", "sequence_parallel"), "any"),
        "schedule": ("1f1b",),
        "zero": (0, 1, 2, 3),
        "zero_scope": ("full", "node"),
        "recompute": ("none", "selective", "full", "block"),
        "offload": ("none", "optimizer", "part"),
        "offload_overlap": (False, True),
        "activation_offload": ("none", "modules"),
        "graphs": ("none", "modules", "full"),
        "precision": tuple(PRECISION),
        "rank_order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        "method": ("pretrain", "finetune"),
        "task": ("sft",),
        "optimizer": tuple(OPTIMIZER),
        "family": ("decoder",),
    },
    settings=(
        EnvironmentSetting("megatron-lm", "folder of a Megatron-LM checkout"),
        EnvironmentSetting("data-path", "indexed dataset (prefix of .bin and .idx)"),
        EnvironmentSetting("tokenizer-model", "tokenizer file or Hugging Face id"),
        EnvironmentSetting("save", "folder for checkpoints"),
        EnvironmentSetting("load", "folder of the checkpoint to start from"),
        EnvironmentSetting("tokenizer-type", "kind of tokenizer", "HuggingFaceTokenizer"),
        EnvironmentSetting("lr", "learning rate, which a plan does not choose", "1.0e-4"),
        rotary_and_norms.ROTARY,
        EnvironmentSetting("master-port", "port on node 0", "29500"),
        profiles.EXTRA,
    ),
    emit=emit,
    refuses=refuses,
    loses=loses,
    level="validated",
    validated_by="parse_args, validate_args, core_transformer_config_from_args of core_v0.16.1 and d98e8a64",
)
