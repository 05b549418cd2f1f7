"""Time of one transformer layer on one accelerator: matrix products, attention, element-wise kernels, communication.

Everything here is per micro-batch. `tokens` are those a tensor-parallel group works on, ``micro sequence / cp``. A
layer's time is kept in named parts, each a forward and a backward share, so that a breakdown adds up to the total by
construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import collectives, elements, hierarchy, overlap
from planner.cost.collectives import CollectiveGroup
from planner.cost.figures import Device, Figure, Grid
from planner.cost.hierarchy import Far

_TILE_M, _TILE_N = 128.0, 256.0


@dataclass(frozen=True, slots=True)
class LayerPart:
    """Seconds of one kind of work in one layer's forward and backward pass."""

    forward: Figure
    backward: Figure

    def __add__(self, other: LayerPart) -> LayerPart:
        return LayerPart(self.forward + other.forward, self.backward + other.backward)

    def scaled(self, factor: Figure) -> LayerPart:
        """Both shares times `factor`."""
        return LayerPart(self.forward * factor, self.backward * factor)


NOTHING = LayerPart(0.0, 0.0)


def reads(device: Device, m: Figure, n: Figure, k: Figure) -> tuple[Figure, Figure]:
    """How often a product reads its first operand (A bytes) and its second (B): of three tilings, the least bytes.

    A slab of one operand stays in the buffer of S bytes while the other passes, ``A + ceil(A / S) B`` or ``B + ceil(B /
    S) A``; or square tiles of the result do, ``ceil(n / T) A + ceil(m / T) B`` with ``T = sqrt(S / e)``.
    """
    a, b = device.element * m * k, device.element * k * n
    edge = np.sqrt(device.buffer / device.element)
    slabs_a, slabs_b = (np.maximum(np.ceil(size / device.buffer), 1.0) for size in (a, b))
    across, down = (np.maximum(np.ceil(side / edge), 1.0) for side in (n, m))
    by_first, by_second, by_tile = a + slabs_a * b, b + slabs_b * a, across * a + down * b
    least = np.minimum(np.minimum(by_first, by_second), by_tile)
    first = np.where(by_first <= least, 1.0, np.where(by_second <= least, slabs_b, across))
    second = np.where(by_first <= least, slabs_a, np.where(by_second <= least, 1.0, down))
    return first, second


def product_time(
    device: Device,
    m: Figure,
    n: Figure,
    k: Figure,
    groups: Figure = 1.0,
    rate: Figure = None,
    written: Figure = None,
    far: Far | None = None,
) -> Figure:
    """Seconds of ``groups`` products (m x k)(k x n) whose results move `written` bytes an element, as many as operands
    (e) where nothing is said.

    ``t = 2 m n k / rate (1 + k_half / k) (1 + w (q - 1))`` but no less than the bytes
    ``e (r_1 m k + r_2 k n) + written m n`` over the memory's rate, with r how often an operand is read (:func:`reads`)
    and ``q`` the rounding up of output tiles to whole waves over the compute units. The ramp is a fixed time:
    ``k_half`` grows with the rate. Nothing, where a dimension is 0: a projection that the model lacks. `far` says what
    of the second operand and the result lies in expanded memory.
    """
    rate = device.matrix_rate if rate is None else rate
    element = device.element
    written = element if written is None else written
    tiles = np.ceil(m / _TILE_M) * np.ceil(n / _TILE_N) * groups
    waves = np.ceil(tiles / device.compute_units) * device.compute_units / np.maximum(tiles, 1.0)
    half = device.inner_half * rate / device.matrix_rate
    arithmetic = 2.0 * m * n * k / rate * (1.0 + half / np.maximum(k, 1.0))
    arithmetic = arithmetic * (1.0 + device.quantisation * np.minimum(waves - 1.0, 3.0) * (tiles > 0))
    first, second = reads(device, m, n, k)
    if far is None:
        traffic = (element * (first * m * k + second * k * n) + written * m * n) / device.memory_rate
    else:
        other, result = element * second * k * n, written * m * n
        there = far.second * other + far.result * result
        traffic = far.seconds(device.memory_rate, element * first * m * k + other + result - there, there)
    return groups * np.maximum(arithmetic, traffic) * (m * n * k > 0)


