"""Routed experts of one layer: grouped products, element-wise traffic, and what expert parallelism exchanges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import collective_times, elements, overlap, products
from planner.cost.collective_times import CollectiveGroup
from planner.cost.figures import Figure, Grid
from planner.cost.micro_batch import sequence_shard, tokens
from planner.cost.products import LayerPart, Product


def width(grid: Grid) -> Figure:
    """Width of what routed experts read and give: the model's, or their latent's."""
    return np.where(grid.shape.expert_hidden > 0, grid.shape.expert_hidden, grid.shape.hidden)


def imbalance(grid: Grid) -> Figure:
    """Tokens of the busiest rank over an even share: what is asked where ranks share experts, or the stack's."""
    asked = grid.shape.imbalance
    if not np.any(asked):
        return grid.stack.expert_imbalance
    return np.where(asked > 0, np.where(grid.layout.ep > 1, asked, 1.0), grid.stack.expert_imbalance)


def routed_copies(grid: Grid) -> Figure:
    """Token copies that one rank's experts work on: ``tokens experts_per_token etp / tp``, times the imbalance."""
    return tokens(grid) * grid.shape.experts_per_token * grid.layout.etp / grid.layout.tp * imbalance(grid)


def shapes(grid: Grid) -> tuple[Product, ...]:
    """Products of the routed experts that a rank holds, of the router, and to and from experts' latent."""
    s, layout = grid.shape, grid.layout
    local = np.maximum(s.experts / layout.ep, 1.0)
    rows = routed_copies(grid) / local
    inner = s.expert_ffn / layout.etp
    rate = grid.device.matrix_rate * grid.stack.grouped_matrix
    own, t = width(grid), tokens(grid) / layout.tp
    found = (
        Product("experts up", rows, (1.0 + s.gated) * inner, own, local, rate),
        Product("experts down", rows, own, inner, local, rate),
        Product("router", t, s.experts, s.hidden, 1.0, grid.device.matrix_rate_16),
    )
    if not np.any(s.expert_hidden):
        return found
    return (
        *found,
        Product("to latent", t, s.expert_hidden, s.hidden),
        Product("from latent", t, s.hidden, s.expert_hidden),
    )


def matrix(grid: Grid) -> LayerPart:
    """Grouped products of the routed experts that a rank holds, and the router."""
    return products.trained(grid, shapes(grid))


def vector_bytes(grid: Grid) -> Figure:
    """Norm and residual, permuting copies to experts and back (8 h a copy) and casting them, the activation function.

    ``tokens 10 h / shard + copies (r (8 h + 4 c (h + f / etp)) + (4 + 2 gated) f / etp)`` in 16 bit, with r how often a
    runtime's kernels move a copy, and c its casts; twice as much in 32.
    """
    s, wide = grid.shape, elements.wide(grid)
    copies = routed_copies(grid)
    inner = s.expert_ffn / grid.layout.etp
    casts = grid.device.low_precision * grid.stack.low_precision_cast * 4.0 * (width(grid) + inner)
    own = wide * tokens(grid) * 10.0 * s.hidden / sequence_shard(grid)
    moved = grid.stack.routed_vector * (wide * 8.0 * width(grid) + casts)
    return own + copies * (moved + wide * (4.0 + 2.0 * s.gated) * inner)


CLAMPED = LayerPart(16.0, 20.0)
"""Bytes of an inner element that clamping moves forward and backward beside the fused function: both halves are read
and clamped, then joined; gradients the same way back (Megatron-LM d98e8a64, core/fusions/fused_bias_geglu.py,
weighted_bias_quick_geglu_impl)."""


BIASED = LayerPart(12.0, 16.0)
"""Bytes of an output element that the second product's bias moves: bias times probability is written, added expert by
expert, and the pieces are joined; backward its gradient and the probability's are written and summed up (the same,
core/transformer/moe/experts.py, TEGroupedMLP._apply_bias). The first product adds its own (TransformerEngine)."""


def apart(grid: Grid) -> LayerPart:
    """Seconds that experts' clamped function and their biases take, where they have them, as kernels of their own:
    ``copies (clamped f / etp + biased h)`` bytes in 16 bit.

    None where 8-bit products fuse them (the same, TEGroupedMLP._is_fused_impl_supported: its kernel is for mxfp8).
    """
    return clamping(grid) + BIASED.scaled(grid.shape.biased_experts * _unfused(grid) * width(grid))


