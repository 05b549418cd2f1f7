"""Exact parameter counts of a transformer from its shape: integers, no tolerance.

Every function states its equation with these symbols: h hidden, a heads, k key/value heads, d width of a head, f inner
width of the MLP, V vocabulary, E experts, r rank. They equal what the reference implementations instantiate (see
``tests/test_parameters.py``), where a weight that is tied counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.schema.workload import LatentAttention, Method, Model


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Where a model's parameters are. Fields are numbers of parameters, but for the last five, which count things."""

    embedding: int
    """The input embedding (0 for vision: its patch projection stands in `extra`)."""
    positions: int
    """Learned position and token-type tables."""
    head: int
    """The output projection (0 where it is the embedding's transpose)."""
    attention_per_layer: int
    """Self-attention's projections with their biases; its norms stand in `norms_per_layer`."""
    cross_attention_per_layer: int
    """What a decoder block that attends to an encoder adds: projections and one norm (0 elsewhere)."""
    dense_mlp_per_layer: int
    router_per_layer: int
    """The router of a mixture layer, with the gate of its shared expert."""
    expert: int
    """One routed expert."""
    shared_expert_per_layer: int
    norms_per_layer: int
    """Norms of one block, those on queries, keys and latents included."""
    extra_per_layer: int
    """What a block has besides (attention sinks, layer scales)."""
    final_norm: int
    extra: int
    """Counted once: poolers, prediction heads, patch projections."""
    layers: int
    """Blocks in all, those of an encoder included."""
    moe_layers: int
    """Blocks whose MLP is a mixture of experts."""
    cross_layers: int
    """Blocks that also attend to an encoder."""
    experts: int
    """Routed experts in one mixture layer."""
    experts_per_token: int

    @property
    def dense_layers(self) -> int:
        """Blocks with a dense MLP."""
        return self.layers - self.moe_layers

    @property
    def total(self) -> int:
        """All parameters.

        total = embedding + positions + head + final_norm + extra + layers (attention + norms + extra_per_layer)
        + cross_layers cross_attention + dense_layers dense_mlp + moe_layers (router + shared + E expert)
        """
        return self.embedding + self.positions + self.head + self._blocks(self.experts) + self.final_norm + self.extra

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with: no position table, no input embedding, only its own experts.

        active = total - positions - embedding (kept where it is also the head) - moe_layers (E - top_k) expert
        """
        embedding_as_head = 0 if self.head else self.embedding
        return embedding_as_head + self.head + self._blocks(self.experts_per_token) + self.final_norm + self.extra

    @property
    def routed_experts(self) -> int:
        """Parameters in routed experts, of all layers: what expert parallelism divides. moe_layers E expert"""
        return self.moe_layers * self.experts * self.expert

    def _blocks(self, experts: int) -> int:
        every = self.attention_per_layer + self.norms_per_layer + self.extra_per_layer
        mixture = self.router_per_layer + self.shared_expert_per_layer + experts * self.expert
        return (
            self.layers * every
            + self.cross_layers * self.cross_attention_per_layer
            + self.dense_layers * self.dense_mlp_per_layer
            + self.moe_layers * mixture
        )


def parameters(model: Model) -> Parameters:
    """Count a model's parameters by where they are; see :class:`Parameters` for the sum.

    embedding = V (embedding width or h), head = V h unless tied, positions = (rows of positions + token types) h.
    """
    h, moe = model.hidden, model.moe
    mixtures = moe_layers(model)
    vision = model.family == "vision"
    stacks = 2 if model.encoder_layers else 1
    return Parameters(
        embedding=0 if vision else model.vocab * (model.embedding_width or h),
        positions=(model.learned_positions + model.token_types) * h,
        head=0 if model.tied else model.vocab * h,
        attention_per_layer=attention(model),
        cross_attention_per_layer=attention(model) + norm(model) if model.encoder_layers else 0,
        dense_mlp_per_layer=mlp(model, model.ffn, bias=model.mlp_bias),
        router_per_layer=router(model),
        expert=mlp(model, moe.ffn, bias=moe.expert_bias) if moe else 0,
        shared_expert_per_layer=mlp(model, moe.shared_ffn, bias=moe.expert_bias) if moe and moe.shared_ffn else 0,
        norms_per_layer=model.norms_per_layer * norm(model) + attention_norms(model),
        extra_per_layer=model.extra_parameters_per_layer + model.sinks * model.heads,
        final_norm=stacks * norm(model) if model.final_norm else 0,
        extra=model.extra_parameters,
        layers=model.layers + model.encoder_layers,
        moe_layers=mixtures,
        cross_layers=model.layers if model.encoder_layers else 0,
        experts=moe.experts if moe else 0,
        experts_per_token=moe.experts_per_token if moe else 0,
    )


def moe_layers(model: Model) -> int:
    """Blocks that are a mixture of experts: floor((layers - leading dense) / every); 0 without a mixture."""
    if model.moe is None:
        return 0
    return (model.layers - model.moe.leading_dense_layers) // model.moe.every


def norm(model: Model) -> int:
    """One norm of width h: h weights, and h biases where LayerNorm has them."""
    return model.hidden * (2 if model.norm == "layer" and model.norm_bias else 1)


def attention_norms(model: Model) -> int:
    """Norms inside attention: 2 d (per head), (a + k) d (over all heads), and those of the latents (their ranks)."""
    queries_and_keys = {"head": 2 * model.head_dim, "full": (model.heads + model.kv_heads) * model.head_dim}
    latents = model.latent.query_rank + model.latent.kv_rank if model.latent else 0
    return queries_and_keys.get(model.qk_norm, 0) + latents


def attention(model: Model) -> int:
    """One attention's projections: h a d (queries) + 2 h k d (keys, values) + a d h (output) + biases.

    Biases: (a + 2 k) d with `qkv_bias`, h with `output_bias`. With latent attention see :func:`latent_attention`.
    """
    if model.latent is not None:
        return latent_attention(model, model.latent)
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    biases = (queries + 2 * keys) * model.qkv_bias + model.hidden * model.output_bias
    return model.hidden * (2 * queries + 2 * keys) + biases


def latent_attention(model: Model, latent: LatentAttention) -> int:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), q and c the ranks of queries and keys/values.

    h q + q a (nope + rope)   queries, or h a (nope + rope) without a query latent
    + h (c + rope) + c a (nope + value)   keys and values
    + a value h   output; with `qkv_bias` q + c + rope biases, with `output_bias` h.
    """
    h, a = model.hidden, model.heads
    q, c = latent.query_rank, latent.kv_rank
    query_width = a * (latent.nope_dim + latent.rope_dim)
    queries = h * q + q * query_width if q else h * query_width
    keys_values = h * (c + latent.rope_dim) + c * a * (latent.nope_dim + latent.value_dim)
    biases = (q + c + latent.rope_dim) * model.qkv_bias + h * model.output_bias
    return queries + keys_values + a * latent.value_dim * h + biases


