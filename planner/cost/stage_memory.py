"""Bytes held by one accelerator: parameters, gradients, optimizer states, activations in flight, buffers.

What one layer keeps of one micro-batch: :mod:`planner.cost.layer_activations`.

So much of an accelerator may be planned for that it runs out of memory no more often than a stated risk. A true peak is
taken to lie around the predicted one as a logistic variable of its logarithm: its 80 % interval is measured
(:mod:`planner.figures.conformal_intervals`), its tails are heavier than a normal one's, since few runs were measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from planner.cost import elements, expanded_memory, experts, frozen, split_schedules, tower
from planner.cost.data_parallel import Replicas, ShardedState, blocks_of_stage, replicas, stage_parameters
from planner.cost.figures import Figure, Grid, by_kind
from planner.cost.layer_activations import Activations, hidden_shard, layer_activations
from planner.cost.micro_batch import tokens
from planner.cost.pipeline import StageLayers, StageSplit, extremes, micro_batches, together, with_head

TAIL = math.log(9.0)
"""Log odds at the end of an 80 % interval: a tenth lies beyond it, nine tenths do not."""
MOST = 0.5
"""At this risk the predicted peak, the median, is compared with the capacity: there is no slack to give up beyond."""


def usable(capacity: float, half_width: float, risk: float) -> float:
    """Bytes that a predicted peak may reach: ``capacity exp(-w ln((1 - r) / r) / ln 9)``; all of it at a risk of 50 %.

    `half_width` is that of the peak's 80 % interval, on a log scale.
    """
    return capacity * math.exp(-half_width * math.log((1.0 - risk) / risk) / TAIL)


def chance(held: float, capacity: float, half_width: float) -> float:
    """Chance that the true peak exceeds the capacity: ``1 / (1 + (capacity / held)^(ln 9 / w))``."""
    if half_width <= 0.0:
        return MOST if held == capacity else float(held > capacity)
    odds = TAIL * math.log(capacity / held) / half_width
    return 1.0 / (1.0 + math.exp(min(odds, 700.0)))


_WAITING = 4.0
"""Bytes of a logit that a loss keeps for its backward pass."""


PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers", "copies", "resident")
"""Fields of :class:`Memory` that add up to what the accelerator's own memory holds."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Bytes in one accelerator's part of the expanded memory."""

    parameters: Figure = 0.0
    gradients: Figure = 0.0
    optimizer: Figure = 0.0
    activations: Figure = 0.0

    @property
    def total(self) -> Figure:
        """All of them."""
        return self.parameters + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the accelerator of one stage."""

    parameters: Figure
    gradients: Figure
    optimizer: Figure
    activations: Figure
    buffers: Figure
    """The loss's logits or a layer being worked on, whichever is more; what is gathered."""
    copies: Figure
    """Copies of gradients for the update."""
    resident: Figure
    """Context, communicators, workspaces."""
    expanded: Placed = Placed()
    """In expanded memory, and in none of the figures above."""
    beyond: Figure = 0.0
    """Infinite where that is more than the expanded memory holds, or what is in host memory more than that, else 0."""
    hosted: Figure = 0.0
    """Activations in host memory, and in none of the figures above."""
    hosted_states: Figure = 0.0
    """Optimizer states there, with the fp32 gradients that the host updates them from."""

    @property
    def total(self) -> Figure:
        """All of it that lies in the accelerator's own memory; infinite where the expanded one overflows."""
        return self.states + self.live + self.beyond

    @property
    def states(self) -> Figure:
        """What does not depend on activations."""
        return self.parameters + self.gradients + self.optimizer + self.copies + self.resident

    @property
    def live(self) -> Figure:
        """What does."""
        return self.activations + self.buffers


