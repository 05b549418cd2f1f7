"""The best candidate on each of a few machines: every machine's rows stand beside the others'.

One pass of the cost functions prices a layout on all of them. The same bound, the same ties and so the same plans as
:class:`~planner.search.branch_and_bound.Bounded` on each machine alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array, Device, Figure, Network
from planner.search import best_per_size, branch_and_bound, costing
from planner.search.problem import Candidate, SearchProblem, Target, decode
from planner.space.cost_grid import WIRED

Part = TypeVar("Part", Device, Network)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the candidates of one space may run on."""

    devices: dict[str, Device]
    """By precision."""
    network: Network
    capacity: float
    """Bytes that a plan may hold."""


@dataclass(frozen=True, slots=True)
class Space:
    """Some rows of a whole problem, with what their candidates hold."""

    whole: SearchProblem
    problem: SearchProblem
    """Of these rows alone; blocks without any keep their places."""
    held: Sequence[Array]
    """Bytes that each block's candidates hold, on every machine: options on their axes, rows last."""
    origins: Sequence[NDArray[np.intp]]
    """Each row's place in its block of the whole, ascending."""

    @property
    def height(self) -> int:
        """How many rows there are."""
        return sum(block.height for block in self.problem.blocks)

    def least_held(self) -> float:
        """Bytes of the candidate that holds least; infinite without rows."""
        return min((float(need.min()) for need in self.held if need.size), default=np.inf)

    def taken(self, kept: Sequence[NDArray[np.intp]]) -> Space:
        """The rows at some places of each block."""
        blocks = tuple(
            replace(block, rows={axis: column[rows] for axis, column in block.rows.items()}, family=block.family[rows])
            for block, rows in zip(self.problem.blocks, kept, strict=True)
        )
        targets = tuple(
            Target(target.weight[rows], target.limit[rows])
            for target, rows in zip(self.problem.targets, kept, strict=True)
        )
        return Space(
            self.whole,
            replace(self.problem, blocks=blocks, targets=targets),
            [need[..., rows] for need, rows in zip(self.held, kept, strict=True)],
            [origin[rows] for origin, rows in zip(self.origins, kept, strict=True)],
        )


def on(problem: SearchProblem, machine: Machine) -> SearchProblem:
    """The problem of a question asked about one machine."""
    figures = replace(problem.figures, devices=machine.devices, network=machine.network)
    return replace(problem, figures=figures, capacity=machine.capacity)


def best(space: Space, machines: Sequence[Machine], below: Array | None = None) -> list[Candidate | None]:
    """The best candidate on each machine, as of the whole problem; None where nothing fits.

    Arguments:
        space: the rows.
        machines: what they run on.
        below: values that each machine's best is known to be below; infinite where nothing is known.
    """
    placed = [_fitting(need, machines) for need in space.held]
    repeated = _repeated(space.problem, machines, placed)
    known = _Known(repeated, space.held, [rows for _, rows in placed])
    groups = [block.rows[WIRED] for block in repeated.blocks]
    found = best_per_size.searched(repeated, known, groups, len(machines), known.tables, below)
    candidates: list[Candidate | None] = []
    for n, value in enumerate(found.value.tolist()):
        if not np.isfinite(value):
            candidates.append(None)
            continue
        index = int(found.block[n])
        option, row = divmod(int(found.flat[n]), repeated.blocks[index].height)
        at = option * space.whole.blocks[index].height + int(space.origins[index][placed[index][1][row]])
        candidates.append(decode(space.whole, index, at, value, float(found.time[n]), float(found.memory[n])))
    return candidates


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


def _least(need: Array) -> Array:
    """Bytes of each row under the options with which it holds least."""
    return np.asarray(need.min(axis=tuple(range(need.ndim - 1))))


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
