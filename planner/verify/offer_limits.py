"""Re-derives how much of every limit a procurement takes, and its totals: power, racks, carbon, nodes, months.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.procurement import Alternative, PoolBought, ProcureOptions
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
