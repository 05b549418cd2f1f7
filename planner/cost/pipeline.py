"""Stages, micro-batches and the bubble.

Layers are split over ``pp vpp`` chunks as evenly as they go; what a full split lacks is taken from the last stage
(which also holds the logits), then the first (the embedding), then the others from the back. Where layers are of
several kinds, a stage is priced by those that it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost import collective_times, split_schedules
from planner.cost.figures import Figure, Grid, Layout, Pattern, Shape
from planner.cost.micro_batch import activation_bytes
from planner.cost.products import LayerPart
from planner.cost.transformer import Layer


@lru_cache(maxsize=4096)
def by_work(work: tuple[float, ...], chunks: int, head: float, last: int) -> tuple[int, ...]:
    """Layers of every chunk where the one with most work has as little as it can; of such cuts that whose works'
    squares add up to least.

    Dynamic programs over the ends of chunks, ``f_c(j) = min over i < j of max(f_(c-1)(i), w_i + ... + w_(j-1))`` and
    the same with sums of squares over what the first allows: exact, ``chunks L^2`` operations.

    Args:
        work: Of every layer, in any unit.
        chunks: None is empty.
        head: Work behind the last layer.
        last: Layers that the last chunk holds at least.
    """
    n = len(work)
    before = np.cumsum([0.0, *work])
    start = np.where(np.arange(n + 1) == 0, 0.0, np.inf)  # no chunk, no layer
    span_work = before[None, :] - before[:, None]
    span_work[np.tril_indices(n + 1)] = np.inf  # of layers i to j - 1: none where j <= i
    ending = span_work[:, n] + head
    ending[n + 1 - max(last, 1) :] = np.inf
    most = start
    for _ in range(chunks - 1):
        most = np.maximum(most[:, None], span_work).min(axis=0)
    limit = np.maximum(most, ending).min()
    squares, ending = (np.where(x <= limit, x**2, np.inf) for x in (span_work, ending))
    least = start
    starts = []
    for _ in range(chunks - 1):
        sums = least[:, None] + squares
        starts.append(sums.argmin(axis=0))
        least = sums.min(axis=0)
    at = [n, int(np.argmin(least + ending))]
    for first in reversed(starts):
        at.append(int(first[at[-1]]))
    return tuple(int(end - first) for end, first in pairwise(at))[::-1]


def in_chunks(stages: Sequence[int], vpp: int) -> tuple[int, ...]:
    """Layers of every chunk of stages with so many, all first chunks before all second ones: a stage's short chunks are
    its first on the first stage, its last elsewhere.
    """
    sizes = []
    for index, layers in enumerate(stages):
        fewest, more = divmod(layers, vpp)
        chunk_layers = [fewest + 1] * more + [fewest] * (vpp - more)
        sizes.append(chunk_layers[::-1] if index == 0 else chunk_layers)
    return tuple(stage_chunks[chunk] for chunk in range(vpp) for stage_chunks in sizes)


@lru_cache(maxsize=4096)
def held(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> NDArray[np.float64]:
    """Layers of each kind on every stage, shape (pp, kinds): stage i has every pp-th chunk from the i-th on."""
    counts = np.zeros((pp, max(order) + 1))
    start = 0
    for chunk, size in enumerate(chunks):
        np.add.at(counts[chunk % pp], list(order[start : start + size]), 1.0)
        start += size
    return counts


@lru_cache(maxsize=4096)
def between(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> tuple[int, ...]:
    """Indices of the stages between the first and the last of which one is the slowest and one the fullest: all that no
    stage before them has as many layers of every kind as, and more micro-batches in flight.
    """
    counts = held(order, chunks, pp)
    kept = list[int]()
    for i in range(1, pp - 1):
        if not any(np.all(counts[j] >= counts[i]) for j in kept):
            kept.append(i)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class StageSplit:
    """Layers on the first, a middle and the last stage."""

    first: Figure
    middle: Figure
    last: Figure
    stages: tuple[StageLayers, ...] = ()
    """Stages of which one is the slowest and one the fullest; empty where layers are of one kind."""


def split(shape: Shape, layout: Layout) -> StageSplit:
    """Layers by stage: equally many (:func:`equal`), cut by cost (:func:`by_cost`), or placed beside the head
    (:func:`placed`), as the runtime does.
    """
    if shape.pattern is not None:
        return of_kinds(shape, shape.pattern, layout)
    dealt = equal(shape, layout)
    if not np.all(layout.looped):
        return _where(layout.looped < 1, folded(shape, layout), dealt)
    if np.count_nonzero(shape.head_layers):
        dealt = _where((shape.head_layers > 0) & (layout.pp > 1), by_cost(shape, layout), dealt)
    if np.count_nonzero(shape.placed_head):
        dealt = _where((shape.placed_head > 0) & (layout.pp > 1), placed(shape, layout, dealt.last), dealt)
    return dealt


def _where(mask: Figure, one: StageSplit, other: StageSplit) -> StageSplit:
    """One split where the mask holds, the other elsewhere."""
    return StageSplit(
        np.where(mask, one.first, other.first),
        np.where(mask, one.middle, other.middle),
        np.where(mask, one.last, other.last),
    )


def equal(shape: Shape, layout: Layout) -> StageSplit:
    """``ceil(L / (pp vpp)) vpp`` less the stage's share of the layers missing to a full split."""
    chunks = layout.pp * layout.vpp
    full = np.ceil(shape.layers / chunks)
    missing = full * chunks - shape.layers
    missing_per_stage = np.floor(missing / layout.pp)
    rest = missing - missing_per_stage * layout.pp
    middle = full * layout.vpp - missing_per_stage
    return StageSplit(middle - (rest >= 2), middle, middle - (rest >= 1) * (layout.pp > 1))


