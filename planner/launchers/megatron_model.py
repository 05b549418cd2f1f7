"""Megatron-LM's arguments of the model itself: everything of a plan's shape that changes what is trained.

What pretrain_gpt.py of core_v0.16.1 cannot build is refused, or listed where it stays another way to train the same
model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from planner.launchers import megatron_hybrid, plan_facts, rotary_and_norms
from planner.launchers.target import Loss, Values

ACTIVATIONS: dict[str | None, tuple[str, ...]] = {
    "swiglu": ("--swiglu",),
    "clamped-swiglu": ("--quick-geglu", "--glu-linear-offset", "1.0", "--activation-func-clamp-value", "7.0"),
    "squared-relu": ("--squared-relu", "--no-bias-gelu-fusion"),
    "gelu": ("--no-bias-gelu-fusion",),
    "gelu-tanh": (),
}
"""The function of the MLP: the fused kernel with biases is GELU by tanh (core/fusions/fused_bias_gelu.py), the function
without it GELU by the error function; gpt-oss's as examples/post_training/modelopt/conf/openai has it."""
NORMS = {"rms": "RMSNorm", "layer": "LayerNorm"}
BALANCES = {"none": "none", "batch": "aux_loss", "sequence": "seq_aux_loss"}


def options(shape: dict[str, Any], sequence: int, tp: int, values: Values) -> Iterator[str]:
    """The model's own arguments."""
    if not megatron_hybrid.is_one(shape):  # else the pattern says them
        yield from ("--num-layers", str(shape["layers"]))
    yield from ("--hidden-size", str(shape["hidden"]))
    yield from ("--ffn-hidden-size", str(shape["ffn"]), "--num-attention-heads", str(shape["heads"]))
    yield from _attention(shape, sequence)
    yield from ("--seq-length", str(sequence))
    yield from ("--max-position-embeddings", str(max(shape["learned_positions"], sequence)))
    yield from ("--position-embedding-type", _positions(shape))
    yield from ("--normalization", NORMS[shape["norm"]])
    epsilon = shape["norm_epsilon"]
    yield from ("--norm-epsilon", repr(epsilon)) if epsilon else ()
    yield from ("--apply-layernorm-1p",) if shape["norm_offset"] else ()
    yield from ACTIVATIONS[_activation(shape)]
    yield from _biases(shape)
    yield from () if shape["tied"] else ("--untie-embeddings-and-output-weights",)
    yield from ("--vocab-size", str(shape["vocab"]), "--make-vocab-size-divisible-by", str(_padding(shape, tp)))
    rate = "0.1" if shape["dropout"] else "0.0"
    yield from ("--attention-dropout", rate, "--hidden-dropout", rate)
    yield from _experts(shape["moe"], shape["layers"]) if shape["moe"] else ()
    yield from _rotary(shape, values)


def _activation(shape: dict[str, Any]) -> str:
    """The model's, or where it is not known the usual one."""
    return str(shape["activation"] or ("swiglu" if shape["gated"] else "gelu-tanh"))


def _positions(shape: dict[str, Any]) -> str:
    return "learned_absolute" if shape["learned_positions"] else "none" if shape["positions"] == "none" else "rope"


def _rotary(shape: dict[str, Any], values: Values) -> Iterator[str]:
    """Bases, and how sequences were stretched: latent attention has YaRN, the others have Llama 3's way."""
    if _positions(shape) != "rope":
        return
    yield from ("--rotary-base", str(int(rotary_and_norms.base(shape, values))))
    known = rotary_and_norms.rotary(shape)
    if known is None:
        return
    yield from ("--rotary-percent", repr(known["share"])) if known["share"] != 1 else ()
    yield from ("--no-rope-freq", str(known["skips"])) if known["skips"] else ()
    if shape["latent"]:
        yarn = known["scaling"] == "yarn"
        yield from ("--rotary-scaling-factor", repr(known["factor"] if yarn else 1.0))
        yield from (
            ("--mscale", repr(known["mscale"]), "--mscale-all-dim", repr(known["mscale_all_dim"])) if yarn else ()
        )
    elif known["scaling"] == "llama3":
        yield from ("--use-rope-scaling", "--rope-scaling-factor", repr(known["factor"]))


