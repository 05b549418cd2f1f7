"""One micro-batch on one rank: its tokens, the bytes that kernels and regions move, and the time to move them."""

from __future__ import annotations

import numpy as np

from planner.cost.figures import Figure, Grid
from planner.cost.products import LayerPart


def tokens(grid: Grid) -> Figure:
    """Tokens per micro-batch that a tensor-parallel group works on: ``micro sequence / cp``."""
    return grid.layout.micro * grid.shape.sequence / grid.layout.cp


def moved(grid: Grid, forward_bytes: Figure) -> LayerPart:
    """Memory-bound kernels: bytes over the reachable bandwidth; the backward pass moves twice the forward's bytes."""
    seconds = forward_bytes * grid.stack.vector / grid.device.memory_rate
    return LayerPart(seconds, 2.0 * seconds)


def sequence_shard(grid: Grid) -> Figure:
    """Ranks that share the tokens outside tensor-parallel regions: tp with sequence parallelism, else 1."""
    return np.where(grid.options.sequence_parallel > 0, grid.layout.tp, 1.0)


def cast_bytes(grid: Grid, width: Figure) -> Figure:
    """Reading 16-bit rows of `width` elements a token and writing them in 8 bit, once plain and once transposed."""
    return grid.device.low_precision * grid.stack.low_precision_cast * 4.0 * tokens(grid) * width


def input_cast_bytes(grid: Grid) -> Figure:
    """Bytes of casting a block's input: with sequence parallelism cast on the shard, then gathered and transposed."""
    return 0.5 * cast_bytes(grid, grid.shape.hidden) * (1.0 + 1.0 / sequence_shard(grid))


def region_bytes(grid: Grid) -> Figure:
    """Bytes that one tensor-parallel region reduces each way: ``e tokens h``."""
    return activation_bytes(grid, grid.shape.hidden)


def activation_bytes(grid: Grid, width: Figure) -> Figure:
    """Bytes of `width` elements a token: ``e tokens width``."""
    return grid.device.element * tokens(grid) * width
