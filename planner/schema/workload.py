"""What is trained: a model's shape, the method, the optimizer. Frozen records read from ``models/*.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from planner.schema.choices import Target, Task
from planner.schema.hardware import Entry
from planner.schema.quantities import STRICT, Tokens
from planner.schema.record import Sparse

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
FrozenBase = Literal["", "nf4", "int8", "fp8"]
"""A quantisation of frozen matrices."""
Family = Literal["decoder", "encoder", "encoder-decoder", "vision"]
Activation = Literal["swiglu", "geglu", "clamped-swiglu", "limited-swiglu", "gelu", "gelu-tanh", "relu", "squared-relu"]
"""An MLP's function. Gated: SiLU, GELU, or gpt-oss's (a sigmoid of 1.702 x, inputs clamped at 7, 1 added to the linear
half), or SiLU with inputs clamped (DeepSeek-V4). Plain: GELU by the error function or by tanh, ReLU, its square."""
Mixer = Literal["attention", "window", "csa", "hca", "recurrent", "both", "none"]
"""What mixes the tokens of a block: attention (in the model's window where it is called so; beside it on the best, or
on all, of a few compressed entries), a recurrence, attention and a recurrence side by side, or nothing."""
Feed = Literal["mlp", "mixture", "none"]
"""What follows it: a dense MLP, a mixture of experts, or nothing."""
GATED: tuple[Activation, ...] = ("swiglu", "geglu", "clamped-swiglu", "limited-swiglu")


@dataclass(frozen=True, kw_only=True)
class TokenRouter:
    """How tokens are sent to experts: what is trained, not what it costs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    score: Literal["softmax", "sigmoid", "sqrtsoftplus"]
    """Function of the router's outputs that gives an expert's score."""
    normalised: Flag
    """Whether the scores of a token's experts are made to add up to 1 (as they do where the softmax is over these)."""
    scaling: Positive = 1.0
    """What these scores are multiplied with."""
    groups: Count = 1
    """Groups of experts ..."""
    groups_per_token: Count = 1
    """... of which a token visits so many."""
    bias_rate: Factor = 0.0
    """Step by which experts' biases are moved towards balance (arXiv 2408.15664); 0: no such bias."""
    balance: Literal["none", "batch", "sequence"] = "none"
    """Over what the auxiliary loss counts an expert's tokens: a micro-batch or each sequence."""
    balance_loss: Factor = 0.0
    """Coefficient of the auxiliary loss."""
    z_loss: Factor = 0.0
    """Coefficient of the loss on the router's outputs (arXiv 2202.08906)."""
    capacity: Positive | None = None
    """Tokens that an expert takes, over an even share; the rest is dropped. None: nothing is dropped."""
    on_input: Flag = False
    """Whether scores multiply what experts read rather than what they give."""


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
    latent: Whole = 0
    """Width that routed experts read and give where it is not `hidden` (two more products around them); 0: it is."""
    router: TokenRouter | None = None
    """How tokens are sent; none: no source was opened that says it."""


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
class Indexer:
    """Sparse attention (DeepSeek-V3.2): small heads score all positions, attention sees the best of them."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    heads: Count
    head_dim: Count
    top: Count
    """Positions that a token attends to."""
    first: Whole = 0
    """Blocks up to this one score for themselves, ..."""
    every: Count = 1
    """... after it one in so many; the others attend to what the last that scored has found (GLM-5.2)."""


@dataclass(frozen=True, kw_only=True)
class CompressedAttention:
    """DeepSeek-V4: queries and outputs through latents, one key of a head's width that is the value, too. Every block
    sees a window; `csa` and `hca` blocks also see entries that stand for several tokens each.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    query_rank: Count
    output_groups: Count
    """Groups of heads whose outputs ..."""
    output_rank: Count
    """... become so wide, each, before one product makes the model's width of them."""
    csa_rate: Count
    """Tokens that an entry stands for in `csa` blocks, made from twice as many, ..."""
    csa_top: Count
    """... entries that a token attends to there, ..."""
    index_heads: Count
    """... and heads that find the best of them, ..."""
    index_head_dim: Count
    """... each so wide."""
    hca_rate: Count
    """Tokens that an entry stands for in `hca` blocks, where a token attends to all before it."""


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """A state that is carried along the sequence in place of attention: linear in its length."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["mamba", "mamba2", "delta", "kda", "lightning", "convolution", "rwkv7"]
    """Selective state space (arXiv 2312.00752), its dual form (2405.21060), gated delta rule (2412.06464), with a decay
    a channel (2510.26692), linear attention with a fixed decay (2401.04658), a gated convolution alone (LFM2), or
    a state with decays and removals a channel (2503.14456)."""
    heads: Count
    """Heads of values; for `mamba` channels."""
    value_dim: Count
    """Width of one; for `mamba` 1."""
    key_heads: Count
    """Heads (of Mamba-2: groups) of keys and queries."""
    key_dim: Count
    """Width of one: the state's."""
    convolution: Whole = 0
    """Tokens that a depth-wise convolution before the recurrence sees; 0: there is none."""
    convolution_bias: Flag = False
    bias: Flag = False
    """Whether the products before and behind have biases."""
    step_rank: Whole = 0
    """Width of the projection that makes time steps (`mamba`), or decays and gates (`kda`; of `rwkv7` all together)."""
    value_rank: Whole = 0
    """Rank through which values mix with the first block's (`rwkv7`), which itself has none of it."""
    norm: Literal["none", "head", "full", "inner"] = "none"
    """Norm on what the recurrence gives: one of a head's width, over all heads, or (Jamba) on what it is made from."""
    chunk: Count = 64
    """Tokens that are worked on at once."""


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
    chunked: Flag = False
    """Whether the sequence is cut into pieces of `size` that see nothing of each other (Llama 4)."""


