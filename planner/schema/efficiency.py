"""The fractions of nominal figures that software reaches: few, named, physical, each with where it was fitted.

Nominal data (datasheets) and these are separate files with separate sources; calibration writes only these.
"""

from __future__ import annotations

from dataclasses import field

from planner.schema.hardware import Entry


class AcceleratorEfficiency(Entry):
    """What kernels and links of one accelerator, or of a whole generation, reach."""

    matrix: dict[str, float]
    """Reachable fraction of the dense matrix peak for large shapes, by precision (bf16, fp8, mxfp4 ...)."""
    inner_half: float
    """Inner dimension k at which a matrix product reaches half of that: the ramp ``1 + inner_half / k``."""
    quantisation: float
    """Weight of tile and wave quantisation, 0 (hidden) to 1 (fully paid)."""
    attention: float
    """Reachable fraction of the 16-bit peak by the attention kernel's forward pass, long sequences, head width 128."""
    attention_half: float
    """Sequence length at which the attention kernel reaches half of that."""
    attention_backward: float = 1.41
    """How much slower per FLOP the attention kernel's backward pass is, of long sequences."""
    attention_backward_half: float = 0.0
    """By how many tokens the backward pass reaches half of its rate later than the forward pass."""
    attention_kernels: dict[str, float] = field(default_factory=dict)
    """Attention kernel by name -> its rate over `attention`, both passes together."""
    exponentials: float = 0.0
    """Time of a score's exponential over that of its two products, in heads 128 wide: what narrower heads wait for
    (matrix FLOPs a clock and compute unit over 8,192, where a unit takes 16 exponentials a clock). 0: not known."""
    window_edge: float = 128.0
    """Positions beyond a window that an attention kernel takes as long for: tiles that are partly masked, and what
    short rows of tiles do not hide."""
    recurrence: float = 0.26
    """Rate of a recurrence's kernels in chunks over `attention`, forward."""
    memory: float
    """Reachable fraction of the memory bandwidth by element-wise kernels."""
    launch: float
    """Seconds between kernel launches when the CPU sets the pace."""
    scaleup: float
    """Reachable fraction of the scale-up link by ring collectives."""
    scaleup_reduce: float
    """Share of the link that an all-reduce reaches where the switch adds in the network (NVLS), else equal to
    `scaleup`."""
    scaleup_latency: float
    """Seconds per ring step on the scale-up link."""
    nic: float
    """Reachable fraction of the NICs by ring collectives over several nodes."""
    dispatch: float = 0.0
    """Reachable fraction of the scale-up link by a fused dispatcher of experts' tokens; 0: as `scaleup`."""
    dispatch_nic: float = 0.0
    """Reachable fraction of the NICs by a fused dispatcher; 0: as `nic`."""
    collective_base: float = 6.6e-6
    """Seconds that any collective takes before its first step."""
    pipelining: float = 1.2
    """Ramp of a pipelined collective: c in ``t = A + x + c sqrt(A x)``."""
    collective_share: float = 0.12
    """Share of the machine that kernels of a collective hold beside compute: NCCL's channels over compute units."""
    power_capped: float = 1.0
    """Factor on matrix rates of a part that runs below its family's usual power."""
    drift: float = 0.0
    """How much faster software for this generation gets in a year (log), until it is mature."""
    drift_from: float = 0.0
    """The earliest release that was measured, as a decimal year: older ones are taken to be no slower than that."""
    matured: float = 2026.5
    """When, as a decimal year; releases before it are slower by the drift."""


