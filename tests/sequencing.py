"""The oracle of time: small portfolios in which nodes are scarce, and every assignment in every order.

The planner has no part in it: a job is placed at the earliest of a few days on which, hour by hour of what was placed
before, nodes suffice; every order of the jobs is tried, and every day on which a term may begin.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.catalog import cluster
from planner.procurement.program.instance import ProcureInstance
from planner.procurement.question.portfolio import Job, Owned
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column
from tests.procuring import CATALOG, HORIZON, bought, job, portfolio

OWN, QUOTA, TERM = "dgx-a100-80gb", "p5.48xlarge", "p4de.24xlarge"


@dataclass(frozen=True)
class Booking:
    """Something taken from a day to another."""

    what: str
    units: int
    start: float
    end: float


def scarce_instance(seed: int) -> ProcureInstance:
    """Two to four jobs; some nodes of our own, in twos and fours, six to hire, in threes and sixes, one cluster to buy,
    and one to be had for terms of 40 days.
    """
    r = random.Random(seed)
    jobs = tuple(_job(r, n) for n in range(r.choice((2, 3, 3, 4))))
    asked = replace(portfolio(jobs), owned=(Owned(node=OWN, count=r.choice((4, 5, 6))),))
    pools = [
        hire("own", OWN, 2, day_usd=r.uniform(10, 50)),
        hire("own", OWN, 4, day_usd=r.uniform(30, 90)),
        hire("on-demand", QUOTA, 3, day_usd=r.uniform(500, 1500), at_most=6),
        hire("on-demand", QUOTA, 6, day_usd=r.uniform(1000, 3000), at_most=6),
        replace(bought(0, r.uniform(2e4, 9e4), 0.0, r.uniform(10, 50)), start_day=(day := r.choice((0.0, 20.0))),
                held_days=HORIZON - day),
        *(_term(n, price) for price in (r.uniform(2e4, 6e4),) for n in (1, 2)),
    ]  # fmt: skip
    alike = {2: 0, 3: 1, 4: 2, 5: 3, 6: 3, 0: 4, 1: 5}
    days = {(j, k): r.uniform(4, 45) for j in range(len(jobs)) for k in set(alike.values())}
    there = {key for key in days if r.random() < 0.75}
    columns = [
        Column(j, p, days[j, alike[p]], jobs[j].tokens / days[j, alike[p]] / 86400)
        for j in range(len(jobs))
        for p in range(len(pools))
        if (j, alike[p]) in there
    ]
    return ProcureInstance(asked, pools, columns)


def _job(r: random.Random, n: int) -> Job:
    release = r.choice((0.0, 0.0, 10.0, 30.0))
    return job(n, min(HORIZON, release + r.choice((25.0, 40.0, 60.0, 95.0))), release)


def hire(way: str, node: str, count: int, **more: object) -> SupplyPool:
    """Nodes that are owned, or can be had by the day or for a term."""
    where = cluster(CATALOG, node, count, None, "us")
    offer = f"own {node}" if way == "own" else node
    given = {"copies": 4, "offer": offer} | more
    return SupplyPool(id=f"{way} {count}", way=way, cluster=where, **given)  # type: ignore[arg-type]


def _term(n: int, price: float) -> SupplyPool:
    days = 40.0 * n
    pool = hire("reserved-1y", TERM, 2, month_usd=price / 40 * 365.25 / 12, held_days=days, end_day=days)
    return replace(pool, id=f"{n} terms", copies=1)


def least_cost(instance: ProcureInstance) -> float:
    """Of every assignment that has an order; infinite where none has."""
    days = {(c.job, c.pool): c.days for c in instance.columns}
    choices = [[p for p in range(len(instance.pools)) if (j, p) in days] for j in range(len(instance.jobs))]
    ranked = sorted((_cost(instance, run, days), run) for run in itertools.product(*choices))
    return next((cost for cost, run in ranked if _possible(instance, run, days)), math.inf)


def _cost(instance: ProcureInstance, run: Sequence[int], days: dict[tuple[int, int], float]) -> float:
    pools = instance.pools
    held = [pools[p] for p in set(run) if pools[p].way in ("buy", "reserved-1y")]
    terms = sum(pool.month_usd * pool.held_days / (365.25 / 12) for pool in held)
    return (
        terms + sum(pool.fixed_charge for pool in held) + sum(pools[p].day_usd * days[j, p] for j, p in enumerate(run))
    )


def _possible(instance: ProcureInstance, run: Sequence[int], days: dict[tuple[int, int], float]) -> bool:
    terms = sorted({p for p in run if instance.pools[p].way == "reserved-1y"})
    starts = [_starts(instance, [j for j, q in enumerate(run) if q == p], p, days) for p in terms]
    return any(
        _in_time(instance, order, run, days, dict(zip(terms, start, strict=True)))
        for start in itertools.product(*starts)
        for order in itertools.permutations(range(len(run)))
    )


def _starts(instance: ProcureInstance, mine: Sequence[int], p: int, days: dict[tuple[int, int], float]) -> list[float]:
    """Days on which a term may begin: with a job, or so that some of its jobs, in some order, just end in time."""
    found = {0.0} | {n * 365.25 / 12 for n in range(4)} | {job.release_day for job in instance.jobs}
    term = instance.pools[p].held_days
    for n in range(1, len(mine) + 1):
        for some in itertools.combinations(mine, n):
            worked = sum(days[j, p] for j in some)
            found |= {instance.jobs[j].release_day + worked - term for j in some}
            found |= {instance.jobs[j].deadline_day - worked for j in some}
    return sorted(day for day in found if day >= 0)


def _in_time(
    instance: ProcureInstance, order: Sequence[int], run: Sequence[int], days: dict[tuple[int, int], float],
    starts: dict[int, float],
) -> bool:  # fmt: skip
    booked: list[Booking] = []
    for j in order:
        p, pool, each = run[j], instance.pools[run[j]], instance.jobs[j]
        first = max(each.release_day, starts.get(p, pool.start_day))
        last = min(each.deadline_day, starts[p] + pool.held_days if p in starts else math.inf)
        for start in sorted({first, *(b.end for b in booked if b.end > first)}):
            if start + days[j, p] > last + 1e-9:
                return False
            mine = list(_bookings(instance, p, start, start + days[j, p]))
            if all(_room(instance, booked, each) for each in mine):
                booked += mine
                break
    return True


def _bookings(instance: ProcureInstance, p: int, start: float, end: float) -> Iterator[Booking]:
    pool = instance.pools[p]
    if pool.way in ("own", "on-demand"):
        yield Booking(pool.offer, pool.cluster.count, start, end)
    else:
        yield Booking(str(p), 1, start, end)


def _room(instance: ProcureInstance, booked: Sequence[Booking], wanted: Booking) -> bool:
    most = {QUOTA: 6, f"own {OWN}": instance.asked.owned[0].count}.get(wanted.what, 1)
    same = [b for b in booked if b.what == wanted.what and b.end > wanted.start + 1e-9 and b.start < wanted.end - 1e-9]
    days = [wanted.start, *(b.start for b in same if b.start > wanted.start)]
    taken = (sum(b.units for b in same if b.start <= day + 1e-9 and b.end > day + 1e-9) for day in days)
    return max(taken) + wanted.units <= most
