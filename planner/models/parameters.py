"""Exact parameter counts of a transformer from its shape: integers, no tolerance.

Every function states its equation with these symbols: h hidden, a heads, k key/value heads, d width of a head, f inner
width of the MLP, V vocabulary, E experts, r rank. They equal what the reference implementations instantiate (see
``tests/test_parameters.py``), where a weight that is tied counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from planner.models import blocks, compressed, recurrent
from planner.schema.workload import LatentAttention, Method, Model


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Where a model's parameters are. Fields are numbers of parameters, but for the last ten, which count things."""

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
    attention_only_per_layer: int
    """Parameters of these two that a block without attention lacks."""
    index_per_layer: int
    """Parameters of attention that a block lacks which uses the sparse index of one before it."""
    full_more_per_layer: int
    """What a block that sees everything has more than one with a window, norms included; may be negative."""
    compressors: int
    """What makes compressed entries and finds the best of them, in all blocks together."""
    recurrent_per_layer: int
    """A block's recurrence, where it has one."""
    final_norm: int
    extra: int
    """Counted once: poolers, prediction heads, patch projections, less what the first block's recurrence lacks."""
    tower: int
    """Frozen, before the decoder."""
    layers: int
    """Blocks in all, those of an encoder included."""
    attention_layers: int
    """Blocks with attention."""
    full_layers: int
    """Blocks among them that see everything with heads of their own."""
    indexless_layers: int
    """Blocks among them that use the sparse index of one before them."""
    recurrent_layers: int
    """Blocks with a recurrence."""
    dense_layers: int
    """Blocks with a dense MLP."""
    moe_layers: int
    """Blocks whose MLP is a mixture of experts."""
    cross_layers: int
    """Blocks that also attend to an encoder."""
    experts: int
    """Routed experts in one mixture layer."""
    experts_per_token: int

    @property
    def total(self) -> int:
        """All parameters.

        total = embedding + positions + head + final_norm + extra + tower + layers (norms + extra_per_layer)
        + attention_layers attention + full_layers full_more - indexless_layers index
        - (layers - attention_layers) attention_only + compressors + recurrent_layers recurrent
        + cross_layers cross_attention + dense_layers dense_mlp + moe_layers (router + shared + E expert)
        """
        return self.decoder + self.tower

    @property
    def decoder(self) -> int:
        """All but a tower's."""
        return self.embedding + self.positions + self.head + self._blocks(self.experts) + self.final_norm + self.extra

    @property
    def active(self) -> int:
        """Parameters that a token is multiplied with: no position table, no embedding, no tower, only its own experts.

        active = total - tower - positions - embedding (kept where it is also the head) - moe_layers (E - top_k) expert
        """
        embedding_as_head = 0 if self.head else self.embedding
        return embedding_as_head + self.head + self._blocks(self.experts_per_token) + self.final_norm + self.extra

    @property
    def routed_experts(self) -> int:
        """Parameters in routed experts, of all layers: what expert parallelism divides. moe_layers E expert"""
        return self.moe_layers * self.experts * self.expert

    def _blocks(self, experts: int) -> int:
        every = self.norms_per_layer + self.extra_per_layer - self.attention_only_per_layer
        mixture = self.router_per_layer + self.shared_expert_per_layer + experts * self.expert
        return (
            self.layers * every
            + self.attention_layers * (self.attention_per_layer + self.attention_only_per_layer)
            + self.full_layers * self.full_more_per_layer
            - self.indexless_layers * self.index_per_layer
            + self.compressors
            + self.recurrent_layers * self.recurrent_per_layer
            + self.cross_layers * self.cross_attention_per_layer
            + self.dense_layers * self.dense_mlp_per_layer
            + self.moe_layers * mixture
        )


@lru_cache(maxsize=256)
def parameters(model: Model) -> Parameters:
    """Count a model's parameters by where they are; see :class:`Parameters` for the sum.

    embedding = V (embedding width or h), head = V h unless tied, positions = (rows of positions + token types) h.
    """
    h = model.hidden
    moe = model.moe
    recurrence = recurrent.block(model)
    vision = model.family == "vision"
    stacks = 2 if model.encoder_layers else 1
    return Parameters(
        embedding=0 if vision else model.vocab * (model.embedding_width or h),
        positions=(model.learned_positions + model.token_types) * h,
        head=head(model),
        attention_per_layer=attention(model),
        cross_attention_per_layer=attention(model) + norm(model) if model.encoder_layers else 0,
        dense_mlp_per_layer=mlp(model, model.ffn, bias=model.mlp_bias),
        router_per_layer=router(model),
        expert=expert(model),
        shared_expert_per_layer=mlp(model, moe.shared_ffn, bias=moe.expert_bias) if moe and moe.shared_ffn else 0,
        norms_per_layer=model.norms_per_layer * norm(model) + attention_norms(model),
        extra_per_layer=model.extra_parameters_per_layer + model.sinks * model.heads + 2 * connection(model),
        attention_only_per_layer=attention_norms(model) + model.sinks * model.heads,
        index_per_layer=indexing(model) + indexing_norms(model),
        full_more_per_layer=full_more(model),
        compressors=compressed.parameters(model),
        recurrent_per_layer=recurrent.parameters(h, recurrence) if recurrence else 0,
        final_norm=(stacks * norm(model) if model.final_norm else 0) + joining(model),
        extra=model.extra_parameters - recurrent.lacking(model),
        tower=model.tower.parameters if model.tower else 0,
        layers=model.layers + model.encoder_layers,
        attention_layers=blocks.attending(model),
        full_layers=blocks.attending_to_all(model),
        indexless_layers=blocks.attending(model) - blocks.scoring(model) if model.indexer else 0,
        recurrent_layers=blocks.recurring(model),
        dense_layers=blocks.feeding(model, "mlp"),
        moe_layers=moe_layers(model),
        cross_layers=model.layers if model.encoder_layers else 0,
        experts=moe.experts if moe else 0,
        experts_per_token=moe.experts_per_token if moe else 0,
    )


