"""The best candidate on each of many machines that differ in how fast and how large they are: one space, many answers.

Every machine's rows stand beside the others', so that one pass of the cost functions prices a layout on all of them.
The same bound, the same ties and so the same plans as :class:`~planner.search.bounded.Bounded` on each machine alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost import memory, pipeline
from planner.cost.figures import Array, Device, Figure, Network
from planner.search import bounded, costing, each
from planner.search.costing import CostTable
from planner.search.problem import Candidate, SearchProblem, Target, decode
from planner.space.grid import WIRED

_ROWS = 1 << 16
"""Rows of a group of machines: enough that arrays are long, few enough that they stay small."""
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
    """The same question on one machine."""
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
    return [best for group in _groups(problem, machines) for best in _best(problem, known, group)]


def needs(problem: SearchProblem) -> list[Array]:
    """Bytes that each block's candidates hold, the same on every machine: options on their axes, rows last."""
    found = []
    for index in range(len(problem.blocks)):
        grid = problem.grid(index)
        found.append(memory.largest(memory.stages(grid, pipeline.split(grid.shape, grid.layout))))
    return found


def _groups(problem: SearchProblem, machines: Sequence[Machine]) -> Iterator[Sequence[Machine]]:
    size = max(1, _ROWS // sum(block.height for block in problem.blocks))
    for start in range(0, len(machines), size):
        yield machines[start : start + size]


def _best(problem: SearchProblem, held: Sequence[Array], machines: Sequence[Machine]) -> list[Candidate | None]:
    whole = _repeated(problem, machines)
    known = _Known(whole, held)
    groups = [block.rows[WIRED] for block in whole.blocks]
    best = each.searched(whole, known, groups, len(machines), known.tables)
    found: list[Candidate | None] = []
    for n, value in enumerate(best.value.tolist()):
        if not np.isfinite(value):
            found.append(None)
            continue
        block = int(best.block[n])
        height = problem.blocks[block].height
        option, row = divmod(int(best.flat[n]), height * len(machines))
        at = option * height + row % height
        found.append(decode(problem, block, at, value, float(best.time[n]), float(best.memory[n])))
    return found


class _Known:
    """Bounds of all rows, as what they hold is known beforehand: see :class:`planner.search.each.Bounds`."""

    def __init__(self, whole: SearchProblem, held: Sequence[Array]) -> None:
        self._needs = held
        self.tables = [costing.table(whole, index) for index in range(len(held))]
        self._values = [
            _bounds(whole, n, need, ready) for n, (need, ready) in enumerate(zip(held, self.tables, strict=True))
        ]

    def of_group(self, index: int, rows: NDArray[np.intp]) -> Array:
        return self._values[index][rows]

    def looked(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.ones(len(rows), dtype=bool)

    def look(self, index: int, rows: NDArray[np.intp]) -> None:
        """Nothing is left to find out."""

    def held(self, index: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        need = self._needs[index]
        return np.asarray(need[..., rows % need.shape[-1]])


def _bounds(whole: SearchProblem, index: int, need: Array, ready: CostTable) -> Array:
    """Of every row, a value that no candidate of it undercuts; infinite where none fits or keeps the limits."""
    block, target = whole.blocks[index], whole.targets[index]
    values, step = np.empty(block.height), costing.rows_per_chunk(block)
    for start in range(0, block.height, step):
        rows = np.arange(start, min(start + step, block.height))
        fits = need[..., rows % need.shape[-1]] <= whole.room(index, rows)
        bound = bounded.lower_bound(*ready.part(rows), fits)
        values[rows] = np.where(bound > target.limit[rows], np.inf, bound * target.weight[rows])
    return values


def _repeated(problem: SearchProblem, machines: Sequence[Machine]) -> SearchProblem:
    """The problem with every row once for each machine."""
    n = len(machines)
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
    capacity = np.array([machine.capacity for machine in machines])
    targets = tuple(
        Target(np.tile(target.weight, n), np.tile(target.limit, n), np.repeat(capacity, block.height))
        for target, block in zip(problem.targets, problem.blocks, strict=True)
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
