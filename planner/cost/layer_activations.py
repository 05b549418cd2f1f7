"""Activations: bytes that one transformer layer keeps of one micro-batch for its backward pass.

The bytes follow Korthikanti et al. 2022 (arXiv 2205.05198): for their block (MLP 4h, multi-head attention, dropout,
stored scores) the sum is ``s b h (34 + 5 a s / h)``, of which ``10 s b h`` is not split by tensor parallelism alone;
other blocks are the same sum over other widths. How many micro-batches are in flight on a stage:
:mod:`planner.cost.stage_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import elements, hyper_connections
from planner.cost.attention import kv_width
from planner.cost.experts import routed_copies, width
from planner.cost.figures import Figure, Grid, Options
from planner.cost.micro_batch import sequence_shard, tokens
from planner.cost.recurrent import kept_bytes


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes per layer and micro-batch."""

    full: Figure
    """Everything the backward pass reads."""
    kept: Figure
    """What the recomputation policy keeps, on average over layers."""
    again: Figure
    """What the backward pass of one layer computes again at once."""
    moved: Figure = 0.0
    """What is kept in host memory, beside that ..."""
    staged: Figure = 0.0
    """... and what of all layers is on the accelerator on its way there or back."""


OFFLOADING = tuple(name for name in Options.__dataclass_fields__ if name.startswith("offload_"))[1:]
"""Modules whose inputs can live in host memory: fields of the options."""
MARGIN = 2.0
"""Inputs of a module that are on the accelerator at most: the last ones stay, so that the backward pass does not wait,
and those of one module are copied (Megatron-LM d98e8a64, core/pipeline_parallel/fine_grained_activation_offload.py,
post_warmup_callback, bulk_reload)."""
STASH = 5.0
"""Tensors on their way where all are copied (huggingface/trl, models/activation_offloading.py, max_fwd_stash_size)."""


def offloads(grid: Grid) -> bool:
    """Whether any option has activations in host memory."""
    return any(np.count_nonzero(getattr(grid.options, name)) for name in OFFLOADING)


def hidden_shard(grid: Grid) -> Figure:
    """Ranks that share a stored hidden state."""
    return np.where(grid.stack.shards_hidden > 0, grid.layout.tp, sequence_shard(grid))


