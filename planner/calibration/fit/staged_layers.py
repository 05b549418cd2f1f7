"""Runs of models whose layers are of several kinds, priced stage by stage as plans are, among those of mean layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner import cost
from planner.calibration.runs.measured_run import Run, shape
from planner.catalog import Catalog
from planner.cost.evaluate import StepCost
from planner.cost.figures import Array, Grid, Shape, Stack, taken
from planner.models import blocks


def kinds_of(runs: Sequence[Run], profiled: NDArray[np.intp], catalog: Catalog) -> Mapping[Shape, list[int]]:
    """Models whose layers are of several kinds -> places of the runs of them that no profile holds for."""
    places_of: dict[Shape, list[int]] = {}
    for place, run in enumerate(runs):
        work = run.workload
        if work is not None and blocks.differ(work.model, work.sequence) and place not in profiled:
            kinds = shape(run, catalog.runtime(run.runtime), mean=False)
            places_of.setdefault(kinds, []).append(place)
    return places_of


def evaluated(
    grid: Grid, owner: NDArray[np.intp], by_kind: Mapping[Shape, Sequence[int]]
) -> tuple[Array, Array, Array]:
    """Seconds of a step, bytes, and seconds outside its passes.

    Args:
        grid: Columns of readings, of mean layers.
        owner: Place of the run that each reading is of.
        by_kind: Models whose layers are told apart, and the runs of them.
    """
    columns = _columns(cost.evaluate(grid), len(owner))
    for kinds, runs in by_kind.items():
        if len(places := np.flatnonzero(np.isin(owner, runs))):
            staged = replace(rows_of(grid, places, taken(grid.stack, places)), shape=kinds)
            columns[:, places] = _columns(cost.evaluate(staged), len(places))
    return columns[0], columns[1], columns[2]


def _columns(step: StepCost, count: int) -> Array:
    """Seconds of a step, bytes, and seconds outside its passes, of shape (3, count)."""
    return np.array([np.broadcast_to(figure, (count,)) for figure in (step.time, step.memory, step.fixed)])


def rows_of(grid: Grid, rows: NDArray[np.intp], stack: Stack) -> Grid:
    """Some readings of a grid under other software."""
    return Grid(
        shape=taken(grid.shape, rows),
        device=taken(grid.device, rows),
        network=taken(grid.network, rows),
        stack=stack,
        layout=taken(grid.layout, rows),
        options=taken(grid.options, rows),
    )
