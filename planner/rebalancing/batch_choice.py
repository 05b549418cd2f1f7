"""The gradient noise scale, estimated from nodes with unequal batches, and the global batch that trains fastest by it.

Progress a second is throughput times what a sample of a larger batch is still worth.

Symbols: g the gradient of the whole batch, ``g = sum b_i g_i / B``, g_i a node's mean gradient; ``G2 = |E g|^2``; S the
trace of the covariance of one sample's gradient. The noise scale is ``S / G2``, in samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.rebalancing import batch_split
from planner.rebalancing.batch_split import Array, Nodes, even, nodes, step_time

Estimate = tuple[Array, Array]
"""``G2`` and ``S``."""


def _columns(batches: ArrayLike, node_squares: ArrayLike) -> tuple[Array, Array]:
    """Batches and squared norms of nodes that have samples."""
    b, squares = np.asarray(batches, dtype=float), np.asarray(node_squares, dtype=float)
    squares = squares[..., b > 0]
    b = b[b > 0]
    if len(b) < 2:
        raise ValueError("a noise scale needs gradients of at least two nodes")
    return b, squares


def pooled(batches: ArrayLike, node_squares: ArrayLike, square: ArrayLike) -> Estimate:
    """``S = (sum b_i |g_i|^2 - B |g|^2) / (n - 1)`` and ``G2 = |g|^2 - S / B``: analysis of variance, pooled.

    `node_squares` are ``|g_i|^2``, nodes on the last axis, `square` is ``|g|^2``. Unbiased; of the same weights as
    ``(B - b_i) / ((n - 1) B)`` on each node's own estimate.
    """
    b, squares = _columns(batches, node_squares)
    total = float(np.sum(b))
    whole = np.asarray(square, dtype=float)
    spread = (np.sum(b * squares, axis=-1) - total * whole) / (len(b) - 1)
    return whole - spread / total, spread


def cannikin(batches: ArrayLike, node_squares: ArrayLike, square: ArrayLike) -> Estimate:
    """Each node's own estimates ``G_i = (B |g|^2 - b_i |g_i|^2) / (B - b_i)``, ``S_i = (|g_i|^2 - |g|^2) b_i B /
    (B - b_i)``, weighted by ``A^-1 1 / (1^T A^-1 1)``.

    The weights are Cannikin's (arXiv 2402.05302): unbiased, and for more than two nodes of larger variance than
    :func:`pooled`.
    """
    b, squares = _columns(batches, node_squares)
    total = float(np.sum(b))
    whole = np.asarray(square, dtype=float)
    rest = total - b
    gradient = (total * whole[..., None] - b * squares) / rest
    spread = (squares - whole[..., None]) * b * total / rest
    i, j = np.meshgrid(b, b, indexing="ij")
    of_gradient = (total**2 - i**2 - j**2) / (total * (total - i) * (total - j))
    np.fill_diagonal(of_gradient, (total + 2.0 * b) / (total**2 - total * b))
    of_spread = i * j * (total - i - j) / ((total - i) * (total - j))
    np.fill_diagonal(of_spread, total * b / rest)
    return gradient @ _weights(of_gradient), spread @ _weights(of_spread)


def estimator(name: str) -> Callable[[ArrayLike, ArrayLike, ArrayLike], Estimate]:
    """:func:`pooled` or :func:`cannikin`, by name.

    Raises:
        ValueError: neither.
    """
    known = {"pooled": pooled, "cannikin": cannikin}
    if name not in known:
        raise ValueError(f"no estimator of the noise scale is called {name!r}; there are {' and '.join(known)}")
    return known[name]


def _weights(covariance: Array) -> Array:
    """``A^-1 1 / (1^T A^-1 1)``; the least-norm solution where A is singular (two nodes)."""
    solved = np.linalg.lstsq(covariance, np.ones(len(covariance)), rcond=None)[0]
    return np.asarray(solved / np.sum(solved))


@dataclass(frozen=True, slots=True)
class Smoothed:
    """Exponential averages of ``G2`` and ``S``, corrected for their start at nothing."""

    gradient: float = 0.0
    spread: float = 0.0
    weight: float = 0.0

    def seen(self, gradient: float, spread: float, *, keep: float = 0.99) -> Smoothed:
        """With one more estimate: ``x = keep x + (1 - keep) new``."""
        mix = [keep * old + (1.0 - keep) * new for old, new in ((self.gradient, gradient), (self.spread, spread))]
        return Smoothed(mix[0], mix[1], keep * self.weight + 1.0 - keep)

    @property
    def scale(self) -> float:
        """``S / G2`` in samples; infinite while the gradient drowns in its noise, 0 before anything was seen."""
        if self.weight == 0 or self.spread <= 0:
            return 0.0
        return self.spread / self.gradient if self.gradient > 0 else float("inf")


CANDIDATES = 50
"""Total batches tried, geometrically spaced, as AdaptDL does."""
WORTH_A_CHANGE = 1.05
"""A batch is changed only for this much more goodput, as AdaptDL does."""


def efficiency(batch: ArrayLike, reference: float, noise_scale: ArrayLike) -> Array:
    """Progress of a sample relative to the reference batch ``B_0``: ``(phi + B_0) / (phi + B)``, phi the noise scale.

    AdaScale's gain over the scale of the batch (arXiv 2007.05105), as in Pollux (OSDI 2021); with an infinite noise
    scale every sample counts in full.
    """
    size, phi = np.asarray(batch, dtype=float), np.asarray(noise_scale, dtype=float)
    finite = np.where(np.isfinite(phi), phi, 0.0)
    worth = np.where(np.isfinite(phi), (finite + reference) / np.maximum(finite + size, 1e-300), 1.0)
    return np.asarray(worth, dtype=float)


def gain(batch: ArrayLike, reference: float, noise_scale: ArrayLike) -> Array:
    """Factor on the learning rate of the reference batch: ``efficiency B / B_0`` (AdaScale); batches in samples."""
    return np.asarray(efficiency(batch, reference, noise_scale) * np.asarray(batch, dtype=float) / reference)


def candidates(reference: int, largest: int, count: int = CANDIDATES) -> Array:
    """Up to `count` whole batches in samples from the reference to the largest, geometrically spaced."""
    return np.unique(np.round(np.geomspace(reference, largest, count)))


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """A global batch with its split and what it brings."""

    batch: int
    batches: Array
    """Whole samples of every node, shape (n,)."""
    time: float
    """Seconds of a step."""
    goodput: float
    """Samples of the reference batch's worth per second: ``B / T efficiency``."""


