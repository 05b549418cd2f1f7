"""The best candidate on each of many machines that differ in how fast and how large they are: one space, many answers.

Few machines are searched side by side (:mod:`planner.search.side_by_side`). Of many, most rows are left out first:

1. The best rows of machines that were searched before are priced on all machines, which bounds each machine's best
   from above. Where none of them fits, the smallest such machine is searched.
2. No row is faster on any of the machines than on one that has the best of each of their figures. Rows whose bound
   there is above all of the bounds from above are left out.
3. The machines are halved along the figure in which they differ most. Each half begins anew with the rows that are
   left, until rows times machines are few.

The plans are those of :class:`~planner.search.branch_and_bound.Bounded` on each machine alone, ties included.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from planner.cost import pipeline, stage_memory
from planner.cost.figures import Array, Device
from planner.search import best_per_size, branch_and_bound, costing, side_by_side
from planner.search.problem import Candidate, SearchProblem
from planner.search.side_by_side import Machine, Space, on

_FEW = 1 << 17
"""Rows times machines that are searched side by side: arrays are long, and take some tens of MB."""
_SEEDS = 8
"""Best rows of other machines, the last ones, that are priced before a search."""
_ROUNDING = 1e-9
"""Share by which sums of floating-point numbers may differ."""
_SPACE = ("accelerators", "domain", "leaf")
"""Figures of a network that say which layouts there are, not how fast: machines of one call share them."""
_MORE_IS_FASTER = (
    *("matrix_rate", "matrix_rate_16", "attention_rate", "memory_rate", "host_bandwidth", "memory", "peak"),
)
"""Figures of a device of which the largest bounds all."""
_LESS_IS_FASTER = ("inner_half",)
"""Figures of a device of which the smallest bounds all. Machines of one group share the others."""


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
    search = _Search(whole(problem, known), machines)
    if search.whole.height * len(machines) <= _FEW:
        search.together(search.whole, range(len(machines)))
    else:
        for group in _alike(machines):
            search.divided(search.whole, group)
    return search.best


def needs(problem: SearchProblem) -> list[Array]:
    """Bytes that each block's candidates hold, the same on every machine: options on their axes, rows last."""
    bytes_needed = []
    for index in range(len(problem.blocks)):
        grid = problem.grid(index)
        bytes_needed.append(stage_memory.largest(stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))))
    return bytes_needed


def whole(problem: SearchProblem, held: Sequence[Array]) -> Space:
    """All rows of a problem."""
    return Space(problem, problem, held, [np.arange(block.height) for block in problem.blocks])


class _Search:
    """The machines' best candidates as far as they are known, and rows that were the best of some."""

    def __init__(self, whole: Space, machines: Sequence[Machine]) -> None:
        self.whole, self.machines = whole, machines
        self.best: list[Candidate | None] = [None] * len(machines)
        self.seeds: list[tuple[int, int]] = []
        """Block and row in the whole space, the latest last."""

    def together(self, space: Space, places: Sequence[int], below: Array | None = None) -> None:
        """Searches machines side by side and notes their best rows as seeds."""
        found = side_by_side.best(space, [self.machines[place] for place in places], below)
        for place, candidate in zip(places, found, strict=True):
            self.best[place] = candidate
        for seed in dict.fromkeys(self._row(candidate) for candidate in found if candidate is not None):
            self.seeds = [*(other for other in self.seeds if other != seed), seed][-_SEEDS:]

    def _row(self, candidate: Candidate) -> tuple[int, int]:
        return candidate.block, candidate.flat % self.whole.problem.blocks[candidate.block].height

    def divided(self, space: Space, places: Sequence[int]) -> None:
        """Searches machines that are alike, half by half."""
        places, below = self._bounded(space, self._room_for_any(space, places))
        if not len(places):
            return
        space = narrowed(space, _fastest([self.machines[place] for place in places]), float(below.max()))
        halves = _halves([self.machines[place] for place in places])
        if space.height * len(places) <= _FEW or halves is None:
            self.together(space, places, below)
            return
        for half in halves:
            self.divided(space, [places[n] for n in half])

    def _room_for_any(self, space: Space, places: Sequence[int]) -> Sequence[int]:
        """Machines on which some row fits; on the others there is no plan."""
        least = space.least_held()
        return [place for place in places if self.machines[place].capacity >= least]

    def _bounded(self, space: Space, places: Sequence[int]) -> tuple[Sequence[int], Array]:
        """Machines that have a plan, with values that their best are below."""
        below = self._seeded(places, self.seeds)
        while len(places) and not np.isfinite(below).all():
            # What fits into the smallest memory fits into all.
            unknown = np.flatnonzero(~np.isfinite(below)).tolist()
            smallest = min(unknown, key=lambda n: self.machines[places[n]].capacity)
            self.together(space, [places[smallest]])
            known = self.best[places[smallest]]
            if known is None:
                places = [*places[:smallest], *places[smallest + 1 :]]
                below = np.delete(below, smallest)
            else:
                below = np.minimum(below, self._seeded(places, [self._row(known)]))
        return places, below

    def _seeded(self, places: Sequence[int], seeds: Sequence[tuple[int, int]]) -> Array:
        """Values that the best on each machine is below; infinite where no seed fits."""
        rows = [sorted(row for place, row in seeds if place == n) for n in range(len(self.whole.problem.blocks))]
        space = self.whole.taken([np.array(each, dtype=np.intp) for each in rows])
        found = side_by_side.best(space, [self.machines[place] for place in places])
        values = [np.inf if candidate is None else candidate.value for candidate in found]
        return np.array(values) * (1.0 + _ROUNDING)