@dataclass(frozen=True, kw_only=True)
class FullAttention:
    """Attention in blocks that see everything, where its heads are other ones than in the window (Gemma 4)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kv_heads: Count
    head_dim: Count
    keys_are_values: Flag = False
    """Whether one product makes both keys and values."""


MOST_TEXTS = 100
"""Lengths that stand for all texts of a fine-tuning: the longest hundredth is one of them."""


@dataclass(frozen=True, kw_only=True)
class Tower:
    """An encoder of images or sound before the decoder, frozen or trained: every rank of the first stage runs it and
    holds it whole, frozen ones in 16 bit (NVIDIA-NeMo/Megatron-Bridge 355cef45, models/qwen_vl/modeling_qwen25_vl.py).
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS, strict=True)]
    hidden: Count
    ffn: Count
    gated: Flag = False
    patches: Count
    """That an image is cut into, or positions that a clip of sound becomes."""
    attended: Positive
    """Patches that one sees, the mean over layers."""
    tokens: Count
    """Tokens of the decoder's sequence that an image (or a clip, below too) becomes."""
    joining: Whole
    """Multiply-adds of an image outside the layers: projections of patches, and to the decoder's width."""
    parameters: Count
    """All of the tower's, with what joins it to the decoder."""
    images: Count
    """Images of a sequence, its texts included."""
    seconds: Whole = 0
    """Seconds of a clip of sound; 0: it sees images."""
    trained: Flag = False

    @property
    def pieces(self) -> str:
        """What it reads, so many of a sequence."""
        return f"clips of {self.seconds:,} s" if self.seconds else "images"


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Rotary positions, and how they were stretched to longer sequences: what a launcher builds, not what it costs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    base: Positive
    """Base of the angles (theta): pair i of a head's d rotates by position / base^(2i/d)."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of a head's width that rotates."""
    skips: Whole = 0
    """One layer in so many, the last of each round, has no positions at all (0: all layers rotate)."""
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
    activation: Activation | None = None
    """The MLP's function; none: no source was opened that says it."""
    vocab: Count
    """Rows of the embedding as trained (for vision: the labels)."""
    labels: Whole = 0
    """Rows of the head where it scores texts (of a reward model 1); 0: those of the vocabulary."""
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
    norm_place: Literal["pre", "post", "both", "output"] = "pre"
    """Norms of a block: before attention and MLP, after each with its input added, before and after, or on what each
    gives before its input is added (OLMo 2)."""
    scaled: Flag = False
    """Whether embeddings, residuals or logits are multiplied by constants or capped (Granite, Gemma, Cohere): it costs
    next to nothing, but a trainer that leaves it out trains another model."""
    norm_weight: Flag = True
    """Whether norms have weights at all (OLMo's first have none)."""
    norm_offset: Flag = False
    """Whether 1 is added to a norm's weight (Nemotron), so that decay draws it to 1."""
    norms_per_layer: Count = 2
    """Norms of width `hidden` in one block (a decoder block that also attends across has one more)."""
    final_norm: Flag = True
    """Whether one more norm follows the last block, or the embedding (BERT); one for each stack."""
    qk_norm: Literal["none", "head", "full", "unweighted"] = "none"
    """Norms on queries and keys: per head of width `head_dim`, over all heads, or per head and without weights."""
    qkv_bias: Flag = False
    output_bias: Flag = False
    """Bias of the attention's output projection."""
    mlp_bias: Flag = False
    norm_bias: Flag = True
    """Whether a LayerNorm carries a bias (MPT's do not)."""
    norm_epsilon: Sparse[Positive] = None
    """What a norm adds to the variance; none: no source was opened that says it."""
    rotary: Sparse[Rotary] = None
    """Rotary positions; none: there are none, or no source was opened that says them."""
    positions: Literal["alibi", "relative", "none"] | None = None
    """Positions that are neither rotary nor in a learned table; none: they are one of these two, or not known."""
    sinks: Flag = False
    """Whether each head's softmax has a learned offset (an attention sink): one parameter a head and layer."""
    extra_parameters: Whole = 0
    """Parameters outside blocks, embeddings and head (poolers, prediction heads, patch projections), counted once."""
    extra_parameters_per_layer: Whole = 0
    """Parameters of a block that the rest does not count (layer scales)."""
    dropout: Flag = False
    """Trained with dropout: its masks are kept for the backward pass."""
    causal: Flag = True
    """Whether a position sees only earlier ones."""
    moe: MixtureOfExperts | None = None
    latent: LatentAttention | None = None
    window: Window | None = None
    full: FullAttention | None = None
    indexer: Indexer | None = None
    compressed: Sparse[CompressedAttention] = None
    streams: Sparse[Annotated[int, Field(ge=2, le=64, strict=True)]] = None
    """Residual streams that learned weights mix around attention and MLP (manifold-constrained hyper-connections, arXiv
    2512.24880); none: one, as it is."""
    recurrence: Recurrence | None = None
    tower: Tower | None = None
    attention_gate: Flag = False
    """Whether what attention gives is multiplied with a gate, as wide as the queries, before the output projection."""
    mixers: tuple[Mixer, ...] = ()
    """What mixes tokens, block by block; repeated over the model. None: all do attention, in the window that it has."""
    feeds: tuple[Feed, ...] = ()
    """What follows, block by block; repeated. None: as the mixture says, else dense MLPs."""
    sequence: Count
    """Tokens per sequence by default."""
    context: Sparse[Count] = None
    """Most positions, those of the prompt included: `max_position_embeddings` of its checkpoint's config.json; none: no
    source was opened that says it."""
    batch: Count
    """Global batch in sequences by default."""
    tokens: Tokens
    """Tokens to train on by default."""


