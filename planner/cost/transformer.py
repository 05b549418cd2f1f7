"""Time of one transformer layer on one accelerator, and of what stands before the first and behind the last.

Everything here is per micro-batch. `tokens` are those a tensor-parallel group works on, ``micro sequence / cp``. A
layer's time is kept in named parts, each a forward and a backward share, so that a breakdown adds up to the total by
construction.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from planner.cost import attention, collective_times, elements, experts, frozen, hyper_connections, products, recurrent
from planner.cost.figures import Figure, Grid, Options, by_kind
from planner.cost.micro_batch import cast_bytes, input_cast_bytes, moved, region_bytes, sequence_shard, tokens
from planner.cost.products import LayerPart, Product


def mlp_shapes(grid: Grid, width: Figure) -> tuple[Product, ...]:
    """Products of an MLP of inner `width`, split over tensor-parallel ranks."""
    s = grid.shape
    t = tokens(grid)
    inner = width / grid.layout.tp
    return Product("up", t, (1.0 + s.gated) * inner, s.hidden), Product("down", t, s.hidden, inner)


def mlp(grid: Grid, width: Figure) -> LayerPart:
    """Up (and gate) and down projections of an MLP of inner `width`, split over tensor-parallel ranks."""
    return products.trained(grid, mlp_shapes(grid, width))


def mlp_vector_bytes(grid: Grid, width: Figure) -> Figure:
    """Norm and residual, the activation function (3 e or 2 e bytes per inner element), casts of inputs."""
    s = grid.shape
    wide = elements.wide(grid)
    inner = width / grid.layout.tp
    casts = input_cast_bytes(grid) + cast_bytes(grid, inner)
    return wide * tokens(grid) * (10.0 * s.hidden / sequence_shard(grid) + (4.0 + 2.0 * s.gated) * inner) + casts


def tensor_parallel_alone(grid: Grid) -> Figure:
    """Seconds of one tensor-parallel region's communication in one pass.

    Without sequence parallelism an all-reduce; with it a gather before and a scatter after; what is gathered in low
    precision was cast before: half the bytes.
    """
    network, layout, options = grid.network, grid.layout, grid.options
    ranks = collective_times.group(network, layout.tp, 1.0)
    size = region_bytes(grid)
    reduce = collective_times.all_reduce(network, size, ranks)
    scatter = (2.0 - 0.5 * grid.device.low_precision) * collective_times.gather(network, size, ranks)
    return np.where(options.sequence_parallel > 0, scatter, reduce)


def tensor_parallel(grid: Grid, blocks: Figure, matrix: LayerPart) -> LayerPart:
    """Communication of `blocks` tensor-parallel regions (attention and MLP are two) each way, of which overlap hides
    what runs during the matrix products that it feeds.
    """
    seconds = blocks * tensor_parallel_alone(grid)
    share = grid.options.tp_overlap * grid.stack.tp_overlap
    toll = grid.device.collective_share
    return LayerPart(
        collective_times.shown(seconds, matrix.forward, share, toll),
        collective_times.shown(seconds, matrix.backward, share, toll),
    )


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of layer. Seconds per micro-batch."""

    forward: Figure
    backward: Figure
    """Nothing recomputed."""
    selective: Figure
    """To compute again what selective recomputation drops."""
    parts: dict[str, LayerPart]
    """What both passes are made of; left out where only totals are needed."""
    hidden: Figure = 0.0
    """Seconds that both passes take longer where no other micro-batch runs beside them."""
    modules: Figure = 0.0
    """To compute again the modules that are recomputed by name."""
    unread: Figure = 0.0
    """Seconds of the forward pass that a layer recomputed whole leaves out: no gradient reads what they give."""


def _total(values: list[Figure]) -> Figure:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


CAPTURED_EXPERTS = 2
"""From here on CUDA graphs hold experts' kernels, too: a whole iteration is captured (Megatron-LM core_v0.16.1,
transformer_config.py, `cuda_graph_impl`, `cuda_graph_scope`); those of modules leave out experts, whose tokens vary."""


def blocks(grid: Grid) -> Figure:
    """Share of a whole layer, a mixer of tokens and an MLP, that a layer holds: half where it is one of them
    (Megatron-LM 0520329b, core/models/mamba/mamba_layer_specs.py: Mamba, attention, MLP or experts, nothing beside).
    """
    return 0.5 * (grid.shape.mixing_share + 1.0 - grid.shape.idle_share)