def folded(shape: Shape, layout: Layout) -> StageSplit:
    """``2 ceil(L / (2 pp))`` on each rank of a V; what a full split lacks is taken from the first, which has both
    ends.
    """
    full = np.ceil(shape.layers / (2.0 * layout.pp))
    return StageSplit(2.0 * full - (2.0 * full * layout.pp - shape.layers), 2.0 * full, 2.0 * full)


def by_cost(shape: Shape, layout: Layout) -> StageSplit:
    """The first r of pp stages hold ``floor(r x) + 1`` layers, ``x = (L + n) / pp``, a head counting as n of them.

    A layer is dealt to the stage whose share of the cost it begins in (huggingface/nanotron, build_model). Middle
    stages hold ``ceil(x)`` at most: no more than the first, which sets pace and memory.
    """
    share = (shape.layers + shape.head_layers) / layout.pp
    most = shape.layers
    before_last = np.minimum(np.floor((layout.pp - 1.0) * share) + 1.0, most)
    return StageSplit(np.minimum(np.floor(share) + 1.0, most), np.minimum(np.ceil(share), most), most - before_last)


def placed(shape: Shape, layout: Layout, most: Figure) -> StageSplit:
    """The last stage holds b layers, at `most` as many as in an equal split, for which ``max(ceil((L - b) / (pp - 1)),
    b + w)`` is least, a head counting as w; of several b the largest. No chunk is left without a layer.

    What Megatron Core's layouts can say (Megatron-LM d98e8a64, core/transformer/pipeline_parallel_layer_layout.py);
    recipes of DeepSeek-V3 and Kimi K2 are cut so (Megatron-Bridge 067f987d, recipes/deepseek, recipes/kimi).
    """
    layers = shape.layers
    head = shape.placed_head
    before = np.maximum(layout.pp - 1.0, 1.0)
    share = np.floor((layers + head) / layout.pp)
    rest = layers - before * share
    last = np.where(rest + head < share + 1.0, rest, np.floor(share + 1.0 - head))
    last = np.minimum(np.maximum(last, layout.vpp * np.maximum(shape.losses - 1.0, 1.0)), most)
    layers_before = np.ceil((layers - last) / before)
    return StageSplit(layers_before - (layers_before * before > layers - last), layers_before, last)


@dataclass(frozen=True, slots=True)
class StageLayers:
    """Layers of one stage."""

    index: Figure
    """From 0."""
    exists: Figure
    """1 where the pipeline has so many stages."""
    layers: Figure
    leading: Figure
    """Leading dense layers among them."""
    kinds: tuple[Figure, ...] = ()
    """Layers of each kind, where there are several."""

    @property
    def counts(self) -> tuple[Figure, ...]:
        """Layers of everything that is priced: leading dense ones and others, or each kind."""
        return self.kinds or (self.leading, self.layers - self.leading)


