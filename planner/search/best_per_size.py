"""The best candidate of every node count and every wiring at once.

Rows of each are priced in the order of their bounds. A bound is first that of a row as if everything fitted; what fits
is looked at, once for all wirings, where that bound leads. Bounds and ties are those of
:class:`~planner.search.branch_and_bound.Bounded` on one count of one cluster, and so are the plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.cost.evaluate import StepCost
from planner.cost.figures import Array, Network
from planner.search import branch_and_bound, costing
from planner.search.costing import CostTable
from planner.search.problem import Candidate, SearchProblem, Target, decode
from planner.space.blocks import Block
from planner.space.cost_grid import WIRED

_LOOK_AHEAD = 4
"""Rows of which it is found out what fits, for each that is then costed."""
_AT_FIRST = 16
"""Rows of one group that are costed before the first look at its best; twice as many before each look after that."""
_WITHIN_BOUNDS = 64
"""As many where a bound of each group's best is known: few rows are within it, and most of them are costed anyway."""
LESS_IS_FASTER = ("scaleup_latency", "nic_latency", "base", "mesh", "bridged")
"""Figures of a network of which the smallest bounds all; of the others the largest."""
FIGURES = tuple(name for name in Network.__dataclass_fields__ if name != "dimensions")
"""Figures of a network that are numbers."""


@dataclass
class Best:
    """What is known of every group: values, and where they are."""

    value: Array
    block: NDArray[np.int64]
    flat: NDArray[np.int64]
    time: Array
    memory: Array


def best_of_each(
    problem: SearchProblem, networks: Sequence[Network] = (), wanted: Collection[tuple[int, int]] | None = None
) -> dict[tuple[int, int], Candidate]:
    """(Network, node count) -> its best candidate, by value, then block, then flat index, where anything fits.

    Arguments:
        problem: rows of one or more node counts.
        networks: what the cluster may be wired with; the problem's own if none are given.
        wanted: the pairs of network and node count that are asked for; all if none are given.
    """
    wired = tuple(networks) or (problem.figures.network,)
    if len({network.dimensions for network in wired}) > 1:
        candidates: dict[tuple[int, int], Candidate] = {}
        for w, network in enumerate(wired):
            asked = None if wanted is None else [(0, count) for number, count in wanted if number == w]
            candidates |= {(w, count): best for (_, count), best in best_of_each(problem, (network,), asked).items()}
        return candidates
    bound = replace(problem, figures=replace(problem.figures, network=fastest(wired)))
    kept = [_asked_for(block, len(wired), wanted) for block in problem.blocks]
    whole = _repeated(problem, wired, kept)
    pairs = [_pairs(block) for block in whole.blocks]
    names = sorted(set().union(*pairs))
    place = {name: i for i, name in enumerate(names)}
    groups = [np.array([place[pair] for pair in rows], dtype=np.intp) for rows in pairs]
    origins = [rows % block.height for rows, block in zip(kept, problem.blocks, strict=True)]
    bounds = _Bounds(bound, origins)
    # Under one network, all rows kept, the bounds' tables are those of the rows themselves.
    alone = len(wired) == 1 and all(len(rows) == block.height for rows, block in zip(kept, problem.blocks, strict=True))
    best = searched(whole, bounds, groups, len(names), bounds.tables if alone else {})
    figures = (best.value, best.time, best.memory)
    return {
        name: _plain(decode(whole, int(best.block[i]), int(best.flat[i]), *(float(x[i]) for x in figures)))
        for name, i in place.items()
        if np.isfinite(best.value[i])
    }


def fastest(networks: Sequence[Network]) -> Network:
    """A network that none of them beats in anything."""
    best = {n: (min if n in LESS_IS_FASTER else max)(getattr(network, n) for network in networks) for n in FIGURES}
    return Network(**best, dimensions=networks[0].dimensions)


def _asked_for(block: Block, networks: int, wanted: Collection[tuple[int, int]] | None) -> NDArray[np.intp]:
    """Places, among the rows repeated for each network, of those of the wanted pairs."""
    if wanted is None:
        return np.arange(networks * block.height)
    nodes = block.rows["nodes"]
    rows = [np.isin(nodes, [count for network, count in wanted if network == n]) for n in range(networks)]
    return np.flatnonzero(np.concatenate(rows))


