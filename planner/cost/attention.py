"""Attention of one layer: projections, kernel, element-wise traffic, and what context parallelism adds.

Attention's FLOPs are counted here alone: :func:`projections` and :func:`scores` for one token, :func:`kernel_flops`
for a micro-batch. A step's time, MFU and the list of operators all read these. How many positions a token attends to
(the causal half, windows) is in :mod:`planner.models.context`.
"""

from __future__ import annotations

import numpy as np

from planner.cost import collective_times, elements, products
from planner.cost.figures import Device, Figure, Grid, Shape
from planner.cost.micro_batch import activation_bytes, cast_bytes, input_cast_bytes, sequence_shard, tokens
from planner.cost.products import LayerPart, Product
from planner.schema.plan_layout import ATTENTION_KERNELS


def kv_width(grid: Grid) -> Figure:
    """Width of keys and values on one rank."""
    return _kv_width(grid.shape, grid.layout.tp)


def _kv_width(s: Shape, tp: Figure) -> Figure:
    """Heads are replicated once tp exceeds them."""
    return np.maximum(s.kv_heads / tp, 1.0) * (s.qk_dim + s.v_dim)


def projections(s: Shape, tokens: Figure = 1.0, tp: Figure = 1.0) -> tuple[Product, ...]:
    """Products around attention: query/key/value in one (with a gate), or through latents, and the output projection.

    Every tensor-parallel rank makes all of a sparse one's index (Megatron-LM, core/transformer/
    experimental_attention_variant/dsa.py).
    """
    queries = s.heads * s.qk_dim / tp
    latent = s.kv_rank > 0
    direct = queries * (1.0 + s.attention_gate) + _kv_width(s, tp) - s.reused_keys / tp
    first = np.where(latent, s.query_rank + s.kv_rank, direct)
    index = Product("index", tokens, s.index_products / s.hidden, s.hidden)
    return (
        Product("qkv", tokens, first, s.hidden),
        *((index,) if np.count_nonzero(s.index_products) else ()),
        Product("queries up", tokens, queries * latent, np.where(s.query_rank > 0, s.query_rank, s.hidden)),
        Product("keys, values up", tokens, s.kv_up / tp, s.kv_latent),
        *_outputs(s, tokens, tp),
    )


def _outputs(s: Shape, tokens: Figure, tp: Figure) -> tuple[Product, ...]:
    """One product, or one a group of heads to its latent, as many multiply-adds as of all heads to one, and another."""
    whole = s.heads * s.v_dim
    if not np.count_nonzero(s.output_width):
        return (Product("output", tokens, s.hidden, whole / tp),)
    groups = Product("outputs to latents", tokens, s.output_rank, whole / tp)
    return groups, Product("output", tokens, s.hidden, np.where(s.output_width > 0, s.output_width, whole) / tp)


def scores(s: Shape) -> Figure:
    """Multiply-adds of a token with one position that it attends to: ``heads (qk + v)``, again where it crosses."""
    return s.heads * (s.qk_dim + s.v_dim) * (1.0 + s.cross_share)


def indexed(s: Shape) -> Figure:
    """Multiply-adds of a token with all positions of its text in a sparse one's index, hidden ones too: ``s width``."""
    return s.text * s.index_width


def kernel_flops(grid: Grid) -> Figure:
    """FLOPs of a micro-batch with one position for each of its tokens, forward: ``2 tokens scores / tp``."""
    return 2.0 * tokens(grid) * scores(grid.shape) / grid.layout.tp


BACKWARD = 2.5
"""FLOPs of a kernel's backward pass over those of its forward pass: five products for two (arXiv 2307.08691)."""


def backward(device: Device, block: Figure) -> Figure:
    """Time of a kernel's backward pass over its forward pass's: ``2.5 slower (1 + (s_half + s_later) / s) / (1 + s_half
    / s)``, s the tokens of a block.

    Of FlashAttention-3 on H100, both directions of attention, width 128, 1,024 to 8,192 tokens: 541 to 639 TFLOP/s
    forward (meta-pytorch/tritonbench 1254), 313 to 561 backward (facebookexperimental/triton 3463): 1.73 to 1.14 times
    as long a FLOP. Attention both ways counts as a causal one of twice the tokens.
    """
    later = (device.attention_half + device.attention_backward_half) / block
    return BACKWARD * device.attention_backward * (1.0 + later) / (1.0 + device.attention_half / block)


def shapes(grid: Grid) -> tuple[Product, ...]:
    """Products around attention of one rank's micro-batch (:func:`projections`)."""
    return projections(grid.shape, tokens(grid), grid.layout.tp)