def launched_late(grid: Grid, kernels: LayerPart, moe: Figure) -> LayerPart:
    """What the CPU's launching takes beyond so many seconds of kernels, but for those that CUDA graphs launch; negative
    where it is ahead.
    """
    ring = grid.shape.attention_share * attention.RING_KERNELS * attention.ring_steps(grid)
    alone = grid.options.graphs < 1
    experts = grid.options.graphs < CAPTURED_EXPERTS
    layer_kernels = blocks(grid) * grid.stack.kernels_per_layer
    count = alone * (layer_kernels + ring) + experts * moe * grid.stack.expert_launches
    floor = count * grid.device.launch
    return LayerPart(floor - kernels.forward, 1.6 * floor - kernels.backward)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """What a layer's kernels take, before it is seen whether the CPU launches them in time."""

    parts: dict[str, LayerPart]
    sum: LayerPart
    selective: Figure
    moe: Figure
    hidden: LayerPart
    modules: Figure
    unread: Figure

    def layer(self, grid: Grid, behind: LayerPart) -> Layer:
        """With what is launched late, and the layer's fixed overhead; what is hidden of exchanges would partly hide
        behind the CPU. So would the kernels of `modules` that are recomputed: what the CPU launches for them counts,
        too.
        """
        late = LayerPart(np.maximum(behind.forward, 0.0), np.maximum(behind.backward, 0.0))
        modules = self.modules
        if np.count_nonzero(modules):
            relaunched = relaunches(grid, self.moe) * grid.device.launch
            modules = np.maximum(modules - late.backward, relaunched + np.minimum(behind.backward, 0.0))
            modules = np.maximum(modules, 0.0)
        fixed = blocks(grid) * (grid.stack.layer_overhead + (grid.layout.tp > 1) * grid.stack.tp_host)
        launch = LayerPart(late.forward + fixed, late.backward + 2.0 * fixed)
        lone = np.maximum(self.hidden.forward - late.forward, 0.0)
        lone = lone + np.maximum(self.hidden.backward - late.backward, 0.0)
        forward = self.sum.forward + launch.forward
        backward = self.sum.backward + launch.backward
        return Layer(forward, backward, self.selective, self.parts | {"launch": launch}, lone, modules, self.unread)


def modules_named(options: Options) -> Figure:
    """How many modules are recomputed by name."""
    some = options.recompute_latents + options.recompute_function
    return some + options.recompute_norms + options.recompute_mlp + options.recompute_mixture


CHECKPOINT_CALLS = 12
"""Calls into PyTorch that recomputing a module takes beside its own kernels, each about as long as a launch: states of
two random number generators are read twice and set twice, inputs detached, the output's storage resized and filled
(Megatron-LM d98e8a64, core/tensor_parallel/random.py, `CheckpointWithoutOutput`, `_fork_rng`)."""
LATENT_KERNELS, MLP_KERNELS = 6, 4
"""Kernels of a module's forward pass: a norm, two products and rotations of queries and keys with their joins
(multi_latent_attention.py, `qkv_up_proj_and_rope_apply`); a norm, two products and a function. Norms and functions
are one."""


def relaunches(grid: Grid, moe: Figure) -> Figure:
    """What the CPU launches to compute modules again, but for those that CUDA graphs launch."""
    s, o = grid.shape, grid.options
    latent = (s.kv_rank > 0) * s.attention_share
    kernel = CHECKPOINT_CALLS + 1.0
    alone = o.recompute_latents * latent * (CHECKPOINT_CALLS + LATENT_KERNELS) + o.recompute_norms * latent * kernel
    alone = alone + o.recompute_norms * moe * kernel
    alone = alone + o.recompute_mlp * (1.0 - moe - s.idle_share) * (CHECKPOINT_CALLS + MLP_KERNELS)
    function = o.recompute_function * (1.0 - o.recompute_mixture) * kernel
    experts = moe * (function + o.recompute_mixture * (CHECKPOINT_CALLS + grid.stack.expert_launches))
    return (o.graphs < 1) * alone + (o.graphs < CAPTURED_EXPERTS) * experts


