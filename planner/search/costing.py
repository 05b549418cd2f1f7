"""Blocks ready to be costed, and the candidates of a chunk of rows that are worth keeping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes.options import DIMENSIONS, OptionGrid
from planner.axes.table import CP_ALGORITHM, P2P_OVERLAP, PRECISION, RANK_ORDER, RECOMPUTE, ZERO
from planner.cost.evaluate import StepCost, StepPasses, evaluate, passes
from planner.cost.figures import Array, Figure, Grid, mapped, taken
from planner.search import pareto_front
from planner.search.pareto_front import Hits
from planner.search.problem import SearchProblem, SearchResult, SearchTally, answer, flat_indices
from planner.space.blocks import Block
from planner.space.cost_grid import WIRED, open_grid
from planner.space.enumerate_layouts import Rows


def rows_of(grid: Grid, rows: NDArray[np.intp]) -> Grid:
    """The grid restricted to the layouts at `rows`, indices into its last axis."""

    def take(figure: Figure) -> Figure:
        return figure[..., rows] if isinstance(figure, np.ndarray) and figure.shape[-1] > 1 else figure

    def take_layout(figure: Figure) -> Figure:
        return figure[..., rows] if isinstance(figure, np.ndarray) and figure.ndim else figure

    return replace(
        grid,
        device=mapped(grid.device, take),
        layout=mapped(grid.layout, take_layout),
        stack=replace(grid.stack, whole_step=take(grid.stack.whole_step)),
        network=mapped(grid.network, take_layout),
        measured=grid.measured and replace(grid.measured, times=taken(grid.measured.times, rows)),
    )


CHUNK = 1 << 17
"""Candidates costed at a time: their arrays stay in the processor's cache."""

_KEYS = ("tp", "cp", "ep", "etp", "micro", WIRED)
"""What the cost of one micro-batch depends on."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """A block's grid, the micro-batch costs of its distinct keys, and each row's place among them."""

    grid: Grid
    keyed: StepPasses
    place: NDArray[np.intp]
    least: StepPasses
    """Passes with sequences shared in the way that suits each of them best: no candidate takes less."""

    def part(self, rows: NDArray[np.intp], *, least: bool = False) -> tuple[Grid, StepPasses]:
        """The grid and the costs of some rows, or what these are at least."""
        return rows_of(self.grid, rows), (self.least if least else self.keyed).taken(self.place[rows])


def table(problem: SearchProblem, index: int) -> CostTable:
    """That of one block."""
    return tables(problem, [index])[index]


Priced = dict[OptionGrid, tuple[Rows, StepPasses]]
"""What distinct micro-batches cost under some options."""


def tables(
    problem: SearchProblem, indices: Iterable[int] | None = None, known: Priced | None = None
) -> dict[int, CostTable]:
    """Cost tables of some blocks, by default all: each distinct micro-batch is priced once, for every block that has
    it, and not again where problems of the same figures share what is `known`.
    """
    alike: dict[OptionGrid, list[int]] = {}
    for index in range(len(problem.blocks)) if indices is None else indices:
        alike.setdefault(_priced(problem, problem.blocks[index].axes), []).append(index)
    known = {} if known is None else known
    return {index: ready for axes, mine in alike.items() for index, ready in _tables(problem, axes, mine, known)}


def _priced(problem: SearchProblem, axes: OptionGrid) -> OptionGrid:
    """The options without those that no micro-batch's cost depends on: who sends what when, and who keeps and updates
    which states, unless gradients are summed in fp32 under some stages of ZeRO, or memory is expanded.
    """
    if problem.figures.expanded is not None:
        return axes
    fewer = axes.neutral_on(P2P_OVERLAP, RANK_ORDER)  # Of a schedule, whether W is apart: with 1F1B, not.
    if np.any(problem.figures.stack.fp32_sums_below_zero):
        return fewer
    return fewer.neutral_on(ZERO)


def _tables(
    problem: SearchProblem, axes: OptionGrid, indices: Sequence[int], known: Priced
) -> Iterator[tuple[int, CostTable]]:
    blocks = [problem.blocks[index] for index in indices]
    rows = {name: np.concatenate([block.rows[name] for block in blocks]) for name in blocks[0].rows}
    # Accelerators that share a pool of memory slow one another down.
    keys = [name for name in (*_KEYS, *(("nodes",) if problem.figures.expanded is not None else ())) if name in rows]
    place = None
    if axes in known:
        listed, keyed = known[axes]
        place = _places(rows, listed, keys)
    if place is None:
        _, first, place = np.unique(_numbered(rows, rows, keys), return_index=True, return_inverse=True)
        listed = {name: column[first] for name, column in rows.items()}
        keyed = passes(open_grid(problem.figures, Block(listed, axes, first)))
        known[axes] = listed, keyed
    starts = np.cumsum([0, *(block.height for block in blocks)])
    for index, start, end in zip(indices, starts, starts[1:], strict=False):
        mine, table_rows = np.unique(place[start:end], return_inverse=True)
        priced = keyed.taken(mine)
        least = priced.least(tuple(DIMENSIONS).index(CP_ALGORITHM.dimension))
        yield index, CostTable(problem.grid(index), priced, table_rows, least)


def _numbered(rows: Rows, most: Rows, keys: Sequence[str]) -> NDArray[np.int64]:
    """A number for each row's key, in the order of keys."""
    key = np.zeros(len(rows["tp"]), dtype=np.int64)
    for name in keys:
        key = key * (int(np.max(most[name])) + 1) + rows[name]
    return key


