"""A model's parameters and FLOPs, counted layer by layer from the shape that a plan carries.

Symbols: h hidden, a heads, k key/value heads, d width of a head, f inner width of an MLP, E experts, V vocabulary; with
latent attention q and c the ranks of queries and of keys/values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.schema.workload import MixtureOfExperts, Model, Recurrence

Matrix = tuple[str, int, int]
"""Name, inputs, outputs."""


@dataclass(frozen=True, slots=True)
class StageBytes:
    """Numbers of parameters by how they are sharded."""

    dense: int
    """Cut by tensor parallelism only."""
    experts: int
    """Routed experts: dealt to expert-parallel ranks and cut by expert-tensor parallelism."""

    def __add__(self, other: StageBytes) -> StageBytes:
        return StageBytes(self.dense + other.dense, self.experts + other.experts)


NONE = StageBytes(0, 0)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One block: what it holds, and what one token is multiplied with."""

    held: StageBytes
    mixture: bool
    attentions: int
    """2 where a decoder block also attends to an encoder, 0 where nothing attends."""
    recurrent: bool = False
    dense: bool = True
    """Whether it has a dense MLP."""
    whole: bool = False
    """Whether its attention has the heads of blocks that see everything."""
    entries: str = ""
    """`csa` or `hca` where it attends to compressed entries."""
    scores: bool = False
    """Whether it scores positions in a sparse attention's index, and does not use another block's."""
    near: bool = False
    """Whether its attention sees no further than the window."""


def layers(model: Model) -> list[LayerShape]:
    """All blocks in order: an encoder's first, then the decoder's."""
    moe, sparse = model.moe, model.indexer
    shapes = []
    for index in range(model.encoder_layers + model.layers):
        body = index - (moe.leading_dense_layers if moe else 0)
        mixture = moe is not None and body >= 0 and body % moe.every == moe.every - 1
        feed = model.feeds[index % len(model.feeds)] if model.feeds else "mixture" if mixture else "mlp"
        mixer = model.mixers[index % len(model.mixers)] if model.mixers else "attention"
        across = model.encoder_layers > 0 and index >= model.encoder_layers
        attentions = (mixer in ("attention", "window", "both", "csa", "hca")) + across
        entries = mixer if mixer in ("csa", "hca") else ""
        whole = model.full is not None and mixer == "attention"
        scores = sparse is not None and attentions > 0 and max(index - sparse.first, 0) % sparse.every == 0
        recurrent = mixer in ("recurrent", "both")
        near = mixer == "window" or (not model.mixers and _in_window(model, index))
        shape = LayerShape(NONE, feed == "mixture", attentions, recurrent, feed == "mlp", whole, entries, scores, near)
        shapes.append(replace(shape, held=_held(model, shape)))
    return shapes


def _in_window(model: Model, index: int) -> bool:
    """One layer in so many, or all but one."""
    if model.window is None:
        return False
    last = index % model.window.every
    return last < model.window.every - 1 if model.window.inverted else last == 0


def _held(model: Model, layer: LayerShape) -> StageBytes:
    """``norms + extra``, ``attention + its norms + sinks`` (one norm more if it also attends across), a recurrence, the
    MLP.
    """
    dense = model.norms_per_layer * norm(model) + model.extra_parameters_per_layer
    if layer.attentions:
        mixing = attention(model, layer.whole)
        dense += layer.attentions * mixing + _inner_norms(model, layer.whole) + model.sinks * model.heads
        dense += layer.scores * _index(model) + _entries(model, layer.entries)
    if n := model.streams or 0:
        dense += 2 * (n * (n + 2) * (n * model.hidden + 1) + 3)
    if layer.attentions > 1:
        dense += norm(model)
    if layer.recurrent and model.recurrence is not None:
        dense += recurrence(model, model.recurrence)
    if layer.dense:
        dense += mlp(model, model.ffn, model.mlp_bias)
    if not layer.mixture or model.moe is None:
        return StageBytes(dense, 0)
    moe = model.moe
    dense += model.hidden * (moe.experts + moe.shared_gate) + moe.experts * moe.router_bias
    if moe.shared_ffn:
        dense += mlp(model, moe.shared_ffn, moe.expert_bias)
    if moe.latent:
        dense += 2 * model.hidden * moe.latent + (moe.latent + model.hidden) * model.mlp_bias
    return StageBytes(dense, moe.experts * mlp(model, moe.ffn, moe.expert_bias, moe.latent))


