"""Decoders whose blocks differ: state spaces, delta nets, linear attention beside attention, Gemma's windows; as data.

Defaults and what code fixes are those of the classes in transformers 5.23.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.models.huggingface import decoders, fields, pattern, routers
from planner.models.huggingface.config_values import ATTENTION_BIAS, COMMON, TIED, UNTIED, Architecture, Reader
from planner.models.huggingface.decoders import (
    AUX,
    FOUR_NORMS,
    GELU,
    NORMALISED,
    RMS_1E5,
    RMS_1E6,
    SILU,
    SOFTMAX,
    UNBIASED,
    sliding,
)

_PER_LAYER = "hidden_size_per_layer_input"
_UNDERSTOOD = {
    _PER_LAYER: (0, "embeddings of every layer's own are not understood"),
    "num_kv_shared_layers": (0, "layers that share another's keys and values are not understood"),
    "per_layer_config": (None, "heads listed layer by layer are not understood (global_head_dim is)"),
}


def _gemma4_attention(config: Reader) -> dict[str, Any]:
    """Wider heads in blocks that see everything, the last always; there keys may be values, from fewer heads."""
    for key, (only, why) in _UNDERSTOOD.items():
        if config.get(key) not in (only, None):
            raise config.wrong(key, f"{config.get(key)!s:.20}: {why}")
    if config.get("use_bidirectional_attention") == "all":
        raise config.wrong("use_bidirectional_attention", "'all': only causal text is understood")
    every = config.layers()
    narrow = list(fields.sliding_layers(config, [(layer + 1) % 6 > 0 for layer in range(every)]))
    mixers = ["window" if inside else "attention" for inside in [*narrow[:-1], False]]
    if "window" not in mixers:
        raise config.wrong("layer_types", "no layer has the window")
    shared = config.flag("attention_k_eq_v")
    kv_heads = config.whole("num_key_value_heads")
    full = {
        "kv_heads": config.whole("num_global_key_value_heads", kv_heads) if shared else kv_heads,
        "head_dim": config.whole("global_head_dim"),
        "keys_are_values": shared,
    }
    return {"mixers": pattern.once(mixers), "window": {"size": config.whole("sliding_window")}, "full": full}


def _gemma4_experts(config: Reader) -> dict[str, Any]:
    """Experts beside the dense MLP, which all tokens visit; their router scales its input and every expert."""
    if not config.flag("enable_moe_block"):
        return {}
    experts = config.whole("num_experts")
    return {
        "moe": {
            "experts": experts,
            "experts_per_token": config.whole("top_k_experts"),
            "ffn": config.whole("moe_intermediate_size"),
            "shared_ffn": config.whole("intermediate_size"),
        },
        "norms_per_layer": 7,
        "extra_parameters_per_layer": config.whole("hidden_size") + experts,
    }


_GEMMA = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**TIED, **UNBIASED, "head_dim": 256},
    fixed={"norm_offset": True, "scaled": True},
    derive=(fields.grouped_queries, GELU, *RMS_1E6),
)
GEMMA: Mapping[str, Architecture] = {
    "gemma": replace(
        _GEMMA,
        derive=(fields.grouped_queries, routers.activation("hidden_act", "gelu_pytorch_tanh", gated=True), *RMS_1E6),
    ),
    "gemma2": replace(_GEMMA, fixed={**_GEMMA.fixed, **FOUR_NORMS}, derive=(*_GEMMA.derive, sliding(2))),
    "gemma3_text": replace(
        _GEMMA,
        fixed={**_GEMMA.fixed, **FOUR_NORMS, "qk_norm": "head"},
        derive=(fields.grouped_queries, GELU, fields.norm_epsilon("rms_norm_eps", 1e-6), sliding(6)),
    ),
    "gemma4_text": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={
            **{**TIED, **UNBIASED, "head_dim": 256, "num_key_value_heads": 4, "global_head_dim": 512},
            **{_PER_LAYER: 256, "sliding_window": 512, "attention_k_eq_v": False, "enable_moe_block": False},
        },
        fixed={**FOUR_NORMS, "scaled": True, "qk_norm": "head"},
        derive=(
            fields.grouped_queries,
            _gemma4_attention,
            _gemma4_experts,
            GELU,
            fields.norm_epsilon("rms_norm_eps", 1e-6),
        ),
    ),
}
"""`model_type` -> how its config.json is read."""


_DELTA = {
    **{"linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_num_key_heads": 16},
    **{"linear_key_head_dim": 128, "linear_conv_kernel_dim": 4, "head_dim": 256},
}
_MAMBA2 = {
    **{"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2},
    **{"mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_chunk_size": 256},
}
_QWEN = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**UNTIED, **UNBIASED, **_DELTA, "num_key_value_heads": 4},
    fixed={"qk_norm": "head", "attention_gate": True, "norm_offset": True},
    derive=(
        fields.grouped_queries,
        pattern.mixed(pattern.every("full_attention_interval", 4)),
        pattern.gated_delta,
        SILU,
        fields.norm_epsilon("rms_norm_eps", 1e-6),
        fields.rotary(1e4, partial_rotary_factor=0.25),
    ),
)
_LFM2 = {"block_auto_adjust_ff_dim": True, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0}
_MOE = {"decoder_sparse_step": 1, "norm_topk_prob": True, **AUX}


def _granite_hybrid(config: Reader) -> dict[str, object]:
    """Experts beside a shared one; without experts the shared one is the MLP."""
    if config.whole("num_local_experts", 0, least=0):
        return routers.routed(decoders.granite_shared, NORMALISED)(config)
    return {"ffn": config.whole("shared_intermediate_size")}


HYBRIDS: Mapping[str, Architecture] = {
    "qwen3_5_text": _QWEN,
    "qwen3_next": replace(
        _QWEN,
        defaults={**_QWEN.defaults, **_MOE, "num_key_value_heads": 2},
        derive=(*_QWEN.derive, routers.routed(fields.qwen_experts, SOFTMAX)),
    ),
    "qwen3_5_moe_text": replace(
        _QWEN,
        keys={**_QWEN.keys, "ffn": "moe_intermediate_size"},
        defaults={**_QWEN.defaults, **_MOE, "num_key_value_heads": 2},
        derive=(*_QWEN.derive, routers.routed(fields.qwen_experts, NORMALISED)),
    ),
    "olmo_hybrid": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={**UNTIED, **UNBIASED, **_DELTA, "head_dim": None},
        fixed={"qk_norm": "full", "norm_place": "output"},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.every("full_attention_interval", 4)),
            pattern.gated_delta,
            SILU,
            *RMS_1E6,
        ),
    ),
    "minimax": Architecture(
        keys=COMMON,
        defaults={**UNTIED, **AUX, "num_key_value_heads": 8, "block_size": 256},
        fixed={"scaled": True},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.alternating),
            pattern.lightning,
            routers.routed(fields.routed_experts, NORMALISED),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
            fields.rotary(1e6),
        ),
    ),
    "jamba": Architecture(
        keys=COMMON,
        defaults={
            **{**UNTIED, **AUX, "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2},
            **{"expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8, "attn_layer_offset": 4},
            **{"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
            **{"mamba_conv_bias": True, "mamba_proj_bias": False},
        },
        fixed={"positions": "none"},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.at_offset),
            pattern.mamba,
            routers.routed(pattern.jamba_feeds, routers.softmax_router(normalised=False)),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-6),
        ),
    ),
    "bamba": Architecture(
        keys={**COMMON, **ATTENTION_BIAS, "mlp_bias": "mlp_bias"},
        defaults={**UNTIED, **UNBIASED, **_MAMBA2, "mlp_bias": False, "num_key_value_heads": 8},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.at_indices),
            pattern.mamba2(),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
            fields.rotary(1e4, partial_rotary_factor=0.5),
        ),
    ),
    "falcon_h1": Architecture(
        keys={**COMMON, "qkv_bias": "attention_bias", "output_bias": "attention_bias", "mlp_bias": "mlp_bias"},
        defaults={
            **{**UNTIED, **UNBIASED, **_MAMBA2, "mlp_bias": False, "num_key_value_heads": 8},
            **{"mamba_rms_norm": False, "mamba_d_ssm": 1024},
        },
        fixed={"mixers": ["both"], "scaled": True},
        derive=(fields.grouped_queries, pattern.mamba2("mamba_rms_norm"), SILU, *RMS_1E5),
    ),
    "granitemoehybrid": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={**UNTIED, **UNBIASED, **AUX, **_MAMBA2, "shared_intermediate_size": 1024},
        fixed={"scaled": True},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.all_recurrent),
            pattern.mamba2(),
            _granite_hybrid,
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-6),
        ),
    ),
    "nemotron_h": Architecture(
        keys={**{k: v for k, v in COMMON.items() if k != "layers"}, "mlp_bias": "mlp_bias"},
        defaults={
            **{**UNTIED, "mlp_bias": False, "num_key_value_heads": 8, "head_dim": 128},
            **{"mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4},
            **{"use_conv_bias": True, "use_bias": False, "chunk_size": 128},
            **{"n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True},
            **{"routed_scaling_factor": 1.0, "topk_method": "noaux_tc"},
        },
        fixed={"gated": False, "positions": "none"},
        derive=(
            fields.grouped_queries,
            routers.routed(pattern.nemotron_blocks, decoders.SIGMOID_ROUTER),
            pattern.nemotron_mamba2,
            routers.activation("mlp_hidden_act", "relu2"),
            fields.norm_epsilon("layer_norm_epsilon", 1e-5),
        ),
    ),
    "lfm2": Architecture(
        keys=COMMON,
        defaults={**TIED, "num_key_value_heads": 8, "conv_L_cache": 3, "conv_bias": False, **_LFM2},
        fixed={"qk_norm": "head", "activation": "swiglu"},
        derive=(
            fields.grouped_queries,
            pattern.mixed(pattern.listed_full),
            pattern.short_convolution,
            pattern.lfm2_width,
            fields.norm_epsilon("norm_eps", 1e-5),
            fields.rotary(1e6),
        ),
    ),
}
"""`model_type` -> how its config.json is read."""
