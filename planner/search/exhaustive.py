"""Costs every candidate: the oracle of the bounded search, and the honest measure of what costing costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.search import archive, costing
from planner.search.problem import SearchProblem, SearchResult, SearchTally, answer


class Exhaustive:
    """Every candidate's time is computed."""

    name = "exhaustive"

    def search(self, problem: SearchProblem, advance: Callable[[int], None] | None = None) -> SearchResult:
        """The result that :class:`planner.search.bounded.Bounded` finds, by costing every candidate; `advance` is told
        how many candidates were costed.
        """
        kept = archive.nothing()
        feasible = 0
        least = None
        for index, block in enumerate(problem.blocks):
            ready = costing.table(problem, index)
            chunk_rows = costing.rows_per_chunk(block)
            for start in range(0, block.height, chunk_rows):
                rows = np.arange(start, min(start + chunk_rows, block.height))
                step_cost = costing.cost(ready, rows)
                hits, fitting = costing.worth_keeping(problem, index, rows, step_cost, archive.worst(kept, problem.top))
                feasible += fitting
                if len(hits):
                    kept = archive.best(kept.joined(hits), problem.top)
                if not feasible:
                    least = archive.leaner(least, index, rows, block, step_cost)
                if advance:
                    advance(len(rows) * block.width)
        tally = SearchTally(kept, archive.nothing(), feasible, problem.candidates, least)
        return answer(problem, tally, self.name)
