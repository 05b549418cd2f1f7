"""Room that a job's calendar needs so that its deadline holds though nodes are lost for the time of a repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.cost.money import DAY_S
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column, Key, Place


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
    lost, sizes = asked.reliability.survive, _by_size(pools, columns)
    if not lost:
        return {}
    repair = asked.reliability.repair_days
    left = {(c.job, c.place): min(_left(pools[p], lost, c, sizes) for p in c.place) for c in columns}
    late, longest = {}, dict[Key, float]()
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
    found: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for c in columns:
        if not c.other_pools:
            pool = pools[c.pool]
            found.setdefault((c.job, pool.offer, pool.way), []).append((pool.cluster.count, c.tokens_per_s))
    return found


def _left(
    pool: SupplyPool, lost: int, c: Column, sizes: Mapping[tuple[int, str, str], list[tuple[int, float]]]
) -> float:
    """Tokens per second of a job whose pool lost nodes."""
    if pool.spares >= lost:
        return c.tokens_per_s
    left = pool.nodes - lost
    smaller = [speed for count, speed in sizes.get((c.job, pool.offer, pool.way), ()) if count <= left]
    return 0.0 if c.other_pools else min(c.tokens_per_s, max(smaller, default=0.0))