@dataclass(frozen=True, slots=True)
class Product:
    """``groups`` products (m x k)(k x n) of activations with weights."""

    name: str
    m: Figure
    n: Figure
    k: Figure
    groups: Figure = 1.0
    rate: Figure = None
    """FLOP/s; None: the device's in the precision trained in."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a product forward, and of both its gradients."""

    forward: Figure
    inward: Figure
    """Input gradient."""
    weight: Figure
    """Weight gradient; nothing where weights are frozen."""


def gradient_traffic(grid: Grid) -> Figure:
    """Bytes that an element of a weight gradient moves.

    A runtime that keeps whole gradients adds each micro-batch's to them: it reads and writes them in their own
    precision. One that gathers working copies writes them once, as wide as activations, and reduces them.
    """
    return np.where(grid.stack.gathers_working_copy > 0, grid.device.element, 2.0 * elements.gradient_bytes(grid))


def by_pass(grid: Grid, p: Product) -> Passes:
    """A product with its two gradients: input ``(m, k, n)`` and, where weights are trained, weight ``(k, n, m)``."""
    device, added = grid.device, gradient_traffic(grid)
    weights, gradients = hierarchy.of_weights(grid)
    forward = product_time(device, p.m, p.n, p.k, p.groups, p.rate, far=weights)
    inward = product_time(device, p.m, p.k, p.n, p.groups, p.rate, far=weights)
    weight = product_time(device, p.k, p.n, p.m, p.groups, p.rate, added, gradients)
    return Passes(forward, inward, grid.shape.weight_gradient * weight)


def trained_product(grid: Grid, p: Product) -> LayerPart:
    """A product with both its gradients, and what adapters add to them."""
    found = by_pass(grid, p)
    adapters = 1.0 + grid.shape.adapter_flops
    return LayerPart(found.forward * adapters, (found.inward + found.weight) * adapters)


def _trained(grid: Grid, products: tuple[Product, ...]) -> LayerPart:
    total = trained_product(grid, products[0])
    for product in products[1:]:
        total = total + trained_product(grid, product)
    return total


def tokens(grid: Grid) -> Figure:
    """Tokens per micro-batch that a tensor-parallel group works on: ``micro sequence / cp``."""
    return grid.layout.micro * grid.shape.sequence / grid.layout.cp


def kv_width(grid: Grid) -> Figure:
    """Width of keys and values on one rank: heads are replicated once tp exceeds them."""
    return np.maximum(grid.shape.kv_heads / grid.layout.tp, 1.0) * (grid.shape.qk_dim + grid.shape.v_dim)


def attention_shapes(grid: Grid) -> tuple[Product, ...]:
    """Products around attention: query/key/value in one, or through latents, and the output projection."""
    s, tp, t = grid.shape, grid.layout.tp, tokens(grid)
    queries = s.heads * s.qk_dim / tp
    latent = s.kv_rank > 0
    first = np.where(latent, s.query_rank + s.kv_rank, queries + kv_width(grid))
    return (
        Product("qkv", t, first, s.hidden),
        Product("queries up", t, queries * latent, np.where(s.query_rank > 0, s.query_rank, s.hidden)),
        Product("keys, values up", t, s.kv_up / tp, s.kv_latent),
        Product("output", t, s.hidden, s.heads * s.v_dim / tp),
    )


def attention_products(grid: Grid) -> LayerPart:
    """Projections around attention: query/key/value in one product, or through latents, and the output projection."""
    return _trained(grid, attention_shapes(grid)).scaled(1.0 + grid.shape.cross_share)


