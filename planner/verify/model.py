"""A model's parameters and FLOPs, counted layer by layer from the shape that a plan carries.

Symbols: h hidden, a heads, k key/value heads, d width of a head, f inner width of an MLP, E experts, V vocabulary; with
latent attention q and c the ranks of queries and of keys/values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.schema.workload import MixtureOfExperts, Model

Matrix = tuple[str, int, int]
"""Name, inputs, outputs."""


def read(shape: Mapping[str, Any]) -> Model:
    """The model's record, every field in its range.

    Raises:
        ValueError: a field is missing, unknown or out of range.
    """
    from pydantic import ValidationError

    try:
        model: Model = _reader().validate_python(dict(shape))
    except ValidationError as error:
        problems = (": ".join((".".join(map(str, e["loc"])), e["msg"])) for e in error.errors()[:10])
        raise ValueError("; ".join(problems)) from None
    return model


@cache
def _reader() -> Any:
    """Pydantic's reader of a model, built once."""
    from pydantic import TypeAdapter

    return TypeAdapter(Model)


@dataclass(frozen=True, slots=True)
class StageBytes:
    """Numbers of parameters by how they are sharded."""

    dense: int
    """Cut by tensor parallelism only."""
    experts: int
    """Routed experts: dealt to expert-parallel ranks and cut by expert-tensor parallelism."""

    def __add__(self, other: StageBytes) -> StageBytes:
        return StageBytes(self.dense + other.dense, self.experts + other.experts)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One block: what it holds, and what one token is multiplied with."""

    held: StageBytes
    mixture: bool
    attentions: int
    """2 where a decoder block also attends to an encoder."""


def layers(model: Model) -> list[LayerShape]:
    """All blocks in order: an encoder's first, then the decoder's."""
    moe = model.moe
    found = []
    for index in range(model.encoder_layers + model.layers):
        body = index - (moe.leading_dense_layers if moe else 0)
        mixture = moe is not None and body >= 0 and body % moe.every == moe.every - 1
        across = model.encoder_layers > 0 and index >= model.encoder_layers
        found.append(LayerShape(_held(model, mixture, across), mixture, 2 if across else 1))
    return found


def _held(model: Model, mixture: bool, across: bool) -> StageBytes:
    """``attention + norms + extra + sinks``, once more attention and its norm if it also attends across; the MLP."""
    norms = model.norms_per_layer * norm(model) + _inner_norms(model)
    dense = attention(model) + norms + model.extra_parameters_per_layer + model.sinks * model.heads
    if across:
        dense += attention(model) + norm(model)
    if not mixture or model.moe is None:
        return StageBytes(dense + mlp(model, model.ffn, model.mlp_bias), 0)
    moe = model.moe
    dense += model.hidden * (moe.experts + moe.shared_gate) + moe.experts * moe.router_bias
    if moe.shared_ffn:
        dense += mlp(model, moe.shared_ffn, moe.expert_bias)
    return StageBytes(dense, moe.experts * mlp(model, moe.ffn, moe.expert_bias))


def norm(model: Model) -> int:
    """``h``, or ``2 h`` for a LayerNorm with biases."""
    return 2 * model.hidden if model.norm == "layer" and model.norm_bias else model.hidden


def _inner_norms(model: Model) -> int:
    """Norms inside attention: ``q + c`` on latents; on queries and keys ``2 d`` a head kind or ``(a + k) d``."""
    latents = model.latent.query_rank + model.latent.kv_rank if model.latent else 0
    if model.qk_norm in ("none", "unweighted"):
        return latents
    widths = 2 if model.qk_norm == "head" else model.heads + model.kv_heads
    return latents + widths * model.head_dim


def attention_matrices(model: Model) -> Iterator[Matrix]:
    """The projections of one attention; latent ones after DeepSeek-V2 (arXiv 2405.04434)."""
    h, a, latent = model.hidden, model.heads, model.latent
    if latent is None:
        queries, keys = a * model.head_dim, model.kv_heads * model.head_dim
        yield from (("q", h, queries), ("k", h, keys), ("v", h, keys), ("o", queries, h))
        return
    queries = a * (latent.nope_dim + latent.rope_dim)
    if latent.query_rank:
        yield from (("q", h, latent.query_rank), ("q", latent.query_rank, queries))
    else:
        yield "q", h, queries
    yield "k", h, latent.kv_rank + latent.rope_dim
    yield "v", latent.kv_rank, a * (latent.nope_dim + latent.value_dim)
    yield "o", a * latent.value_dim, h


def mlp_matrices(model: Model, f: int) -> Iterator[Matrix]:
    """Up, gate (if gated) and down."""
    yield "up", model.hidden, f
    if model.gated:
        yield "gate", model.hidden, f
    yield "down", f, model.hidden


def _elements(matrices: Iterator[Matrix]) -> int:
    return sum(rows * columns for _, rows, columns in matrices)


def attention(model: Model) -> int:
    """Weights and biases of one attention: `qkv_bias` has ``(a + 2 k) d`` or the latents' widths, the output ``h``."""
    latent = model.latent
    if latent is None:
        first = (model.heads + 2 * model.kv_heads) * model.head_dim
    else:
        first = latent.query_rank + latent.kv_rank + latent.rope_dim
    return _elements(attention_matrices(model)) + first * model.qkv_bias + model.hidden * model.output_bias


