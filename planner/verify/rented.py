"""Re-derives what an answer says of its rent: the range over comparable offers, and the risk of machines taken back.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.procurement import Alternative, JobDone, PoolBought, ProcureOptions, SpotRisk

CENT = 0.005
NINE_OF_TEN = 1.2816
DAY_S = 86400.0


def ranges_are_of_the_offers(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """``total + sum over rented lines of node-hours x accelerators x offer - line``, of the offers that pools state."""
    pools = {pool.id: pool for pool in a.pools if pool.offers is not None}
    for pool in pools.values():
        assert pool.offers is not None
        if not 0 < pool.offers.low_usd <= pool.offers.median_usd <= pool.offers.high_usd:
            yield f"{pool.id}: its offers are not in order"
    rented = [line for line in a.bill_of_materials if line.kind == "rental" and line.pool in pools]
    sellers = {(pools[x.pool].way, pools[x.pool].offers) for x in rented}
    stated = a.cost.range
    if (stated is not None) != (sum(len(x.providers) for _, x in sellers if x is not None) > len(sellers)):
        yield f"the range of the total is {stated}, with {len(sellers)} comparable accelerators"
    if stated is None:
        return
    for name in ("low_usd", "median_usd", "high_usd"):
        at = a.cost.total_usd
        for line in rented:
            pool = pools[line.pool]
            per_node = pool.accelerators / (pool.count * pool.copies)
            at += line.count * per_node * getattr(pool.offers, name) - line.usd
        if not math.isclose(getattr(stated, name), at, rel_tol=1e-9, abs_tol=2 * CENT * (1 + len(rented))):
            yield f"range.{name} is {getattr(stated, name):.2f}, and {at:.2f} follows"


def spot_risk_follows(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Expected rent is days times rates; nine of ten runs are done ``1.2816 sqrt(T/M (R^2 + R tau + tau^2/3)) / f``
    later; spot costs as much as on demand where ``price_s / f(r) = price_d / f(0)``, ``f = 1 - sqrt(2 C l) - R l``.
    """
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        mine = [pools[name] for name in job.pools if name in pools]
        if (job.spot is not None) != any(pool.way == "spot" for pool in mine):
            yield f"{job.name}: {'no risk is said' if job.spot is None else 'a risk is said'} of its rent"
        if job.spot is not None and mine:
            for name, stated, derived in _derived(job, job.spot, mine):
                if stated is None or not math.isclose(stated, derived, rel_tol=1e-6, abs_tol=1e-6):
                    yield f"{job.name}: spot.{name} is {stated}, and {derived:.9g} follows"


def _derived(job: JobDone, risk: SpotRisk, mine: list[PoolBought]) -> Iterator[tuple[str, float | None, float]]:
    good = job.plan.money.goodput
    seconds = job.days * DAY_S
    interval, restart = good.checkpoint_interval_s, good.restart_s
    squared = restart**2 + restart * interval + interval**2 / 3
    late = NINE_OF_TEN * math.sqrt(seconds / good.mtbf_s * squared) / good.fraction
    usd = sum(pool.day_usd for pool in mine) * job.days
    yield "interruptions", risk.interruptions, seconds / good.mtbf_s
    yield "finish_90_day", risk.finish_90_day, job.finish_day + late / DAY_S
    yield "usd", risk.usd, usd
    yield "usd_90", risk.usd_90, usd * (1 + late / seconds)
    if risk.on_demand_usd is None or len(mine) > 1:
        return
    pool = mine[0]
    taken = risk.preemptions_per_node_day / DAY_S
    failing = 1 / good.mtbf_s - pool.count * taken
    training_share = _trains(failing, good.checkpoint_blocks_s, restart)
    # Both pay for the same work: what an hour costs, over the share of it that trains.
    share = training_share * usd / job.days / (risk.on_demand_usd * training_share / (good.fraction * job.days))
    even = 0.0 if share >= training_share else _most(share, good.checkpoint_blocks_s, restart) - failing
    yield "break_even_per_node_day", risk.break_even_per_node_day, max(0.0, even) / pool.count * DAY_S


def _trains(rate: float, blocks: float, restart: float) -> float:
    return 1 - math.sqrt(2 * blocks * rate) - restart * rate


def _most(share: float, blocks: float, restart: float) -> float:
    """The rate at which so much of the time trains, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _trains(middle, blocks, restart) > share else (low, middle)
    return low


CHECKS = (ranges_are_of_the_offers, spot_risk_follows)
