"""Frozen weights under adapters: what their backward pass keeps, how they are quantised, and what reading them costs.

A product's weight gradient reads its input; its input gradient reads the weights alone. Autograd therefore keeps no
input for weights that need no gradient (pytorch, tools/autograd/derivatives.yaml, ``mm``: an operand is saved only for
the other's gradient; Transformer Engine's Linear and bitsandbytes' MatMul4Bit do the same). An adapter ``x A B`` is
trained and reads x again, so that x is kept wherever a target reads it. Attention's output is kept by its own kernel.
"""

from __future__ import annotations

import numpy as np

from planner.cost.elements import NARROW
from planner.cost.figures import Figure, Grid
from planner.cost.micro_batch import moved
from planner.cost.products import LayerPart

BITS = {"nf4": 4.0, "int8": 8.0, "fp8": 8.0}
NF4_SCALES = 8.0 / 64.0 + 32.0 / (64.0 * 256.0)
"""Bits of a weight's scales: one of 8 bit for 64 weights, and one of 32 for 256 of these (double quantisation: arXiv
2305.14314, section 3: 0.127)."""


FP8_SCALES = 32.0 / 128.0**2
"""One of 32 bit for a square of 128 (transformers 5.23.0, integrations/finegrained_fp8.py)."""


def bytes_of(base: str, hidden: Figure) -> Figure:
    """Bytes of a quantised weight with its scales: NF4's blocks, FP8's squares; one of 32 bit a row of whole numbers of
    8 bit (arXiv 2208.07339).
    """
    scales = {"nf4": NF4_SCALES, "fp8": FP8_SCALES}.get(base, 32.0 / hidden)
    return (BITS[base] + scales) / 8.0


def beside_blocks(grid: Grid) -> Figure:
    """Bytes that a frozen parameter outside blocks (embedding, head, last norm) takes more than one of a block: these
    stay in 16 bit.
    """
    s = grid.shape
    return np.where(s.frozen_bytes > 0, NARROW - s.frozen_bytes, 0.0)


def block_parameters(grid: Grid, moe: Figure) -> Figure:
    """Parameters of one block on one rank, `moe` of its MLP a mixture."""
    s, layout = grid.shape, grid.layout
    dense = s.attention_parameters + (1.0 - moe - s.idle_share) * s.mlp_parameters + moe * s.shared_parameters
    return dense / layout.tp + moe * s.experts * s.expert_parameters / (layout.ep * layout.etp)


def dequantising(grid: Grid, moe: Figure) -> LayerPart:
    """Seconds to read a block's quantised weights and write them in 16 bit, before its forward pass and again before
    its backward pass (bitsandbytes, autograd/_functions.py, MatMul4Bit).
    """
    size = grid.shape.quantised * (grid.shape.frozen_bytes + NARROW) * block_parameters(grid, moe)
    once = moved(grid, size).forward
    return LayerPart(once, once)


def dequantised_bytes(grid: Grid) -> Figure:
    """The largest matrix of a block in 16 bit, while a product reads it."""
    s, layout = grid.shape, grid.layout
    mlp = np.maximum(s.mlp_parameters, s.shared_parameters) / layout.tp / (2.0 + s.gated)
    expert = s.expert_parameters / layout.etp / (2.0 + s.gated)
    return s.quantised * NARROW * np.maximum(mlp, expert)