def _pairs(block: Block) -> list[tuple[int, int]]:
    """Network and node count of each row."""
    return list(zip(block.rows[WIRED].tolist(), block.rows["nodes"].tolist(), strict=True))


def _repeated(problem: SearchProblem, networks: Sequence[Network], kept: Sequence[NDArray[np.intp]]) -> SearchProblem:
    """The problem with every row once for each network, those that are kept."""
    stacked: dict[str, Any] = {
        name: values[0] if len(set(values)) == 1 else np.array(values, dtype=float)
        for name in FIGURES
        if (values := [getattr(network, name) for network in networks])
    }
    n = len(networks)
    blocks = tuple(
        replace(
            block,
            rows={
                **{axis: np.tile(column, n)[rows] for axis, column in block.rows.items()},
                WIRED: np.repeat(np.arange(n), block.height)[rows],
            },
            family=np.tile(block.family, n)[rows],
        )
        for block, rows in zip(problem.blocks, kept, strict=True)
    )
    targets = tuple(
        Target(np.tile(t.weight, n)[rows], np.tile(t.limit, n)[rows])
        for t, rows in zip(problem.targets, kept, strict=True)
    )
    figures = replace(problem.figures, network=replace(networks[0], **stacked))
    return replace(problem, figures=figures, blocks=blocks, targets=targets)


def _plain(candidate: Candidate) -> Candidate:
    """Without the mark of its network, which is no part of a layout."""
    return replace(candidate, layout={axis: n for axis, n in candidate.layout.items() if axis != WIRED})


class Bounds(Protocol):
    """What is known of rows, block by block, before their candidates are costed."""

    def of_group(self, index: int, rows: NDArray[np.intp]) -> Array:
        """Values that no candidate of a row undercuts, as far as they are known; infinite where none is allowed."""

    def looked(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether it is known what fits."""

    def look(self, index: int, rows: NDArray[np.intp]) -> None:
        """Finds out what fits."""

    def held(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Bytes under every option that they depend on, of rows that were looked at."""


class _Bounds:
    """Bounds of repeated rows: of each row that they repeat, under a network that none beats."""

    def __init__(self, problem: SearchProblem, origins: Sequence[NDArray[np.intp]]) -> None:
        self._problem, self._origins = problem, origins
        self.tables = costing.tables(problem)
        self._values = [
            branch_and_bound.quick_objective_bound(problem, i, self.tables[i]) for i in range(len(problem.blocks))
        ]
        self._looked = [np.zeros(block.height, dtype=bool) for block in problem.blocks]
        self._held: dict[int, NDArray[np.float64]] = {}

    def of_group(self, index: int, rows: NDArray[np.intp]) -> Array:
        """Bounds as far as they are known."""
        return self._values[index][self._origins[index][rows]]

    def looked(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether it is known what fits."""
        return self._looked[index][self._origins[index][rows]]

    def look(self, index: int, rows: NDArray[np.intp]) -> None:
        """Finds out what fits."""
        fresh = np.unique(self._origins[index][rows[~self.looked(index, rows)]])
        width = costing.rows_per_chunk(self._problem.blocks[index])
        for start in range(0, len(fresh), width):
            part = fresh[start : start + width]
            bound, need, _ = branch_and_bound.bound_rows(self._problem, index, self.tables[index], part, tight=True)
            options = np.shape(need)[:-1]
            if index not in self._held:
                self._held[index] = np.empty((*options, self._problem.blocks[index].height))
            self._held[index][..., part] = need
            self._values[index][part], self._looked[index][part] = bound, True

    def held(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Bytes under every option that they depend on, of rows that were looked at: no network changes them."""
        return self._held[index][..., self._origins[index][rows]]


def searched(
    problem: SearchProblem,
    bounds: Bounds,
    groups: Sequence[NDArray[np.intp]],
    count: int,
    ready: Mapping[int, CostTable],
    below: Array | None = None,
) -> Best:
    """The best candidate of every group.

    Arguments:
        problem: rows of all groups, block by block.
        bounds: what is known of them.
        groups: each row's group, by block.
        count: groups there are.
        ready: tables of blocks, where they were made already.
        below: values that the best of each group is known to be below; infinite where nothing is known.
    """
    least = np.full(count, np.inf) if below is None else below.copy()
    best = Best(least, np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count), np.zeros(count))
    left = [np.arange(block.height) for block in problem.blocks]
    tables = dict(ready)
    at_once = _AT_FIRST if below is None else _WITHIN_BOUNDS
    while True:
        left = [rows[_worth(bounds.of_group(i, rows), best.value[groups[i][rows]])] for i, rows in enumerate(left)]
        if not any(len(rows) for rows in left):
            return best
        for index, rows in _leading(left, bounds, groups, count, _LOOK_AHEAD * at_once):
            bounds.look(index, rows)
        for index, led in _leading(left, bounds, groups, count, at_once):
            rows = led[bounds.looked(index, led) & np.isfinite(bounds.of_group(index, led))]
            if not len(rows):
                continue
            if index not in tables:
                tables = costing.tables(problem)

            def cost_of(part: NDArray[np.intp], index: int = index, table: CostTable = tables[index]) -> StepCost:
                return costing.cost(table, part, bounds.held(index, part))

            _cost(problem, index, np.sort(rows), groups[index], best, cost_of)
            left[index] = left[index][~np.isin(left[index], rows)]
        at_once *= 2


def _worth(bound: Array, best: Array) -> NDArray[np.bool_]:
    return np.isfinite(bound) & (bound <= best)


def _leading(
    waiting: Sequence[NDArray[np.intp]],
    bounds: Bounds,
    groups: Sequence[NDArray[np.intp]],
    count: int,
    at_once: int,
) -> list[tuple[int, NDArray[np.intp]]]:
    """The rows with the lowest bounds of every group, over all blocks: (block, rows)."""
    block = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(waiting)])
    row = np.concatenate(list(waiting))
    bound = np.concatenate([bounds.of_group(i, rows) for i, rows in enumerate(waiting)])
    group = np.concatenate([groups[i][rows] for i, rows in enumerate(waiting)])
    near = _lowest(bound, group, at_once)
    order = near[np.lexsort((bound[near], group[near]))]
    starts = np.searchsorted(group[order], np.arange(count))
    nth = np.arange(len(order)) - starts[group[order]]
    taken = order[nth < at_once]
    return [(int(i), row[taken[block[taken] == i]]) for i in np.unique(block[taken])]


