"""Parameters by stage and rank, and what data parallelism makes of them: reductions, gathers, shards, the update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import collectives, elements, expanded_memory, frozen, layer_times, overlap
from planner.cost.collectives import CollectiveGroup
from planner.cost.figures import Figure, Grid
from planner.cost.pipeline import Flow, StageSplit, leading_layers, micro_batches

MATRICES = 4.0
"""Weight matrices of a layer, projections that are made at once being one."""


@dataclass(frozen=True, slots=True)
class ShardedState:
    """Parameters of one stage on one rank before data-parallel sharding."""

    dense: Figure
    """Replicated over data- and context-parallel ranks."""
    experts: Figure
    """Replicated over expert-data-parallel ranks only."""
    ends: Figure = 0.0
    """Of the dense ones, those outside blocks."""


def blocks_of_stage(grid: Grid, layers: Figure, leading: Figure) -> ShardedState:
    """``(n attention + dense mlp + moe shared) / tp`` and ``moe experts expert / (ep etp)``."""
    s, layout = grid.shape, grid.layout
    moe = (layers - leading) * s.moe_share
    dense = layers - moe - (layers - leading) * s.idle_share
    dense = layers * s.attention_parameters + dense * s.mlp_parameters + moe * s.shared_parameters
    return ShardedState(dense / layout.tp, moe * s.experts * s.expert_parameters / (layout.ep * layout.etp))


def stage_parameters(grid: Grid, split: StageSplit) -> tuple[ShardedState, ShardedState, ShardedState]:
    """Parameters on the first, a middle and the last stage. A tied head is held again unless the embedding is there."""
    s, layout = grid.shape, grid.layout
    alone = layout.pp <= 1
    first = blocks_of_stage(grid, split.first, leading_layers(s, layout, split))
    middle = blocks_of_stage(grid, split.middle, 0.0)
    last = blocks_of_stage(grid, split.last, 0.0)
    with_head = s.embedding_parameters + alone * ((1.0 - s.tied) * s.head_parameters + s.final_parameters)
    before, behind = with_head / layout.tp, (s.head_parameters + s.final_parameters) / layout.tp
    return (
        ShardedState(first.dense + before, first.experts, before),
        middle,
        ShardedState(last.dense + behind, last.experts, behind),
    )


@dataclass(frozen=True, slots=True)
class Replicas:
    """The groups over which parameters are replicated, and over which they are sharded."""

    dense: CollectiveGroup
    experts: CollectiveGroup
    dense_shards: Figure
    expert_shards: Figure


def replicas(grid: Grid) -> Replicas:
    """Data- and context-parallel ranks share dense parameters, expert-data-parallel ranks those of the experts."""
    layout, options, network = grid.layout, grid.options, grid.network
    inner = collectives.group(network, layout.cp, layout.tp)
    stride = layout.tp * layout.cp * np.where(options.pp_inner > 0, layout.pp, 1.0)
    dense = collectives.product(inner, collectives.group(network, layout.dp, stride))
    width = layout.ep * layout.etp
    copies = np.maximum(layout.tp * layout.cp * layout.dp / width, 1.0)
    experts = collectives.group(network, copies, width * np.where(options.pp_inner > 0, layout.pp, 1.0))
    node = options.zero_in_node > 0
    return Replicas(
        dense, experts, np.where(node, _evenly(dense), dense.n), np.where(node, _evenly(experts), experts.n)
    )


def _evenly(g: CollectiveGroup) -> Figure:
    """Members of one domain that can share a copy so that every copy has as many: ``gcd(inside, n)``."""
    return np.gcd(np.asarray(g.inside, dtype=np.int64), np.asarray(g.n, dtype=np.int64)).astype(float)


def gradient_bytes(grid: Grid, parameters: Figure) -> Figure:
    """Bytes that a reduction of the gradients of `parameters` (of one rank) moves, what is not trained left out."""
    return parameters * elements.gradient_wire(grid) * grid.shape.trained


def gathered_bytes(grid: Grid, parameters: Figure) -> Figure:
    """Bytes of gathered parameters: all that a rank works with (ZeRO 3), or those that training changes."""
    trained = grid.shape.trained * elements.parameter_wire(grid)
    return parameters * np.where(grid.options.zero >= 3, elements.gathered_wire(grid), trained)


def shards_and_replicas(g: CollectiveGroup, shards: Figure) -> tuple[CollectiveGroup, CollectiveGroup]:
    """The group over which a copy is sharded, and that of ranks which hold the same shard."""
    return collectives.parts(g, shards)


def buckets(grid: Grid, parameters: Figure) -> Figure:
    """Calls by which the gradients of `parameters` (of one rank) are reduced: each of a bucket, and of no less than a
    matrix, of which a layer has four (pytorch, torch/nn/parallel/distributed.py, bucket_cap_mb). Sharded ones (ZeRO 2)
    take one.
    """
    whole = grid.stack.bucket_bytes
    if not np.any(whole):
        return 1.0
    matrix = grid.device.element * frozen.block_parameters(grid, grid.shape.moe_share) / MATRICES
    each = np.maximum(np.where(whole > 0, whole, np.inf), matrix)
    calls = np.maximum(grid.device.element * parameters * grid.shape.trained / each, 1.0)
    return np.where(grid.options.zero < 2, calls, 1.0)


def _reduce_and_gather(grid: Grid, parameters: Figure, g: CollectiveGroup, shards: Figure) -> tuple[Figure, Figure]:
    """Seconds to reduce the gradients of `parameters` once, and to gather them once.

    ZeRO 0 all-reduces; from 1 on gradients are scattered over the shards (and all-reduced across replicas of them), and
    parameters gathered. One bucket is reduced after the other.
    """
    network, options = grid.network, grid.options
    gradients, calls = gradient_bytes(grid, parameters), buckets(grid, parameters)
    within, across = shards_and_replicas(g, shards)
    each = gradients / calls
    scatter = collectives.gather(network, each, within) + collectives.all_reduce(network, each / shards, across)
    reduce = calls * np.where(options.zero >= 1, scatter, collectives.all_reduce(network, each, g))
    gathered = collectives.gather(network, gathered_bytes(grid, parameters), within)
    if grid.expanded is not None:
        # A reduction reads and writes what it reduces, a gather reads this rank's shard, as fast as memory lets it.
        there = grid.options.expanded_weights
        reduce = np.maximum(reduce, (g.n > 1) * expanded_memory.streamed(grid, 2.0 * there * gradients))
        share = there * gathered_bytes(grid, parameters) / shards
        gathered = np.maximum(gathered, (shards > 1) * expanded_memory.streamed(grid, share))
    return reduce, (options.zero >= 1) * gathered


def exposed(grid: Grid, split: StageSplit, flow: Flow) -> Figure:
    """Seconds of data-parallel communication that nothing hides.

    Reductions run beside a backward pass, gathers beside a forward pass; with overlap on, what is hidden is at most
    ``overlap x`` that pass, and the last bucket (one layer's share) always shows. Sharded parameters (ZeRO 3) are
    gathered before and reduced after every micro-batch; otherwise once a step.
    """
    return exposed_traffic(grid, most_held(grid, split), split.first, flow.forward, flow.backward)


def most_held(grid: Grid, split: StageSplit) -> ShardedState:
    """The most dense and the most expert parameters that a stage holds: what the slowest reduction moves."""
    first, middle, last = stage_parameters(grid, split)
    several, many = grid.layout.pp > 1, grid.layout.pp > 2
    dense = np.maximum(first.dense, np.maximum(many * middle.dense, several * last.dense))
    experts = np.maximum(first.experts, np.maximum(many * middle.experts, several * last.experts))
    return ShardedState(dense, experts)


def exposed_traffic(grid: Grid, held: ShardedState, layers: Figure, forward: Figure, backward: Figure) -> Figure:
    """As :func:`exposed`, of `held` parameters beside passes of so many seconds over so many layers."""
    shown = data_parallel_traffic(grid, held, layers, forward, backward)
    return shown.reductions * shown.late + shown.gathers * shown.early


@dataclass(frozen=True, slots=True)
class DataParallelTraffic:
    """Data-parallel communication of a step, and what of it passes do not hide."""

    reductions: Figure
    """Times a step that gradients are reduced (sharded parameters are gathered again before)."""
    late: Figure
    """Seconds of one that a backward pass does not hide."""
    gathers: Figure
    """Times a step that parameters are gathered while a forward pass runs."""
    early: Figure
    """Seconds of one that the forward pass does not hide."""
    gathered_again: Figure
    """1 if parameters are gathered for the backward pass too (ZeRO 3)."""


def data_parallel_traffic(
    grid: Grid, held: ShardedState, layers: Figure, forward: Figure, backward: Figure
) -> DataParallelTraffic:
    """The communication whose exposed seconds :func:`exposed` adds up; passes are seconds over `layers` layers.

    ``late`` of ``reduce + z3 gather`` beside a backward pass and ``early`` of ``gather`` beside a forward one, as
    :func:`overlap.shown` has it: the last bucket (of as many as layers) is never early enough, and the runtime's share
    of a pass can hide.
    """
    layout, options, stack = grid.layout, grid.options, grid.stack
    r = replicas(grid)
    reduce_dense, gather_dense = _reduce_and_gather(grid, held.dense, r.dense, r.dense_shards)
    reduce_experts, gather_experts = _reduce_and_gather(grid, held.experts, r.experts, r.expert_shards)
    reduce, gather = reduce_dense + reduce_experts, gather_dense + gather_experts
    whole = options.zero >= 3
    steps = micro_batches(layout)
    reductions = np.where(options.zero >= 2, steps, 1.0)
    gathers = np.where(whole | ((options.zero >= 2) & (stack.gathers_working_copy > 0)), steps, 1.0)
    shown = options.dp_overlap / np.maximum(layers, 1.0)
    toll = grid.device.collective_share
    early_enough = options.dp_overlap - shown
    late = overlap.shown(reduce + whole * gather, stack.dp_overlap * backward, early_enough, toll)
    early = overlap.shown(gather, stack.dp_overlap * forward, early_enough, toll)
    return DataParallelTraffic(reductions, late, gathers, early, whole)


def update(grid: Grid, split: StageSplit) -> Figure:
    """Seconds of the optimizer step: its traffic over this rank's shard, or over the host link when states live
    there, or in part over expanded memory; and of :func:`putting_together` what shards of it give.
    """
    layout, options, s = grid.layout, grid.options, grid.shape
    first, middle, last = stage_parameters(grid, split)
    r = replicas(grid)
    dense_shards = np.where(options.zero >= 1, r.dense_shards, 1.0)
    expert_shards = np.where(options.zero >= 1, r.expert_shards, 1.0)

    def mine(held: ShardedState) -> Figure:
        return held.dense / dense_shards + held.experts / expert_shards

    several, many = layout.pp > 1, layout.pp > 2
    parameters = np.maximum(mine(first), np.maximum(many * mine(middle), several * mine(last))) * s.trained
    on_device = expanded_memory.update(grid) * layer_times.update_factor(grid)
    moved = elements.gradient_wire(grid) + elements.parameter_wire(grid) + elements.step_bytes(grid)
    on_host = moved / grid.device.host_bandwidth
    return parameters * np.where(options.offload > 0, on_host, on_device) + putting_together(grid, split, r)


def putting_together(grid: Grid, split: StageSplit, r: Replicas) -> Figure:
    """Seconds that the host takes to put gathered parameters together slice by slice: ``layers ranks launches`` a step.

    A gather into lists has one slice for each tensor and rank; each is cut out of its parameter, selected from what
    arrived, and copied (huggingface/nanotron 069c21cf, optim/zero.py, _all_gather_params; pytorch,
    ProcessGroupNCCL::allgather).
    """
    launches = split.first * grid.stack.gather_launches * (r.dense_shards > 1) * r.dense_shards
    return (grid.options.zero >= 1) * launches * grid.device.launch
