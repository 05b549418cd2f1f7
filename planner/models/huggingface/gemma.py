"""Gemma's decoders as data: which key of a config.json says what, by `model_type` (classes of transformers 5.23.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.models.huggingface import fields, pattern, routers
from planner.models.huggingface.architecture import ATTENTION_BIAS, COMMON, TIED, Architecture
from planner.models.huggingface.config_values import Reader
from planner.models.huggingface.decoders import FOUR_NORMS, GELU, RMS_1E6, UNBIASED, sliding

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
