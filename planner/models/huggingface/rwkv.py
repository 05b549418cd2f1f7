"""RWKV-7 as data (arXiv 2503.14456): no attention, a state with a decay a channel, values mixed with the first block's
(the class of fla-org/flash-linear-attention bc3b101d, models/rwkv7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.models.huggingface import fields, routers
from planner.models.huggingface.architecture import UNTIED, Architecture
from planner.models.huggingface.config_values import Reader

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
