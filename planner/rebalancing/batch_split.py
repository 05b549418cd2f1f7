"""The best uneven split of a batch, as water filling: the least step time at which all nodes together hold it.

Symbols: b a node's samples, B all samples of a step; ``a = q b + s`` loading, forward pass and update; ``P = k b + m``
the backward pass; ``gamma`` the share of the backward pass before the first gradient bucket is ready; ``T_o`` the
synchronisation that may run beside it, ``T_u`` that of the last bucket, which may not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.base.errors import NoAnswer

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Nodes as columns: nodes on the last axis, any number of mixes before it. Seconds, samples."""

    q: Array
    """Loading, forward pass and update, seconds per sample. Shape (..., n)."""
    s: Array
    """Constant part, whatever the batch, seconds."""
    k: Array
    """Backward pass, seconds per sample."""
    m: Array
    """Constant part, whatever the batch, seconds."""
    gamma: Array
    """Share of the backward pass before synchronisation can start (0..1), shape (...,) or (..., n)."""
    overlapped: Array
    """``T_o``: synchronisation that may run beside the backward pass, seconds. Shape (...,)."""
    last: Array
    """``T_u``: synchronisation of the last bucket, seconds. Shape (...,)."""
    cap: Array
    """Most samples that a node's memory holds; infinite where that is no matter. Shape (..., n)."""

    @property
    def n(self) -> int:
        """How many nodes there are."""
        return int(self.q.shape[-1])

    def at(self, index: Any) -> Nodes:
        """The nodes of some of the mixes; `index` is into the leading axes."""
        return Nodes(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def nodes(
    q: ArrayLike,
    s: ArrayLike,
    k: ArrayLike,
    m: ArrayLike,
    *,
    gamma: ArrayLike = 1.0,
    overlapped: ArrayLike = 0.0,
    last: ArrayLike = 0.0,
    cap: ArrayLike = np.inf,
) -> Nodes:
    """Nodes from plain numbers, broadcast to one shape.

    Raises:
        ValueError: a time is negative, a node takes no time at all per sample, or gamma is not between 0 and 1.
    """
    columns = np.broadcast_arrays(*(np.asarray(x, dtype=float) for x in (q, s, k, m, cap)))
    q, s, k, m, cap = (np.atleast_1d(x) for x in columns)
    shared = [np.broadcast_to(np.asarray(x, dtype=float), q.shape[:-1]) for x in (overlapped, last)]
    ratio = np.asarray(gamma, dtype=float)
    ratio = np.broadcast_to(ratio if ratio.shape == q.shape else ratio[..., None], q.shape)
    if min(float(x.min()) for x in (q, s, k, m, cap, *shared)) < 0 or not np.all((ratio >= 0) & (ratio <= 1)):
        raise ValueError("times and caps must be at least 0 and gamma between 0 and 1")
    if not np.all(q + ratio * k > 0):
        raise ValueError("every node must take time for a sample before its gradients are ready")
    return Nodes(q=q, s=s, k=k, m=m, gamma=ratio, overlapped=shared[0], last=shared[1], cap=cap)


def compute_time(of: Nodes, batches: Array) -> Array:
    """Seconds of computing, ``t = (q + k) b + s + m``; nothing on a node without samples."""
    return (batches > 0) * ((of.q + of.k) * batches + of.s + of.m)


def sync_start(of: Nodes, batches: Array) -> Array:
    """Seconds until the first bucket is ready, ``q b + s + gamma (k b + m)``; nothing on a node without samples."""
    return (batches > 0) * (of.q * batches + of.s + of.gamma * (of.k * batches + of.m))


def node_time(of: Nodes, batches: Array) -> Array:
    """When a step could end if only this node took part: ``max(t + T_u, start + T_o + T_u)``. Shape (..., n)."""
    ends = compute_time(of, batches)
    synchronised = sync_start(of, batches) + (batches > 0) * of.overlapped[..., None]
    return np.maximum(ends, synchronised) + (batches > 0) * of.last[..., None]


def step_time(of: Nodes, batches: Array) -> Array:
    """Seconds of a step, ``T = max(max t + T_u, max start + T_o + T_u)`` over nodes with samples. Shape (...,).

    Nie, Maghakian and Liu 2024 (Cannikin, arXiv 2402.05302).
    """
    return np.asarray(np.max(node_time(of, batches), axis=-1))


def even(of: Nodes, batch: ArrayLike) -> Array:
    """An equal share for every node, ``b = B / n``. Shape (..., n)."""
    share = np.asarray(batch, dtype=float) / of.n
    return np.broadcast_to(share[..., None], np.broadcast_shapes((*np.shape(share), of.n), of.q.shape)).copy()


_HALVINGS = 200
"""More than a float has digits; the loop ends when the interval is two neighbouring floats."""


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """Samples of every node, and the seconds of a step."""

    batches: Array
    """Shape (..., n)."""
    time: Array
    """Shape (...,)."""


def held_within(of: Nodes, time: Array) -> Array:
    """Most samples that each node finishes within a step time T, shape (..., n):

    ``b = min((T - T_u - s - m) / (q + k), (T - T_u - T_o - s - gamma m) / (q + gamma k))``, at least 0, at most its
    cap.
    """
    left = (time - of.last)[..., None]
    computing = (left - of.s - of.m) / (of.q + of.k)
    waiting = (left - of.overlapped[..., None] - of.s - of.gamma * of.m) / (of.q + of.gamma * of.k)
    return np.clip(np.minimum(computing, waiting), 0.0, of.cap)


def optimum(of: Nodes, batch: ArrayLike) -> BatchSplit:
    """The split of `batch` samples (any shape that broadcasts with the mixes) that makes the step shortest.

    ``T`` is the least with ``sum held_within(T) >= B``, found by bisection for all batches and mixes at once. A node
    that gets nothing takes no part, so a node that is too slow is left out.

    Raises:
        NoAnswer: the batch is more than all caps together.
    """
    wanted, of = _broadcast(of, batch)
    if np.any(wanted > np.sum(of.cap, axis=-1)):
        least = float(np.min(np.sum(of.cap, axis=-1)))
        raise NoAnswer(f"a batch of {float(np.max(wanted)):,.0f} does not fit: all nodes together hold {least:,.0f}")
    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    while np.any(short := np.sum(held_within(of, high), axis=-1) < wanted):
        low = np.where(short, high, low)
        high = np.where(short, 2.0 * high, high)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if np.all((middle <= low) | (middle >= high)):
            break
        short = np.sum(held_within(of, middle), axis=-1) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    under, over = held_within(of, low), held_within(of, high)
    missing = wanted - np.sum(under, axis=-1)
    spread = np.sum(over - under, axis=-1)
    share = np.where(spread > 0, missing / np.where(spread > 0, spread, 1.0), 0.0)
    batches = under + share[..., None] * (over - under)
    return BatchSplit(batches, high)


def whole(of: Nodes, batch: ArrayLike) -> BatchSplit:
    """The best split into whole samples: the optimum rounded down, then one sample at a time to the node that is then
    fastest.

    That is exact: no node gets more than it does in the best whole split before the last sample is given away, since
    each node's time grows with its samples.

    Raises:
        NoAnswer: the batch is more than all caps, rounded down, together.
    """
    wanted, of = _broadcast(of, batch)
    room = np.floor(of.cap)
    if np.any(wanted > np.sum(room, axis=-1)):
        raise NoAnswer(f"a batch of {float(np.max(wanted)):,.0f} does not fit in whole samples under the caps")
    batches = np.floor(optimum(of, wanted).batches * (1.0 - 1e-12))
    while np.any(left := np.sum(batches, axis=-1) < wanted):
        after = np.where(batches + 1.0 <= room, node_time(of, batches + 1.0), np.inf)
        fastest = np.argmin(after, axis=-1)[..., None]
        one_more = np.take_along_axis(batches, fastest, axis=-1) + left[..., None]
        np.put_along_axis(batches, fastest, one_more, axis=-1)
    return BatchSplit(batches, step_time(of, batches))


def _broadcast(of: Nodes, batch: ArrayLike) -> tuple[Array, Nodes]:
    """Batches and mixes on common leading axes."""
    given = np.asarray(batch, dtype=float)
    if np.any(given <= 0):
        raise ValueError("a batch has at least one sample")
    shape = np.broadcast_shapes(given.shape, of.q.shape[:-1])
    wide = {name: np.broadcast_to(getattr(of, name), (*shape, of.n)) for name in ("q", "s", "k", "m", "gamma", "cap")}
    shared = {name: np.broadcast_to(getattr(of, name), shape) for name in ("overlapped", "last")}
    return np.broadcast_to(given, shape), Nodes(**wide, **shared)
