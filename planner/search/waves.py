"""The best candidate with any levers: after the base space, lever by lever, on rows that can still enter the answer.

All levers at once would be thousands of options a row. Two facts make them few (:mod:`planner.space.levers`): a row is
never faster than under the levers that shorten passes, as if everything fitted and nothing were computed twice; and
it holds what no lever takes away. A wave prices one part of the space on the rows that keep below the best known by the
first and within the memory by the second, those first that promise most. The waves together are the whole space, or
what a budget of candidates holds of it; what is left out is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.axes import AXES, PlanAxis
from planner.axes.options import DIMENSIONS
from planner.axes.table import ATTENTION_KERNEL, DISPATCHER, DP_OVERLAP, GRAPHS, ZERO, ZERO_SCOPE
from planner.base.stopping import Progress, asked, note_of
from planner.cost import pipeline, stage_memory
from planner.cost.evaluate import StepPasses
from planner.cost.figures import Array
from planner.search import branch_and_bound, costing
from planner.search.branch_and_bound import Bounded
from planner.search.costing import CostTable
from planner.search.incumbent import incumbent
from planner.search.problem import Candidate, SearchProblem
from planner.space.enumerate_layouts import Rows
from planner.space.levers import FASTER, HOST, LEANER, Levers
from planner.space.pins import Bound, Pins

Problem = Callable[[Rows, Pins], "SearchProblem | None"]
"""The problem of some rows under pins; None where no options go with them."""
BUDGET = 2_000_000
"""Candidates that one question's waves may look at; counted, so that the same question has the same answer on every
machine. What is left then is told with a bound."""
FIRST = 0.7
"""Share of the budget for what needs no host memory."""
AT_ONCE = 2.0
"""Times as many candidates that one wave may have to be searched whole."""
DEARER = 0.25
"""Share by which a row's bound counts as more where all its activations are too many for its memory, to order rows: to
compute them all again takes a third of the time, to move them or a part less."""
_FAR = 100.0
"""Times an accelerator's memory beyond which it says nothing by how much a plan does not fit."""
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
    """Rows in the order in which they promise to be the best."""

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
    pose: Problem, rows: Rows, pins: Pins, levers: Levers, base: Candidate | None, progress: Progress | None = None
) -> LeverSearch:
    """The best candidate under any levers that is better than the best of the base space, after :data:`BUDGET`
    candidates at most; Ctrl-C ends the search with the best so far.

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
    best = base
    looked_at = 0
    least_left = np.inf
    for wave, axes in _waves(levers):
        waiting = waiting.below(best.value if best else np.inf)
        if not len(waiting.value) or asked():
            least_left = float(np.min(waiting.value, initial=least_left))
            break
        problem, whole = _problem(pose, waiting.rows, pins, levers, axes, AT_ONCE * BUDGET)
        if problem is None:
            continue
        if best and not whole:
            problem = _held(problem, best, free=LEANER if looked_at else levers.added)
        share = np.inf if whole else (FIRST if wave == "device" else 1.0) * BUDGET - looked_at
        able, left = _within(problem, waiting, share)
        looked_at += able.candidates
        least_left = left if whole else np.min(waiting.value)
        with progress(f"levers ({wave})", able.candidates) if progress else nullcontext() as advance:
            if best and (note := note_of(advance)):
                note(incumbent(best.time, best.value, float(np.min(waiting.value))))
            result = Bounded(below=best.value if best else np.inf, stops=True).search(able, advance)
        least_left = min(least_left, result.least_left)
        if result.best and (best is None or result.best[0].value < best.value):
            best = by_wave[wave] = result.best[0]
    known = best.value if best else np.inf
    left_out = least_left if least_left < known else np.inf
    return LeverSearch(by_wave.get("device"), by_wave.get("host"), known, looked_at, left_out)


def _waves(levers: Levers) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Axes of levers that are searched together: those without anything in host memory, then all."""
    device = tuple(axis for axis in levers.added if axis not in HOST)
    if device:
        yield "device", device
    if len(device) < len(levers.added):
        yield "host", tuple(levers.added)


def _problem(
    problem_of: Problem, rows: Rows, pins: Pins, levers: Levers, axes: Sequence[str], most: float
) -> tuple[SearchProblem | None, bool]:
    """The problem with all values on some axes of levers, or with few where all make more than so many candidates; and
    which of both.
    """
    values = math.prod(len(levers.base[axis]) + len(levers.added[axis]) for axis in axes)
    if len(rows["tp"]) * values <= most:
        problem = problem_of(rows, levers.pins(pins, {axis: levers.added[axis] for axis in axes}))
        if problem is None or problem.candidates <= most:
            return problem, True
    return problem_of(rows, levers.pins(pins, {axis: levers.few[axis] for axis in axes})), False


