"""The best candidate with any levers: after the base space, on rows that can still be better than its best.

All levers at once would be thousands of options a row. Two facts make the rows few (:mod:`planner.space.levers`): a row
is never faster than under the levers that shorten passes, as if everything fitted and nothing were computed twice; and
it holds what no lever takes away. The others are searched with every lever (:mod:`planner.search.levered_rows`): first
without those that need host memory, then with all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes import AXES
from planner.axes.options import DIMENSIONS
from planner.axes.table import ACTIVATION_OFFLOAD, ATTENTION_KERNEL, DISPATCHER, ZERO_SCOPE
from planner.base.progress import Progress, advancing
from planner.base.stopping import asked, note_of
from planner.cost import pipeline, stage_memory
from planner.cost.evaluate import StepPasses
from planner.cost.figures import Array
from planner.search import branch_and_bound, costing
from planner.search.costing import CostTable
from planner.search.incumbent import incumbent
from planner.search.levered_rows import LeveredSearch
from planner.search.problem import Candidate, SearchProblem
from planner.space.enumerate_layouts import Rows
from planner.space.levers import FASTER, HOST, LEANER, Levers
from planner.space.pins import Bound, Pins

Problem = Callable[[Rows, Pins], "SearchProblem | None"]
"""The problem of some rows under pins; None where no options go with them."""
BUDGET = 200_000_000
"""Entries of arrays that one question's waves may look at; counted, so that the same question has the same answer on
every machine. What is left then is told with a bound."""
TIED = 0.03
"""Share of the objective that says nothing of which plan is better (:mod:`planner.planning.order`)."""
COPIES = "copies of several nodes"
"""The wave of plans whose copies several nodes of many share."""
FIRST = 0.5
"""Share of the budget for what needs no host memory."""
_TIME_ALONE = (ATTENTION_KERNEL, DISPATCHER)
"""Axes whose values differ in time, but for one (:data:`_HOLDS_MORE`) not in memory."""
_HOLDS_MORE = ("allgather",)


@dataclass(frozen=True, slots=True)
class LeverSearch:
    """What the waves found beyond the base space."""

    device: Candidate | None
    """The best without levers of :data:`HOST`, if it is better than anything of the base space."""
    host: Candidate | None
    """The best with any levers, if it is better than that."""
    least: float
    """Objective of the best of all, with or without levers."""
    looked_at: int
    """Candidates that a bound was computed for, or more."""
    least_left: float
    """Objective that no candidate undercuts of those that were left out; infinite where none was."""


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """Rows that may be better than the best known."""

    rows: Rows
    value: Array
    """Objective that no candidate of a row undercuts, under any levers."""

    def below(self, value: float) -> BoundedRows:
        """The rows that may be better than a value."""
        at = np.flatnonzero(self.value < value)
        return BoundedRows({name: column[at] for name, column in self.rows.items()}, self.value[at])


def search(
    pose: Problem, rows: Rows, pins: Pins, levers: Levers, base: Candidate | None, progress: Progress | None = None
) -> LeverSearch:
    """The best candidate under any levers that is better than the best of the base space, after :data:`BUDGET`
    entries at most; Ctrl-C ends the search with the best so far.

    Args:
        pose: Makes problems of rows.
        rows: All legal ones.
        pins: Of the question.
        levers: At least one.
        base: The best of the base space; None where nothing fits.
        progress: Shows how far a wave is, and the best so far.
    """
    fastest = _fastest(pose, rows, levers, pins)
    if fastest is None:
        return LeverSearch(None, None, base.value if base else np.inf, 0, np.inf)
    tables = costing.tables(fastest)
    levers = _needed(fastest, tables, levers)
    waiting = _bounded(fastest, tables, base.value if base else np.inf)
    by_wave: dict[str, Candidate] = {}
    priced: costing.Priced = {}
    best = base
    looked_at = 0
    entries = 0
    least_left = np.inf
    copies_last = not any(axis in HOST for axis in levers.added)
    for wave, axes, scoped in _waves(levers):
        waiting = waiting.below(best.value if best else np.inf)
        if not len(waiting.value) or asked():
            least_left = float(np.min(waiting.value, initial=np.inf))
            break
        # Copies that are better by less than a tie need not be known apart from what the wave of all levers finds.
        nearer = best is not None and wave == COPIES and not copies_last
        rival = replace(best, value=best.value * (1.0 - TIED)) if best and nearer else best
        promising = waiting.below(rival.value) if rival else waiting
        moves = levers.added[ACTIVATION_OFFLOAD.name] if ACTIVATION_OFFLOAD.name in axes else ()
        added = {axis: levers.added[axis] for axis in axes if axis != ACTIVATION_OFFLOAD.name}
        problem = pose(promising.rows, scoped.pins(pins, added)) if len(promising.value) else None
        left = np.inf
        if problem is not None:
            every = LeveredSearch(problem, [ACTIVATION_OFFLOAD.read(name) for name in moves], rival, priced)
            with advancing(progress, f"levers ({wave})", problem.candidates) as advance:
                if best and (note := note_of(advance)):
                    note(incumbent(best.time, best.value, float(np.min(waiting.value))))
                left = every.search(BUDGET * (FIRST if wave != "host" else 1.0) - entries, advance)
            looked_at += every.candidates
            entries += every.entries
            if every.best and every.best is not rival:
                best = by_wave["host" if wave == "host" else "device"] = every.best
        # What the first wave left out, that of copies does not try, and that of all levers does.
        least_left = min(least_left, left) if wave == COPIES else left
    known = best.value if best else np.inf
    left_out = least_left if least_left < known else np.inf
    return LeverSearch(by_wave.get("device"), by_wave.get("host"), known, looked_at, left_out)


def _waves(levers: Levers) -> Iterator[tuple[str, tuple[str, ...], Levers]]:
    """Axes of levers that are searched together: those without anything in host memory, with copies that all ranks or
    those of a node share, then with copies of several nodes alone; at last all.
    """
    device = tuple(axis for axis in levers.added if axis not in HOST)
    if plain := tuple(axis for axis in device if axis != ZERO_SCOPE.name):
        yield "device", plain, levers
    if len(plain) < len(device):
        yield COPIES, device, replace(levers, base={**levers.base, ZERO_SCOPE.name: ()})
    if len(device) < len(levers.added):
        yield "host", tuple(levers.added), levers


def _fastest(pose: Problem, rows: Rows, levers: Levers, pins: Pins) -> SearchProblem | None:
    """Every value that is faster, and of leaner levers the one without cost."""
    faster = levers.pins(pins, {axis: added for axis, added in levers.added.items() if axis in FASTER})
    neutral = {axis: Bound((AXES[axis].spell(AXES[axis].neutral),)) for axis in LEANER if axis in levers.added}
    return pose(rows, Pins({**faster.bounds, **neutral}))


def _bounded(problem: SearchProblem, tables: Mapping[int, CostTable], known: float) -> BoundedRows:
    """Rows that may be better than a known value, each once."""
    names = list(problem.blocks[0].rows)
    columns = [np.empty((len(names), 0), dtype=np.int64)]
    values = [np.empty(0)]
    for index, block in enumerate(problem.blocks):
        rows = np.flatnonzero(branch_and_bound.quick_objective_bound(problem, index, tables[index]) < known)
        if not len(rows):
            continue
        rows = rows[_least_bytes(problem, index, rows) <= problem.room(index, rows)]
        if len(rows):
            bound = branch_and_bound.lower_bound(*tables[index].part(rows, least=True))
            values.append(branch_and_bound.objective(problem, index, rows, bound))
            columns.append(np.stack([block.rows[name][rows] for name in names]))
    distinct, place = np.unique(np.concatenate(columns, axis=1), axis=1, return_inverse=True)
    least = np.full(distinct.shape[1], np.inf)
    np.minimum.at(least, place.ravel(), np.concatenate(values))
    return BoundedRows(dict(zip(names, distinct, strict=True)), least).below(known)


def _least_bytes(problem: SearchProblem, index: int, rows: NDArray[np.intp]) -> Array:
    """Bytes of each row that no lever takes away: parameters, gradients, and what the runtime itself holds."""
    grid = costing.rows_of(problem.grid(index), rows)
    least = np.zeros(len(rows))
    for stage in stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout)):
        held = stage.parameters + stage.gradients + stage.resident
        least = np.maximum(least, branch_and_bound.minimum_over_options(held, len(rows)))
    return least


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
        added = {axis.name: tuple(name for name in levers.added[axis.name] if name in left)}
        levers = Levers({**levers.base, axis.name: base}, {**levers.added, **added})
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
