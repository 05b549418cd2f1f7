"""Time of matrix products on one accelerator: tiles, waves, memory traffic, a product with both its gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import elements, expanded_memory
from planner.cost.expanded_memory import Far
from planner.cost.figures import Device, Figure, Grid

_TILE_M, _TILE_N = 128.0, 256.0
"""Rows and columns of the result that one thread block makes: the largest and most efficient tile of cuBLAS (NVIDIA,
Matrix Multiplication Background User's Guide)."""


@dataclass(frozen=True, slots=True)
class LayerPart:
    """Seconds of one kind of work in one layer's forward and backward pass."""

    forward: Figure
    backward: Figure

    def __add__(self, other: LayerPart) -> LayerPart:
        return LayerPart(self.forward + other.forward, self.backward + other.backward)

    def scaled(self, factor: Figure) -> LayerPart:
        """Both shares times `factor`."""
        return LayerPart(self.forward * factor, self.backward * factor)


NOTHING = LayerPart(0.0, 0.0)


def reads(device: Device, m: Figure, n: Figure, k: Figure) -> tuple[Figure, Figure]:
    """How often a product reads its first operand (A bytes) and its second (B): of three tilings, the least bytes.

    A slab of one operand stays in the buffer of S bytes while the other passes, ``A + ceil(A / S) B`` or ``B + ceil(B /
    S) A``; or square tiles of the result do, ``ceil(n / T) A + ceil(m / T) B`` with ``T = sqrt(S / e)``.
    """
    a = device.element * m * k
    b = device.element * k * n
    edge = np.sqrt(device.buffer / device.element)
    slabs_a, slabs_b = (np.maximum(np.ceil(size / device.buffer), 1.0) for size in (a, b))
    across, down = (np.maximum(np.ceil(side / edge), 1.0) for side in (n, m))
    by_first = a + slabs_a * b
    by_second = b + slabs_b * a
    by_tile = across * a + down * b
    least = np.minimum(np.minimum(by_first, by_second), by_tile)
    first = np.where(by_first <= least, 1.0, np.where(by_second <= least, slabs_b, across))
    second = np.where(by_first <= least, slabs_a, np.where(by_second <= least, 1.0, down))
    return first, second


@dataclass(frozen=True, slots=True)
class ProductTraits:
    """How products of a size are made: alone at the device's rate in local memory, unless stated otherwise."""

    groups: Figure = 1.0
    """Products of this size, one behind the other."""
    rate: Figure = None
    """FLOP/s; None: the device's in the precision trained in."""
    written: Figure = None
    """Bytes that an element of the result moves; None: as many as one of the operands."""
    far: Far | None = None
    """What of the second operand and the result lies in expanded memory."""


PLAIN = ProductTraits()


def product_time(device: Device, m: Figure, n: Figure, k: Figure, traits: ProductTraits = PLAIN) -> Figure:
    """Seconds of ``groups`` products (m x k)(k x n) whose results move `written` bytes an element.

    ``t = 2 m n k / rate (1 + k_half / k) (1 + w (q - 1))`` but no less than the bytes
    ``e (r_1 m k + r_2 k n) + written m n`` over the memory's rate, with r how often an operand is read (:func:`reads`)
    and ``q`` the rounding up of output tiles to whole waves over the compute units. The ramp is a fixed time:
    ``k_half`` grows with the rate. Nothing, where a dimension is 0: a projection that the model lacks.
    """
    groups, far = traits.groups, traits.far
    rate = device.matrix_rate if traits.rate is None else traits.rate
    element = device.element
    written = element if traits.written is None else traits.written
    tiles = np.ceil(m / _TILE_M) * np.ceil(n / _TILE_N) * groups
    waves = np.ceil(tiles / device.compute_units) * device.compute_units / np.maximum(tiles, 1.0)
    half = device.inner_half * rate / device.matrix_rate
    arithmetic = 2.0 * m * n * k / rate * (1.0 + half / np.maximum(k, 1.0))
    arithmetic = arithmetic * (1.0 + device.quantisation * np.minimum(waves - 1.0, 3.0) * (tiles > 0))
    first, second = reads(device, m, n, k)
    if far is None:
        traffic = (element * (first * m * k + second * k * n) + written * m * n) / device.memory_rate
    else:
        other = element * second * k * n
        result = written * m * n
        far_bytes = far.second * other + far.result * result
        traffic = far.seconds(device.memory_rate, element * first * m * k + other + result - far_bytes, far_bytes)
    return groups * np.maximum(arithmetic, traffic) * (m * n * k > 0)


@dataclass(frozen=True, slots=True)
class Product:
    """``groups`` products (m x k)(k x n) of activations with weights."""

    name: str
    m: Figure
    n: Figure
    k: Figure
    groups: Figure = 1.0
    rate: Figure = None
    """FLOP/s; None: the device's in the precision trained in."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a product forward, and of both its gradients."""

    forward: Figure
    inward: Figure
    """Input gradient."""
    weight: Figure
    """Weight gradient; nothing where weights are frozen."""


def gradient_traffic(grid: Grid) -> Figure:
    """Bytes that an element of a weight gradient moves.

    A runtime that keeps whole gradients adds each micro-batch's to them: it reads and writes them in their own
    precision. One that gathers working copies writes them once, as wide as activations, and reduces them.
    """
    return np.where(grid.stack.gathers_working_copy > 0, grid.device.element, 2.0 * elements.gradient_bytes(grid))


def by_pass(grid: Grid, p: Product) -> Passes:
    """A product with its two gradients: input ``(m, k, n)`` and, where weights are trained, weight ``(k, n, m)``."""
    device = grid.device
    added = gradient_traffic(grid)
    weights, gradients = expanded_memory.of_weights(grid)
    reading = ProductTraits(p.groups, p.rate, far=weights)
    adding = ProductTraits(p.groups, p.rate, added, gradients)
    forward = product_time(device, p.m, p.n, p.k, reading)
    inward = product_time(device, p.m, p.k, p.n, reading)
    weight = product_time(device, p.k, p.n, p.m, adding)
    return Passes(forward, inward, grid.shape.weight_gradient * weight)


def trained_product(grid: Grid, p: Product) -> LayerPart:
    """A product with both its gradients, and what adapters add to them."""
    passes = by_pass(grid, p)
    adapters = 1.0 + grid.shape.adapter_flops
    return LayerPart(passes.forward * adapters, (passes.inward + passes.weight) * adapters)


def trained(grid: Grid, products: tuple[Product, ...]) -> LayerPart:
    """Several products, one behind the other, with their gradients."""
    total = trained_product(grid, products[0])
    for product in products[1:]:
        total = total + trained_product(grid, product)
    return total
