"""What a recipe of Megatron-Bridge has to say of a plan, and the model's config.json that it is built from."""

from typing import Any

from planner.launchers import megatron, plan_facts
from planner.schema.plan import Plan

KINDS = ("llama", "qwen2", "qwen3")
"""How models begin, and what Transformers calls their configuration."""
FORMATS = {
    "fp8": ("hybrid", "tensorwise"),
    "fp8-delayed": ("hybrid", "delayed"),
    "fp8-blockwise": ("hybrid", "blockwise"),
    "mxfp8": ("e4m3", "mxfp8"),
}


def published(plan: Plan) -> dict[str, Any]:
    """Kind and fields of the config.json that the recipe would fetch."""
    shape = plan.workload.shape
    kind = next(k for k in KINDS if plan.workload.model.startswith(k)) + ("_moe" if shape["moe"] else "")
    found = {
        "num_hidden_layers": shape["layers"],
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["ffn"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "vocab_size": shape["vocab"],
        "tie_word_embeddings": shape["tied"],
    }
    if shape["moe"]:
        moe = shape["moe"]
        found |= {"num_experts": moe["experts"], "moe_intermediate_size": moe["ffn"]}
        found |= {"num_experts_per_tok": moe["experts_per_token"]}
    return {"kind": kind, "config": found}


def values_of_bridge(plan: Plan) -> dict[str, Any]:
    """As ``read_megatron_bridge.py`` reads them."""
    p, shape, policy = plan.parallelism, plan.workload.shape, plan.recompute.policy
    uneven = len(set(plan_facts.chunks(plan))) > 1
    method = plan.workload.method
    again: list[object] = [None] * 4
    if policy == "full":
        again = ["full", "uniform", 1, None]
    elif policy.startswith("block"):
        again = ["full", "block", megatron.recomputed(plan), None]
    elif policy.startswith("selective"):
        again = ["selective", None, None, (policy.partition(":")[2] or "core_attn").split("+")]
    low, recipe = FORMATS.get(plan.precision, (None, "tensorwise"))
    beside = p.vpp > 1 and plan.overlap.p2p
    wide = plan.runtime.bytes_per_parameter["gradient_wire"] == 4
    return {
        "shape": [shape[n] for n in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim")],
        "vocab": shape["vocab"],
        "experts": shape["moe"]["experts"] if shape["moe"] else None,
        "degrees": [
            *(p.tp, p.pp, p.vpp if p.vpp > 1 and not uneven else None, p.cp, p.ep),
            p.etp if shape["moe"] else None,
        ],
        "layout": megatron.layout(plan) if uneven else None,
        "split": [False, False],
        "context": p.cp_algorithm or "p2p",
        "sequence_parallel": p.sequence_parallel,
        "sequence": [plan.workload.sequence] * 2,
        "recompute": again,
        "batch": [plan.batch.micro, plan.batch.global_],
        "steps": [plan_facts.steps(plan), plan_facts.steps_between_checkpoints(plan)],
        "sharding": [
            p.zero_stage > 0,
            p.dp * p.cp // p.dp_shard if p.zero_stage else 1,
            p.zero_stage > 1,
            {2: "optim_grads", 3: "optim_grads_params"}.get(p.zero_stage, "no_shard"),
        ],
        "overlap": [plan.overlap.dp, plan.overlap.dp and p.zero_stage > 0],
        "beside": [plan.overlap.tp, beside, p.pp > 1 and not beside],
        "experts beside": bool(plan.overlap.ep),
        "dp": p.dp,
        "formats": [
            *(plan.precision != "fp16", plan.precision == "fp16", low),
            *("e2m1" if plan.precision == "nvfp4" else None, plan.precision != "fp16"),
        ],
        "schedule": [plan_facts.steps(plan), 1e-4, 0.0],
        "optimizer": ["adam", bool(plan.offload["optimizer"]), plan_facts.offloaded_share(plan)],
        "precision": [
            *(plan.precision != "fp16", plan.precision == "fp16", low, recipe),
            *("e2m1" if plan.precision == "nvfp4" else None, False),
        ],
        "wide": [wide, wide],
        "pp_inner": p.rank_order == "tp-cp-ep-pp-dp",
        "adapters": [
            *(method["rank"], 2 * method["rank"], 0.0),
            [{"q": "linear_q", "k": "linear_k", "v": "linear_v", "o": "linear_proj"}.get(t) or MLP[t] for t in targets],
        ]
        if (targets := method.get("targets")) and method["kind"] == "lora"
        else None,
        "weights": "/given/load" if method["kind"] != "pretrain" else None,
        "data": [["/given/data-path"], None],
    }


MLP = {"up": "linear_fc1_up", "gate": "linear_fc1_gate", "down": "linear_fc2"}
