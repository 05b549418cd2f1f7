"""Megatron-LM: ``pretrain_gpt.py`` with its arguments and environment.

Flags read in, and tried on, NVIDIA/Megatron-LM core_v0.16.1 and d98e8a64 (0.20).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from planner.launchers import facts, positions, start
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, LaunchProgram, Loss, Values
from planner.schema.plan import Plan

PRECISION = {
    "fp32": (),
    "bf16": ("--bf16",),
    "fp16": ("--fp16", "--accumulate-allreduce-grads-in-fp32"),
    "fp8": ("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "delayed"),
    "mxfp8": ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
}
"""With ``--bf16`` gradients are kept and reduced in 32 bit, as the plan counts them; with ``--fp16`` only when told."""
FSDP_STRATEGY = {2: "optim_grads", 3: "optim_grads_params"}
CLAMPED = "gpt-oss's is --quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7.0"
"""As Megatron-LM's own configuration of gpt-oss 20B says (examples/post_training/modelopt/conf/openai)."""
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The command of one node."""
    argv = (
        *_parallelism(plan),
        *_model(plan.workload.shape, plan.workload.sequence, plan.parallelism.tp),
        *(("--mtp-num-layers", str(plan.workload.mtp_layers)) if plan.workload.mtp_layers else ()),
        *_rotary(plan.workload.shape, values),
        *_batch(plan),
        *_memory(plan),
        *_training(plan, values),
    )
    return LaunchJob(
        command=(*start.rendezvous(plan, values), LaunchProgram(values["megatron-lm"] + "/pretrain_gpt.py"), *argv),
        argv=argv,
        environment={**job.environment, **environment(plan), **plan.env},
        files=job.files,
        needed=job.needed,
    )


def environment(plan: Plan) -> dict[str, str]:
    """``CUDA_DEVICE_MAX_CONNECTIONS``: 1 for tensor or context parallelism before Blackwell, never 1 for FSDP."""
    p = plan.parallelism
    if p.zero_stage >= 2:
        return {CONNECTIONS: "8"}
    older = any("fp4" not in pool.peak_flops for pool in plan.cluster.pools)
    return {CONNECTIONS: "1"} if older and (p.tp > 1 or p.cp > 1) else {}


def layout(plan: Plan) -> str:
    """Chunks as a layout string: ``Et*7|t*9|t*9|t*6mL`` (E embedding, t layer, m multi-token prediction, L loss)."""
    sizes, modules = facts.chunks(plan), plan.workload.mtp_layers or 0
    words = [_repeated("t", n) for n in (*sizes[:-1], sizes[-1] - modules)]
    return f"E{'|'.join(words)}{_repeated('m', modules)}L"


def _repeated(word: str, times: int) -> str:
    return f"{word}*{times}" if times > 1 else word * times


def _parallelism(plan: Plan) -> Iterator[str]:
    p = plan.parallelism
    yield from ("--tensor-model-parallel-size", str(p.tp), "--pipeline-model-parallel-size", str(p.pp))
    if facts.values(plan)["stages"] == "uneven" or (p.pp > 1 and plan.workload.mtp_layers):
        yield from ("--pipeline-model-parallel-layout", layout(plan))
    elif p.vpp > 1:
        yield from ("--num-virtual-stages-per-pipeline-rank", str(p.vpp))
    yield from ("--context-parallel-size", str(p.cp))
    yield from ("--expert-model-parallel-size", str(p.ep)) if p.ep > 1 else ()
    yield from ("--expert-tensor-parallel-size", str(p.etp)) if plan.workload.shape.get("moe") else ()
    yield from ("--sequence-parallel",) if p.sequence_parallel else ()
    yield from ("--use-tp-pp-dp-mapping",) if p.rank_order == "tp-cp-ep-pp-dp" else ()
    yield from ("--tp-comm-overlap",) if plan.overlap.tp else ()
    yield from ("--no-overlap-p2p-communication",) if p.vpp > 1 and not plan.overlap.p2p else ()
    yield from _sharding(plan)


def _sharding(plan: Plan) -> Iterator[str]:
    p = plan.parallelism
    if p.zero_stage:
        yield "--use-distributed-optimizer"
        if facts.replicas(plan) > 1:
            yield from ("--num-distributed-optimizer-instances", str(facts.replicas(plan)))
    if p.zero_stage >= 2:
        yield from ("--use-megatron-fsdp", "--data-parallel-sharding-strategy", FSDP_STRATEGY[p.zero_stage])
        yield from ("--no-gradient-accumulation-fusion", "--ckpt-format", "fsdp_dtensor")
    if plan.overlap.dp:
        yield "--overlap-grad-reduce"
        yield from ("--overlap-param-gather",) if p.zero_stage else ()


def _model(shape: dict[str, Any], sequence: int, tp: int) -> Iterator[str]:
    yield from ("--num-layers", str(shape["layers"]), "--hidden-size", str(shape["hidden"]))
    yield from ("--ffn-hidden-size", str(shape["ffn"]), "--num-attention-heads", str(shape["heads"]))
    yield from _attention(shape)
    yield from ("--seq-length", str(sequence))
    positions = shape["learned_positions"]
    yield from ("--max-position-embeddings", str(max(positions, sequence)))
    yield from ("--position-embedding-type", "learned_absolute" if positions else "rope")
    yield from ("--normalization", {"rms": "RMSNorm", "layer": "LayerNorm"}[shape["norm"]])
    epsilon = shape.get("norm_epsilon")
    yield from ("--norm-epsilon", repr(epsilon)) if epsilon else ()
    yield from ("--swiglu",) if shape["gated"] else ()
    yield from _biases(shape)
    yield from () if shape["tied"] else ("--untie-embeddings-and-output-weights",)
    yield from ("--vocab-size", str(shape["vocab"]), "--make-vocab-size-divisible-by", str(_padding(shape, tp)))
    rate = "0.1" if shape["dropout"] else "0.0"
    yield from ("--attention-dropout", rate, "--hidden-dropout", rate)
    yield from _experts(shape["moe"], shape["layers"]) if shape["moe"] else ()


def _rotary(shape: dict[str, Any], values: Values) -> Iterator[str]:
    """Bases, and how sequences were stretched: latent attention has YaRN, the others have Llama 3's way."""
    if shape["learned_positions"]:
        return
    yield from ("--rotary-base", str(int(positions.base(shape, values))))
    known = positions.rotary(shape)
    if known is None:
        return
    yield from ("--rotary-percent", repr(known["share"])) if known["share"] != 1 else ()
    if shape["latent"]:
        yarn = known["scaling"] == "yarn"
        yield from ("--rotary-scaling-factor", repr(known["factor"] if yarn else 1.0))
        yield from (
            ("--mscale", repr(known["mscale"]), "--mscale-all-dim", repr(known["mscale_all_dim"])) if yarn else ()
        )
    elif known["scaling"] == "llama3":
        yield from ("--use-rope-scaling", "--rope-scaling-factor", repr(known["factor"]))


