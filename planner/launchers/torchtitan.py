"""torchtitan: a module with the model's shape, and the command line.

The module is needed because torchtitan knows models, recomputation and 8-bit formats only as Python functions; every
degree and batch is an option. Written against, and tried on, torchtitan 0.3.0 and main of August 2026 (b5bcd76c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from planner.launchers import checks, plan_facts, quoting, table, torchrun
from planner.launchers.scripts import script
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

MODULE = "plan_config"
FUNCTION = "plan"
RANDOM_TOKENS = "plan_on_random_tokens"
"""Module beside the plan's, whose configuration it changes; the configuration is called the same."""
TABLE = launcher_table("torchtitan")
CONVERTERS = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter"}
ROPE = {"llama3": "ComplexRoPE", "qwen3": "CosSinRoPE"}
MIXTURE = ("make_moe_config", "make_routed_experts_config", "make_router_config")
"""What builds a mixture of experts in place of an MLP."""
POLICIES = {"none": None, "selective": "SelectiveAC", "full": "FullAC"}
BALANCE = 1e-3
"""Step by which torchtitan moves experts' biases towards balance, by default and in its own Qwen 3 configurations."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The module, and the command of one node."""
    job = checks.with_check(plan, job, "torchtitan")
    argv = ("--module", MODULE, "--config", FUNCTION, *table.argv(TABLE, facts(plan, values)))
    return replace(
        job,
        command=(*torchrun.rendezvous(plan, values), LaunchProgram(checks.NAME), "torchtitan.train", *argv),
        argv=argv,
        environment={**job.environment, **plan.env, "PYTHONPATH": "."},
        files={**job.files, f"{MODULE}.py": module(plan, values)},
        needed=(*job.needed, f"{MODULE}.py"),
    )


def measured(job: LaunchJob) -> LaunchJob:
    """The job on random tokens: torchtitan has no mock data, and its own test data are in its repository only."""
    command, argv = (
        tuple(RANDOM_TOKENS if word == MODULE else word for word in words) for words in (job.command, job.argv)
    )
    name = f"{RANDOM_TOKENS}.py"
    files = {**job.files, name: script("torchtitan_random_tokens.py", PLAN=MODULE)}
    return replace(job, command=command, argv=argv, files=files, needed=(*job.needed, name))


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


def model_parts(plan: Plan) -> list[list[str]]:
    """Names of the modules of every chunk, in the order of the layers."""
    parts: list[list[str]] = []
    layer = 0
    for size in plan_facts.chunks(plan):
        parts.append([f"layers.{n}" for n in range(layer, layer + size)])
        layer += size
    return [["tok_embeddings", *parts[0]], *parts[1:-1], [*parts[-1], "norm", "lm_head"]]


def module(plan: Plan, values: Values) -> str:
    """The module's text. Only numbers and names of this file go into it; texts of the plan stay in comments."""
    shape, moe = plan.workload.shape, plan.workload.shape["moe"]
    family = family_of(shape)
    prefix = family.capitalize()
    uneven = len(set(plan_facts.chunks(plan))) > 1
    filled = {
        "ANGLES": _angles(shape, values),
        "RATE": values["lr"],
        "EPSILON": repr(shape.get("norm_epsilon") or 1e-5),
        "HEADER": quoting.comments(f"{plan.workload.name}: the model and what torchtitan takes as code."),
        "FAMILY": family,
        "PREFIX": prefix,
        "PARALLELIZE": f"parallelize_{'llama' if family == 'llama3' else family}",
        "ROPE": ROPE[family],
        "CONVERTER_IMPORT": _imported("components.quantization", CONVERTERS.get(plan.precision)),
        "RECOMPUTE_IMPORT": _imported("distributed.activation_checkpoint", POLICIES[plan.recompute.policy]),
        "BLOCKS": ",\n    ".join(MIXTURE) if moe else "make_ffn_config",
        "HOOK_IMPORT": ", register_moe_load_balancing_hook" if moe else "",
        "HOOK": "register_moe_load_balancing_hook" if moe else "None",
        "BODY": (_mixture(moe) if moe else script("torchtitan_dense.py")).rstrip(),
        "QK_NORM": "norm(HEAD_DIM)" if shape["qk_norm"] == "head" else "None",
        "TYING": str(bool(shape["tied"])),
        "CONVERTERS": f"[{_made(CONVERTERS.get(plan.precision), 'model_compile_enabled=True')}]",
        "RECOMPUTE": _made(POLICIES[plan.recompute.policy]) or "None",
        "PARTS": repr(model_parts(plan)) if uneven else "None",
        "SIZES": _sizes(shape, moe, plan.workload.sequence),
    }
    return script("torchtitan.py", **filled)