def norm(model: Model) -> int:
    """``h``, or ``2 h`` for a LayerNorm with biases; nothing where norms have no weights."""
    if not model.norm_weight:
        return 0
    return 2 * model.hidden if model.norm == "layer" and model.norm_bias else model.hidden


def entry_matrices(model: Model, kind: str) -> Iterator[Matrix]:
    """What makes compressed entries with their gates: of two series in `csa` blocks, whose index has the same and
    queries and weights beside; of one in `hca` blocks.
    """
    compressed, h = model.compressed, model.hidden
    if compressed is None or not kind:
        return
    yield "entries", h, (4 if kind == "csa" else 2) * model.head_dim
    if kind == "csa":
        yield "index entries", h, 4 * compressed.index_head_dim
        yield "index queries", compressed.query_rank, compressed.index_heads * compressed.index_head_dim
        yield "index weights", h, compressed.index_heads


def _entries(model: Model, kind: str) -> int:
    """All of these, with a bias for each place of a token in an entry, and norms."""
    compressed = model.compressed
    if compressed is None or not kind:
        return 0
    wide = model.head_dim
    series = 1
    if kind == "csa":
        wide = model.head_dim + compressed.index_head_dim
        series = 2
    places = compressed.csa_rate if kind == "csa" else compressed.hca_rate
    return _elements(entry_matrices(model, kind)) + (series * places + 1) * wide


def _heads(model: Model, whole: bool) -> tuple[int, int, int]:
    """Key/value heads, the width of one, and products that make keys and values."""
    if whole and model.full is not None:
        return model.full.kv_heads, model.full.head_dim, 2 - model.full.keys_are_values
    return model.kv_heads, model.head_dim, 2


def _inner_norms(model: Model, whole: bool = False) -> int:
    """Norms inside attention: ``q + c`` on latents; on queries and keys ``2 d`` a head kind or ``(a + k) d``."""
    latents = model.latent.query_rank + model.latent.kv_rank if model.latent else 0
    if model.compressed:
        return model.compressed.query_rank + model.head_dim
    if model.qk_norm in ("none", "unweighted"):
        return latents
    k, d, _ = _heads(model, whole)
    return latents + (2 if model.qk_norm == "head" else model.heads + k) * d


def index_matrices(model: Model) -> Iterator[Matrix]:
    """The projections of a sparse attention's index; none where there is none."""
    latent, index = model.latent, model.indexer
    if index:
        queries = latent.query_rank if latent and latent.query_rank else model.hidden
        yield "index queries", queries, index.heads * index.head_dim
        yield from (("index key", model.hidden, index.head_dim), ("index weights", model.hidden, index.heads))


def _index(model: Model) -> int:
    """All of an index: its projections and the two vectors of its key's norm."""
    return _elements(index_matrices(model)) + (2 * model.indexer.head_dim if model.indexer else 0)


