"""The best candidate on each of many machines that differ in how fast and how large they are: one space, many answers.

Every machine's rows stand beside the others', so that one pass of the cost functions prices a layout on all of them.
The same bound, the same ties and so the same plans as :class:`~planner.search.branch_and_bound.Bounded` on each
machine alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost import pipeline, stage_memory
from planner.cost.figures import Array, Device, Figure, Network
from planner.search import best_per_size, branch_and_bound, costing
from planner.search.problem import Candidate, SearchProblem, Target, decode
from planner.space.cost_grid import WIRED

_ROWS = 1 << 19
"""Rows of a group of machines: enough that arrays are long, few enough that they stay small (some 200 MB)."""
_SPACE = ("accelerators", "domain", "leaf")
"""Figures of a network that say which layouts there are, not how fast: machines of one call share them."""
Part = TypeVar("Part", Device, Network)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the candidates of one space may run on."""

    devices: dict[str, Device]
    """By precision."""
    network: Network
    capacity: float
    """Bytes that a plan may hold."""


def on(problem: SearchProblem, machine: Machine) -> SearchProblem:
    """The problem of a question asked about one machine."""
    figures = replace(problem.figures, devices=machine.devices, network=machine.network)
    return replace(problem, figures=figures, capacity=machine.capacity)


def best_on_each(
    problem: SearchProblem, machines: Sequence[Machine], held: Sequence[Array] | None = None
) -> list[Candidate | None]:
    """The best candidate on each machine, by value, then block, then flat index; None where nothing fits.

    Arguments:
        problem: the space; its own devices, network and capacity do not matter.
        machines: they have the same accelerators, scale-up domains and leaves, and differ in anything else.
        held: what :func:`needs` says of the space, where it is asked for more than once.

    Raises:
        ValueError: machines of unlike spaces, or layer times measured elsewhere, which hold for one machine.
    """
    if problem.figures.profiles:
        raise ValueError("measured layer times hold for one machine")
    if len({machine.network.dimensions for machine in machines}) > 1:
        raise ValueError("machines differ in the dimensions of their networks")
    if len({tuple(getattr(machine.network, name) for name in _SPACE) for machine in machines}) > 1:
        raise ValueError(f"machines differ in {', '.join(_SPACE)}")
    known = needs(problem) if held is None else held
    return [best for group in _groups(known, machines) for best in _best(problem, known, group)]


def needs(problem: SearchProblem) -> list[Array]:
    """Bytes that each block's candidates hold, the same on every machine: options on their axes, rows last."""
    bytes_needed = []
    for index in range(len(problem.blocks)):
        grid = problem.grid(index)
        bytes_needed.append(stage_memory.largest(stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))))
    return bytes_needed


def _groups(held: Sequence[Array], machines: Sequence[Machine]) -> Iterator[Sequence[Machine]]:
    """Machines that share arrays: of each only the rows that fit into its memory stand in them."""
    least = np.concatenate([_least(need) for need in held])
    ends = np.cumsum([np.count_nonzero(least <= machine.capacity) for machine in machines])
    starts = np.flatnonzero(np.diff(ends // _ROWS, prepend=-1))
    for start, end in pairwise((*starts.tolist(), len(machines))):
        yield machines[start:end]


def _least(need: Array) -> Array:
    """Bytes of each row under the options with which it holds least."""
    return np.asarray(need.reshape(-1, need.shape[-1]).min(axis=0))


def _best(problem: SearchProblem, held: Sequence[Array], machines: Sequence[Machine]) -> list[Candidate | None]:
    origins = [_fitting(need, machines) for need in held]
    whole = _repeated(problem, machines, origins)
    known = _Known(whole, held, [rows for _, rows in origins])
    groups = [block.rows[WIRED] for block in whole.blocks]
    best = best_per_size.searched(whole, known, groups, len(machines), known.tables)
    best_candidates: list[Candidate | None] = []
    for n, value in enumerate(best.value.tolist()):
        if not np.isfinite(value):
            best_candidates.append(None)
            continue
        block = int(best.block[n])
        option, row = divmod(int(best.flat[n]), whole.blocks[block].height)
        at = option * problem.blocks[block].height + int(origins[block][1][row])
        best_candidates.append(decode(problem, block, at, value, float(best.time[n]), float(best.memory[n])))
    return best_candidates


def _fitting(need: Array, machines: Sequence[Machine]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Machine and row of everything that fits under some options, machine by machine."""
    capacity = np.array([machine.capacity for machine in machines])
    machine, row = np.nonzero(_least(need) <= capacity[:, None])
    return machine, row


class _Known:
    """Bounds of rows, as what they hold is known beforehand: see :class:`planner.search.best_per_size.Bounds`."""

    def __init__(self, whole: SearchProblem, held: Sequence[Array], origins: Sequence[NDArray[np.intp]]) -> None:
        self._whole, self._held, self._origins = whole, held, origins
        self.tables = costing.tables(whole, [n for n, block in enumerate(whole.blocks) if block.height])
        self._values = [
            branch_and_bound.quick_objective_bound(whole, n, self.tables[n]) if n in self.tables else np.empty(0)
            for n in range(len(held))
        ]
        self._looked = [np.zeros(block.height, dtype=bool) for block in whole.blocks]

    def of_group(self, index: int, rows: NDArray[np.intp]) -> Array:
        return self._values[index][rows]

    def looked(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self._looked[index][rows]

    def look(self, index: int, rows: NDArray[np.intp]) -> None:
        """Finds out what fits, and bounds that."""
        fresh = rows[~self._looked[index][rows]]
        step = costing.rows_per_chunk(self._whole.blocks[index])
        for start in range(0, len(fresh), step):
            part = fresh[start : start + step]
            fits = self.held(index, part) <= self._whole.room(index, part)
            bound = branch_and_bound.lower_bound(*self.tables[index].part(part, least=True), fits)
            self._values[index][part] = branch_and_bound.objective(self._whole, index, part, bound)
        self._looked[index][fresh] = True

    def held(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(self._held[index][..., self._origins[index][rows]])


def _repeated(
    problem: SearchProblem, machines: Sequence[Machine], origins: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]
) -> SearchProblem:
    """The problem with every row once for each machine that it fits on, given as machine and row."""
    blocks = tuple(
        replace(
            block,
            rows={**{axis: column[row] for axis, column in block.rows.items()}, WIRED: machine},
            family=block.family[row],
        )
        for block, (machine, row) in zip(problem.blocks, origins, strict=True)
    )
    capacity = np.array([machine.capacity for machine in machines])
    targets = tuple(
        Target(target.weight[row], target.limit[row], capacity[machine])
        for target, (machine, row) in zip(problem.targets, origins, strict=True)
    )
    devices = {name: _stacked([machine.devices[name] for machine in machines]) for name in machines[0].devices}
    figures = replace(problem.figures, devices=devices, network=_stacked([machine.network for machine in machines]))
    return replace(problem, figures=figures, blocks=blocks, targets=targets)


def _stacked(parts: Sequence[Part]) -> Part:
    """Figures that differ as columns, shape (machines,); those that do not as they are."""
    columns: dict[str, Figure] = {}
    for name in type(parts[0]).__dataclass_fields__:
        if name == "dimensions":
            continue
        values = [getattr(part, name) for part in parts]
        columns[name] = values[0] if len(set(values)) == 1 else np.array(values, dtype=float)
    return replace(parts[0], **columns)
