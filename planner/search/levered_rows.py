"""The best candidate of rows with many points on the dimension of recomputation, without pricing every combination.

A *levered row* is a row with one such point: what is recomputed, what CUDA graphs launch, and which inputs of modules
are moved to host memory. Its bound is the least time of its passes with an update that it fits with. They are met
twice:

1. as rows with what is recomputed and launched, as if the most were moved and that took no time: where this is not
   better than the best known, none of these is;
2. with what they move. Those that may still be better than the best known are priced under every other option.

What a bound leaves out is at least zero, so that no candidate undercuts it. Work is counted in entries of arrays, so
that the same question has the same answer on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.axes.options import DIMENSIONS, OptionGrid, Sharding, option_values
from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    DP_OVERLAP,
    GRAPHS,
    OFFLOAD_OVERLAP,
    P2P_OVERLAP,
    RANK_ORDER,
    RECOMPUTE,
    SCHEDULE,
    ZERO,
)
from planner.axes.values import ALONE, SPLIT_SCHEDULES, Recompute
from planner.base.stopping import asked
from planner.cost import data_parallel, pipeline, stage_memory
from planner.cost.evaluate import StepPasses, copying, evaluate, jitter, passes
from planner.cost.figures import Array, Figure, Grid
from planner.cost.pipeline import Flow
from planner.search import branch_and_bound, costing
from planner.search.costing import CostTable
from planner.search.problem import Candidate, SearchProblem
from planner.space import offloading
from planner.space.blocks import Block
from planner.space.cost_grid import open_grid, paired_grid

_KEPT = tuple(DIMENSIONS).index(RECOMPUTE.dimension)
_SHARED = tuple(DIMENSIONS).index(ZERO.dimension)
_ORDERED = tuple(DIMENSIONS).index(RANK_ORDER.dimension)
_ENTRIES = 1 << 19
"""Entries of an array at a time."""
_ROUNDING = 1e-12
"""Relative error by which sums in another order may differ."""
_NEVER_SLOWER = (DP_OVERLAP, P2P_OVERLAP, OFFLOAD_OVERLAP)
"""Switches that take no memory ..."""
_ON = option_values(dp_overlap=True, p2p_overlap=True, offload_overlap=True)
"""... and whose bound is least where they are on."""


@dataclass(frozen=True, slots=True)
class LeveredRows:
    """Levered rows of one block, the most promising first."""

    index: int
    row: NDArray[np.intp]
    point: NDArray[np.intp]
    """Place on the block's dimension of recomputation."""
    move: NDArray[np.intp]
    """Place among what may be moved."""
    value: Array
    """Objective that no candidate of each undercuts."""

    def taken(self, at: NDArray[np.intp] | slice) -> LeveredRows:
        """The levered rows at some places."""
        return LeveredRows(self.index, self.row[at], self.point[at], self.move[at], self.value[at])


