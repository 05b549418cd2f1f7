"""Pipeline stages of a model whose layers are of several kinds: where it is cut, and what every stage holds of each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=1 << 16)
def by_weight(weights: tuple[int, ...], pp: int, vpp: int, first: int, head: int, last: int) -> tuple[int, ...]:
    """Layers of every chunk where the heaviest is as light as it can be, and stages as even as that allows.

    The least ``T`` is found by bisection: chunks filled from the back up to T must hold all. Each then takes what is
    nearest to ``(S - own) / n``, with S the mean of stages that still get some, own what the stage has, n the chunks
    that it still gets; and ends where it and those behind it keep within T.

    Args:
        weights: Of every layer.
        pp: Stages.
        vpp: Chunks of a stage. None is empty.
        first: Weight before the first layer.
        head: Weight behind the last layer.
        last: Layers that the last chunk holds at least.
    """
    before, chunks, layers = [0, *accumulate(weights)], pp * vpp, len(weights)
    ends_hold = first + weights[0], head + before[-1] - before[-1 - last]
    low, limit = max(-(-(first + head + before[-1]) // chunks), *ends_hold, *weights) - 1, first + head + before[-1]
    while limit - low > 1:
        middle = min((low + limit) // 2, low + weights[0])  # mostly a layer beyond an equal part is enough
        low, limit = (middle, limit) if _filled(before, chunks, first, head, last, middle) is None else (low, middle)
    starts, ends, own = _filled(before, chunks, first, head, last, limit) or [], [0], [0] * pp
    own[0], own[-1] = first, own[-1] + head
    for chunk in range(chunks - 1):
        stage, at, behind = chunk % pp, before[ends[-1]], max(chunk + 1 - (chunks - pp), 1) - 1
        mean = (before[-1] - at + sum(own[behind:])) / (pp - behind)
        part = at + (mean - own[stage]) / (vpp - chunk // pp)
        end = min(bisect_left(before, part), layers)
        end -= end > 0 and part - before[end - 1] <= before[end] - part
        most = bisect_right(before, at + limit - first * (chunk == 0)) - 1
        end = min(max(end, starts[chunk + 1], ends[-1] + 1), most, layers - last - (chunks - chunk - 2))
        own[stage] += before[end] - at
        ends.append(end)
    return tuple(end - start for start, end in pairwise([*ends, layers]))


def _filled(before: list[int], chunks: int, first: int, head: int, last: int, limit: int) -> list[int] | None:
    """The earliest layer that each chunk can begin with where it and those behind it keep within a limit."""
    end, starts = len(before) - 1, list[int]()
    for chunk in reversed(range(chunks)):
        ends = first * (chunk == 0) + head * (chunk == chunks - 1)
        start = max(bisect_left(before, before[end] + ends - limit), chunk)
        if start > end - (last if chunk == chunks - 1 else 1):
            return None
        starts, end = [start, *starts], start
    return starts if end == 0 else None


def in_chunks(stages: Sequence[int], vpp: int) -> tuple[int, ...]:
    """Layers of every chunk of stages with so many, all first chunks before all second ones: a stage's short chunks are
    its first on the first stage, its last elsewhere.
    """
    sizes = []
    for index, layers in enumerate(stages):
        each, more = divmod(layers, vpp)
        own = [each + 1] * more + [each] * (vpp - more)
        sizes.append(own[::-1] if index == 0 else own)
    return tuple(own[chunk] for chunk in range(vpp) for own in sizes)


@lru_cache(maxsize=4096)
def held(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> NDArray[np.float64]:
    """Layers of each kind on every stage, shape (pp, kinds): stage i has every pp-th chunk from the i-th on."""
    found, start = np.zeros((pp, max(order) + 1)), 0
    for chunk, size in enumerate(chunks):
        np.add.at(found[chunk % pp], list(order[start : start + size]), 1.0)
        start += size
    return found


@lru_cache(maxsize=4096)
def between(order: tuple[int, ...], chunks: tuple[int, ...], pp: int) -> tuple[int, ...]:
    """Those of the stages between the first and the last of which one is the slowest and one the fullest: all that no
    stage before them has as many layers of every kind as, and more micro-batches in flight.
    """
    own, kept = held(order, chunks, pp), list[int]()
    for i in range(1, pp - 1):
        if not any(np.all(own[j] >= own[i]) for j in kept):
            kept.append(i)
    return tuple(kept)
