"""Some of a grid's layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Figure, Grid, mapped, taken


def rows_of(grid: Grid, rows: NDArray[np.intp]) -> Grid:
    """The grid restricted to the layouts at `rows`, indices into its last axis."""

    def take(figure: Figure) -> Figure:
        return figure[..., rows] if isinstance(figure, np.ndarray) and figure.shape[-1] > 1 else figure

    def take_layout(figure: Figure) -> Figure:
        return figure[..., rows] if isinstance(figure, np.ndarray) and figure.ndim else figure

    return replace(
        grid,
        device=mapped(grid.device, take),
        layout=mapped(grid.layout, take_layout),
        stack=replace(grid.stack, whole_step=take(grid.stack.whole_step)),
        network=mapped(grid.network, take_layout),
        measured=grid.measured and replace(grid.measured, times=taken(grid.measured.times, rows)),
    )