class LeveredSearch:
    """A search of one problem for candidates that are better than the best known."""

    def __init__(
        self, problem: SearchProblem, moves: Sequence[tuple[str, ...]], best: Candidate | None, priced: costing.Priced
    ) -> None:
        """`moves` are sets of modules whose inputs may live in host memory, where the problem has none there; `priced`
        is shared with other searches of the same figures.
        """
        bounded = tuple(replace(block, axes=block.axes.held(_ON, _NEVER_SLOWER)) for block in problem.blocks)
        self.problem = problem
        self.bounded = replace(problem, blocks=bounded)
        """Without options that no bound needs."""
        self.moves = ((), *moves)
        self.priced = priced
        self.best = best
        figures = problem.figures
        self.by_sharding = figures.expanded is not None or bool(np.any(figures.stack.fp32_sums_below_zero))
        """Whether passes depend on what bounds do without."""
        self.entries = 0
        """Entries of arrays that were looked at."""
        self.candidates = 0
        """Candidates that a bound was computed for, or more."""

    @property
    def known(self) -> float:
        """Objective of the best."""
        return self.best.value if self.best else math.inf

    def search(self, budget: float, advance: Callable[[int], None] | None = None) -> float:
        """Finds the best. Returns the objective that nothing undercuts of what so many entries left out."""
        tables = costing.tables(self.bounded, known=self.priced)
        waiting: dict[int, LeveredRows] = {}
        left = math.inf
        for index, block in enumerate(self.problem.blocks):
            quick = branch_and_bound.quick_objective_bound(self.bounded, index, tables[index])
            if self.entries > budget or asked():
                left = min(left, float(np.min(quick, initial=math.inf)))
            else:
                waiting[index] = self._promising(index, quick, tables[index])
            if advance:
                advance(block.size)
        while True:
            filled = [levered for levered in waiting.values() if len(levered.value)]
            levered = min(filled, key=lambda some: float(some.value[0]), default=None)
            if levered is None or levered.value[0] >= self.known:
                return left
            if self.entries > budget or asked():
                return min(left, float(levered.value[0]))
            at_once = max(1, _ENTRIES // (self._width(levered.index) * len(self.moves)))
            self._expand(levered.taken(slice(at_once)), tables[levered.index])
            waiting[levered.index] = levered.taken(slice(at_once, None))

    def _promising(self, index: int, quick: Array, table: CostTable) -> LeveredRows:
        """Rows of a block with what its points recompute and launch that may be better than the best known; `quick` is
        a bound on the objective of every row.
        """
        block = self.bounded.blocks[index]
        rows = np.flatnonzero(quick < self.known)
        nothing = LeveredRows(index, rows[:0], rows[:0], rows[:0], np.zeros(0))
        if not len(rows):
            return nothing
        shown_s = self._exposed(index, rows)
        least_s = branch_and_bound.minimum_over_options(shown_s, len(rows))
        below = quick[rows] + self._objective(index, rows, least_s) < self.known
        rows = rows[below]
        shown_s = shown_s[..., below]
        if not len(rows):
            return nothing
        able = self._able(block)
        self.candidates += len(rows) * self.problem.blocks[index].width // len(able) * int(np.count_nonzero(able))
        largest = [int(np.flatnonzero(moves)[-1]) for moves in able]
        whole = self._moving(self.bounded.grid(index), largest, (-1, *[1] * (len(DIMENSIONS) - _KEPT)))
        parts = [nothing]
        at_once = max(1, _ENTRIES // block.width)
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            grid, priced = table.part(some, least=True)
            # Of what is in host memory not all need be there: it may hold less.
            held = [stage.states + stage.live for stage in _stages(costing.rows_of(whole, some))]
            steady = _flow(grid, priced).time * jitter(grid) + shown_s[..., start : start + at_once]
            seconds = _bounds(grid, steady, held, self._room(index, some))
            value = self._objective(index, some, seconds)
            point, place = np.nonzero(value < self.known)
            parts.append(LeveredRows(index, some[place], point, np.zeros_like(point), value[point, place]))
            self.entries += len(some) * block.width
        return _joined(parts)

    def _expand(self, some: LeveredRows, table: CostTable) -> None:
        """Looks at what some levered rows move."""
        place, move = np.nonzero(self._able(self.bounded.blocks[some.index])[some.point])
        some = replace(some.taken(place), move=move)
        grid = self._grid(self.bounded, some)
        flow = _flow(grid, self._passes(some, table, grid))
        passes_s = branch_and_bound.minimum_over_options(flow.time * jitter(grid), len(some.row))
        shown_s = branch_and_bound.minimum_over_options(self._shown_beside(some, flow), len(some.row))
        seconds = passes_s + shown_s + grid.stack.step_overhead
        fast = np.flatnonzero(self._objective(some.index, some.row, seconds) < self.known)
        self.entries += len(some.row) * self._width(some.index)
        if not len(fast):
            return
        some = some.taken(fast)
        grid = self._grid(self.bounded, some)
        held = [stage.total for stage in _stages(grid)]
        flow = _flow(grid, self._passes(some, table, grid))
        steady = flow.time * jitter(grid) + self._shown_beside(some, flow)
        seconds = _bounds(grid, steady, held, self._room(some.index, some.row))[0]
        value = self._objective(some.index, some.row, seconds)
        below = np.flatnonzero(value < self.known)
        self._price(_joined([replace(some, value=value).taken(below)]), table)

    def _width(self, index: int) -> int:
        """Options of a levered row, as far as bounds need them."""
        axes = self.bounded.blocks[index].axes
        return math.prod(axes.shape) // axes.shape[_KEPT]

    def _shown_beside(self, levered: LeveredRows, flow: Flow) -> Array:
        """Seconds of data-parallel communication that the longest passes of each row do not hide."""
        rows, place = np.unique(levered.row, return_inverse=True)
        ahead = np.zeros(len(rows))
        behind = np.zeros(len(rows))
        np.maximum.at(ahead, place, _most(flow.forward, len(place)))
        np.maximum.at(behind, place, _most(flow.backward, len(place)))
        return self._exposed(levered.index, rows, ahead, behind)[..., place]

    def _exposed(
        self, index: int, rows: NDArray[np.intp], ahead: Figure = math.inf, behind: Figure = math.inf
    ) -> Array:
        """Seconds of data-parallel communication of rows that passes of so many seconds do not hide, by what bounds
        need of shardings.
        """
        block = self.problem.blocks[index]
        axes = block.axes
        alone = OptionGrid((*axes.points[:_KEPT], axes.points[_KEPT][:1], *axes.points[_KEPT + 1 :]))
        some = Block({name: column[rows] for name, column in block.rows.items()}, alone, block.family[rows])
        grid = open_grid(self.problem.figures, some)
        split = pipeline.split(grid.shape, grid.layout)
        traffic = data_parallel.most_held(grid, split)
        shown = _spread(data_parallel.exposed_traffic(grid, traffic, split.first, ahead, behind) * jitter(grid))
        # Of shardings that bounds take as one, the least.
        listed = axes.on(ZERO.dimension)
        kept = {point: at for at, point in enumerate(self.bounded.blocks[index].axes.on(ZERO.dimension))}
        on = [Sharding(*point)._replace(overlap=True, offload_overlap=True) for point in listed]
        image = [kept[best if best in kept else point] for best, point in zip(on, listed, strict=True)]
        shown = np.broadcast_to(shown, (*shown.shape[:_SHARED], len(listed), *shown.shape[_SHARED + 1 :]))
        least = np.full((*shown.shape[:_SHARED], len(kept), *shown.shape[_SHARED + 1 :]), np.inf)
        np.minimum.at(np.moveaxis(least, _SHARED, 0), image, np.moveaxis(shown, _SHARED, 0))
        options = tuple(place for place in range(len(DIMENSIONS)) if place not in (_SHARED, _ORDERED))
        return np.broadcast_to(np.min(least, axis=options, keepdims=True), (*least.shape[:-1], len(rows)))

    def _price(self, levered: LeveredRows, table: CostTable) -> None:
        """Prices levered rows under every option."""
        target = self.problem.targets[levered.index]
        shape = self.problem.blocks[levered.index].axes.shape
        options = (*shape[:_KEPT], 1, *shape[_KEPT + 1 :])
        at_once = max(1, (_ENTRIES >> 2) // math.prod(options))
        for start in range(0, len(levered.value), at_once):
            some = levered.taken(slice(start, start + at_once))
            if some.value[0] >= self.known:
                return
            grid = self._grid(self.problem, some)
            priced = passes(grid) if self.by_sharding else self._passes(some, table, grid)
            time = np.broadcast_to(evaluate(grid, priced, 0.0).time, (*options, len(some.row)))
            self.entries += time.size
            able = (time <= target.limit[some.row]) & (time * target.weight[some.row] < self.known)
            fast = np.flatnonzero(np.any(able, axis=tuple(range(len(options)))))
            if not len(fast):
                continue
            some = some.taken(fast)
            time = time[..., fast]
            held = stage_memory.largest(_stages(self._grid(self.problem, some)))
            able = able[..., fast] & (held <= self._room(some.index, some.row))
            value = np.where(able, time * target.weight[some.row], np.inf)
            at = np.unravel_index(int(np.argmin(value)), value.shape)
            if value[at] < self.known:
                held_bytes = float(np.broadcast_to(held, value.shape)[at])
                self.best = self._candidate(some, at, (float(value[at]), float(time[at]), held_bytes))

    def _candidate(self, levered: LeveredRows, at: Sequence[np.intp], costs: tuple[float, float, float]) -> Candidate:
        """The candidate at one place of levered rows with all options; costs are its objective, seconds and bytes."""
        block = self.problem.blocks[levered.index]
        *chosen, place = map(int, at)
        chosen[_KEPT] = int(levered.point[place])
        options = block.axes.at(chosen)
        moved = self.moves[int(levered.move[place])]
        layout = {axis: int(column[levered.row[place]]) for axis, column in block.rows.items()}
        flat = int(np.ravel_multi_index((*chosen, int(levered.row[place])), block.shape))
        return Candidate(
            levered.index,
            flat,
            *costs,
            layout=layout,
            options=options.replaced(activation_offload=moved) if moved else options,
        )

    def _able(self, block: Block) -> NDArray[np.bool_]:
        """Which moves, the largest last, go with which points of a block."""
        alone = block.axes[SCHEDULE][0] not in SPLIT_SCHEDULES
        return _able(block.axes[RECOMPUTE], block.axes[GRAPHS], self.moves if alone else self.moves[:1])

    def _room(self, index: int, rows: NDArray[np.intp]) -> Figure:
        return self.problem.room(index, rows)

    def _objective(self, index: int, rows: NDArray[np.intp], seconds: Array) -> Array:
        return branch_and_bound.objective(self.problem, index, rows, seconds * (1.0 - _ROUNDING))

    def _grid(self, problem: SearchProblem, levered: LeveredRows) -> Grid:
        """Levered rows as rows of a grid."""
        block = problem.blocks[levered.index]
        used, place = np.unique(levered.point, return_inverse=True)
        listed = block.axes.points[_KEPT]
        points = (*block.axes.points[:_KEPT], tuple(listed[kept] for kept in used), *block.axes.points[_KEPT + 1 :])
        rows = {name: column[levered.row] for name, column in block.rows.items()}
        grid = paired_grid(problem.figures, Block(rows, OptionGrid(points), levered.row), RECOMPUTE, place)
        return self._moving(grid, levered.move, (-1,))

    def _moving(self, grid: Grid, moves: Sequence[int] | NDArray[np.intp], shape: Sequence[int]) -> Grid:
        """The grid with inputs of these modules moved, one set a place along an array of some shape."""
        if len(self.moves) == 1:
            return grid
        figures = [ACTIVATION_OFFLOAD.figures(moved) for moved in self.moves]
        names = dict.fromkeys(name for known in figures for name in known)
        placed = {
            name: np.array([known.get(name, 0.0) for known in figures])[np.asarray(moves)].reshape(shape)
            for name in names
        }
        return replace(grid, options=replace(grid.options, **placed))

    def _passes(self, levered: LeveredRows, table: CostTable, grid: Grid) -> StepPasses:
        """What a micro-batch of each costs under what bounds need of the other options."""
        priced = table.keyed.paired(_KEPT, levered.point, table.place[levered.row])
        return replace(priced, layers=copying(grid, priced.layers)) if len(self.moves) > 1 else priced


@lru_cache(maxsize=64)
def _able(
    policies: tuple[Recompute, ...], graphs: tuple[str, ...], moves: tuple[tuple[str, ...], ...]
) -> NDArray[np.bool_]:
    """Which moves go with which policies and graphs."""
    able = [
        [not moved or (captured == ALONE and offloading.goes_with(policy, moved)) for moved in moves]
        for policy, captured in zip(policies, graphs, strict=True)
    ]
    return np.array(able)


def _joined(parts: Sequence[LeveredRows]) -> LeveredRows:
    """The levered rows of all parts, the most promising first."""
    row, point, move, value = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "point", "move", "value")
    )
    return LeveredRows(parts[0].index, row, point, move, value).taken(np.argsort(value, kind="stable"))


def _stages(grid: Grid) -> Sequence[stage_memory.Memory]:
    return stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))