def attention_kernel(grid: Grid) -> LayerPart:
    """Scores and their product with the values.

    Fused: ``2 tokens attended heads (qk + v) / tp`` FLOPs at the kernel's rate, ``rate / (1 + s_half cp / s)``: a
    context-parallel rank works on blocks of s / cp tokens (on whole sequences where heads are exchanged); the backward
    pass does 2.5 times as many at a lower rate.
    Unfused: whole scores as products, and ~6.5 passes forward and ~11 backward over them in memory.
    """
    s, d, layout, stack = grid.shape, grid.device, grid.layout, grid.stack
    work = 2.0 * tokens(grid) * s.heads * (s.qk_dim + s.v_dim) / layout.tp * (1.0 + s.cross_share)
    blocks = np.where(s.context_exchanged > 0, 1.0, layout.cp)
    rate = d.attention_rate * stack.attention / (1.0 + d.attention_half * blocks / s.sequence)
    fused = work * s.attended / rate
    scores = d.element * tokens(grid) * s.sequence * s.heads / layout.tp * (1.0 + s.cross_share)
    whole = work * s.attended_full / d.matrix_rate_16
    return LayerPart(
        np.where(stack.fused_attention > 0, fused, whole + 6.5 * scores / d.memory_rate),
        np.where(
            stack.fused_attention > 0, fused * 2.5 * d.attention_backward, 2.0 * whole + 11.0 * scores / d.memory_rate
        ),
    )


def mlp_shapes(grid: Grid, width: Figure) -> tuple[Product, ...]:
    """Products of an MLP of inner `width`, split over tensor-parallel ranks."""
    s, t = grid.shape, tokens(grid)
    inner = width / grid.layout.tp
    return Product("up", t, (1.0 + s.gated) * inner, s.hidden), Product("down", t, s.hidden, inner)


def dense_mlp_products(grid: Grid, width: Figure) -> LayerPart:
    """Up (and gate) and down projections of an MLP of inner `width`, split over tensor-parallel ranks."""
    return _trained(grid, mlp_shapes(grid, width))


def routed_copies(grid: Grid) -> Figure:
    """Token copies that one rank's experts work on: ``tokens experts_per_token etp / tp``, times the imbalance."""
    return tokens(grid) * grid.shape.experts_per_token * grid.layout.etp / grid.layout.tp * grid.stack.expert_imbalance


def expert_shapes(grid: Grid) -> tuple[Product, ...]:
    """Products of the routed experts that a rank holds, and of the router."""
    s, layout = grid.shape, grid.layout
    local = np.maximum(s.experts / layout.ep, 1.0)
    rows = routed_copies(grid) / local
    inner = s.expert_ffn / layout.etp
    rate = grid.device.matrix_rate * grid.stack.grouped_matrix
    return (
        Product("experts up", rows, (1.0 + s.gated) * inner, s.hidden, local, rate),
        Product("experts down", rows, s.hidden, inner, local, rate),
        Product("router", tokens(grid) / layout.tp, s.experts, s.hidden, 1.0, grid.device.matrix_rate_16),
    )


def expert_products(grid: Grid) -> LayerPart:
    """Grouped products of the routed experts that a rank holds, and the router."""
    return _trained(grid, expert_shapes(grid))


def _element_wise(grid: Grid, forward_bytes: Figure) -> LayerPart:
    """Memory-bound kernels: bytes over the reachable bandwidth; the backward pass moves twice the forward's bytes."""
    seconds = forward_bytes * grid.stack.vector / grid.device.memory_rate
    return LayerPart(seconds, 2.0 * seconds)


def sequence_shard(grid: Grid) -> Figure:
    """Ranks that share the tokens outside tensor-parallel regions: tp with sequence parallelism, else 1."""
    return np.where(grid.options.sequence_parallel > 0, grid.layout.tp, 1.0)


def _cast_bytes(grid: Grid, width: Figure) -> Figure:
    """Reading 16-bit rows of `width` elements a token and writing them in 8 bit, once plain and once transposed."""
    return grid.device.low_precision * grid.stack.low_precision_cast * 4.0 * tokens(grid) * width


