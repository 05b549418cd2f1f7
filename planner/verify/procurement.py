"""Re-derives a procurement from its document alone: every line of the bill, the cost to the cent, the calendar of every
machine, every limit, and each training plan inside.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

from planner.schema.procurement import Alternative, Asked, PoolBought, Procurement
from planner.verify.document import numbers
from planner.verify.finding import Violation, same

CAPITAL = ("node", "network", "head node", "I/O node", "storage")
CENT = 0.005
MINUTE = 1.0 / 1440
DAYS_PER_MONTH = 365.25 / 12
HIRED = ("on-demand", "spot")
CALENDAR = 1e-6
"""Days that a calendar may be off."""
SIGNED = ("slack",)

Check = Callable[[Asked, Alternative], Iterator[str]]


def numbers_are_possible(_: Asked, a: Alternative) -> Iterator[str]:
    """Nothing is negative but a slack, and nothing is not a number."""
    for path, number in numbers(a):
        if not math.isfinite(number):
            yield f"{path} is {number}"
        elif number < 0 and path.rpartition(".")[2] not in SIGNED:
            yield f"{path} is {number:g}"


def bill_adds_up(_: Asked, a: Alternative) -> Iterator[str]:
    """``usd = count unit_price`` to the cent for each line; cash is their sum, capital that of what is bought."""
    for line in a.bill_of_materials:
        if abs(line.usd - round(line.count * line.unit_price_usd, 2)) > CENT:
            yield f"{line.pool}, {line.item}: {line.usd:.2f} USD is not {line.count:g} x {line.unit_price_usd:g}"
    cash = round(sum(line.usd for line in a.bill_of_materials), 2)
    capital = round(sum(line.usd for line in a.bill_of_materials if line.kind in CAPITAL), 2)
    yield from _cents("cash_usd", a.cost.cash_usd, cash)
    yield from _cents("capital_usd", a.cost.capital_usd, capital)
    yield from _cents("total_usd", a.cost.total_usd, cash - capital + a.cost.charged_usd)
    for kind, usd in a.cost.by_kind.items():
        yield from _cents(f"by_kind.{kind}", usd, sum(x.usd for x in a.bill_of_materials if x.kind == kind))
    yield from _cents("by_year", sum(year.total_usd for year in a.cost.by_year), cash)


def _cents(what: str, stated: float, derived: float) -> Iterator[str]:
    if abs(stated - derived) > 2 * CENT:
        yield f"{what} is {stated:.2f}, and {derived:.2f} follows from the bill"


def charge_is_as_asked(question: Asked, a: Alternative) -> Iterator[str]:
    """Paid in cash, a purchase counts with its whole price."""
    if question.charge == "cash":
        yield from _cents("charged_usd", a.cost.charged_usd, a.cost.capital_usd)


def bill_has_what_is_used(_: Asked, a: Alternative) -> Iterator[str]:
    """Nodes, hours of rent, kilowatt-hours and months of the bill follow from pools and calendar."""
    for pool in a.pools:
        lines = [line for line in a.bill_of_materials if line.pool == pool.id]
        wanted = _wanted(a, pool)
        for kind, count in wanted.items():
            stated = sum(line.count for line in lines if line.kind == kind)
            if not math.isclose(stated, count, rel_tol=1e-9, abs_tol=1e-6):
                yield f"{pool.id}: {stated:g} of {kind} on the bill, and {count:g} follow from pools and calendar"
        for line in lines:
            if line.kind not in wanted and line.kind not in (*CAPITAL, "facility", "maintenance", "staff"):
                yield f"{pool.id}: {line.kind} is on the bill, and nothing calls for it"


def _wanted(a: Alternative, pool: PoolBought) -> dict[str, float]:
    days = _days(a, pool)
    if pool.way in HIRED:
        return {"rental": days * 24 * pool.count}
    if pool.way.startswith("reserved"):
        return {"rental": pool.held_days * 24 * pool.count * pool.copies}
    watts = (pool.count * pool.node_power_w * pool.load + pool.network_power_w) * pool.pue
    energy = {"energy": watts * 24 / 1000 * days} if days else {}
    nodes = {"node": float((pool.count + pool.spares) * pool.copies)} if pool.way == "buy" else {}
    return {**energy, **nodes}


def _days(a: Alternative, pool: PoolBought) -> float:
    """Days on which its copies work, all together."""
    return sum(s.end_day - s.start_day for job in a.workloads for s in job.schedule if s.pool == pool.id)


def jobs_are_done(question: Asked, a: Alternative) -> Iterator[str]:
    """Every job once, on the pools it names, for the days that its plan takes, between release and deadline."""
    names = [job.name for job in a.workloads]
    if len(set(names)) < len(names):
        yield "a job stands twice"
    for job in a.workloads:
        worked = sum(s.end_day - s.start_day for s in job.schedule)
        if worked < job.days * (1 - 1e-6) - CALENDAR:
            yield f"{job.name} runs {worked:.6g} days and takes {job.days:.6g}"
        if worked > job.days * (1 + 1e-6) + CALENDAR and question.objective != "tokens-per-dollar":
            yield f"{job.name} runs {worked:.6g} days and takes {job.days:.6g}"
        if not same(job.days, job.plan.money.days) or not same(job.tokens, job.plan.workload.tokens):
            yield f"{job.name}: its plan takes {job.plan.money.days:.9g} days for {job.plan.workload.tokens:.6g} tokens"
        if abs(job.finish_day - max(s.end_day for s in job.schedule)) > CALENDAR:
            yield f"{job.name} is not done on day {job.finish_day:g}"
        if min(s.start_day for s in job.schedule) < job.release_day - CALENDAR:
            yield f"{job.name} starts before its release"
        if {s.pool for s in job.schedule} != set(job.pools):
            yield f"{job.name} runs on other pools than it names"


def plans_fit_their_pools(_: Asked, a: Alternative) -> Iterator[str]:
    """A job's plan is for the nodes that its pool has, with their number."""
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        for name in job.pools:
            pool = pools.get(name)
            planned = job.plan.cluster.pools
            if pool is None:
                yield f"{job.name} runs on {name}, which is not come by"
            elif [(x.node, x.count) for x in planned] != [(pool.node, pool.count)]:
                yield f"{job.name}: its plan is for other nodes than {name}"


