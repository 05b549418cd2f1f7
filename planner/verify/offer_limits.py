"""Re-derives what an offer keeps to: its limits, its rent over comparable offers, and the risk of spot machines."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.plan_prediction import Goodput
from planner.schema.procurement import Alternative, JobDone, PoolBought, ProcureOptions, SpotRisk
from planner.verify.bill import DAYS_PER_MONTH, HIRED, days_of, watts_of
from planner.verify.calendar import CALENDAR
from planner.verify.finding import same

NEAR = 0.02
"""A limit binds when no more than this share of it is left."""


def limits_hold(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Every limit of the question stands in the answer, with the value that follows from the bill, and holds."""
    stated = {c.name: c for c in a.constraints}
    for name, limit in question.limits.items():
        c = stated.get(name)
        if c is None:
            yield f"{name} is missing"
            continue
        value = _value(question, a, name)
        if not math.isclose(c.value, value, rel_tol=1e-6, abs_tol=0.02):
            yield f"{name} is {c.value:.9g}, and {value:.9g} follows"
        if not same(c.limit, limit) or abs(c.slack - (c.limit - c.value)) > 1e-6 * max(1.0, abs(c.limit)):
            yield f"{name}: {c.slack:g} is not what is left of {limit:g}"
        if value > limit * (1 + 1e-5) + CALENDAR:
            yield f"{name}: {value:.9g} is over {limit:.9g}"
        if c.binding != (c.slack <= NEAR * c.limit):
            yield f"{name}: {c.slack:g} of {c.limit:g} are left, and binding is {c.binding}"
    for name in stated.keys() - question.limits.keys():
        yield f"{name} is no limit of the question"
    for node, count in question.owned.items():
        used = _at_a_time(a, {x.id: x.count for x in a.pools if x.way == "own" and x.node == node})
        if used > count:
            yield f"{used:g} of {count} {node} that are owned"


def _value(question: ProcureOptions, a: Alternative, name: str) -> float:
    kind, _, of = name.partition(":")
    held = [pool for pool in a.pools if pool.way not in HIRED]
    if kind == "deadline":
        return max(job.finish_day for job in a.workloads if job.name == of)
    if kind == "quantity":
        return _nodes(a, of)
    return {
        "budget": a.cost.cash_usd,
        "capital": a.cost.capital_usd,
        "power": _power_of_all(a),
        "racks": sum(pool.racks * pool.copies for pool in held) + (question.standing or {}).get("racks", 0.0),
        "switch_ports": sum(pool.switch_ports * pool.copies for pool in held)
        + (question.standing or {}).get("switch_ports", 0.0),
        "carbon": sum(_carbon(a, pool) for pool in a.pools),
        "monthly": _most_in_a_month(a),
        "horizon": max(job.finish_day for job in a.workloads),
    }[kind]


def _power(pool: PoolBought) -> float:
    if pool.way not in ("buy", "own"):
        return 0.0
    nodes = pool.count + pool.spares
    return (nodes * pool.node_power_w + pool.network_power_w) * pool.pue


def _power_of_all(a: Alternative) -> float:
    """Watts of what is bought, and of as many of one's own nodes as ever work at a time."""
    node_power = {pool.node: _power(pool) / (pool.count + pool.spares) for pool in a.pools if pool.way == "own"}
    working = {node: {x.id: x.count for x in a.pools if x.way == "own" and x.node == node} for node in node_power}
    bought = sum(_power(pool) * pool.copies for pool in a.pools if pool.way == "buy")
    return bought + sum(watts * _at_a_time(a, working[node]) for node, watts in node_power.items())


def _carbon(a: Alternative, pool: PoolBought) -> float:
    return watts_of(pool) * 24 * days_of(a, pool) / 1000 * pool.grams_per_kwh / 1000


def _nodes(a: Alternative, offer: str) -> float:
    """Nodes of an offer: those held, and the most that are hired on any day."""
    pools = {pool.id: pool for pool in a.pools if pool.offer == offer}
    held = sum((x.count + x.spares) * x.copies for x in pools.values() if x.way not in (*HIRED, "own"))
    return held + _at_a_time(a, {pool.id: pool.count + pool.spares for pool in pools.values() if pool.way in HIRED})


def _at_a_time(a: Alternative, nodes: dict[str, int]) -> float:
    """The most nodes that work on any day, of these pools with so many each."""
    times = [s for job in a.workloads for s in job.schedule if s.pool in nodes]
    # Whoever ends on a day makes room for whoever begins on it.
    changes = sorted(
        [(s.end_day - CALENDAR / 2, -nodes[s.pool]) for s in times] + [(s.start_day, nodes[s.pool]) for s in times]
    )
    now = most = 0
    for _, by in changes:
        now += by
        most = max(most, now)
    return float(most)


def _most_in_a_month(a: Alternative) -> float:
    held = [pool for pool in a.pools if pool.way not in HIRED]
    last = max([s.end_day for job in a.workloads for s in job.schedule] + [x.start_day + x.held_days for x in held])
    most = 0.0
    for month in range(int(last / DAYS_PER_MONTH) + 1):
        start = month * DAYS_PER_MONTH
        end = (month + 1) * DAYS_PER_MONTH

        def within(x: float, y: float, a: float = start, b: float = end) -> float:
            return max(0.0, min(b, y) - max(a, x))

        spent = sum(
            pool.month_usd * pool.copies * within(pool.start_day, pool.start_day + pool.held_days) / DAYS_PER_MONTH
            for pool in held
        )
        rates = {pool.id: pool.day_usd for pool in a.pools}
        spent += sum(rates[s.pool] * within(s.start_day, s.end_day) for job in a.workloads for s in job.schedule)
        most = max(most, spent)
    return most


