"""Attention on compressed entries (DeepSeek-V4): parameters, multiply-adds and positions of its blocks.

Symbols: h the model's width, q rank of queries, d width of a head, m tokens an entry, s sequence; of the index n heads
of width c. They follow transformers 5.23.0 (models/deepseek_v4).
"""

from __future__ import annotations

from planner.models import blocks
from planner.schema.workload import CompressedAttention, Model


def matrices(model: Model, compressed: CompressedAttention) -> list[tuple[str, int, int]]:
    """(name, in, out) of the products that every block has: queries through q, one key, outputs by groups."""
    heads = model.heads * model.head_dim
    width = compressed.output_groups * compressed.output_rank
    return [
        ("q", model.hidden, compressed.query_rank),
        ("q", compressed.query_rank, heads),
        ("k", model.hidden, model.head_dim),
        ("o", heads // compressed.output_groups, width),
        ("o", width, model.hidden),
    ]


def shares(model: Model) -> tuple[float, float]:
    """Shares of the blocks with attention that attend to the best entries (`csa`) and to all of them (`hca`)."""
    every = max(blocks.attending(model), 1)
    return blocks.named(model, "csa") / every, blocks.named(model, "hca") / every


def parameters(model: Model) -> int:
    """Parameters of all blocks: entries of two series (``4 h d``) or one (``2 h d``) with a gate, a bias a place and a
    norm of d; the index the same at its width, ``q n c`` for its queries and ``h n`` weights.
    """
    compressed = model.compressed
    if compressed is None:
        return 0
    d = model.head_dim
    c = compressed.index_head_dim
    m = compressed.csa_rate
    csa = products(model, compressed)[0] + 2 * m * (d + c) + d + c
    hca = products(model, compressed)[1] + compressed.hca_rate * d + d
    return blocks.named(model, "csa") * csa + blocks.named(model, "hca") * hca


def entries(model: Model, compressed: CompressedAttention) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(in, out) of the products that make entries, and queries and weights of the index, in a block of either kind:
    ``4 h (d + c) + q n c + h n`` and ``2 h d``.
    """
    h = model.hidden
    d = model.head_dim
    n = compressed.index_heads
    c = compressed.index_head_dim
    return [(h, 4 * d), (h, 4 * c), (compressed.query_rank, n * c), (h, n)], [(h, 2 * d)]


def products(model: Model, compressed: CompressedAttention) -> tuple[int, int]:
    """Their multiply-adds of a token."""
    csa, hca = (sum(rows * columns for rows, columns in matrices) for matrices in entries(model, compressed))
    return csa, hca


def attended(model: Model, compressed: CompressedAttention, sequence: float) -> float:
    """Mean positions that a token attends to in addition to its window, the mean over blocks: compressed entries.

    The best t of s / m entries: ``t (1 - t m / (2 s))``; all of them: ``s / (2 m)``.
    """
    csa, hca = shares(model)
    best = min(compressed.csa_top, sequence / compressed.csa_rate)
    return csa * best * (1 - best * compressed.csa_rate / (2 * sequence)) + hca * sequence / compressed.hca_rate / 2