def _input_casts(grid: Grid) -> Figure:
    """The same of a block's input: with sequence parallelism cast on the shard, then gathered and transposed."""
    return 0.5 * _cast_bytes(grid, grid.shape.hidden) * (1.0 + 1.0 / sequence_shard(grid))


def attention_vector_bytes(grid: Grid) -> Figure:
    """Norm and residual (5 e h a token), rotary embedding (2 e bytes per query and key element), casts of inputs."""
    s, wide = grid.shape, elements.wide(grid)
    rotary = 4.0 * (s.heads * s.qk_dim / grid.layout.tp + 0.5 * kv_width(grid))
    casts = _input_casts(grid) + _cast_bytes(grid, s.heads * s.v_dim / grid.layout.tp)
    return wide * tokens(grid) * (10.0 * s.hidden / sequence_shard(grid) + rotary) + casts


def mlp_vector_bytes(grid: Grid, width: Figure) -> Figure:
    """Norm and residual, the activation function (3 e or 2 e bytes per inner element), casts of inputs."""
    s, wide = grid.shape, elements.wide(grid)
    inner = width / grid.layout.tp
    casts = _input_casts(grid) + _cast_bytes(grid, inner)
    return wide * tokens(grid) * (10.0 * s.hidden / sequence_shard(grid) + (4.0 + 2.0 * s.gated) * inner) + casts


def expert_vector_bytes(grid: Grid) -> Figure:
    """Norm and residual, permuting copies to experts and back (8 h a copy) and casting them, the activation function.

    ``tokens 10 h / shard + copies (r (8 h + 4 c (h + f / etp)) + (4 + 2 gated) f / etp)`` in 16 bit, with r how often a
    runtime's kernels move a copy, and c its casts; twice as much in 32.
    """
    s, wide = grid.shape, elements.wide(grid)
    copies = routed_copies(grid)
    inner = s.expert_ffn / grid.layout.etp
    casts = grid.device.low_precision * grid.stack.low_precision_cast * 4.0 * (s.hidden + inner)
    own = wide * tokens(grid) * 10.0 * s.hidden / sequence_shard(grid)
    moved = grid.stack.routed_vector * (wide * 8.0 * s.hidden + casts)
    return own + copies * (moved + wide * (4.0 + 2.0 * s.gated) * inner)


CLAMPED = LayerPart(16.0, 20.0)
"""Bytes of an inner element that clamping moves forward and backward beside the fused function: both halves are read
and clamped, then joined; gradients the same way back (Megatron-LM d98e8a64, core/fusions/fused_bias_geglu.py,
weighted_bias_quick_geglu_impl)."""
BIASED = LayerPart(12.0, 16.0)
"""Bytes of an output element that the second product's bias moves: bias times probability is written, added expert by
expert, and the pieces are joined; backward its gradient and the probability's are written and summed up (the same,
core/transformer/moe/experts.py, TEGroupedMLP._apply_bias). The first product adds its own (TransformerEngine)."""


def biased_experts(grid: Grid) -> LayerPart:
    """Seconds that experts' biases and clamped function take as kernels of their own:
    ``copies (clamped f / etp + biased h)`` bytes in 16 bit.

    None where 8-bit products fuse them (the same, TEGroupedMLP._is_fused_impl_supported: its kernel is for mxfp8).
    """
    apart = grid.shape.biased_experts * (1.0 - grid.stack.fused_experts * grid.device.low_precision)
    rate = grid.device.memory_rate / grid.stack.vector / elements.wide(grid)
    each = apart * routed_copies(grid) / rate
    return CLAMPED.scaled(each * grid.shape.expert_ffn / grid.layout.etp) + BIASED.scaled(each * grid.shape.hidden)


def shared_bytes(grid: Grid) -> Figure:
    """What the function of shared experts moves in addition to the routed ones: ``e tokens f / tp``."""
    return grid.device.element * tokens(grid) * grid.shape.shared_ffn / grid.layout.tp


