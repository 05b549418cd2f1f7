"""Which global batch trains fastest: throughput times what a sample of a larger batch is still worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.rebalancing import batch_split
from planner.rebalancing.node_times import Array, Nodes, even, nodes, step_time

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
        here = int(np.searchsorted(sizes, current))
        best = best if brings[best] > WORTH_A_CHANGE * brings[here] else here
    batch = int(sizes[best])
    found = batch_split.whole(of, batch) if split else _even_split(of, batch)
    worth = float(efficiency(batch, reference, noise_scale))
    return BatchChoice(batch, found.batches, float(found.time), batch / float(found.time) * worth)


def _even_times(of: Nodes, sizes: Array) -> Array:

    each = even(of, sizes)
    return np.where(np.all(each <= of.cap, axis=-1), step_time(of, each), np.inf)


def _even_split(of: Nodes, batch: int) -> batch_split.BatchSplit:

    alike = nodes(np.ones(of.n), 0.0, 0.0, 0.0, cap=of.cap)
    batches = batch_split.whole(alike, batch).batches
    return batch_split.BatchSplit(batches, step_time(of, batches))
