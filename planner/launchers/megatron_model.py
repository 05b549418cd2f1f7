"""Megatron-LM's arguments of the model itself: everything of a plan's shape that changes what is trained.

What pretrain_gpt.py of core_v0.16.1 cannot build is refused, or listed where it stays another way to train the same
model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from planner.launchers import megatron_hybrid, plan_facts
from planner.launchers.target import Loss, Values

ACTIVATIONS = ("swiglu", "clamped-swiglu", "squared-relu", "gelu", "gelu-tanh")
"""Functions of the MLP. The fused kernel with biases is GELU by tanh (core/fusions/fused_bias_gelu.py), the function
without it GELU by the error function; gpt-oss's is clamped as examples/post_training/modelopt/conf/openai has it."""


def facts(shape: dict[str, Any], sequence: int, tp: int, values: Values) -> dict[str, Any]:
    """The facts of the model's own options (``megatron.toml``) that are no field of its shape as it stands there."""
    moe = shape["moe"]
    return {
        **_attention(shape, sequence),
        "sequence": sequence,
        "positions": max(shape["learned_positions"], sequence),
        "kind_of_positions": _positions(shape),
        "activation": _activation(shape),
        **_biases(shape),
        "job.padding": _padding(shape, tp),
        "mixture": True if moe else None,
        "job.mixture": bool(moe),
        **(_experts(moe, shape["layers"]) if moe else {}),
        **_rotary(shape, values),
    }


def _activation(shape: dict[str, Any]) -> str:
    """The model's, or where it is not known the usual one."""
    return str(shape["activation"] or ("swiglu" if shape["gated"] else "gelu-tanh"))


def _positions(shape: dict[str, Any]) -> str:
    return "learned_absolute" if shape["learned_positions"] else "none" if shape["positions"] == "none" else "rope"


def _rotary(shape: dict[str, Any], values: Values) -> dict[str, Any]:
    """Bases, and how sequences were stretched: latent attention has YaRN, the others have Llama 3's way."""
    if _positions(shape) != "rope":
        return {}
    known = plan_facts.rotary(shape)
    base = {"rotary.base": int(plan_facts.rotary_base(shape, values))}
    if known is None:
        return base
    base |= {"rotary.share": known["share"], "rotary.skips": known["skips"]}
    if shape["latent"]:
        yarn = known["scaling"] == "yarn"
        scales = {f"rotary.{name}": known[name] for name in ("mscale", "mscale_all_dim")} if yarn else {}
        return base | {"rotary.yarn": known["factor"] if yarn else 1.0} | scales
    return base | ({"rotary.llama3": True, "rotary.factor": known["factor"]} if known["scaling"] == "llama3" else {})


def _attention(shape: dict[str, Any], sequence: int) -> dict[str, Any]:
    latent, seen = shape["latent"], plan_facts.window(shape, sequence)
    grouped = not latent and shape["kv_heads"] != shape["heads"]
    # Unused with latents, but asked for where the width does not divide by heads (training/arguments.py).
    unused = shape["hidden"] // shape["heads"] if shape["hidden"] % shape["heads"] else None
    narrow = windowed(shape) if seen else []
    return {
        "latent": bool(latent),
        "shape.head_dim": unused if latent else shape["head_dim"],
        "grouped": grouped,
        "shape.kv_heads": shape["kv_heads"] if grouped else None,
        "normed_heads": shape["qk_norm"] == "head" or bool(latent),
        "window": f"({seen['size'] - 1},0)" if seen else None,
        "windowed": None if all(narrow) else _pattern(narrow),
    }


def windowed(shape: dict[str, Any]) -> list[int]:
    """1 for every layer with a window, 0 for a full one, in order."""
    if mixers := shape.get("mixers"):
        return [int(mixers[layer % len(mixers)] == "window") for layer in range(shape["layers"])]
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


def all_biased(shape: dict[str, Any]) -> bool:
    """Whether every linear layer has a bias."""
    return bool(shape["qkv_bias"]) and all(linear_biases(shape).values())


def _biases(shape: dict[str, Any]) -> dict[str, bool]:
    """Megatron has biases on all linear layers, on none, or on queries, keys and values alone.

    Its grouped experts add theirs themselves, and stop where that is to be fused with dropout.
    """
    biased = all_biased(shape)
    alone = not biased and bool(shape["qkv_bias"])
    return {"biased": biased, "biased_experts": biased and bool(shape["moe"]), "biased_qkv": alone}


