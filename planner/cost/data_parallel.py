"""What data parallelism costs a stage: its parameters on one rank, reductions, gathers, shards, and the update.

The replicas of a stage sum their gradients after the last micro-batch. Under ZeRO they also share optimizer states
(1), gradients (2) and weights (3) among them, and gather what they lack. Whole matrices of Muon: :mod:`.muon`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost import collective_times, elements, expanded_memory, frozen, layer_times, muon
from planner.cost.collective_times import CollectiveGroup
from planner.cost.figures import Figure, Grid, Network, by_kind
from planner.cost.pipeline import Flow, StageLayers, StageSplit, extremes, micro_batches, most, with_head

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
    """Dense parameters outside blocks."""


def blocks_of_stage(grid: Grid, stage: StageLayers) -> ShardedState:
    """``(n attention + dense mlp + moe shared) / tp`` and ``moe experts expert / (ep etp)``, summed over kinds of
    layers, or as much as shards of whole matrices take.
    """
    if stage.kinds:
        by_kinds = [_blocks(kind, n, 0.0) for kind, n in zip(by_kind(grid), stage.kinds, strict=True)]
        dense, experts = (sum(parts) for parts in zip(*by_kinds, strict=True))
    else:
        dense, experts = _blocks(grid, stage.layers, stage.leading)
    if np.count_nonzero(grid.shape.orthogonal):
        dense, experts = muon.whole_matrices(grid, dense, experts, replicas(grid).shards)
    return ShardedState(dense, experts)


def _blocks(grid: Grid, layers: Figure, leading: Figure) -> tuple[Figure, Figure]:
    """Parameters outside experts and of experts."""
    s, layout = grid.shape, grid.layout
    moe = (layers - leading) * s.moe_share
    dense = layers - moe - (layers - leading) * s.idle_share
    dense = (layers * s.attention_parameters + dense * s.mlp_parameters + moe * s.shared_parameters) / layout.tp
    return dense, moe * s.experts * s.expert_parameters / (layout.ep * layout.etp)


def stage_parameters(grid: Grid, split: StageSplit) -> tuple[ShardedState, ...]:
    """Parameters on the first stage, those between and the last (:func:`planner.cost.pipeline.extremes`). A tied head
    is held again unless the embedding is there; a trained tower stands on the first.
    """
    s, layout = grid.shape, grid.layout
    alone = with_head(layout)
    held = [blocks_of_stage(grid, stage) for stage in extremes(s, layout, split)]
    first, *between, last = held
    at_start = s.embedding_parameters + alone * ((1.0 - s.tied) * s.head_parameters + s.final_parameters)
    with_tower = s.tower_trained * s.tower_parameters  # whole on every tensor-parallel rank
    before = at_start / layout.tp + with_tower
    behind = layout.looped * (s.head_parameters + s.final_parameters) / layout.tp
    return (
        ShardedState(first.dense + before, first.experts, before),
        *between,
        ShardedState(last.dense + behind, last.experts, behind),
    )


@dataclass(frozen=True, slots=True)
class Replicas:
    """The groups over which parameters are replicated, and over which they are sharded."""

    dense: CollectiveGroup
    experts: CollectiveGroup
    dense_shards: Figure
    expert_shards: Figure

    @property
    def shards(self) -> tuple[Figure, Figure]:
        """Ranks that share one copy, of dense parameters and of experts."""
        return self.dense_shards, self.expert_shards


def replicas(grid: Grid) -> Replicas:
    """Data- and context-parallel ranks share dense parameters, expert-data-parallel ranks those of the experts."""
    groups = _groups(grid, grid.network)
    nodes = grid.options.zero_nodes
    near = groups
    if np.any(nodes > 1):
        spanned = grid.network.domain * np.maximum(nodes, 1.0)
        near = _groups(grid, replace(grid.network, domain=spanned, dimensions=None))
    return Replicas(*groups, *(np.where(nodes > 0, _evenly(g), whole.n) for g, whole in zip(near, groups, strict=True)))


def _groups(grid: Grid, network: Network) -> tuple[CollectiveGroup, CollectiveGroup]:
    """The ranks that hold the same dense parameters, and those that hold the same experts."""
    layout = grid.layout
    outside = np.where(grid.options.pp_inner > 0, layout.pp, 1.0)
    inner = collective_times.group(network, layout.cp, layout.tp)
    dense = collective_times.group(network, layout.dp, layout.tp * layout.cp * outside)
    width = layout.ep * layout.etp
    copies = np.maximum(layout.tp * layout.cp * layout.dp / width, 1.0)
    return collective_times.product(inner, dense), collective_times.group(network, copies, width * outside)


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
    return collective_times.parts(g, shards)


def summed_whole(grid: Grid) -> Figure:
    """1 where gradients are all-reduced though states are sharded, and parameters gathered beside nothing."""
    return grid.stack.reduces_whole * (grid.options.zero == 1)


def at_once(grid: Grid) -> Figure:
    """1 where that is one call after the passes: buckets of so many parameters are sent as they fill."""
    return summed_whole(grid) * (grid.stack.bucket_parameters <= 0)


def broadcast_by_shard(grid: Grid) -> Figure:
    """1 where each rank's shard of the parameters is sent to the others by a broadcast of its own."""
    return grid.stack.broadcasts_shards * (grid.options.zero == 1)


