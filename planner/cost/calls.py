"""Every collective and transfer of a step on the stage that sets the pace: what the terms of its time are made of.

The same sizes, groups and counts as in the terms of a step's time (:func:`planner.cost.breakdown`), one call at a
time, for one plan (a grid of scalars). What is exposed of the calls of a cause adds up to that cause in the breakdown;
a test looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.cost import attention, collective_times, data_parallel, experts, pipeline, transformer
from planner.cost.collective_times import CollectiveGroup
from planner.cost.data_parallel import DataParallelTraffic, ShardedState
from planner.cost.evaluate import StepPasses, busiest, passes
from planner.cost.figures import Figure, Grid, by_kind
from planner.cost.micro_batch import activation_bytes, region_bytes
from planner.cost.products import LayerPart
from planner.cost.transformer import Layer

REDUCE = "all-reduce"
GATHER = "all-gather"
SCATTER = "reduce-scatter"
EXCHANGE = "all-to-all"
BROADCAST = "broadcast"
SEND = "send-recv"
OPERATIONS = (REDUCE, GATHER, SCATTER, EXCHANGE, BROADCAST, SEND)


@dataclass(frozen=True, slots=True)
class Call:
    """One kind of call. Times are of all its calls in a step."""

    op: str
    """One of :data:`OPERATIONS`."""
    group: str
    """The dimension whose ranks talk: tp, cp, ep, etp, dp, dp-replicas, edp, edp-replicas, pp."""
    cause: str
    """The term of the breakdown that it is part of; ``recompute`` where it is repeated for the backward pass."""
    ranks: int
    inside: int
    """Ranks of the group in one scale-up domain."""
    reach: float
    """Accelerators from the group's first rank to its last, in rank order."""
    where: str
    """What its traffic crosses: ``domain``, ``rail`` (NICs below one leaf), ``spine``; ``dimensions`` of a fabric that
    has them."""
    bytes: float
    """Bytes of one call, as nccl-tests counts: the whole vector; the send buffer of an all-to-all."""
    count: float
    """Calls a step of one rank; a share where layers are a mean of kinds."""
    alone_s: float
    """Seconds if nothing ran beside them."""
    exposed_s: float
    """Seconds of them that the step takes longer by, before waiting for the slowest rank (jitter)."""
    pools: tuple[int, ...] = ()
    """Pools that its ranks stand on, where a plan is over several."""


def calls(grid: Grid) -> tuple[Call, ...]:
    """Every call of a step, those that take no time left out."""
    priced = passes(grid)
    every_call = merged([*_layers(grid, priced), *of_stages(grid, priced.layers), *_replicas(grid, priced)])
    return tuple(replace(call, exposed_s=float(grid.stack.whole_step) * call.exposed_s) for call in every_call)


def merged(single_calls: Iterable[Call]) -> tuple[Call, ...]:
    """Calls with those that both passes make joined to one, without calls that take no time."""
    merged: dict[tuple[object, ...], Call] = {}
    for call in single_calls:
        if call.count > 0 and call.alone_s > 0:
            key = (call.op, call.group, call.cause, call.ranks, call.bytes, call.where)
            merged[key] = _joined(merged[key], call) if key in merged else call
    return tuple(merged.values())


def _joined(one: Call, other: Call) -> Call:
    """One call that stands for a call of both passes."""
    return replace(
        one,
        count=one.count + other.count,
        alone_s=one.alone_s + other.alone_s,
        exposed_s=one.exposed_s + other.exposed_s,
    )


def _where(grid: Grid, g: CollectiveGroup) -> str:
    if grid.network.dimensions is not None:
        return "dimensions"
    if float(g.n) <= float(g.inside):
        return "domain"
    return "spine" if float(g.reach) > float(grid.network.leaf) else "rail"


class CallKind(NamedTuple):
    """What a call does, who makes it, and why: the first fields of :class:`Call`."""

    op: str
    group: str
    cause: str


def _call(grid: Grid, kind: CallKind, g: CollectiveGroup, size: Figure, seconds: Figure) -> Call:
    """One call, alone and exposed alike; counts come later."""
    alone = float(seconds)
    ranks = round(float(g.n))
    inside = round(float(g.inside))
    return Call(*kind, ranks, inside, float(g.reach), _where(grid, g), float(size), 1.0, alone, alone)


