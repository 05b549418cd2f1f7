"""The best candidate of every node count at once: one survey for all, then rows of each count in order of their bound.

The same bound, the same ties and so the same plans as :class:`~planner.search.bounded.Bounded` on one count alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.search import bounded, costing
from planner.search.costing import Table
from planner.search.problem import Candidate, Problem, decode

_AT_ONCE = 4
"""Rows of one count that are costed between two looks at its best."""


@dataclass
class _Best:
    """What is known of every count: values, and where they are."""

    value: Array
    block: NDArray[np.int64]
    flat: NDArray[np.int64]
    time: Array
    memory: Array


def best_of_each(problem: Problem) -> dict[int, Candidate]:
    """Node count -> its best candidate, by value, then block, then flat index; counts on which nothing fits are left
    out.
    """
    counts = sorted({int(n) for block in problem.blocks for n in np.unique(block.rows["nodes"])})
    place = {count: i for i, count in enumerate(counts)}
    tables = [costing.table(problem, i) for i in range(len(problem.blocks))]
    surveys = [bounded.survey(problem, i, ready) for i, ready in enumerate(tables)]
    groups = [np.array([place[int(n)] for n in block.rows["nodes"]], dtype=np.intp) for block in problem.blocks]
    empty = np.zeros(len(counts), dtype=np.int64)
    best = _Best(np.full(len(counts), np.inf), empty.copy(), empty.copy(), np.zeros(len(counts)), np.zeros(len(counts)))
    waiting = [np.argsort(s.value, kind="stable")[: int(np.count_nonzero(np.isfinite(s.value)))] for s in surveys]
    while True:
        waiting = [rows[surveys[i].value[rows] <= best.value[groups[i][rows]]] for i, rows in enumerate(waiting)]
        if not any(len(rows) for rows in waiting):
            break
        for index, rows in enumerate(waiting):
            if len(rows):
                taken = _first_of_each(groups[index][rows])
                _cost(problem, index, tables[index], np.sort(rows[taken]), groups[index], best)
                waiting[index] = np.delete(rows, taken)
    return {
        count: decode(
            problem, int(best.block[i]), int(best.flat[i]), *(float(x[i]) for x in (best.value, best.time, best.memory))
        )
        for count, i in place.items()
        if np.isfinite(best.value[i])
    }


def _first_of_each(groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Positions of the first few of every group."""
    order = np.argsort(groups, kind="stable")
    _, starts = np.unique(groups[order], return_index=True)
    nth = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.sort(order[nth < _AT_ONCE])


def _cost(
    problem: Problem, index: int, ready: Table, rows: NDArray[np.intp], groups: NDArray[np.intp], best: _Best
) -> None:
    """Costs some rows and keeps the best of each group in `best`."""
    block, target = problem.blocks[index], problem.targets[index]
    width = costing.rows_per_chunk(block)
    for start in range(0, len(rows), width):
        part = rows[start : start + width]
        found = costing.cost(ready, part)
        shape = (*block.axes.shape, len(part))
        time, held = np.broadcast_to(found.time, shape), np.broadcast_to(found.memory, shape)
        allowed = (held <= problem.capacity) & (time <= target.limit[part])
        value = np.where(allowed, time * target.weight[part], np.inf).reshape(-1, len(part))
        option = np.argmin(value, axis=0)
        for column, row in enumerate(part):
            least, group = value[option[column], column], groups[row]
            flat = int(option[column]) * block.height + int(row)
            if (least, index, flat) < (best.value[group], best.block[group], best.flat[group]) and np.isfinite(least):
                best.value[group], best.block[group], best.flat[group] = least, index, flat
                at = np.unravel_index(int(option[column]), block.axes.shape)
                best.time[group], best.memory[group] = time[(*at, column)], held[(*at, column)]