def bucket(grid: Grid) -> Figure:
    """Parameters whose gradients one call reduces, infinite where it is all of them.

    So many bytes of gradients, and no less than a matrix, of which a layer has four (pytorch,
    torch/nn/parallel/distributed.py, bucket_cap_mb); or so many parameters, and a least for each data-parallel rank,
    where reductions overlap (Megatron-LM, core/distributed/distributed_data_parallel.py).
    """
    stack = grid.stack
    size: Figure = np.inf
    if np.count_nonzero(stack.bucket_bytes):
        matrix = frozen.block_parameters(grid, grid.shape.moe_share) / MATRICES
        size = np.where(stack.bucket_bytes > 0, np.maximum(stack.bucket_bytes / grid.device.element, matrix), np.inf)
    if np.count_nonzero(stack.bucket_parameters):
        counted = np.maximum(stack.bucket_parameters, stack.bucket_parameters_per_rank * grid.layout.dp)
        size = np.where((stack.bucket_parameters > 0) & (grid.options.dp_overlap > 0), counted, size)
    return size


def calls(grid: Grid, parameters: Figure, layers: Figure) -> tuple[Figure, Figure]:
    """Calls that reduce the gradients of `parameters` (of one rank, in so many layers), and that gather them.

    From ZeRO 2 on each of a layer (FSDP's units); else of a bucket, gathers only where buckets count parameters.
    """
    by_layer = grid.options.zero >= 2
    count = np.maximum(parameters * grid.shape.trained / bucket(grid), 1.0)
    reductions = np.where(by_layer, np.maximum(layers, 1.0), np.where(at_once(grid) > 0, 1.0, count))
    return reductions, np.where(by_layer | (grid.stack.bucket_parameters > 0), reductions, 1.0)


@dataclass(frozen=True, slots=True)
class ReduceAndGather:
    """Reducing the gradients of some parameters once, and gathering them once. Seconds."""

    reduce: Figure
    gather: Figure
    last_reduce: Figure
    """Seconds of the last call of the reduction: nothing is left to hide it."""
    first_gather: Figure

    def __add__(self, other: ReduceAndGather) -> ReduceAndGather:
        return ReduceAndGather(
            self.reduce + other.reduce,
            self.gather + other.gather,
            self.last_reduce + other.last_reduce,
            self.first_gather + other.first_gather,
        )


def _reduce_and_gather(
    grid: Grid, parameters: Figure, g: CollectiveGroup, shards: Figure, layers: Figure
) -> ReduceAndGather:
    """ZeRO 0 all-reduces; from 1 on gradients are scattered over the shards (and all-reduced across replicas of them),
    and parameters gathered, or broadcast shard by shard. One call is made after the other; where no size of theirs is
    known, the overlap is that of one a layer.

    A rank whose weights live in host memory fetches its shard of them before each gather, and sends its shard of the
    gradients after each reduction: ``shard bytes / host link`` (pytorch@010ae4a8,
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py, `all_gather_inputs`, and _fsdp_collectives.py,
    `foreach_reduce`; DeepSpeed 0.19.8, deepspeed/runtime/zero/partition_parameters.py and stage3.py).
    """
    network, options, stack = grid.network, grid.options, grid.stack
    gradients = gradient_bytes(grid, parameters)
    moved = gathered_bytes(grid, parameters)
    reductions, gathers = calls(grid, parameters, layers)
    within, across = shards_and_replicas(g, shards)
    call_bytes = gradients / reductions
    scatter = collective_times.gather(network, call_bytes, within) + collective_times.all_reduce(
        network, call_bytes / shards, across
    )
    scattered = (options.zero >= 1) & (summed_whole(grid) <= 0)
    reduce = reductions * np.where(scattered, scatter, collective_times.all_reduce(network, call_bytes, g))
    gathered = gathers * collective_times.gather(network, moved / gathers, within)
    if np.count_nonzero(stack.broadcasts_shards):
        one_by_one = shards * collective_times.broadcast(network, moved / shards, within)
        gathered = np.where(broadcast_by_shard(grid) > 0, one_by_one, gathered)
    if grid.expanded is not None:
        # A reduction reads and writes what it reduces, a gather reads this rank's shard, as fast as memory lets it.
        expanded_share = grid.options.expanded_weights
        reduce = np.maximum(reduce, (g.n > 1) * expanded_memory.streamed(grid, 2.0 * expanded_share * gradients))
        gathered = np.maximum(gathered, (shards > 1) * expanded_memory.streamed(grid, expanded_share * moved / shards))
    if np.count_nonzero(options.offload_weights):
        shard = options.offload_weights * parameters / shards / grid.device.host_bandwidth
        reduce = reduce + shard * grid.shape.trained * elements.gradient_wire(grid)
        gathered = gathered + shard * elements.hosted_wire(grid)
    gathered = (options.zero >= 1) * gathered
    cut = (stack.bucket_bytes > 0) | (stack.bucket_parameters > 0) | (options.zero >= 2)
    return ReduceAndGather(
        reduce,
        gathered,
        reduce / np.where(cut, reductions, np.maximum(layers, 1.0)),
        gathered / np.where(gathers > 1, gathers, np.maximum(layers, 1.0)),
    )


