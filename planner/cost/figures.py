"""The figures that the cost functions read: of one plan (scalars), a table of runs (columns), or a search (open grids).

Functions of this package only add, multiply, compare and broadcast them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.second_memory import Expansion

Figure = Any
"""A float, or an array of floats that broadcasts against the others."""
Array = NDArray[np.float64]
Topology = Literal["ring", "switch", "fully-connected", "torus"]


@dataclass(frozen=True, slots=True)
class NetworkDimension:
    """One dimension of a network as collectives find it."""

    topology: Topology
    size: float
    """Ranks along it."""
    rate: float
    """B/s of one rank, one direction, all its links of this dimension together."""
    latency: float
    """Seconds of a hop."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A network, innermost dimension first."""

    along: tuple[NetworkDimension, ...]
    chunks: float = 4.0
    """Pieces that a collective is cut into."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A workload: sizes of the model, and parameters by how they are sharded. Counts, elements, bytes."""

    layers: Figure
    leading_dense: Figure
    """Layers at the start with a dense MLP in a mixture-of-experts model."""
    moe_share: Figure
    """Share of the layers after those whose MLP is a mixture of experts."""
    hidden: Figure
    ffn: Figure
    """Inner width of the dense MLP."""
    gated: Figure
    """1: three MLP matrices, 0: two."""
    heads: Figure
    kv_heads: Figure
    qk_dim: Figure
    """Width of a head's query and key."""
    v_dim: Figure
    """Width of a head's value."""
    query_rank: Figure
    """Latent width of queries (latent attention), else 0."""
    kv_rank: Figure
    """Latent width of keys and values with the shared rotary part (latent attention), else 0."""
    kv_latent: Figure
    """Width of the latent that is expanded again (without the rotary part)."""
    kv_up: Figure
    """Width that the key/value latent expands to, all heads (latent attention), else 0."""
    vocab: Figure
    losses: Figure
    """Times that the head and its loss are computed: 1, and once more for each multi-token prediction module."""
    sequence: Figure
    """Tokens per sequence."""
    attended: Figure
    """Mean positions that a token attends to, over layers: half the sequence if causal, less with windows."""
    text: Figure
    """Tokens of the text that attention keeps to: the whole sequence, less where texts are packed into it."""
    attended_full: Figure
    """Positions attended to by kernels that do not skip masked ones: the whole sequence."""
    windowed: Figure = 0.0
    """Share of the layers that attend in which a window cuts what a token attends to."""
    head_layers: Figure = 0.0
    """Layers that the head counts as where stages are cut by cost; 0 where every stage holds as many layers."""
    placed_head: Figure = 0.0
    """Whole layers that the head counts as where the last stage gives up layers for it; 0 where it does not. Whole, as
    Megatron Core counts it (--account-for-loss-in-pipeline-split): less is not worth the memory of other stages."""
    cross_share: Figure
    """Share of the layers that also attend to an encoder."""
    experts: Figure
    experts_per_token: Figure
    expert_ffn: Figure
    shared_ffn: Figure
    imbalance: Figure = 0.0
    """Tokens of the busiest expert rank over an even share; 0: the stack's."""
    expert_groups: Figure = 1.0
    groups_per_token: Figure = 1.0
    """Groups of experts, and how many of them a token's experts are in."""
    expert_hidden: Figure = 0.0
    """Width that routed experts read and give where it is not the model's; 0: it is."""
    attention_share: Figure = 1.0
    recurrent_share: Figure = 0.0
    mixing_share: Figure = 1.0
    idle_share: Figure = 0.0
    """Shares of the layers: that do attention, that carry a state along the sequence, that do one of these or both, and
    that have no MLP of any kind (leading dense ones have)."""
    ends_in_product: Figure = 1.0
    """1 where nothing behind the last product of a dense MLP (a norm, dropout, adapters) reads what it gives."""
    reused_keys: Figure = 0.0
    """Width of keys that are values, too, the mean over layers that attend: no product makes these values."""
    attention_gate: Figure = 0.0
    """1 if what attention gives is gated, as wide as queries."""
    index_products: Figure = 0.0
    """Multiply-adds of a token with the matrices of sparse attention's index ..."""
    index_width: Figure = 0.0
    """... and with each position that it scores."""
    output_rank: Figure = 0.0
    """Width of one group's outputs before the product that makes the model's width, ..."""
    output_width: Figure = 0.0
    """... and of all groups' together; 0: one product makes it at once."""
    entries_kept: Figure = 0.0
    """Elements of a token that make compressed entries (the backward pass reads them), mean of layers that attend."""
    streams: Figure = 1.0
    """Residual streams (:mod:`planner.cost.hyper_connections`)."""
    recurrent_first: Figure = 0.0
    """Width of the product before a recurrence ..."""
    recurrent_inner: Figure = 0.0
    """... and of what it gives; ..."""
    recurrent_between: Figure = 0.0
    """... multiply-adds of a token with matrices in between ..."""
    recurrent_work: Figure = 0.0
    """... with the state ..."""
    recurrent_chunked: Figure = 0.0
    """... and of these as kernels do them, in chunks; ..."""
    recurrent_moved: Figure = 0.0
    """... elements of a token that its kernels move ..."""
    recurrent_kept: Figure = 0.0
    """... and that its backward pass reads."""
    clamped_experts: Figure = 0.0
    """1 if experts' function clamps what it reads (gpt-oss) ..."""
    biased_experts: Figure = 0.0
    """... and if their products have biases."""
    dropout: Figure
    """1 if dropout masks are kept."""
    embedding_parameters: Figure
    """Token embedding and position tables, held by the first stage."""
    head_parameters: Figure
    """Output projection held by the last stage (the embedding again, if tied and on another stage)."""
    tied: Figure
    final_parameters: Figure
    """The norm before the head, on the last stage."""
    attention_parameters: Figure
    """Per layer, with norms: sharded over tensor-parallel ranks."""
    mlp_parameters: Figure
    """Per layer with a dense MLP."""
    shared_parameters: Figure
    """Per mixture layer: router and shared experts."""
    expert_parameters: Figure
    """One routed expert."""
    trained: Figure
    """Share of the parameters that is trained."""
    weight_gradient: Figure
    """1 if weight gradients of the base matrices are computed (0: LoRA)."""
    reads_input: Figure = 1.0
    """1 if the backward pass reads what query, key and value products read (their weights or adapters train) ..."""
    reads_mlp_input: Figure = 1.0
    """... what an MLP's first product reads ..."""
    reads_inner: Figure = 1.0
    """... and what its second one reads."""
    frozen_bytes: Figure = 0.0
    """Bytes of a frozen parameter of a block as it is kept; 0: as trained ones are."""
    quantised: Figure = 0.0
    """1 if these are fewer than a product reads: weights are dequantised for every pass."""
    adapter_flops: Figure
    """Products of adapters in all three passes (6 a) over the base matrices' in two (4 N): LoRA."""
    backward_share: Figure = 1.0
    """Share of the layers behind the first that is trained: those before have no backward pass."""
    reference: Figure = 0.0
    """Forward passes beside, through the model as it was (DPO) ..."""
    reference_bytes: Figure = 0.0
    """... and bytes of one of its parameters, where it is another copy."""
    magnitude_elements: Figure = 0.0
    """Elements of a layer's matrices whose outputs have trained magnitudes (DoRA), mean over layers, ..."""
    magnitude_inputs: Figure = 0.0
    """... their squared inputs, ..."""
    magnitude_outputs: Figure = 0.0
    """... their outputs, ..."""
    magnitude_flops: Figure = 0.0
    """... and the FLOPs that put their adapters together."""
    tower_layers: Figure = 0.0
    """Layers of a frozen tower, ..."""
    tower_hidden: Figure = 0.0
    """... their width ..."""
    tower_inner: Figure = 0.0
    """... and inner width, ..."""
    tower_gated: Figure = 0.0
    """... 1 if their MLPs have three matrices, ..."""
    tower_patches: Figure = 0.0
    """... patches of an image, ..."""
    tower_attended: Figure = 0.0
    """... those that one sees, ..."""
    tower_joining: Figure = 0.0
    """... multiply-adds of an image outside its layers, ..."""
    tower_parameters: Figure = 0.0
    """... all its parameters, ..."""
    tower_trained: Figure = 0.0
    """... 1 if it is trained, ..."""
    images: Figure = 0.0
    """... and images of a sequence."""
    state_bytes: Figure
    """Optimizer state per trained parameter, without the master copy."""
    master_bytes: Figure
    step_bytes: Figure
    """Memory traffic of one update per trained parameter."""
    orthogonal: Figure = 0.0
    """1 if updates of blocks' matrices are made orthogonal (Muon, :mod:`planner.cost.data_parallel`)."""
    attention_orthogonal: Figure = 0.0
    """FLOPs of that, a layer's attention or recurrence, ..."""
    mlp_orthogonal: Figure = 0.0
    """... a dense MLP, ..."""
    shared_orthogonal: Figure = 0.0
    """... shared experts, ..."""
    expert_orthogonal: Figure = 0.0
    """... one routed expert, ..."""
    largest_orthogonal: Figure = 0.0
    """... and of the matrix outside experts, ..."""
    largest_expert_orthogonal: Figure = 0.0
    """... or of one expert, that takes most."""
    largest_matrix: Figure = 0.0
    """Parameters of the largest tensor of a block outside experts, ..."""
    largest_expert_matrix: Figure = 0.0
    """... and of one expert."""
    outside_state_bytes: Figure = 0.0
    """Bytes of state that a parameter outside blocks has more than one of a block, ..."""
    outside_step_bytes: Figure = 0.0
    """... and what its update moves more (less: negative)."""
    pattern: Pattern | None = None
    """The kinds of its layers, where stages hold different ones; shares above are means over all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """Layers of several kinds in their order."""

    kinds: tuple[Shape, ...]
    """The model as if all layers were of one kind."""
    order: tuple[int, ...]
    """Place of every layer's kind among the kinds."""
    work: tuple[float, ...] = ()
    """Where a runtime can cut stages anywhere: multiply-adds of a token in a layer of each kind ..."""
    head: float = 0.0
    """... and with the head, ..."""
    last: int = 1
    """... and layers that the last chunk holds at least: modules of multi-token prediction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """An accelerator as software finds it. SI."""

    matrix_rate: Figure
    """Reachable FLOP/s of matrix products in the precision trained in (reach x peak)."""
    matrix_rate_16: Figure
    """FLOP/s of matrix products in 16 bit, for those that stay there (logits)."""
    inner_half: Figure
    quantisation: Figure
    compute_units: Figure
    buffer: Figure = np.inf
    """Bytes on chip that kernels tile for (the last cache); infinite where not known."""
    attention_rate: Figure
    """Reachable FLOP/s of the attention kernel, forward, long sequences."""
    attention_half: Figure
    attention_backward: Figure
    attention_backward_half: Figure = 0.0
    cudnn: Figure = 1.0
    """Rate of this attention kernel over `attention_rate`; so are the next four."""
    flash_2: Figure = 1.0
    flash_3: Figure = 1.0
    flash_4: Figure = 1.0
    triton: Figure = 1.0
    exponentials: Figure = 0.0
    """Time of a score's exponential over that of its two products, heads 128 wide."""
    window_edge: Figure = 128.0
    """Positions beyond a window that its kernel takes as long for: tiles that are partly masked."""
    recurrence: Figure = 0.26
    """Rate of a recurrence's kernels over `attention_rate`, forward."""
    memory_rate: Figure
    """Reachable B/s of memory-bound kernels."""
    launch: Figure
    memory: Figure
    """Bytes."""
    host_bandwidth: Figure
    peak: Figure
    """Nominal dense peak of the precision trained in, FLOP/s: the denominator of MFU."""
    low_precision: Figure
    """1 if matrix products run in 8 bit and operands must be cast."""
    bf16: Figure = 0.0
    """1 if trained in bf16."""
    collective_share: Figure = 0.0
    """Share of the machine that a collective's kernels hold while it runs beside compute."""
    element: Figure = 2.0
    """Bytes of an activation, and of a weight or gradient that products read and write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """Scale-up domain, NICs and spine as collectives find them. SI."""

    accelerators: Figure
    """In the cluster."""
    domain: Figure
    """Accelerators that share a scale-up domain."""
    scaleup: Figure
    """Reachable B/s of a ring in the domain, per accelerator."""
    scaleup_reduce: Figure
    """B/s in the domain of an all-reduce with in-network addition."""
    pair: Figure
    """B/s between two accelerators of a domain."""
    mesh: Figure
    """1 if a group of n reaches only its (n - 1) pair links."""
    bridged: Figure
    """1 if only two neighbours share a fast `pair` link, and all others talk at `scaleup`."""
    scaleup_latency: Figure
    nic: Figure
    """Reachable B/s of the NICs, per accelerator."""
    nic_latency: Figure
    dispatch: Figure = 1.0
    dispatch_nic: Figure = 1.0
    """What a fused dispatcher reaches over `scaleup` on the domain's links, and over `nic` on the NICs."""
    spine: Figure
    leaf: Figure
    """B/s per accelerator between leaves over that below one (1 / oversubscription); accelerators below one leaf."""
    base: Figure
    """Seconds before a collective's first step."""
    pipelining: Figure
    host_memory: Figure = np.inf
    """Bytes of a node's own memory over its accelerators; infinite where not known."""
    dimensions: Dimensions | None = None
    """In place of domain, NICs and spine, where a network is described dimension by dimension."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A training framework as bytes, fusions and overlap."""

    parameter_bytes: Figure
    """Bytes per parameter of the weights that stay resident for compute."""
    gradient_bytes: Figure
    gradient_wire: Figure
    fp32_sums_below_zero: Figure = 0.0
    """ZeRO stages below this sum gradients of bf16 in fp32 beside those held."""
    parameter_wire: Figure
    hosted_weight: Figure
    fused_attention: Figure
    loss_traffic: Figure
    """Bytes per logit that the loss's kernels move, both passes; what it holds is `logit_bytes`."""
    logit_bytes: Figure
    """Most bytes that a logit takes while the loss and its gradient are computed."""
    logit_bytes_split: Figure
    """Bytes of a logit in the loss where tensor-parallel ranks share the vocabulary."""
    chunked_loss: Figure = 0.0
    """1 if logits are made a few tokens at a time."""
    drops_scores: Figure
    drops_activation: Figure
    drops_norms: Figure
    drops_linear: Figure
    drops_kernel: Figure
    """What selective recomputation drops, each 0 or 1."""
    shards_hidden: Figure
    """1 if tensor-parallel ranks share hidden states whether sequences are parallel or not."""
    gathers_matrices: Figure
    """1 if sharded weights are gathered matrix by matrix, 0: layer by layer."""
    unread_outputs: Figure
    """Hidden states a layer that selective recomputation keeps and no backward pass reads."""
    keeps_cast_inputs: Figure
    """1 if the inputs of 8-bit products are kept in 8 bit for the backward pass."""
    bucket_bytes: Figure = 0.0
    """Bytes of gradients that one call reduces, at least a matrix; 0: all of them."""
    bucket_parameters: Figure = 0.0
    """Parameters that one overlapped call reduces or gathers; 0: by bytes."""
    bucket_parameters_per_rank: Figure = 0.0
    """The least of them for every rank that shares them."""
    reduces_whole: Figure = 0.0
    """1 if gradients are all-reduced where states are sharded (ZeRO 1), and parameters gathered beside nothing."""
    broadcasts_shards: Figure = 0.0
    """1 if each rank's shard is then sent to the others by a broadcast of its own."""
    update_bytes: Figure
    """Bytes per parameter of a rank's shard that copies of gradients take during the update."""
    gather_launches: Figure = 0.0
    """Launches a layer and rank that put gathered parameters together after the update, while nothing else runs."""
    copies_gathered: Figure = 0.0
    """1 if kernels copy gathered parameters (ZeRO 3) out of one buffer before a pass uses them."""
    copies_gradients: Figure = 0.0
    """1 if kernels copy gradients (ZeRO 2, 3) into one buffer before they are reduced."""
    gathers_working_copy: Figure
    """1 if weights live as sharded fp32 and a 16-bit copy is gathered layer by layer."""
    kernels_per_layer: Figure
    expert_launches: Figure
    """Launches that a mixture adds to a layer's forward pass: routing, dispatch, waiting for token counts."""
    vector: Figure
    routed_vector: Figure
    fused_experts: Figure = 0.0
    attention: Figure
    tp_overlap: Figure
    dp_overlap: Figure
    p2p_overlap: Figure
    cp_overlap: Figure
    ep_overlap: Figure
    dispatch_once: Figure = 0.0
    """1 if copies of one token bound for the same domain cross the NIC once."""
    grouped_matrix: Figure
    expert_imbalance: Figure
    low_precision_cast: Figure
    jitter: Figure
    layer_overhead: Figure
    tp_host: Figure
    """Seconds of a layer's forward pass that the host takes longer where tensor parallelism is on."""
    step_overhead: Figure
    selective_recompute: Figure
    skips_last_product: Figure = 0.0
    resident_bytes: Figure
    activation_factor: Figure
    whole_step: Figure = 1.0
    """A site's factor on all that passes of a step take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How ranks and samples are cut. One legal combination a row."""

    tp: Figure
    pp: Figure
    vpp: Figure
    cp: Figure
    ep: Figure
    etp: Figure
    dp: Figure
    micro: Figure
    """Sequences per micro-batch."""
    batch: Figure
    """Global batch, sequences."""
    looped: Figure = 1.0
    """0: chunks lie in a V, one from either end of the model on each of the ranks; 1: round and round them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Switches that every layout can take. 0/1 unless said otherwise; :mod:`planner.axes.table` gives them."""

    recompute_layers: Figure = 0.0
    """Share of the layers whose activations are recomputed in full."""
    recompute_selective: Figure = 0.0
    recompute_offloaded: Figure = 0.0
    """1: what recomputation keeps beside a layer's input lives in host memory."""
    function_in_8_bit: Figure = 0.0
    """1: what MLPs' function reads is kept in 8 bit."""
    recompute_latents: Figure = 0.0
    """1: what latents expand to is computed again."""
    recompute_function: Figure = 0.0
    """1: the function of routed experts is."""
    recompute_norms: Figure = 0.0
    """1: norms before latents and before experts are."""
    recompute_mlp: Figure = 0.0
    """1: the whole MLP of dense layers is."""
    recompute_mixture: Figure = 0.0
    """1: the whole mixture of a layer is, its exchanges, too."""
    sequence_parallel: Figure = 0.0
    tp_overlap: Figure = 0.0
    zero: Figure = 0.0
    """0-3."""
    zero_nodes: Figure = 0.0
    """Scale-up domains that shards span, replicas the rest (hybrid sharding); 0: all of them."""
    dp_overlap: Figure = 0.0
    p2p_overlap: Figure = 0.0
    ep_overlap: Figure = 0.0
    """1: experts' exchanges run beside another micro-batch's passes."""
    dispatcher: Figure = 0.0
    """1: all copies of a token cross the NIC; 2: once a domain; 3: all ranks get all tokens; 0: as `dispatch_once`."""
    attention_kernel: Figure = 0.0
    """The attention kernel asked for, by its place from 1 among all; 0: the runtime's."""
    context_gathered: Figure = 0.0
    """1: context-parallel ranks gather all keys and values; else these go round a ring ..."""
    context_exchanged: Figure = 0.0
    """... of one rank: 1 if all of them exchange heads for whole sequences ..."""
    context_layered: Figure = 0.0
    """... of one rank a domain: 1 if those of a scale-up domain do."""
    schedule: Figure = 0.0
    """How passes follow each other (:mod:`planner.cost.split_schedules`); 0: (interleaved) 1F1B."""
    pp_inner: Figure = 0.0
    """Rank order: 0 tp-cp-ep-dp-pp (stages far apart), 1 tp-cp-ep-pp-dp."""
    offload: Figure = 0.0
    """Share of the optimizer states in host memory; then 1: with weights and gradients, which passes fetch and send."""
    offload_weights: Figure = 0.0
    offload_overlap: Figure = 0.0
    """1: states are copied beside the host's own work."""
    offload_attn_norm: Figure = 0.0
    """1: what this module of a layer reads lives in host memory until the backward pass; so with the next six."""
    offload_qkv_linear: Figure = 0.0
    offload_core_attn: Figure = 0.0
    offload_attn_proj: Figure = 0.0
    offload_mlp_norm: Figure = 0.0
    offload_expert_fc1: Figure = 0.0
    offload_moe_act: Figure = 0.0
    offload_all: Figure = 0.0
    graphs: Figure = 0.0
    """CUDA graphs launch 1: attention, norms and routers; 2: experts as well."""
    graph_inputs: Figure = 0.0
    """1: each of a layer's graphs has a buffer of its own for what it reads."""
    expanded_optimizer: Figure = 0.0
    """Shares of optimizer states, of weights with gradients, and of activations kept that live in expanded memory."""
    expanded_weights: Figure = 0.0
    expanded_activations: Figure = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Seconds measured on one accelerator at the layout's micro-batch; 0 where nothing was measured."""

    tp: Figure
    """Tensor-parallel ranks that they were measured with: the layout's, or the nearest."""
    sequence_parallel: Figure
    """1 if sequence parallelism was on."""
    communication: Figure
    """1 if they hold the layer's tensor-parallel communication."""
    forward: Figure
    """One layer, mean over the model's."""
    backward: Figure
    embedding_forward: Figure
    embedding_backward: Figure
    head_forward: Figure
    head_backward: Figure
    update: Figure
    """The optimizer step of a whole model cut over `tp` ranks, nothing of it sharded over replicas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredLayers:
    """Layer times that override the model's own, and the machine that they hold for.

    What is asked about another machine (a faster link, say) changes the grid's own records and not these, so that
    measured times change as the model's do.
    """

    times: Times
    device: Device
    network: Network
    stack: Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Everything the cost functions read. A single plan is a grid of scalars."""

    shape: Shape
    device: Device
    network: Network
    stack: Stack
    layout: Layout
    options: Options
    measured: MeasuredLayers | None = None
    expanded: Expansion | None = None


