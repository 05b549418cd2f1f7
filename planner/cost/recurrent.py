"""A recurrence in place of attention: products before and behind it, its kernel, element-wise traffic, what it keeps.

Heads are dealt to tensor-parallel ranks as attention's are (Megatron-LM, core/ssm/mamba_mixer.py). Kernels in chunks
are Triton's, far below attention's rate, and no faster on Blackwell than on Hopper (`Device.recurrence`).
"""

from __future__ import annotations

from planner.cost import elements, products
from planner.cost.figures import Figure, Grid
from planner.cost.micro_batch import input_cast_bytes, sequence_shard, tokens
from planner.cost.products import LayerPart, Product


def shapes(grid: Grid) -> tuple[Product, ...]:
    """Products before, between and behind; nothing where the model has no recurrence."""
    s = grid.shape
    tp = grid.layout.tp
    t = tokens(grid)
    inner = s.recurrent_inner / tp
    return (
        Product("recurrence in", t, s.recurrent_first / tp, s.hidden),
        Product("time steps", t, s.recurrent_between / (s.recurrent_inner + (s.recurrent_inner <= 0)), inner),
        Product("recurrence out", t, s.hidden, inner),
    )


def matrix(grid: Grid) -> LayerPart:
    """Their time."""
    return products.trained(grid, shapes(grid))


def kernel_flops(grid: Grid) -> Figure:
    """FLOPs of a micro-batch in chunks, forward: ``2 tokens chunked / tp``."""
    return 2.0 * tokens(grid) * grid.shape.recurrent_chunked / grid.layout.tp


BACKWARD = 3.1
"""Seconds of the backward pass over those of the forward pass: gated delta rule of fla 0.5, 32 heads, 8,192 tokens, 3.1
on H200 and 3.2 on GB200 (QwenLM/FlashQLA@c18a4860, benchmark/). Of Mamba-2's no measurement was found."""


def kernel(grid: Grid) -> LayerPart:
    """The recurrence in chunks, ``flops / (recurrence attention_rate)``; what it moves is in :func:`vector_bytes`."""
    d = grid.device
    forward = kernel_flops(grid) / (d.attention_rate * d.recurrence * grid.stack.attention)
    return LayerPart(forward, forward * BACKWARD)


def vector_bytes(grid: Grid) -> Figure:
    """Norm and residual (5 e h a token), convolution, states, gate and norm, casts of inputs."""
    s = grid.shape
    wide = elements.wide(grid)
    moved = 2.0 * s.recurrent_moved / grid.layout.tp
    return wide * tokens(grid) * (10.0 * s.hidden / sequence_shard(grid) + moved) + input_cast_bytes(grid)


def kept_bytes(grid: Grid) -> Figure:
    """What the backward pass reads of it: ``e tokens kept / tp``."""
    return grid.device.element * tokens(grid) * grid.shape.recurrent_kept / grid.layout.tp
