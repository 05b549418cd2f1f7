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


def block(shape: dict[str, Any]) -> str:
    """The kind of block that builds the model."""
    if shape["latent"]:
        return "deepseek"
    normalised = shape["qk_norm"] == "head"
    if shape["moe"]:
        return "qwen3_moe" if normalised else "mixtral"
    return "qwen3" if normalised else "qwen2" if shape["qkv_bias"] else "llama2"


def facts(shape: dict[str, Any], values: Values) -> dict[str, Any]:
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
    rotary = rotary_and_norms.rotary(shape) or {"scaling": "none"}
    facts = {"rotary.base": int(rotary_and_norms.base(shape, values)), "rotary.scaling": rotary["scaling"]}
    if rotary["scaling"] != "yarn":
        return facts
    names = ("factor", "original", "beta_fast", "beta_slow", "truncate", "mscale")
    yarn = {"positions": int(rotary["original"] * rotary["factor"]), **{name: rotary[name] for name in names}}
    return facts | {f"yarn.{name}": value for name, value in yarn.items()}


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