def by_kind(grid: Grid) -> tuple[Grid, ...]:
    """The grid of every kind of layer where there are several, as if all layers were of it; else the grid alone."""
    pattern = grid.shape.pattern
    return (grid,) if pattern is None else tuple(dataclasses.replace(grid, shape=kind) for kind in pattern.kinds)


Record = TypeVar("Record", Shape, Device, Network, Stack, Layout, Options, Times)


def mapped(record: Record, change: Callable[[Figure], Figure]) -> Record:
    """A record of the same kind with `change` applied to every figure."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return type(record)(**{name: change(value) if _is_figure(value) else value for name, value in values.items()})


def _is_figure(value: object) -> bool:
    return value is not None and not isinstance(value, Dimensions | Pattern)


def stacked(records: Sequence[Record]) -> Record:
    """Many scalar records as one of columns, shape (len(records),); networks with dimensions stay apart."""
    names = [field.name for field in dataclasses.fields(records[0]) if _is_figure(getattr(records[0], field.name))]
    columns: dict[str, Any] = {name: np.array([getattr(r, name) for r in records], dtype=float) for name in names}
    return type(records[0])(**columns)


def taken(record: Record, rows: NDArray[np.intp]) -> Record:
    """The given rows (last axis) of every figure that has rows; scalars and one-row figures stay."""

    def take(figure: Figure) -> Figure:
        return figure[..., rows] if isinstance(figure, np.ndarray) and figure.ndim and figure.shape[-1] > 1 else figure

    return mapped(record, take)