class Optimizer(Entry):
    """An optimizer as bytes and work per parameter."""

    state_bytes: PerParameter
    """Bytes of state per trained parameter, without the fp32 master copy."""
    master_bytes: PerParameter = 4.0
    """Bytes of the full-precision master copy per trained parameter (0: none kept)."""
    step_bytes: PerParameter
    """Memory traffic of one update per trained parameter: states, master copy, gradient, weight, read and written."""
    iterations: Whole = 0
    """Newton-Schulz iterations that make the update of a matrix orthogonal; 0: each parameter is updated alone."""
    outside_state_bytes: PerParameter = 0.0
    """With iterations, bytes of state per parameter that is none of blocks (embedding, head): those of AdamW ..."""
    outside_step_bytes: PerParameter = 0.0
    """... and the traffic of its update."""


WITH_ITERATIONS = ("iterations", "outside_state_bytes", "outside_step_bytes")
"""What a document says of an optimizer that makes matrices orthogonal, and of no other."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """What of the model is trained."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["pretrain", "finetune", "lora", "freeze"] = "pretrain"
    rank: int = 0
    """LoRA rank."""
    targets: tuple[Target, ...] = ()
    """Matrices that carry LoRA factors."""
    base: FrozenBase = ""
    """How the matrices that LoRA freezes are quantised; empty: they are not."""
    magnitude: Flag = False
    """Whether each output of an adapted matrix has a magnitude of its own that is trained (DoRA, arXiv 2402.09353)."""
    layers: int = 0
    """Last blocks that are trained, of `freeze`."""

    @property
    def name(self) -> str:
        """As ``--method`` says it."""
        if self.kind == "freeze":
            return f"freeze:{self.layers}"
        if self.kind != "lora":
            return self.kind
        adapters = ("q" if self.base else "") + ("dora" if self.magnitude else "lora")
        return adapters + (f":{self.base}" if self.base not in ("", "nf4") else "")


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
    imbalance: float | None = None
    """Tokens of the busiest expert-parallel rank over an even share; none: as in the runtime's measured runs."""
    task: Task = "sft"
    """What it learns from."""
    texts: tuple[float, ...] = ()
    """Tokens of texts packed into sequences, quantile means of equal weight; none: each sequence is one text."""

    @property
    def layers(self) -> int:
        """Blocks that a pipeline holds: an encoder's, the model's own, one for each multi-token prediction module."""
        return self.model.encoder_layers + self.model.layers + self.mtp_layers


