"""A column of the integer program: one job on its pools, and what makes two pools, or two jobs, one such column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool

if TYPE_CHECKING:
    pass


Place = tuple[int, ...]
"""The pools that one job works on at once: mostly one."""


@dataclass(frozen=True, slots=True)
class Column:
    """One job on one pool, or on several at once."""

    job: int
    pool: int
    days: float
    """Wall time of the whole job, failures and checkpoints included."""
    tokens_per_s: float
    """Of wall time."""
    other_pools: tuple[int, ...] = ()
    """The other pools that work on it at the same time."""

    @property
    def place(self) -> Place:
        """All pools that work on it."""
        return (self.pool, *self.other_pools)


Key = tuple[object, ...]


def work(job: Job) -> tuple[object, ...]:
    """What of a job its speed depends on."""
    return (job.model, replace(job.asked, tokens=None))


def machine(pool: SupplyPool) -> Key:
    """What of a pool its layouts and its compute depend on: its accelerators and what joins them inside a node. So one
    search answers for every vendor's box, and every instance, around the same board.
    """
    cluster, node = pool.cluster, pool.cluster.node
    # The domain of a pod grows with its hosts, dimensions with all there is: there each size is a machine of its own.
    fabric = cluster.fabric
    pod = (fabric.id, cluster.count) if fabric.kind == "ici" or fabric.dimensions else ()
    return (cluster.accelerator.id, node.accelerators, repr(node.scaleup), *pod)


def wiring(pool: SupplyPool) -> Key:
    """How a pool's nodes are joined: what :func:`planner.figures.cost_inputs.network` reads of ports and fabric.
    A spine counts only where it is thinned out and nodes lie below several leaves.
    """
    node, fabric, count = pool.cluster.node, pool.cluster.fabric, pool.cluster.count
    if count == 1 and fabric.kind != "ici" and not fabric.dimensions:
        return ()
    ports = max(node.nics, 1) * (node.nic_bandwidth or fabric.nic_bandwidth)
    spine = (
        (fabric.leaf_nodes, fabric.oversubscription)
        if fabric.oversubscription != 1 and fabric.leaf_nodes < count
        else ()
    )
    return (ports, fabric.latency, *spine)