def narrowed(space: Space, fastest: Machine, below: float) -> Space:
    """The rows that may be below a value on a machine."""
    problem = on(space.problem, fastest)
    tables = costing.tables(problem, [n for n, block in enumerate(problem.blocks) if block.height])
    kept: list[NDArray[np.intp]] = []
    for index, block in enumerate(problem.blocks):
        rows = np.arange(0)
        if block.height:
            rows = np.flatnonzero(branch_and_bound.quick_objective_bound(problem, index, tables[index]) <= below)
        step = costing.rows_per_chunk(block)
        near = [rows[:0]]
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            fits = space.held[index][..., part] <= problem.capacity
            bound = branch_and_bound.lower_bound(*tables[index].part(part, least=True), fits)
            near.append(part[branch_and_bound.objective(problem, index, part, bound) <= below])
        kept.append(np.concatenate(near))
    return space.taken(kept)


def _fastest(machines: Sequence[Machine]) -> Machine:
    """A machine that none of them beats in anything."""
    devices = {name: _fastest_device([machine.devices[name] for machine in machines]) for name in machines[0].devices}
    network = best_per_size.fastest([machine.network for machine in machines])
    return Machine(devices, network, max(machine.capacity for machine in machines))


def _fastest_device(devices: Sequence[Device]) -> Device:
    most = {name: max(getattr(device, name) for device in devices) for name in _MORE_IS_FASTER}
    least = {name: min(getattr(device, name) for device in devices) for name in _LESS_IS_FASTER}
    return replace(devices[0], **most, **least)


def _alike(machines: Sequence[Machine]) -> list[list[int]]:
    """Places of machines that share all figures of which it is not known which value is faster."""
    varied = (*_MORE_IS_FASTER, *_LESS_IS_FASTER)
    shared = attrgetter(*(name for name in Device.__dataclass_fields__ if name not in varied))
    groups: dict[Hashable, list[int]] = {}
    for place, machine in enumerate(machines):
        groups.setdefault(tuple(shared(device) for device in machine.devices.values()), []).append(place)
    return list(groups.values())


def _halves(machines: Sequence[Machine]) -> tuple[list[int], list[int]] | None:
    """Places of the slower and of the faster half in the figure with the largest ratio; None where all are equal."""
    figures = np.array([_logarithms(machine) for machine in machines])
    figure = figures[:, np.ptp(figures, axis=0).argmax()]
    values = np.unique(figure)
    if len(values) == 1:
        return None
    # Machines of one value stay together.
    upper = figure >= values[min(max(1, np.searchsorted(values, np.median(figure))), len(values) - 1)]
    return np.flatnonzero(~upper).tolist(), np.flatnonzero(upper).tolist()


def _logarithms(machine: Machine) -> list[float]:
    devices = [getattr(device, name) for device in machine.devices.values() for name in _MORE_IS_FASTER]
    network = [getattr(machine.network, name) for name in best_per_size.FIGURES]
    return [
        float(np.log(figure)) if 0.0 < figure < np.inf else 0.0 for figure in (*devices, *network, machine.capacity)
    ]
