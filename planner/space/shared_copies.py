"""Copies of weights and optimizer states that several nodes share, of many (hybrid sharding): which rows take them.

Counts of nodes are searched where a pin names them; what is searched by default is :mod:`planner.space.levers`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.axes.table import ZERO_SCOPE
from planner.axes.values import nodes_of
from planner.schema.hardware import Cluster, Runtime
from planner.space.enumerate_layouts import Rows
from planner.space.pins import Bound, Pins
from planner.space.rules import Columns, Mask, accelerators_of_domain

_BITS = 62
"""Values that one number can say a row has."""


def shared_by(nodes: int, rows: Columns, cluster: Cluster) -> Mask:
    """Whether ranks of so many nodes can share a copy of what a stage holds, where there are several copies: they hold
    whole replicas of its dense parameters, and of its experts.
    """
    ranks = nodes * accelerators_of_domain(cluster)
    of_stage = rows["tp"] * rows["cp"] * rows["dp"]
    replica = rows["tp"] * rows["cp"]
    experts = rows["ep"] * rows["etp"]
    return np.asarray((of_stage > ranks) & (of_stage % ranks == 0) & (ranks % replica == 0) & (ranks % experts == 0))


def spanning(runtime: Runtime, pins: Pins) -> list[str]:
    """The counts of nodes that a pin lets share a copy."""
    stated = pins.bounds[ZERO_SCOPE.name].values if ZERO_SCOPE.name in pins else ()
    return [scope for scope in stated if nodes_of(scope) > 1 and "node" in runtime.zero_scope]


def scopes(rows: Rows, cluster: Cluster, runtime: Runtime, pins: Pins) -> list[tuple[Pins, NDArray[np.bool_]]]:
    """Pins of who shares a copy, and the rows that take them: all ranks or one node's on every row; counts of nodes,
    where a pin names them, on rows of which they divide the ranks of a stage (:func:`shared_by`).
    """
    stated = pins.bounds[ZERO_SCOPE.name].values if ZERO_SCOPE.name in pins else ()
    sized = spanning(runtime, pins)
    if not sized:
        return [(pins, np.ones(len(rows["tp"]), dtype=bool))]
    plain = tuple(scope for scope in stated if scope not in sized)
    held = [(plain, np.ones(len(rows["tp"]), dtype=bool))] if plain else []
    for start in range(0, len(sized), _BITS):
        some = {scope: shared_by(nodes_of(scope), rows, cluster) for scope in sized[start : start + _BITS]}
        held += with_just(some, len(rows["tp"]))
    return [(Pins({**pins.bounds, ZERO_SCOPE.name: Bound(scopes)}), mask) for scopes, mask in held]


def with_just(has: Mapping[Any, NDArray[np.bool_]], count: int) -> list[tuple[tuple[Any, ...], NDArray[np.bool_]]]:
    """Sets of values, and the rows (of so many) that have just these."""
    kinds = sum((mask.astype(np.int64) << bit for bit, mask in enumerate(has.values())), np.zeros(count, np.int64))
    some = [int(kind) for kind in np.unique(kinds) if kind]
    return [(tuple(value for bit, value in enumerate(has) if kind >> bit & 1), kinds == kind) for kind in some]
