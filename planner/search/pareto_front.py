"""The best candidates seen so far, as columns; and the front that nothing dominates in value and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array

if TYPE_CHECKING:
    from planner.cost.evaluate import StepCost
    from planner.space.blocks import Block

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hits:
    """Candidates as columns of equal length."""

    value: Array
    time: Array
    memory: Array
    block: Indices
    flat: Indices
    variant_of: Indices
    """One number for all near-duplicates: candidates that differ in switches only."""
    degrees: Indices
    """One number for all candidates of the same degrees and precision."""

    def __len__(self) -> int:
        return len(self.value)

    def taken(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Hits:
        """The candidates at `rows`, indices or a mask of shape (candidates,)."""
        return Hits(*(getattr(self, name)[rows] for name in Hits.__dataclass_fields__))

    def joined(self, other: Hits) -> Hits:
        """The candidates of both, first these."""
        return Hits(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in Hits.__dataclass_fields__))

    def ranked(self) -> Hits:
        """All candidates in ascending order of value; ties by block, then by flat index."""
        return self.taken(np.lexsort((self.flat, self.block, self.value)))


def nothing() -> Hits:
    """No candidates."""
    floats = np.zeros(0)
    integers = np.zeros(0, dtype=np.int64)
    return Hits(floats, floats, floats, integers, integers, integers, integers)


def contenders(hits: Hits, top: int) -> Hits:
    """Candidates that decide which rows an answer has, best first: those up to the value that a newcomer must not
    exceed, but for what another of the same degrees beats in value and memory.

    Those that are no rows themselves stay: what comes later may be beaten by them alone.
    """
    ranked = hits.ranked()
    ranked = ranked.taken(~_beaten(ranked))
    return ranked.taken(ranked.value <= worst(ranked, top))


def best(hits: Hits, top: int) -> Hits:
    """The rows of an answer: of :func:`contenders` the `top` best, only the first of each set of near-duplicates."""
    ranked = contenders(hits, top)
    _, first = np.unique(ranked.variant_of, return_index=True)
    return ranked.taken(np.sort(first)[:top])


def worst(kept: Hits, top: int) -> float:
    """The value that a newcomer must not exceed: once `top` degrees are known, the best of the last of them.

    Each has a row for certain, its best; of its other rows a newcomer may beat several at once.
    """
    _, first = np.unique(kept.degrees, return_index=True)
    return float(kept.value[np.sort(first)[top - 1]]) if len(first) >= top else np.inf


def _beaten(ranked: Hits) -> NDArray[np.bool_]:
    """Whether a candidate before one of the same degrees needs as little memory; candidates by ascending value."""
    order = np.argsort(ranked.degrees, kind="stable")
    _, group = np.unique(ranked.degrees[order], return_inverse=True)
    _, leanness = np.unique(ranked.memory[order], return_inverse=True)
    # Falls from group to group, so that each begins a running minimum of its own.
    place = leanness - group * (len(ranked) + 1)
    least = np.minimum.accumulate(place)
    beaten = np.zeros(len(ranked), dtype=bool)
    beaten[order[1:]] = place[1:] >= least[:-1]
    return beaten


def undominated(hits: Hits) -> Hits:
    """Hits that no other beats in value without needing more memory: a staircase, fastest first."""
    ranked = hits.taken(np.lexsort((hits.flat, hits.block, hits.memory, hits.value)))
    if not len(ranked):
        return ranked
    least = np.minimum.accumulate(ranked.memory)
    return ranked.taken(np.concatenate(([True], ranked.memory[1:] < least[:-1])))


def dominated(front: Hits, value: Array, memory: Array) -> NDArray[np.bool_]:
    """Whether a member of the front is at most as dear and at most as large."""
    if not len(front):
        return np.zeros(np.shape(value), dtype=bool)
    # Along the staircase memory falls: the last step that is not dearer is the leanest of those.
    step = np.searchsorted(front.value, value, side="right")
    leanest = np.concatenate(([np.inf], front.memory))[step]
    return leanest <= memory


@dataclass(frozen=True, slots=True)
class Least:
    """The candidate that needs the least memory: where nothing fits, the one to mend."""

    block: int
    flat: int
    memory: float


def leaner_memory(known: Least | None, index: int, rows: NDArray[np.intp], block: Block, memory: Array) -> Least | None:
    """The leaner of the known candidate and the leanest of a chunk; `memory` broadcasts against the chunk."""
    held = np.broadcast_to(memory, (*np.shape(memory)[:-1], len(rows)))
    at = np.unravel_index(int(np.argmin(held)), held.shape)
    least = float(held[at])
    if known is not None and known.memory <= least:
        return known
    padded = (0,) * (len(block.shape) - len(at)) + tuple(int(i) for i in at[:-1])
    return Least(index, int(np.ravel_multi_index((*padded, int(rows[at[-1]])), block.shape)), least)


def leaner(known: Least | None, index: int, rows: NDArray[np.intp], block: Block, step_cost: StepCost) -> Least | None:
    """As :func:`leaner_memory`, of a chunk's costs."""
    return leaner_memory(known, index, rows, block, step_cost.memory)