def together(counts: Sequence[Figure], values: Sequence[Figure]) -> Figure:
    """``sum n x`` over kinds of layers, those of which there are none left out."""
    weighted: Figure = 0.0
    for place, value in enumerate(n * x for n, x in zip(counts, values, strict=True) if np.count_nonzero(n)):
        weighted = weighted + value if place else value
    return weighted


def chunk_sizes(shape: Shape, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers of every chunk of layers of several kinds: cut by their work where the runtime can cut anywhere."""
    pattern = shape.pattern
    uncut = dict.fromkeys(Layout.__dataclass_fields__, 1.0)
    assert pattern is not None
    if pattern.work:
        work = tuple(pattern.work[kind] for kind in pattern.order)
        return by_work(work, pp * vpp, pattern.head, pattern.last)
    layout = Layout(**{**uncut, "pp": pp, "vpp": vpp})
    return in_chunks(stage_layers(replace(shape, pattern=None), layout), vpp)


def of_kinds(shape: Shape, pattern: Pattern, layout: Layout) -> StageSplit:
    """Layers of each kind on the first stage, those that matter between, and the last, for every row."""
    pp, vpp = np.broadcast_arrays(np.asarray(layout.pp, dtype=np.int64), np.asarray(layout.vpp, dtype=np.int64))
    most = int(vpp.max(initial=1)) + 1
    distinct, rows = np.unique(pp * most + vpp, return_inverse=True)
    rows = rows.reshape(pp.shape)
    pairs = [divmod(int(key), most) for key in distinct]
    cuts = [(pattern.order, chunk_sizes(shape, *pair), pair[0]) for pair in pairs]
    inside = [between(*inner) for inner in cuts]
    width = max((len(stage_cut) for stage_cut in inside), default=0)
    table = np.zeros((width + 2, len(pairs), 2 + len(pattern.kinds)))  # its index, whether it exists, its layers
    for row, (stage_cut, middle) in enumerate(zip(cuts, inside, strict=True)):
        counts = held(*stage_cut)
        for place, index in [(0, 0), *enumerate(middle, 1), (width + 1, len(counts) - 1)]:
            table[place, row] = [index, index > 0 or place == 0, *counts[index]]
    stages = []
    for index, exists, *kinds in np.moveaxis(table, 2, 1)[..., rows]:
        stages.append(StageLayers(index, exists > 0, sum(kinds), 0.0, tuple(kinds)))
    return StageSplit(stages[0].layers, stages[-1].layers, stages[-1].layers, tuple(stages))


def extremes(shape: Shape, layout: Layout, split: StageSplit) -> tuple[StageLayers, ...]:
    """The first stage, those between of which one is the slowest and one the fullest, and the last.

    Leading dense layers fill first chunks, stage after stage: ``min(max(beyond - (i - 1) chunk, 0), chunk)`` on stage i
    between. Of the stages with as many of them the first has the most layers, and the most micro-batches in flight: the
    second of the pipeline, the first whose chunk is not filled, and the first without any.
    """
    if split.stages:
        return split.stages
    pp = layout.pp
    two = layout.pp > 1
    three = layout.pp > 2
    first = np.minimum(shape.leading_dense, np.floor(split.first / layout.vpp))
    ends = StageLayers(0.0, 1.0, split.first, first), StageLayers(pp - 1.0, two, split.last, 0.0)
    beyond = two * (shape.leading_dense - first)
    if not np.count_nonzero(beyond):
        return ends[0], StageLayers(1.0, three, split.middle, 0.0), ends[1]
    chunk = np.ceil(split.middle / layout.vpp)
    before_last = np.maximum(pp - 2.0, 0.0)
    full = shape.layers - split.first - split.last - before_last * (split.middle - 1.0)
    unfilled, without = (np.minimum(1.0 + n, before_last) for n in (np.floor(beyond / chunk), np.ceil(beyond / chunk)))
    between = [1.0, unfilled, without] if np.count_nonzero((unfilled > 1) & (unfilled < without)) else [1.0, without]
    inner = [
        StageLayers(i, three, split.middle - (i > full), np.clip(beyond - (i - 1.0) * chunk, 0.0, chunk))
        for i in between
    ]
    on_last = np.clip(beyond - before_last * chunk, 0.0, np.ceil(split.last / layout.vpp))
    return ends[0], *inner, replace(ends[1], leading=on_last)


def most(stages: Sequence[StageLayers], values: Sequence[Figure]) -> Figure:
    """The largest value of any stage that exists."""
    largest = values[0]
    for stage, value in zip(stages[1:], values[1:], strict=True):
        largest = np.maximum(largest, stage.exists * value)
    return largest


def leading_fit(shape: Shape, layout: Layout) -> Figure:
    """Whether the first chunks hold all leading dense layers, and of shorter ones one at most, the last with any."""
    dealt = split(shape, layout)
    first = np.floor(dealt.first / layout.vpp)
    chunk = np.ceil(dealt.middle / layout.vpp)
    short = dealt.first + (layout.pp - 2.0) * dealt.middle + dealt.last - shape.layers
    shorter = np.ceil((dealt.middle - 1.0) / layout.vpp)
    between = np.maximum(layout.pp - 2.0, 0.0)
    unlike = (short > 0) & (shorter < chunk)
    behind = np.where(unlike, shorter - short * chunk, np.ceil(dealt.last / layout.vpp))
    return shape.leading_dense <= first + between * chunk + behind


def stage_layers(shape: Shape, layout: Layout) -> list[int]:
    """Layers of every stage of one plan, in order: :func:`split` written out."""
    layers = int(shape.layers)
    pp = int(layout.pp)
    if shape.pattern is not None:
        sizes = chunk_sizes(shape, pp, int(layout.vpp))
        return [sum(sizes[index::pp]) for index in range(pp)]
    if shape.head_layers and pp > 1 and layout.looped:
        ends = [min(math.floor(r * ((layers + shape.head_layers) / pp)) + 1, layers) for r in range(1, pp)]
        return [end - start for start, end in pairwise((0, *ends, layers))]
    dealt = split(shape, layout)
    first = int(dealt.first)
    middle = int(dealt.middle)
    last = int(dealt.last)
    if pp <= 2:
        return [first, last][:pp]
    short = first + (pp - 2) * middle + last - layers
    return [first, *[middle] * (pp - 2 - short), *[middle - 1] * short, last]


def leading_by_stage(shape: Shape, layout: Layout, layers: Sequence[int]) -> list[int]:
    """Leading dense layers on every stage of one plan: those of the first chunks, stage after stage. The first stage's
    first chunk is its shortest, any other's its longest.
    """
    left = int(shape.leading_dense)
    vpp = int(layout.vpp)
    leading = []
    for index, n in enumerate(layers):
        leading.append(min(left, n // vpp if index == 0 else -(-n // vpp)))
        left -= leading[-1]
    return leading


def inner_stages(shape: Shape, layout: Layout) -> StageLayers:
    """All stages of one plan between its first and its last, as columns."""
    pp = int(layout.pp)
    layers = stage_layers(shape, layout)
    index = np.arange(1.0, pp - 1.0)
    n = np.array(layers[1:-1], dtype=float)
    if shape.pattern is None:
        leading = np.array(leading_by_stage(shape, layout, layers)[1:-1], dtype=float)
        return StageLayers(index, 1.0, n, leading)
    counts = held(shape.pattern.order, chunk_sizes(shape, pp, int(layout.vpp)), pp)
    return StageLayers(index, 1.0, n, 0.0, tuple(counts[1:-1].T))


def micro_batches(layout: Layout) -> Figure:
    """Micro-batches that a pipeline passes per step: ``batch / (dp micro)``."""
    return layout.batch / (layout.dp * layout.micro)


def mean_layer(grid: Grid, layers: Sequence[Layer]) -> Figure:
    """Seconds of both passes of a layer: the body's, or the mean where layers are of several kinds."""
    if grid.shape.pattern is None:
        return layers[-1].forward + layers[-1].backward
    return together(_all(grid.shape), [layer.forward + layer.backward for layer in layers]) / grid.shape.layers


def _all(shape: Shape) -> tuple[Figure, ...]:
    """Layers of the model by what is priced apart: leading dense ones and others, or each kind."""
    if shape.pattern is None:
        return shape.leading_dense, shape.layers - shape.leading_dense
    return tuple(float(shape.pattern.order.count(kind)) for kind in range(len(shape.pattern.kinds)))


def transfer(grid: Grid, layer: Figure) -> Figure:
    """Seconds a stage spends on transfers per micro-batch: activations out and gradients back, for each of its chunks,
    of which overlap hides what runs during one layer of each chunk (so many seconds).

    Tensor-parallel ranks each send their share (scatter-gather, Narayanan et al. 2021). Copies hold no compute units.
    """
    layout, options = grid.layout, grid.options
    once = collective_times.send(grid.network, transfer_bytes(grid), stage_stride(grid), layout.pp)
    return collective_times.shown(
        2.0 * layout.vpp * once, layout.vpp * layer, options.p2p_overlap * grid.stack.p2p_overlap, 0.0
    )


def transfer_bytes(grid: Grid) -> Figure:
    """Bytes of one transfer: ``e tokens n h / tp``, all n residual streams."""
    return activation_bytes(grid, grid.shape.streams * grid.shape.hidden) / grid.layout.tp


LEAVING = 0.5
"""Share of the transfers over a link between pools that the stage before it waits for: the gradients."""


def waited(inside: Figure, before: Figure, after: Figure) -> Figure:
    """Seconds of a micro-batch's transfers that a stage waits for: ``inside + before + LEAVING after``, its pool's and
    those over links to another pool.

    As 1F1B runs where transfers of two stages follow each other and what is sent does not hold up computing: before the
    activations that a stage waits for, its own gradients pass the same link. Of a link behind it only the gradients
    make it wait; activations leave while it computes.
    """
    return inside + before + LEAVING * after


def stage_stride(grid: Grid) -> Figure:
    """Ranks between a stage and the next: those of a stage, or of its tensor- and context-parallel group alone."""
    layout = grid.layout
    far = layout.tp * layout.cp * layout.dp
    return np.where(grid.options.pp_inner > 0, layout.tp * layout.cp, far)


@dataclass(frozen=True, slots=True)
class LayerTime:
    """One layer's passes with what the recomputation policy adds."""

    forward: Figure
    backward: Figure
    again: Figure
    """Seconds of the backward pass that recompute."""
    alone: Figure = 0.0
    """Seconds of experts' exchanges in both passes that another micro-batch hides in some steps, in the others not."""


def layer_time(grid: Grid, layer: Layer) -> LayerTime:
    """``again = trained (r (forward - unread) + (1 - r) (selective + modules))``, r the share of layers recomputed
    in full.

    Passes that fill and drain the pipeline have no other micro-batch beside them. Stage i starts with ``2 (pp - 1 - i)
    + (vpp - 1) pp + 1`` forward passes of a chunk and ends with as many backward ones (Megatron-LM d98e8a64,
    core/pipeline_parallel/schedules.py, get_pp_rank_microbatches): pp micro-batches of a step on average, one without a
    pipeline.
    """
    options = grid.options
    share = options.recompute_layers
    selected = options.recompute_selective * layer.selective + layer.modules
    again = grid.shape.backward_share * (share * (layer.forward - layer.unread) + (1.0 - share) * selected)
    if not np.count_nonzero(layer.hidden):
        return LayerTime(layer.forward, layer.backward + again, again)
    alone = np.minimum(grid.layout.pp / micro_batches(grid.layout), 1.0) * layer.hidden
    return LayerTime(layer.forward + 0.5 * alone, layer.backward + 0.5 * alone + again, again, alone)


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds per micro-batch by stage, and the parts they are made of."""

    layers: tuple[LayerTime, ...]
    """Times of the layers that are priced apart: a leading dense one and another, or one of each kind."""
    embedding: LayerPart
    head: LayerPart
    split: StageSplit
    transfer: Figure
    weights: tuple[Figure, Figure, Figure] | None = None
    """Seconds of the backward passes of a leading layer, another one and the head that are weight gradients; only where
    a schedule computes these apart. None: no rank waits."""

    def passes(self, grid: Grid) -> tuple[tuple[StageLayers, Figure, Figure], ...]:
        """Forward and backward seconds of the first stage (or only one), of those between, and of the last."""
        placed = extremes(grid.shape, grid.layout, self.split)
        alone, (first, *between, last) = with_head(grid.layout), (self._blocks(stage) for stage in placed)
        first = (
            first[0] + self.embedding.forward + alone * self.head.forward,
            first[1] + self.embedding.backward + alone * self.head.backward,
        )
        looped = grid.layout.looped
        last = last[0] + looped * self.head.forward, last[1] + looped * self.head.backward
        return tuple((stage, *seconds) for stage, seconds in zip(placed, (first, *between, last), strict=True))

    def _blocks(self, stage: StageLayers) -> tuple[Figure, Figure]:
        """Forward and backward seconds of the layers of one stage, without the ends."""
        counts = stage.counts
        return together(counts, [x.forward for x in self.layers]), together(counts, [x.backward for x in self.layers])


def with_head(layout: Layout) -> Figure:
    """Where the first stage's rank holds the head, too: without a pipeline, and in a V."""
    return (layout.pp <= 1) | (layout.looped < 1)


def stages(
    grid: Grid,
    layers: tuple[Layer, ...],
    ends: tuple[LayerPart, LayerPart],
    weights: tuple[Figure, Figure, Figure] | None = None,
) -> Stages:
    """What every stage does with one micro-batch. `ends` are the embedding and the head."""
    times = tuple(layer_time(grid, layer) for layer in layers)
    sent = transfer(grid, mean_layer(grid, layers))
    return Stages(times, *ends, split(grid.shape, grid.layout), sent, weights)


@dataclass(frozen=True, slots=True)
class Flow:
    """A step's passage through the pipeline. Seconds."""

    time: Figure
    """All micro-batches through all stages: ``M max + (sum - max) / vpp`` over the stages' micro-batch times, or with
    another bubble (:func:`planner.cost.split_schedules.idle`)."""
    slowest: Figure
    """One micro-batch on the slowest stage."""
    bubble: Figure
    """What the slowest waits while the pipeline fills and drains."""
    forward: Figure
    """Forward share of a busy stage's micro-batch, where parameter gathers can hide."""
    backward: Figure
    """Backward share, where gradient reductions can hide."""


def flow(grid: Grid, s: Stages) -> Flow:
    """1F1B, interleaved if vpp > 1: the slowest stage sets the pace, the others' fill and drain is the bubble."""
    layout = grid.layout
    passes = s.passes(grid)
    _, forward, backward = passes[0]
    slowest = most([stage for stage, *_ in passes], [ahead + back for _, ahead, back in passes]) + s.transfer
    ends = s.embedding.forward + s.embedding.backward + s.head.forward + s.head.backward
    total = together(_all(grid.shape), [x.forward + x.backward for x in s.layers]) + ends + layout.pp * s.transfer
    bubble = (np.maximum(total, slowest) - slowest) / layout.vpp
    if np.count_nonzero(grid.options.schedule):
        apart = 0.0 if s.weights is None else split_schedules.idle(grid, *split_passes(grid, s))
        bubble = np.where(grid.options.schedule > 0, apart, bubble)
    return Flow(micro_batches(layout) * slowest + bubble, slowest, bubble, forward, backward)


def split_passes(grid: Grid, s: Stages) -> tuple[split_schedules.RankPasses, split_schedules.RankPasses]:
    """What the slowest rank and the mean of all others do in a micro-batch where weight gradients are computed apart,
    half of the transfers with either pass.
    """
    *layer_weights, head = s.weights or (0.0, 0.0, 0.0)
    layout = grid.layout
    (first, forward, backward), *others = s.passes(grid)
    weight = together(first.counts, layer_weights) + with_head(layout) * head
    for number, (stage, ahead_s, back) in enumerate(others, 1):
        late = together(stage.counts, layer_weights) + (number == len(others)) * layout.looped * head
        slower = (stage.exists > 0) & (ahead_s + back > forward + backward)
        forward = np.where(slower, ahead_s, forward)
        backward = np.where(slower, back, backward)
        weight = np.where(slower, late, weight)
    every = _all(grid.shape)
    others_count = np.maximum(layout.pp - 1.0, 1.0)
    ends = s.embedding + s.head
    sent = 0.5 * s.transfer

    def mean(whole: Figure, slowest: Figure) -> Figure:
        return np.maximum(whole - slowest, 0.0) / others_count

    ahead = mean(together(every, [x.forward for x in s.layers]) + ends.forward, forward)
    behind = mean(together(every, [x.backward for x in s.layers]) + ends.backward, backward)
    lighter = np.minimum(mean(together(every, layer_weights) + head, weight), behind)
    return (
        split_schedules.RankPasses(forward + sent, backward - weight + sent, weight),
        split_schedules.RankPasses(ahead + sent, behind - lighter + sent, lighter),
    )
