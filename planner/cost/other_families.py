"""What a framework makes of workloads beyond transformers, and what their steps have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.figures import Figure, Network


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """A framework's figures. Factors and fractions, seconds, bytes."""

    element: Figure
    """Bytes of an activation or gradient element: 2 in 16 bit, 4 in fp32 and tf32."""
    transposed: Figure
    """1 where images lie channels first and tensor cores want them last: convolutions in tf32."""
    convolution: Figure
    """Factor on matrix rates of convolutions."""
    vector: Figure
    """Element-wise traffic over that of the fused kernels counted."""
    gather: Figure
    """Factor on the memory rate of gathering and scattering embedding rows."""
    exchange: Figure
    """Factor on link rates of the all-to-all of embedding vectors."""
    crossing: Figure
    """Share of those vectors that cross: less where frequent rows are replicated."""
    kernel: Figure
    """Seconds of a kernel beyond its work."""
    dp_overlap: Figure
    """Share of the backward pass that gradient reductions can hide behind."""
    jitter: Figure
    """Growth of the step time per doubling of nodes."""
    step_overhead: Figure
    """Seconds per step that no kernel accounts for."""


def exposed(communication: Figure, hidden: Figure, last: Figure) -> Figure:
    """Seconds of communication that show behind `hidden` seconds of work; the `last` share of it always does."""
    return np.maximum(communication - hidden, last * communication)


def stretched(network: Network, software: Software, seconds: Figure) -> Figure:
    """Work stretched by waiting for the slowest rank: ``1 + j log2(nodes)``."""
    nodes = np.maximum(network.accelerators / np.minimum(network.domain, 8.0), 1.0)
    return seconds * (1.0 + software.jitter * np.log2(nodes))
