"""A column of the integer program: one job on its pools, and what makes two pools, or two jobs, one such column.

A job may have to keep its deadline though nodes are lost for the time of a repair: :func:`survivals` states the room
that its calendar needs for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.cost.money import DAY_S
from planner.procurement.question.portfolio import Job, Portfolio
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
    """Tokens a second of wall time."""
    other_pools: tuple[int, ...] = ()
    """The other pools that work on it at the same time."""

    @property
    def place(self) -> Place:
        """All pools that work on it."""
        return (self.pool, *self.other_pools)


Key = tuple[object, ...]


def work(job: Job) -> tuple[object, ...]:
    """What of a job its speed depends on."""
    return (job.model, replace(job.asked, tokens=None), job.post_training)


def machine(pool: SupplyPool) -> Key:
    """What of a pool its layouts and its compute depend on: its accelerators and what joins them inside a node. So one
    search answers for every vendor's box, and every instance, around the same board.
    """
    cluster = pool.cluster
    node = pool.cluster.node
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


@dataclass(frozen=True, slots=True)
class Survival:
    """What the loss of nodes costs one job in its place."""

    tokens_per_s: float
    """While the nodes are repaired: on spare nodes as before, else on the best smaller size; 0 where it waits."""
    days: float
    """By which it is done later: ``repair (1 - slow / whole) + restart``."""
    kept_free: float
    """Days before its deadline that it is done, so that neither its own loss nor that of a job before it on the same
    machines makes it late: the most that any job that may share them is delayed.
    """


def survivals(
    asked: Portfolio, pools: Sequence[SupplyPool], columns: Sequence[Column]
) -> Mapping[tuple[int, Place], Survival]:
    """Job and place -> what the loss of as many nodes as the question names costs; nothing where it names none.

    Nodes are lost in one of the job's pools, the one where that costs most.
    """
    lost = asked.reliability.survive
    sizes = _by_size(pools, columns)
    if not lost:
        return {}
    repair = asked.reliability.repair_days
    left = {(c.job, c.place): min(_left(pools[p], lost, c, sizes) for p in c.place) for c in columns}
    late = {}
    longest = dict[Key, float]()
    for c in columns:
        restart = max(pools[p].restart_s for p in c.place) / DAY_S
        days = late[c.job, c.place] = repair * (1.0 - left[c.job, c.place] / c.tokens_per_s) + restart
        for key in _shared(pools, c):
            longest[key] = max(days, longest.get(key, 0.0))
    return {
        (c.job, c.place): Survival(
            left[c.job, c.place], late[c.job, c.place], max(longest[key] for key in _shared(pools, c))
        )
        for c in columns
    }


def _shared(pools: Sequence[SupplyPool], c: Column) -> list[Key]:
    """What the machines of a job are shared by: copies of what is held, nodes owned, an offer of few nodes; else they
    are the job's own.
    """
    mine = [pools[p] for p in c.place]
    return [
        ("pool", pool.id) if pool.held
        else ("offer", pool.offer) if pool.way == "own" or pool.at_most is not None
        else ("job", c.job, c.place)
        for pool in mine
    ]  # fmt: skip


def _by_size(
    pools: Sequence[SupplyPool], columns: Sequence[Column]
) -> Mapping[tuple[int, str, str], list[tuple[int, float]]]:
    """Job, offer and way -> nodes and tokens per second of every size that was planned alone."""
    by_size: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for c in columns:
        if not c.other_pools:
            pool = pools[c.pool]
            by_size.setdefault((c.job, pool.offer, pool.way), []).append((pool.cluster.count, c.tokens_per_s))
    return by_size


def _left(
    pool: SupplyPool, lost: int, c: Column, sizes: Mapping[tuple[int, str, str], list[tuple[int, float]]]
) -> float:
    """Tokens per second of a job whose pool lost nodes."""
    if pool.spares >= lost:
        return c.tokens_per_s
    left = pool.nodes - lost
    smaller = [speed for count, speed in sizes.get((c.job, pool.offer, pool.way), ()) if count <= left]
    return 0.0 if c.other_pools else min(c.tokens_per_s, max(smaller, default=0.0))