def _flow(grid: Grid, priced: StepPasses) -> Flow:
    return pipeline.flow(grid, pipeline.stages(grid, priced.layers, priced.ends, priced.weights))


def _most(figure: Figure, count: int) -> Array:
    """The most over options of so many rows."""
    return np.broadcast_to(np.max(_spread(figure), axis=tuple(range(len(DIMENSIONS)))), (count,))


def _bounds(grid: Grid, steady: Figure, held: Sequence[Figure], room: Figure) -> Array:
    """Seconds that no candidate undercuts that fits, shape (points, rows); infinite where none fits."""
    fixed = data_parallel.update(grid, pipeline.split(grid.shape, grid.layout)) + grid.stack.step_overhead
    fits = _spread(held[0] <= room)
    for part in held[1:]:
        fits = fits & (part <= room)
    seconds = np.where(fits, _least(steady, fits.shape) + _least(fixed, fits.shape), np.inf)
    least = np.min(seconds, axis=tuple(place for place in range(len(DIMENSIONS)) if place != _KEPT))
    return np.broadcast_to(least, (least.shape[0], len(grid.layout.tp)))


def _spread(figure: Figure) -> NDArray[np.generic]:
    """With all dimensions."""
    array = np.asarray(figure)
    return array.reshape((1,) * (len(DIMENSIONS) + 1 - array.ndim) + array.shape)


def _least(figure: Figure, shape: Sequence[int]) -> Array:
    """The least over options, but that of recomputation, along which an array of some shape has one value."""
    alone = tuple(place for place in range(len(DIMENSIONS)) if shape[place] == 1 and place != _KEPT)
    return np.asarray(np.min(_spread(figure), axis=alone, keepdims=True))