def modules_again(grid: Grid, moe: Figure, dense: LayerPart, around: LayerPart, mixture: Figure) -> Figure:
    """Seconds to compute modules again: products that expand latents; the function of routed experts, and norms, which
    are read and written; the forward pass of a dense MLP, what is `around` it, and its tensor-parallel region; that of
    a whole `mixture`, in seconds.
    """
    s = grid.shape
    o = grid.options
    stack = grid.stack
    element = grid.device.element * tokens(grid)
    activation = (1.0 + s.gated) * element / grid.layout.tp * s.experts_per_token * s.expert_ffn
    kept_function = (1.0 - stack.drops_activation) * activation / grid.device.memory_rate
    function = kept_function + experts.clamped_activation(grid).forward
    norm = 2.0 * element * s.hidden / sequence_shard(grid) / grid.device.memory_rate
    whole = dense.forward + around.forward + tensor_parallel(grid, 1.0, dense).forward
    again = o.recompute_latents * s.attention_share * attention.expanding(grid)
    again = again + moe * (1.0 - o.recompute_mixture) * o.recompute_function * function
    again = again + moe * o.recompute_mixture * mixture
    again = again + o.recompute_norms * ((s.kv_rank > 0) * s.attention_share + moe) * norm
    return again + (1.0 - moe - s.idle_share) * o.recompute_mlp * whole


def last_product(grid: Grid) -> Figure:
    """Seconds of a dense MLP's projection down, and of the residual, ``3 e tokens h / shard`` bytes, where recomputing
    the block leaves them out: no gradient reads what they give, unless a norm, dropout or adapters stand behind.

    Source: checkpoints of PyTorch that are not reentrant stop as soon as they have what gradients read, by default
    (pytorch@0008d771a, torch/utils/checkpoint.py, rule 5; since 2.1), and a product's input is saved before it runs;
    compilers drop what nothing reads (jax@0018095c, jax/_src/ad_checkpoint.py, remat_partial_eval: "DCE jaxpr_staged").
    Megatron's and DeepSpeed's own checkpoints run the whole block. Its tensor-parallel region is taken to run again.
    """
    left_out = grid.stack.skips_last_product * grid.shape.ends_in_product
    if not np.count_nonzero(left_out):
        return 0.0
    *_, down = mlp_shapes(grid, grid.shape.ffn)
    residual = 3.0 * grid.device.element * tokens(grid) * grid.shape.hidden / sequence_shard(grid)
    return left_out * (products.trained_product(grid, down).forward + moved(grid, residual).forward)


def norm_bytes(grid: Grid) -> Figure:
    """Bytes that one norm and residual move: ``5 e tokens h / shard``."""
    return elements.wide(grid) * tokens(grid) * 10.0 * grid.shape.hidden / sequence_shard(grid)


@dataclass(frozen=True, slots=True)
class Mixing:
    """What mixes tokens in a layer, mean over the layers' kinds."""

    matrix: LayerPart
    kernel: LayerPart
    moved: Figure
    """Bytes that element-wise kernels move."""


def mixers(grid: Grid, kernel: LayerPart) -> Mixing:
    """Attention, whose kernel takes so long where there is one, and recurrences, each by its share of the layers."""
    s = grid.shape
    matrix = attention.matrix(grid)
    around = attention.vector_bytes(grid)
    if not np.count_nonzero(s.recurrent_share) and np.all(s.attention_share == 1.0):
        return Mixing(matrix, kernel, around)
    share, other = s.attention_share, s.recurrent_share
    # A block with both has one norm and one residual: those of the recurrence are left out there.
    twice = (share + other - s.mixing_share) * norm_bytes(grid)
    return Mixing(
        matrix.scaled(share) + recurrent.matrix(grid).scaled(other),
        kernel.scaled(share) + recurrent.kernel(grid).scaled(other),
        share * around + other * recurrent.vector_bytes(grid) - twice,
    )


def layers(grid: Grid) -> tuple[Layer, ...]:
    """The model's leading layer (dense MLP) and its body layer (dense, mixture, or the mean of both); or one of each
    kind, where stages hold different ones. The CPU runs ahead of some kinds during others: what is launched late is
    that of their mean.
    """
    share, pattern = grid.shape.moe_share, grid.shape.pattern
    if pattern is None:
        lead_and_body = _kernels(grid, (0.0 * share, share))
        return tuple(kernels.layer(grid, launched_late(grid, kernels.sum, kernels.moe)) for kernels in lead_and_body)

    kinds = by_kind(grid)
    kernels_by_kind = [_kernels(kind, (kind.shape.moe_share,))[0] for kind in kinds]
    shares = [pattern.order.count(place) / len(pattern.order) for place in range(len(kinds))]
    mean = [kernels.sum.scaled(n) for n, kernels in zip(shares, kernels_by_kind, strict=True)]
    moe = sum(n * kernels.moe for n, kernels in zip(shares, kernels_by_kind, strict=True))
    late = launched_late(grid, functools.reduce(LayerPart.__add__, mean), moe)
    return tuple(kernels.layer(kind, late) for kind, kernels in zip(kinds, kernels_by_kind, strict=True))


