"""Multiply-adds of a token, and FLOPs of a step as MFU counts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import attention, hyper_connections, tower
from planner.cost.figures import Figure, Grid, Shape


@dataclass(frozen=True, slots=True)
class TokenWork:
    """Multiply-adds of one token's forward pass."""

    products: Figure
    """With the matrices of all layers."""
    scores: Figure
    """With every position that it attends to, in all layers."""
    states: Figure
    """With recurrences' states, and of sparse attention's index with every position, hidden ones too."""
    head: Figure
    """With the output projection, once for each loss."""


def token_work(s: Shape) -> TokenWork:
    """Multiply-adds of a token of a sequence, causal masks deducted; mixtures count the experts that a token visits."""
    around = s.attention_share * sum(p.n * p.k for p in attention.projections(s))
    recurrence = s.recurrent_share * (s.hidden * (s.recurrent_first + s.recurrent_inner) + s.recurrent_between)
    expert_width = np.where(s.expert_hidden > 0, s.expert_hidden, s.hidden)
    moe = (2.0 + s.gated) * (s.experts_per_token * s.expert_ffn * expert_width + s.shared_ffn * s.hidden)
    moe = moe + (s.experts + 2.0 * s.expert_hidden) * s.hidden
    body = s.layers - s.leading_dense
    mixed = body * s.moe_share
    products = s.layers * (around * (1.0 + s.cross_share) + recurrence) + mixed * moe
    products = products + hyper_connections.work(s)
    products = products + (2.0 + s.gated) * s.hidden * (s.layers - mixed - body * s.idle_share) * s.ffn
    scores = s.layers * s.attention_share * s.attended * attention.scores(s)
    states = s.layers * (s.recurrent_share * s.recurrent_work + s.attention_share * attention.indexed(s))
    return TokenWork(products, scores, states, s.hidden * s.vocab * s.losses)


def training_flops(s: Shape, active: Figure) -> Figure:
    """FLOPs of forward and backward for one token, nothing recomputed: ``6 (active + scores + states)``, two for each
    multiply-add, and twice the forward for the backward pass. Vectors stand among the `active` parameters as products.

    For GPT with full attention this is 72 L h^2 (1 + s/(6h) + V/(12 L h)) of Narayanan et al. 2021 plus biases and
    norms. In an encoder-decoder a token stands for one of each side.
    """
    work = token_work(s)
    return 6.0 * active + 6.0 * work.scores + 6.0 * work.states


def head_share(s: Shape) -> Figure:
    """Layers, of the mean one, that the head's forward products are as many as."""
    work = token_work(s)
    return s.layers * work.head / (work.products + work.scores + work.states)


def model_flops(grid: Grid) -> Figure:
    """FLOPs of a step as MFU counts them: thrice the forward products, attention in full, recomputation left out.

    For the GPT block this is ``72 B L s h^2 (1 + s / (6 h) + V / (12 h L))`` (Narayanan et al. 2021, arXiv 2104.04473);
    causal masking is not deducted. Frozen weights (LoRA) have no gradient: twice the forward products; the adapters'
    own, about a hundredth, are left out. Blocks before the first trained one have none of either, a frozen head no
    weight gradient; a reference model is one forward pass more. Each
    module of multi-token prediction is one more layer, and one more product
    with the head. A frozen tower has a forward pass alone.
    """
    s = grid.shape
    work = token_work(grid.shape)
    unmasked = work.scores * np.minimum(2.0 * s.attended, s.sequence) / s.attended
    back = s.backward_share
    of_layers = 2.0 * (1.0 + back * (1.0 + s.weight_gradient)) * work.products
    of_head = 2.0 * (2.0 + s.weight_gradient * (back >= 1.0)) * work.head
    per_token = of_layers + of_head + 2.0 * (1.0 + 2.0 * back) * (unmasked + work.states)
    per_token = per_token + s.reference * 2.0 * (work.products + work.head + unmasked + work.states)
    return grid.layout.batch * (s.sequence * per_token + (2.0 + 4.0 * s.tower_trained) * tower.work(s))


def utilisation(flops: float, seconds: float, peak: float) -> float:
    """Model FLOPs utilisation (MFU): ``flops / seconds / peak``.

    Arguments:
        flops: Of a step, :func:`model_flops`.
        seconds: Of a step.
        peak: Dense FLOP/s of all accelerators together, in the precision of the products.
    """
    return flops / seconds / peak