def mlp(model: Model, f: int, bias: bool) -> int:
    """Weights of one MLP, and with biases ``f`` (twice if gated) and ``h``."""
    return _elements(mlp_matrices(model, f)) + bias * ((1 + model.gated) * f + model.hidden)


# ---- ends and totals -------------------------------------------------------------------------------------------------


def embedding(model: Model) -> int:
    """The token table: ``V`` rows of the embedding's width; a vision model has none."""
    return 0 if model.family == "vision" else model.vocab * (model.embedding_width or model.hidden)


def _tables(model: Model) -> int:
    """Learned positions and token types."""
    return (model.learned_positions + model.token_types) * model.hidden


def first_end(model: Model) -> int:
    """What the first stage holds besides blocks: tables, and the parameters counted once."""
    return embedding(model) + _tables(model) + model.extra_parameters


def last_end(model: Model, *, alone: bool) -> int:
    """What the last stage holds besides blocks: the final norm of each stack, and the output projection.

    A tied one is a second copy of the embedding, unless the only stage has that already (`alone`).
    """
    norms = norm(model) * (2 if model.encoder_layers else 1) * model.final_norm
    if model.tied:
        return norms + (0 if alone else embedding(model))
    return norms + model.vocab * model.hidden


def parameters(model: Model) -> int:
    """All parameters, tied ones once."""
    blocks = sum(layer.held.dense + layer.held.experts for layer in layers(model))
    return first_end(model) + blocks + last_end(model, alone=True)


def active_parameters(model: Model) -> int:
    """What one token is multiplied with: no tables that are only looked up, and only the experts it visits."""
    looked_up = _tables(model) + (0 if model.tied else embedding(model))
    return parameters(model) - looked_up - _unvisited(model)


def _unvisited(model: Model) -> int:
    """``mixture layers (E - visited) expert``."""
    if model.moe is None:
        return 0
    mixtures = sum(layer.mixture for layer in layers(model))
    idle = model.moe.experts - model.moe.experts_per_token
    return mixtures * idle * mlp(model, model.moe.ffn, model.moe.expert_bias)


def adapters(model: Model, rank: int, targets: frozenset[str]) -> int:
    """LoRA (arXiv 2106.09685): ``r (in + out)`` for every matrix with a factor pair, those of all experts too."""

    def pairs(matrices: Iterator[Matrix]) -> int:
        return sum(rows + columns for name, rows, columns in matrices if name in targets)

    def inner(layer: LayerShape) -> int:
        moe = model.moe
        if not layer.mixture or moe is None:
            return pairs(mlp_matrices(model, model.ffn))
        shared = pairs(mlp_matrices(model, moe.shared_ffn)) if moe.shared_ffn else 0
        return shared + moe.experts * pairs(mlp_matrices(model, moe.ffn))

    own = pairs(attention_matrices(model))
    return rank * sum(layer.attentions * own + inner(layer) for layer in layers(model))


# ---- FLOPs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Multiply-adds of one token's forward pass."""

    products: float
    scores: float
    """Attention over all positions that it could see, masked ones included."""


def work(model: Model, sequence: int, mtp_layers: int = 0) -> LayerWork:
    """Products with every matrix that a token visits, and ``positions a (d_qk + d_v)`` for each attention.

    Each module of multi-token prediction has a block like the last and the head once more.
    """
    own = layers(model)
    every = [*own, *own[-1:] * mtp_layers]
    attentions = sum(layer.attentions for layer in every)
    mixtures = sum(layer.mixture for layer in every)
    products = attentions * _elements(attention_matrices(model))
    products += (len(every) - mixtures) * _elements(mlp_matrices(model, model.ffn))
    if model.moe is not None:
        products += mixtures * _visited(model, model.moe)
    products += model.hidden * model.vocab * (1 + mtp_layers)
    latent = model.latent
    widths = latent.nope_dim + latent.rope_dim + latent.value_dim if latent else 2 * model.head_dim
    return LayerWork(products, attentions * _positions(model, sequence) * model.heads * widths)


def _visited(model: Model, moe: MixtureOfExperts) -> int:
    """The router's product, the experts that a token is sent to, and the shared one."""
    expert, shared = (_elements(mlp_matrices(model, f)) for f in (moe.ffn, moe.shared_ffn))
    return model.hidden * moe.experts + moe.experts_per_token * expert + shared


def _positions(model: Model, sequence: int) -> float:
    """Positions before masking, mean over layers: the sequence ``s``, or ``w (2 - w / s)`` in a window of w tokens."""
    window = model.window
    if window is None or window.size >= sequence:
        return float(sequence)
    share = 1 / window.every
    share = 1 - share if window.inverted else share
    return share * window.size * (2 - window.size / sequence) + (1 - share) * sequence