def _states(grid: Grid, held: ShardedState, r: Replicas) -> tuple[Figure, Figure, Figure, Figure, Figure]:
    """Parameters, gradients, optimizer states and copies for the update of one stage, and what of it is in host
    memory: each divided by the shards from its ZeRO stage on.

    The host has a copy of its own of what it updates, and of gradients in fp32: 16 bytes under Adam (Megatron-LM
    core_v0.16.1, core/optimizer/cpu_offloading/hybrid_optimizer.py; deepspeed/runtime/zero/stage_1_and_2.py,
    estimate_zero2_model_states_mem_needs).
    """
    s = grid.shape
    stack = grid.stack
    zero = grid.options.zero

    def bytes_of(per_parameter: Figure, from_stage: float) -> Figure:
        on = zero >= from_stage
        return per_parameter * (
            held.dense / np.where(on, r.dense_shards, 1.0) + held.experts / np.where(on, r.expert_shards, 1.0)
        )

    resident = (1.0 - stack.gathers_working_copy * (zero >= 3)) * elements.parameter_bytes(grid)
    resident = np.where(s.frozen_bytes > 0, s.frozen_bytes, resident)
    kept = 1.0 - grid.options.offload_weights
    alone = (stack.gathers_working_copy > 0) & (s.frozen_bytes <= 0)
    master = elements.master_bytes(grid) * np.where(alone, 1.0, s.trained)
    on_device = 1.0 - grid.options.offload
    optimizer = (s.state_bytes * s.trained + master) * on_device
    hosted: Figure = 0.0
    if np.count_nonzero(grid.options.offload):
        hosted_bytes = s.state_bytes * s.trained + master + elements.FP32 * s.trained
        hosted = bytes_of(hosted_bytes * grid.options.offload, 1.0)
        hosted = hosted + bytes_of((resident + s.reference_bytes) * grid.options.offload_weights, 3.0)
    outside: Figure = 0.0
    if np.count_nonzero(s.orthogonal):
        outside = s.outside_state_bytes * on_device * held.ends / np.where(zero >= 1, r.dense_shards, 1.0)
    copies: Figure = 0.0
    if np.count_nonzero(stack.update_bytes):
        copies = bytes_of(elements.update_bytes(grid) * s.trained * on_device, 1.0)
    gradients = elements.gradient_bytes(grid) * s.trained * kept
    ends = frozen.beside_blocks(grid) * held.ends / np.where(zero >= 3, r.dense_shards, 1.0)
    return (
        bytes_of((resident + s.reference_bytes) * kept, 3.0) + ends,
        bytes_of(gradients, 2.0),
        bytes_of(optimizer, 1.0) + outside,
        copies,
        hosted,
    )


def in_flight(grid: Grid, index: Figure) -> Figure:
    """Micro-batches whose activations the stage of that index from 0 holds, in units of all its layers.

    1F1B: stage i holds ``min(M, pp - i)``. Interleaved: ``pp (1 + (pp - 1) / (pp vpp))`` on the first, two chunk-passes
    fewer a stage. Others: :func:`planner.cost.split_schedules.moments`.
    """
    layout = grid.layout
    interleaved = layout.vpp > 1
    first = layout.pp + interleaved * (layout.pp - 1.0) / layout.vpp
    flying = np.minimum(
        np.maximum(first - index * np.where(interleaved, 2.0 / layout.vpp, 1.0), 1.0), micro_batches(layout)
    )
    if np.count_nonzero(grid.options.schedule):
        flying = np.where(grid.options.schedule > 0, split_schedules.moments(grid, index)[0][0], flying)
    return flying


def put_off(grid: Grid, stage: StageLayers) -> Figure:
    """Bytes of activations on a rank that computes weight gradients apart, and of what these wait for."""
    kinds = tuple(zip(stage.counts, (0.0, grid.shape.moe_share), strict=True))
    kept = sum(n * layer_activations(grid, moe).kept for n, moe in kinds)
    waiting = sum(n * split_schedules.waiting_bytes(grid, moe) for n, moe in kinds)
    full, drained = (held * kept + off * waiting for held, off in split_schedules.moments(grid, stage.index))
    return np.maximum(full, drained)