def head(model: Model) -> int:
    """The output projection: ``V h``, or as many rows as it has scores; nothing where it is tied."""
    return 0 if model.tied else (model.labels or model.vocab) * model.hidden


def moe_layers(model: Model) -> int:
    """Blocks that are a mixture of experts: floor((layers - leading dense) / every), or as the pattern lists them."""
    return blocks.feeding(model, "mixture")


def norm(model: Model) -> int:
    """One norm of width h: h weights where it has any, and h biases where LayerNorm has them."""
    return model.hidden * (2 if model.norm == "layer" and model.norm_bias else 1) * model.norm_weight


def connection(model: Model) -> int:
    """What mixes n residual streams around attention, and again around the MLP: ``n (n + 2)`` weights of each of n h
    inputs, as many biases, three factors (transformers 5.23.0, models/deepseek_v4, HyperConnection); 0 without streams.
    """
    n = model.streams or 0
    return n * (n + 2) * (n * model.hidden + 1) + 3 * (n > 0)


def joining(model: Model) -> int:
    """What makes one of n streams before the last norm: ``n n h`` weights, n biases, a factor (HyperHead)."""
    n = model.streams or 0
    return n * (n * model.hidden + 1) + (n > 0)


def attention_norms(model: Model) -> int:
    """Norms inside attention: 2 d (per head), (a + k) d (over all heads), those of the latents (their ranks), and the
    indexer's LayerNorm (2 of its width); of compressed attention the query latent's and the key's.
    """
    if model.compressed is not None:
        return model.compressed.query_rank + model.head_dim
    queries_and_keys = {"head": 2 * model.head_dim, "full": (model.heads + model.kv_heads) * model.head_dim}
    latents = model.latent.query_rank + model.latent.kv_rank if model.latent else 0
    return queries_and_keys.get(model.qk_norm, 0) + latents + indexing_norms(model)


def indexing_norms(model: Model) -> int:
    """A sparse attention's index: the LayerNorm of its key, 2 d; 0 where there is none."""
    return 2 * model.indexer.head_dim if model.indexer else 0


def attention(model: Model) -> int:
    """One attention's projections: h a d (queries) + 2 h k d (keys, values) + a d h (output) + biases.

    A gate takes h a d more. Biases: (a + 2 k) d with `qkv_bias` (the gate's a d too), h with `output_bias`. With latent
    attention see :func:`latent_attention`; an indexer's projections see :func:`indexing`.
    """
    if model.compressed is not None:
        return sum(rows * columns for _, rows, columns in compressed.matrices(model, model.compressed))
    if model.latent is not None:
        return latent_attention(model, model.latent) + indexing(model)
    queries = model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    first = queries * (1 + model.attention_gate) + 2 * keys
    return model.hidden * (first + queries) + first * model.qkv_bias + model.hidden * model.output_bias


def full_more(model: Model) -> int:
    """Parameters of attention with its norms in a block that sees everything, less those in a window: k h d fewer (and
    as many biases) where keys are the values.
    """
    full = model.full
    if full is None:
        return 0
    wide = replace(model, kv_heads=full.kv_heads, head_dim=full.head_dim)
    shared = (model.hidden + model.qkv_bias) * full.kv_heads * full.head_dim * full.keys_are_values
    return attention(wide) - shared + attention_norms(wide) - attention(model) - attention_norms(model)


def indexing(model: Model) -> int:
    """Sparse attention's index: queries from their latent, ``q n d``, one key, ``h d``, and a weight a head, ``h n``
    (DeepSeek-V3.2-Exp, inference/model.py; transformers, models/deepseek_v32).
    """
    if model.indexer is None:
        return 0
    n, d = model.indexer.heads, model.indexer.head_dim
    queries = model.latent.query_rank if model.latent and model.latent.query_rank else model.hidden
    return queries * n * d + model.hidden * (d + n)


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


def mlp(model: Model, ffn: int, *, bias: bool, width: int = 0) -> int:
    """A two-matrix MLP 2 h f, or a gated one 3 h f; with biases f (twice if gated) + h. `width` stands for h if set."""
    up = 2 if model.gated else 1
    h = width or model.hidden
    return (up + 1) * h * ffn + (up * ffn + h) * bias


