"""MaxText's keys of the model itself: everything of a plan's shape that changes what is trained.

Read in AI-Hypercomputer/maxtext e591f30c: configs/base.yml and models/*.yml, layers/attentions.py, embeddings.py and
moe.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.launchers import plan_facts, rotary_and_norms
from planner.launchers.target import Loss, Values

_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original": 8192}
"""What its Llama 3 positions fix (embeddings.py, LLaMARotaryEmbedding)."""
ROUTED_BY_NAME = "deepseek3-671b"
"""Groups, sigmoid scores and moved biases go with models that are called so (moe.py, get_topk)."""


def block(shape: dict[str, Any]) -> str:
    """The kind of block that builds the model."""
    if shape["latent"]:
        return "deepseek"
    normalised = shape["qk_norm"] == "head"
    if shape["moe"]:
        return "qwen3_moe" if normalised else "mixtral"
    return "qwen3" if normalised else "qwen2" if shape["qkv_bias"] else "llama2"


def options(shape: dict[str, Any], values: Values) -> dict[str, Any]:
    """Key -> value."""
    return {
        "decoder_block": block(shape),
        "base_num_decoder_layers": shape["layers"],
        "base_emb_dim": shape["hidden"],
        "base_mlp_dim": _mlp(shape),
        "base_num_query_heads": shape["heads"],
        "base_num_kv_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "mlp_activations": ["silu", "linear"],
        "vocab_size": shape["vocab"],
        "logits_via_embedding": shape["tied"],
        "normalize_embedding_logits": False,
        "normalization_layer_epsilon": shape["norm_epsilon"] or 1e-5,
        "attention_bias": shape["qkv_bias"],
        "use_qk_norm": shape["qk_norm"] == "head",
        "enable_dropout": False,
        **(_latent(shape["latent"]) if shape["latent"] else {}),
        **(_experts(shape["moe"]) if shape["moe"] else {}),
        **_rotary(shape, values),
    }


def _mlp(shape: dict[str, Any]) -> int:
    """The width of dense layers; where none is dense, of experts (as its own configurations have it)."""
    moe = shape["moe"]
    return int(shape["ffn"] if moe is None or moe["leading_dense_layers"] else moe["ffn"])


def _latent(latent: dict[str, Any]) -> dict[str, Any]:
    return {
        "attention_type": "mla",
        "q_lora_rank": latent["query_rank"],
        "kv_lora_rank": latent["kv_rank"],
        "qk_nope_head_dim": latent["nope_dim"],
        "qk_rope_head_dim": latent["rope_dim"],
        "v_head_dim": latent["value_dim"],
    }


def _experts(moe: dict[str, Any]) -> dict[str, Any]:
    router = moe["router"] or {}
    found = {
        "num_experts": moe["experts"],
        "num_experts_per_tok": moe["experts_per_token"],
        "base_moe_mlp_dim": moe["ffn"],
        "shared_experts": moe["shared_ffn"] // moe["ffn"],
        "first_num_dense_layers": moe["leading_dense_layers"],
        "load_balance_loss_weight": router.get("balance_loss", 0.0),
        "capacity_factor": router.get("capacity") or -1.0,
    }
    if router.get("score") == "sigmoid":
        found |= {"model_name": ROUTED_BY_NAME, "override_model_config": True}
        found |= {"routed_score_func": "sigmoid", "routed_scaling_factor": router["scaling"]}
        found |= {"routed_bias": router["bias_rate"] > 0, "routed_bias_update_rate": router["bias_rate"]}
        if router["groups"] > 1:
            found |= {"n_routing_groups": router["groups"], "topk_routing_group": router["groups_per_token"]}
    elif router:
        found |= {"norm_topk_prob": router["normalised"]}
    return found


def _rotary(shape: dict[str, Any], values: Values) -> dict[str, Any]:
    known = rotary_and_norms.rotary(shape) or {"scaling": "none"}
    found: dict[str, Any] = {"rope_max_timescale": int(rotary_and_norms.base(shape, values))}
    if known["scaling"] == "none":
        return found | {"rope_type": "default"}
    if known["scaling"] == "llama3":
        return found | {"rope_type": "llama3.1", "rope_use_scale": True}
    return found | {
        "rope_type": "yarn",
        "rope_factor": known["factor"],
        "original_max_position_embeddings": known["original"],
        "max_position_embeddings": int(known["original"] * known["factor"]),
        "beta_fast": known["beta_fast"],
        "beta_slow": known["beta_slow"],
        "rope_truncate": known["truncate"],
        "mscale": known["mscale"],
    }


def refuses(shape: dict[str, Any], sequence: int) -> Iterator[str]:
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
    known = rotary_and_norms.rotary(shape)
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


def loses(shape: dict[str, Any]) -> Iterator[Loss]:
    """What is not known of the model, or balanced otherwise."""
    moe = shape["moe"]
    router = moe and moe["router"]
    if moe and router is None:
        yield Loss("workload.shape.moe.router", "not known of this model: softmax over the chosen experts, no balance")
    if router and router["balance"] == "sequence":
        yield Loss("workload.shape.moe.router.balance", "balanced over the batch, not in each sequence")
    if router and router["z_loss"]:
        yield Loss("workload.shape.moe.router.z_loss", "has no key for routers")
    yield from rotary_and_norms.unknown(shape, "1e-5")
