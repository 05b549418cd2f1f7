"""What is told of a long search while it runs: its best so far, and how far from the optimum that is at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from planner.base.stopping import note_of
from planner.base.units import format_percent, format_seconds
from planner.cost.figures import Array
from planner.search import costing, pareto_front
from planner.search.costing import CostTable
from planner.search.problem import SearchProblem

LONG = 5_000_000
"""Candidates from which on a search takes so long that its best is told while it runs."""


def incumbent(time: float, value: float, bound: float) -> str:
    """``best 58.1 s a step, gap 4.2 %``: how much better the optimum may be, at most."""
    return f"best {format_seconds(time)} a step, gap {format_percent(max(value / bound - 1.0, 0.0))}"


class Incumbent:
    """The best of the rows bounded so far, found beside the search, which does not depend on who watches."""

    def __init__(
        self,
        problem: SearchProblem,
        tables: Mapping[int, CostTable],
        advance: object,
        quick_bound: Callable[[SearchProblem, int, CostTable], Array],
    ) -> None:
        """`quick_bound` gives a bound on every row of a block."""
        self.problem, self.tables = problem, tables
        self.note = note_of(advance) if problem.candidates >= LONG else None
        self.best = pareto_front.nothing()
        blocks = range(len(problem.blocks)) if self.note else ()
        self.bounds = [float(np.min(quick_bound(problem, index, tables[index]), initial=np.inf)) for index in blocks]

    def bounded(self, index: int, bounds: Array) -> None:
        """Price the most promising row of a block whose rows have been bounded, and tell the best so far."""
        if self.note is None:
            return
        self.bounds[index] = float(np.min(bounds, initial=np.inf))
        if np.isfinite(self.bounds[index]):
            rows = np.array([int(np.argmin(bounds))])
            costs = costing.cost(self.tables[index], rows)
            hits, _ = costing.worth_keeping(self.problem, index, rows, costs, np.inf)
            self.best = pareto_front.best(self.best.joined(hits), 1)
        if len(self.best):
            self.note(incumbent(float(self.best.time[0]), float(self.best.value[0]), min(self.bounds)))
