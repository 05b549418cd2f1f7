"""Bytes held by one accelerator: parameters, gradients, optimizer states, activations in flight, buffers.

Activations of a layer follow Korthikanti et al. 2022 (arXiv 2205.05198): for their block (MLP 4h, multi-head attention,
dropout, stored scores) the sum is ``s b h (34 + 5 a s / h)``, of which ``10 s b h`` is not split by tensor parallelism
alone; other blocks are the same sum over other widths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import compute
from planner.cost.figures import Figure, Grid
from planner.cost.pipeline import Split, leading_layers, micro_batches, whole_stage
from planner.cost.sharding import Held, replicas, stage_parameters


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes per layer and micro-batch."""

    full: Figure
    """Everything the backward pass reads."""
    kept: Figure
    """What the recomputation policy keeps, on average over layers."""


def layer_activations(grid: Grid, moe: Figure, *, fused: Figure | None = None) -> Activations:
    """Bytes one layer stores for one micro-batch.

    Outside tensor-parallel regions: inputs of two norms and two blocks, 8 h a token, and two dropout masks. Inside:
    query,
    key, value and output of attention, inner activations of the MLP (before and after its function), and unless the
    kernel is fused the scores, ``5 a s^2 b`` with dropout (4 without).
    """
    s, layout, options, stack = grid.shape, grid.layout, grid.options, grid.stack
    fused = stack.fused_attention if fused is None else fused
    t = compute.tokens(grid)
    shard = compute.sequence_shard(grid)
    norms = 4.0 * t * s.hidden / shard
    inputs = (4.0 + 2.0 * s.dropout) * t * s.hidden / shard
    attention = 2.0 * t * (2.0 * s.heads * np.maximum(s.qk_dim, s.v_dim) / layout.tp + compute.kv_width(grid))
    attention = attention * (1.0 + s.cross_share)
    scores = (1.0 - fused) * (4.0 + s.dropout) * t * s.sequence * s.heads / layout.tp * (1.0 + s.cross_share)
    copies = compute.routed_copies(grid)
    before, after = 2.0 * (1.0 + s.gated), 2.0
    dense = t * s.ffn / layout.tp
    shared = t * s.shared_ffn / layout.tp
    routed = copies * s.expert_ffn / layout.etp
    inner = (1.0 - moe) * dense + moe * (shared + routed)
    dispatched = moe * 2.0 * copies * s.hidden
    linear = attention + before * inner + dispatched
    full = norms + inputs + linear + after * inner + scores
    dropped = stack.drops_scores * scores + stack.drops_activation * after * inner + stack.drops_norms * norms
    dropped = dropped + stack.drops_linear * 0.5 * linear
    share = options.recompute_layers
    some = full - options.recompute_selective * dropped
    stored = 2.0 * t * s.hidden / shard
    return Activations(full, share * stored + (1.0 - share) * some)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the accelerator of one stage."""

    parameters: Figure
    gradients: Figure
    optimizer: Figure
    activations: Figure
    buffers: Figure
    """Logits, a layer being recomputed or gathered."""
    resident: Figure
    """Context, communicators, workspaces."""

    @property
    def total(self) -> Figure:
        """All of it."""
        return self.states + self.live

    @property
    def states(self) -> Figure:
        """What does not depend on activations."""
        return self.parameters + self.gradients + self.optimizer + self.resident

    @property
    def live(self) -> Figure:
        """What does."""
        return self.activations + self.buffers


def _states(grid: Grid, held: Held) -> tuple[Figure, Figure, Figure]:
    """Parameters, gradients and optimizer states of one stage: each divided by the shards from its ZeRO stage on."""
    s, stack, zero = grid.shape, grid.stack, grid.options.zero
    r = replicas(grid)

    def bytes_of(each: Figure, from_stage: float) -> Figure:
        on = zero >= from_stage
        return each * (
            held.dense / np.where(on, r.dense_shards, 1.0) + held.experts / np.where(on, r.expert_shards, 1.0)
        )

    resident = (1.0 - stack.gathers_working_copy * (zero >= 3)) * stack.parameter_bytes
    master = s.master_bytes * np.where(stack.gathers_working_copy > 0, 1.0, s.trained)
    optimizer = (s.state_bytes * s.trained + master) * (1.0 - grid.options.offload)
    return bytes_of(resident, 3.0), bytes_of(stack.gradient_bytes * s.trained, 2.0), bytes_of(optimizer, 1.0)


def in_flight(grid: Grid, split: Split) -> tuple[Figure, Figure, Figure]:
    """Micro-batches whose activations the first, a middle and the last stage hold, in units of all their layers.

    1F1B: stage i holds ``min(M, pp - i)``. Interleaved: ``pp (1 + (pp - 1) / (pp vpp))`` on the first, two chunk-passes
    fewer a stage. The middle stage is the first without leading dense layers.
    """
    layout = grid.layout
    steps = micro_batches(layout)
    interleaved = layout.vpp > 1
    first = layout.pp + interleaved * (layout.pp - 1.0) / layout.vpp
    index = whole_stage(grid.shape, layout, split)
    second = first - index * np.where(interleaved, 2.0 / layout.vpp, 1.0)
    last = np.where(interleaved, layout.pp * (layout.vpp - 1.0) / layout.vpp + 1.0 / layout.vpp, 1.0)
    return np.minimum(first, steps), np.minimum(np.maximum(second, 1.0), steps), np.minimum(last, steps)


def stages(grid: Grid, split: Split) -> tuple[Memory, Memory, Memory]:
    """Memory of the first stage, the fullest middle one and the last; the accelerator must hold the largest."""
    s, layout, stack, device = grid.shape, grid.layout, grid.stack, grid.device
    body, leading = layer_activations(grid, s.moe_share), layer_activations(grid, 0.0)
    t = compute.tokens(grid)
    logits = t * s.vocab / layout.tp * stack.logit_copies
    again = (grid.options.recompute_layers > 0) * body.full
    per_layer = (
        s.attention_parameters + (1.0 - s.moe_share) * s.mlp_parameters + s.moe_share * s.shared_parameters
    ) / layout.tp
    per_layer = per_layer + s.moe_share * s.experts * s.expert_parameters / (layout.ep * layout.etp)
    gathered = (grid.options.zero >= 3) * 2.0 * stack.parameter_wire * per_layer
    casts = device.low_precision * 2.0 * per_layer
    alone = layout.pp <= 1
    lead = leading_layers(s, layout, split)
    flying = in_flight(grid, split)
    held = stage_parameters(grid, split)
    layers = (split.first - lead, split.middle, split.last)
    found = []
    for index, (micro, n, own) in enumerate(zip(flying, layers, held, strict=True)):
        parameters, gradients, optimizer = _states(grid, own)
        activations = micro * n * body.kept
        if index == 0:
            activations = activations + micro * lead * leading.kept
            activations = activations + micro * s.dropout * t * s.hidden / compute.sequence_shard(grid)
        spare = again + gathered + casts + ((index == 2) | alone) * logits
        exists = 1.0 if index == 0 else layout.pp > (2 if index == 1 else 1)
        found.append(
            Memory(
                exists * parameters,
                exists * gradients,
                exists * optimizer,
                exists * activations * stack.activation_factor,
                exists * spare * stack.activation_factor,
                exists * stack.resident_bytes,
            )
        )
    return found[0], found[1], found[2]


def largest(memories: tuple[Memory, Memory, Memory]) -> Figure:
    """Bytes on the fullest stage."""
    first, second, last = memories
    return np.maximum(first.total, np.maximum(second.total, last.total))