def _attention(shape: dict[str, Any]) -> Iterator[str]:
    latent, window = shape["latent"], shape["window"]
    if latent:
        yield "--multi-latent-attention"
        yield from ("--q-lora-rank", str(latent["query_rank"])) if latent["query_rank"] else ()
        yield from ("--kv-lora-rank", str(latent["kv_rank"]), "--qk-head-dim", str(latent["nope_dim"]))
        yield from ("--qk-pos-emb-head-dim", str(latent["rope_dim"]), "--v-head-dim", str(latent["value_dim"]))
    else:
        yield from ("--kv-channels", str(shape["head_dim"]))
        if shape["kv_heads"] != shape["heads"]:
            yield from ("--group-query-attention", "--num-query-groups", str(shape["kv_heads"]))
    yield from ("--qk-layernorm",) if shape["qk_norm"] != "none" or latent else ()
    if window:
        yield from ("--window-size", f"({window['size'] - 1},0)")
        yield from ("--window-attn-skip-freq", _pattern(windowed(shape))) if window["every"] > 1 else ()
    yield from ("--softmax-type", "learnable") if sinks(shape) else ()


def windowed(shape: dict[str, Any]) -> list[int]:
    """1 for every layer with a window, 0 for a full one, in order."""
    every, inverted = shape["window"]["every"], shape["window"]["inverted"]
    return [int((layer % every != every - 1) if inverted else (layer % every == 0)) for layer in range(shape["layers"])]


def mixtures(moe: dict[str, Any], layers: int) -> list[int]:
    """1 for every layer that is a mixture of experts, 0 for a dense one, in order."""
    lead, every = moe["leading_dense_layers"], moe["every"]
    return [int(layer >= lead and (layer - lead) % every == every - 1) for layer in range(layers)]


def _pattern(flags: list[int]) -> str:
    """A list as the Python expression that Megatron reads: ``([0]*3+[1]*58)``."""
    return "(" + "+".join(f"[{flag}]*{len([*same])}" for flag, same in groupby(flags)) + ")"


def linear_biases(shape: dict[str, Any]) -> dict[str, bool]:
    """The model's linear layers beside queries, keys and values: which of them have a bias."""
    moe = shape["moe"]
    dense = moe is None or not all(mixtures(moe, shape["layers"]))
    found = {"output": shape["output_bias"], **({"mlp": shape["mlp_bias"]} if dense else {})}
    return found | ({"router": moe["router_bias"], "experts": moe["expert_bias"]} if moe else {})