def _places(rows: Rows, listed: Rows, keys: Sequence[str]) -> NDArray[np.intp] | None:
    """Where each row's key is among those listed in order; None where one is not."""
    if any(np.max(rows[name]) > np.max(listed[name]) for name in keys):
        return None
    wanted = _numbered(rows, listed, keys)
    ready = _numbered(listed, listed, keys)
    place = np.minimum(np.searchsorted(ready, wanted), len(ready) - 1)
    return place if np.array_equal(ready[place], wanted) else None


def rows_per_chunk(block: Block) -> int:
    """Rows that make a chunk."""
    return max(1, CHUNK // block.width)


def cost(ready: CostTable, rows: NDArray[np.intp], held: NDArray[np.float64] | None = None) -> StepCost:
    """Step time and memory of some rows under every option; the memory as `held` if that is known."""
    return evaluate(*ready.part(rows), held)


def fitting(room: float | Array, shape: tuple[int, ...], memory: Array) -> tuple[NDArray[np.bool_], int]:
    """Which candidates of a chunk fit (broadcastable against `shape`), and how many those are."""
    options = (*[1] * (len(shape) - np.ndim(memory)), *np.shape(memory)[:-1])  # memory may depend on no option at all
    fits = np.broadcast_to(memory <= room, (*options[: len(shape) - 1], shape[-1]))
    return fits, int(np.count_nonzero(fits)) * (int(np.prod(shape)) // fits.size)


def worth_keeping(
    problem: SearchProblem, index: int, rows: NDArray[np.intp], step_cost: StepCost, worst: float
) -> tuple[Hits, int]:
    """Candidates of a chunk that fit, keep within the limits and do not exceed the value `worst`; and how many fit."""
    block = problem.blocks[index]
    target = problem.targets[index]
    shape = (*block.axes.shape, len(rows))
    fits, count = fitting(problem.room(index, rows), shape, step_cost.memory)
    if not count:
        return pareto_front.nothing(), 0
    # A bound on the value is a bound on each row's time, one ulp wide of it; exact values are compared afterwards.
    longest = np.minimum(target.limit[rows], np.nextafter(worst / target.weight[rows], np.inf))
    time = np.broadcast_to(step_cost.time, shape)
    within = np.flatnonzero((time <= longest) & fits)
    if not len(within):
        return pareto_front.nothing(), count
    hits = _hits(problem, index, rows, within, time.reshape(-1)[within], step_cost)
    return hits.taken(hits.value <= worst), count


def undominated_hits(
    problem: SearchProblem, index: int, rows: NDArray[np.intp], step_cost: StepCost, front: Hits
) -> Hits:
    """Candidates of a chunk that fit, keep within the limits and that no member of the front dominates."""
    block = problem.blocks[index]
    target = problem.targets[index]
    shape = (*block.axes.shape, len(rows))
    time = np.broadcast_to(step_cost.time, shape)
    held = np.broadcast_to(step_cost.memory, shape)
    beaten = pareto_front.dominated(front, time * target.weight[rows], held)
    within = np.flatnonzero((held <= problem.room(index, rows)) & (time <= target.limit[rows]) & ~beaten)
    return pareto_front.undominated(_hits(problem, index, rows, within, time.reshape(-1)[within], step_cost))


def _hits(
    problem: SearchProblem,
    index: int,
    rows: NDArray[np.intp],
    within: NDArray[np.intp],
    time: NDArray[np.float64],
    step_cost: StepCost,
) -> Hits:
    block = problem.blocks[index]
    shape = (*block.axes.shape, len(rows))
    flat = flat_indices(block.shape, rows, within)
    row = flat % block.height
    return Hits(
        time * problem.targets[index].weight[row],
        time,
        np.broadcast_to(step_cost.memory, shape)[np.unravel_index(within, shape)],
        np.full(len(flat), index, dtype=np.int64),
        flat.astype(np.int64),
        *_variant_of(problem, index, flat),
    )


def _kinds(problem: SearchProblem) -> dict[tuple[str, str], int]:
    """A number for every precision with every recomputation policy that some block has."""
    pairs = (pair for block in problem.blocks for pair in _pairs(block))
    return {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}


def _pairs(block: Block) -> list[tuple[str, str]]:
    return [(precision, policy.name) for precision in block.axes[PRECISION] for policy in block.axes[RECOMPUTE]]


def _variant_of(problem: SearchProblem, index: int, flat: NDArray[np.intp]) -> tuple[NDArray[np.int64], ...]:
    """A number that near-duplicates share: same degrees, precision and recomputation; and one that all of the same
    degrees and precision do. Without folding, all differ.
    """
    block = problem.blocks[index]
    if not problem.fold:
        place = flat.astype(np.int64) + sum(b.size for b in problem.blocks[:index])
        return place, place
    kinds = _kinds(problem)
    precisions = list(dict.fromkeys(precision for precision, _ in kinds))
    pairs = _pairs(block)
    pair = flat // (math.prod(block.axes.shape[2:]) * block.height)
    kind = np.array([kinds[each] for each in pairs], dtype=np.int64)[pair]
    precision = np.array([precisions.index(name) for name, _ in pairs], dtype=np.int64)[pair]
    family = block.family[flat % block.height]
    return family * len(kinds) + kind, family * len(precisions) + precision


def near_duplicates(problem: SearchProblem, index: int, flat: int) -> int:
    """Candidates that fold into the one given, itself included."""
    block = problem.blocks[index]
    family = block.family[flat % block.height]
    pair = _pairs(block)[flat // (math.prod(block.axes.shape[2:]) * block.height)]
    alike = [_pairs(b).count(pair) * math.prod(b.axes.shape[2:]) for b in problem.blocks]
    return sum(n * int(np.count_nonzero(b.family == family)) for n, b in zip(alike, problem.blocks, strict=True) if n)


class Exhaustive:
    """Every candidate's time is computed."""

    name = "exhaustive"

    def search(self, problem: SearchProblem, advance: Callable[[int], None] | None = None) -> SearchResult:
        """The result that :class:`planner.search.branch_and_bound.Bounded` finds, by costing every candidate.

        `advance` is called with the number of candidates costed.
        """
        kept = pareto_front.nothing()
        feasible = 0
        least = None
        for index, block in enumerate(problem.blocks):
            ready = table(problem, index)
            chunk_rows = rows_per_chunk(block)
            for start in range(0, block.height, chunk_rows):
                rows = np.arange(start, min(start + chunk_rows, block.height))
                step_cost = cost(ready, rows)
                hits, fitting = worth_keeping(problem, index, rows, step_cost, pareto_front.worst(kept, problem.top))
                feasible += fitting
                if len(hits):
                    kept = pareto_front.contenders(kept.joined(hits), problem.top)
                if not feasible:
                    least = pareto_front.leaner(least, index, rows, block, step_cost)
                if advance:
                    advance(len(rows) * block.width)
        best = pareto_front.best(kept, problem.top)
        tally = SearchTally(best, pareto_front.nothing(), feasible, problem.candidates, least)
        return answer(problem, tally, self.name)
