"""The best candidate of every node count and every wiring at once: one survey for all, then rows of each in order of
their bound.

The same bound, the same ties and so the same plans as :class:`~planner.search.bounded.Bounded` on one count of one
cluster alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array, Network
from planner.search import bounded, costing
from planner.search.costing import Table
from planner.search.problem import Candidate, Problem, Target, decode
from planner.space.grid import WIRED, Block

_AT_FIRST = 8
"""Rows of one group that are costed before the first look at its best; twice as many before each look after that."""
LESS_IS_FASTER = ("scaleup_latency", "nic_latency", "base", "mesh", "bridged")
"""Figures of a network of which the smallest bounds all; of the others the largest."""


@dataclass
class _Best:
    """What is known of every group: values, and where they are."""

    value: Array
    block: NDArray[np.int64]
    flat: NDArray[np.int64]
    time: Array
    memory: Array


def best_of_each(problem: Problem, networks: Sequence[Network] = ()) -> dict[tuple[int, int], Candidate]:
    """(Network, node count) -> its best candidate, by value, then block, then flat index; those on which nothing fits
    are left out.

    Arguments:
        problem: rows of one or more node counts.
        networks: what the cluster may be wired with; the problem's own if none are given.
    """
    wired = tuple(networks) or (problem.figures.network,)
    bound = replace(problem, figures=replace(problem.figures, network=fastest(wired)))
    surveys = [bounded.survey(bound, i, costing.table(bound, i)).value for i in range(len(problem.blocks))]
    bounds = [np.tile(values, len(wired)) for values in surveys]
    whole = _repeated(problem, wired)
    tables = [costing.table(whole, i) for i in range(len(whole.blocks))]
    names = sorted({(w, int(n)) for w in range(len(wired)) for b in problem.blocks for n in np.unique(b.rows["nodes"])})
    place = {name: i for i, name in enumerate(names)}
    groups = [_places(block, place) for block in whole.blocks]
    best = _searched(whole, tables, bounds, groups, len(names))
    found = {
        name: decode(
            whole, int(best.block[i]), int(best.flat[i]), *(float(x[i]) for x in (best.value, best.time, best.memory))
        )
        for name, i in place.items()
        if np.isfinite(best.value[i])
    }
    return {name: _plain(candidate) for name, candidate in found.items()}


def fastest(networks: Sequence[Network]) -> Network:
    """A network that none of them beats in anything."""
    fields = {
        name: (min if name in LESS_IS_FASTER else max)(getattr(network, name) for network in networks)
        for name in Network.__dataclass_fields__
    }
    return Network(**fields)


def _repeated(problem: Problem, networks: Sequence[Network]) -> Problem:
    """The problem with every row once for each network."""
    stacked = {
        name: values[0] if len(set(values)) == 1 else np.array(values, dtype=float)
        for name in Network.__dataclass_fields__
        if (values := [getattr(network, name) for network in networks])
    }
    n = len(networks)
    blocks = tuple(
        replace(
            block,
            rows={
                **{axis: np.tile(column, n) for axis, column in block.rows.items()},
                WIRED: np.repeat(np.arange(n), block.height),
            },
            family=np.tile(block.family, n),
        )
        for block in problem.blocks
    )
    targets = tuple(Target(np.tile(t.weight, n), np.tile(t.limit, n)) for t in problem.targets)
    figures = replace(problem.figures, network=Network(**stacked))
    return replace(problem, figures=figures, blocks=blocks, targets=targets)


def _places(block: Block, place: dict[tuple[int, int], int]) -> NDArray[np.intp]:
    """Each row's group."""
    pairs = zip(block.rows[WIRED].tolist(), block.rows["nodes"].tolist(), strict=True)
    return np.array([place[pair] for pair in pairs], dtype=np.intp)


def _plain(candidate: Candidate) -> Candidate:
    """Without the mark of its network, which is no part of a layout."""
    return replace(candidate, layout={axis: n for axis, n in candidate.layout.items() if axis != WIRED})


def _searched(
    problem: Problem,
    tables: Sequence[Table],
    bounds: Sequence[Array],
    groups: Sequence[NDArray[np.intp]],
    count: int,
) -> _Best:
    empty = np.zeros(count, dtype=np.int64)
    best = _Best(np.full(count, np.inf), empty.copy(), empty.copy(), np.zeros(count), np.zeros(count))
    waiting = [np.argsort(b, kind="stable")[: int(np.count_nonzero(np.isfinite(b)))] for b in bounds]
    at_once = _AT_FIRST
    while True:
        waiting = [rows[bounds[i][rows] <= best.value[groups[i][rows]]] for i, rows in enumerate(waiting)]
        if not any(len(rows) for rows in waiting):
            return best
        for index, rows in _leading(waiting, bounds, groups, count, at_once):
            _cost(problem, index, tables[index], np.sort(rows), groups[index], best)
            waiting[index] = waiting[index][~np.isin(waiting[index], rows)]
        at_once *= 2


def _leading(
    waiting: Sequence[NDArray[np.intp]],
    bounds: Sequence[Array],
    groups: Sequence[NDArray[np.intp]],
    count: int,
    at_once: int,
) -> list[tuple[int, NDArray[np.intp]]]:
    """The rows with the lowest bounds of every group, over all blocks: (block, rows)."""
    block = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(waiting)])
    row = np.concatenate(list(waiting))
    bound = np.concatenate([bounds[i][rows] for i, rows in enumerate(waiting)])
    group = np.concatenate([groups[i][rows] for i, rows in enumerate(waiting)])
    order = np.lexsort((bound, group))
    starts = np.searchsorted(group[order], np.arange(count))
    nth = np.arange(len(order)) - starts[group[order]]
    taken = order[nth < at_once]
    return [(int(i), row[taken[block[taken] == i]]) for i in np.unique(block[taken])]


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
        leasts = value[option, np.arange(len(part))]
        for column in np.flatnonzero(leasts <= best.value[groups[part]]):
            row, least = part[column], leasts[column]
            group = groups[row]
            # Rows of one group stand in their own order, so that a flat index without the network breaks ties the same.
            flat = int(option[column]) * block.height + int(row)
            if (least, index, flat) < (best.value[group], best.block[group], best.flat[group]) and np.isfinite(least):
                best.value[group], best.block[group], best.flat[group] = least, index, flat
                at = np.unravel_index(int(option[column]), block.axes.shape)
                best.time[group], best.memory[group] = time[(*at, column)], held[(*at, column)]
