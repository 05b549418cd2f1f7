"""What an architecture of the Hugging Face hub is to this program: which key of a config.json says what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.models.huggingface.config_values import Reader

Derive = Callable[[Reader], dict[str, Any]]


@dataclass(frozen=True)
class Architecture:
    """How one `model_type` writes its shape."""

    keys: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    derive: tuple[Derive, ...] = ()


COMMON = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "ffn": "intermediate_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}
UNTIED = {"tie_word_embeddings": False}
TIED = {"tie_word_embeddings": True}
CLASSIC = {
    "gated": False,
    "norm": "layer",
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
}
ATTENTION_BIAS = {"qkv_bias": "attention_bias", "output_bias": "attention_bias"}
