"""torchtitan: a module with the model's shape (:mod:`planner.launchers.torchtitan_module`), and the command line.

The module is needed because torchtitan knows models, recomputation and 8-bit formats only as Python functions; every
degree and batch is an option. Written against, and tried on, torchtitan 0.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import plan_facts, rotary_and_norms, start, table
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.launchers.torchtitan_module import BALANCE, ROPE, family_of, module
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

MODULE = "plan_config"
FUNCTION = "plan"
TABLE = launcher_table("torchtitan")


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The module, and the command of one node."""
    argv = ("--module", MODULE, "--config", FUNCTION, *table.argv(TABLE, facts(plan, values)))
    return replace(
        job,
        command=(*start.rendezvous(plan, values), LaunchProgram("-m"), "torchtitan.train", *argv),
        argv=argv,
        environment={**job.environment, **plan.env, "PYTHONPATH": "."},
        files={**job.files, f"{MODULE}.py": module(plan, values)},
        needed=(*job.needed, f"{MODULE}.py"),
    )


def facts(plan: Plan, values: Values) -> table.Facts:
    """What options of the table say, of a plan and its job."""
    p = plan.parallelism
    piped = p.pp > 1
    layers = plan_facts.chunks(plan)
    even = piped and len(set(layers)) == 1
    decided = {
        "schedule": p.schedule if piped else None,
        "stages.micro": plan.batch.micro if piped else None,
        "stages.layers": layers[0] if even else None,
        "stages.less": 0 if even else None,
        "local_batch": local_batch(plan),
        "job.ungraphed": piped or p.ep > 1,
        "job.compiled": p.schedule not in SPLIT_SCHEDULES,
    }
    return table.plan_says(plan, values, decided)


def local_batch(plan: Plan) -> int:
    """Sequences of one forward pass of a replica; a pipeline takes all micro-batches of a step at once."""
    return plan.batch.micro * (plan.batch.accumulation if plan.parallelism.pp > 1 else 1)


def refuses(plan: Plan) -> Iterator[str]:
    """Shapes that the module cannot build, and meshes that torchtitan has no name for."""
    p, shape = plan.parallelism, plan.workload.shape
    yield from plan_facts.runs_on(plan, "nvidia", "amd")
    yield from plan_facts.stages_fill_pools(plan)
    yield from plan_facts.mesh_is_whole(plan)
    yield from plan_facts.blocks_are_attention(shape)
    plain = (
        shape["activation"] in ("swiglu", None)
        and shape["gated"]
        and shape["norm"] == "rms"
        and not shape["latent"]
        and not plan_facts.window(shape, plan.workload.sequence)
        and not shape["sinks"]
        and shape["norm_place"] == "pre"
        and not shape["norm_offset"]
        and shape["positions"] is None
    )
    biased = shape["qkv_bias"] or shape["output_bias"] or shape["mlp_bias"]
    if (
        not plain
        or biased
        or shape["learned_positions"]
        or shape["norms_per_layer"] != 2
        or shape["qk_norm"]
        in (
            "full",
            "unweighted",
        )
    ):
        yield "the module it needs is written for decoders like Llama 3 and Qwen 3 (gated, RMSNorm, rotary, no biases)"
    moe = shape["moe"]
    if moe and (moe["shared_ffn"] or moe["leading_dense_layers"] or moe["every"] > 1 or moe["router_bias"]):
        yield "the module it needs is written for mixtures like Qwen 3's (in every layer, none shared)"
    if moe and moe["router"] and (moe["router"]["on_input"] or moe["router"]["capacity"] or moe["router"]["z_loss"]):
        yield "its router has no scores on inputs, no capacity and no loss on its outputs"
    if plan.workload.mtp_layers:
        yield "the module it needs has no multi-token prediction"
    if (rotary := rotary_and_norms.rotary(shape)) and (rotary["share"] != 1 or rotary["skips"]):
        yield "the module it needs rotates whole heads of every layer, the model a part of them"
    if p.zero_stage == 0 and (p.tp > 1 or p.cp > 1 or p.pp > 1 or p.ep > 1):
        yield "ZeRO-0 is plain replicas, which do not go with tp, cp, pp or ep"
    if p.schedule == "1f1b" and plan.batch.accumulation < p.pp:
        yield f"torch's 1F1B needs a micro-batch for each of {p.pp} stages, a step has {plan.batch.accumulation}"
    _, shard = plan_facts.mesh(plan)
    if shard * p.cp * p.tp % p.ep:
        yield f"ep {p.ep} does not divide shards x cp x tp = {shard * p.cp * p.tp}"


def loses(plan: Plan) -> Iterator[Loss]:
    """What has no key."""
    yield from plan_facts.other_runtime(plan, ("fsdp2",))
    yield from plan_facts.shape_losses(plan)
    yield from rotary_and_norms.unknown(plan.workload.shape, "1e-5")
    yield from _rotary_losses(plan.workload.shape)
    yield from _router_losses(plan.workload.shape["moe"])
    if plan.workload.shape["extra_parameters"] or plan.workload.shape["extra_parameters_per_layer"]:
        yield Loss("workload.shape.extra_parameters", "not part of the module's model")


def _router_losses(moe: dict[str, Any] | None) -> Iterator[Loss]:
    if not moe:
        return
    router, field = moe["router"], "workload.shape.moe.router"
    balanced = f"experts' biases are moved towards balance instead (load_balance_coeff {BALANCE:g})"
    if router is None:
        yield Loss(field, f"not known of this model: softmax over the chosen experts; {balanced}")
    elif router["balance_loss"]:
        yield Loss(f"{field}.balance_loss", f"torchtitan has no auxiliary loss: {balanced}")


def _rotary_losses(shape: dict[str, Any]) -> Iterator[Loss]:
    known = rotary_and_norms.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[family_of(shape)] != "ComplexRoPE":
        yield Loss("workload.shape.rotary.scaling", f"{ROPE[family_of(shape)]} has no Llama 3 scaling: not stretched")
    if known["scaling"] == "yarn" and known["mscale"] != known["mscale_all_dim"]:
        yield Loss(
            "workload.shape.rotary.mscale", "the module stretches angles only: attention does not grow with them"
        )


EXPORTER = by_table("torchtitan", emit=emit, refuses=refuses, loses=loses)