def exposed(grid: Grid, split: StageSplit, flow: Flow) -> Figure:
    """Seconds of data-parallel communication that nothing hides, and of :func:`copies`.

    Reductions run beside a backward pass, gathers beside a forward pass; with overlap on, what is hidden is at most
    ``overlap x`` that pass, and the last bucket always shows. Sharded parameters (ZeRO 3) are
    gathered before and reduced after every micro-batch; otherwise once a step.
    """
    return exposed_traffic(grid, most_held(grid, split), split.first, flow.forward, flow.backward)


def most_held(grid: Grid, split: StageSplit) -> ShardedState:
    """The most dense and the most expert parameters that a stage holds: what the slowest reduction moves."""
    stages = extremes(grid.shape, grid.layout, split)
    held = stage_parameters(grid, split)
    return ShardedState(most(stages, [stage.dense for stage in held]), most(stages, [stage.experts for stage in held]))


def exposed_traffic(grid: Grid, held: ShardedState, layers: Figure, forward: Figure, backward: Figure) -> Figure:
    """As :func:`exposed`, of `held` parameters beside passes of so many seconds over so many layers."""
    shown = data_parallel_traffic(grid, held, layers, forward, backward)
    return shown.reductions * shown.late + shown.gathers * shown.early + shown.copied


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
    copied: Figure
    """Seconds a step of :func:`copies`, beside which nothing computes."""


def data_parallel_traffic(
    grid: Grid, held: ShardedState, layers: Figure, forward: Figure, backward: Figure
) -> DataParallelTraffic:
    """The communication whose exposed seconds :func:`exposed` adds up; passes are seconds over `layers` layers.

    ``late`` of ``reduce + z3 gather`` beside a backward pass and ``early`` of ``gather`` beside a forward one, as
    :func:`overlap.shown` has it: the last call of one and the first of the other always show, and the runtime's share
    of a pass can hide the others.
    """
    layout, options, stack = grid.layout, grid.options, grid.stack
    r = replicas(grid)
    dense = _reduce_and_gather(grid, held.dense, r.dense, r.dense_shards, layers)
    both = dense + _reduce_and_gather(grid, held.experts, r.experts, r.expert_shards, layers)
    whole = options.zero >= 3
    steps = micro_batches(layout)
    reductions = np.where(options.zero >= 2, steps, 1.0)
    gathers = np.where(whole | ((options.zero >= 2) & (stack.gathers_working_copy > 0)), steps, 1.0)
    gathers = gathers * (1.0 + whole * grid.shape.reference)
    overlapping = options.dp_overlap * (1.0 - at_once(grid))
    beside_forward = options.dp_overlap * (1.0 - summed_whole(grid))
    toll = grid.device.collective_share
    last = both.last_reduce + whole * both.first_gather
    others = both.reduce + whole * both.gather - last
    late = last + collective_times.shown(others, stack.dp_overlap * backward, overlapping, toll)
    others = both.gather - both.first_gather
    early = both.first_gather + collective_times.shown(others, stack.dp_overlap * forward, beside_forward, toll)
    copied: Figure = 0.0
    if np.count_nonzero(stack.copies_gathered + stack.copies_gradients):
        out, into = copies(grid, held, r)
        copied = reductions * (into + whole * out) + gathers * out
    return DataParallelTraffic(reductions, late, gathers, early, whole, copied)


