"""How context-parallel ranks share a sequence, and the positions that a token of it attends to.

What the attention kernels of a model allow was read in TransformerEngine d0067d0d
(pytorch/attention/dot_product_attention/context_parallel.py): windows need the all-gather or the all-to-all (lines
5054-5060), other softmaxes the all-to-all (lines 5062-5067), which gives every rank equally many heads (lines
4244-4247). A ring has none of these limits.

A token attends to half the sequence where attention is causal, to fewer positions under a window or an index.
Attention's FLOPs are as many times those with one position (:mod:`planner.cost.attention`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from planner.models import blocks, compressed
from planner.models.parameters import head_width
from planner.schema.plan_layout import CONTEXT_ALGORITHMS, ContextAlgorithm
from planner.schema.workload import Model, Workload


def algorithms(workload: Workload) -> tuple[ContextAlgorithm, ...]:
    """``p2p``: keys and values go round a ring; ``all_gather``: every rank gets all of them; ``a2a``: every rank gets
    some heads of the whole sequence; ``a2a+p2p``: of the part that a scale-up domain has, and these go round a ring.
    Those that the model's attention allows, the preferred ones first.
    """
    model = workload.model
    if model.sinks:
        return ("a2a",)
    windowed = model.window is not None and model.window.size < workload.sequence
    return ("all_gather", "a2a") if windowed else CONTEXT_ALGORITHMS


def key_value_heads(model: Model) -> tuple[int, ...]:
    """Key/value heads of each kind of attention: all are dealt to the ranks that exchange them."""
    return (model.kv_heads, model.full.kv_heads) if model.full else (model.kv_heads,)


def attended(model: Model, sequence: float) -> float:
    """Mean positions that a token attends to, over layers that attend: ``s / 2`` if causal, less where windows cut it,
    or where only the best are attended to.

    A causal window of w tokens: ``w (1 - w / (2 s))``; as many for the best w. Wider heads count by their width.
    """
    if model.compressed is not None and model.window is not None:
        near = _within(sequence, model.window.size, model.causal)
        return near + compressed.attended(model, model.compressed, sequence)
    whole = _within(sequence, model.indexer.top if model.indexer else sequence, model.causal)
    if model.window is None or model.window.size >= sequence:
        return whole
    share = blocks.windowed(model) * model.head_dim / head_width(model)
    return share * _within(sequence, model.window.size, model.causal) + (1 - share) * whole


def windowed(model: Model, text: float) -> float:
    """Share of the layers that attend in which a window cuts a text of so many tokens."""
    if model.window is None or model.compressed is not None or model.window.size >= text:
        return 0.0
    return blocks.windowed(model)


def in_texts(model: Model, texts: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Positions attended to where attention keeps to each text: ``sum w L a(L) / sum w L``, lengths L with weights w
    (1).
    """
    weighted_tokens = [tokens * weight for tokens, weight in zip(texts, weights or [1.0] * len(texts), strict=True)]
    return math.fsum(w * attended(model, tokens) for w, tokens in zip(weighted_tokens, texts, strict=True)) / math.fsum(
        weighted_tokens
    )


def of_whole_sequence(sequence: Any, causal: bool) -> Any:
    """Mean positions of which nothing is cut, of one sequence or an array of them: ``s / 2`` if causal, else ``s``."""
    return sequence / 2 if causal else sequence * 1.0


def _within(sequence: float, most: float, causal: bool) -> float:
    """Mean positions where a token attends to at most so many."""
    if most >= sequence:
        return float(of_whole_sequence(sequence, causal))
    return most * (1 - most / (2 * sequence)) if causal else float(most)
