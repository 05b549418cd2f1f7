"""Columns that no answer needs: beaten by others in everything that any limit or objective counts."""

from __future__ import annotations

from collections.abc import Sequence

from planner.procurement.program.model import ProcureInstance
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column


def undominated(instance: ProcureInstance, *, across: bool = False) -> list[Column]:
    """The columns without those of dominated pools; a pool that may also work beside others keeps all of its own.

    Pools compare within a family (the same nodes come by in the same way), so that an alternative of another kind is
    never lost; or `across` nodes within a way, where only the best is wanted. One is dominated if another can be had as
    often, takes no more money, power, racks or ports, is there as long, and does every job that it does in no more
    time, for no more money and carbon.
    """
    families: dict[tuple[str, int], dict[int, dict[int, float]]] = {}
    joined = {p for c in instance.columns if c.beside for p in c.place}
    for c in instance.columns:
        if c.beside:
            continue
        pool = instance.pools[c.pool]
        # Each job hires for itself: there the comparison is job by job.
        key = (pool.way if across else pool.family, c.job if pool.hired else -1)
        families.setdefault(key, {}).setdefault(c.pool, {})[c.job] = c.days
    # Where fewer can be had than there are jobs, what is dominated may be needed beside what dominates it.
    scarce = {p for p, q in enumerate(instance.pools) if q.way != "own" and q.copies < len(instance.jobs)}
    kept = {(key[1], p) for key, days in families.items() for p in _front(instance.pools, days, scarce)}
    return [c for c in instance.columns if c.pool in joined or (-1, c.pool) in kept or (c.job, c.pool) in kept]


def _front(pools: Sequence[SupplyPool], days: dict[int, dict[int, float]], scarce: set[int]) -> set[int]:
    ordered = sorted(days, key=lambda p: (pools[p].fixed_charge + pools[p].held_usd, sum(days[p].values()), p))
    front: list[int] = []
    for p in ordered:
        if not any(_dominates(pools[q], days[q], pools[p], days[p]) for q in front if q not in scarce):
            front.append(p)
    return set(front)


def _dominates(one: SupplyPool, ours: dict[int, float], other: SupplyPool, theirs: dict[int, float]) -> bool:
    if not (theirs.keys() <= ours.keys() and one.copies >= other.copies and _no_more(one, other)):
        return False
    return all(
        ours[j] <= days
        and ours[j] * one.day_usd <= days * other.day_usd
        and ours[j] * one.day_kg <= days * other.day_kg
        for j, days in theirs.items()
    )


def _no_more(one: SupplyPool, other: SupplyPool) -> bool:
    if one.at_most is not None and (one.offer != other.offer or one.nodes > other.nodes):
        return False  # it may not be there to take the other's place
    held = ("capital", "fixed_charge", "month_usd", "held_usd", "power", "racks", "switch_ports", "start_day")
    return all(getattr(one, name) <= getattr(other, name) for name in held) and one.end_day >= other.end_day