def _padding(shape: dict[str, Any], tp: int) -> int:
    """The largest divisor, of Megatron's 128, with which the vocabulary stays as it is."""
    return math.gcd(shape["vocab"] // tp, 128) if shape["vocab"] % tp == 0 else 1


def _experts(moe: dict[str, Any], layers: int) -> dict[str, Any]:
    """Where mixtures stand and how tokens are sent; the router's products are in 32 bit, as published ones are."""
    where = mixtures(moe, layers)
    router = moe["router"]
    one = moe["experts_per_token"] == 1
    return {
        "shape.moe.shared_gate": bool(moe["shared_ffn"] and moe["shared_gate"]),
        "mixtures": None if all(where) else _pattern(where),
        "pre_softmax": one if router is None else router["score"] != "sigmoid" and (one or not router["normalised"]),
        "groups_per_token": router["groups_per_token"] if router and router["groups"] > 1 else None,
        "balanced_by_biases": bool(router and router["bias_rate"]),
    }


# ---- what it cannot build --------------------------------------------------------------------------------------------


def refuses(shape: dict[str, Any], sequence: int) -> Iterator[str]:
    """What is known of the model and has no argument: another one would be trained."""
    hybrid = megatron_hybrid.is_one(shape)
    yield from plan_facts.parts_have_flags(shape) if hybrid else plan_facts.blocks_are_attention(shape)
    if (activation := _activation(shape)) not in ACTIVATIONS:
        yield f"the activation {activation} has no flag"
    if activation == "gelu-tanh" and shape["activation"] and not all_biased(shape):
        yield "GELU by tanh is its kernel with biases, which the model has not"
    if shape["embedding_width"] not in (0, shape["hidden"]):
        yield "an embedding narrower than the model has no flag"
    if shape["norm_place"] != "pre" or shape["norms_per_layer"] != (1 if hybrid else 2):
        yield f"{shape['norms_per_layer']} norms a layer, {shape['norm_place']}, have no flag"
    if shape["norm"] == "layer" and not shape["norm_bias"]:
        yield "LayerNorm without biases has no flag"
    if shape["norm_offset"] and shape["norm"] != "layer":
        yield "--apply-layernorm-1p goes with LayerNorm"
    if shape["qk_norm"] == "full":
        yield "--qk-layernorm normalises each head, not all heads together"
    if shape["positions"] in ("alibi", "relative"):
        yield f"{shape['positions']} positions have no flag"
    if (seen := plan_facts.window(shape, sequence)) and seen["chunked"]:
        yield f"attention within chunks of {seen['size']:,} tokens has no flag (--seq {seen['size']} needs none)"
    if any(linear_biases(shape).values()) and not all_biased(shape):
        yield "biases are on all linear layers, on none, or on q, k and v alone"
    if not float((plan_facts.rotary(shape) or {"base": 0})["base"]).is_integer():
        yield f"rotary base {shape['rotary']['base']}: --rotary-base takes whole numbers"
    if skips := (plan_facts.rotary(shape) or {"skips": 0})["skips"]:
        yield from (
            [f"--no-rope-freq {skips} does not divide {shape['layers']} layers"] if shape["layers"] % skips else []
        )
    yield from _refused_router(shape["moe"])


def _refused_router(moe: dict[str, Any] | None) -> Iterator[str]:
    router = moe and moe["router"]
    if not moe or not router:
        return
    if router["score"] == "sigmoid" and not router["normalised"] and moe["experts_per_token"] > 1:
        yield "sigmoid scores of several experts are always made to add up to 1"
    if router["bias_rate"] and router["score"] != "sigmoid":
        yield "biases of experts go with sigmoid scores"
    if router["on_input"] and moe["experts_per_token"] > 1:
        yield "--moe-apply-probs-on-input goes with one expert a token"


def loses(shape: dict[str, Any], tp: int) -> Iterator[Loss]:
    """What is not known of the model, or stays another way to train it."""
    if shape["activation"] is None:
        yield Loss("workload.shape.activation", f"not known of this model: {_activation(shape)} is written")
    if shape["moe"] and shape["moe"]["router"] is None:
        reason = "softmax over the chosen experts and no balancing loss; add one, or experts fill unevenly"
        yield Loss("workload.shape.moe.router", f"not known of this model: {reason}")
    elif shape["moe"] and shape["moe"]["router"]["score"] == "softmax" and shape["moe"]["router"]["groups"] > 1:
        reason = "groups are ranked by the sum of their best experts, DeepSeek-V2's by the best one"
        yield Loss("workload.shape.moe.router.groups", reason)
    yield from plan_facts.unknown_norms_and_positions(shape, "1e-5")
    yield from _rotary_losses(shape)
    for name in ("extra_parameters", "extra_parameters_per_layer", "token_types"):
        if shape[name]:
            yield Loss(f"workload.shape.{name}", "not part of pretrain_gpt.py's model")
    if shape["vocab"] % tp:
        yield Loss("workload.shape.vocab", f"padded to a multiple of tp {tp}")


_LLAMA3 = {"original": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {"original": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What Megatron fixes of either way to stretch positions."""


def _rotary_losses(shape: dict[str, Any]) -> Iterator[Loss]:
    known = plan_facts.rotary(shape)
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
