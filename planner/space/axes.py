"""One value of every option axis, as the search holds it; the axes are :mod:`planner.axes`."""

from __future__ import annotations

from dataclasses import dataclass

from planner import axes as table
from planner.axes.table import DISPATCHER
from planner.axes.table import GRAPHS as _GRAPHS
from planner.axes.values import (
    ALONE as ALONE,
)
from planner.axes.values import (
    CORE_ATTENTION as CORE_ATTENTION,
)
from planner.axes.values import (
    FOLDED as FOLDED,
)
from planner.axes.values import (
    FULL as FULL,
)
from planner.axes.values import (
    FUNCTION_IN_8_BIT as FUNCTION_IN_8_BIT,
)
from planner.axes.values import (
    MODULES as MODULES,
)
from planner.axes.values import (
    NO_RECOMPUTE as NO_RECOMPUTE,
)
from planner.axes.values import (
    NOWHERE as NOWHERE,
)
from planner.axes.values import (
    OFFLOADED as OFFLOADED,
)
from planner.axes.values import (
    OFFLOADED_MODULES as OFFLOADED_MODULES,
)
from planner.axes.values import (
    ONE_F_ONE_B as ONE_F_ONE_B,
)
from planner.axes.values import (
    PART as PART,
)
from planner.axes.values import (
    PLACED as PLACED,
)
from planner.axes.values import (
    PLACEMENTS as PLACEMENTS,
)
from planner.axes.values import (
    RANK_ORDERS as RANK_ORDERS,
)
from planner.axes.values import (
    SELECTIVE as SELECTIVE,
)
from planner.axes.values import (
    SHARES as SHARES,
)
from planner.axes.values import (
    SPLIT_SCHEDULES as SPLIT_SCHEDULES,
)
from planner.axes.values import (
    WHOLE as WHOLE,
)
from planner.axes.values import (
    WHOLE_MIXTURE as WHOLE_MIXTURE,
)
from planner.axes.values import (
    MemoryPlacement as MemoryPlacement,
)
from planner.axes.values import (
    Recompute as Recompute,
)
from planner.axes.values import (
    Sharding as Sharding,
)
from planner.axes.values import (
    TensorMode as TensorMode,
)
from planner.axes.values import (
    activation_offload as activation_offload,
)
from planner.axes.values import (
    modules as modules,
)
from planner.axes.values import (
    offload_name as offload_name,
)
from planner.axes.values import (
    placement as placement,
)
from planner.axes.values import (
    recompute as recompute,
)
from planner.axes.values import (
    schedule_name as schedule_name,
)
from planner.axes.values import (
    states_offloaded as states_offloaded,
)
from planner.schema.plan import RankOrder

LAYOUT_AXES = tuple(axis.name for axis in table.LAYOUT_AXES)
OPTION_AXES = tuple(axis.name for axis in table.OPTION_AXES)
AXES = tuple(table.AXES)
PINNED = table.PINNED
GRAPHS = _GRAPHS.choices
DISPATCHERS = DISPATCHER.choices


@dataclass(frozen=True, slots=True)
class OptionAxes:
    """One value of every option axis: an option tuple of the grid, and what a plan reports."""

    precision: str
    recompute: Recompute
    tensor: TensorMode
    sharding: Sharding
    p2p_overlap: bool
    pp_inner: bool
    offload: float
    """Share of the optimizer states in host memory."""
    placement: MemoryPlacement = NOWHERE
    ep_overlap: bool = False
    graphs: int = 0
    """What CUDA graphs launch: a place in :data:`GRAPHS`."""
    graphs_share: bool = False
    """Whether those of modules read one another's results in place; of runs, which do not say how they captured."""
    cp_algorithm: str = ALONE
    """Of ``CONTEXT_ALGORITHMS`` where ranks share sequences."""
    offload_overlap: bool = False
    """Whether gradients and weights are copied while the host updates other ones."""
    activation_offload: tuple[str, ...] = ()
    """Modules of layers whose inputs live in host memory until the backward pass, or ``all``."""
    schedule: str = ONE_F_ONE_B
    dispatcher: str = ALONE
    """Of :data:`DISPATCHERS`."""
    """Of ``SPLIT_SCHEDULES``, or 1F1B in the form that goes with the layout (:func:`schedule_name`)."""

    @property
    def rank_order(self) -> RankOrder:
        """The order of dimensions, innermost first."""
        return RANK_ORDERS[self.pp_inner]