def overlapped_layer(grid: Grid, kept: Sequence[Figure]) -> Figure:
    """Bytes that a stage holds beyond what is in flight where experts' exchanges overlap: what one layer has `kept`,
    the model's body layer or the largest of its kinds.

    A chunk's forward pass is made ahead, but then runs layer by layer beside a backward pass that frees one each time
    (Megatron-LM d98e8a64, core/models/common/model_chunk_schedule_plan.py, `run`, `release_state`).
    """
    most = kept[-1] if grid.shape.pattern is None else functools.reduce(np.maximum, kept)
    return grid.options.ep_overlap * most


def loss(grid: Grid) -> Figure:
    """Bytes that turning logits into the loss and its gradient takes at most: ``t V / tp`` times those of one logit."""
    tp = grid.layout.tp
    stack = grid.stack
    logit_bytes = np.where(tp > 1, stack.logit_bytes_split, stack.logit_bytes)
    whole = tokens(grid) * grid.shape.vocab / tp * elements.logit_bytes(grid, logit_bytes)
    return np.where(stack.chunked_loss > 0, np.minimum(chunked_loss(grid), whole), whole)


def chunked_loss(grid: Grid) -> Figure:
    """Bytes of the loss where logits are made in chunks of ``t h / V`` tokens, rounded up to a power of two: at most 2
    t h of them, ``3 e t h`` with the gradient of what the head reads (linkedin/Liger-Kernel,
    ops/fused_linear_cross_entropy.py).
    """
    return 3.0 * grid.device.element * tokens(grid) * grid.shape.hidden


def waiting_losses(grid: Grid) -> Figure:
    """Bytes that losses of multi-token prediction keep while the model's own is computed, whose backward pass comes
    first: each ``t V / tp`` numbers in fp32, or all that a logit takes where that is less.
    """
    kept = _WAITING * tokens(grid) * grid.shape.vocab / grid.layout.tp
    return (grid.shape.losses - 1.0) * np.minimum(loss(grid), kept)


def layer_parameters(grid: Grid) -> Figure:
    """Parameters of one layer on one rank before data-parallel sharding."""
    return frozen.block_parameters(grid, grid.shape.moe_share)


def gathered_parameters(grid: Grid) -> Figure:
    """Parameters that are gathered, and whose gradients are scattered, at a time: a layer's, or one matrix of its MLP
    where a compiler cuts finer.
    """
    s, layout = grid.shape, grid.layout
    dense = ((1.0 - s.moe_share - s.idle_share) * s.mlp_parameters + s.moe_share * s.shared_parameters) / layout.tp
    experts = s.moe_share * s.experts * s.expert_parameters / (layout.ep * layout.etp)
    matrix = np.maximum(dense, experts) / (2.0 + s.gated)
    return np.where(grid.stack.gathers_matrices > 0, matrix, layer_parameters(grid))


@dataclass(frozen=True, slots=True)
class Passing:
    """Bytes that come and go within a step, on top of what is stored."""

    always: Figure
    """A gathered layer and the next one, 8-bit copies of weights, a whole hidden state and its gradient."""
    layer: Figure
    """A layer's backward pass: what is recomputed, and its gradients before they are sharded."""
    loss: Figure
    """Around the loss, on the last stage."""


def passing(grid: Grid, again: Figure) -> Passing:
    """What comes and goes: the loss and a layer's backward pass take turns, so that only the larger counts.

    Sharded weights (ZeRO 3) are gathered a layer ahead, the head's for the loss. Sharded gradients (from ZeRO 2 on) are
    a layer's, as wide as activations, and the copy that is reduced. Sequence-parallel ranks gather a hidden state
    whole, and its gradient before it is scattered, unless overlap passes them on in pieces. `again` is what a layer
    computes again.
    """
    s, options = grid.shape, grid.options
    unit = gathered_parameters(grid)
    t = tokens(grid)
    wire = (options.zero >= 3) * elements.gathered_wire(grid)
    in_pieces = options.sequence_parallel * options.tp_overlap
    gradients = (options.zero >= 2) * s.trained * (grid.device.element + elements.gradient_wire(grid)) * unit
    casts = 2.0 * grid.device.low_precision * layer_parameters(grid)
    casts = casts + frozen.dequantised_bytes(grid)
    return Passing(
        2.0 * wire * unit + casts + (1.0 - in_pieces) * 2.0 * grid.device.element * t * s.hidden,
        again + gradients + _gathered(grid),
        loss(grid) + waiting_losses(grid) + wire * s.head_parameters / grid.layout.tp,
    )