def machines_do_one_thing_at_a_time(_: Asked, a: Alternative) -> Iterator[str]:
    """On a copy of a held pool no two stretches overlap; no job is in two places; all is within the pool's time."""
    pools = {pool.id: pool for pool in a.pools}
    by_copy: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for job in a.workloads:
        yield from _apart(job.name, [(s.start_day, s.end_day) for s in job.schedule])
        for s in job.schedule:
            pool = pools[s.pool]
            if s.start_day < pool.start_day - CALENDAR or (pool.end_day or math.inf) < s.end_day - CALENDAR:
                yield f"{job.name} is on {pool.id} when it is not there"
            if s.copy >= pool.copies:
                yield f"{job.name} is on copy {s.copy + 1} of {pool.id}, of which there are {pool.copies}"
            if pool.way not in HIRED:
                by_copy.setdefault((s.pool, s.copy), []).append((s.start_day, s.end_day))
    for (name, copy), times in by_copy.items():
        yield from _apart(f"copy {copy + 1} of {name}", times)


def _apart(what: str, times: list[tuple[float, float]]) -> Iterator[str]:
    ordered = sorted(times)
    for (_, end), (start, _) in pairwise(ordered):
        if start < end - CALENDAR:
            yield f"{what} does two things on day {start:.4g}"


def limits_hold(question: Asked, a: Alternative) -> Iterator[str]:
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
    for node, count in question.owned.items():
        used = sum(x.count * x.copies for x in a.pools if x.way == "own" and x.node == node)
        if used > count:
            yield f"{used} of {count} {node} that are owned"


def _value(question: Asked, a: Alternative, name: str) -> float:
    kind, _, of = name.partition(":")
    held = [pool for pool in a.pools if pool.way not in HIRED]
    if kind == "deadline":
        return max(job.finish_day for job in a.workloads if job.name == of)
    if kind == "quantity":
        return _nodes(a, of)
    return {
        "budget": a.cost.cash_usd,
        "capital": a.cost.capital_usd,
        "power": sum(_power(pool) * pool.copies for pool in held if pool.way == "buy"),
        "racks": sum(pool.racks * pool.copies for pool in held),
        "switch_ports": sum(pool.switch_ports * pool.copies for pool in held),
        "carbon": sum(_carbon(a, pool) for pool in a.pools),
        "monthly": _most_in_a_month(a),
        "horizon": max(job.finish_day for job in a.workloads),
    }[kind]