def expert(model: Model) -> int:
    """One routed expert: an MLP, on the latent where the mixture has one."""
    moe = model.moe
    return mlp(model, moe.ffn, bias=moe.expert_bias, width=moe.latent) if moe else 0


def router(model: Model) -> int:
    """The router of a mixture: h E, with E biases where it has them, h for the shared expert's gate, and 2 h l for the
    products to and from experts' latent l, biased like MLPs (l + h).
    """
    moe = model.moe
    if moe is None:
        return 0
    latent = 2 * model.hidden * moe.latent + (moe.latent + model.hidden) * (moe.latent > 0) * model.mlp_bias
    return model.hidden * (moe.experts + moe.shared_gate) + moe.experts * moe.router_bias + latent


# ---- low-rank adapters -----------------------------------------------------------------------------------------------


def lora_parameters(model: Model, method: Method) -> int:
    """Trainable parameters of LoRA (arXiv 2106.09685): r (in + out) for every matrix that carries a factor pair.

    With latent attention the target `q` means both query projections, `k` the shared down-projection and `v` the
    up-projection of keys and values. `up`, `down` and `gate` mean those of every expert too, shared or routed.
    """
    return method.rank * sum(count * (rows + columns) for count, rows, columns in _adapted(model, set(method.targets)))


def magnitudes(model: Model, method: Method) -> int:
    """Trainable magnitudes of DoRA (arXiv 2402.09353): one for each output of an adapted matrix."""
    return method.magnitude * sum(count * columns for count, _, columns in _adapted(model, set(method.targets)))


def adapted_matrices(model: Model, method: Method) -> list[tuple[int, int, int]]:
    """(number of such matrices, in, out) of every matrix that carries a factor pair."""
    return list(_adapted(model, set(method.targets)))


def trained(model: Model, method: Method) -> int:
    """Parameters that a method trains: adapters with their magnitudes and a scoring head, the last blocks, or all but
    a tower.
    """
    if method.kind == "lora":
        return lora_parameters(model, method) + magnitudes(model, method) + head(model) * (model.labels > 0)
    whole = parameters(model).decoder
    if method.kind == "freeze":
        return whole - parameters(replace(model, layers=model.layers - method.layers)).decoder
    return whole


def _adapted(model: Model, targets: set[str]) -> Iterator[tuple[int, int, int]]:
    """(number of such matrices, in, out) of every matrix that the targets name."""
    whole = blocks.attending_to_all(model)
    attentions = blocks.attending(model) + (model.layers if model.encoder_layers else 0) - whole
    for target, rows, columns in attention_matrices(model):
        if target in targets:
            yield attentions, rows, columns
    if model.full is not None:
        for target, rows, columns in attention_matrices(model, whole=True):
            if target in targets:
                yield whole, rows, columns
    mixtures = moe_layers(model)
    h = model.hidden
    widths = [(blocks.feeding(model, "mlp"), model.ffn, h)]
    if model.moe is not None:
        widths.append((mixtures * model.moe.experts, model.moe.ffn, model.moe.latent or h))
        widths.append((mixtures * bool(model.moe.shared_ffn), model.moe.shared_ffn, h))
    for target in targets & ({"up", "down", "gate"} if model.gated else {"up", "down"}):
        for count, ffn, width in widths:
            yield (count, ffn, width) if target == "down" else (count, width, ffn)


def attention_matrices(model: Model, *, whole: bool = False) -> list[tuple[str, int, int]]:
    """(name, in, out) of the products of one attention, the output's last; of a block that sees everything (`whole`),
    no values where keys are these.
    """
    h, latent, full = model.hidden, model.latent, model.full
    if model.compressed is not None:
        return compressed.matrices(model, model.compressed)
    if whole and full is not None:
        wide = replace(model, full=None, kv_heads=full.kv_heads, head_dim=full.head_dim)
        return [matrix for matrix in attention_matrices(wide) if matrix[0] != "v" or not full.keys_are_values]
    if latent is None:
        queries = model.heads * model.head_dim
        keys = model.kv_heads * model.head_dim
        gated = queries * (1 + model.attention_gate)
        return [("q", h, gated), ("k", h, keys), ("v", h, keys), ("o", queries, h)]
    width = model.heads * (latent.nope_dim + latent.rope_dim)
    q, c = latent.query_rank, latent.kv_rank
    return [
        *([("q", h, q), ("q", q, width)] if q else [("q", h, width)]),
        ("k", h, c + latent.rope_dim),
        ("v", c, model.heads * (latent.nope_dim + latent.value_dim)),
        ("o", model.heads * latent.value_dim, h),
    ]


def head_width(model: Model) -> float:
    """Width of a head, the mean over blocks with attention."""
    if model.full is None:
        return float(model.head_dim)
    share = blocks.attending_to_all(model) / blocks.attending(model)
    return share * model.full.head_dim + (1.0 - share) * model.head_dim
