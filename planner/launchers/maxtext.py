"""MaxText on TPUs: its trainer with all that a plan says as ``key=value`` over its own ``base.yml``.

On the command line, since a model's file would lead over a file of ours (pyconfig.py, _initialize_pydantic). Keys and
their checks: AI-Hypercomputer/maxtext e591f30c, configs/base.yml and types.py; the model's: models/*.yml,
layers/attentions.py, embeddings.py and moe.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import checks, plan_facts, quoting, table, tpu
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

AXES = ("tensor", "context", "expert", "fsdp", "data", "pipeline")
"""Axes of its mesh, innermost first."""
TABLE = launcher_table("maxtext")
CONTEXT = TABLE.options["context_parallel_strategy"].values
"""How context-parallel ranks share a sequence -> its word."""
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": 8192}
"""What its Llama 3 positions fix (embeddings.py, LLaMARotaryEmbedding)."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """One process a host; JAX finds the others by itself."""
    job = checks.with_check(plan, job, "maxtext")
    options = table.document(TABLE, _facts(plan, values))
    argv = tuple(f"{key}={_word(value)}" for key, value in options.items())
    return replace(
        job,
        command=("python3", LaunchProgram(checks.NAME), "maxtext.trainers.pre_train.train", *argv),
        argv=argv,
        environment={**job.environment, **plan.env},
    )


def _word(value: object) -> str:
    """As OmegaConf reads it; empty texts and lists in its own way."""
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def degrees(plan: Plan) -> dict[str, int]:
    """Axis of the mesh -> ranks: experts are spread over some of the data-parallel ranks, weights over the rest."""
    p = plan.parallelism
    replicate, shard = plan_facts.mesh(plan)
    return dict(zip(AXES, (p.tp, p.cp, p.ep, max(shard // p.ep, 1), replicate, p.pp), strict=True))


def split(plan: Plan) -> dict[str, tuple[int, int]] | None:
    """Axis -> its ranks inside a slice and over slices, the innermost filling slices first; None where none does."""
    left, found = tpu.chips(plan), {}
    for axis, degree in degrees(plan).items():
        inside = max(n for n in range(1, degree + 1) if degree % n == 0 and left % n == 0)
        found[axis] = (inside, degree // inside)
        left //= inside
    return found if left == 1 else None


def _facts(plan: Plan, values: Values) -> table.Facts:
    """What keys of the table say, of a plan and its job."""
    p = plan.parallelism
    batch = plan.batch
    piped = p.pp > 1
    mesh = split(plan) or {}
    sequences = batch.global_ if piped else batch.micro * p.dp
    decided = {
        **_model_facts(plan.workload.shape, values),
        "slices": tpu.slices(plan),
        **{f"inside.{axis}": inside for axis, (inside, _) in mesh.items()},
        **{f"over.{axis}": over for axis, (_, over) in mesh.items()},
        "cp_algorithm": (p.cp_algorithm or "p2p") if p.cp > 1 else None,
        "device_batch": sequences / plan.cluster.accelerators,
        "stages.micro_batches": batch.accumulation if piped else None,
        "stages.layers": plan.workload.shape["layers"] // p.pp if piped else None,
        "stages.repeats": 1 if piped else None,
        "whole.accumulation": None if piped else batch.accumulation,
        "mtp": plan.workload.mtp_layers or 0,
        "started_from": values["load"] if plan.workload.method["kind"] == "finetune" else None,
        "job.name": quoting.slug(plan.workload.model),
    }
    return table.plan_says(plan, values, decided)


def block(shape: dict[str, Any]) -> str:
    """The kind of block that builds the model."""
    if shape["latent"]:
        return "deepseek"
    normalised = shape["qk_norm"] == "head"
    if shape["moe"]:
        return "qwen3_moe" if normalised else "mixtral"
    return "qwen3" if normalised else "qwen2" if shape["qkv_bias"] else "llama2"


def _model_facts(shape: dict[str, Any], values: Values) -> dict[str, Any]:
    """What keys of the table say of the model, beyond the fields of its shape."""
    moe = shape["moe"]
    router = (moe and moe["router"]) or {}
    return {
        "block": block(shape),
        # Where no layer is dense, the width of experts, as its own configurations have it.
        "dense_width": int(shape["ffn"] if moe is None or moe["leading_dense_layers"] else moe["ffn"]),
        "norm_epsilon": shape["norm_epsilon"] or 1e-5,
        "normed_heads": shape["qk_norm"] == "head",
        "latent": bool(shape["latent"]),
        "shared_experts": moe["shared_ffn"] // moe["ffn"] if moe else None,
        "balance_loss": router.get("balance_loss", 0.0) if moe else None,
        "capacity": (router.get("capacity") or -1.0) if moe else None,
        **_routing(router),
        **_rotary(shape, values),
    }


def _routing(router: dict[str, Any]) -> dict[str, Any]:
    if router.get("score") != "sigmoid":
        return {"normalised": router.get("normalised")}
    groups = ("groups", "groups_per_token") if router["groups"] > 1 else ()
    return {
        "routed.biased": router["bias_rate"] > 0,
        **{f"routed.{name}": router[name] for name in ("scaling", "bias_rate", *groups)},
    }


def _rotary(shape: dict[str, Any], values: Values) -> dict[str, Any]:
    rotary = plan_facts.rotary(shape) or {"scaling": "none"}
    facts = {"rotary.base": int(plan_facts.rotary_base(shape, values)), "rotary.scaling": rotary["scaling"]}
    if rotary["scaling"] != "yarn":
        return facts
    names = ("factor", "original", "beta_fast", "beta_slow", "truncate", "mscale")
    yarn = {"positions": int(rotary["original"] * rotary["factor"]), **{name: rotary[name] for name in names}}
    return facts | {f"yarn.{name}": value for name, value in yarn.items()}


def refuses(plan: Plan) -> Iterator[str]:
    """What its checks would stop at, and what has no key."""
    p = plan.parallelism
    if not all(tpu.is_one(pool) for pool in plan.cluster.pools):
        yield from plan_facts.runs_on(plan, "google")
        return
    yield from tpu.refuses(plan)
    yield from plan_facts.mesh_is_whole(plan)
    if p.dp % p.ep or (p.zero_stage and plan_facts.mesh(plan)[1] % p.ep):
        yield f"experts over {p.ep} ranks, which do not divide those that share weights"
    elif split(plan) is None:
        yield f"degrees that do not fill slices of {tpu.chips(plan):,} chips"
    if p.cp > 1 and CONTEXT[p.cp_algorithm or "p2p"] == "ring" and plan.workload.sequence % p.cp**2:
        yield f"a ring of {p.cp} ranks needs sequences that divide by {p.cp**2}"
    if p.pp > 1 and plan.batch.accumulation % p.pp:
        yield f"{plan.batch.accumulation} micro-batches for {p.pp} stages: they must divide"
    if p.pp > 1 and plan.workload.shape["moe"] and plan.workload.shape["moe"]["leading_dense_layers"]:
        yield "pipelines with leading dense layers"
    if plan.workload.mtp_layers and p.pp > 1:
        yield "multi-token prediction in a pipeline"
    yield from _refused_models(plan.workload.shape, plan.workload.sequence)


def _refused_models(shape: dict[str, Any], sequence: int) -> Iterator[str]:
    """What is known of the model and has no key: another one would be trained."""
    yield from plan_facts.blocks_are_attention(shape)
    if (shape["activation"] or "swiglu") != "swiglu" or not shape["gated"]:
        yield f"the activation {shape['activation']} has no block there"
    if shape["norm"] != "rms" or shape["norm_place"] != "pre" or shape["norms_per_layer"] != 2:
        yield f"{shape['norms_per_layer']} {shape['norm']} norms a layer, {shape['norm_place']}, have no block there"
    if shape["norm_offset"] or shape["embedding_width"] not in (0, shape["hidden"]):
        yield "norms with an offset or narrower embeddings have no block there"
    if shape["output_bias"] or shape["mlp_bias"] or (shape["moe"] and shape["qkv_bias"]):
        yield "biases are on q, k and v of dense models alone"
    if shape["qk_norm"] not in ("none", "head") or shape["sinks"] or plan_facts.window(shape, sequence):
        yield "this attention (norms of queries and keys, sinks or windows) has no block there"
    if shape["learned_positions"] or shape["positions"]:
        yield "positions are rotary there, in every layer"
    yield from _refused_positions(shape)
    yield from _refused_experts(shape)


def _refused_positions(shape: dict[str, Any]) -> Iterator[str]:
    known = plan_facts.rotary(shape)
    if known is None:
        return
    if known["share"] != 1 or known["skips"]:
        yield "rotary positions are of whole heads in every layer there"
    if known["scaling"] == "llama3" and any(known[name] != value for name, value in _LLAMA3.items()):
        yield f"Llama 3's positions are stretched {_LLAMA3['factor']:g} times there, the model's {known['factor']:g}"
    if known["scaling"] == "yarn" and not shape["latent"]:
        yield "YaRN goes with latent attention there"


def _refused_experts(shape: dict[str, Any]) -> Iterator[str]:
    moe = shape["moe"]
    if moe is None:
        yield from ["latent attention goes with experts there"] if shape["latent"] else []
        return
    router = moe["router"]
    if moe["every"] != 1 or (moe["leading_dense_layers"] and not shape["latent"]):
        yield "dense layers between experts have no block there"
    if moe["shared_gate"] or moe["router_bias"] or moe["expert_bias"] or moe["shared_ffn"] % moe["ffn"]:
        yield "gates of shared experts, biases or shared experts of another width have no key"
    if moe["shared_ffn"] and not shape["latent"]:
        yield "shared experts go with latent attention there"
    if shape["latent"] and not (router and router["score"] == "sigmoid" and router["normalised"]):
        yield "latent attention goes with sigmoid scores that add up to 1 there"
    if router and router["score"] == "softmax" and (not router["normalised"] or router["groups"] > 1):
        yield "softmax scores are those of the chosen experts, in one group, there"
    if router and router["on_input"]:
        yield "scores on experts' inputs have no key"


def loses(plan: Plan) -> Iterator[Loss]:
    """What the compiler decides, and what its policy computes again."""
    yield from plan_facts.other_runtime(plan, ("maxtext",))
    yield from plan_facts.shape_losses(plan)
    yield from _model_losses(plan.workload.shape)
    if plan.recompute.policy == "none":
        yield Loss("recompute.policy", "products are kept, norms and functions between them are computed again")
    if plan.overlap.tp or plan.overlap.dp or plan.overlap.p2p:
        yield Loss("overlap", "the compiler decides what overlaps (LIBTPU_INIT_ARGS says more)")


def _model_losses(shape: dict[str, Any]) -> Iterator[Loss]:
    """What is not known of the model, or balanced otherwise."""
    moe = shape["moe"]
    router = moe and moe["router"]
    if moe and router is None:
        yield Loss("workload.shape.moe.router", "not known of this model: softmax over the chosen experts, no balance")
    if router and router["balance"] == "sequence":
        yield Loss("workload.shape.moe.router.balance", "balanced over the batch, not in each sequence")
    if router and router["z_loss"]:
        yield Loss("workload.shape.moe.router.z_loss", "has no key for routers")
    yield from plan_facts.unknown_norms_and_positions(shape, "1e-5")


EXPORTER = by_table("maxtext", emit=emit, refuses=refuses, loses=loses)