# ---- precisions ------------------------------------------------------------------------------------------------------

# Below 16 bit a precision is a recipe for scaling what is cast, as Transformer Engine d0067d0d has them
# (common/recipe/__init__.py): one factor a tensor from its present values (fp8: Float8CurrentScaling) or from earlier
# steps (fp8-delayed: DelayedScaling), one for 128 values (fp8-blockwise: Float8BlockScaling), for 32 (mxfp8, and mxfp4
# in AMD's copy: MXFP4BlockScaling) or for 16 (nvfp4).
FP8_RECIPES = ("fp8", "fp8-delayed", "fp8-blockwise")
"""Recipes on plain 8-bit matrix products."""
LOW_PRECISION = (*FP8_RECIPES, "mxfp8", "mxfp4", "nvfp4")
"""Precisions whose matrix products run in 8 bit or less while activations, gradients and the rest stay in 16."""
PRECISIONS = ("bf16", "fp16", *LOW_PRECISION, "fp32")


@dataclass(frozen=True, kw_only=True)
class ConvolutionStage:
    """Bottleneck blocks of one resolution: 1x1 to `width`, 3x3 at `width` (with the stride), 1x1 to `channels`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    blocks: Count
    width: Count
    channels: Count
    """Channels that a block puts out."""
    stride: Count
    """Stride of the first block's 3x3 convolution (v1.5) and of its shortcut."""


class ConvolutionNetwork(Entry):
    """A residual network of bottleneck blocks: stem, stages, mean pool, one fully connected layer."""

    resolution: Count
    """Height and width of an image, pixels."""
    stem_kernel: Count
    stem_stride: Count
    stem_channels: Count
    pool_stride: Count
    """Stride of the max pool behind the stem."""
    stages: tuple[ConvolutionStage, ...]
    classes: Count
    batch: Count
    """Global batch in images by default."""


class Recommender(Entry):
    """A deep-learning recommender: embedding tables and two MLPs joined by an interaction."""

    dense_features: Count
    tables: tuple[Count, ...]
    """Rows of every embedding table."""
    lookups: tuple[Count, ...]
    """Rows that a sample looks up in every table (1: one-hot); they are summed."""
    embedding: Count
    """Width of a row."""
    bottom: tuple[Count, ...]
    """Output widths of the MLP over the dense features; the last is `embedding`."""
    top: tuple[Count, ...]
    """Output widths of the MLP over the interaction; the last is 1."""
    cross_layers: Whole = 0
    """Layers of a low-rank cross network (DCN v2); 0: pairwise dot products of the vectors instead."""
    cross_rank: Whole = 0
    table_bytes: Count = 4
    """Bytes of an element of a table."""
    state_bytes: Whole = 0
    """Optimizer state per element of a table (0: SGD, 4: Adagrad in fp32)."""
    batch: Count
    """Global batch in samples by default."""
