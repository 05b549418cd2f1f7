"""Blocks of several kinds out of a config.json: what mixes tokens in each, recurrences, sparse attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.models.blocks import repetition
from planner.models.huggingface import fields
from planner.models.huggingface.config_values import Reader
from planner.schema.workload import MOST_LAYERS, Feed, Mixer

Fields = dict[str, Any]
KINDS: Mapping[str, Mixer] = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "window",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "conv": "recurrent",
}
"""What `layer_types` calls a block -> a model's word."""
RECURRENT = tuple(kind for kind, mixer in KINDS.items() if mixer == "recurrent")
LETTERS: Mapping[str, tuple[Mixer, Feed]] = {
    "M": ("recurrent", "none"),
    "*": ("attention", "none"),
    "-": ("none", "mlp"),
    "E": ("none", "mixture"),
}
"""Letters of Nemotron-H's `hybrid_override_pattern`."""
WORDS: Mapping[str, tuple[Mixer, Feed]] = {
    "linear_attention": LETTERS["M"],
    "mamba": LETTERS["M"],
    "full_attention": LETTERS["*"],
    "attention": LETTERS["*"],
    "mlp": LETTERS["-"],
    "moe": LETTERS["E"],
}
Each = Callable[[int], str]


def once(items: Sequence[Any]) -> tuple[Any, ...]:
    """The shortest beginning of which a list is the repetition."""
    return tuple(items[: repetition(items)])


def mixed(otherwise: Callable[[Reader], Each]) -> Callable[[Reader], Fields]:
    """Blocks as `layer_types` (or `layers_block_type`) names them, else as the class makes them up."""

    def read(config: Reader) -> Fields:
        key = "layer_types" if config.has("layer_types") else "layers_block_type"
        named = fields.each_layer(config, key)
        made = otherwise(config)
        kinds = named or [made(layer) for layer in range(config.layers())]
        return {"mixers": once([config.meaning(key, kind, KINDS) for kind in kinds])}

    return read


def every(key: str, interval: int) -> Callable[[Reader], Each]:
    """Full attention in the last block of each round of so many, a recurrence in the others."""

    def made(config: Reader) -> Each:
        size = config.whole(key, interval)
        return lambda layer: "linear_attention" if (layer + 1) % size else "full_attention"

    return made


def alternating(config: Reader) -> Each:
    """Full attention in every second block, beginning with the first (MiniMax)."""
    del config
    return lambda layer: "linear_attention" if layer % 2 else "full_attention"


def at_offset(config: Reader) -> Each:
    """Attention in one block of each period, at an offset (Jamba)."""
    period, offset = _rhythm(config, "attn_layer")
    return lambda layer: "full_attention" if layer % period == offset else "linear_attention"


def _rhythm(config: Reader, name: str) -> tuple[int, int]:
    """A period and the block in it that is meant."""
    period = config.whole(f"{name}_period")
    offset = config.whole(f"{name}_offset", least=0)
    if offset >= period:
        raise config.wrong(f"{name}_offset", f"{offset:,}: must be below {name}_period = {period:,}")
    return period, offset


def at_indices(config: Reader) -> Each:
    """Attention in the blocks listed (Bamba)."""
    listed = config.indices("attn_layer_indices")
    return lambda layer: "full_attention" if layer in listed else "linear_attention"


def listed_full(config: Reader) -> Each:
    """Attention in the blocks listed, else in all (LFM2)."""
    listed = config.indices("full_attn_idxs")
    return lambda layer: "full_attention" if layer in listed or not listed else "conv"


def all_recurrent(config: Reader) -> Each:
    """No attention but where it is said."""
    del config
    return lambda layer: "linear_attention"


def jamba_feeds(config: Reader) -> Fields:
    """A mixture in one block of each period, at an offset; experts as wide as the dense MLP."""
    if config.whole("num_experts") == 1:
        return {}
    period, offset = _rhythm(config, "expert_layer")
    feeds = ["mixture" if layer % period == offset else "mlp" for layer in range(config.layers())]
    return {"feeds": once(feeds), **fields.experts(config, "num_experts", "intermediate_size")}


def nemotron_blocks(config: Reader) -> Fields:
    """Blocks of one kind each: a recurrence, attention, an MLP, or a mixture. Their list says how many there are."""
    if config.has("layers_block_type") or not config.has("hybrid_override_pattern"):
        key = "layers_block_type"
        known = WORDS
        names = config.items(key)
    else:
        key = "hybrid_override_pattern"
        known = LETTERS
        names = list(config.text(key))
    if not 1 <= len(names) <= MOST_LAYERS:
        raise config.wrong(key, f"{len(names):,} blocks: must be from 1 to {MOST_LAYERS:,}" if names else "missing")
    pairs = [config.meaning(key, name, known) for name in names]
    block_fields: Fields = {
        "layers": len(pairs),
        "mixers": once([mixer for mixer, _ in pairs]),
        "feeds": once([feed for _, feed in pairs]),
        "norms_per_layer": 1,
    }
    if any(feed == "mixture" for _, feed in pairs):
        more = {
            "shared_ffn": config.whole("n_shared_experts", 0, least=0)
            * config.whole("moe_shared_expert_intermediate_size"),
            "latent": config.whole("moe_latent_size", 0, least=0),
        }
        block_fields |= fields.experts(config, "n_routed_experts", "moe_intermediate_size", **more)
    return block_fields


# ---- recurrences -----------------------------------------------------------------------------------------------------


