"""How tokens reach experts on other ranks: dispatchers of a runtime on an accelerator, and the one a plan launches.

Megatron Core (d98e8a64, core/transformer/moe/token_dispatcher.py) sends every copy of a token by one all-to-all,
gathers all tokens on all ranks (here without expert tensor parallelism, nor with overlap, which it refuses), or
(``flex``) leaves it to DeepEP or HybridEP, by which copies for one scale-up domain cross the NIC once. Which of these
two run on an accelerator is the field ``dispatchers`` of its entry in the catalog.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.axes.values import ALONE
from planner.cost import experts
from planner.cost.figures import Grid
from planner.schema.hardware import Accelerator, Cluster, Runtime
from planner.schema.plan_layout import FUSED
from planner.space.enumerate_layouts import Rows
from planner.space.pins import Pins


def runs_on(name: str, accelerator: Accelerator) -> bool:
    """Whether the dispatcher needs no kernels of its own, or the accelerator has them."""
    return name not in FUSED or name in accelerator.dispatchers


def offered_dispatchers(
    rows: Rows, cluster: Cluster, runtime: Runtime, pins: Pins
) -> list[tuple[tuple[str, ...], NDArray[np.bool_]]]:
    """Dispatchers, and the rows that have them: what a pin names where experts are spread, else the runtime's own."""
    everywhere = np.ones(len(rows["tp"]), dtype=bool)
    if "dispatcher" not in pins:
        return [((ALONE,), everywhere)]
    spread = rows["ep"] * rows["etp"] > 1
    named = tuple(
        name
        for name in runtime.axes.get("dispatcher", (ALONE,))
        if name != ALONE and pins.allow("dispatcher", name) and runs_on(str(name), cluster.accelerator)
    )
    plain = tuple(str(name) for name in named if name != "allgather")
    own = (ALONE,) if pins.allow("dispatcher", ALONE) else ()
    gathers, whole = tuple(str(name) for name in named if name == "allgather"), rows["etp"] == 1
    return [
        ((*plain, *gathers, *own), spread & whole),
        ((*plain, *own), spread & ~whole),
        (own, ~spread),
    ]


def launched(name: str, grid: Grid, accelerator: Accelerator, runtime: Runtime) -> str | None:
    """The dispatcher of a plan, a scalar grid: the one asked for, or of those priced the one that sends copies once.

    None where none is told apart: experts on one rank or in one domain, or a runtime without a choice.
    """
    if name != ALONE:
        return name
    layout = grid.layout
    if float(layout.ep) * float(layout.etp) <= 1 or not float(grid.stack.dispatch_once):
        return None
    ranks = experts.dispatch(grid).group
    known = runtime.axes.get("dispatcher", ())
    able = (each for each in FUSED if each in known and runs_on(each, accelerator))
    return next(able, None) if float(ranks.n) > float(ranks.inside) else None
