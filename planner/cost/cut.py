"""Pipeline stages of a model whose layers are of several kinds: where it is cut, and what every stage holds of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=4096)
def by_work(work: tuple[float, ...], chunks: int, head: float, last: int) -> tuple[int, ...]:
    """Layers of every chunk where the one with most work has as little as it can; of such cuts that whose works'
    squares add up to least.

    Dynamic programs over the ends of chunks, ``f_c(j) = min over i < j of max(f_(c-1)(i), w_i + ... + w_(j-1))`` and
    the same with sums of squares over what the first allows: exact, ``chunks L^2`` operations.

    Args:
        work: Of every layer, in any unit.
        chunks: None is empty.
        head: Work behind the last layer.
        last: Layers that the last chunk holds at least.
    """
    n = len(work)
    before = np.cumsum([0.0, *work])
    start = np.where(np.arange(n + 1) == 0, 0.0, np.inf)  # no chunk, no layer
    span_work = before[None, :] - before[:, None]
    span_work[np.tril_indices(n + 1)] = np.inf  # of layers i to j - 1: none where j <= i
    ending = span_work[:, n] + head
    ending[n + 1 - max(last, 1) :] = np.inf
    most = start
    for _ in range(chunks - 1):
        most = np.maximum(most[:, None], span_work).min(axis=0)
    limit = np.maximum(most, ending).min()
    squares, ending = (np.where(x <= limit, x**2, np.inf) for x in (span_work, ending))
    least = start
    starts = []
    for _ in range(chunks - 1):
        sums = least[:, None] + squares
        starts.append(sums.argmin(axis=0))
        least = sums.min(axis=0)
    at = [n, int(np.argmin(least + ending))]
    for first in reversed(starts):
        at.append(int(first[at[-1]]))
    return tuple(int(end - first) for end, first in pairwise(at))[::-1]


def in_chunks(stages: Sequence[int], vpp: int) -> tuple[int, ...]:
    """Layers of every chunk of stages with so many, all first chunks before all second ones: a stage's short chunks are
    its first on the first stage, its last elsewhere.
    """
    sizes = []
    for index, layers in enumerate(stages):
        fewest, more = divmod(layers, vpp)
        chunk_layers = [fewest + 1] * more + [fewest] * (vpp - more)
        sizes.append(chunk_layers[::-1] if index == 0 else chunk_layers)
    return tuple(stage_chunks[chunk] for chunk in range(vpp) for stage_chunks in sizes)


@lru_cache(maxsize=4096)
def held(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> NDArray[np.float64]:
    """Layers of each kind on every stage, shape (pp, kinds): stage i has every pp-th chunk from the i-th on."""
    counts = np.zeros((pp, max(order) + 1))
    start = 0
    for chunk, size in enumerate(chunks):
        np.add.at(counts[chunk % pp], list(order[start : start + size]), 1.0)
        start += size
    return counts


@lru_cache(maxsize=4096)
def between(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> tuple[int, ...]:
    """Indices of the stages between the first and the last of which one is the slowest and one the fullest: all that no
    stage before them has as many layers of every kind as, and more micro-batches in flight.
    """
    counts = held(order, chunks, pp)
    kept = list[int]()
    for i in range(1, pp - 1):
        if not any(np.all(counts[j] >= counts[i]) for j in kept):
            kept.append(i)
    return tuple(kept)