def gated_delta(config: Reader) -> Fields:
    """Qwen's and OLMo's gated delta nets."""
    return {
        "recurrence": {
            "kind": "delta",
            "heads": config.whole("linear_num_value_heads"),
            "value_dim": config.whole("linear_value_head_dim"),
            "key_heads": config.whole("linear_num_key_heads"),
            "key_dim": config.whole("linear_key_head_dim"),
            "convolution": config.whole("linear_conv_kernel_dim"),
            "norm": "head",
        }
    }


def mamba2(norm: str = "full") -> Callable[[Reader], Fields]:
    """Mamba-2 under Bamba's, Granite's and Falcon's keys; `norm` names the key that switches its norm, or says it."""

    def read(config: Reader) -> Fields:
        normed = config.flag(norm) if norm != "full" else True
        return {
            "recurrence": {
                "kind": "mamba2",
                "heads": config.whole("mamba_n_heads"),
                "value_dim": _head_dim(config),
                "key_heads": config.whole("mamba_n_groups"),
                "key_dim": config.whole("mamba_d_state"),
                "convolution": config.whole("mamba_d_conv"),
                "convolution_bias": config.flag("mamba_conv_bias"),
                "bias": config.flag("mamba_proj_bias"),
                "norm": "full" if normed else "none",
                "chunk": config.whole("mamba_chunk_size"),
            }
        }

    return read


def _head_dim(config: Reader) -> int:
    """The inner width (`mamba_expand` times the model's, or Falcon's own) over the heads; another is refused."""
    heads = config.whole("mamba_n_heads")
    inner = config.whole("mamba_d_ssm", config.whole("mamba_expand") * config.whole("hidden_size"))
    stated = config.get("mamba_d_head")
    width = inner // heads if stated in (None, "auto") else config.whole("mamba_d_head")
    if width * heads != inner:
        raise config.wrong("mamba_n_heads", f"{heads:,}: heads and mamba_d_head must make the inner width, {inner:,}")
    return width


def nemotron_mamba2(config: Reader) -> Fields:
    """Mamba-2 under Nemotron-H's keys."""
    return {
        "recurrence": {
            "kind": "mamba2",
            "heads": config.whole("mamba_num_heads"),
            "value_dim": config.whole("mamba_head_dim"),
            "key_heads": config.whole("n_groups"),
            "key_dim": config.whole("ssm_state_size"),
            "convolution": config.whole("conv_kernel"),
            "convolution_bias": config.flag("use_conv_bias"),
            "bias": config.flag("use_bias"),
            "norm": "full",
            "chunk": config.whole("chunk_size"),
        }
    }


def mamba(config: Reader) -> Fields:
    """Jamba's Mamba: channels, steps through a rank, norms on steps, keys and queries."""
    return {
        "recurrence": {
            "kind": "mamba",
            "heads": config.whole("mamba_expand") * config.whole("hidden_size"),
            "value_dim": 1,
            "key_heads": 1,
            "key_dim": config.whole("mamba_d_state"),
            "convolution": config.whole("mamba_d_conv"),
            "convolution_bias": config.flag("mamba_conv_bias"),
            "bias": config.flag("mamba_proj_bias"),
            "step_rank": config.whole("mamba_dt_rank", -(-config.whole("hidden_size") // 16)),
            "norm": "inner",
        }
    }


def lightning(config: Reader) -> Fields:
    """MiniMax's linear attention: as many heads of keys as of values, a gate, one norm over all."""
    heads = config.whole("num_attention_heads")
    width = config.whole("head_dim", config.whole("hidden_size") // heads)
    recurrence = {"heads": heads, "value_dim": width, "key_heads": heads, "key_dim": width}
    return {"recurrence": {"kind": "lightning", **recurrence, "norm": "full", "chunk": config.whole("block_size")}}


def lfm2_width(config: Reader) -> Fields:
    """The MLP's: two thirds of what is written, times a factor, rounded up to a multiple, or (switched off) that."""
    written = config.whole("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim"):
        return {"ffn": written}
    step = config.whole("block_multiple_of")
    return {"ffn": -(-int(config.number("block_ffn_dim_multiplier") * int(2 * written / 3)) // step) * step}


def short_convolution(config: Reader) -> Fields:
    """LFM2's: three products' worth of channels, a convolution between two gates."""
    return {
        "recurrence": {
            "kind": "convolution",
            "heads": config.whole("hidden_size"),
            "value_dim": 1,
            "key_heads": 1,
            "key_dim": 1,
            "convolution": config.whole("conv_L_cache"),
            "convolution_bias": config.flag("conv_bias"),
            "bias": config.flag("conv_bias"),
        }
    }


# ---- sparse attention ------------------------------------------------------------------------------------------------


def indexed(config: Reader) -> Fields:
    """Sparse attention's index (DeepSeek-V3.2, GLM-5); after the first blocks one in so many has its own (GLM-5.2)."""
    if config.has("index_topk_pattern"):
        raise config.wrong("index_topk_pattern", "blocks that have an index one by one are not understood")
    every = config.whole("index_topk_freq", 1)
    first = config.whole("index_skip_topk_offset", 2) - 1 if every > 1 else 0
    index = {
        "heads": config.whole("index_n_heads"),
        "head_dim": config.whole("index_head_dim"),
        "top": config.whole("index_topk"),
        "first": first,
        "every": every,
    }
    kinds = ["full" if max(block - first, 0) % every == 0 else "shared" for block in range(config.layers())]
    if config.items("indexer_types") not in ([], kinds):
        raise config.wrong("indexer_types", "only one block in index_topk_freq after the first has an index of its own")
    return {"indexer": index}
