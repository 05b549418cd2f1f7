"""What a search is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.axes.options import OptionValues
from planner.cost.figures import Array, Grid
from planner.search.pareto_front import Hits, Least
from planner.space.blocks import Block
from planner.space.cost_grid import Figures, open_grid


@dataclass(frozen=True, slots=True)
class Target:
    """What is minimised, as a factor on the step time that differs by row, and the step time that limits allow."""

    weight: Array
    """Objective per second of step time, one per row."""
    limit: Array
    """Longest step time (seconds) that deadline and budget allow, one per row; infinite without limits."""
    capacity: Array | None = None
    """Bytes that a plan may hold, one per row, where rows stand for machines of unlike size."""


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """Blocks of candidates with their figures, a target for each, and how many of the best are wanted."""

    figures: Figures
    blocks: tuple[Block, ...]
    targets: tuple[Target, ...]
    """One for each block."""
    capacity: float
    """Bytes that a plan may hold on the accelerator."""
    top: int
    fold: bool = True
    """Whether near-duplicates (same degrees, precision, recomputation) count once, by the best of them."""

    @property
    def candidates(self) -> int:
        """How many there are."""
        return sum(block.size for block in self.blocks)

    def room(self, index: int, rows: NDArray[np.intp]) -> float | Array:
        """Bytes that plans of some rows of a block may hold."""
        capacity_bytes = self.targets[index].capacity
        return self.capacity if capacity_bytes is None else capacity_bytes[rows]

    def grid(self, index: int) -> Grid:
        """The open grid of one block."""
        return open_grid(self.figures, self.blocks[index])


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the space with what the search found of it."""

    block: int
    flat: int
    """Index in the block's full array: options first, rows last."""
    value: float
    """The objective."""
    time: float
    """Seconds a step takes."""
    memory: float
    """Bytes on the fullest accelerator."""
    layout: dict[str, int]
    options: OptionValues


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best candidates, best first; ties go to the earlier block, then the earlier option, then the earlier row."""

    best: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    """No other candidate is better in one of objective and memory and as good in the other."""
    candidates: int
    feasible: int
    costed: int
    """Candidates whose time was computed; the others were excluded by an exact bound."""
    proven: bool
    method: str
    closest: Candidate | None
    """Where nothing fits: the candidate that needs the least memory."""
    least_left: float = np.inf
    """Objective that no candidate undercuts of those that were left out when the search was asked to end."""


def decode(problem: SearchProblem, block: int, flat: int, value: float, time: float, memory: float) -> Candidate:
    """The candidate at a flat index of a block."""
    b = problem.blocks[block]
    *options, row = np.unravel_index(flat, b.shape)
    layout = {axis: int(column[row]) for axis, column in b.rows.items()}
    return Candidate(block, flat, value, time, memory, layout, b.axes.at([int(i) for i in options]))


def decoded(problem: SearchProblem, hits: Hits) -> tuple[Candidate, ...]:
    """Columns as candidates."""
    columns = zip(hits.block, hits.flat, hits.value, hits.time, hits.memory, strict=True)
    return tuple(decode(problem, int(b), int(f), float(v), float(t), float(m)) for b, f, v, t, m in columns)


class SearchTally(NamedTuple):
    """What a search has kept and counted when it ends."""

    best: Hits
    front: Hits
    feasible: int
    """Candidates that fit."""
    costed: int
    """Candidates whose time was computed."""
    least: Least | None
    """The candidate of least memory, where none fits."""


def answer(problem: SearchProblem, tally: SearchTally, method: str, least_left: float = np.inf) -> SearchResult:
    """The result of a search, its hits as candidates, with a bound on what it left out."""
    best = decoded(problem, tally.best)
    front = decoded(problem, tally.front)
    least = tally.least
    closest = None
    if least is not None and not tally.feasible:
        closest = decode(problem, least.block, least.flat, np.inf, np.inf, least.memory)
    return SearchResult(
        best=best,
        front=front,
        candidates=problem.candidates,
        feasible=tally.feasible,
        costed=tally.costed,
        proven=not np.isfinite(least_left),
        method=method,
        closest=closest,
        least_left=least_left,
    )


def flat_indices(shape: Sequence[int], rows: NDArray[np.intp], within: NDArray[np.intp]) -> NDArray[np.intp]:
    """Indices into a chunk of some rows, as indices into the block they were taken from."""
    *options, row = np.unravel_index(within, (*shape[:-1], len(rows)))
    return np.ravel_multi_index((*options, rows[row]), tuple(shape))