def region_bytes(grid: Grid) -> Figure:
    """Bytes that one tensor-parallel region reduces each way: ``e tokens h``."""
    return activation_bytes(grid, grid.shape.hidden)


def activation_bytes(grid: Grid, width: Figure) -> Figure:
    """Bytes of `width` elements a token: ``e tokens width``."""
    return grid.device.element * tokens(grid) * width


def tensor_parallel_alone(grid: Grid) -> Figure:
    """Seconds of one tensor-parallel region's communication in one pass.

    Without sequence parallelism an all-reduce; with it a gather before and a scatter after; what is gathered in low
    precision was cast before: half the bytes.
    """
    network, layout, options = grid.network, grid.layout, grid.options
    ranks = collectives.group(network, layout.tp, 1.0)
    size = region_bytes(grid)
    reduce = collectives.all_reduce(network, size, ranks)
    scatter = (2.0 - 0.5 * grid.device.low_precision) * collectives.gather(network, size, ranks)
    return np.where(options.sequence_parallel > 0, scatter, reduce)


def tensor_parallel(grid: Grid, blocks: Figure, products: LayerPart) -> LayerPart:
    """Communication of `blocks` tensor-parallel regions (attention and MLP are two) each way, of which overlap hides
    what runs during the products that it feeds.
    """
    seconds = blocks * tensor_parallel_alone(grid)
    share, toll = grid.options.tp_overlap * grid.stack.tp_overlap, grid.device.collective_share
    return LayerPart(
        overlap.shown(seconds, products.forward, share, toll), overlap.shown(seconds, products.backward, share, toll)
    )


def context_parallel(grid: Grid, kernel: LayerPart) -> LayerPart:
    """Keys and values passed round the context-parallel ring during the attention kernel.

    The first step has nothing to wait for, the last nothing to send: (cp - 1) / cp of the kernel can hide transfers.
    What is exchanged or gathered instead is needed before the kernel starts: nothing hides it.
    """
    network, layout, s = grid.network, grid.layout, grid.shape
    apart = context_exchange(grid).scaled(s.context_exchanged) + context_gather(grid).scaled(s.context_gathered)
    size = activation_bytes(grid, kv_width(grid))
    ring = collectives.group(network, layout.cp, layout.tp)
    once = (layout.cp - 1.0) * collectives.send(network, size, layout.tp, ring.n)
    window = (layout.cp - 1.0) / layout.cp
    share, toll = grid.stack.cp_overlap, grid.device.collective_share
    passed = LayerPart(
        overlap.shown(once, window * kernel.forward, share, toll),
        overlap.shown(2.0 * once, window * kernel.backward, share, toll),
    )
    return (passed.scaled(_ring(grid)) + apart).scaled(layout.cp > 1)


def _ring(grid: Grid) -> Figure:
    """1 where keys and values go round a ring."""
    return 1.0 - grid.shape.context_exchanged - grid.shape.context_gathered


def context_exchange(grid: Grid) -> LayerPart:
    """All-to-all of queries, keys and values before the kernel and of its output behind it, their gradients backward
    (TransformerEngine, attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A).
    """
    ranks, s, tp = collectives.group(grid.network, grid.layout.cp, grid.layout.tp), grid.shape, grid.layout.tp
    before = activation_bytes(grid, s.heads * s.qk_dim / tp + kv_width(grid))
    behind = activation_bytes(grid, s.heads * s.v_dim / tp)
    seconds = sum(collectives.all_to_all(grid.network, size, ranks) for size in (before, behind))
    return LayerPart(seconds, seconds)


def context_gather(grid: Grid) -> LayerPart:
    """Keys and values of all ranks gathered forward, again backward, where their gradients are scattered
    (TransformerEngine, as above, AttnFuncWithCPAndKVAllGather).
    """
    ranks = collectives.group(grid.network, grid.layout.cp, grid.layout.tp)
    size = grid.layout.cp * activation_bytes(grid, kv_width(grid))
    once = collectives.gather(grid.network, size, ranks)
    return LayerPart(once, 2.0 * once)