def _attention(shape: dict[str, Any], sequence: int) -> Iterator[str]:
    latent, seen = shape["latent"], plan_facts.window(shape, sequence)
    if latent:
        yield "--multi-latent-attention"
        yield from ("--q-lora-rank", str(latent["query_rank"])) if latent["query_rank"] else ()
        yield from ("--kv-lora-rank", str(latent["kv_rank"]), "--qk-head-dim", str(latent["nope_dim"]))
        yield from ("--qk-pos-emb-head-dim", str(latent["rope_dim"]), "--v-head-dim", str(latent["value_dim"]))
        # Unused with latents, but asked for where the width does not divide by heads (training/arguments.py).
        if shape["hidden"] % shape["heads"]:
            yield from ("--kv-channels", str(shape["hidden"] // shape["heads"]))
    else:
        yield from ("--kv-channels", str(shape["head_dim"]))
        if shape["kv_heads"] != shape["heads"]:
            yield from ("--group-query-attention", "--num-query-groups", str(shape["kv_heads"]))
    yield from ("--qk-layernorm",) if shape["qk_norm"] == "head" or latent else ()
    yield from ("--qk-l2-norm",) if shape["qk_norm"] == "unweighted" else ()
    if seen:
        yield from ("--window-size", f"({seen['size'] - 1},0)")
        narrow = windowed(shape)
        yield from ("--window-attn-skip-freq", _pattern(narrow)) if not all(narrow) else ()
    yield from ("--softmax-type", "learnable") if shape["sinks"] else ()


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


def _biases(shape: dict[str, Any]) -> tuple[str, ...]:
    """Megatron has biases on all linear layers, on none, or on queries, keys and values alone.

    Its grouped experts add theirs themselves, and stop where that is to be fused with dropout.
    """
    if all_biased(shape):
        return ("--no-bias-dropout-fusion",) if shape["moe"] else ()
    return ("--disable-bias-linear", *(("--add-qkv-bias",) if shape["qkv_bias"] else ()))


def _padding(shape: dict[str, Any], tp: int) -> int:
    """The largest divisor, of Megatron's 128, with which the vocabulary stays as it is."""
    return math.gcd(shape["vocab"] // tp, 128) if shape["vocab"] % tp == 0 else 1


def _experts(moe: dict[str, Any], layers: int) -> Iterator[str]:
    yield from ("--num-experts", str(moe["experts"]), "--moe-router-topk", str(moe["experts_per_token"]))
    yield from ("--moe-ffn-hidden-size", str(moe["ffn"]))
    if moe["shared_ffn"]:
        yield from ("--moe-shared-expert-intermediate-size", str(moe["shared_ffn"]))
        yield from ("--moe-shared-expert-gate",) if moe["shared_gate"] else ()
    where = mixtures(moe, layers)
    yield from ("--moe-layer-freq", _pattern(where)) if not all(where) else ()
    yield from _router(moe["router"], moe["experts_per_token"])
    # Kernels of Transformer Engine 2.7, as in the runs that mixtures are fitted to.
    yield from ("--moe-grouped-gemm", "--moe-permute-fusion", "--moe-router-fusion")


def _router(router: dict[str, Any] | None, experts_per_token: int) -> Iterator[str]:
    """Scores, groups, balance; its products in 32 bit, as published implementations have them."""
    yield from ("--moe-router-dtype", "fp32")
    if router is None:
        yield from ("--moe-router-pre-softmax",) if experts_per_token == 1 else ()
        return
    if router["score"] == "sigmoid":
        yield from ("--moe-router-score-function", "sigmoid")
    elif not router["normalised"] or experts_per_token == 1:
        yield "--moe-router-pre-softmax"
    yield from ("--moe-router-topk-scaling-factor", repr(router["scaling"])) if router["scaling"] != 1 else ()
    if router["groups"] > 1:
        yield from ("--moe-router-num-groups", str(router["groups"]))
        yield from ("--moe-router-group-topk", str(router["groups_per_token"]))
    if router["bias_rate"]:
        yield from ("--moe-router-enable-expert-bias", "--moe-router-bias-update-rate", repr(router["bias_rate"]))
    yield from ("--moe-router-load-balancing-type", BALANCES[router["balance"]])
    yield from ("--moe-aux-loss-coeff", repr(router["balance_loss"])) if router["balance_loss"] else ()
    yield from ("--moe-z-loss-coeff", repr(router["z_loss"])) if router["z_loss"] else ()
    yield from ("--moe-expert-capacity-factor", repr(router["capacity"])) if router["capacity"] else ()
    yield from ("--moe-apply-probs-on-input",) if router["on_input"] else ()


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
    if not float((rotary_and_norms.rotary(shape) or {"base": 0})["base"]).is_integer():
        yield f"rotary base {shape['rotary']['base']}: --rotary-base takes whole numbers"
    if skips := (rotary_and_norms.rotary(shape) or {"skips": 0})["skips"]:
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
    yield from rotary_and_norms.unknown(shape, "1e-5")
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
    known = rotary_and_norms.rotary(shape)
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