def totals_are_sums(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Power, racks, carbon and the last day are those of pools and jobs; a pool's accelerators and use are its own."""
    held = [pool for pool in a.pools if pool.way not in HIRED]
    sums = {
        name: planned.accelerators_per_node
        for job in a.workloads
        if job.plan
        for name, planned in zip(job.pools, job.plan.cluster.pools, strict=False)
    }
    for what, stated, derived in (
        *((f"{x.id}: power_w", x.power_w, _power(x)) for x in a.pools),
        *((f"{x.id}: accelerators", x.accelerators, sums[x.id] * x.count * x.copies) for x in a.pools if x.id in sums),
        *((f"{x.id}: utilisation", x.utilisation, _utilisation(question, a, x)) for x in a.pools),
        ("power_w", a.power_w, _power_of_all(a)),
        ("racks", a.racks, sum(pool.racks * pool.copies for pool in held)),
        ("carbon_kg", a.carbon_kg, sum(_carbon(a, pool) for pool in a.pools)),
        ("done_day", a.done_day, max(job.finish_day for job in a.workloads)),
    ):
        if not math.isclose(stated, derived, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{what} is {stated:.9g}, and {derived:.9g} follows"


def _utilisation(question: ProcureOptions, a: Alternative, pool: PoolBought) -> float:
    """Days worked over those on which it is there; what is hired is there while it works."""
    worked = days_of(a, pool)
    if pool.way in HIRED:
        return 1.0 if worked else 0.0
    accelerator_days = (
        min(question.horizon_days, math.inf if pool.end_day is None else pool.end_day) - pool.start_day
    ) * pool.copies
    return worked / accelerator_days if accelerator_days > 0 else 0.0


CHECKS = (limits_hold, totals_are_sums)


CENT = 0.005
NINE_OF_TEN = 1.2816
DAY_S = 86400.0


def ranges_are_of_the_offers(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """``total + sum over rented lines of node-hours x accelerators x offer - line``, of the offers that pools
    state, and old or assumed prices of rents and nodes times their spread.
    """
    pools = {pool.id: pool for pool in a.pools if pool.offers is not None}
    for pool in pools.values():
        assert pool.offers is not None
        if not 0 < pool.offers.low_usd <= pool.offers.median_usd <= pool.offers.high_usd:
            yield f"{pool.id}: its offers are not in order"
    rented = [line for line in a.bill_of_materials if line.kind == "rental" and line.pool in pools]
    sellers = {(pools[x.pool].way, pools[x.pool].offers) for x in rented}
    stated = a.cost.range
    aged = {pool.id: pool.price_spread for pool in a.pools if pool.price_spread is not None}
    unsure = [line for line in a.bill_of_materials if line.kind in ("rental", "node") and line.pool in aged]
    yield from (f"{name}: a price spread of {ends}" for name, ends in aged.items() if not 0 < ends[0] <= 1 <= ends[1])
    if (stated is not None) != (
        bool(unsure) or sum(len(x.providers) for _, x in sellers if x is not None) > len(sellers)
    ):
        yield f"the range of the total is {stated}, with {len(sellers)} comparable accelerators"
    if stated is None:
        return
    charged = a.cost.charged_usd / a.cost.capital_usd if a.cost.capital_usd else 1.0
    for name in ("low_usd", "median_usd", "high_usd"):
        at = a.cost.total_usd
        for line in rented:
            pool = pools[line.pool]
            per_node = pool.accelerators / (pool.count * pool.copies)
            at += line.count * per_node * getattr(pool.offers, name) - line.usd
        if name != "median_usd":
            at += sum(
                (aged[x.pool][name == "high_usd"] - 1.0) * (charged if x.kind == "node" else 1.0) * x.usd
                for x in unsure
            )
        if not math.isclose(
            getattr(stated, name), at, rel_tol=1e-9, abs_tol=2 * CENT * (1 + len(rented) + len(unsure))
        ):
            yield f"range.{name} is {getattr(stated, name):.2f}, and {at:.2f} follows"


def spot_risk_follows(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Expected rent is days times rates; nine of ten runs are done ``1.2816 sqrt(T/M (R^2 + R tau + tau^2/3)) / f``
    later; spot costs as much as on demand where ``price_s / f(r) = price_d / f(0)``, ``f = 1 - sqrt(2 C l) - R l``.
    """
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        mine = [pools[name] for name in job.pools if name in pools]
        if job.plan and (job.spot is not None) != any(pool.way == "spot" for pool in mine):
            yield f"{job.name}: {'no risk is said' if job.spot is None else 'a risk is said'} of its rent"
        if job.plan and job.spot is not None and mine:
            for name, stated, derived in _derived(job, job.plan.money.goodput, job.spot, mine):
                if stated is None or not math.isclose(stated, derived, rel_tol=1e-6, abs_tol=1e-6):
                    yield f"{job.name}: spot.{name} is {stated}, and {derived:.9g} follows"


def _derived(
    job: JobDone, good: Goodput, risk: SpotRisk, mine: list[PoolBought]
) -> Iterator[tuple[str, float | None, float]]:
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


RENT_CHECKS = (ranges_are_of_the_offers, spot_risk_follows)