def joining(grid: Grid) -> LayerPart:
    """What a ring's further steps found, joined to what the first did: ``(cp - 1) tokens width (e + 8)`` bytes.

    A step's output is read (e), the sum read and written in fp32: outputs forward, gradients of queries, keys and
    values backward (TransformerEngine, attention/dot_product_attention/context_parallel.py).
    """
    layout, s = grid.layout, grid.shape
    added = _ring(grid) * (layout.cp - 1.0) * tokens(grid) * (grid.device.element + 8.0) / grid.device.memory_rate
    outputs = s.heads * s.v_dim / layout.tp
    return LayerPart(added * outputs, added * (s.heads * s.qk_dim / layout.tp + kv_width(grid)))


RING_KERNELS = 5.0
"""Launches of a further step of the ring each way: the attention kernel, a copy of keys and values, a send, a receive,
the correction of what was found (TransformerEngine, as above)."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One all-to-all of token copies."""

    ranks: CollectiveGroup
    size: Figure
    """Bytes that a rank sends."""
    once: Figure
    """Seconds."""


def dispatch(grid: Grid) -> Dispatch:
    """Token copies to the experts' ranks, or back.

    A plain all-to-all sends every copy. Dispatchers that forward within a domain (DeepEP, HybridEP) let copies of one
    token bound for it cross the NIC once: of k copies over d domains about ``d (1 - (1 - 1/d)^k)`` are distinct.
    """
    network, layout, s = grid.network, grid.layout, grid.shape
    ranks = collectives.group(network, layout.ep, layout.etp)
    per_token = np.maximum(s.experts_per_token, 1.0)
    size = grid.device.element * tokens(grid) * s.experts_per_token / layout.tp * s.hidden * grid.stack.expert_imbalance
    domains = np.maximum(ranks.n / ranks.inside, 1.0)
    distinct = np.minimum(domains * (1.0 - (1.0 - 1.0 / domains) ** per_token) / per_token, 1.0)
    crossing = np.where(grid.stack.dispatch_once > 0, distinct, 1.0)
    return Dispatch(ranks, size, collectives.all_to_all(network, size, ranks, crossing))


def expert_exchange(grid: Grid) -> Figure:
    """Seconds of a pass's dispatch and combine of token copies over expert-parallel ranks, with their gathers over
    expert-tensor ranks, alone.
    """
    network, layout = grid.network, grid.layout
    routed = dispatch(grid)
    tensor = collectives.gather(network, routed.size * layout.etp, collectives.group(network, layout.etp, 1.0))
    return 2.0 * (routed.once + tensor)


