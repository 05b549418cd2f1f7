"""Seconds of one decoding iteration and of a prefill, layer by layer, on a replica of a rollout engine.

Each group of kernels takes the longer of its bytes over the memory's rate and its products over the matrix rate; each
kernel takes :data:`KERNEL_S` beside, and exchanges are those of :mod:`planner.cost.collective_times`. With b live
sequences a replica of g accelerators, tensor parallelism t in attention and ``a = g / t`` attention groups, ``b / a``
sequences stand on each; experts lie over all g. A token picks k of E experts, so that an iteration touches
``E (1 - (1 - k / E)^b)`` of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost import collective_times
from planner.cost.figures import Array, Device, Figure, Network, Shape

WEIGHT_REACH = 0.8
"""Share of the memory's nominal rate that decoding kernels reach: `mem_bw_empirical_scaling_factor` of aiconfigurator's
systems, which its authors set by operators measured on H100, H200 and B200 (ai-dynamo/aiconfigurator, systems/*.yaml).
FlashMLA reads keys and values at 3,000 of 3,350 GB/s, 0.9 (deepseek-ai/FlashMLA, README)."""
KERNEL_S = 3e-6
"""Seconds that a captured kernel takes beside its bytes and products: `mem_empirical_constant_latency` there."""
LAUNCH_S = 75e-6
"""Seconds in which the host launches a kernel that no graph has captured, the engine's Python included: 22 to 23 ms an
iteration of the 28 layers of Qwen2.5-Omni-7B on A800, 13 ms with graphs (vllm-project/vllm-omni, issue 7960), less the
host time of :class:`Served`, over :data:`DENSE_KERNELS`. Hosts differ. A second timing agrees: beyond what graphs hold,
Qwen3-Next-80B takes 74 ms an iteration of 1,024 sequences on B200, 49 ms with larger graphs (vllm-project/vllm, issue
27222); 48 layers of 16 kernels take 58 ms by this, and 9 ms lie between two iterations."""
DENSE_KERNELS = 10
"""Kernels of a layer: norm, products of queries, keys and values, rotation, cache write, attention, output, norm, two
products of the MLP and its function (vllm/model_executor/models/llama.py, compiled)."""
EXPERT_KERNELS = 6
"""What a mixture adds: router, choice, sorting, and the sum over experts (layers/fused_moe/fused_moe.py)."""
LATENT_KERNELS = 6
"""What latent attention adds: two more projections, their norms, two absorbed products (layers/mla.py)."""
LOGIT_PASSES = 5.0
"""Times that a logit of 4 bytes moves: written, scaled, its maximum, its exponentials and the choice (v1/sample)."""
PREFILL_REACH = 0.7
"""Share of the products' reachable rate in a prefill of mixed lengths, chunk by chunk."""
WIDE = 4
"""Tensor parallelism from which SGLang captures graphs of more sequences (srt/server_args.py, 0.5.3 and later)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Layouts of replicas as columns."""

    tp: Array
    groups: Array
    """Attention groups of a replica (attention data parallel); 1 unless experts are spread over them."""

    @property
    def accelerators(self) -> Array:
        """Accelerators of one replica."""
        return self.tp * self.groups

    def taken(self, rows: NDArray[np.intp]) -> Rollout:
        """Some of the layouts."""
        return Rollout(tp=self.tp[rows], groups=self.groups[rows])


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model as an engine serves it on one pool."""

    shape: Shape
    """Means over layers, without a runtime."""
    device: Device
    """In the precision of the rollout."""
    bandwidth: float
    """Nominal B/s of the memory."""
    network: Network
    weight_bytes: float
    """Bytes of a weight."""
    cache_bytes: float
    """Bytes of an element of keys and values."""
    host_s: float
    """Seconds between two iterations, and ..."""
    host_sequence_s: float
    """... for each sequence in flight."""
    captured: tuple[float, float] = (np.inf, np.inf)
    """Most sequences of an engine, an attention group, in an iteration that captured graphs launch: below
    :data:`WIDE` accelerators of tensor parallelism, and from there on.
    """
    near: float = 1.0
    """Positions that attention reads over those there are: less than 1 with windows."""

    @property
    def expert_layers(self) -> float:
        """Layers with a mixture."""
        return float((self.shape.layers - self.shape.leading_dense) * self.shape.moe_share)

    @property
    def parameters(self) -> tuple[float, float]:
        """Parameters outside experts, and of all experts."""
        s = self.shape
        plain = (s.layers - self.expert_layers) * s.mlp_parameters + self.expert_layers * s.shared_parameters
        ends = s.embedding_parameters + (1.0 - s.tied) * s.head_parameters
        outside = s.layers * s.attention_parameters + plain + ends
        return float(outside), float(self.expert_layers * s.experts * s.expert_parameters)

    @property
    def cache_per_token(self) -> float:
        """Bytes of keys and values of a token on one rank that holds all heads, over layers."""
        s = self.shape
        width = s.kv_rank if s.kv_latent else s.kv_heads * (s.qk_dim + s.v_dim)
        return float(s.layers * s.attention_share * width * self.cache_bytes)


def cache_ranks(served: Served, layout: Rollout) -> Array:
    """Over how many ranks a sequence's cache is cut: latent caches are not."""
    heads = 1.0 if served.shape.kv_latent else max(1.0, float(served.shape.kv_heads))
    return np.minimum(layout.tp, heads)


def weights(served: Served, layout: Rollout) -> Array:
    """Bytes of weights on one accelerator."""
    outside, experts = served.parameters
    return served.weight_bytes * (outside / layout.tp + experts / layout.accelerators)


def iteration(served: Served, layout: Rollout, live: Figure, context: Figure) -> Array:
    """Seconds of one token for `live` sequences a replica, each of `context` tokens before it.

    Layouts lie on the last axis; `live` and `context` broadcast against it.
    """
    s = served.shape
    memory = served.bandwidth * WEIGHT_REACH
    rate = served.device.matrix_rate
    per_group = np.maximum(live / layout.groups, 1.0)
    tp = layout.tp
    spread = layout.accelerators

    dense = s.layers - served.expert_layers
    attention = _longer(served.weight_bytes * s.attention_parameters / tp / memory,
                        2.0 * per_group * s.attention_parameters / tp / rate)  # fmt: skip
    mlp = _longer(served.weight_bytes * s.mlp_parameters / tp / memory, 2.0 * per_group * s.mlp_parameters / tp / rate)
    layers = s.layers * attention + dense * mlp
    layers = layers + s.layers * s.attention_share * _cache(served, layout, per_group, context, memory)
    if served.expert_layers:
        share = s.experts_per_token / s.experts
        touched = s.experts * (1.0 - (1.0 - share) ** np.maximum(live, 1.0)) / spread
        shared = _longer(served.weight_bytes * s.shared_parameters / tp / memory,
                         2.0 * per_group * s.shared_parameters / tp / rate)  # fmt: skip
        routed = _longer(
            served.weight_bytes * touched * s.expert_parameters / memory,
            2.0 * np.maximum(live, 1.0) * s.experts_per_token * s.expert_parameters / spread / rate,
        )
        layers = layers + served.expert_layers * (shared + routed)
    kernels = DENSE_KERNELS * s.layers + EXPERT_KERNELS * served.expert_layers
    kernels = kernels + LATENT_KERNELS * s.layers * (s.kv_latent > 0)
    logits = _longer(
        served.weight_bytes * s.head_parameters / tp / memory, 2.0 * per_group * s.head_parameters / tp / rate
    )
    logits = logits + LOGIT_PASSES * 4.0 * per_group * s.vocab / tp / memory
    host = served.host_s + served.host_sequence_s * live
    seconds: Array = layers + kernels * KERNEL_S + logits + exchanged(served, layout, per_group)
    if np.isfinite(min(served.captured)):
        launched = np.where(per_group > captures(served, layout), kernels * LAUNCH_S, 0.0)
        seconds = np.maximum(seconds, launched)
    return np.asarray(seconds + host)


def captures(served: Served, layout: Rollout) -> Figure:
    """Most sequences of an attention group whose iteration captured graphs launch."""
    narrow, wide = served.captured
    return np.where(layout.tp < WIDE, narrow, wide)


def _longer(moved: Figure, multiplied: Figure) -> Figure:
    """The longer of two ways to be busy."""
    return np.maximum(moved, multiplied)


def _cache(served: Served, layout: Rollout, per_group: Figure, context: Figure, memory: float) -> Figure:
    """Seconds of a layer's attention: keys and values read, and multiplied with by every query head."""
    s = served.shape
    width = s.kv_rank if s.kv_latent else s.kv_heads * (s.qk_dim + s.v_dim) / cache_ranks(served, layout)
    read = per_group * context * served.near * width * served.cache_bytes / memory
    products = s.kv_rank + s.kv_latent if s.kv_latent else s.qk_dim + s.v_dim
    work = 2.0 * per_group * context * served.near * s.heads / layout.tp * products
    return np.maximum(read, work / served.device.matrix_rate_16)


def exchanged(served: Served, layout: Rollout, tokens: Figure) -> Figure:
    """Seconds of all exchanges of an iteration: two sums a layer over tensor-parallel ranks, and dispatch and
    combination of experts over attention groups.

    Inside a domain a sum is one kernel that reads every peer's part and writes the sum back (two-shot,
    vllm/csrc/custom_all_reduce.cuh): a direct exchange there and back. Across domains it is NCCL's.
    """
    s = served.shape
    network = replace(served.network, accelerators=np.maximum(layout.accelerators, 1.0))
    size = 2.0 * tokens * s.hidden
    across = collective_times.group(network, layout.tp, np.ones_like(layout.tp))
    direct = collective_times.all_to_all(network, 2.0 * size, across)
    sums = np.where(layout.tp <= network.domain, direct, collective_times.all_reduce(network, size, across))
    total = 2.0 * s.layers * np.where(layout.tp > 1, sums, 0.0)
    if served.expert_layers:
        wide = collective_times.group(network, layout.accelerators, np.ones_like(layout.tp))
        sent = collective_times.all_to_all(network, size * s.experts_per_token / layout.tp, wide)
        total = total + 2.0 * served.expert_layers * np.where(layout.groups > 1, sent, 0.0)
    return total


def prefill(served: Served, layout: Rollout, tokens: Figure) -> Array:
    """Seconds in which a replica reads so many prompt tokens."""
    s = served.shape
    outside, _ = served.parameters
    active = outside - s.embedding_parameters + served.expert_layers * s.experts_per_token * s.expert_parameters
    work = 2.0 * active * tokens / layout.accelerators / (served.device.matrix_rate * PREFILL_REACH)
    return np.asarray(work)
