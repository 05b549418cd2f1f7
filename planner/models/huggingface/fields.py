"""Fields of a model that follow from several keys of a config.json: one idea a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.models.blocks import repetition
from planner.models.huggingface.config_values import Reader

Fields = dict[str, Any]

# ---- attention -------------------------------------------------------------------------------------------------------


def grouped_queries(config: Reader) -> Fields:
    """Key/value heads (as many as query heads unless said) and the width of a head (hidden / heads unless said)."""
    heads = config.whole("num_attention_heads")
    return {
        "kv_heads": config.whole("num_key_value_heads", heads),
        "head_dim": config.whole("head_dim", _head_width(config, "hidden_size", "num_attention_heads")),
    }


def multi_head(config: Reader) -> Fields:
    """As many key/value heads as query heads, each hidden / heads wide; GPT-2 has its own names for both."""
    short = config.has("n_embd")
    hidden, heads = ("n_embd", "n_head") if short else ("hidden_size", "num_attention_heads")
    return {"kv_heads": config.whole(heads), "head_dim": _head_width(config, hidden, heads)}


def _head_width(config: Reader, hidden: str, heads: str) -> int:
    width, rest = divmod(config.whole(hidden), config.whole(heads))
    if rest and not config.has("head_dim"):
        raise config.wrong(heads, f"{config.whole(heads)}: does not divide {hidden} = {config.whole(hidden)}")
    return max(width, 1)


def latent_attention(config: Reader) -> Fields:
    """DeepSeek's ranks and widths; a null query rank means queries are projected directly."""
    latent = {
        "query_rank": config.whole("q_lora_rank", 0),
        "kv_rank": config.whole("kv_lora_rank"),
        "rope_dim": config.whole("qk_rope_head_dim"),
        "nope_dim": config.whole("qk_nope_head_dim"),
        "value_dim": config.whole("v_head_dim"),
    }
    return {"latent": latent, "kv_heads": config.whole("num_attention_heads"), "head_dim": latent["nope_dim"]}


# ---- windows ---------------------------------------------------------------------------------------------------------


def window(config: Reader) -> Fields:
    """One window for all layers, or for those that `layer_types` names; null: none."""
    if not config.has("sliding_window"):
        return {}
    return regular_window(config, sliding_layers(config, [True] * config.layers()), "sliding_window")


def switched_window(config: Reader) -> Fields:
    """Qwen3's mixtures: all layers, if the window is switched on."""
    return window(config) if _switched_on(config) else {}


def late_window(config: Reader) -> Fields:
    """Qwen2 and 3: only if switched on, and only from layer `max_window_layers` on."""
    if not _switched_on(config):
        return {}
    full = config.whole("max_window_layers", least=0)
    layers = [layer >= full for layer in range(config.layers())]
    return regular_window(config, sliding_layers(config, layers), "sliding_window")


def early_window(config: Reader) -> Fields:
    """Qwen2's mixtures: only if switched on, every second layer before layer `max_window_layers`."""
    if not _switched_on(config):
        return {}
    until = config.whole("max_window_layers", least=0)
    layers = [layer % 2 == 0 and layer < until for layer in range(config.layers())]
    return regular_window(config, sliding_layers(config, layers), "sliding_window")


def _switched_on(config: Reader) -> bool:
    return config.get("use_sliding_window") is True and config.has("sliding_window")


def alternating_window(config: Reader) -> Fields:
    """gpt-oss: every second layer, beginning with the first, unless `layer_types` says otherwise."""
    layers = [layer % 2 == 0 for layer in range(config.layers())]
    return regular_window(config, sliding_layers(config, layers), "sliding_window")


def llama4_chunks(config: Reader) -> Fields:
    """Llama 4: layers with rotary positions attend within a chunk; one in four has neither."""
    if not config.has("attention_chunk_size"):
        return {}
    layers = config.layers()
    interval = config.whole("no_rope_layer_interval")
    chunked = [bool(rope) for rope in each_layer(config, "no_rope_layers")] or [
        (i + 1) % interval != 0 for i in range(layers)
    ]
    window = regular_window(config, chunked, "attention_chunk_size")
    return {"window": {**window["window"], "chunked": True}} if window else {}


def llama4_norms(config: Reader) -> Fields:
    """Norms on queries and keys, if switched on; they have no weights."""
    return {"qk_norm": "unweighted"} if config.flag("use_qk_norm") else {}


def llama4_rotary(config: Reader) -> Fields:
    """Rotary positions in all but one layer in so many; nothing where a list says another pattern."""
    rotary_fields = rotary(5e5)(config)
    interval = config.whole("no_rope_layer_interval")
    listed = each_layer(config, "no_rope_layers")
    regular = [int((layer + 1) % interval != 0) for layer in range(config.layers())]
    if not rotary_fields or (listed and [int(bool(rope)) for rope in listed] != regular):
        return {}
    return {"rotary": {**rotary_fields["rotary"], "skips": interval}}


