"""Kimi Linear, RWKV-7 and DeepSeek-V4 as data: delta attention and states, and attention on compressed entries.

Kimi Linear has delta attention with a decay a channel, latent attention without positions, and mixtures (the class of
transformers 5.23.0; a checkpoint's own keys differ from the class's). RWKV-7 (arXiv 2503.14456) has no attention but a
state with a decay a channel, its values mixed with the first block's (the class of fla-org/flash-linear-attention
bc3b101d, models/rwkv7).

DeepSeek-V4 has residual streams and mixtures in every block. That the first blocks send tokens to experts by a table,
not by scores, changes no count and no cost: it is left out, as the table is (no parameter: transformers 5.23.0,
models/deepseek_v4). Modules of multi-token prediction are, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.models.huggingface import fields, pattern, routers
from planner.models.huggingface.config_values import ATTENTION_BIAS, COMMON, UNTIED, Architecture, Reader
from planner.models.huggingface.decoders import SILU, UNBIASED, leading_dense
from planner.schema.workload import Mixer

_CSA = "compressed_sparse_attention"
_HCA = "heavily_compressed_attention"
_KINDS: Mapping[str, Mixer] = {"sliding_attention": "window", _CSA: "csa", _HCA: "hca"}
_RATIOS = {0: "sliding_attention", 4: _CSA, 128: _HCA}
"""`compress_ratios` of a checkpoint -> what the class calls a block."""


def _kinds(config: Reader) -> list[str]:
    """Kind of every block; a checkpoint's ratios go on with those of prediction modules."""
    layers = config.layers()
    ratios = config.items("compress_ratios")
    if named := fields.each_layer(config, "layer_types"):
        return named
    if not ratios:
        return [_HCA if layer < 2 or layer % 2 == 0 else _CSA for layer in range(layers)]
    if len(ratios) < layers or any(type(ratio) is not int or ratio not in _RATIOS for ratio in ratios):
        raise config.wrong("compress_ratios", f"must be 0, 4 or 128 for each of {layers:,} layers")
    return [_RATIOS[ratio] for ratio in ratios[:layers]]


def _attention(config: Reader) -> dict[str, Any]:
    rates = config.nested("compress_rates", {_CSA: 4, _HCA: 128})
    return {
        "kv_heads": config.whole("num_key_value_heads"),
        "head_dim": config.whole("head_dim"),
        "window": {"size": config.whole("sliding_window")},
        "mixers": pattern.once([config.meaning("layer_types", kind, _KINDS) for kind in _kinds(config)]),
        "streams": config.whole("hc_mult"),
        "compressed": {
            "query_rank": config.whole("q_lora_rank"),
            "output_groups": config.whole("o_groups"),
            "output_rank": config.whole("o_lora_rank"),
            "csa_rate": rates.whole(_CSA),
            "csa_top": config.whole("index_topk"),
            "index_heads": config.whole("index_n_heads"),
            "index_head_dim": config.whole("index_head_dim"),
            "hca_rate": rates.whole(_HCA),
        },
    }


def _router(config: Reader) -> dict[str, Any]:
    score = config.meaning("scoring_func", config.get("scoring_func"), {x: x for x in _SCORES})
    return {
        "score": score,
        "normalised": True,
        "scaling": config.number("routed_scaling_factor"),
        "bias_rate": routers.BIAS_RATE,
    }


_SCORES = ("sqrtsoftplus", "sigmoid", "softmax")


def _deepseek_v4_experts(config: Reader) -> dict[str, Any]:
    width = config.whole("moe_intermediate_size")
    return fields.experts(
        config, "n_routed_experts", "moe_intermediate_size", shared_ffn=config.whole("n_shared_experts") * width
    )


