"""Pipeline schedules that compute weight gradients apart from input gradients: their idle time, what they hold.

A backward pass is split in I (gradients of inputs, which the stage before waits for) and W (of weights, which nobody
waits for): W fills what 1F1B leaves idle. ZB-H1 (Qi et al. 2023, arXiv 2401.10241; interleaved in
torch.distributed.pipelining 2.13.0, ScheduleInterleavedZeroBubble) starts as 1F1B does, and rank r puts r of its W off.
ZB-V (ScheduleZBVZeroBubble; AMD-AGI/Primus fd1eeabb, zbv_formatted.py) and DualPipeV (ScheduleDualPipeV, after
deepseek-ai/DualPipe; a pair of passes one behind the other, sent together) give rank r stages r and ``2 p - 1 - r``:
the first and the last are on one rank.

Idle times are those of the published orders of passes, run event by event (tests/test_schedules.py): of equal ranks
exact where I takes no less than F and the pipeline fills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.cost import attention, experts, recurrent, transformer
from planner.cost.figures import Figure, Grid
from planner.cost.micro_batch import tokens
from planner.cost.products import Product, by_pass

PLAIN, ZERO_BUBBLE, ZBV, DUALPIPE_V = 0.0, 1.0, 2.0, 3.0
"""How passes follow each other, as :class:`planner.cost.figures.Options` has it; the first is (interleaved) 1F1B."""
SLACK = 1.25
"""Micro-batches of a step and rank that DualPipeV's faster ranks wait for a slower first one: of its order of passes,
run event by event, 1.0 to 1.5; steps are within 2 % so."""


@dataclass(frozen=True, slots=True)
class RankPasses:
    """Seconds of a rank's F, I and W in one micro-batch, all its chunks together."""

    forward: Figure
    inward: Figure
    weight: Figure


def idle(grid: Grid, slowest: RankPasses, others: RankPasses) -> Figure:
    """Seconds of a step that the slowest rank waits; `others` is the mean of all others.

    Equal ranks, times ``p - 1``: ``max(F + I - W, I) / vpp`` (ZB-H1), ``max(I - W, I / 2)`` (ZB-V), ``max(F + (I - W) /
    2, I + (F - W) / 2 - F / (2 (p - 1)))`` (DualPipeV; where F takes as long as I, as in DeepSeek's table ``(PP / 2 -
    1) (F&B + B - 3 W)`` with PP chunks, no more hidden in a pair F&B than in its two passes); F where it takes longer
    than I. Others that are faster by d wait, too: a bubble is less by p times what their W lack (ZB-H1), ``(M - 1) d``
    (ZB-V, no less than on the two ways round its slow end), or :data:`SLACK` ``p d`` (DualPipeV).
    """
    p = grid.layout.pp
    schedule = grid.options.schedule
    o = others
    longer = np.maximum(o.forward, o.inward)
    more = np.maximum(slowest.weight - o.weight, 0.0)
    apart = slowest.forward + slowest.inward + slowest.weight - (o.forward + o.inward + o.weight)
    apart = np.maximum(apart, 0.0)
    q = p - 1.0
    steps = grid.layout.batch / (grid.layout.dp * grid.layout.micro)
    filled = np.maximum(q * np.maximum(o.forward + o.inward - o.weight, o.inward) - p * more, q * o.forward)
    equal = q * np.maximum(o.inward - o.weight, 0.5 * longer)
    back = q * (o.inward - 0.5 * slowest.inward) - 0.5 * p * slowest.weight
    late = 0.5 * p * (o.inward - slowest.inward) + (p - 0.5) * o.weight - 0.5 * (p + 1.0) * slowest.weight
    folded = np.maximum(np.maximum(equal - (steps - 1.0) * apart, back), np.maximum(late, 0.0))
    dual = np.maximum(o.forward + 0.5 * (o.inward - o.weight), o.forward)
    dual = np.maximum(q * dual, q * (o.inward + 0.5 * (o.forward - o.weight)) - 0.5 * o.forward)
    dual = np.maximum(dual - SLACK * p * apart, 0.0)
    return np.where(schedule == ZERO_BUBBLE, filled / grid.layout.vpp, np.where(schedule == ZBV, folded, dual))


def moments(grid: Grid, index: Figure) -> tuple[tuple[Figure, Figure], ...]:
    """Micro-batches that a rank holds, and for how many of them weight gradients are put off, at each moment that may
    be its peak: a pass is held until its W.

    ZB-H1: p and ``r / vpp`` on rank r. DualPipeV: ``p + 1 / 2``, none put off. ZB-V: p, none put off, or while the
    pipeline drains ``(p + r) / 2``, r of them put off.
    """
    pp = grid.layout.pp
    schedule = grid.options.schedule
    full = pp + 0.5 * (schedule == DUALPIPE_V), (schedule == ZERO_BUBBLE) * index / grid.layout.vpp
    drained = (schedule == ZBV) * index
    return full, (0.5 * (pp + drained), drained)


def _products(grid: Grid, moe: Figure) -> Iterator[tuple[Figure, Product]]:
    """Products of one layer, `moe` of its MLP a mixture, each with its share of the layers."""
    s = grid.shape
    kinds = (
        (s.attention_share * (1.0 + s.cross_share), attention.shapes(grid)),
        (s.recurrent_share, recurrent.shapes(grid) if np.count_nonzero(s.recurrent_share) else ()),
        (1.0 - moe - s.idle_share, transformer.mlp_shapes(grid, s.ffn)),
        (moe, (*transformer.mlp_shapes(grid, s.shared_ffn), *experts.shapes(grid)) if np.count_nonzero(moe) else ()),
    )
    yield from ((share, product) for share, shapes in kinds for product in shapes)


def weight_seconds(grid: Grid, moe: Figure) -> Figure:
    """Seconds of W of one layer: its products' weight gradients."""
    return sum((share * by_pass(grid, product).weight for share, product in _products(grid, moe)), start=0.0)


def head_weight_seconds(grid: Grid) -> Figure:
    """Seconds of W of the head: its product's weight gradient, once for each loss."""
    return by_pass(grid, transformer.head_shape(grid)).weight * grid.shape.losses


def waiting_bytes(grid: Grid, moe: Figure) -> Figure:
    """Bytes that W of one layer waits for in addition to activations: gradients of what its products give."""
    elements = sum((share * p.groups * p.m * p.n * (p.k > 0) for share, p in _products(grid, moe)), start=0.0)
    return grid.device.element * elements


def head_waiting_bytes(grid: Grid) -> Figure:
    """Bytes that W of the head waits for: gradients of logits, put off on the last rank of ZB-H1; where a V begins they
    are not.
    """
    layout = grid.layout
    put_off = (grid.options.schedule == ZERO_BUBBLE) * (layout.pp - 1.0)
    return put_off * grid.device.element * tokens(grid) * grid.shape.vocab / layout.tp