def layer_activations(grid: Grid, moe: Figure, *, fused: Figure | None = None) -> Activations:
    """Bytes one layer stores for one micro-batch.

    Outside tensor-parallel regions: inputs of two norms and two blocks, 8 h a token, and two dropout masks; half of
    that where a layer has one block alone. Inside: query, key, value and output of attention (a gate, and what it
    gives) or what a recurrence keeps, inner activations of the MLP (before and after its function), and unless the
    kernel is fused the scores, ``5 a s^2 b`` with dropout (4 without). In 32 bit all but masks takes twice as much.

    Where a framework keeps what matrix products read as it was cast, inputs of 8-bit products take one byte: of two
    blocks, of the output projection, of the MLP's second product; adapters read and keep 16 bit. What a product with
    frozen weights reads is kept only where an adapter reads it too (:mod:`planner.cost.frozen`); a trained magnitude
    (:mod:`planner.cost.fine_tuning`) keeps what it scales: the base's result and the adapters'.

    Recomputed modules (Megatron-LM core_v0.16.1) drop what latents expand to (core/transformer/
    multi_latent_attention.py, qkv_up_checkpoint), what the function of routed experts gives (moe/experts.py,
    activation_checkpoint), outputs of norms before latents and experts, or all of a dense MLP or of a mixture beside
    its input (transformer_layer.py, input_layernorm_checkpoint, pre_mlp_norm_checkpoint, recompute_mlp;
    moe/moe_layer.py, moe_layer_recompute).

    Inputs of modules in host memory leave the accelerator but for those on their way (:data:`MARGIN`,
    :data:`STASH`); a product that a norm is fused with reads what the norm does, too. Transformer Engine's CUDA graphs
    of modules copy what a layer reads into a buffer of their own, one a layer and micro-batch in flight, until its
    backward pass (Megatron-LM d98e8a64, core/transformer/cuda_graphs.py, _get_sample_arguments); one of a whole step
    has buffers of tokens alone (core/full_cuda_graph.py).
    """
    s, layout, options, stack = grid.shape, grid.layout, grid.options, grid.stack
    fused = stack.fused_attention if fused is None else fused
    t = tokens(grid)
    wide = elements.wide(grid)
    shard = hidden_shard(grid)
    cast = grid.device.low_precision * stack.keeps_cast_inputs
    halves = 0.5 * (s.mixing_share + 1.0 - s.idle_share)
    norms = halves * 4.0 * wide * t * s.hidden / shard
    trained_cast = cast * s.weight_gradient
    inputs = halves * (4.0 * wide - 2.0 * trained_cast + 2.0 * s.dropout) * t * s.hidden / shard
    queries = 2.0 * s.heads * np.maximum(s.qk_dim, s.v_dim) * (1.0 + s.attention_gate)
    heads = 2.0 * wide * t * ((queries + s.output_width) / layout.tp + kv_width(grid) + s.entries_kept)
    crossed = s.attention_share * (1.0 + s.cross_share)
    attention = (heads - trained_cast * t * s.heads * s.v_dim / layout.tp) * crossed
    attention = attention + s.recurrent_share * kept_bytes(grid)
    scores = crossed * (1.0 - fused) * (4.0 * wide + s.dropout) * t * s.sequence * s.heads / layout.tp
    copies = routed_copies(grid)
    before = (2.0 * wide - options.function_in_8_bit) * (1.0 + s.gated)
    after = 2.0 * wide - trained_cast
    dense = t * s.ffn / layout.tp
    shared = t * s.shared_ffn / layout.tp
    routed = copies * s.expert_ffn / layout.etp
    plain = 1.0 - moe - s.idle_share
    inner = plain * dense + moe * (shared + routed)
    dispatched = moe * after * copies * width(grid)
    linear = attention + before * inner + dispatched
    read = s.reads_inner * after * inner
    linear = linear - (1.0 - s.reads_mlp_input) * dispatched + 2.0 * 2.0 * wide * t * s.magnitude_outputs
    unread = (1.0 - s.reads_input) * s.mixing_share + (1.0 - s.reads_mlp_input) * (1.0 - s.idle_share)
    unread = unread * (2.0 * wide - trained_cast) * t * s.hidden / shard
    full = norms + inputs + linear + read + scores - unread + hyper_connections.kept_bytes(grid, shard)
    dropped = stack.drops_scores * scores + stack.drops_activation * read + stack.drops_norms * norms
    dropped = dropped + stack.drops_linear * 0.5 * linear - stack.unread_outputs * 2.0 * wide * t * s.hidden / shard
    # What is dropped twice over counts once.
    linears = 1.0 - options.recompute_selective * 0.5 * stack.drops_linear
    functions = 1.0 - options.recompute_selective * stack.drops_activation
    dropped = dropped + linears * stack.drops_kernel * after * t * s.heads * s.v_dim / layout.tp * crossed
    expanded = s.heads * s.qk_dim / layout.tp + kv_width(grid) - s.query_rank - s.kv_rank
    latents = linears * (s.kv_rank > 0) * 2.0 * wide * t * np.maximum(expanded, 0.0) * s.attention_share
    norm = (2.0 * wide - trained_cast) * t * s.hidden / shard
    function = moe * s.reads_inner * (1.0 - stack.drops_activation) * after * routed
    whole = plain * (linears * before * dense + functions * s.reads_inner * after * dense + s.reads_mlp_input * norm)
    normed = ((s.kv_rank > 0) * s.attention_share * s.reads_input + moe * s.reads_mlp_input) * norm
    modules = options.recompute_latents * latents + options.recompute_function * function
    modules = modules + options.recompute_norms * normed + options.recompute_mlp * whole
    if np.count_nonzero(options.recompute_mixture):
        mixture = linears * (before * moe * (shared + routed) + s.reads_mlp_input * dispatched)
        mixture = mixture + functions * s.reads_inner * after * moe * (shared + routed)
        modules = modules + options.recompute_mixture * (mixture - options.recompute_function * function)
    share = options.recompute_layers
    some = full - options.recompute_selective * dropped - modules
    stored = 2.0 * wide * t * s.streams * s.hidden / shard
    inputs_only = np.maximum(share, options.recompute_offloaded)
    again = np.maximum((share > 0) * full, modules)
    kept = s.backward_share * (inputs_only * stored + (1.0 - inputs_only) * some)
    if np.count_nonzero(options.graph_inputs):
        kept = kept + options.graph_inputs * s.backward_share * stored
    if not offloads(grid):
        return Activations(full, kept, again)
    latent = s.kv_rank > 0
    fused = s.attention_share * 2.0 * wide * t * s.hidden / shard
    queries_keys_values = (
        2.0 * wide * t * (s.heads * np.maximum(s.qk_dim, s.v_dim) / layout.tp + kv_width(grid)) * crossed
    )
    named = options.offload_attn_norm * latent * fused
    named = named + options.offload_qkv_linear * s.attention_share * s.reads_input * np.where(
        latent, (1.0 - options.recompute_norms) * norm, norm + 2.0 * wide * t * s.hidden / shard
    )
    named = (
        named + options.offload_core_attn * np.where(latent, 1.0 - options.recompute_latents, 1.0) * queries_keys_values
    )
    named = named + options.offload_attn_proj * after * t * s.heads * s.v_dim / layout.tp * crossed
    named = named + options.offload_mlp_norm * moe * 2.0 * wide * t * s.hidden / shard
    named = named + options.offload_expert_fc1 * s.reads_mlp_input * dispatched
    named = named + options.offload_moe_act * before * moe * routed
    whole_layer = options.offload_all > 0
    moved = np.where(whole_layer, kept, np.minimum(s.backward_share * named, kept))
    widest = np.maximum(
        s.hidden / shard, (1.0 - inputs_only) * np.maximum(s.ffn / layout.tp, copies * s.expert_ffn / layout.etp / t)
    )
    staged = np.where(whole_layer, STASH * 2.0 * wide * t * widest, MARGIN * moved)
    return Activations(full, kept - moved, again, moved, staged)