def clamping(grid: Grid) -> LayerPart:
    """Of that the clamped function's."""
    return CLAMPED.scaled(grid.shape.clamped_experts * _unfused(grid) * grid.shape.expert_ffn / grid.layout.etp)


def _unfused(grid: Grid) -> Figure:
    """Seconds that a byte of every copy takes in kernels of its own; 0 where 8-bit products fuse them."""
    rate = grid.device.memory_rate / grid.stack.vector / elements.wide(grid)
    return (1.0 - grid.stack.fused_experts * grid.device.low_precision) * routed_copies(grid) / rate


def shared_bytes(grid: Grid) -> Figure:
    """What the function of shared experts moves in addition to the routed ones: ``e tokens f / tp``."""
    return grid.device.element * tokens(grid) * grid.shape.shared_ffn / grid.layout.tp


ONCE, GATHERED = 2.0, 3.0
"""`Options.dispatcher` where copies for a domain cross the NIC once, and where all tokens go to all ranks."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One all-to-all of token copies, or all-gather of tokens."""

    ranks: CollectiveGroup
    size: Figure
    """Bytes that a rank sends."""
    once: Figure
    """Seconds."""


def gathered_tokens(grid: Grid) -> Figure:
    """Bytes of the hidden states of all expert-parallel ranks: ``e tokens / tp width ep``. Each has them all before its
    experts' copies are picked (Megatron-LM d98e8a64, core/transformer/moe/token_dispatcher.py,
    MoEAllGatherTokenDispatcher).
    """
    return grid.device.element * tokens(grid) / grid.layout.tp * width(grid) * grid.layout.ep


def dispatch(grid: Grid) -> Dispatch:
    """Token copies to the experts' ranks, or back.

    A plain all-to-all sends every copy. Dispatchers that forward within a domain (DeepEP, HybridEP) let copies of one
    token bound for it cross the NIC once: of k copies over d domains about ``d (1 - (1 - 1/d)^k)`` are distinct. Or all
    ranks gather all tokens, and sum what their experts make of them (:func:`gathered_tokens`).
    """
    network, layout, s = grid.network, grid.layout, grid.shape
    ranks = collective_times.group(network, layout.ep, layout.etp)
    per_token = np.maximum(s.experts_per_token, 1.0)
    sent = tokens(grid) * s.experts_per_token / layout.tp * imbalance(grid)
    size = grid.device.element * sent * width(grid)
    domains = np.maximum(ranks.n / ranks.inside, 1.0)
    distinct = np.minimum(domains * (1.0 - (1.0 - 1.0 / domains) ** per_token) / per_token, 1.0)
    once, asked = grid.stack.dispatch_once > 0, grid.options.dispatcher
    if np.any(asked):
        once = np.where(asked > 0, asked == ONCE, once)
    copies = np.where(once, distinct, 1.0)
    if np.any(asked == GATHERED):
        whole = gathered_tokens(grid)
        return Dispatch(
            ranks,
            np.where(asked == GATHERED, whole, size),
            np.where(
                asked == GATHERED,
                collective_times.gather(network, whole, ranks),
                collective_times.all_to_all(network, size, ranks, copies),
            ),
        )
    return Dispatch(ranks, size, collective_times.all_to_all(network, size, ranks, copies))


def exchange(grid: Grid) -> Figure:
    """Seconds of a pass's dispatch and combine of token copies over expert-parallel ranks, with their gathers over
    expert-tensor ranks, alone.
    """
    network, layout = grid.network, grid.layout
    routed = dispatch(grid)
    tensor = collective_times.gather(
        network, routed.size * layout.etp, collective_times.group(network, layout.etp, 1.0)
    )
    return 2.0 * (routed.once + tensor)


def exposed(grid: Grid, work: LayerPart, seconds: Figure) -> LayerPart:
    """What shows of experts' exchanges that take so many `seconds` a pass.

    With the option on, a forward pass's run beside another micro-batch's backward `work` on the same layer, and the
    other way round (Megatron-LM d98e8a64, core/pipeline_parallel/combined_1f1b.py); else nothing runs beside them.
    """
    share, toll = grid.options.ep_overlap * grid.stack.ep_overlap, grid.device.collective_share
    return LayerPart(
        overlap.shown(seconds, work.backward, share, toll), overlap.shown(seconds, work.forward, share, toll)
    )