def _all_biased(shape: dict[str, Any]) -> bool:
    return bool(shape["qkv_bias"]) and all(linear_biases(shape).values())


def _biases(shape: dict[str, Any]) -> tuple[str, ...]:
    """Megatron has biases on all linear layers, on none, or on queries, keys and values alone.

    Its grouped experts add theirs themselves, and stop where that is to be fused with dropout.
    """
    if _all_biased(shape):
        return ("--no-bias-dropout-fusion",) if shape["moe"] else ()
    return ("--disable-bias-linear", *(("--add-qkv-bias",) if shape["qkv_bias"] else ()))


def sinks(shape: dict[str, Any]) -> bool:
    """Whether each head has an attention sink: a learnt offset in its softmax, one parameter a head and layer."""
    return bool(shape["extra_parameters_per_layer"] == shape["heads"])


def _padding(shape: dict[str, Any], tp: int) -> int:
    """The largest divisor, of Megatron's 128, with which the vocabulary stays as it is."""
    return math.gcd(shape["vocab"] // tp, 128) if shape["vocab"] % tp == 0 else 1


def _experts(moe: dict[str, Any], layers: int) -> Iterator[str]:
    yield from ("--num-experts", str(moe["experts"]), "--moe-router-topk", str(moe["experts_per_token"]))
    yield from ("--moe-router-pre-softmax",) if moe["experts_per_token"] == 1 else ()
    yield from ("--moe-ffn-hidden-size", str(moe["ffn"]))
    if moe["shared_ffn"]:
        yield from ("--moe-shared-expert-intermediate-size", str(moe["shared_ffn"]))
        yield from ("--moe-shared-expert-gate",) if moe["shared_gate"] else ()
    where = mixtures(moe, layers)
    yield from ("--moe-layer-freq", _pattern(where)) if not all(where) else ()
    yield from ("--moe-token-dispatcher-type", "alltoall", "--moe-grouped-gemm")


def _batch(plan: Plan) -> Iterator[str]:
    yield from ("--micro-batch-size", str(plan.batch.micro), "--global-batch-size", str(plan.batch.global_))


def _memory(plan: Plan) -> Iterator[str]:
    policy = plan.recompute.policy
    if policy == "selective":
        yield from ("--recompute-granularity", "selective", "--recompute-modules", "core_attn")
    elif policy != "none":
        method = "uniform" if policy == "full" else "block"
        number = 1 if policy == "full" else recomputed(plan)
        yield from ("--recompute-granularity", "full", "--recompute-method", method)
        yield from ("--recompute-num-layers", str(number))
    if plan.offload.get("optimizer"):
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0")
        yield "--use-precision-aware-optimizer"


def recomputed(plan: Plan) -> int:
    """Layers of a chunk that ``block`` recomputes: the plan's share of the largest chunk, rounded up."""
    return math.ceil(plan.recompute.layers_fraction * max(facts.chunks(plan)))


def _training(plan: Plan, values: Values) -> Iterator[str]:
    yield from PRECISION[plan.precision]
    yield from ("--cross-entropy-loss-fusion", "--optimizer", "sgd" if _sgd(plan) else "adam")
    yield from ("--lr", values["lr"], "--train-iters", str(facts.steps(plan)))
    # Read again where it saves: a job that is started anew goes on, and finds nothing there the first time.
    if plan.workload.method["kind"] == "finetune":
        yield from ("--pretrained-checkpoint", values["load"])
    yield from (
        "--load",
        values["save"],
        "--save",
        values["save"],
        "--save-interval",
        str(facts.steps_between_checkpoints(plan)),
    )
    yield from ("--data-path", values["data-path"])
    yield from ("--tokenizer-type", values["tokenizer-type"], "--tokenizer-model", values["tokenizer-model"])


def _sgd(plan: Plan) -> bool:
    return str(plan.workload.optimizer["id"]).startswith("sgd")


def refuses(plan: Plan) -> Iterator[str]:
    """What ``validate_args`` or a layer would stop at, and what has no flag."""
    p, shape = plan.parallelism, plan.workload.shape
    yield from facts.stages_fill_pools(plan)
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
    if (last := facts.chunks(plan)[-1]) < modules:
        yield f"all {modules} modules of multi-token prediction are in the last chunk, which holds {last} layers"
    if shape["moe"] and p.tp > 1 and not p.sequence_parallel:
        yield "a mixture of experts with tensor parallelism needs sequence parallelism (Megatron stops at run time)"
    if shape["embedding_width"] not in (0, shape["hidden"]):
        yield "an embedding narrower than the model has no flag"
    if shape["norms_per_layer"] > 2:
        yield f"{shape['norms_per_layer']} norms a layer have no flag"
    if shape["moe"] and _all_biased(shape) and p.etp > 1:
        yield f"biases of experts need etp 1, not {p.etp}"
    if shape["moe"] and _all_biased(shape) and shape["moe"]["shared_ffn"]:
        yield "shared experts have no biases"
    if not float((positions.rotary(shape) or {"base": 0})["base"]).is_integer():
        yield f"rotary base {shape['rotary']['base']}: --rotary-base takes whole numbers"
    if plan.offload.get("optimizer") and p.zero_stage != 1:
        yield "--optimizer-cpu-offload goes with the distributed optimizer (ZeRO-1)"
    if plan.env.get(CONNECTIONS, environment(plan).get(CONNECTIONS)) != environment(plan).get(CONNECTIONS):
        yield f"env {CONNECTIONS}={plan.env[CONNECTIONS]}: this plan needs {environment(plan)[CONNECTIONS]}"


def loses(plan: Plan) -> Iterator[Loss]:
    """Fields without a flag that leave the job what it is."""
    shape = plan.workload.shape
    yield from facts.other_runtime(plan, ("megatron-core",))
    yield from facts.shape_losses(plan)
    if any(linear_biases(shape).values()) and not _all_biased(shape):
        yield Loss("workload.shape biases", "Megatron has them on all linear layers, on none, or on q, k and v alone")
    if shape["qk_norm"] == "full":
        yield Loss("workload.shape.qk_norm", "--qk-layernorm normalises each head, not all heads together")
    if sinks(shape) and shape["gated"]:
        yield Loss("workload.shape.gated", f"a plan does not name the gate; --swiglu is written, {CLAMPED}")
    yield from positions.unknown(shape, "1e-5")
    yield from _rotary_losses(shape)
    for name in ("extra_parameters", "extra_parameters_per_layer", "token_types"):
        if shape[name] and not (name == "extra_parameters_per_layer" and sinks(shape)):
            yield Loss(f"workload.shape.{name}", "not part of pretrain_gpt.py's model")
    if shape["vocab"] % plan.parallelism.tp:
        yield Loss("workload.shape.vocab", f"padded to a multiple of tp {plan.parallelism.tp}")
    share = plan.recompute.layers_fraction * max(facts.chunks(plan))
    if plan.recompute.policy.startswith("block") and share != recomputed(plan):
        yield Loss("recompute.layers_fraction", f"rounded up to {recomputed(plan)} layers of a chunk")


_LLAMA3 = {"original": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"original": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What Megatron fixes of either way to stretch positions."""


def _rotary_losses(shape: dict[str, Any]) -> Iterator[Loss]:
    known = positions.rotary(shape)
    if known is None or known["scaling"] == "none":
        return
    field, way = "workload.shape.rotary", "yarn" if shape["latent"] else "llama3"
    if known["scaling"] != way:
        missing = "--position-embedding-type yarn" if way == "llama3" else "Llama 3's scaling with latent attention"
        yield Loss(f"{field}.scaling", f"core_v0.16.1 has no {missing}: positions are not stretched")
        return
    for name, fixed in (_YARN if way == "yarn" else _LLAMA3).items():
        if known[name] != fixed:
            yield Loss(f"{field}.{name}", f"has no option: {fixed} holds, the model has {known[name]}")
    if way == "llama3" and known["factor"] != 8:
        reason = (
            f"--rope-scaling-factor {known['factor']:g} is read, but pretrain_gpt.py builds with 8: hand it on there"
        )
        yield Loss(f"{field}.factor", reason)


EXPORTER = Exporter(
    name="megatron",
    title="Megatron-LM pretrain_gpt.py",
    version="core_v0.16.1",
    role="trainer",
    expresses={
        **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "stages", "pools", "sequence_parallel"), "any"),
        "zero": (0, 1, 2, 3),
        "zero_scope": ("full", "node"),
        "recompute": ("none", "selective", "full", "block"),
        "offload": ("none", "optimizer"),
        "precision": tuple(PRECISION),
        "rank_order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
        "method": ("pretrain", "finetune"),
        "optimizer": ("adamw", "sgd-momentum", "sgd"),
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
        positions.ROTARY,
        EnvironmentSetting("master-port", "port on node 0", "29500"),
    ),
    emit=emit,
    refuses=refuses,
    loses=loses,
    level="validated",
    validated_by="parse_args, validate_args, core_transformer_config_from_args of core_v0.16.1 and d98e8a64",
)