def family_of(shape: dict[str, Any]) -> str:
    """Whose blocks the module takes."""
    return "qwen3" if shape["qk_norm"] == "head" or shape["moe"] else "llama3"


def _angles(shape: dict[str, Any], values: Values) -> str:
    """Base and scaling of the rotary positions, as arguments."""
    rope: dict[str, object] = {"theta": plan_facts.rotary_base(shape, values)}
    known = plan_facts.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[family_of(shape)] == "ComplexRoPE":
        rope |= {"scaling": "llama", "scaling_factor": known["factor"]}
        rope |= {name: known[name] for name in ("low_freq_factor", "high_freq_factor")}
        rope |= {"original_max_position_embeddings": known["original"]}
    elif known["scaling"] == "yarn":
        rope |= {"scaling": "yarn", "rope_factor": known["factor"], "original_seq_len": known["original"]}
        rope |= {name: known[name] for name in ("beta_fast", "beta_slow", "truncate")}
    return ", ".join(f"{name}={value!r}" for name, value in rope.items())


def _sizes(shape: dict[str, Any], moe: dict[str, Any] | None, sequence: int) -> str:
    sizes = {
        "LAYERS": shape["layers"],
        "DIM": shape["hidden"],
        "HEADS": shape["heads"],
        "KV_HEADS": shape["kv_heads"],
        "HEAD_DIM": shape["head_dim"],
        "HIDDEN_DIM": moe["ffn"] if moe else shape["ffn"],
        "VOCAB": shape["vocab"],
        "SEQUENCE": sequence,
    }
    if moe:
        sizes |= {"EXPERTS": moe["experts"], "TOP_K": moe["experts_per_token"]}
    return "\n".join(f"{name} = {int(size)}" for name, size in sizes.items())


def _mixture(moe: dict[str, Any]) -> str:
    """The part of a block that sends tokens to experts."""
    router = moe["router"] or {"score": "softmax", "normalised": True, "scaling": 1.0, "groups": 1, "bias_rate": 0}
    options = {
        "score_func": f'"{router["score"]}"',
        "route_norm": router["normalised"],
        "route_scale": router["scaling"],
    }
    if router["groups"] > 1:
        options |= {"num_expert_groups": router["groups"], "num_limited_groups": router["groups_per_token"]}
    words = "\n".join(f"                {name}={value}," for name, value in options.items())
    return script("torchtitan_mixture.py", ROUTER=words, BALANCE=repr(router["bias_rate"] or BALANCE))


def _imported(where: str, name: str | None) -> str:
    return f"from torchtitan.{where} import {name}\n" if name else ""


def _made(name: str | None, settings: str = "") -> str:
    return f"{name}.Config({settings})" if name else ""


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
    normed = shape["norms_per_layer"] != 2 or shape["qk_norm"] in ("full", "unweighted")
    if not plain or biased or shape["learned_positions"] or normed:
        yield "the module it needs is written for decoders like Llama 3 and Qwen 3 (gated, RMSNorm, rotary, no biases)"
    moe = shape["moe"]
    if moe and (moe["shared_ffn"] or moe["leading_dense_layers"] or moe["every"] > 1 or moe["router_bias"]):
        yield "the module it needs is written for mixtures like Qwen 3's (in every layer, none shared)"
    if moe and moe["router"] and (moe["router"]["on_input"] or moe["router"]["capacity"] or moe["router"]["z_loss"]):
        yield "its router has no scores on inputs, no capacity and no loss on its outputs"
    if plan.workload.mtp_layers:
        yield "the module it needs has no multi-token prediction"
    if (rotary := plan_facts.rotary(shape)) and (rotary["share"] != 1 or rotary["skips"]):
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
    yield from plan_facts.unknown_norms_and_positions(plan.workload.shape, "1e-5")
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
    known = plan_facts.rotary(shape) or {"scaling": "none"}
    if known["scaling"] == "llama3" and ROPE[family_of(shape)] != "ComplexRoPE":
        yield Loss("workload.shape.rotary.scaling", f"{ROPE[family_of(shape)]} has no Llama 3 scaling: not stretched")
    if known["scaling"] == "yarn" and known["mscale"] != known["mscale_all_dim"]:
        yield Loss(
            "workload.shape.rotary.mscale", "the module stretches angles only: attention does not grow with them"
        )


EXPORTER = by_table("torchtitan", emit=emit, refuses=refuses, loses=loses)
