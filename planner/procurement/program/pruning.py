"""Columns that no answer needs: beaten by others in everything that any limit or objective counts."""

from __future__ import annotations

from dataclasses import dataclass
from operator import le

from planner.procurement.program.instance import ProcureInstance, kept_free
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
    joined = {p for c in instance.columns if c.other_pools for p in c.place}
    for c in instance.columns:
        if c.other_pools:
            continue
        pool = instance.pools[c.pool]
        # Each job hires for itself: there the comparison is job by job.
        key = (pool.way if across else pool.family, c.job if pool.hired else -1)
        families.setdefault(key, {}).setdefault(c.pool, {})[c.job] = c.days
    # Where fewer can be had than there are jobs, what is dominated may be needed beside what dominates it.
    scarce = {p for p, q in enumerate(instance.pools) if q.way != "own" and q.copies < len(instance.jobs)}
    kept = {(key[1], p) for key, days in families.items() for p in _front(instance, days, scarce)}
    return [c for c in instance.columns if c.pool in joined or (-1, c.pool) in kept or (c.job, c.pool) in kept]


@dataclass(frozen=True, slots=True)
class _Rival:
    """A pool with the figures that others must not exceed, each computed once: thousands of pairs are compared."""

    pool: SupplyPool
    held: tuple[float, ...]
    """What having it takes; the less, the better."""
    work: dict[int, tuple[float, float, float, float]]
    """Of every job: days, dollars, kilograms, and days with the loss of nodes."""


def _rival(pool: SupplyPool, days: dict[int, float], late: dict[int, float]) -> _Rival:
    held = (pool.capital, pool.fixed_charge, pool.month_usd, pool.held_usd, pool.power, pool.racks, pool.switch_ports,
            pool.start_day, -pool.end_day, -pool.copies)  # fmt: skip
    work = {j: (d, d * pool.day_usd, d * pool.day_kg, d + late.get(j, 0.0)) for j, d in days.items()}
    return _Rival(pool, held, work)


def _front(instance: ProcureInstance, days: dict[int, dict[int, float]], scarce: set[int]) -> set[int]:
    pools = instance.pools
    ordered = sorted(days, key=lambda p: (pools[p].fixed_charge + pools[p].held_usd, sum(days[p].values()), p))
    front: list[int] = []
    rivals: list[_Rival] = []
    for p in ordered:
        late = {j: kept_free(instance, j, (p,)) for j in days[p]} if instance.survivals else {}
        other = _rival(pools[p], days[p], late)
        if not any(_dominates(one, other) for one in rivals):
            front.append(p)
            if p not in scarce:
                rivals.append(other)
    return set(front)


def _dominates(one: _Rival, other: _Rival) -> bool:
    if not (_no_more(one.held, other.held) and other.work.keys() <= one.work.keys() and _lasts(one.pool, other.pool)):
        return False
    return all(_no_more(one.work[j], theirs) for j, theirs in other.work.items())


def _no_more(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return all(map(le, ours, theirs))


def _lasts(one: SupplyPool, other: SupplyPool) -> bool:
    """Whether it is there to take the other's place."""
    return one.at_most is None or (one.offer == other.offer and one.nodes <= other.nodes)
