"""What is trained: a model's shape, the method, the optimizer. Frozen records read from ``models/*.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from planner.schema.hardware import Entry
from planner.schema.quantities import STRICT, Tokens

# Bounds far above any model, so that a slip of a zero too many is refused and products stay exact.
Count = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
Whole = Annotated[int, Field(ge=0, le=1_000_000_000_000, strict=True)]
MOST_LAYERS = 10_000
"""Blocks of a model, ten times the deepest ever trained: they are looked at one by one."""
Flag = Annotated[bool, Field(strict=True)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)]
PerParameter = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]
"""Bytes for one parameter."""
Target = Literal["q", "k", "v", "o", "up", "down", "gate"]
"""A matrix of a block that can carry a LoRA factor pair."""
Family = Literal["decoder", "encoder", "encoder-decoder", "vision"]


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts:
    """Layers whose MLP is split into experts, of which every token visits a few."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    experts: Count
    experts_per_token: Count
    ffn: Count
    """Inner width of one routed expert."""
    shared_ffn: Whole = 0
    """Inner width of the shared experts together (0: none); every token visits them."""
    leading_dense_layers: Whole = 0
    """Layers at the start that keep a dense MLP of the model's own `ffn`."""
    every: Count = 1
    """One layer in so many is a mixture, counted after the leading dense ones; the others keep a dense MLP."""
    shared_gate: Flag = False
    """Whether the shared expert is weighted by a learned gate (one vector of `hidden`)."""
    router_bias: Flag = False
    """Whether the router has a bias (one scalar an expert)."""
    expert_bias: Flag = False
    """Whether expert projections have biases."""


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): queries and keys/values go through low-rank projections."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    query_rank: Whole
    """Width of the queries' latent; 0: queries are projected directly."""
    kv_rank: Count
    rope_dim: Count
    """Width per head that carries the rotary position (shared by all heads on the key side)."""
    nope_dim: Count
    """Width per head without position."""
    value_dim: Count


@dataclass(frozen=True, kw_only=True)
class Window:
    """Sliding-window (or chunked) attention on some layers."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    size: Count
    """Tokens that a position sees."""
    every: Count = 1
    """One layer in so many has the window (2: every second) ..."""
    inverted: Flag = False
    """... or, if inverted, all but one in so many."""


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions, and how they were stretched to longer sequences: what a launcher builds, not what it costs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    base: Positive
    """Of the angles (theta): pair i of a head's d rotates by position / base^(2i/d)."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of a head's width that rotates."""
    scaling: Literal["none", "llama3", "yarn"] = "none"
    """How low frequencies were lowered: not at all, as Llama 3.1 does, or by YaRN (arXiv 2309.00071)."""
    factor: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    """By how much the lowest are."""
    original: Whole = 0
    """Tokens of a sequence before (0: not scaled)."""
    low_freq_factor: Positive = 1.0
    """Llama 3: wavelengths above `original` / this are lowered by all of `factor` ..."""
    high_freq_factor: Positive = 4.0
    """... and those below `original` / this not at all."""
    beta_fast: Positive = 32.0
    """YaRN: pairs that turn more often than this over `original` tokens stay ..."""
    beta_slow: Positive = 1.0
    """... and those that turn less often than this are lowered by all of `factor`."""
    truncate: Flag = True
    """YaRN: whether these borders are rounded to whole pairs."""
    mscale: Factor = 1.0
    """YaRN: attention grows with the logarithm of `factor` by this over that of `mscale_all_dim` ..."""
    mscale_all_dim: Factor = 0.0
    """... and latent attention's scores by the square of this one."""


@dataclass(frozen=True, kw_only=True)
class Model(Entry):
    """A transformer's shape. `layers` blocks of attention and MLP between an embedding and a head."""

    family: Family = "decoder"
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS, strict=True)]
    """Blocks; for an encoder-decoder, those of the decoder."""
    encoder_layers: Annotated[int, Field(ge=0, le=MOST_LAYERS, strict=True)] = 0
    """Blocks of the encoder, encoder-decoder only (decoder blocks then also attend across)."""
    hidden: Count
    ffn: Count
    """Inner width of the dense MLP."""
    heads: Count
    kv_heads: Count
    head_dim: Count
    gated: Flag = True
    """SwiGLU-like MLP with three matrices; else two."""
    vocab: Count
    """Rows of the embedding as trained (for vision: the labels)."""
    tied: Flag = False
    """Whether the output projection is the embedding's transpose."""
    embedding_width: Whole = 0
    """Width of the embedding where it is narrower than `hidden` (OPT-350M); 0: it is `hidden`."""
    learned_positions: Whole = 0
    """Rows of a learned position table; 0 with rotary, relative or no positions."""
    token_types: Whole = 0
    """Rows of a learned token-type table (BERT)."""
    norm: Literal["rms", "layer"] = "rms"
    """RMSNorm has a weight, LayerNorm a weight and a bias."""
    norms_per_layer: Count = 2
    """Norms of width `hidden` in one block (a decoder block that also attends across has one more)."""
    final_norm: Flag = True
    """Whether one more norm follows the last block, or the embedding (BERT); one for each stack."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norms on queries and keys: per head of width `head_dim`, or over all heads."""
    qkv_bias: Flag = False
    output_bias: Flag = False
    """Bias of the attention's output projection."""
    mlp_bias: Flag = False
    norm_bias: Flag = True
    """Whether a LayerNorm carries a bias (MPT's do not)."""
    norm_epsilon: Positive | None = None
    """What a norm adds to the variance; none: no source was opened that says it."""
    rotary: Rotary | None = None
    """Rotary positions; none: there are none, or no source was opened that says them."""
    extra_parameters: Whole = 0
    """Parameters outside blocks, embeddings and head (poolers, prediction heads, patch projections), counted once."""
    extra_parameters_per_layer: Whole = 0
    """Parameters of a block that the rest does not count (attention sinks, layer scales)."""
    dropout: Flag = False
    """Trained with dropout: its masks are kept for the backward pass."""
    causal: Flag = True
    """Whether a position sees only earlier ones."""
    moe: MixtureOfExperts | None = None
    latent: LatentAttention | None = None
    window: Window | None = None
    sequence: Count
    """Tokens per sequence by default."""
    batch: Count
    """Global batch in sequences by default."""
    tokens: Tokens
    """Tokens to train on by default."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(Entry):
    """An optimizer as bytes and work per parameter."""

    state_bytes: PerParameter
    """Bytes of state per trained parameter, without the fp32 master copy."""
    master_bytes: PerParameter = 4.0
    """Bytes of the full-precision master copy per trained parameter (0: none kept)."""
    step_bytes: PerParameter
    """Memory traffic of one update per trained parameter: states, master copy, gradient, weight, read and written."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """What of the model is trained."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["pretrain", "finetune", "lora"] = "pretrain"
    rank: int = 0
    """LoRA rank."""
    targets: tuple[Target, ...] = ()
    """Matrices that carry LoRA factors."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model with everything that training it on a given day fixes."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model: Model
    sequence: int
    """Tokens per sequence."""
    batch: int
    """Global batch, sequences."""
    tokens: float
    """Tokens to train on."""
    method: Method
    optimizer: Optimizer
    mtp_layers: int = 0
    """Multi-token prediction modules trained beside the model (arXiv 2412.19437): each another layer, and the head and
    loss once more."""

    @property
    def layers(self) -> int:
        """Blocks that a pipeline holds: an encoder's, the model's own, one for each multi-token prediction module."""
        return self.model.encoder_layers + self.model.layers + self.mtp_layers
