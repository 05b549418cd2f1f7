"""Decoders of one kind of block, as data: which key of a config.json says what, by `model_type`.

Defaults and what code fixes are those of the classes in transformers 5.23.0; counts are held to what it builds
(``tests/test_architectures.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.models.huggingface import fields, pattern, routers
from planner.models.huggingface.config_values import ATTENTION_BIAS, COMMON, TIED, UNTIED, Architecture, Reader

SILU = routers.activation("hidden_act", "silu", gated=True)
GELU = routers.activation("hidden_activation", "gelu_pytorch_tanh", gated=True)
RMS_1E6 = (fields.norm_epsilon("rms_norm_eps", 1e-6), fields.rotary(1e4))
RMS_1E5 = (fields.norm_epsilon("rms_norm_eps", 1e-5), fields.rotary(1e4))
LAYER_1E5 = (fields.norm_epsilon("layer_norm_eps", 1e-5), fields.rotary(1e4))
AUX = {"router_aux_loss_coef": 0.001}
UNBIASED = {"attention_bias": False}
FOUR_NORMS = {"norm_place": "both", "norms_per_layer": 4}
_QUERIES_ALONE = {"qkv_bias": "attention_bias"}
_LAYER = {"norm": "layer"}
_ALL_BIASED = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), True)
_ALL_BIASES = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), "use_bias")
_GROUPED = {"n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0}
SIGMOID = {**_GROUPED, "topk_method": "noaux_tc", "moe_layer_freq": 1, "first_k_dense_replace": 0}


def head_bias(config: Reader) -> dict[str, Any]:
    """A bias a word in the output projection."""
    return {"extra_parameters": config.whole("vocab_size")}


def if_set(key: str, **values: Any) -> Any:
    """Fields that hold where a switch is on."""
    return lambda config: values if config.flag(key) else {}


def sliding(interval: int, *, switch: str = "") -> Any:
    """A window on all but the last block of each round of so many, or where `layer_types` says so."""

    def read(config: Reader) -> dict[str, Any]:
        if not config.has("sliding_window") or (switch and not config.flag(switch)):
            return {}
        size = config.whole("sliding_window_pattern", config.whole("_sliding_window_pattern", interval))
        layers = [(layer + 1) % size > 0 for layer in range(config.layers())]
        return fields.regular_window(config, fields.sliding_layers(config, layers), "sliding_window")

    return read


def leading_dense(config: Reader) -> int:
    """Dense blocks at the start, as `mlp_layer_types` lists them; any other order is refused."""
    kinds = fields.each_layer(config, "mlp_layer_types")
    dense = kinds.count("dense")
    if kinds != ["dense"] * dense + ["sparse"] * (len(kinds) - dense):
        raise config.wrong("mlp_layer_types", "dense layers must be the first ones")
    return dense if kinds else config.whole("first_k_dense_replace", 0, least=0)


def shared_experts(experts: str, shared: str) -> Any:
    """Fine-grained experts after some dense blocks; shared ones are as wide."""

    def read(config: Reader) -> dict[str, Any]:
        width = config.whole("moe_intermediate_size")
        return fields.experts(
            config,
            experts,
            "moe_intermediate_size",
            shared_ffn=config.whole(shared, 0, least=0) * width,
            leading_dense_layers=leading_dense(config),
        )

    return read


SIGMOID_ROUTER = routers.deepseek_router("sigmoid")
SOFTMAX = routers.softmax_router()
NORMALISED = routers.softmax_router(normalised=True)
DEEPSEEK = routers.routed(shared_experts("n_routed_experts", "n_shared_experts"), SIGMOID_ROUTER)
_LATENT = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**UNTIED, **UNBIASED, **SIGMOID},
    derive=(fields.latent_attention, DEEPSEEK, SILU, *RMS_1E6),
)
_SPARSE = replace(
    _LATENT, defaults={**_LATENT.defaults, "first_k_dense_replace": 3}, derive=(*_LATENT.derive, pattern.indexed)
)
_LLAMA_LIKE = Architecture(
    keys={**COMMON, **ATTENTION_BIAS, "mlp_bias": "mlp_bias"},
    defaults={**UNTIED, **UNBIASED, "mlp_bias": False},
    derive=(fields.grouped_queries, SILU, *RMS_1E6),
)
_PLAIN = replace(_LLAMA_LIKE, keys={**COMMON, **ATTENTION_BIAS})
_OLMO2 = replace(_PLAIN, fixed={"norm_place": "output", "qk_norm": "full"})
_COHERE = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**TIED, **UNBIASED, "use_qk_norm": False},
    fixed={**_LAYER, "norm_bias": False, "norms_per_layer": 1, "scaled": True},
    derive=(fields.grouped_queries, if_set("use_qk_norm", qk_norm="full"), SILU, *LAYER_1E5),
)
_GRANITE_MOE = Architecture(
    keys={**COMMON, **ATTENTION_BIAS},
    defaults={**UNTIED, **UNBIASED, **AUX, "num_experts_per_tok": 2},
    fixed={"scaled": True},
    derive=(fields.grouped_queries, routers.routed(fields.routed_experts, NORMALISED), SILU, *RMS_1E6),
)


def granite_shared(config: Reader) -> dict[str, Any]:
    """Granite's experts with one shared by all, without a gate."""
    shared = config.whole("shared_intermediate_size", 0, least=0)
    return fields.experts(config, "num_local_experts", "intermediate_size", shared_ffn=shared)


