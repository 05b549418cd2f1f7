"""The best candidate with any levers: after the base space, lever by lever, on rows that can still enter the answer.

All levers at once would be thousands of options a row. Two facts make them few (:mod:`planner.space.levers`): a row is
never faster than under the levers that shorten passes, as if everything fitted and nothing were computed twice; and
it holds what no lever takes away. A wave prices one part of the space on the rows that keep below the best known by the
first and within the memory by the second, those with the lowest bound first. The waves together are the whole space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes import AXES
from planner.axes.options import DIMENSIONS
from planner.axes.table import ATTENTION_KERNEL, DISPATCHER
from planner.cost import pipeline, stage_memory
from planner.cost.evaluate import StepPasses
from planner.cost.figures import Array
from planner.search import branch_and_bound, costing
from planner.search.branch_and_bound import Bounded
from planner.search.costing import CostTable
from planner.search.problem import Candidate, SearchProblem
from planner.space.enumerate_layouts import Rows
from planner.space.levers import LEANER, Levers
from planner.space.pins import Bound, Pins

Problem = Callable[[Rows, Pins], "SearchProblem | None"]
"""The problem of some rows under pins; None where no options go with them."""
BUDGET = 12_000_000
"""Candidates that one question's waves may look at; counted, so that the same question has the same answer on every
machine. What is left then is told with a bound."""
_TIME_ALONE = (ATTENTION_KERNEL, DISPATCHER)
"""Axes whose values differ in time, but for one (:data:`_HOLDS_MORE`) not in memory."""
_HOLDS_MORE = ("allgather",)


@dataclass(frozen=True, slots=True)
class LeverSearch:
    """What the waves found beyond the base space."""

    best: Candidate | None
    """Better than anything of the base space; None where no lever helps."""
    looked_at: int
    """Candidates that a bound was computed for, or more."""
    costed: int
    least_left: float
    """Objective that no candidate undercuts of those that were left out; infinite where none was."""


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """Rows in the order of their bounds."""

    rows: Rows
    value: Array
    """Objective that no candidate of a row undercuts, under any levers."""

    def taken(self, at: NDArray[np.intp]) -> BoundedRows:
        """The rows at some places."""
        return BoundedRows({name: column[at] for name, column in self.rows.items()}, self.value[at])

    def below(self, value: float) -> BoundedRows:
        """The rows that may be better than a value."""
        return self.taken(np.flatnonzero(self.value < value))


def search(
    problem_of: Problem, rows: Rows, pins: Pins, levers: Levers, known: float, budget: int = BUDGET
) -> LeverSearch:
    """The best candidate under any levers that is better than a known value.

    Args:
        problem_of: Makes problems of rows.
        rows: All legal ones.
        pins: Of the question.
        levers: At least one.
        known: Objective of the best of the base space; infinite where nothing fits.
        budget: Candidates to look at.
    """
    fastest = problem_of(rows, _neutral(levers, pins))
    if fastest is None:
        return LeverSearch(None, 0, 0, np.inf)
    tables = costing.tables(fastest)
    levers = _needed(fastest, tables, levers)
    waiting = _bounded(fastest, tables, known)
    best: Candidate | None = None
    looked_at = costed = 0
    least_left = np.inf
    for full, added_only in levers.waves():
        waiting = waiting.below(known)
        problem = problem_of(waiting.rows, levers.pins(pins, full, added_only)) if len(waiting.value) else None
        if problem is None:
            continue
        able, left = _within(problem, waiting, budget - looked_at)
        least_left = min(least_left, left)
        found = Bounded(below=known).search(able)
        looked_at += able.candidates
        costed += found.costed
        if found.best and found.best[0].value < known:
            best, known = found.best[0], found.best[0].value
    return LeverSearch(best, looked_at, costed, least_left if least_left < known else np.inf)


def _neutral(levers: Levers, pins: Pins) -> Pins:
    """Every value that is faster, and of the leaner levers the one without cost."""
    bounds = dict(levers.pins(pins, [axis for axis in levers.added if axis not in LEANER]).bounds)
    for axis in LEANER:
        neutral = AXES[axis].spell(AXES[axis].neutral)
        if neutral in levers.base.get(axis, ()):
            bounds[axis] = Bound((neutral,))
    return Pins(bounds)


def _bounded(problem: SearchProblem, tables: Mapping[int, CostTable], known: float) -> BoundedRows:
    """Rows that may be better than a known value, each once."""
    names = list(problem.blocks[0].rows)
    columns = [np.empty((len(names), 0), dtype=np.int64)]
    values = [np.empty(0)]
    for index, block in enumerate(problem.blocks):
        rows = np.flatnonzero(branch_and_bound.quick_objective_bound(problem, index, tables[index]) < known)
        rows = rows[_least_held(problem, index, rows) <= problem.room(index, rows)] if len(rows) else rows
        if len(rows):
            bound = branch_and_bound.lower_bound(*tables[index].part(rows, least=True))
            values.append(branch_and_bound.objective(problem, index, rows, bound))
            columns.append(np.stack([block.rows[name][rows] for name in names]))
    value = np.concatenate(values)
    order = np.argsort(value, kind="stable")
    distinct = np.concatenate(columns, axis=1)[:, order]
    # The first of equal rows has the lowest bound.
    _, once = np.unique(distinct, axis=1, return_index=True)
    once = np.sort(once)
    kept = BoundedRows(dict(zip(names, distinct[:, once], strict=True)), value[order][once])
    return kept.below(known)


def _least_held(problem: SearchProblem, index: int, rows: NDArray[np.intp]) -> Array:
    """Bytes of each row that no lever takes away: parameters, gradients, and what the runtime itself holds."""
    grid = costing.rows_of(problem.grid(index), rows)
    most = np.zeros(len(rows))
    for stage in stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout)):
        held = stage.parameters + stage.gradients + stage.resident
        least = np.min(held, axis=tuple(range(np.ndim(held) - 1))) if np.ndim(held) > 1 else held
        most = np.maximum(most, least)
    return most


def _within(problem: SearchProblem, part: BoundedRows, budget: int) -> tuple[SearchProblem, float]:
    """The problem with as many of its rows, lowest bounds first, as the budget allows; and the bound of the others."""
    if problem.candidates <= budget:
        return problem, np.inf
    order = _keys(part.rows)
    sorter = np.argsort(order)
    places = [sorter[np.searchsorted(order, _keys(block.rows), sorter=sorter)] for block in problem.blocks]
    candidates = np.zeros(len(order))
    for block, place in zip(problem.blocks, places, strict=True):
        np.add.at(candidates, place, block.width)
    most = int(np.searchsorted(np.cumsum(candidates), budget, side="right"))
    blocks = []
    targets = []
    for block, target, place in zip(problem.blocks, problem.targets, places, strict=True):
        at = np.flatnonzero(place < most)
        if len(at):
            rows = {name: column[at] for name, column in block.rows.items()}
            blocks.append(replace(block, rows=rows, family=block.family[at]))
            targets.append(replace(target, weight=target.weight[at], limit=target.limit[at]))
    return replace(problem, blocks=tuple(blocks), targets=tuple(targets)), float(part.value[most])


def _keys(rows: Rows) -> NDArray[np.void]:
    """One value a row that equal rows share."""
    columns = np.ascontiguousarray(np.stack([rows[name] for name in sorted(rows)], axis=1))
    return np.asarray(columns.view([("", columns.dtype)] * columns.shape[1])[:, 0])


# ---- levers that no row needs ----------------------------------------------------------------------------------------


def _needed(problem: SearchProblem, tables: Mapping[int, CostTable], levers: Levers) -> Levers:
    """The levers without values that another never exceeds in any pass of any row, nor in memory."""
    for axis in _TIME_ALONE:
        if axis.name not in levers.added:
            continue
        dimension = tuple(DIMENSIONS).index(axis.dimension)
        places = [
            {axis.spell(value): place for place, value in enumerate(block.axes[axis])} for block in problem.blocks
        ]
        left = list(dict.fromkeys(name for known in places for name in known))
        for name in reversed(left[:]):
            rivals = [other for other in left if other not in (name, *_HOLDS_MORE)]
            if all(
                any(
                    other in known and _never_slower(tables[index].keyed, dimension, known[other], known[name])
                    for other in rivals
                )
                for index, known in enumerate(places)
                if name in known
            ):
                left.remove(name)
        # Rows whose experts are on one rank have the base value alone.
        base = levers.base[axis.name] if axis is DISPATCHER else tuple(n for n in levers.base[axis.name] if n in left)
        added = tuple(name for name in levers.added[axis.name] if name in left)
        levers = Levers({**levers.base, axis.name: base}, {**levers.added, axis.name: added})
    return levers


def _never_slower(priced: StepPasses, dimension: int, one: int, other: int) -> bool:
    """Whether no pass takes longer at one place of a dimension than at another."""
    for figure in _figures(priced):
        if np.ndim(figure) > dimension and figure.shape[dimension] > 1:
            if np.any(np.take(figure, one, dimension) > np.take(figure, other, dimension)):
                return False
    return True


def _figures(priced: StepPasses) -> Iterator[Array]:
    parts: Sequence[object] = (*priced.layers, *priced.ends)
    for part in parts:
        for field in fields(part):  # type: ignore[arg-type]
            if field.name != "parts":
                yield getattr(part, field.name)
