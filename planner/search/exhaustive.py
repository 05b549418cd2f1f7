"""Costs every candidate: the oracle of the bounded search, and the honest measure of what costing costs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.search import archive, costing
from planner.search.problem import SearchProblem, SearchResult, answer


class Exhaustive:
    """Every candidate's time is computed."""

    name = "exhaustive"

    def search(self, problem: SearchProblem, advance: Callable[[int], None] | None = None) -> SearchResult:
        """The same as :class:`planner.search.bounded.Bounded`; `advance` is told how many candidates were costed."""
        kept, feasible, least = archive.nothing(), 0, None
        for index, block in enumerate(problem.blocks):
            ready, each = costing.table(problem, index), costing.rows_per_chunk(block)
            for start in range(0, block.height, each):
                rows = np.arange(start, min(start + each, block.height))
                found = costing.cost(ready, rows)
                hits, fitting = costing.worth_keeping(problem, index, rows, found, archive.worst(kept, problem.top))
                feasible += fitting
                if len(hits):
                    kept = archive.best(kept.joined(hits), problem.top)
                if not feasible:
                    least = archive.leaner(least, index, rows, block, found)
                if advance:
                    advance(len(rows) * block.width)
        return answer(problem, kept, archive.nothing(), feasible, problem.candidates, self.name, least)