def _ernie_experts(config: Reader) -> dict[str, Any]:
    start = config.whole("moe_layer_start_index", least=0)
    end = config.whole("moe_layer_end_index", least=-1)
    if config.whole("moe_layer_interval") != 1 or end not in (-1, config.layers() - 1):
        raise config.wrong("moe_layer_end_index", f"{end}: mixtures must follow each other to the last layer")
    width = config.whole("moe_intermediate_size")
    return {
        "moe": {
            "experts": config.whole("moe_num_experts"),
            "experts_per_token": config.whole("moe_k"),
            "ffn": width,
            "shared_ffn": config.whole("moe_num_shared_experts", 0, least=0) * width,
            "leading_dense_layers": start,
            "router_bias": True,
        }
    }


def _falcon(config: Reader) -> dict[str, Any]:
    heads = config.whole("num_attention_heads")
    hidden = config.whole("hidden_size")
    newer = config.flag("new_decoder_architecture")
    parallel = config.flag("parallel_attn")
    kv = config.whole("num_kv_heads", heads) if newer else 1 if config.flag("multi_query") else heads
    norms = config.whole("num_ln_in_parallel_attn", 2) if newer else 1 if parallel else 2
    biased = config.flag("bias")
    return {
        "kv_heads": kv,
        "head_dim": hidden // heads,
        "ffn": config.whole("ffn_hidden_size", 4 * hidden),
        "norms_per_layer": norms,
        "qkv_bias": biased,
        "output_bias": biased,
        "mlp_bias": biased,
        "positions": "alibi" if config.flag("alibi") else None,
    }


def _gptj(config: Reader) -> dict[str, Any]:
    return {**fields.multi_head(config), **fields.four_times("n_inner")(config), **head_bias(config)}


