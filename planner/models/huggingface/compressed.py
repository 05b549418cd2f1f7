"""DeepSeek-V4 as data: attention on compressed entries, residual streams, mixtures in every block.

That the first blocks send tokens to experts by a table, not by scores, changes no count and no cost: it is left out, as
the table is (no parameter: transformers 5.23.0, models/deepseek_v4). Modules of multi-token prediction are, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.models.huggingface import fields, pattern, routers
from planner.models.huggingface.architecture import COMMON, UNTIED, Architecture
from planner.models.huggingface.config_values import Reader
from planner.models.huggingface.decoders import UNBIASED
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


def _experts(config: Reader) -> dict[str, Any]:
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
        derive=(_attention, routers.routed(_experts, _router), fields.norm_epsilon("rms_norm_eps", 1e-6)),
    ),
}
"""`model_type` -> how its config.json is read."""