def _held(problem: SearchProblem, best: Candidate, free: Collection[str]) -> SearchProblem:
    """The problem with states sharded as in a candidate, and its levers but those that are free, where rows can have
    them so.
    """
    # Graphs do not go with every value of other levers.
    levers = [AXES[axis] for axis in (*FASTER, *LEANER) if axis not in (*free, GRAPHS.name)]
    held: list[PlanAxis[Any]] = [ZERO, ZERO_SCOPE, DP_OVERLAP, *levers]
    blocks = tuple(replace(block, axes=block.axes.held(best.options, held)) for block in problem.blocks)
    return replace(problem, blocks=blocks)


def _fastest(pose: Problem, rows: Rows, levers: Levers, pins: Pins) -> SearchProblem | None:
    """Every value that is faster, those of graphs in blocks of their own, and of leaner levers the one without cost."""
    faster = levers.pins(pins, {axis: added for axis, added in levers.added.items() if axis in FASTER})
    neutral = {axis: Bound((AXES[axis].spell(AXES[axis].neutral),)) for axis in LEANER if axis in levers.added}
    bounds = {**faster.bounds, **neutral}
    apart = [{GRAPHS.name: Bound((name,))} for name in bounds[GRAPHS.name].values] if GRAPHS.name in bounds else [{}]
    posed = [problem for graphs in apart if (problem := pose(rows, Pins({**bounds, **graphs}))) is not None]
    blocks = tuple(block for problem in posed for block in problem.blocks)
    targets = tuple(target for problem in posed for target in problem.targets)
    return replace(posed[0], blocks=blocks, targets=targets) if posed else None


def _bounded(problem: SearchProblem, tables: Mapping[int, CostTable], known: float) -> BoundedRows:
    """Rows that may be better than a known value, each once."""
    names = list(problem.blocks[0].rows)
    columns = [np.empty((len(names), 0), dtype=np.int64)]
    values = [np.empty(0)]
    promises = [np.empty(0)]
    for index, block in enumerate(problem.blocks):
        rows = np.flatnonzero(branch_and_bound.quick_objective_bound(problem, index, tables[index]) < known)
        if not len(rows):
            continue
        least, held = _bytes(problem, index, rows)
        room = problem.room(index, rows)
        whole = np.minimum(held, _FAR * room)
        short = np.clip((whole - room) / np.maximum(whole - least, 1.0), 0.0, 1.0)[least <= room]
        rows = rows[least <= room]
        if len(rows):
            bound = branch_and_bound.lower_bound(*tables[index].part(rows, least=True))
            values.append(branch_and_bound.objective(problem, index, rows, bound))
            promises.append(values[-1] * (1.0 + DEARER * short))
            columns.append(np.stack([block.rows[name][rows] for name in names]))
    distinct, place = np.unique(np.concatenate(columns, axis=1), axis=1, return_inverse=True)
    value = _least_at(place.ravel(), np.concatenate(values), distinct.shape[1])
    promise = _least_at(place.ravel(), np.concatenate(promises), distinct.shape[1])
    order = np.argsort(promise, kind="stable")
    return BoundedRows(dict(zip(names, distinct[:, order], strict=True)), value[order]).below(known)


def _least_at(place: NDArray[np.intp], values: Array, count: int) -> Array:
    """The least value at each place."""
    least = np.full(count, np.inf)
    np.minimum.at(least, place, values)
    return least


def _bytes(problem: SearchProblem, index: int, rows: NDArray[np.intp]) -> tuple[Array, Array]:
    """Bytes of each row that no lever takes away (parameters, gradients, and what the runtime itself holds), and those
    that it holds at least without one.
    """
    grid = costing.rows_of(problem.grid(index), rows)
    fixed = np.zeros(len(rows))
    whole = np.zeros(len(rows))
    for stage in stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout)):
        held = stage.parameters + stage.gradients + stage.resident
        fixed = np.maximum(fixed, branch_and_bound.minimum_over_options(held, len(rows)))
        whole = np.maximum(whole, branch_and_bound.minimum_over_options(stage.total, len(rows)))
    return fixed, whole


def _within(problem: SearchProblem, part: BoundedRows, budget: float) -> tuple[SearchProblem, float]:
    """The problem with as many of its rows, most promising first, as the budget allows; and the bound of the others."""
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
    return replace(problem, blocks=tuple(blocks), targets=tuple(targets)), float(np.min(part.value[most:]))


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
        added = {axis.name: tuple(name for name in levers.added[axis.name] if name in left)}
        levers = Levers({**levers.base, axis.name: base}, {**levers.added, **added}, {**levers.few, **added})
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