def _times(call: Call, count: Figure, shown: Figure = 1.0, factor: Figure = 1.0) -> Call:
    """`count` calls of which a share shows; `factor` is what measured layer times make of modelled ones."""
    alone = call.alone_s * float(count) * float(factor)
    return replace(call, count=call.count * float(count), alone_s=alone, exposed_s=alone * float(shown))


# ---- layers ----------------------------------------------------------------------------------------------------------


def _layers(grid: Grid, priced: StepPasses) -> Iterator[Call]:
    """Calls of the layers of the busiest stage."""
    s = pipeline.stages(grid, priced.layers, priced.ends)
    busy = busiest(grid, s)
    steps = pipeline.micro_batches(grid.layout)
    layer_calls = list(of_layers(grid, priced, [steps * n for n in busy.counts]))
    shown = sum(call.exposed_s for call in layer_calls if call.cause == "ep")
    alone = pipeline.together([steps * n for n in busy.counts], [layer.alone for layer in s.layers])
    more = 1.0 + float(alone) / shown if shown > 0 else 1.0
    yield from (replace(c, exposed_s=c.exposed_s * more) if c.cause == "ep" else c for c in layer_calls)


def of_layers(grid: Grid, priced: StepPasses, counts: Sequence[Figure]) -> Iterator[Call]:
    """Tensor-, context- and expert-parallel calls of each pass of so many layers in a step, times micro-batches:
    leading dense ones of a model whose others have experts and others, or of each kind.
    """
    share = grid.shape.moe_share
    kinds = by_kind(grid)
    shares = [kind.shape.moe_share for kind in kinds] if grid.shape.pattern else [0.0 * share, share]
    every = zip(
        counts, transformer.layers(grid), priced.layers, shares, kinds * (len(counts) // len(kinds)), strict=True
    )
    for count, layer, used, moe, kind in reversed(list(every)):
        s = kind.shape
        regions = s.mixing_share + 1.0 - s.idle_share - moe * (s.shared_ffn <= 0)
        calls = [
            *((c, regions, way) for c, way in _tensor(kind)),
            *((c, 1.0, way) for c, way in _context(kind)),
            *((c, moe, way) for c, way in _experts(kind)),
        ]
        yield from _shown(kind, used, layer, calls, count)


def _shown(
    grid: Grid, used: Layer, layer: Layer, priced: list[tuple[Call, Figure, str]], count: Figure
) -> Iterator[Call]:
    """Calls of `count` layers of one kind, each way that they are made, and again where the forward pass is: what shows
    of a cause is what the layer's part of it says, dealt out by their time alone.
    """
    again = grid.options.recompute_layers
    for cause in dict.fromkeys(call.cause for call, _, _ in priced):
        factor = _measured(grid, used, layer, cause)
        for name in ("forward", "backward"):
            made = [(c, count) for c, count, way in priced if c.cause == cause and way in (name, "both")]
            alone = sum(float(c.alone_s) * float(count) for c, count in made)
            ratio = float(getattr(layer.parts[cause], name)) / alone if alone > 0 else 0.0
            for call, share in made:
                yield _times(call, count * share, ratio, getattr(factor, name))
                if name == "forward":
                    yield replace(_times(call, count * share * again, ratio, factor.forward), cause="recompute")


def _measured(grid: Grid, used: Layer, modelled_layer: Layer, cause: str) -> LayerPart:
    """What measured layer times made of a cause, over the model's own."""
    if grid.measured is None:
        return LayerPart(1.0, 1.0)
    ways = [(getattr(used.parts[cause], way), getattr(modelled_layer.parts[cause], way)) for way in LayerPart.__slots__]
    return LayerPart(*(mine / np.where(modelled > 0, modelled, 1.0) for mine, modelled in ways))


def _tensor(grid: Grid) -> Iterator[tuple[Call, str]]:
    """An all-reduce each way of a region, or a gather and a scatter (:func:`transformer.tensor_parallel_alone`)."""
    g = collective_times.group(grid.network, grid.layout.tp, 1.0)
    size = region_bytes(grid)
    if float(grid.options.sequence_parallel) <= 0:
        yield (
            _call(grid, CallKind(REDUCE, "tp", "tp"), g, size, collective_times.all_reduce(grid.network, size, g)),
            "both",
        )
        return
    once = collective_times.gather(grid.network, size, g)
    narrow = 1.0 - 0.5 * grid.device.low_precision
    yield _call(grid, CallKind(GATHER, "tp", "tp"), g, size * narrow, once * narrow), "both"
    yield _call(grid, CallKind(SCATTER, "tp", "tp"), g, size, once), "both"


def _context(grid: Grid) -> Iterator[tuple[Call, str]]:
    """A send per further step of the ring forward, twice as many backward, beside the attention kernel; before it and
    instead what :func:`attention.context_exchange` and :func:`attention.context_gather` say.
    """
    network, layout, s = grid.network, grid.layout, grid.shape
    if layout.cp <= 1:
        return
    size = activation_bytes(grid, attention.kv_width(grid))
    x = float(attention.exchanging(grid))
    if x > 1:
        g = collective_times.group(network, x, layout.tp)
        for width in (s.heads * s.qk_dim / layout.tp + attention.kv_width(grid), s.heads * s.v_dim / layout.tp):
            part = activation_bytes(grid, width)
            once = collective_times.all_to_all(network, part, g)
            yield _call(grid, CallKind(EXCHANGE, "cp", "cp"), g, part, once), "both"
    if grid.options.context_gathered:
        g = collective_times.group(network, layout.cp, layout.tp)
        once = collective_times.gather(network, layout.cp * size, g)
        yield _call(grid, CallKind(GATHER, "cp", "cp"), g, layout.cp * size, once), "both"
        yield _call(grid, CallKind(SCATTER, "cp", "cp"), g, layout.cp * size, once), "backward"
    if (hops := float(attention.ring_steps(grid))) > 0:
        g = collective_times.group(network, layout.cp / x, layout.tp * x)
        one = _hop(grid, "cp", "cp", size, layout.tp * x, layout.cp / x)
        one = replace(one, ranks=round(float(g.n)), inside=round(float(g.inside)))
        yield _times(one, hops), "forward"
        yield _times(one, 2.0 * hops), "backward"


def _hop(grid: Grid, group: str, cause: str, size: Figure, stride: Figure, n: Figure) -> Call:
    """A send to the next of `n` ranks `stride` apart (:func:`collective_times.send`)."""
    reach = CollectiveGroup(n, np.where(stride * n > grid.network.domain, 1.0, n), stride * n)
    return _call(grid, CallKind(SEND, group, cause), reach, size, collective_times.send(grid.network, size, stride, n))


def _experts(grid: Grid) -> Iterator[tuple[Call, str]]:
    """Dispatch and combine each way, and a gather over expert-tensor ranks (:func:`experts.exposed`)."""
    network, layout = grid.network, grid.layout
    routed = experts.dispatch(grid)
    if np.count_nonzero(grid.options.dispatcher == experts.ALL_GATHERED):
        for op in (GATHER, SCATTER):
            yield _call(grid, CallKind(op, "ep", "ep"), routed.group, routed.bytes_sent, routed.seconds), "both"
        return
    yield (
        _times(_call(grid, CallKind(EXCHANGE, "ep", "ep"), routed.group, routed.bytes_sent, routed.seconds), 2.0),
        "both",
    )
    g = collective_times.group(network, layout.etp, 1.0)
    size = routed.bytes_sent * layout.etp
    yield (
        _times(_call(grid, CallKind(GATHER, "etp", "ep"), g, size, collective_times.gather(network, size, g)), 2.0),
        "both",
    )


# ---- stages and replicas ---------------------------------------------------------------------------------------------


def of_stages(grid: Grid, layers: Sequence[Layer]) -> Iterator[Call]:
    """Activations out and gradients back for every chunk of a micro-batch (:func:`pipeline.transfer`)."""
    layout = grid.layout
    sends = 2.0 * layout.vpp * pipeline.micro_batches(layout)
    size = pipeline.transfer_bytes(grid)
    stride = pipeline.stage_stride(grid)
    hop = _hop(grid, "pp", "p2p", size, stride, layout.pp)
    alone = 2.0 * float(layout.vpp) * hop.alone_s
    shown = float(pipeline.transfer(grid, pipeline.mean_layer(grid, layers))) / alone if alone > 0 else 0.0
    yield _times(hop, sends, shown)


def _replicas(grid: Grid, priced: StepPasses) -> Iterator[Call]:
    """Reductions and gathers over replicas; what shows of them together is dealt out by their time alone."""
    s = pipeline.stages(grid, priced.layers, priced.ends)
    flow = pipeline.flow(grid, s)
    held = data_parallel.most_held(grid, s.split)
    yield from of_replicas(
        grid,
        held,
        s.split.first,
        data_parallel.data_parallel_traffic(grid, held, s.split.first, flow.forward, flow.backward),
    )


def of_replicas(grid: Grid, held: ShardedState, layers: Figure, traffic: DataParallelTraffic) -> Iterator[Call]:
    """Reductions and gathers of what is held in so many layers, of which
    :func:`data_parallel.data_parallel_traffic` says what shows.
    """
    reduces: list[Call] = []
    gathers: list[Call] = []
    r = data_parallel.replicas(grid)
    for name, parameters, g, shards in (
        ("dp", held.dense, r.dense, r.dense_shards),
        ("edp", held.experts, r.experts, r.expert_shards),
    ):
        made = data_parallel.calls(grid, parameters, layers)
        reduces += _reduced(grid, name, parameters, g, shards, made[0])
        if float(grid.options.zero) >= 1:
            gathers.append(_gathered(grid, name, parameters, g, shards, made[1]))
    late = reduces + (gathers if float(traffic.gathered_again) > 0 else [])
    yield from _dealt(late, float(traffic.reductions), float(traffic.late))
    yield from _dealt(gathers, float(traffic.gathers), float(traffic.early))


def _reduced(
    grid: Grid, name: str, parameters: Figure, g: CollectiveGroup, shards: Figure, count: Figure
) -> Iterator[Call]:
    """An all-reduce, or a scatter over shards and an all-reduce over their replicas, of each bucket."""
    network = grid.network
    size = data_parallel.gradient_bytes(grid, parameters) / count
    if float(grid.options.zero) < 1 or float(data_parallel.summed_whole(grid)) > 0:
        yield _times(
            _call(grid, CallKind(REDUCE, name, "dp"), g, size, collective_times.all_reduce(network, size, g)), count
        )
        return
    within, across = data_parallel.shards_and_replicas(g, shards)
    yield _times(
        _call(grid, CallKind(SCATTER, name, "dp"), within, size, collective_times.gather(network, size, within)), count
    )
    part = size / shards
    reduce_s = collective_times.all_reduce(network, part, across)
    summed = _call(grid, CallKind(REDUCE, f"{name}-replicas", "dp"), across, part, reduce_s)
    yield _times(summed, count)


def _gathered(grid: Grid, name: str, parameters: Figure, g: CollectiveGroup, shards: Figure, count: Figure) -> Call:
    """A gather over the shards, or a broadcast of each."""
    within, _ = data_parallel.shards_and_replicas(g, shards)
    if float(data_parallel.broadcast_by_shard(grid)) > 0:
        shard = data_parallel.gathered_bytes(grid, parameters) / shards
        sent_s = collective_times.broadcast(grid.network, shard, within)
        return _times(_call(grid, CallKind(BROADCAST, name, "dp"), within, shard, sent_s), shards)
    call_bytes = data_parallel.gathered_bytes(grid, parameters) / count
    return _times(
        _call(
            grid,
            CallKind(GATHER, name, "dp"),
            within,
            call_bytes,
            collective_times.gather(grid.network, call_bytes, within),
        ),
        count,
    )


def _dealt(parts: list[Call], count: float, shown: float) -> Iterator[Call]:
    alone = sum(call.alone_s for call in parts)
    for call in parts:
        yield _times(call, count, shown / alone if alone > 0 else 0.0)