def _lowest(bound: Array, group: NDArray[np.intp], at_once: int) -> NDArray[np.intp]:
    """Places of the lowest bounds of every group: few are to be sorted, and all only by group, in linear time."""
    order = np.argsort(group.astype(np.uint16) if group.max(initial=0) < 1 << 16 else group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return np.concatenate(
        [p if len(p) <= at_once else p[np.argpartition(bound[p], at_once - 1)[:at_once]] for p in parts]
    )


def _cost(
    problem: SearchProblem,
    index: int,
    rows: NDArray[np.intp],
    groups: NDArray[np.intp],
    best: Best,
    cost_of: Callable[[NDArray[np.intp]], StepCost],
) -> None:
    """Costs some rows of a block by `cost_of` and keeps the best of each group in `best`."""
    block = problem.blocks[index]
    target = problem.targets[index]
    width = costing.rows_per_chunk(block)
    for start in range(0, len(rows), width):
        part = rows[start : start + width]
        step_cost = cost_of(part)
        shape = (*block.axes.shape, len(part))
        time = np.broadcast_to(step_cost.time, shape)
        held = np.broadcast_to(step_cost.memory, shape)
        allowed = (held <= problem.room(index, part)) & (time <= target.limit[part])
        value = np.where(allowed, time * target.weight[part], np.inf).reshape(-1, len(part))
        option = np.argmin(value, axis=0)
        leasts = value[option, np.arange(len(part))]
        for column in np.flatnonzero(leasts <= best.value[groups[part]]):
            row = part[column]
            least = leasts[column]
            group = groups[row]
            # Rows of one group stand in their own order, so that a flat index without the network breaks ties the same.
            flat = int(option[column]) * block.height + int(row)
            if (least, index, flat) < (best.value[group], best.block[group], best.flat[group]) and np.isfinite(least):
                best.value[group], best.block[group], best.flat[group] = least, index, flat
                at = np.unravel_index(int(option[column]), block.axes.shape)
                best.time[group], best.memory[group] = time[(*at, column)], held[(*at, column)]