def choose(
    of: Nodes, reference: int, largest: int, noise_scale: float, *, current: int | None = None, split: bool = True
) -> BatchChoice:
    """The batch of the highest goodput with its best split (or the even one, if not `split`).

    The current batch stays unless another brings 5 % more.

    Raises:
        NoAnswer: not even the reference batch fits under the caps.
    """
    most = int(min(largest, np.sum(np.floor(of.cap)))) if np.all(np.isfinite(of.cap)) else largest
    sizes = candidates(reference, max(most, reference))
    if current is not None:
        sizes = np.unique(np.append(sizes, current))
    times = batch_split.optimum(of, sizes).time if split else _even_times(of, sizes)
    brings = sizes / times * efficiency(sizes, reference, noise_scale)
    best = int(np.argmax(brings))
    if current is not None:
        position = int(np.searchsorted(sizes, current))
        best = best if brings[best] > WORTH_A_CHANGE * brings[position] else position
    batch = int(sizes[best])
    split_of = batch_split.whole(of, batch) if split else _even_split(of, batch)
    worth = float(efficiency(batch, reference, noise_scale))
    return BatchChoice(batch, split_of.batches, float(split_of.time), batch / float(split_of.time) * worth)


def _even_times(of: Nodes, sizes: Array) -> Array:

    share = even(of, sizes)
    return np.where(np.all(share <= of.cap, axis=-1), step_time(of, share), np.inf)


def _even_split(of: Nodes, batch: int) -> batch_split.BatchSplit:

    alike = nodes(np.ones(of.n), 0.0, 0.0, 0.0, cap=of.cap)
    batches = batch_split.whole(alike, batch).batches
    return batch_split.BatchSplit(batches, step_time(of, batches))