def expert_parallel(grid: Grid, work: LayerPart, seconds: Figure) -> LayerPart:
    """What shows of experts' exchanges that take so many `seconds` a pass.

    With the option on, a forward pass's run beside another micro-batch's backward `work` on the same layer, and the
    other way round (Megatron-LM d98e8a64, core/pipeline_parallel/combined_1f1b.py); else nothing runs beside them.
    """
    share, toll = grid.options.ep_overlap * grid.stack.ep_overlap, grid.device.collective_share
    return LayerPart(
        overlap.shown(seconds, work.backward, share, toll), overlap.shown(seconds, work.forward, share, toll)
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


def _total(values: list[Figure]) -> Figure:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _floored(grid: Grid, parts: dict[str, LayerPart], selective: Figure, moe: Figure, hidden: LayerPart) -> Layer:
    """Adds what the CPU's launching takes beyond the kernels themselves, and the layer's fixed overhead; what is hidden
    of exchanges would partly hide behind the CPU.
    """
    forward, backward = _total([p.forward for p in parts.values()]), _total([p.backward for p in parts.values()])
    ring = RING_KERNELS * _ring(grid) * (grid.layout.cp - 1.0)
    floor = (grid.stack.kernels_per_layer + ring + moe * grid.stack.expert_launches) * grid.device.launch
    fixed = grid.stack.layer_overhead + (grid.layout.tp > 1) * grid.stack.tp_host
    late = LayerPart(np.maximum(floor - forward, 0.0) + fixed, np.maximum(1.6 * floor - backward, 0.0) + 2.0 * fixed)
    alone = np.maximum(hidden.forward - np.maximum(floor - forward, 0.0), 0.0)
    alone = alone + np.maximum(hidden.backward - np.maximum(1.6 * floor - backward, 0.0), 0.0)
    return Layer(forward + late.forward, backward + late.backward, selective, parts | {"launch": late}, alone)


def layers(grid: Grid) -> tuple[Layer, Layer]:
    """The model's leading layer (dense MLP) and its body layer (dense, mixture, or the mean of both)."""
    s, stack = grid.shape, grid.stack
    share = s.moe_share
    kernel = attention_kernel(grid)
    ring, joined, exchange = context_parallel(grid, kernel), joining(grid), expert_exchange(grid)
    projections = attention_products(grid)
    dense = dense_mlp_products(grid, s.ffn)
    shared = dense_mlp_products(grid, s.shared_ffn)
    routed = expert_products(grid)
    attention_bytes = attention_vector_bytes(grid)
    dense_bytes = mlp_vector_bytes(grid, s.ffn)
    routed_bytes, apart = expert_vector_bytes(grid) + shared_bytes(grid), biased_experts(grid)
    width = (1.0 + s.gated) * grid.device.element * tokens(grid) / grid.layout.tp

    def build(moe: Figure) -> Layer:
        matrix = projections + dense.scaled(1.0 - moe) + (shared + routed).scaled(moe)
        vector = _element_wise(grid, attention_bytes + (1.0 - moe) * dense_bytes + moe * routed_bytes)
        vector = vector + apart.scaled(moe)
        experts = expert_parallel(grid, matrix + kernel + vector, exchange)
        parts = {
            "matrix": matrix,
            "attention": kernel + joined,
            "vector": vector,
            "tp": tensor_parallel(grid, 2.0 - moe * (s.shared_ffn <= 0), matrix),
            "cp": ring,
            "ep": experts.scaled(moe),
        }
        activation = width * ((1.0 - moe) * s.ffn + moe * (s.shared_ffn + s.experts_per_token * s.expert_ffn))
        again = (
            stack.drops_scores * kernel.forward
            + (
                stack.drops_activation * activation
                + stack.drops_norms * 8.0 * elements.wide(grid) * tokens(grid) * s.hidden / sequence_shard(grid)
            )
            / grid.device.memory_rate
            + stack.drops_linear * stack.selective_recompute * matrix.forward
        )
        hidden = LayerPart(exchange - experts.forward, exchange - experts.backward).scaled(moe)
        return _floored(grid, parts, again, moe, hidden)

    return build(0.0 * share), build(share)


def head_shape(grid: Grid) -> Product:
    """The product that makes logits, in 16 bit at least."""
    s = grid.shape
    return Product("logits", tokens(grid), s.vocab / grid.layout.tp, s.hidden, 1.0, grid.device.matrix_rate_16)


def loss_bytes(grid: Grid) -> Figure:
    """Memory traffic of the loss over logits, each way."""
    each = grid.device.element + elements.logit_bytes(grid, grid.stack.logit_copies)
    return tokens(grid) * grid.shape.vocab / grid.layout.tp * each


def head(grid: Grid) -> LayerPart:
    """Logits and the loss over them, on the last stage; again for each multi-token prediction module."""
    passes = loss_bytes(grid) / grid.device.memory_rate
    return (trained_product(grid, head_shape(grid)) + LayerPart(passes, passes)).scaled(grid.shape.losses)


def embedding(grid: Grid) -> LayerPart:
    """Looking up and scattering rows, on the first stage."""
    return _element_wise(grid, embedding_bytes(grid))


def embedding_bytes(grid: Grid) -> Figure:
    """Memory traffic of looking up rows: ``3 e tokens h``."""
    return elements.wide(grid) * 6.0 * tokens(grid) * grid.shape.hidden / sequence_shard(grid)
