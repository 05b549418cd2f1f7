"""Residual streams (manifold-constrained hyper-connections, arXiv 2512.24880): what mixing n of them adds to a layer.

Before attention and before the MLP ``n (n + 2)`` weights a token are made of the n streams, which make one that the
block reads; behind it they mix the streams and add what it gave. Kernels and passes are Megatron Core's (core_v0.20.0,
core/transformer/hyper_connection.py): one product, an aggregation, and one kernel that mixes and adds.
"""

from __future__ import annotations

import numpy as np

from planner.cost import elements, products
from planner.cost.figures import Figure, Grid, Shape
from planner.cost.micro_batch import sequence_shard, tokens
from planner.cost.products import LayerPart, Product


def work(s: Shape) -> Figure:
    """Multiply-adds of a token in a whole model: ``2 L n (n + 2) n h``, and ``n n h`` for one stream at the end."""
    n = s.streams
    return (n > 1) * n * n * s.hidden * (2.0 * s.layers * (n + 2.0) + 1.0)


def product(grid: Grid) -> Product:
    """That of one half of a layer, in 16 bit at least, on the tokens that a rank holds outside regions."""
    n = grid.shape.streams
    t = tokens(grid) / sequence_shard(grid)
    return Product("connections", t, n * (n + 2.0), n * grid.shape.hidden, 1.0, grid.device.matrix_rate_16)


def matrix(grid: Grid) -> LayerPart:
    """Time of both halves' products."""
    return products.trained_product(grid, product(grid)).scaled(2.0 * (grid.shape.streams > 1))


def vector_bytes(grid: Grid) -> Figure:
    """Bytes that both halves of a block move: n streams read and one written, n and what the block gave read and n
    written, where one residual is read, added to and written: ``2 (3 n - 1) e tokens h`` more.
    """
    n = grid.shape.streams
    more = (n > 1) * 2.0 * (3.0 * n - 1.0) * grid.device.element
    return more * tokens(grid) * grid.shape.hidden / sequence_shard(grid)


def kept_bytes(grid: Grid, shard: Figure) -> Figure:
    """Bytes that both halves of a block keep: n streams, and what the block gave, which gradients of their weights are
    products with.
    """
    n = grid.shape.streams
    return (n > 1) * 4.0 * elements.wide(grid) * (n + 1.0) * tokens(grid) * grid.shape.hidden / shard


def mixed(grid: Grid) -> bool:
    """Whether there are several streams."""
    return bool(np.count_nonzero(grid.shape.streams > 1.0))