def _gathered(grid: Grid) -> Figure:
    """All ranks' tokens, and their sums, where they are gathered for experts."""
    asked = grid.options.dispatcher
    return 2.0 * experts.gathered_tokens(grid) * (asked == experts.ALL_GATHERED) if np.count_nonzero(asked) else 0.0


def kept_by_layers(grid: Grid) -> tuple[Activations, ...]:
    """What a layer keeps: a leading dense one and another, or one of each kind."""
    if grid.shape.pattern is None:
        return layer_activations(grid, 0.0), layer_activations(grid, grid.shape.moe_share)
    return tuple(layer_activations(kind, kind.shape.moe_share) for kind in by_kind(grid))


def of_layers(grid: Grid) -> tuple[tuple[Activations, ...], Passing]:
    """What layers keep, and the most that comes and goes."""
    kept = kept_by_layers(grid)
    if grid.shape.pattern is None:
        return kept, passing(grid, kept[-1].again)
    transients = [passing(kind, layer.again) for kind, layer in zip(by_kind(grid), kept, strict=True)]
    most = [functools.reduce(np.maximum, values) for values in zip(*(astuple(x) for x in transients), strict=True)]
    return kept, Passing(*most)


def held_by(grid: Grid, split: StageSplit) -> tuple[StageLayers, ...]:
    """The first stage, those between of which one is the fullest, and the last: where weight gradients are apart and
    ranks between hold as many layers, the last of these puts most of them off.
    """
    first, *between, last = extremes(grid.shape, grid.layout, split)
    if np.count_nonzero(grid.options.schedule):
        between = [replace(stage, index=grid.layout.pp - 2.0) for stage in between]
    return first, *between, last


def stages(grid: Grid, split: StageSplit) -> tuple[Memory, ...]:
    """Memory of the first stage, those between of which one is the fullest, and the last
    (:func:`held_by`); the accelerator must hold the largest.
    """
    s, layout, stack = grid.shape, grid.layout, grid.stack
    own_layers, comes = of_layers(grid)
    kept = [layer.kept for layer in own_layers]
    t = tokens(grid)
    r = replicas(grid)
    within = (comes.always + comes.layer) * stack.activation_factor
    at_end = (comes.always + np.maximum(comes.layer, comes.loss)) * stack.activation_factor
    alone = with_head(layout)
    first = np.where(alone, at_end, within) if np.count_nonzero(alone) else within
    if np.count_nonzero(s.tower_parameters):
        first = np.maximum(first, (comes.always + tower.working(grid)) * stack.activation_factor)
    dealt = held_by(grid, split)
    last = np.where(layout.looped > 0, at_end, within) if not np.all(layout.looped) else at_end
    spares = (first, *[within] * (len(dealt) - 2), last)
    memories = []
    for stage, parameters_held, spare in zip(dealt, stage_parameters(grid, split), spares, strict=True):
        micro = in_flight(grid, stage.index)
        exists = stage.exists
        counts = stage.counts
        hosted = 0.0
        activations = together([micro * n for n in counts], kept) + overlapped_layer(grid, kept)
        if any(np.count_nonzero(layer.moved) for layer in own_layers):
            staged, hosted = _moved(own_layers, micro, counts)
            activations = activations + staged
            hosted = exists * hosted
        if np.count_nonzero(grid.options.schedule):
            activations = put_off(grid, stage)
            if stage is dealt[-1]:
                activations = activations + split_schedules.head_waiting_bytes(grid)
        if stage is dealt[0]:
            activations = activations + micro * s.dropout * t * s.hidden / hidden_shard(grid)
            activations = activations + micro * tower.kept(grid) if np.count_nonzero(s.tower_trained) else activations
        parameters, gradients, optimizer, copies, states = (
            exists * state for state in _states(grid, parameters_held, r)
        )
        if stage is dealt[0] and np.count_nonzero(s.tower_parameters):
            parameters = parameters + tower.held(grid)
        memories.append(
            _placed(
                grid,
                Memory(
                    parameters,
                    gradients,
                    optimizer,
                    exists * activations * stack.activation_factor,
                    exists * spare,
                    copies,
                    exists * stack.resident_bytes,
                    beyond=_beyond_host(grid, hosted + states),
                    hosted=hosted,
                    hosted_states=states,
                ),
            )
        )
    return tuple(memories)


