"""Expanded memory: a second one of an accelerator, larger and slower than its own.

Of the bytes that a kernel moves, a share f may lie in the expanded memory (EM) and the rest in the local one (LM). Read
one after the other, ``1 / B = (1 - f) / B_LM + f / B_EM``; read at once, ``B = min(B_LM / (1 - f), B_EM / f)``. A unit
of expanded memory may be shared; training is alike on all ranks, so that each then has an equal part of its bytes and
bandwidth. What is not placed there costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import elements
from planner.cost.figures import Figure, Grid


@dataclass(frozen=True, slots=True)
class Far:
    """What of a matrix product lies in expanded memory, and how fast that is."""

    second: Figure
    """Share of the second operand."""
    result: Figure
    """Share of the result."""
    rate: Figure
    concurrent: Figure

    def seconds(self, near_rate: Figure, near: Figure, far: Figure) -> Figure:
        """To move `near` bytes in local and `far` bytes in expanded memory."""
        return _joined(near / near_rate, far / self.rate, self.concurrent)


def _joined(near: Figure, far: Figure, concurrent: Figure) -> Figure:
    """``near + far`` one after the other, ``max(near, far)`` at once. Seconds."""
    return np.where(concurrent > 0, np.maximum(near, far), near + far)


def sharers(grid: Grid) -> Figure:
    """Accelerators that share one unit of expanded memory."""
    assert grid.expanded is not None
    return np.minimum(grid.expanded.sharers, grid.network.accelerators)


def room(grid: Grid) -> Figure:
    """Bytes of expanded memory for one accelerator: those of a unit over the accelerators that share it."""
    assert grid.expanded is not None
    return grid.expanded.memory / sharers(grid)


def rate(grid: Grid) -> Figure:
    """B/s of expanded memory for one accelerator, all that share a unit using it at once: ``B_EM / sharers``."""
    assert grid.expanded is not None
    return grid.expanded.rate / sharers(grid)


def of_weights(grid: Grid) -> tuple[Far | None, Far | None]:
    """Where the products of a layer find their weights, and where they put gradients. None without expanded memory.

    Weights that are gathered for each micro-batch (ZeRO 3) are read from local buffers.
    """
    if grid.expanded is None:
        return None, None
    share = grid.options.expanded_weights
    far_rate = rate(grid)
    held = share * (grid.options.zero < 3)
    return Far(held, 0.0, far_rate, grid.expanded.concurrent), Far(0.0, held, far_rate, grid.expanded.concurrent)


def stash(grid: Grid, kept: Figure, forward: Figure, backward: Figure) -> tuple[Figure, Figure]:
    """Seconds that a layer's passes take longer where activations, and weights, live in expanded memory.

    Activations are written once and read once, `kept` bytes. Serial: ``f kept (1 / B_EM - 1 / B_LM)``, as kernels count
    those bytes at the local rate. Concurrent: ``max(f kept / B_EM - pass, 0)``, copied beside the pass. A request's
    latency for each kind that is there, each way.
    """
    assert grid.expanded is not None
    o = grid.options
    concurrent = grid.expanded.concurrent
    copied = o.expanded_activations * kept / rate(grid)
    slower = np.maximum(copied - o.expanded_activations * kept / grid.device.memory_rate, 0.0)
    asked = (1.0 * (o.expanded_activations > 0) + (o.expanded_weights > 0)) * grid.expanded.latency

    def late(passing: Figure) -> Figure:
        return np.where(concurrent > 0, np.maximum(copied - passing, 0.0), slower) + asked

    return late(forward), late(backward)


def streamed(grid: Grid, size: Figure) -> Figure:
    """Seconds to pass `size` bytes of expanded memory on to a link, or from it: ``latency + size / B_EM``."""
    assert grid.expanded is not None
    return (size > 0) * (grid.expanded.latency + size / rate(grid))


def update(grid: Grid) -> Figure:
    """Seconds of the optimizer step for each parameter of a rank's shard.

    Of its ``step_bytes``, states and master copy are read and written, ``2 (state + master)``; the rest is the gradient
    and the weight. Each is moved where it lives.
    """
    step = elements.step_bytes(grid)
    if grid.expanded is None:
        return step / grid.device.memory_rate
    states = np.minimum(2.0 * (grid.shape.state_bytes + elements.master_bytes(grid)), step)
    far = grid.options.expanded_optimizer * states + grid.options.expanded_weights * (step - states)
    near = step - far
    return _joined(near / grid.device.memory_rate, far / rate(grid), grid.expanded.concurrent)
