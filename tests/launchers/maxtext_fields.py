"""What MaxText's configuration has to say of a plan."""

from typing import Any

from planner.launchers import plan_facts, tpu
from planner.launchers.maxtext import AXES, CONTEXT, TABLE
from planner.schema.plan import Plan

BLOCKS = {
    **{"llama2": "llama2", "llama3": "llama2", "llama3.1": "llama2", "qwen2.5": "qwen2", "qwen3": "qwen3"},
    **{"mixtral": "mixtral", "deepseek": "deepseek", "kimi": "deepseek", "moonlight": "deepseek"},
}


def values_of_maxtext(plan: Plan) -> dict[str, Any]:
    """As ``read_maxtext.py`` reads them."""
    p, shape = plan.parallelism, plan.workload.shape
    moe, latent, router = shape["moe"], shape["latent"], (shape["moe"] or {}).get("router")
    slices = tpu.slices(plan)
    return {
        "topology": tpu.topology(plan.cluster.pools[0].accelerator, plan.cluster.accelerators // slices),
        "devices": [plan.cluster.accelerators, slices],
        "mesh": mesh(plan, slices),
        "batch": [plan.batch.global_, 1 if p.pp > 1 else plan.batch.accumulation],
        "micro": plan.batch.accumulation if p.pp > 1 else plan.batch.micro * p.dp,
        "stages": [shape["layers"] // p.pp, 1] if p.pp > 1 else None,
        "sequence": plan.workload.sequence,
        "steps": [plan_facts.steps(plan), plan_facts.steps_between_checkpoints(plan)],
        "context": CONTEXT[p.cp_algorithm or "p2p"] if p.cp > 1 else "all_gather",
        "recompute": TABLE.options["remat_policy"].values[plan.recompute.policy],
        "offload": plan.offload["optimizer"],
        "precision": ["bfloat16", "float32", ""],
        "optimizer": "adamw",
        "block": "qwen3_moe" if moe and shape["qk_norm"] == "head" else BLOCKS[plan.workload.model.partition("-")[0]],
        "layers": shape["layers"],
        "hidden": shape["hidden"],
        "ffn": shape["ffn"] if not moe or moe["leading_dense_layers"] else moe["ffn"],
        "heads": [shape["heads"], shape["kv_heads"], shape["head_dim"]],
        "activation": ["silu", "linear"],
        "vocab": shape["vocab"],
        "tied": [shape["tied"], False],
        "epsilon": shape["norm_epsilon"],
        "biases": shape["qkv_bias"],
        "qk_norm": shape["qk_norm"] == "head",
        "dropout": False,
        "modules": 0,
        **positions(shape),
        "latent": [latent[name] for name in ("query_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim")]
        if latent
        else None,
        "experts": [moe["experts"], moe["experts_per_token"], moe["ffn"]] if moe else None,
        "shared": [moe["shared_ffn"] // moe["ffn"], moe["leading_dense_layers"]] if moe else None,
        "balance": router["balance_loss"] if router else None,
        "router": ["sigmoid", router["scaling"], True, router["groups"] if router["groups"] > 1 else -1]
        if latent
        else router and router["normalised"],
    }


def positions(shape: dict[str, Any]) -> dict[str, Any]:
    """Llama 3's way by its name there; YaRN with its figures."""
    known = shape["rotary"]
    kind = {"none": "default", "llama3": "llama3.1", "yarn": "yarn"}[known["scaling"]]
    return {
        "rotary": [kind, known["base"], True],
        "yarn": [known["factor"], known["original"], known["beta_fast"], known["mscale"]] if kind == "yarn" else None,
    }


def mesh(plan: Plan, slices: int) -> list[list[int]]:
    """Ranks on each axis inside a slice and over slices: those over slices are data- or pipeline-parallel here."""
    p = plan.parallelism
    copies = p.dp * p.cp // p.dp_shard
    whole = dict(zip(AXES, (p.tp, p.cp, p.ep, p.dp // copies // p.ep, copies, p.pp), strict=True))
    outer = next(axis for axis in reversed(AXES) if whole[axis] > 1)
    over = {axis: slices if axis == outer else 1 for axis in AXES}
    return [[whole[axis] // over[axis] for axis in AXES], list(over.values())]