def attention_matrices(model: Model, whole: bool = False) -> Iterator[Matrix]:
    """The projections of one attention; latent ones after DeepSeek-V2 (arXiv 2405.04434)."""
    h, a, latent = model.hidden, model.heads, model.latent
    if compressed := model.compressed:
        wide = a * model.head_dim
        yield from (("q", h, compressed.query_rank), ("q", compressed.query_rank, wide), ("k", h, model.head_dim))
        between = compressed.output_groups * compressed.output_rank
        yield from (("o", wide // compressed.output_groups, between), ("o", between, h))
        return
    if latent is None:
        k, d, made = _heads(model, whole)
        yield "q", h, a * d * (2 if model.attention_gate else 1)
        yield from (("k", h, k * d), ("v", h, k * d))[:made]
        yield "o", a * d, h
        return
    queries = a * (latent.nope_dim + latent.rope_dim)
    if latent.query_rank:
        yield from (("q", h, latent.query_rank), ("q", latent.query_rank, queries))
    else:
        yield "q", h, queries
    yield "k", h, latent.kv_rank + latent.rope_dim
    yield "v", latent.kv_rank, a * (latent.nope_dim + latent.value_dim)
    yield "o", a * latent.value_dim, h


def mlp_matrices(model: Model, f: int, width: int = 0) -> Iterator[Matrix]:
    """Up, gate (if gated) and down, from and to the model's width or another."""
    h = width or model.hidden
    yield "up", h, f
    if model.gated:
        yield "gate", h, f
    yield "down", f, h


def recurrence_matrices(model: Model, r: Recurrence) -> Iterator[Matrix]:
    """Products around a recurrence of ``i = heads value_dim`` and keys of ``g = key_heads key_dim``, by its kind."""
    i = r.heads * r.value_dim
    g = r.key_heads * r.key_dim
    first = {
        "mamba": 2 * i,
        "mamba2": 2 * i + 2 * g + r.heads,
        "delta": 2 * i + 2 * g + 2 * r.heads,
        "kda": i + 2 * g + 2 * r.step_rank + r.heads,
        "lightning": 2 * i + 2 * g,
        "convolution": 3 * i,
        "rwkv7": 3 * i + r.step_rank,
    }
    yield "in", model.hidden, first[r.kind]
    if r.kind == "mamba":
        yield from (("steps", i, r.step_rank + 2 * r.key_dim), ("wider", r.step_rank, i))
    if r.kind == "kda":
        yield from (("decays", r.step_rank, g), ("gate", r.step_rank, i))
    if r.kind == "rwkv7":
        yield "ranks", r.step_rank, i
    yield "out", i, model.hidden


def recurrence(model: Model, r: Recurrence) -> int:
    """Its products, biases, convolution, norm; vectors or a state a channel (mamba, rwkv7), or numbers a head."""
    i = r.heads * r.value_dim
    g = r.key_heads * r.key_dim
    matrices = list(recurrence_matrices(model, r))
    convolved = {"mamba2": i + 2 * g, "delta": i + 2 * g, "kda": i + 2 * g, "lightning": 0, "rwkv7": 0}.get(r.kind, i)
    state_parameters = {"mamba": i * (2 + r.key_dim), "mamba2": 3 * r.heads, "delta": 2 * r.heads, "kda": r.heads + g}
    state_parameters["rwkv7"] = 6 * model.hidden + 8 * i
    norms = {"head": r.value_dim, "full": i, "inner": r.step_rank + 2 * r.key_dim}.get(r.norm, 0)
    biases = (matrices[0][2] + model.hidden) * r.bias
    return (
        _elements(iter(matrices))
        + biases
        + convolved * (r.convolution + r.convolution_bias)
        + state_parameters.get(r.kind, 0)
        + norms
    )


def recurrence_work(r: Recurrence) -> float:
    """Multiply-adds of a token with the state: 4 (rwkv7), 3.5 (mamba), 3 (delta) or 2 an element; a convolution's."""
    per_state = {"mamba": 3.5, "mamba2": 3.5, "delta": 3.0, "kda": 3.0, "lightning": 2.0, "rwkv7": 4.0}
    i = r.heads * r.value_dim
    return float(i * r.convolution) if r.kind == "convolution" else per_state[r.kind] * i * r.key_dim


def _elements(matrices: Iterator[Matrix]) -> int:
    return sum(rows * columns for _, rows, columns in matrices)


def attention(model: Model, whole: bool = False) -> int:
    """Weights and biases of one attention: `qkv_bias` has ``(a + 2 k) d`` or the latents' widths, the output ``h``."""
    latent = model.latent
    if model.compressed:
        return _elements(attention_matrices(model))
    if latent is None:
        k, d, made = _heads(model, whole)
        first = (model.heads * (1 + model.attention_gate) + made * k) * d
    else:
        first = latent.query_rank + latent.kv_rank + latent.rope_dim
    return _elements(attention_matrices(model, whole)) + first * model.qkv_bias + model.hidden * model.output_bias


def mlp(model: Model, f: int, bias: bool, width: int = 0) -> int:
    """Weights of one MLP, and with biases ``f`` (twice if gated) and ``h``, or another width."""
    return _elements(mlp_matrices(model, f, width)) + bias * ((1 + model.gated) * f + (width or model.hidden))


def largest_tensors(model: Model) -> tuple[int, int]:
    """Parameters of the largest weight of a block that is kept as one, outside experts and of one expert: queries, keys
    and values are one but for latents, gate and up are.
    """

    def tensors(f: int, width: int = 0) -> tuple[int, int]:
        inner = width or model.hidden
        return (1 + model.gated) * inner * f, f * inner

    shapes = layers(model)
    sizes = [0]
    for whole in {layer.whole for layer in shapes if layer.attentions}:
        elements = {name: rows * columns for name, rows, columns in attention_matrices(model, whole)}
        first = sum(size for name, size in elements.items() if name != "o")
        apart = bool(model.latent or model.compressed)
        sizes += [rows * columns for _, rows, columns in attention_matrices(model)] if apart else [elements["o"], first]
    sizes += tensors(model.ffn) if any(layer.dense for layer in shapes) else ()
    if model.recurrence is not None and any(layer.recurrent for layer in shapes):
        ends = list(recurrence_matrices(model, model.recurrence))
        sizes += [rows * columns for name, rows, columns in ends if name in ("in", "out")]
    if (moe := model.moe) is None:
        return max(sizes), 0
    return max([*sizes, *tensors(moe.shared_ffn)]), max(tensors(moe.ffn, moe.latent))


# ---- ends and totals -------------------------------------------------------------------------------------------------


def embedding(model: Model) -> int:
    """The token table: ``V`` rows of the embedding's width; a vision model has none."""
    return 0 if model.family == "vision" else model.vocab * (model.embedding_width or model.hidden)


def _tables(model: Model) -> int:
    """Learned positions and token types."""
    return (model.learned_positions + model.token_types) * model.hidden


def first_end(model: Model) -> int:
    """What the first stage holds besides blocks: tables, and the parameters counted once; less what its first block
    lacks of RWKV-7's, two matrices and a bias.
    """
    whole = embedding(model) + _tables(model) + model.extra_parameters
    r = model.recurrence
    wide = r.heads * r.value_dim if r else 0
    return whole - (r.value_rank * (model.hidden + wide) + wide if r and r.value_rank else 0)


def last_end(model: Model, *, alone: bool) -> int:
    """What the last stage holds besides blocks: the final norm of each stack, and the output projection.

    A tied one is a second copy of the embedding, unless the only stage has that already (`alone`).
    """
    norms = norm(model) * (2 if model.encoder_layers else 1) * model.final_norm
    if n := model.streams or 0:
        norms += n * (n * model.hidden + 1) + 1
    if model.tied:
        return norms + (0 if alone else embedding(model))
    return norms + (model.labels or model.vocab) * model.hidden


def parameters(model: Model) -> int:
    """All parameters, tied ones once."""
    return decoder_parameters(model) + (model.tower.parameters if model.tower else 0)


def decoder_parameters(model: Model) -> int:
    """All but a tower's."""
    blocks = sum(layer.held.dense + layer.held.experts for layer in layers(model))
    return first_end(model) + blocks + last_end(model, alone=True)


def tower_work(model: Model) -> float:
    """Multiply-adds of a sequence's images: four products as wide as the tower and its MLP's for a patch and layer, two
    with each patch that it sees, and those outside the layers.
    """
    if (t := model.tower) is None:
        return 0.0
    layer = t.hidden * (4 * t.hidden + (3 if t.gated else 2) * t.ffn + 2 * t.attended)
    return t.images * (t.patches * t.layers * layer + t.joining)


def active_parameters(model: Model) -> int:
    """What one token is multiplied with: no tables that are only looked up, and only the experts it visits."""
    looked_up = _tables(model) + (0 if model.tied else embedding(model))
    return decoder_parameters(model) - looked_up - _unvisited(model)


def _unvisited(model: Model) -> int:
    """``mixture layers (E - visited) expert``."""
    if model.moe is None:
        return 0
    mixtures = sum(layer.mixture for layer in layers(model))
    idle = model.moe.experts - model.moe.experts_per_token
    return mixtures * idle * mlp(model, model.moe.ffn, model.moe.expert_bias, model.moe.latent)


def adapters(model: Model, rank: int, targets: frozenset[str]) -> int:
    """LoRA (arXiv 2106.09685): ``r (in + out)`` for every matrix with a factor pair, those of all experts too."""

    def pairs(matrices: Iterator[Matrix]) -> int:
        return sum(rows + columns for name, rows, columns in matrices if name in targets)

    def inner(layer: LayerShape) -> int:
        moe = model.moe
        dense = pairs(mlp_matrices(model, model.ffn)) if layer.dense else 0
        if not layer.mixture or moe is None:
            return dense
        shared = pairs(mlp_matrices(model, moe.shared_ffn)) if moe.shared_ffn else 0
        return dense + shared + moe.experts * pairs(mlp_matrices(model, moe.ffn, moe.latent))

    by_layer = {whole: pairs(attention_matrices(model, whole)) for whole in (False, True)}
    return rank * sum(layer.attentions * by_layer[layer.whole] + inner(layer) for layer in layers(model))


def magnitudes(model: Model, targets: frozenset[str]) -> int:
    """DoRA (arXiv 2402.09353): one for each output of a matrix with a factor pair."""

    def outputs(matrices: Iterator[Matrix]) -> int:
        return sum(columns for name, _, columns in matrices if name in targets)

    by_layer = {whole: outputs(attention_matrices(model, whole)) for whole in (False, True)}
    dense = outputs(mlp_matrices(model, model.ffn))
    return sum(layer.attentions * by_layer[layer.whole] + layer.dense * dense for layer in layers(model))


# ---- FLOPs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Multiply-adds of one token's forward pass."""

    products: float
    scores: float
    """Attention over all positions that it could see, masked ones included."""
    states: float
    """Recurrences' states; a sparse attention's index over all positions."""


def head(model: Model) -> int:
    """Multiply-adds of a token with the output projection: ``h V``, or as many scores as it makes."""
    return model.hidden * (model.labels or model.vocab)


def work(model: Model, sequence: float, mtp_layers: int = 0) -> LayerWork:
    """Products with every matrix that a token visits, ``positions a (d_qk + d_v)`` for each attention, states.

    Each module of multi-token prediction has a block like the last and the head once more.
    """
    shapes = layers(model)
    every = Counter([*shapes, *shapes[-1:] * mtp_layers])
    weighted = [(count, layer_work(model, layer, sequence)) for layer, count in every.items()]
    ending = model.streams**2 * model.hidden if model.streams else 0
    return LayerWork(
        sum(count * one.products for count, one in weighted) + head(model) * (1 + mtp_layers) + ending,
        sum(count * one.scores for count, one in weighted),
        sum(count * one.states for count, one in weighted),
    )


def layer_work(model: Model, layer: LayerShape, sequence: float) -> LayerWork:
    """Multiply-adds of one layer, as :func:`work` counts them."""
    products = float(layer.attentions * _elements(attention_matrices(model, layer.whole)))
    products += layer.dense * _elements(mlp_matrices(model, model.ffn))
    states = 0.0
    if layer.recurrent and (r := model.recurrence) is not None:
        products += _elements(recurrence_matrices(model, r))
        states += recurrence_work(r)
    if layer.scores and (index := model.indexer) is not None:
        products += _elements(index_matrices(model))
        states += sequence * index.heads * index.head_dim
    products += _elements(entry_matrices(model, layer.entries)) if layer.entries else 0
    if layer.entries == "csa" and (few := model.compressed) is not None:
        states += sequence / few.csa_rate * few.index_heads * few.index_head_dim
    if n := model.streams or 0:
        products += n * n * model.hidden * 2 * (n + 2)
    if layer.mixture and model.moe is not None:
        products += _visited(model, model.moe)
    latent = model.latent
    width = _heads(model, layer.whole)[1]
    widths = latent.nope_dim + latent.rope_dim + latent.value_dim if latent else 2 * width
    return LayerWork(products, layer.attentions * _positions(model, sequence, layer) * model.heads * widths, states)


def _visited(model: Model, moe: MixtureOfExperts) -> int:
    """The router's product, the experts that a token is sent to, and the shared one."""
    expert = _elements(mlp_matrices(model, moe.ffn, moe.latent))
    shared = _elements(mlp_matrices(model, moe.shared_ffn))
    around = model.hidden * (moe.experts + 2 * moe.latent)
    return around + moe.experts_per_token * expert + shared


def _positions(model: Model, sequence: float, layer: LayerShape) -> float:
    """Positions before masking: the sequence ``s``, or ``w (2 - w / s)`` in a window of w tokens, or of the best w;
    beside the window ``t (2 - t m / s)`` of the best t of s / m entries, or all s / m.
    """
    index = model.indexer
    window = model.window
    compressed = model.compressed
    seen = float(sequence)
    if window is not None and (layer.near or compressed is not None):
        seen = min(window.size, seen)
    elif index is not None:
        seen = min(index.top, seen)
    seen *= 2 - seen / sequence if seen < sequence else 1
    if compressed is not None and layer.entries == "csa":
        best = min(compressed.csa_top, sequence / compressed.csa_rate)
        seen += best * (2 - best * compressed.csa_rate / sequence)
    elif compressed is not None and layer.entries:
        seen += sequence / compressed.hca_rate
    return min(seen, float(sequence))