def expanding(grid: Grid) -> Figure:
    """Seconds to expand latents to queries, keys and values once more; 0 without latents."""
    up = [product for product in shapes(grid) if product.name in ("queries up", "keys, values up")]
    return (grid.shape.kv_rank > 0) * sum(products.trained_product(grid, product).forward for product in up)


def matrix(grid: Grid) -> LayerPart:
    """Projections around attention: query/key/value in one product, or through latents, and the output projection."""
    return products.trained(grid, shapes(grid)).scaled(1.0 + grid.shape.cross_share)


PRODUCTS = LayerPart(2.0, 2.0 * BACKWARD)
"""Products with every score forward and backward; each pass takes its exponential once (arXiv 2307.08691)."""
WIDTH = 256.0
"""Widths of a head's query and value together that attention's rates are for. Wider heads gain nothing more."""


def kernel_rate(grid: Grid) -> Figure:
    """Rate of the kernel asked for over the device's `attention_rate`; 1 where the runtime chooses."""
    asked = grid.options.attention_kernel
    if not np.count_nonzero(asked):
        return 1.0
    rates = (1.0, *(getattr(grid.device, name.replace("-", "_")) for name in ATTENTION_KERNELS))
    return sum((asked == code) * rate for code, rate in enumerate(rates))


def narrow_heads(grid: Grid) -> LayerPart:
    """Factor on attention's time per FLOP in heads of d < 128: ``(1 + x 128 / d) / (1 + x)``, x the time of a score's
    exponential over that of its products, which does not shrink with them.

    Of FlashAttention-3 on H100, causal, 4,096 tokens, forward: 579 TFLOP/s at width 128, 420 at 64; of cuDNN 518 and
    363 (arXiv 2407.08608, figure 5): 1.38 and 1.43 times as long a FLOP; by this 1.33. A slower kernel spends its time
    on other things: FlashAttention-2 there 319 and 284, 1.12; by this, at 0.55 of the others' rate, 1.22.
    """
    narrower = np.maximum(WIDTH / (grid.shape.qk_dim + grid.shape.v_dim) - 1.0, 0.0)

    def factor(products: Figure) -> Figure:
        waits = grid.device.exponentials * grid.stack.attention * kernel_rate(grid) * PRODUCTS.forward / products
        return 1.0 + waits * narrower / (1.0 + waits)

    return LayerPart(factor(PRODUCTS.forward), factor(PRODUCTS.backward))


def kernel(grid: Grid) -> LayerPart:
    """Scores and their product with the values.

    Fused: ``2 tokens (attended + windowed edge) heads (qk + v) / tp`` FLOPs at the kernel's rate, ``rate / (1 + s_half
    cp / (x s))``, edge the positions that partly masked tiles of a window cost: a context-parallel rank works on blocks
    of x s / cp tokens, x the ranks that exchange heads; the backward pass takes :func:`backward` times as long.
    Narrow heads: :func:`narrow_heads`. Of texts packed into a sequence, s is theirs.
    Unfused: whole scores as products, and ~6.5 passes forward and ~11 backward over them in memory.
    A sparse one's index scores all positions: ``2 tokens s / 2 width`` FLOPs as a product, twice as many backward.
    """
    s, d, layout, stack = grid.shape, grid.device, grid.layout, grid.stack
    work = kernel_flops(grid)
    block = s.text * exchanging(grid) / layout.cp
    rate = d.attention_rate * stack.attention * kernel_rate(grid) / (1.0 + d.attention_half / block)
    fused = work * (s.attended + s.windowed * d.window_edge) / rate
    slower = narrow_heads(grid)
    written = d.element * tokens(grid) * s.sequence * s.heads / layout.tp * (1.0 + s.cross_share)
    whole = work * s.attended_full / d.matrix_rate_16
    index = tokens(grid) * indexed(s) / d.matrix_rate_16
    scored = LayerPart(
        np.where(stack.fused_attention > 0, fused * slower.forward, whole + 6.5 * written / d.memory_rate),
        np.where(
            stack.fused_attention > 0,
            fused * slower.backward * backward(d, block),
            2.0 * whole + 11.0 * written / d.memory_rate,
        ),
    )
    return scored + LayerPart(index, 2.0 * index) if np.count_nonzero(s.index_width) else scored