class RuntimeEfficiency(Entry):
    """What a framework's release makes of the kernels."""

    launches: float = 0.0
    """Kernel launches of a layer's forward pass as this release makes them, in units of `launch`; 0: the runtime's."""
    vector: float = 1.0
    """Element-wise traffic over that of the fused kernels this program counts."""
    attention: float = 1.0
    """Factor on the attention kernel's rate."""
    tp_overlap: float
    """Share of tensor-parallel communication hidden when overlap is on."""
    dp_overlap: float
    """Share of the compute beside it that data-parallel communication can hide behind when overlap is on."""
    p2p_overlap: float
    """Share of pipeline transfers hidden when overlap is on."""
    cp_overlap: float
    """Share of context-parallel transfers that are sent early enough to hide beside the attention kernel."""
    ep_overlap: float
    """Share of experts' exchanges hidden beside another micro-batch when overlap is on."""
    dispatch_once: float = 0.0
    """1 where copies of one token bound for the same domain cross the NIC once (DeepEP, HybridEP)."""
    grouped_matrix: float = 0.9
    """Factor on matrix rates of grouped (expert) products."""
    expert_launches: float = 600.0
    """Kernel launches (and waits of like length) that a mixture adds to a layer's forward pass."""
    routed_vector: float = 2.0
    """Traffic of moving token copies to experts and back over that of fused permutation kernels."""
    fused_experts: float = 0.0
    """1 where experts' biases and function run inside their 8-bit products, not as kernels of their own."""
    expert_imbalance: float = 1.0
    """Tokens at the busiest expert rank over the mean."""
    low_precision_cast: float = 1.0
    """Factor on the traffic of casting into 8-bit formats."""
    jitter: float
    """Growth of the step time per doubling of nodes."""
    whole_step: float = 1.0
    """Factor on all that passes of a step take: a site's own, fitted to its runs (`calibrate --site`)."""
    layer_overhead: float = 0.0
    """Seconds per layer and micro-batch that no kernel accounts for."""
    tp_host: float = 0.0
    """Seconds that the host adds to a layer and micro-batch where tensor parallelism is on, and twice that in the
    backward pass: checks, streams and launches around every collective."""
    step_overhead: float = 0.0
    """Seconds per step (data, logging, gradient norm)."""
    selective_recompute: float = 0.0
    """Share of a layer's matrix products computed again under selective recomputation, beyond what is dropped by
    name."""
    skips_last_product: float = 0.0
    """1 where a block that is recomputed whole leaves out the last product of its MLP, which no gradient reads."""
    resident_bytes: float = 1.5e9
    """Bytes beside the framework's allocator: context, communicators, library workspaces."""
    unread_outputs: float = 0.0
    """Hidden states a layer that selective recomputation keeps and no backward pass reads: compilers drop them."""
    activation_factor: float = 1.05
    """Held over counted live bytes: alignment and fragmentation; 1 where a compiler plans its buffers."""
    convolution: float = 0.8
    """Factor on matrix rates of convolutions."""
    gather: float = 0.5
    """Factor on the reachable memory rate of gathering and scattering embedding rows."""
    exchange: float = 0.7
    """Factor on the reachable link rates of the all-to-all of embedding vectors."""
    crossing: float = 1.0
    """Share of embedding vectors in that all-to-all: less where frequent rows are replicated on every rank."""
    kernel: float = 4.0e-6
    """Seconds of a kernel beyond its work, in networks of many small ones (convolutions, recommenders)."""


class CollectiveEfficiency(Entry):
    """What a collective library makes of one domain's links in one operation.

    Ids: ``accelerator/operation``, ``generation/operation`` (parts on a switch), ``topology/operation`` (any other).
    """

    rate: float
    """Reachable fraction of the scale-up link by many ranks."""
    few: float = 0.0
    """What few ranks lose of that: ``rate (1 - few / i)`` for i ranks."""
    crowding: float = 0.0
    """How ranks get into each other's way on shared links (host bridges): ``rate (2 / i)^crowding``."""
    base: dict[str, float]
    """Seconds before the first step, by protocol (LL, LL128, Simple)."""
    step: dict[str, float]
    """Seconds of a step, by protocol."""
    share: dict[str, float]
    """Data over bytes on the wire, by protocol (Simple: 1)."""
    ramp: float
    """c in ``t = A + x + c sqrt(A x)`` under Simple; the others have none."""
    switch: float = 0.0
    """Reachable fraction of the link through a switch that adds (NVLS): a rank sends (i + 1) / i of the vector."""
    switch_step: float = 0.0
    """Seconds that adding in the switch takes beside."""


class FabricEfficiency(Entry):
    """What a collective library makes of a fabric when nothing else runs. Ids: a fabric's, its kind's, ``default``."""

    nic: float
    """Reachable fraction of the NICs."""
    hop: float
    """Seconds of a step between domains under the protocol LL; others are slower in NCCL's proportions."""
    ramp: float
    """c in ``t = A + x + c sqrt(A x)`` of groups that span domains."""