DECODERS: Mapping[str, Architecture] = {
    "phi": Architecture(
        keys=COMMON,
        defaults=UNTIED,
        fixed={**_LAYER, **_ALL_BIASED, "gated": False, "norms_per_layer": 1},
        derive=(fields.grouped_queries, head_bias, routers.activation("hidden_act", "gelu_new"), *LAYER_1E5),
    ),
    "phi3": Architecture(keys=COMMON, defaults=UNTIED, derive=(fields.grouped_queries, fields.window, SILU, *RMS_1E5)),
    "phimoe": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={**UNTIED, **UNBIASED, **AUX, "num_key_value_heads": 8, "lm_head_bias": False},
        fixed=_LAYER,
        derive=(
            fields.grouped_queries,
            lambda config: head_bias(config) if config.flag("lm_head_bias") else {},
            routers.routed(fields.routed_experts, NORMALISED),
            fields.window,
            SILU,
            *RMS_1E5,
        ),
    ),
    "olmo": replace(_PLAIN, fixed={**_LAYER, "norm_bias": False, "norm_weight": False}),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, derive=(*_OLMO2.derive[:2], sliding(4), fields.norm_epsilon("rms_norm_eps", 1e-5))),
    "olmoe": replace(
        _PLAIN,
        defaults={**_PLAIN.defaults, **AUX, "router_aux_loss_coef": 0.01, "norm_topk_prob": False},
        fixed={"qk_norm": "full"},
        derive=(*_PLAIN.derive, routers.routed(fields.routed_experts, SOFTMAX)),
    ),
    "flex_olmo": replace(
        _OLMO2,
        defaults={**_PLAIN.defaults, **AUX, "router_aux_loss_coef": 0.01, "norm_topk_prob": False},
        derive=(*_OLMO2.derive, routers.routed(fields.routed_experts, SOFTMAX)),
    ),
    "glm": Architecture(
        keys={**COMMON, **_QUERIES_ALONE},
        defaults={**UNTIED, "attention_bias": True, "num_key_value_heads": 2, "head_dim": 128},
        derive=(fields.grouped_queries, SILU, *RMS_1E6),
    ),
    "glm4": Architecture(
        keys={**COMMON, **_QUERIES_ALONE},
        defaults={**UNTIED, "attention_bias": True, "num_key_value_heads": 2, "head_dim": 128},
        fixed=FOUR_NORMS,
        derive=(fields.grouped_queries, SILU, *RMS_1E6),
    ),
    "glm4_moe": Architecture(
        keys={**COMMON, **_QUERIES_ALONE},
        defaults={**UNTIED, **UNBIASED, **SIGMOID, "first_k_dense_replace": 1, "use_qk_norm": False},
        derive=(fields.grouped_queries, if_set("use_qk_norm", qk_norm="head"), DEEPSEEK, SILU, *RMS_1E5),
    ),
    "glm4_moe_lite": replace(_LATENT, defaults={**_LATENT.defaults, "first_k_dense_replace": 1}),
    "mistral4": _LATENT,
    "deepseek_v32": _SPARSE,
    "glm_moe_dsa": _SPARSE,
    "youtu": replace(_LATENT, defaults={**TIED, **UNBIASED}, derive=(fields.latent_attention, SILU, *RMS_1E6)),
    "dots1": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={**UNTIED, **UNBIASED, **SIGMOID, "norm_topk_prob": False},
        fixed={"qk_norm": "head"},
        derive=(fields.grouped_queries, DEEPSEEK, SILU, *RMS_1E6),
    ),
    "solar_open": Architecture(
        keys={**COMMON, "ffn": "moe_intermediate_size", **ATTENTION_BIAS},
        defaults={**UNTIED, **UNBIASED, **SIGMOID},
        derive=(fields.grouped_queries, DEEPSEEK, SILU, *RMS_1E5),
    ),
    "hy_v3": Architecture(
        keys={**COMMON, **ATTENTION_BIAS, "mlp_bias": "mlp_bias"},
        defaults={**UNTIED, **UNBIASED, **SIGMOID, "mlp_bias": False, "first_k_dense_replace": 1},
        fixed={"qk_norm": "head"},
        derive=(
            fields.grouped_queries,
            routers.routed(shared_experts("num_experts", "num_shared_experts"), SIGMOID_ROUTER),
            SILU,
            *RMS_1E5,
        ),
    ),
    "exaone4": Architecture(
        keys=COMMON,
        defaults=UNTIED,
        fixed={"norm_place": "output", "qk_norm": "head"},
        derive=(fields.grouped_queries, sliding(4), SILU, *RMS_1E5),
    ),
    "exaone_moe": Architecture(
        keys=COMMON,
        defaults={**UNTIED, **SIGMOID, "first_k_dense_replace": 1},
        fixed={"qk_norm": "head"},
        derive=(
            fields.grouped_queries,
            sliding(4),
            routers.routed(shared_experts("num_experts", "num_shared_experts"), SIGMOID_ROUTER),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
        ),
    ),
    "seed_oss": Architecture(
        keys={**COMMON, "qkv_bias": "attention_bias", "output_bias": "attention_out_bias", "mlp_bias": "mlp_bias"},
        defaults={**UNTIED, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "head_dim": 128},
        derive=(fields.grouped_queries, SILU, *RMS_1E6),
    ),
    "ernie4_5": Architecture(
        keys={**COMMON, **_ALL_BIASES},
        defaults={**TIED, "use_bias": False, "head_dim": 128, "num_key_value_heads": 2},
        derive=(fields.grouped_queries, SILU, fields.norm_epsilon("rms_norm_eps", 1e-5), fields.rotary(5e5)),
    ),
    "ernie4_5_moe": Architecture(
        keys={**COMMON, **_ALL_BIASES},
        defaults={
            **{**TIED, **AUX, "use_bias": False, "moe_layer_interval": 1, "moe_layer_start_index": 1},
            **{"moe_layer_end_index": -1, "moe_num_shared_experts": 2, "moe_k": 6, "moe_num_experts": 64},
        },
        derive=(
            fields.grouped_queries,
            routers.routed(_ernie_experts, NORMALISED),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-5),
            fields.rotary(5e5),
        ),
    ),
    "smollm3": replace(
        _LLAMA_LIKE,
        defaults={**TIED, **UNBIASED, "mlp_bias": False, "num_key_value_heads": 4, "use_sliding_window": False},
        derive=(fields.grouped_queries, fields.switched_window, SILU, fields.norm_epsilon("rms_norm_eps", 1e-6)),
    ),
    "starcoder2": Architecture(
        keys={**COMMON, **_ALL_BIASES},
        defaults={**TIED, "use_bias": True, "num_key_value_heads": 2},
        fixed={**_LAYER, "gated": False},
        derive=(
            fields.grouped_queries,
            fields.window,
            routers.activation("hidden_act", "gelu_pytorch_tanh"),
            fields.norm_epsilon("norm_epsilon", 1e-5),
            fields.rotary(1e4),
        ),
    ),
    "stablelm": Architecture(
        keys={**COMMON, "qkv_bias": "use_qkv_bias"},
        defaults={**UNTIED, "use_qkv_bias": False, "use_parallel_residual": False},
        fixed=_LAYER,
        derive=(
            fields.grouped_queries,
            if_set("use_parallel_residual", norms_per_layer=1),
            SILU,
            fields.norm_epsilon("layer_norm_eps", 1e-5),
            fields.rotary(1e4, partial_rotary_factor=0.25),
        ),
    ),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, derive=(fields.grouped_queries, sliding(4), SILU, *LAYER_1E5)),
    "arcee": replace(
        _LLAMA_LIKE,
        fixed={"gated": False},
        derive=(fields.grouped_queries, routers.activation("hidden_act", "relu2"), *RMS_1E5),
    ),
    "helium": replace(
        _LLAMA_LIKE,
        keys={**COMMON, **_QUERIES_ALONE, "mlp_bias": "mlp_bias"},
        derive=(fields.grouped_queries, SILU, fields.norm_epsilon("rms_norm_eps", 1e-8), fields.rotary(1e5)),
    ),
    "ministral3": Architecture(
        keys=COMMON,
        defaults={**UNTIED, "num_key_value_heads": 8, "head_dim": 128},
        derive=(fields.grouped_queries, fields.window, SILU, fields.norm_epsilon("rms_norm_eps", 1e-5)),
    ),
    "granite": replace(_LLAMA_LIKE, fixed={"scaled": True}),
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": replace(
        _GRANITE_MOE,
        derive=(fields.grouped_queries, routers.routed(granite_shared, NORMALISED), SILU, *RMS_1E6),
    ),
    "minimax_m2": Architecture(
        keys=COMMON,
        defaults={**UNTIED, **SIGMOID, "num_key_value_heads": 8, "head_dim": 128},
        fixed={"qk_norm": "full"},
        derive=(
            fields.grouped_queries,
            routers.routed(fields.routed_experts, SIGMOID_ROUTER),
            SILU,
            fields.norm_epsilon("rms_norm_eps", 1e-6),
            fields.rotary(5e6),
        ),
    ),
    "gptj": Architecture(
        keys={
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "vocab": "vocab_size",
            "tied": "tie_word_embeddings",
        },
        defaults=UNTIED,
        fixed={**_LAYER, "gated": False, "mlp_bias": True, "norms_per_layer": 1},
        derive=(
            _gptj,
            routers.activation("activation_function", "gelu_new"),
            fields.norm_epsilon("layer_norm_epsilon", 1e-5),
        ),
    ),
    "gpt_neox": Architecture(
        keys={**COMMON, **ATTENTION_BIAS},
        defaults={**UNTIED, "attention_bias": True},
        fixed={**_LAYER, "gated": False, "mlp_bias": True},
        derive=(
            fields.multi_head,
            routers.activation("hidden_act", "gelu"),
            fields.norm_epsilon("layer_norm_eps", 1e-5),
            fields.rotary(1e4, partial_rotary_factor=0.25),
        ),
    ),
    "falcon": Architecture(
        keys={key: value for key, value in COMMON.items() if key != "ffn"},
        defaults={
            **{**TIED, "new_decoder_architecture": False, "parallel_attn": True, "multi_query": True},
            **{"bias": False, "alibi": False},
        },
        fixed={**_LAYER, "gated": False},
        derive=(_falcon, routers.activation("activation", "gelu"), fields.norm_epsilon("layer_norm_epsilon", 1e-5)),
    ),
    "hunyuan_v1_dense": replace(_PLAIN, fixed={"qk_norm": "head"}, derive=(fields.grouped_queries, SILU, *RMS_1E5)),
    "nanochat": Architecture(
        keys=COMMON,
        defaults={**UNTIED},
        fixed={"gated": False, "norm_weight": False, "qk_norm": "unweighted", "scaled": True},
        derive=(fields.grouped_queries, routers.activation("hidden_act", "relu2"), *RMS_1E6),
    ),
}
"""`model_type` -> how its config.json is read."""