def sliding_layers(config: Reader, otherwise: Sequence[bool]) -> Sequence[bool]:
    """Which layers `layer_types` names sliding; `otherwise` where it is missing."""
    named = each_layer(config, "layer_types")
    return [config.meaning("layer_types", kind, _SLIDING) for kind in named] or otherwise


_SLIDING = {"sliding_attention": True, "full_attention": False}


def each_layer(config: Reader, key: str) -> list[Any]:
    """A list with one item a layer; empty where it is missing."""
    items = config.items(key)
    layers = config.layers()
    if items and len(items) != layers:
        raise config.wrong(key, f"{len(items):,} items: must be one for each of {layers:,} layers")
    return items


def regular_window(config: Reader, windowed: Sequence[bool], size: str) -> Fields:
    """The shortest repetition of which the first layer has the window, or all but the last; else block by block."""
    if not any(windowed):
        return {}
    most = config.whole(size)
    period = repetition(windowed)
    turn = list(windowed[:period])
    if turn == [True] + [False] * (period - 1):
        return {"window": {"size": most, "every": period}}
    if turn == [True] * (period - 1) + [False]:
        return {"window": {"size": most, "every": period, "inverted": True}}
    return {"window": {"size": most}, "mixers": ["window" if inside else "attention" for inside in turn]}


# ---- mixtures of experts ---------------------------------------------------------------------------------------------


def routed_experts(config: Reader) -> Fields:
    """Mixtral's and Grok's experts, as wide as the dense MLP would be."""
    count = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    return experts(config, count, "intermediate_size")


def gpt_oss_experts(config: Reader) -> Fields:
    """Experts and router with biases."""
    return experts(config, "num_local_experts", "intermediate_size", router_bias=True, expert_bias=True)


def qwen_experts(config: Reader) -> Fields:
    """Qwen's experts; Qwen2's shared one is weighted by a gate. `mlp_only_layers` may name leading layers only."""
    dense = config.items("mlp_only_layers")
    every = config.whole("decoder_sparse_step")
    if any(type(layer) is not int for layer in dense) or sorted(dense) != [*range(len(dense))] or (dense and every > 1):
        raise config.wrong("mlp_only_layers", f"{dense!r}: dense layers must be the first ones")
    shared = config.whole("shared_expert_intermediate_size", 0, least=0)
    return experts(
        config,
        "num_experts",
        "moe_intermediate_size",
        shared_ffn=shared,
        shared_gate=shared > 0,
        leading_dense_layers=len(dense),
        every=every,
    )


def deepseek_experts(config: Reader) -> Fields:
    """Fine-grained experts after some dense layers; shared experts are as wide as routed ones."""
    if not config.has("n_routed_experts"):
        return {}
    if config.whole("moe_layer_freq") != 1:
        raise config.wrong("moe_layer_freq", f"{config.get('moe_layer_freq')}: only 1 is understood")
    return experts(
        config,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_ffn=config.whole("n_shared_experts", 0, least=0) * config.whole("moe_intermediate_size"),
        leading_dense_layers=config.whole("first_k_dense_replace", least=0),
    )


def llama4_experts(config: Reader) -> Fields:
    """Every so-manieth layer is a mixture with one shared expert, as wide as the routed ones."""
    every = config.whole("interleave_moe_layer_step", least=0)
    layers = config.layers()
    expected = list(range(every - 1, layers, every)) if every else []
    listed = config.items("moe_layers")
    if listed and listed != expected:
        raise config.wrong(
            "moe_layers", f"{str(listed)[:40]}: must be every {every}th layer (interleave_moe_layer_step)"
        )
    if not every:
        return {}
    shared = config.whole("intermediate_size")
    return experts(config, "num_local_experts", "intermediate_size", shared_ffn=shared, every=every)


def experts(config: Reader, count: str, ffn: str, **more: Any) -> Fields:
    """A mixture: experts under `count`, each `ffn` wide, of which a token visits `num_experts_per_tok`."""
    chosen = "num_experts_per_tok" if config.has("num_experts_per_tok") else "experts_per_token"
    per_token = config.whole(chosen if config.has(chosen) else "num_experts_per_tok")
    return {"moe": {"experts": config.whole(count), "experts_per_token": per_token, "ffn": config.whole(ffn), **more}}


# ---- norms and positions ---------------------------------------------------------------------------------------------


def norm_epsilon(key: str, otherwise: float) -> Callable[[Reader], Fields]:
    """What norms add to the variance, under `key`; `otherwise` is the class's own."""
    return lambda config: {"norm_epsilon": config.number(key) if config.has(key) else otherwise}


