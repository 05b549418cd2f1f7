"""Many runs as one grid of columns, so that all are predicted at once, under any efficiencies."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes.table import PRECISION, RECOMPUTE, SCHEDULE
from planner.axes.values import FOLDED
from planner.calibration.fit.staged_layers import evaluated, kinds_of, rows_of
from planner.calibration.runs.measured_run import Run, shape
from planner.calibration.runs.variants import RunVariant
from planner.catalog import Catalog
from planner.cost.figures import (
    Array,
    Device,
    Grid,
    Layout,
    MeasuredLayers,
    Network,
    Stack,
    Times,
    stacked,
    taken,
)
from planner.cost.layer_times import NOTHING, at
from planner.cost.nearness import shift
from planner.figures import cost_inputs, own_runs
from planner.figures.efficiency import Efficiencies
from planner.figures.profiles import profile as profiles_
from planner.figures.profiles.profile import Profile
from planner.schema.hardware import Runtime
from planner.schema.notebook import spelled
from planner.space.cost_grid import as_figures


@dataclass(frozen=True, slots=True)
class FramePrediction:
    """Predictions of every run: seconds per step, bytes, and which of its readings was taken."""

    time: Array
    memory: Array
    fits: NDArray[np.bool_]
    row: NDArray[np.intp]
    fixed: Array
    """Seconds of the time that lie outside the passes: optimizer and overhead of a step."""
    outside_allocator: Array
    """Bytes of the memory that lie outside the framework's allocator: what the allocator's own count leaves out."""
    using: Efficiencies
    """What it was predicted by."""


def _places(keys: Sequence[Hashable]) -> tuple[list[int], NDArray[np.intp]]:
    """Position of the first of each distinct key, and every key's place among the distinct ones."""
    seen: dict[Hashable, int] = {}
    firsts: list[int] = []
    for index, key in enumerate(keys):
        if key not in seen:
            seen[key] = len(firsts)
            firsts.append(index)
    return firsts, np.array([seen[key] for key in keys], dtype=np.intp)


