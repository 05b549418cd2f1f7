"""Exact search that costs few candidates: the others are excluded by a bound that cannot be wrong.

A layout's bound is its cheapest way through the pipeline plus its cheapest update, without any data-parallel
communication; every term left out is at least zero, and floating-point addition is monotone, so no candidate of the
layout is ever below it. Layouts are taken in order of their bound until the next bound exceeds the worst candidate
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost import data_parallel, held_memory, pipeline
from planner.cost.evaluate import StepPasses, jitter
from planner.cost.figures import Array, Figure, Grid
from planner.cost.products import LayerPart
from planner.search import archive, costing
from planner.search.archive import Hits, Least
from planner.search.costing import CostTable
from planner.search.problem import SearchProblem, SearchResult, answer

_BATCH = 1 << 15
"""Candidates costed between two looks at the bound: small, so that few are costed in vain."""
_ROUNDING = 1e-12
"""Share by which sums of other terms may be rounded differently."""


def lower_bound(grid: Grid, priced: StepPasses, fits: NDArray[np.bool_] | None = None, *, tight: bool = False) -> Array:
    """Seconds that no candidate of a row undercuts, shape (rows,): pipeline, update and overhead at their cheapest.

    With `fits`, which candidates fit into memory, the bound is that of those alone; infinite where none does. A tight
    one counts data-parallel communication, too: it takes twice as long, and pays where little is costed.
    """
    s = pipeline.stages(grid, priced.layers, priced.ends, priced.weights)
    f = pipeline.flow(grid, s)
    steady = f.time * jitter(grid)
    exposed: Figure = 0.0
    if fits is not None:
        steady = np.where(_any(fits, np.shape(steady)), steady, np.inf)
    if fits is not None and tight:
        exposed = data_parallel.exposed(grid, s.split, f) * jitter(grid)
        exposed = np.where(_any(fits, np.shape(exposed)), exposed, np.inf)
    fixed = data_parallel.update(grid, s.split) + grid.stack.step_overhead
    rows = len(grid.layout.tp)
    # The additions of Cost.time in their order, the exposed term at its least.
    return _least(steady, rows) + _least(exposed, rows) + _least(fixed, rows)


def quick_bound(ready: CostTable) -> Array:
    """The same of all rows of a table, looser, in a handful of operations a row: what a layer does is done under the
    options that suit it best, and nothing is sent, reduced or updated.
    """
    grid, keys = ready.grid, int(ready.place.max(initial=0)) + 1
    alone = replace(grid, options=replace(grid.options, ep_overlap=0.0))  # exchanges hidden in every step: no less time

    def fastest(part: LayerPart | pipeline.LayerTime) -> tuple[Array, Array]:
        return _least(part.forward, keys)[ready.place], _least(part.backward, keys)[ready.place]

    layers = tuple(pipeline.LayerTime(*fastest(pipeline.layer_time(alone, x)), 0.0) for x in ready.least.layers)
    embedding, head = (LayerPart(*fastest(part)) for part in ready.least.ends)
    s = pipeline.Stages(layers, embedding, head, pipeline.split(grid.shape, grid.layout), 0.0)
    wait = _least(jitter(grid), len(ready.place))
    least = pipeline.flow(grid, s).time * wait + grid.stack.step_overhead
    return np.asarray(np.broadcast_to(least * (1.0 - _ROUNDING), ready.place.shape))


def _any(fits: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether any candidate fits, over the options on which an array of the given shape does not depend."""
    spread = tuple(i for i in range(len(shape) - 1) if shape[i] == 1 and fits.shape[i] > 1)
    found: NDArray[np.bool_] = np.any(fits, axis=spread, keepdims=True)
    return found


def _least(values: Figure, rows: int) -> Array:
    """The least over all options, one per row."""
    options = tuple(range(np.ndim(values) - 1))
    return np.broadcast_to(np.min(values, axis=options) if options else values, (rows,))


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of every row of a block before any of its candidates is costed."""

    value: Array
    """Lower bound on the objective; infinite where nothing fits or limits exclude the row."""
    memory: Array
    """Least bytes under any options."""
    feasible: int
    least: Least | None


def survey(
    problem: SearchProblem, index: int, ready: CostTable, advance: Callable[[int], None] | None = None
) -> Survey:
    """Bounds each row's objective and memory, and counts the candidates that fit; `advance` is told of every one."""
    block = problem.blocks[index]
    values, held, feasible = np.empty(block.height), np.empty(block.height), 0
    least: Least | None = None
    each = costing.rows_per_chunk(block) * len(block.axes.cp_algorithm)  # taken together in a bound
    for start in range(0, block.height, each):
        rows = np.arange(start, min(start + each, block.height))
        values[rows], need, count = bounds(problem, index, ready, rows)
        held[rows] = _least(need, len(rows))
        feasible += count
        if advance:
            advance(len(rows) * block.width)
        if not feasible:
            least = archive.leaner_memory(least, index, rows, block, need)
    return Survey(values, held, feasible, least)


