"""The best uneven split of a batch, as water filling: the least step time at which all nodes together hold it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.base.errors import NoAnswer
from planner.rebalancing.node_times import Array, Nodes, node_time, step_time

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