def copies(grid: Grid, held: ShardedState, r: Replicas) -> tuple[Figure, Figure]:
    """Seconds that kernels between those of a pass copy what is gathered (ZeRO 3) out of one buffer, ``2 gathered bytes
    / memory rate``, and gradients (ZeRO 2, 3) into one, ``(e + g) parameters / memory rate``: `e` bytes as a pass makes
    them, `g` as they are reduced.

    Source: pytorch@010ae4a8, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_all_gather_copy_out and
    foreach_reduce_scatter_copy_in, both in the current stream; FSDP 1 has the second alone, the gradient of the split
    of its flat parameter (_flat_param.py, _get_unflat_views_unaligned).
    """
    zero = grid.options.zero
    shared = (r.dense_shards > 1) * held.dense + (r.expert_shards > 1) * held.experts
    gathered = grid.stack.copies_gathered * (zero >= 3) * 2.0 * gathered_bytes(grid, shared)
    reduced = grid.device.element * shared * grid.shape.trained + gradient_bytes(grid, shared)
    reduced = grid.stack.copies_gradients * (zero >= 2) * reduced
    return gathered / grid.device.memory_rate, reduced / grid.device.memory_rate


def update(grid: Grid, split: StageSplit) -> Figure:
    """Seconds of the optimizer step: its traffic over this rank's shard, or over the host link for the share of states
    that lives there (one after the other: Megatron-LM core_v0.16.1, optimizer/cpu_offloading/hybrid_optimizer.py), or
    in part over expanded memory; and of :func:`putting_together` what shards of it give, or of Muon's iterations.

    Where copies overlap, gradients out, the host's update, weights back and the accelerator's own update run at once,
    parameter by parameter: the longest of them counts.
    """
    options = grid.options
    s = grid.shape
    r = replicas(grid)
    on_host, on_device = update_rates(grid)
    away = options.offload
    seconds = np.where(away > 0, away * on_host + (1.0 - away) * on_device, on_device)
    if np.count_nonzero(options.offload_overlap):
        sent = np.maximum(elements.gradient_wire(grid), elements.parameter_wire(grid))
        longest = away * np.maximum(sent, elements.step_bytes(grid)) / grid.device.host_bandwidth
        seconds = np.where(options.offload_overlap > 0, np.maximum(longest, (1.0 - away) * on_device), seconds)
    if np.count_nonzero(s.orthogonal):
        stages = extremes(s, grid.layout, split)
        dense_shards = np.where(options.zero >= 1, r.dense_shards, 1.0)
        outside = s.outside_step_bytes / grid.device.memory_rate / dense_shards
        update_s = [
            mine * s.trained * seconds + held.ends * outside + muon.orthogonal_seconds(grid, x, r.shards)
            for mine, held, x in zip(_updated(grid, split, r), stage_parameters(grid, split), stages, strict=True)
        ]
        return most(stages, update_s) + putting_together(grid, split, r)
    return updated_parameters(grid, split) * seconds + putting_together(grid, split, r)


def update_rates(grid: Grid) -> tuple[Figure, Figure]:
    """Seconds of a parameter's update: on the host, one copy after the other, and on the accelerator. Weights that live
    on the host, and gradients, cross the link in passes.
    """
    sent = elements.gradient_wire(grid) + elements.parameter_wire(grid)
    moved = (1.0 - grid.options.offload_weights) * sent + elements.step_bytes(grid)
    return moved / grid.device.host_bandwidth, expanded_memory.update(grid) * layer_times.update_factor(grid)


def updated_parameters(grid: Grid, split: StageSplit) -> Figure:
    """Trained parameters that one rank updates, on the stage with the most of them."""
    stages = extremes(grid.shape, grid.layout, split)
    return most(stages, _updated(grid, split, replicas(grid))) * grid.shape.trained


def _updated(grid: Grid, split: StageSplit, r: Replicas) -> list[Figure]:
    """Parameters of each stage that one rank updates, were all of them trained."""
    zero = grid.options.zero
    dense_shards = np.where(zero >= 1, r.dense_shards, 1.0)
    expert_shards = np.where(zero >= 1, r.expert_shards, 1.0)
    return [stage.dense / dense_shards + stage.experts / expert_shards for stage in stage_parameters(grid, split)]


def putting_together(grid: Grid, split: StageSplit, r: Replicas) -> Figure:
    """Seconds that the host takes to put gathered parameters together slice by slice: ``layers ranks launches`` a step.

    A gather into lists has one slice for each tensor and rank; each is cut out of its parameter, selected from what
    arrived, and copied (huggingface/nanotron 069c21cf, optim/zero.py, _all_gather_params; pytorch,
    ProcessGroupNCCL::allgather).
    """
    launches = split.first * grid.stack.gather_launches * (r.dense_shards > 1) * r.dense_shards
    return (grid.options.zero >= 1) * launches * grid.device.launch