def _beyond_host(grid: Grid, hosted: Figure) -> Figure:
    """Infinite where so many bytes of every accelerator are more than its node's host memory holds, else 0."""
    return np.where(hosted > grid.network.host_memory, np.inf, 0.0) if np.count_nonzero(hosted) else 0.0


def _moved(layers: Sequence[Activations], micro: Figure, counts: Sequence[Figure]) -> tuple[Figure, Figure]:
    """Bytes of offloaded activations that a stage of so many layers of each kind holds on their way, and those in host
    memory.
    """
    both = micro * together(counts, [layer.moved for layer in layers])
    staged = [(n > 0) * layer.staged for n, layer in zip(counts, layers, strict=True)]
    on_device = np.minimum(functools.reduce(np.maximum, staged), both)
    return on_device, both - on_device


def middle_stages(grid: Grid, stage: StageLayers) -> list[Memory]:
    """Memory of every stage of one plan between its first and its last, part by part, each a number.

    Args:
        grid: The plan, each figure a scalar.
        stage: These stages as columns (:func:`planner.cost.pipeline.inner_stages`).
    """
    layers, comes = of_layers(grid)
    micro = in_flight(grid, stage.index)
    kept = [layer.kept for layer in layers]
    parameters, gradients, optimizer, copies, _ = _states(grid, blocks_of_stage(grid, stage), replicas(grid))
    factor = grid.stack.activation_factor
    activations = micro * together(stage.counts, kept) + overlapped_layer(grid, kept)
    activations += _moved(layers, micro, stage.counts)[0]
    if np.count_nonzero(grid.options.schedule):
        activations = put_off(grid, stage)
    whole = Memory(
        parameters,
        gradients,
        optimizer,
        activations * factor,
        (comes.always + comes.layer) * factor,
        copies,
        grid.stack.resident_bytes,
    )
    local = _placed(grid, whole)

    def at(index: int) -> Memory:
        parts: dict[str, Any] = {name: _of(getattr(local, name), index) for name in PARTS}
        return Memory(**parts)

    return [at(index) for index in range(len(stage.index))]


def _of(figure: Figure, index: int) -> float:
    return float(np.ravel(np.asarray(figure, dtype=float))[index if np.size(figure) > 1 else 0])


def _placed(grid: Grid, whole: Memory) -> Memory:
    """What stays in the accelerator's own memory: each kind less the share that lies in expanded memory."""
    if grid.expanded is None:
        return whole
    o = grid.options
    expanded = Placed(
        o.expanded_weights * whole.parameters,
        o.expanded_weights * whole.gradients,
        o.expanded_optimizer * whole.optimizer,
        o.expanded_activations * whole.activations,
    )
    return replace(
        whole,
        parameters=whole.parameters - expanded.parameters,
        gradients=whole.gradients - expanded.gradients,
        optimizer=whole.optimizer - expanded.optimizer,
        activations=whole.activations - expanded.activations,
        expanded=expanded,
        beyond=whole.beyond + np.where(expanded.total > expanded_memory.room(grid), np.inf, 0.0),
    )


def largest(memories: Sequence[Memory]) -> Figure:
    """Bytes on the fullest stage."""
    most = memories[0].total
    for other in memories[1:]:
        most = np.maximum(most, other.total)
    return most