def _power(pool: PoolBought) -> float:
    nodes = pool.count + pool.spares
    return (nodes * pool.node_power_w + pool.network_power_w) * pool.pue


def _carbon(a: Alternative, pool: PoolBought) -> float:
    watts = (pool.count * pool.node_power_w * pool.load + pool.network_power_w) * pool.pue
    return watts * 24 * _days(a, pool) / 1000 * pool.grams_per_kwh / 1000


def _nodes(a: Alternative, offer: str) -> float:
    """Nodes of an offer: those held, and the most that are hired on any day."""
    found = {pool.id: pool for pool in a.pools if pool.offer == offer}
    held = sum((x.count + x.spares) * x.copies for x in found.values() if x.way not in HIRED)
    hired = {pool.id: pool.count + pool.spares for pool in found.values() if pool.way in HIRED}
    times = [s for job in a.workloads for s in job.schedule if s.pool in hired]
    # Whoever ends on a day makes room for whoever begins on it.
    changes = sorted(
        [(s.end_day - CALENDAR / 2, -hired[s.pool]) for s in times] + [(s.start_day, hired[s.pool]) for s in times]
    )
    now = most = 0
    for _, by in changes:
        now += by
        most = max(most, now)
    return float(held + most)


def _most_in_a_month(a: Alternative) -> float:
    held = [pool for pool in a.pools if pool.way not in HIRED]
    last = max([s.end_day for job in a.workloads for s in job.schedule] + [x.start_day + x.held_days for x in held])
    most = 0.0
    for month in range(int(last / DAYS_PER_MONTH) + 1):
        start, end = month * DAYS_PER_MONTH, (month + 1) * DAYS_PER_MONTH

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


def totals_are_sums(_: Asked, a: Alternative) -> Iterator[str]:
    """Power, racks, carbon and the last day are those of pools and jobs."""
    held = [pool for pool in a.pools if pool.way not in HIRED]
    for what, stated, derived in (
        ("power_w", a.power_w, sum(_power(pool) * pool.copies for pool in held if pool.way == "buy")),
        ("racks", a.racks, sum(pool.racks * pool.copies for pool in held)),
        ("carbon_kg", a.carbon_kg, sum(_carbon(a, pool) for pool in a.pools)),
        ("done_day", a.done_day, max(job.finish_day for job in a.workloads)),
    ):
        if not math.isclose(stated, derived, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{what} is {stated:.9g}, and {derived:.9g} follows"


CHECKS: tuple[Check, ...] = (
    numbers_are_possible,
    bill_adds_up,
    charge_is_as_asked,
    bill_has_what_is_used,
    jobs_are_done,
    plans_fit_their_pools,
    machines_do_one_thing_at_a_time,
    limits_hold,
    totals_are_sums,
)


def violations(document: Procurement) -> list[Violation]:
    """Everything in a procurement that cannot be; empty for one that holds."""
    return [found for a in document.alternatives for found in _of(document.question, a)]


def _of(question: Asked, a: Alternative) -> Iterator[Violation]:
    from planner.verify import violations as of_plan

    for check in CHECKS:
        yield from (Violation(check.__name__, f"alternative {a.rank}: {says}") for says in check(question, a))
    for job in a.workloads:
        for v in of_plan(job.plan):
            yield Violation(v.name, f"alternative {a.rank}, plan of {job.name}: {v.says}")


def keeps(question: Asked, a: Alternative) -> None:
    """Lets one answer pass that holds and keeps to its question.

    Raises:
        AssertionError: it does not, which is a fault of the program; the message says all that is wrong.
    """
    found = [str(violation) for violation in _of(question, a)]
    if found:
        raise AssertionError(f"the answer does not hold: {'; '.join(found)}")


def check(document: Procurement) -> None:
    """Lets a procurement pass that holds.

    Raises:
        Inconsistent: it does not hold; the message says all that is wrong.
    """
    from planner.verify import Inconsistent

    found = tuple(violations(document))
    if found:
        raise Inconsistent(found)