def vector_bytes(grid: Grid) -> Figure:
    """Norm and residual (5 e h a token), rotary embedding (2 e bytes per query and key element), a gate (4 e
    per query element: read twice, its function and the product written), casts of inputs.
    """
    s = grid.shape
    wide = elements.wide(grid)
    rotary = (4.0 + 8.0 * s.attention_gate) * s.heads * s.qk_dim / grid.layout.tp + 2.0 * kv_width(grid)
    casts = input_cast_bytes(grid) + cast_bytes(grid, s.heads * s.v_dim / grid.layout.tp)
    return wide * tokens(grid) * (10.0 * s.hidden / sequence_shard(grid) + rotary) + casts


def exchanging(grid: Grid) -> Figure:
    """x, context-parallel ranks that exchange heads with one another: 1 in a ring, in an all-to-all all cp, in one
    inside a ring those of a scale-up domain.
    """
    o, layout = grid.options, grid.layout
    if not np.count_nonzero(o.context_exchanged) and not np.count_nonzero(o.context_layered):
        return 1.0
    inside = collective_times.group(grid.network, layout.cp, layout.tp).inside
    return 1.0 + o.context_exchanged * (layout.cp - 1.0) + o.context_layered * (inside - 1.0)


def ring_steps(grid: Grid) -> Figure:
    """Further steps of the ring: ``cp / x - 1``, none where keys and values are gathered."""
    return (1.0 - grid.options.context_gathered) * (grid.layout.cp / exchanging(grid) - 1.0)


def context_parallel(grid: Grid, kernel: LayerPart) -> LayerPart:
    """Keys and values passed round the context-parallel ring during the attention kernel, cp / x - 1 times.

    The first step has nothing to wait for, the last nothing to send: (cp - x) / cp of the kernel can hide transfers.
    What is exchanged or gathered instead is needed before the kernel starts: nothing hides it. Ranks that exchange are
    neighbours; each then passes x times the tokens in an x-th of the heads, as many bytes.
    """
    network, layout, o = grid.network, grid.layout, grid.options
    size = activation_bytes(grid, kv_width(grid))
    steps = ring_steps(grid)
    x = exchanging(grid)
    once = steps * collective_times.send(network, size, layout.tp * x, layout.cp / x)
    window = steps * x / layout.cp
    share = grid.stack.cp_overlap
    toll = grid.device.collective_share
    passed = LayerPart(
        collective_times.shown(once, window * kernel.forward, share, toll),
        collective_times.shown(2.0 * once, window * kernel.backward, share, toll),
    )
    if np.count_nonzero(o.context_gathered):
        passed = passed + context_gather(grid).scaled(o.context_gathered)
    return (passed + context_exchange(grid) if np.count_nonzero(x > 1) else passed).scaled(layout.cp > 1)


def context_exchange(grid: Grid) -> LayerPart:
    """All-to-all of queries, keys and values before the kernel and of its output behind it, their gradients backward
    (TransformerEngine, attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A).
    """
    ranks = collective_times.group(grid.network, exchanging(grid), grid.layout.tp)
    s = grid.shape
    tp = grid.layout.tp
    before = activation_bytes(grid, s.heads * s.qk_dim / tp + kv_width(grid))
    behind = activation_bytes(grid, s.heads * s.v_dim / tp)
    seconds = sum(collective_times.all_to_all(grid.network, size, ranks) for size in (before, behind))
    return LayerPart(seconds, seconds)


def context_gather(grid: Grid) -> LayerPart:
    """Keys and values of all ranks gathered forward, again backward, where their gradients are scattered
    (TransformerEngine, as above, AttnFuncWithCPAndKVAllGather).
    """
    ranks = collective_times.group(grid.network, grid.layout.cp, grid.layout.tp)
    size = grid.layout.cp * activation_bytes(grid, kv_width(grid))
    once = collective_times.gather(grid.network, size, ranks)
    return LayerPart(once, 2.0 * once)


def joining(grid: Grid) -> LayerPart:
    """What a ring's further steps found, joined to what the first did: ``(cp / x - 1) tokens width (e + 8)`` bytes.

    A step's output is read (e), the sum read and written in fp32: outputs forward, gradients of queries, keys and
    values backward (TransformerEngine, attention/dot_product_attention/context_parallel.py).
    """
    layout, s = grid.layout, grid.shape
    added = ring_steps(grid) * tokens(grid) * (grid.device.element + 8.0) / grid.device.memory_rate
    outputs = s.heads * s.v_dim / layout.tp
    return LayerPart(added * outputs, added * (s.heads * s.qk_dim / layout.tp + kv_width(grid)))


RING_KERNELS = 5.0
"""Launches of a further step of the ring each way: the attention kernel, a copy of keys and values, a send, a receive,
the correction of what was found (TransformerEngine, as above)."""