COMPRESSED: Mapping[str, Architecture] = {
    "deepseek_v4": Architecture(
        keys={**COMMON, "ffn": "moe_intermediate_size"},
        defaults={
            **{**UNTIED, **UNBIASED, "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1024},
            **{"o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512},
            **{"sliding_window": 128, "hc_mult": 4, "moe_intermediate_size": 2048, "n_routed_experts": 256},
            **{"n_shared_experts": 1, "num_experts_per_tok": 6, "scoring_func": "sqrtsoftplus"},
            **{"routed_scaling_factor": 1.5},
        },
        fixed={"activation": "limited-swiglu", "sinks": True},
        derive=(_attention, routers.routed(_deepseek_v4_experts, _router), fields.norm_epsilon("rms_norm_eps", 1e-6)),
    ),
}
"""`model_type` -> how its config.json is read."""


_OWN = {
    "num_local_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
    "norm_topk_prob": "moe_renormalize",
    "n_group": "num_expert_group",
}
"""Key of the class -> of a checkpoint."""


def _key(config: Reader, name: str) -> str:
    return _OWN[name] if config.has(_OWN[name]) else name


def _delta(config: Reader) -> dict[str, Any]:
    """Which blocks carry a state, and its widths: a checkpoint lists both under `linear_attn_config`, from 1 on."""
    linear = config.nested("linear_attn_config", {})
    layers = config.layers()
    kinds = fields.each_layer(config, "layer_types")
    if not kinds and linear.has("full_attn_layers"):
        full = linear.items("full_attn_layers")
        carried = linear.items("kda_layers")
        if sorted([*full, *carried], key=str) != sorted(range(1, layers + 1), key=str):
            raise linear.wrong(
                "kda_layers", f"with full_attn_layers: must be the layers from 1 to {layers:,}, each once"
            )
        kinds = ["full_attention" if layer in full else "linear_attention" for layer in range(1, layers + 1)]
    kinds = kinds or ["linear_attention" if layer % 4 or not layer else "full_attention" for layer in range(layers)]
    heads = linear.whole("num_heads", config.whole("linear_num_heads"))
    width = linear.whole("head_dim", config.whole("linear_head_dim"))
    return {
        "mixers": pattern.once([config.meaning("layer_types", kind, pattern.KINDS) for kind in kinds]),
        "recurrence": {
            "kind": "kda",
            **{"heads": heads, "value_dim": width, "key_heads": heads, "key_dim": width, "step_rank": width},
            "convolution": linear.whole("short_conv_kernel_size", config.whole("linear_conv_kernel_dim")),
            "norm": "head",
        },
    }


def _experts(config: Reader) -> dict[str, Any]:
    """Fine-grained experts after dense blocks, chosen by a sigmoid with moved biases."""
    width = config.whole("moe_intermediate_size")
    groups = config.whole(_key(config, "n_group"))
    chosen = {"groups": groups, "groups_per_token": config.whole("topk_group")} if groups > 1 else {}
    return {
        "moe": {
            "experts": config.whole(_key(config, "num_local_experts")),
            "experts_per_token": config.whole(_key(config, "num_experts_per_tok")),
            "ffn": width,
            "shared_ffn": config.whole(_key(config, "n_shared_experts"), least=0) * width,
            "leading_dense_layers": leading_dense(config),
            "router": {
                "score": "sigmoid",
                "normalised": config.flag(_key(config, "norm_topk_prob")),
                "scaling": config.number("routed_scaling_factor"),
                "bias_rate": routers.BIAS_RATE,
                **chosen,
            },
        }
    }


KIMI: Mapping[str, Architecture] = {
    "kimi_linear": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={
            **{**UNTIED, **UNBIASED, "first_k_dense_replace": 1, "num_local_experts": 256, "num_experts_per_tok": 8},
            **{"n_shared_experts": 1, "norm_topk_prob": True, "n_group": 1, "topk_group": 1},
            **{"routed_scaling_factor": 2.446, "linear_num_heads": 32, "linear_head_dim": 128},
            **{"linear_conv_kernel_dim": 4, "moe_intermediate_size": 1024},
        },
        fixed={"positions": "none"},
        derive=(
            fields.latent_attention,
            _delta,
            _experts,
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
        ),
    ),
}
"""`model_type` -> how its config.json is read."""


# ---- RWKV ------------------------------------------------------------------------------------------------------------

_RANKS = ("decay_low_rank_dim", "a_low_rank_dim", "gate_low_rank_dim", "v_low_rank_dim")


def _blocks(config: Reader) -> dict[str, Any]:
    """A recurrence and an MLP whose input is shifted by a token, as wide as written or so often the model, in 32s.

    The first block has a norm more (on the embedding) and nothing that mixes its values with its own.
    """
    if config.get("attn") is not None:
        raise config.wrong("attn", "blocks of attention between RWKV-7's are not understood")
    h = config.whole("hidden_size")
    layers = config.layers()
    width = config.whole("head_dim")
    if config.get("value_dim") not in (None, h, [h] * layers):
        raise config.wrong("value_dim", f"values of another width than hidden_size = {h:,} are not understood")
    if h % width:
        raise config.wrong("head_dim", f"{width:,}: heads of it must make hidden_size = {h:,}")
    heads = h // width
    vector = h * (1 + config.flag("norm_bias"))
    return {
        **{"heads": heads, "kv_heads": heads, "head_dim": width},
        "ffn": config.whole("intermediate_size", -(-int(h * config.number("hidden_ratio")) // 32) * 32),
        "mixers": ["recurrent"],
        "recurrence": {
            **{"kind": "rwkv7", "heads": heads, "value_dim": width, "key_heads": heads, "key_dim": width},
            "step_rank": sum(config.whole(rank) for rank in _RANKS),
            "value_rank": config.whole("v_low_rank_dim"),
        },
        "extra_parameters": vector * config.flag("norm_first"),
        "extra_parameters_per_layer": h,
    }


RWKV: Mapping[str, Architecture] = {
    "rwkv7": Architecture(
        keys={
            **{"layers": "num_hidden_layers", "hidden": "hidden_size", "vocab": "vocab_size"},
            **{"tied": "tie_word_embeddings", "norm_bias": "norm_bias"},
        },
        defaults={
            **{**UNTIED, "hidden_size": 2048, "num_hidden_layers": 24, "head_dim": 64, "hidden_ratio": 4},
            **{"decay_low_rank_dim": 64, "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 16},
            **{"norm_first": True, "norm_bias": True, "vocab_size": 32000},
        },
        fixed={"gated": False, "norm": "layer", "positions": "none"},
        derive=(_blocks, routers.activation("hidden_act", "sqrelu"), fields.norm_epsilon("norm_eps", 1e-5)),
    ),
}
"""`model_type` -> how its config.json is read."""
