"""Hugging Face architectures as data: which key of a config.json says what, by `model_type`.

An entry of the table has four parts. `keys`: a field of :class:`planner.schema.workload.Model` and the key that holds
it. `defaults`: what the implementing class takes where the file leaves a key out (transformers 5.23.0). `fixed`: what
its code fixes for every configuration. `derive`: what follows from several keys, functions of a
:class:`planner.models.huggingface.config_values.Reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.models.huggingface import fields, routers
from planner.models.huggingface.config_values import ATTENTION_BIAS, CLASSIC, COMMON, TIED, UNTIED, Architecture
from planner.models.huggingface.decoders import DECODERS
from planner.models.huggingface.delta_and_compressed import COMPRESSED, KIMI, RWKV
from planner.models.huggingface.hybrids import GEMMA, HYBRIDS

_SILU = routers.activation("hidden_act", "silu", gated=True)
_AUX = {"router_aux_loss_coef": 0.001}
_RMS_1E6 = (fields.norm_epsilon("rms_norm_eps", 1e-6), fields.rotary(1e4))
"""Norms and positions of most classes."""
_GPT_OSS_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}

_LLAMA = Architecture(
    keys={**COMMON, **ATTENTION_BIAS, "mlp_bias": "mlp_bias"},
    defaults={**UNTIED, "attention_bias": False, "mlp_bias": False},
    derive=(fields.grouped_queries, _SILU, *_RMS_1E6),
)
_LATENT = {**UNTIED, "attention_bias": False, "moe_layer_freq": 1, "q_lora_rank": 1536}
_V2_ROUTER = {"topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0}
_V3_ROUTER = {
    **{"topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    **{"n_group": 8, "topk_group": 4},
}
_DEEPSEEK_V2 = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**_LATENT, **_V2_ROUTER, "first_k_dense_replace": 0},
    derive=(
        fields.latent_attention,
        routers.routed(fields.deepseek_experts, routers.deepseek_router("softmax")),
        _SILU,
        *_RMS_1E6,
    ),
)
_DEEPSEEK_V3 = replace(
    _DEEPSEEK_V2,
    defaults={**_LATENT, **_V3_ROUTER, "first_k_dense_replace": 3},
    derive=(
        fields.latent_attention,
        routers.routed(fields.deepseek_experts, routers.deepseek_router("sigmoid")),
        _SILU,
        *_RMS_1E6,
    ),
)
_QWEN3 = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**UNTIED, "attention_bias": False, "num_key_value_heads": 32, "head_dim": 128, "max_window_layers": 28},
    fixed={"qk_norm": "head"},
    derive=(fields.grouped_queries, fields.late_window, _SILU, *_RMS_1E6),
)
_QWEN_EXPERTS = routers.routed(fields.qwen_experts, routers.softmax_router())
_QWEN2 = Architecture(
    keys=COMMON,
    defaults={**UNTIED, "num_key_value_heads": 32, "max_window_layers": 28},
    fixed={"qkv_bias": True},
    derive=(fields.grouped_queries, fields.late_window, _SILU, *_RMS_1E6),
)
_QWEN3_MOE = Architecture(
    keys=_QWEN3.keys,
    # Its class has no default for the width of a head: hidden / heads.
    defaults={
        **UNTIED,
        "attention_bias": False,
        "num_key_value_heads": 4,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        **_AUX,
    },
    fixed=_QWEN3.fixed,
    derive=(fields.grouped_queries, _QWEN_EXPERTS, fields.switched_window, _SILU, *_RMS_1E6),
)
_LLAMA4 = Architecture(
    keys={**COMMON, **ATTENTION_BIAS, "ffn": "intermediate_size_mlp"},
    defaults={
        **UNTIED,
        "attention_bias": False,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": 4,
        "use_qk_norm": True,
        **_AUX,
    },
    derive=(
        fields.grouped_queries,
        routers.routed(fields.llama4_experts, routers.llama4_router),
        fields.llama4_chunks,
        fields.llama4_norms,
        fields.llama4_rotary,
        _SILU,
        fields.norm_epsilon("rms_norm_eps", 1e-5),
    ),
)
_GROK = Architecture(
    keys=COMMON,
    # The released code shares the embedding with the output and norms before and after each half of a block.
    defaults=TIED,
    fixed={"norm_place": "both", "norms_per_layer": 4},
    derive=(fields.grouped_queries, fields.routed_experts),
)

ARCHITECTURES: Mapping[str, Architecture] = {
    **COMPRESSED,
    **DECODERS,
    **GEMMA,
    **KIMI,
    **HYBRIDS,
    **RWKV,
    "llama": _LLAMA,
    "mistral": Architecture(
        keys=COMMON,
        defaults={**UNTIED, "num_key_value_heads": 8, "sliding_window": 4096},
        derive=(fields.grouped_queries, fields.window, _SILU, *_RMS_1E6),
    ),
    "mixtral": Architecture(
        keys=COMMON,
        defaults={**UNTIED, **_AUX, "num_key_value_heads": 8},
        derive=(
            fields.grouped_queries,
            routers.routed(fields.routed_experts, routers.softmax_router(normalised=True)),
            fields.window,
            _SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
            fields.rotary(1e6),
        ),
    ),
    "qwen2": _QWEN2,
    "qwen2_moe": Architecture(
        keys={**COMMON, "qkv_bias": "qkv_bias"},
        defaults={
            **UNTIED,
            "qkv_bias": True,
            "num_key_value_heads": 16,
            "decoder_sparse_step": 1,
            "max_window_layers": 28,
            "norm_topk_prob": False,
            **_AUX,
        },
        derive=(fields.grouped_queries, _QWEN_EXPERTS, fields.early_window, _SILU, *_RMS_1E6),
    ),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_5_omni_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": replace(_QWEN3, defaults={**_QWEN3.defaults, "use_sliding_window": False}),
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_omni_moe_text": replace(_QWEN3_MOE, defaults={**_QWEN3_MOE.defaults, "norm_topk_prob": True}),
    "qwen3_moe": _QWEN3_MOE,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gpt_oss": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={
            **UNTIED,
            "attention_bias": True,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            **_AUX,
        },
        fixed={"activation": "clamped-swiglu", "sinks": True},
        derive=(
            fields.grouped_queries,
            routers.routed(fields.gpt_oss_experts, routers.softmax_router(normalised=True)),
            fields.alternating_window,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
            fields.rotary(1.5e5, **_GPT_OSS_YARN),
        ),
    ),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "nemotron": Architecture(
        keys={**COMMON, **ATTENTION_BIAS, "mlp_bias": "mlp_bias"},
        defaults={**UNTIED, "attention_bias": False, "mlp_bias": False},
        fixed={"gated": False, "norm": "layer", "norm_offset": True},
        derive=(
            fields.grouped_queries,
            routers.activation("hidden_act", "relu2"),
            fields.norm_epsilon("norm_eps", 1e-5),
            fields.rotary(1e4, partial_rotary_factor=0.5),
        ),
    ),
    "grok-1": _GROK,
    "grok1": _GROK,
    "gpt2": Architecture(
        keys={
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "vocab": "vocab_size",
            "tied": "tie_word_embeddings",
            "learned_positions": "n_positions",
        },
        defaults={**TIED, "resid_pdrop": 0.1},
        fixed=CLASSIC,
        derive=(
            fields.multi_head,
            fields.four_times("n_inner"),
            fields.dropout("resid_pdrop"),
            routers.activation("activation_function", "gelu_new"),
            fields.norm_epsilon("layer_norm_epsilon", 1e-5),
        ),
    ),
    "opt": Architecture(
        keys={**COMMON, "ffn": "ffn_dim", "norm_bias": "layer_norm_elementwise_affine"},
        defaults={**TIED, "dropout": 0.1, "enable_bias": True, "layer_norm_elementwise_affine": True},
        fixed={"gated": False, "norm": "layer"},
        derive=(
            fields.multi_head,
            fields.opt_embedding,
            fields.opt_biases,
            fields.dropout("dropout"),
            routers.activation("activation_function", "relu"),
        ),
    ),
    "mpt": Architecture(
        keys={
            "layers": "n_layers",
            "hidden": "d_model",
            "heads": "n_heads",
            "vocab": "vocab_size",
            "tied": "tie_word_embeddings",
        },
        defaults={**TIED, "no_bias": True, "expansion_ratio": 4, "resid_pdrop": 0.0, "learned_pos_emb": True},
        fixed={"gated": False, "norm": "layer", "activation": "gelu"},
        derive=(fields.mpt_shape, fields.dropout("resid_pdrop")),
    ),
    "bert": Architecture(
        keys={**COMMON, "learned_positions": "max_position_embeddings", "token_types": "type_vocab_size"},
        defaults={**TIED, "type_vocab_size": 2, "hidden_dropout_prob": 0.1},
        fixed={**CLASSIC, "family": "encoder", "causal": False, "norm_place": "post"},
        derive=(
            fields.multi_head,
            fields.masked_language_head,
            fields.dropout("hidden_dropout_prob"),
            routers.activation("hidden_act", "gelu"),
        ),
    ),
    "t5": Architecture(
        keys={
            "encoder_layers": "num_layers",
            "hidden": "d_model",
            "ffn": "d_ff",
            "heads": "num_heads",
            "kv_heads": "num_heads",
            "head_dim": "d_kv",
            "vocab": "vocab_size",
            "tied": "tie_word_embeddings",
        },
        defaults={**TIED, "feed_forward_proj": "relu", "relative_attention_num_buckets": 32, "dropout_rate": 0.1},
        fixed={"family": "encoder-decoder", "positions": "relative"},
        derive=(fields.t5_stacks, fields.dropout("dropout_rate"), routers.t5_activation),
    ),
    "vit": Architecture(
        keys={key: value for key, value in COMMON.items() if key not in ("vocab", "tied")} | {"qkv_bias": "qkv_bias"},
        defaults={"qkv_bias": True, "num_channels": 3, "hidden_dropout_prob": 0.0},
        fixed={**CLASSIC, "family": "vision", "causal": False},
        derive=(
            fields.multi_head,
            fields.patches,
            fields.dropout("hidden_dropout_prob"),
            routers.activation("hidden_act", "gelu"),
        ),
    ),
}
"""`model_type` -> how its config.json is read."""