def mlp(model: Model, ffn: int, *, bias: bool) -> int:
    """A two-matrix MLP 2 h f, or a gated one 3 h f; with biases f (twice if gated) + h."""
    up = 2 if model.gated else 1
    return (up + 1) * model.hidden * ffn + (up * ffn + model.hidden) * bias


def router(model: Model) -> int:
    """The router of a mixture: h E, with E biases where it has them, and h for the shared expert's gate."""
    if model.moe is None:
        return 0
    return model.hidden * (model.moe.experts + model.moe.shared_gate) + model.moe.experts * model.moe.router_bias


# ---- low-rank adapters -----------------------------------------------------------------------------------------------


def lora_parameters(model: Model, method: Method) -> int:
    """Trainable parameters of LoRA (arXiv 2106.09685): r (in + out) for every matrix that carries a factor pair.

    With latent attention the target `q` means both query projections, `k` the shared down-projection and `v` the
    up-projection of keys and values. `up`, `down` and `gate` mean those of every expert too, shared or routed.
    """
    return method.rank * sum(count * (rows + columns) for count, rows, columns in _adapted(model, set(method.targets)))


def _adapted(model: Model, targets: set[str]) -> Iterator[tuple[int, int, int]]:
    """(number of such matrices, in, out) of every matrix that the targets name."""
    stacks = model.layers + model.encoder_layers
    attentions = stacks + (model.layers if model.encoder_layers else 0)
    for target, rows, columns in _attention_matrices(model):
        if target in targets:
            yield attentions, rows, columns
    mixtures = moe_layers(model)
    widths = [(stacks - mixtures, model.ffn)]
    if model.moe is not None:
        widths.append((mixtures * model.moe.experts, model.moe.ffn))
        widths.append((mixtures * bool(model.moe.shared_ffn), model.moe.shared_ffn))
    for target in targets & ({"up", "down", "gate"} if model.gated else {"up", "down"}):
        for count, ffn in widths:
            yield (count, ffn, model.hidden) if target == "down" else (count, model.hidden, ffn)


def _attention_matrices(model: Model) -> list[tuple[str, int, int]]:
    h, latent = model.hidden, model.latent
    if latent is None:
        queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        return [("q", h, queries), ("k", h, keys), ("v", h, keys), ("o", queries, h)]
    width = model.heads * (latent.nope_dim + latent.rope_dim)
    q, c = latent.query_rank, latent.kv_rank
    return [
        *([("q", h, q), ("q", q, width)] if q else [("q", h, width)]),
        ("k", h, c + latent.rope_dim),
        ("v", c, model.heads * (latent.nope_dim + latent.value_dim)),
        ("o", model.heads * latent.value_dim, h),
    ]


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def training_flops_per_token(model: Model, attended: float) -> float:
    """FLOPs of forward and backward for one token that attends to `attended` positions on average, nothing recomputed.

    6 active + 6 layers a (d_qk + d_v) attended: two FLOPs a multiply-add, and twice the forward for the backward pass.
    For GPT with full attention (attended = s) this is 72 L h^2 (1 + s/(6h) + V/(12 L h)) of Narayanan et al. 2021 plus
    biases and norms. In an encoder-decoder a token stands for one of each side.
    """
    latent = model.latent
    widths = latent.nope_dim + latent.rope_dim + latent.value_dim if latent else 2 * model.head_dim
    attentions = model.layers + (model.encoder_layers + model.layers if model.encoder_layers else 0)
    return 6.0 * parameters(model).active + 6.0 * attentions * model.heads * widths * attended