def rotary(base: float, **stretched: Any) -> Callable[[Reader], Fields]:
    """Rotary positions: `rope_theta` and `rope_scaling`, or both in `rope_parameters`; the class's own where left out.

    Of scalings that a model's record has no word for (linear, dynamic, longrope) nothing is said: a launcher's files
    then tell that they lack it.
    """

    def read(config: Reader) -> Fields:
        key = "rope_parameters" if config.has("rope_parameters") else "rope_scaling"
        rope = config.nested(key, {} if config.has(key) else stretched)
        rotary_fields: Fields = {
            "base": next((r.number("rope_theta") for r in (config, rope) if r.has("rope_theta")), base),
            "share": next((r.number(_SHARE) for r in (config, rope) if r.has(_SHARE)), 1.0),
        }
        kind = rope.get("rope_type") or rope.get("type") or "default"
        if kind == "default":
            return {"rotary": rotary_fields}
        if kind not in ("llama3", "yarn") or rope.has("attention_factor"):
            return {}
        numbers = _LLAMA3 if kind == "llama3" else _YARN
        rotary_fields |= {name: rope.number(name) for name in numbers if rope.has(name)}
        if kind == "yarn" and rope.has("truncate"):
            rotary_fields["truncate"] = rope.flag("truncate")
        original = rope.whole("original_max_position_embeddings", config.whole("max_position_embeddings", 1))
        return {"rotary": {**rotary_fields, "scaling": kind, "factor": rope.number("factor"), "original": original}}

    return read


_SHARE = "partial_rotary_factor"
_LLAMA3 = ("low_freq_factor", "high_freq_factor")
_YARN = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")


# ---- the rest --------------------------------------------------------------------------------------------------------


def four_times(key: str) -> Callable[[Reader], Fields]:
    """An inner width under `key` that is four times the hidden size (`n_embd`) unless said."""
    return lambda config: {"ffn": config.whole(key, 4 * config.whole("n_embd"))}


def dropout(key: str) -> Callable[[Reader], Fields]:
    """Whether the residual dropout's probability is above zero."""
    return lambda config: {"dropout": config.number(key) > 0}


def opt_embedding(config: Reader) -> Fields:
    """OPT: a position table with 2 extra rows; a narrower embedding is projected in and out, without biases.

    extra = 2 width hidden where width < hidden. Blocks that norm after themselves have no final norm.
    """
    hidden = config.whole("hidden_size")
    width = config.whole("word_embed_proj_dim", hidden)
    fields: Fields = {"learned_positions": config.whole("max_position_embeddings") + 2}
    if width != hidden:
        fields |= {"embedding_width": width, "extra_parameters": 2 * width * hidden}
    if config.get("do_layer_norm_before") is False:
        fields |= {"norm_place": "post", "final_norm": False}
    return fields


def opt_biases(config: Reader) -> Fields:
    """OPT switches all biases of its linear layers together."""
    return dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), config.flag("enable_bias"))


def mpt_shape(config: Reader) -> Fields:
    """MPT: an expansion ratio, one switch for all biases, ALiBi or a learned table, optional grouped queries."""
    hidden = config.whole("d_model")
    heads = config.whole("n_heads")
    attention = config.nested("attn_config", {"alibi": True})
    biases = not config.flag("no_bias")
    positions = config.flag("learned_pos_emb") and not attention.flag("alibi")
    return {
        "ffn": config.whole("expansion_ratio") * hidden,
        "kv_heads": attention.whole("kv_n_heads", heads),
        "head_dim": _head_width(config, "d_model", "n_heads"),
        "learned_positions": config.whole("max_seq_len") if positions else 0,
        "positions": "alibi" if attention.flag("alibi") else None if positions else "none",
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", "norm_bias"), biases),
    }


def masked_language_head(config: Reader) -> Fields:
    """BERT's prediction head beside the tied matrix: a dense layer, a norm, and a bias a word: h^2 + 3 h + V."""
    hidden = config.whole("hidden_size")
    return {"extra_parameters": hidden * hidden + 3 * hidden + config.whole("vocab_size")}


def t5_stacks(config: Reader) -> Fields:
    """T5: a decoder as deep as the encoder unless said, and relative-position biases (buckets heads) for each stack."""
    projection = config.text("feed_forward_proj")
    return {
        "layers": config.whole("num_decoder_layers", config.whole("num_layers")),
        "gated": projection.startswith("gated-"),
        "extra_parameters": 2 * config.whole("relative_attention_num_buckets") * config.whole("num_heads"),
    }


def patches(config: Reader) -> Fields:
    """ViT: a patch projection (channels p^2 h + h), a class token (h), a table row a token, a bias a label."""
    hidden, patch, image = (config.whole(key) for key in ("hidden_size", "patch_size", "image_size"))
    labels = len(config.object("id2label")) or config.whole("num_labels", 2)
    rows = (image // patch) ** 2 + 1
    return {
        "vocab": labels,
        "learned_positions": rows,
        "extra_parameters": config.whole("num_channels") * patch * patch * hidden + 2 * hidden + labels,
    }