def _kernels(grid: Grid, shares: tuple[Figure, ...]) -> tuple[_Kernels, ...]:
    """Kernels of layers that differ only in the share of them that has a mixture for its MLP."""
    s, stack = grid.shape, grid.stack
    kernel = attention.kernel(grid)
    ring = attention.context_parallel(grid, kernel)
    joined = attention.joining(grid)
    exchange = experts.exchange(grid)
    mixing = mixers(grid, kernel)
    projections = mixing.matrix
    halves = s.mixing_share + 1.0 - s.idle_share
    dense = mlp(grid, s.ffn)
    shared = mlp(grid, s.shared_ffn)
    routed = experts.matrix(grid)
    dense_bytes = mlp_vector_bytes(grid, s.ffn)
    routed_bytes = experts.vector_bytes(grid) + experts.shared_bytes(grid)
    apart = experts.unfused_kernels(grid)
    unread = last_product(grid)
    named = np.count_nonzero(modules_named(grid.options))
    width = (1.0 + s.gated) * grid.device.element * tokens(grid) / grid.layout.tp

    def build(moe: Figure) -> _Kernels:
        plain = 1.0 - moe - s.idle_share
        matrix = projections + dense.scaled(plain) + (shared + routed).scaled(moe)
        vector = moved(grid, mixing.moved + plain * dense_bytes + moe * routed_bytes)
        if hyper_connections.mixed(grid):
            matrix = matrix + hyper_connections.matrix(grid)
            vector = vector + moved(grid, hyper_connections.vector_bytes(grid))
        vector = vector + apart.scaled(moe) + frozen.dequantising(grid, moe)
        exchanged = experts.exposed(grid, matrix + mixing.kernel + vector, exchange)
        parts = {
            "matrix": matrix,
            "attention": mixing.kernel + joined.scaled(s.attention_share),
            "vector": vector,
            "tp": tensor_parallel(grid, halves - moe * (s.shared_ffn <= 0), matrix),
            "cp": ring.scaled(s.attention_share),
            "ep": exchanged.scaled(moe),
        }
        activation = width * (plain * s.ffn + moe * (s.shared_ffn + s.experts_per_token * s.expert_ffn))
        again = (
            stack.drops_scores * s.attention_share * kernel.forward
            + (stack.drops_activation * activation + stack.drops_norms * halves * 0.4 * norm_bytes(grid))
            / grid.device.memory_rate
            + stack.drops_linear * stack.selective_recompute * matrix.forward
        )
        modules: Figure = 0.0
        if named:
            region = (s.shared_ffn > 0) * tensor_parallel(grid, 1.0, shared + routed).forward
            mixture = (shared + routed).forward + moved(grid, routed_bytes).forward + apart.forward + region + exchange
            modules = modules_again(grid, moe, dense, moved(grid, dense_bytes), mixture)
        hidden = LayerPart(exchange - exchanged.forward, exchange - exchanged.backward).scaled(moe)
        spent = [_total([getattr(part, way) for part in parts.values()]) for way in LayerPart.__slots__]
        return _Kernels(parts, LayerPart(*spent), again, moe, hidden, modules, plain * unread)

    return tuple(build(share) for share in shares)


def head_shape(grid: Grid) -> Product:
    """The product that makes logits, in 16 bit at least."""
    s = grid.shape
    return Product("logits", tokens(grid), s.vocab / grid.layout.tp, s.hidden, 1.0, grid.device.matrix_rate_16)


def loss_bytes(grid: Grid) -> Figure:
    """Memory traffic of the loss over logits, each way: half of what its kernels move."""
    per_logit = 0.5 * grid.stack.loss_traffic + 2.0 * (grid.device.element - elements.NARROW)
    return tokens(grid) * grid.shape.vocab / grid.layout.tp * per_logit


def head(grid: Grid) -> LayerPart:
    """Logits and the loss over them, on the last stage; again for each multi-token prediction module."""
    passes = loss_bytes(grid) / grid.device.memory_rate
    return (products.trained_product(grid, head_shape(grid)) + LayerPart(passes, passes)).scaled(grid.shape.losses)


def embedding(grid: Grid) -> LayerPart:
    """Looking up and scattering rows, on the first stage."""
    return moved(grid, embedding_bytes(grid))


def embedding_bytes(grid: Grid) -> Figure:
    """Bytes that looking up rows moves: ``3 e tokens h / shard``."""
    return elements.wide(grid) * 6.0 * tokens(grid) * grid.shape.hidden / sequence_shard(grid)