class Frame:
    """Columns of all readings of all runs that can be predicted."""

    def __init__(
        self, catalog: Catalog, runs: Sequence[Run], profiles: Sequence[Profile] = (), *, by_kind: bool = False
    ) -> None:
        """Collects the columns.

        Args:
            catalog: What accelerators, networks and runtimes are.
            runs: Those that cannot be predicted are left out.
            profiles: Layer times that are taken where they hold.
            by_kind: Whether layers of several kinds are told apart, stage by stage, as plans tell them. The fit to
                published runs sees their mean, which is another time for 1.7 % of these, by 2 % and more for 0.2 %.
        """
        self.runs = [run for run in runs if run.covered and run.variants]
        self.catalog = catalog
        pairs = [(i, variant) for i, run in enumerate(self.runs) for variant in run.variants]
        self.owner = np.array([i for i, _ in pairs], dtype=np.intp)
        self._pairs = pairs
        self.measured = np.array([run.measured or np.nan for run in self.runs])
        self.profiled = np.array([], dtype=np.intp)
        """Runs that a profile of layer times holds for."""
        self.capacity = np.array([r.cluster.accelerator.memory for i, _ in pairs if (r := self.runs[i]).cluster])
        self.rank = np.array([variant.rank for _, variant in pairs], dtype=np.intp)
        self.likely = np.array([variant.likely for _, variant in pairs], dtype=bool)
        if not pairs:
            return  # no columns: nothing is predicted
        shapes = [shape(run, catalog.runtime(run.runtime)) for run in self.runs]
        self._shape = taken(stacked(shapes), self.owner)
        layouts = [_layout(variant) for _, variant in pairs]
        self._layout = stacked(layouts)
        self._options = stacked([as_figures(v.options) for _, v in pairs])
        used = [self._profile(profiles, self.runs[i], variant) for i, variant in pairs]
        self.profiled = np.unique(self.owner[[entry is not None for entry in used]])
        self._by_kind = kinds_of(self.runs, self.profiled, catalog) if by_kind else {}
        self._times = stacked([_times(entry, v) for entry, (_, v) in zip(used, pairs, strict=True)])
        used_runs = [self.runs[i] for i, _ in pairs]
        self._devices = _places(
            [
                (r.cluster.accelerator.id, v.options[PRECISION], r.date)
                for r, (_, v) in zip(used_runs, pairs, strict=True)
                if r.cluster
            ]
        )
        clusters = [spelled(run.cluster) for run in self.runs]
        self._networks = _places([(self.runs[i].accelerator, clusters[i]) for i, _ in pairs])
        self._stacks = _places(
            [(r.runtime, r.year, r.mode, r.traits, r.cluster.accelerator.id if r.cluster else "") for r in used_runs]
        )
        self._accelerators = np.array([float(r.accelerators) for r in used_runs])
        self.configurations = own_runs.configuration(
            np.array([own_runs.block(run.workload.model) if run.workload else "" for run in used_runs]),
            np.array([run.cluster.accelerator.generation if run.cluster else "" for run in used_runs]),
            np.array([variant.options[PRECISION] for _, variant in pairs]),
            np.array([variant.options[RECOMPUTE].name for _, variant in pairs]),
            self._accelerators,
            self._layout,
        )
        """Where every reading stands, columns of shape (readings,)."""

    def _profile(self, profiles: Sequence[Profile], run: Run, variant: RunVariant) -> Profile | None:
        if not profiles or run.workload is None or run.cluster is None:
            return None
        return profiles_.fit(profiles, run.workload, run.cluster.accelerator.id, variant.options[PRECISION])

    def grid(self, using: Efficiencies, profiled: bool = True) -> Grid:
        """The columns under some efficiencies, with layer times of profiles where there are any, or without."""
        device, network, stack = self._device(using), self._network(using), self._stack(using)
        return Grid(
            shape=self._shape,
            device=device,
            network=network,
            stack=stack,
            layout=self._layout,
            options=self._options,
            measured=MeasuredLayers(times=self._times, device=device, network=network, stack=stack)
            if profiled and len(self.profiled)
            else None,
        )

    def reading(self, row: int) -> RunVariant:
        """The reading of a run that a row stands for (:attr:`FramePrediction.row`)."""
        return self._pairs[row][1]

    def _device(self, using: Efficiencies) -> Device:
        firsts, place = self._devices
        columns = []
        for index in firsts:
            owner, variant = self._pairs[index]
            cluster = self.runs[owner].cluster
            assert cluster is not None
            part = cluster.accelerator
            columns.append(
                cost_inputs.device(part, using.accelerator(part), variant.options[PRECISION], self.runs[owner].date)
            )
        return taken(stacked(columns), place) if len(columns) > 1 else columns[0]

    def _network(self, using: Efficiencies) -> Network:
        firsts, place = self._networks
        columns = []
        for index in firsts:
            cluster = self.runs[self._pairs[index][0]].cluster
            assert cluster is not None
            part = cluster.accelerator
            columns.append(cost_inputs.network(cluster, using.accelerator(part)))
        joined = taken(stacked(columns), place) if len(columns) > 1 else columns[0]
        return replace(joined, accelerators=self._accelerators)

    def _stack(self, using: Efficiencies) -> Stack:
        firsts, place = self._stacks
        columns = []
        for index in firsts:
            run = self.runs[self._pairs[index][0]]
            columns.append(self._column(run, self.catalog.runtime(run.runtime), run.year, using))
        return self._shifted(taken(stacked(columns), place) if len(columns) > 1 else columns[0], using)

    @staticmethod
    def _column(run: Run, runtime: Runtime, release: str, using: Efficiencies) -> Stack:
        """The figures of a run's software, or of other software as if it had run it."""
        assert run.cluster is not None
        accelerator = run.cluster.accelerator
        newest = release or max((known for known in runtime.releases if known <= run.year), default=runtime.releases[0])
        reached = using.runtime(runtime.known_as, newest, run.mode, accelerator.generation)
        return cost_inputs.stack(run.software(runtime), reached, newest, accelerator)

    def _shifted(self, stack: Stack, using: Efficiencies) -> Stack:
        """The software with every reading's whole step stretched by what a site's runs near it were off by."""
        if not using.own:
            return stack
        names = np.array(self.runtimes(using))[self.owner]
        factor = np.ones(len(self.owner))
        for name, runs in using.own.items():
            rows = np.flatnonzero(names == name)
            factor[rows] = np.exp(shift(runs, self.configurations.at(rows)))
        return replace(stack, whole_step=stack.whole_step * factor)

    def runtimes(self, using: Efficiencies) -> list[str]:
        """For every run, the runtime whose efficiencies it is predicted with."""
        parts = [run.cluster.accelerator.generation if run.cluster else "" for run in self.runs]
        return [
            own_runs.runtime_of(using.runtime(run.known_as, run.year, run.mode, generation).id)
            for run, generation in zip(self.runs, parts, strict=True)
        ]

    def predict(self, using: Efficiencies, profiled: bool = True) -> FramePrediction:
        """Every run under some efficiencies; of several readings :meth:`_chosen`."""
        if not self.runs:
            nothing = np.array([])
            return FramePrediction(
                nothing, nothing, nothing.astype(bool), nothing.astype(np.intp), nothing, nothing, using
            )
        grid = self.grid(using, profiled)
        time, memory, fixed = evaluated(grid, self.owner, self._by_kind)
        fits = memory <= self.capacity
        order, first, end = self._chosen(time, fits, self.likely)
        row = order[(first + end - 1) // 2]
        outside_allocator = np.broadcast_to(grid.stack.resident_bytes, self.owner.shape)
        return FramePrediction(time[row], memory[row], fits[row], row, fixed[row], outside_allocator[row], using)

    def _chosen(
        self, time: Array, fits: NDArray[np.bool_], likely: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """All readings in an order, and where in it those begin and end that each run may have been, by time.

        Those that fit come first, then the lowest rank, then the likely ones; a run is predicted by the middle one.
        """
        order = np.lexsort((time, ~likely, self.rank, ~fits, self.owner))
        alike = np.stack([self.owner, ~fits, self.rank, ~likely])[:, order]
        begins = np.append(0, np.flatnonzero(np.any(alike[:, 1:] != alike[:, :-1], axis=0)) + 1)
        ends = np.append(begins[1:], len(order))
        of_run = np.unique(alike[0, begins], return_index=True)[1]
        return order, begins[of_run], ends[of_run]

    def apart(self, prediction: FramePrediction) -> Array:
        """How far apart the readings are that each run may have been, and the runtimes that its own stands for
        (standard deviation of the time's logarithm).
        """
        if not self.runs:
            return np.array([])
        using = prediction.using
        grid = self.grid(using)
        time, memory, _ = evaluated(grid, self.owner, self._by_kind)
        fits = memory <= self.capacity
        order, first, end = self._chosen(time, fits, np.ones(len(self.owner), dtype=bool))
        spread = [float(np.std(np.log(time[order[a:b]]))) for a, b in zip(first, end, strict=True)]
        return np.hypot(spread, self._between(grid, using, time, prediction.row))

    def _between(self, grid: Grid, using: Efficiencies, time: Array, row: NDArray[np.intp]) -> Array:
        """How far apart the runtimes that a run's stands for predict it (standard deviation of the time's logarithm);
        0 where its runtime is known.
        """
        several = {run.runtime: self.catalog.runtime(run.runtime).between for run in self.runs}
        apart = np.zeros(len(self.runs))
        for name, between in several.items():
            places = [i for i, run in enumerate(self.runs) if run.runtime == name and between]
            if not places:
                continue
            times = [np.log(time[row[places]])]
            for other in between:
                runtime, _, release = other.partition("@")
                columns = [self._column(self.runs[i], self.catalog.runtime(runtime), release, using) for i in places]
                of_other = rows_of(grid, row[places], stacked(columns))
                times.append(np.log(evaluated(of_other, self.owner[row[places]], self._by_kind)[0]))
            apart[places] = np.std(np.array(times), axis=0)
        return apart


def _layout(variant: RunVariant) -> Layout:
    """A reading's degrees as figures."""
    degrees = {name: float(value) for name, value in variant.layout.items()}
    return Layout(**degrees, looped=float(variant.options[SCHEDULE] not in FOLDED))


def _times(profile: Profile | None, variant: RunVariant) -> Times:
    """What a profile says of a run's plan, as scalars."""
    if profile is None:
        return NOTHING
    return at(profile.table, variant.layout["tp"], variant.layout["micro"])