def bounds(
    problem: SearchProblem, index: int, ready: CostTable, rows: NDArray[np.intp], *, tight: bool = False
) -> tuple[Array, NDArray[np.float64], int]:
    """Of some rows: a bound on the objective (infinite where nothing fits), the bytes of all options, how many fit."""
    block = problem.blocks[index]
    grid, priced = ready.part(rows, least=not tight)  # what passes hide, a tight bound must not take for less
    need = held_memory.largest(held_memory.stages(grid, pipeline.split(grid.shape, grid.layout)))
    room = problem.room(index, rows)
    fits, count = costing.fitting(room, (*block.axes.shape, len(rows)), need)
    bound = lower_bound(grid, priced, fits, tight=tight)
    value = within(problem, index, rows, bound)
    return np.where(_least(need, len(rows)) > room, np.inf, value), need, count


def memoryless(problem: SearchProblem, index: int, ready: CostTable) -> Array:
    """The same of every row as if everything fitted: looser, and several times faster."""
    return within(problem, index, np.arange(len(ready.place)), quick_bound(ready))


def within(problem: SearchProblem, index: int, rows: NDArray[np.intp], seconds: Array) -> Array:
    """Values of the objective at some seconds a step of rows; infinite beyond what their limits allow."""
    target = problem.targets[index]
    return np.where(seconds > target.limit[rows], np.inf, seconds * target.weight[rows])


class Bounded:
    """Layouts in order of an exact lower bound."""

    name = "exact, by lower bound"

    def __init__(self, *, front: bool = False) -> None:
        self.front = front
        """Whether to find the front of objective against memory too."""

    def search(self, problem: SearchProblem, advance: Callable[[int], None] | None = None) -> SearchResult:
        """The best candidates, proven; `advance` is told how many are dealt with. Nearly all time goes into bounds."""
        tables = costing.tables(problem)
        surveys = [survey(problem, index, tables[index], advance) for index in range(len(problem.blocks))]
        kept, front, costed = archive.nothing(), archive.nothing(), 0
        waiting = Waiting(problem, surveys)
        while True:
            index, rows = waiting.next(archive.worst(kept, problem.top), front if self.front else None)
            if not len(rows):
                break
            width = problem.blocks[index].width
            found = costing.cost(tables[index], rows)
            hits, _ = costing.worth_keeping(problem, index, rows, found, archive.worst(kept, problem.top))
            if len(hits):
                kept = archive.best(kept.joined(hits), problem.top)
            if self.front:
                steps = costing.undominated_hits(problem, index, rows, found, front)
                front = archive.undominated(front.joined(steps)) if len(steps) else front
            costed += len(rows) * width
        feasible = sum(s.feasible for s in surveys)
        least = min((s.least for s in surveys if s.least), key=lambda x: x.memory, default=None)
        return answer(problem, kept, front, feasible, costed, self.name, least)


class Waiting:
    """Rows not yet costed, in order of their bound."""

    def __init__(self, problem: SearchProblem, surveys: list[Survey]) -> None:
        self.surveys = surveys
        self.widths = [block.width for block in problem.blocks]
        self.rows = [_finite_order(s.value) for s in surveys]

    def next(self, worst: float, front: Hits | None) -> tuple[int, NDArray[np.intp]]:
        """The next batch of rows, of the block whose first row has the lowest bound; none, when none can matter."""
        self.rows = [self._mattering(index, worst, front) for index in range(len(self.rows))]
        heads = [(self.surveys[i].value[rows[0]], i) for i, rows in enumerate(self.rows) if len(rows)]
        if not heads:
            return 0, np.zeros(0, dtype=np.intp)
        index = min(heads)[1]
        size = max(1, _BATCH // self.widths[index])
        batch, self.rows[index] = self.rows[index][:size], self.rows[index][size:]
        return index, np.sort(batch)

    def _mattering(self, index: int, worst: float, front: Hits | None) -> NDArray[np.intp]:
        rows, known = self.rows[index], self.surveys[index]
        if front is None:
            return rows[: int(np.searchsorted(known.value[rows], worst, side="right"))]
        beaten = archive.dominated(front, known.value[rows], known.memory[rows])
        return rows[(known.value[rows] <= worst) | ~beaten]


def _finite_order(values: Array) -> NDArray[np.intp]:
    order = np.argsort(values, kind="stable")
    return order[: int(np.count_nonzero(np.isfinite(values)))]
