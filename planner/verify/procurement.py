"""Re-derives a procurement from its document alone: every line of the bill, the cost to the cent (:mod:`.bill`), the
calendar of every machine, every limit, each training plan inside, and what is said of the whole.

Nothing here is shared with what made the answer. Not checked, since a document does not say enough: that a bound is one
and that what more of a limit brings is that much (both take solving again), how much network, storage and input a
cluster needs, and how many racks its nodes fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date
from itertools import pairwise

from planner.schema.plan import Plan
from planner.schema.procurement import Alternative, JobDone, PoolBought, PoolGroup, Procurement, ProcureOptions
from planner.verify import bill, rented
from planner.verify.bill import DAYS_PER_MONTH, HIRED, days_of, watts_of
from planner.verify.document import LARGEST, beyond, numbers
from planner.verify.finding import Inconsistent, Violation, findings, same

NEAR = 0.02
"""A limit binds when no more than this share of it is left."""
STALE_DAYS = 365
LONGEST_DAYS = 1e6
LIMITS = ("budget", "capital", "monthly", "power", "racks", "switch_ports", "carbon", "quantity", "deadline", "horizon")
CALENDAR = 1e-6
"""Days that a calendar may be off."""
SIGNED = ("slack",)
TERMS = {"reserved-1y": 365.25, "reserved-3y": 3 * 365.25}
"""Days of a term."""

Check = Callable[[ProcureOptions, Alternative], Iterator[str]]


def question_is_possible(question: ProcureOptions) -> Iterator[str]:
    """The question has a day, and numbers that others can be divided by."""
    for path, number in numbers(question):
        if beyond(number) or number < 0:
            yield f"question.{path} is {number:.3g}"
        elif path.rpartition(".")[2] in ("horizon_days", "life_years", "usd") and not 0 < number < LONGEST_DAYS:
            yield f"question.{path} is {number:g}"
    try:
        date.fromisoformat(question.as_of)
    except ValueError:
        yield f"question.as_of is {question.as_of!r}, which is no date"


def names_are_known(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Every job is somewhere for some time, on pools that there are; what is limited is a job's or a pool's."""
    pools, jobs = {pool.id for pool in a.pools}, {job.name for job in a.workloads}
    if not jobs or not pools:
        yield "it has no workloads or no pools"
    for job in a.workloads:
        if not job.schedule or not job.pools:
            yield f"{job.name} runs nowhere"
        if not job.plan.cluster.pools:
            yield f"{job.name}: its plan is for no nodes"
        yield from (f"{job.name} runs on {s.pool}, which is not come by" for s in job.schedule if s.pool not in pools)
    for name in question.limits:
        kind, _, of = name.partition(":")
        if kind not in LIMITS or (kind == "deadline" and of not in jobs):
            yield f"{name} is no limit of anything here"


def numbers_are_possible(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Nothing is negative but a slack, nothing is not a number, and what is divided by is above 0."""
    for pool in a.pools:
        for name in ("count", "copies", "pue"):
            if getattr(pool, name) <= 0:
                yield f"{pool.id}: {name} is {getattr(pool, name):g}"
    for path, number in numbers(a):
        if beyond(number):
            yield f"{path} is beyond {LARGEST:g}"
        elif path.endswith(("_day", "_days")) and number > LONGEST_DAYS:
            yield f"{path} is {number:g}"
        elif number < 0 and path.rpartition(".")[2] not in SIGNED:
            yield f"{path} is {number:g}"


def jobs_are_done(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Every job once, on the pools it names, for the days that its plan takes, between release and deadline."""
    names = [job.name for job in a.workloads]
    if len(set(names)) < len(names):
        yield "a job appears twice"
    for job in a.workloads:
        worked = _worked(job)
        if worked < job.days * (1 - 1e-6) - CALENDAR:
            yield f"{job.name} works {worked:.6g} days and takes {job.days:.6g}"
        if worked > job.days * (1 + 1e-6) + CALENDAR and question.objective != "tokens-per-dollar":
            yield f"{job.name} works {worked:.6g} days and takes {job.days:.6g}"
        pauses = len(_times(job, job.pools[0])) - 1
        if pauses != job.pauses:
            yield f"{job.name} is paused {pauses} times, not {job.pauses}"
        if pauses > 0 and not job.interruptible:
            yield f"{job.name} is paused, and may not be"
        if not same(job.tokens_per_s * job.days * 86400.0, job.tokens):
            yield f"{job.name}: {job.tokens_per_s:.9g} tokens/s are not {job.tokens:.6g} in {job.days:.9g} days"
        if not same(job.days, job.plan.money.days) or not same(job.tokens, job.plan.workload.tokens):
            yield f"{job.name}: its plan takes {job.plan.money.days:.9g} days for {job.plan.workload.tokens:.6g} tokens"
        if abs(job.finish_day - max(s.end_day for s in job.schedule)) > CALENDAR:
            yield f"{job.name} is not done on day {job.finish_day:g}"
        if min(s.start_day for s in job.schedule) < job.release_day - CALENDAR:
            yield f"{job.name} starts before its release"
        if {s.pool for s in job.schedule} != set(job.pools):
            yield f"{job.name} runs on other pools than it names"


def deadlines_survive(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """``finish + repair (1 - slow / whole) + restart <= deadline`` for every job, where the question asks for it, and
    for the most that a job on the same machines is late; spares keep a job as fast, and nothing makes it faster.
    """
    spares, offers = {pool.id: pool.spares for pool in a.pools}, _shared_offers(question, a)
    for job in a.workloads:
        lost = job.survives
        if (lost.lost_nodes if lost else None) != question.survive_nodes:
            yield f"{job.name} survives the loss of {lost.lost_nodes if lost else 0}, asked: {question.survive_nodes}"
        if lost is None:
            continue
        left = lost.tokens_per_s / job.tokens_per_s
        if not math.isclose(lost.days, lost.repair_days * (1 - left) + lost.restart_days, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{job.name} is late by {lost.days:.6g} days after a loss, which does not follow"
        spared = all(spares.get(name, 0) >= lost.lost_nodes for name in job.pools)
        if left > 1 + 1e-9 or (spared and left < 1 - 1e-9):
            yield f"{job.name} trains {left:.3g} times as fast with nodes lost"
        late = max(
            other.survives.days for other in a.workloads
            if other.survives and (other is job or offers[other.name] & offers[job.name])
        )  # fmt: skip
        if job.finish_day + late > job.deadline_day + CALENDAR:
            yield f"{job.name} is done on day {job.finish_day + late:.6g} after a loss, due {job.deadline_day:.6g}"


def _shared_offers(question: ProcureOptions, a: Alternative) -> dict[str, set[str]]:
    """Job -> what it may share with others: pools that are held, offers of few nodes."""
    pools = {pool.id: pool for pool in a.pools}
    found = {}
    for job in a.workloads:
        mine = [pools[name] for name in job.pools if name in pools]
        found[job.name] = {pool.id for pool in mine if pool.way not in HIRED} | {
            pool.offer for pool in mine if pool.way == "own" or f"quantity:{pool.offer}" in question.limits
        }
    return found


def _worked(job: JobDone) -> float:
    """Days on which a job makes progress: those of any one of its pools, without its restarts."""
    return sum(s.end_day - s.start_day for s in job.schedule if s.pool == job.pools[0]) - job.pauses * job.restart_days


def plans_fit_their_pools(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """A job's plan is for the nodes that its pool has, with their number; over several pools for some nodes of each,
    where the question lets them work together, with failures of all of them.
    """
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        yield from (f"{job.name} runs on {name}, which is not come by" for name in job.pools if name not in pools)
        mine = [pools[name] for name in job.pools if name in pools]
        planned = job.plan.cluster.pools
        if len(job.pools) == 1 and [(x.node, x.count) for x in planned] != [(x.node, x.count) for x in mine]:
            yield f"{job.name}: its plan is for other nodes than {job.pools[0]}"
        if len(job.pools) > 1:
            yield from _planned_together(question, job, mine)


def _planned_together(question: ProcureOptions, job: JobDone, mine: list[PoolBought]) -> Iterator[str]:
    planned = job.plan.cluster.pools
    if [x.node for x in planned] != [x.node for x in mine]:
        yield f"{job.name}: its plan is for other nodes than {' and '.join(job.pools)}"
        return
    for x, pool in zip(planned, mine, strict=True):
        if not 0 < x.count <= pool.count:
            yield f"{job.name}: its plan is for {x.count} nodes of {pool.id}, which has {pool.count}"
    tables = [
        table for table in question.mixed or ()
        if {pool.offer for pool in mine} <= set(table.pools)
        and (not table.workloads or job.name.partition("#")[0] in table.workloads)
    ]  # fmt: skip
    if not tables:
        yield f"{job.name} runs on {' and '.join(job.pools)} at once, which the question does not ask for"
        return
    tables = [table for table in tables if _linked(table, job)]
    if not tables:
        yield f"{job.name}: its plan has other links than the question"
    elif all(table.pipelines == "identical" for table in tables):
        yield from (f"{job.name}: {why}, but launchers need identical pipelines" for why in _not_identical(job.plan))


def _not_identical(plan: Plan) -> Iterator[str]:
    """Why the pipelines of a plan are not identical ones that fill its nodes with whole micro-batches."""
    groups = plan.parallelism.groups or ()
    if len(groups) != 1:
        yield f"it has {len(groups)} groups of different pipelines"
        return
    (group,) = groups
    if len({(s.tp, s.cp, s.ep, s.recompute) for s in group.stages}) > 1:
        yield "its stages are parallelised differently"
    if group.sequences != group.copies * group.width * group.micro * group.micro_batches:
        yield "some micro-batches are smaller than others"
    for index, pool in enumerate(plan.cluster.pools):
        ranks = group.copies * group.width * sum(s.tp * s.cp for s in group.stages if s.pool == index)
        if ranks != pool.count * pool.accelerators_per_node:
            yield f"it takes {ranks:,} of the {pool.count * pool.accelerators_per_node:,} accelerators of {pool.node}"


def _linked(table: PoolGroup, job: JobDone) -> bool:
    """Whether all links of a plan are as a table gives them."""
    wanted = [(table.link_bytes_per_s, "bytes_per_s"), (table.link_latency_s, "latency_s")]
    return all(
        figure is None or same(getattr(link, name), figure)
        for link in job.plan.cluster.links
        for figure, name in wanted
    )


def machines_do_one_thing_at_a_time(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """On a copy of a held pool no two stretches overlap; no job is on two copies of a pool; all pools of a job work on
    it at the same times, and within their own time.
    """
    pools = {pool.id: pool for pool in a.pools}
    by_copy: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for job in a.workloads:
        worked = {name: _times(job, name) for name in job.pools}
        for name in job.pools:
            yield from _apart(job.name, worked[name])
        for name in job.pools[1:]:
            if not _same_times(worked[name], worked[job.pools[0]]):
                yield f"{job.name} is on {name} and on {job.pools[0]} at different times"
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


def pools_are_there_as_long_as_is_paid(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """What is bought is held from its first day to the horizon; what is reserved, for whole terms."""
    for pool in a.pools:
        if pool.way == "buy" and abs(pool.start_day + pool.held_days - question.horizon_days) > CALENDAR:
            yield f"{pool.id} is there from day {pool.start_day:g}, and paid for {pool.held_days:g} days"
        if pool.way in TERMS:
            if pool.end_day is None or abs(pool.start_day + pool.held_days - pool.end_day) > CALENDAR:
                yield f"{pool.id} is paid for {pool.held_days:g} days from day {pool.start_day:g}, and ends otherwise"
            terms = pool.held_days / TERMS[pool.way]
            if terms < 1 - 1e-9 or abs(terms - round(terms)) > 1e-9:
                yield f"{pool.id} is paid for {terms:g} terms"


def _times(job: JobDone, pool: str) -> list[tuple[float, float]]:
    """When a job is on a pool; stretches without a break between them as one."""
    found: list[tuple[float, float]] = []
    for start, end in sorted((s.start_day, s.end_day) for s in job.schedule if s.pool == pool):
        if found and abs(found[-1][1] - start) <= CALENDAR:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _same_times(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> bool:
    return len(one) == len(other) and all(
        abs(a - c) <= 2 * CALENDAR and abs(b - d) <= 2 * CALENDAR for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _apart(what: str, times: list[tuple[float, float]]) -> Iterator[str]:
    ordered = sorted(times)
    for (_, end), (start, _) in pairwise(ordered):
        if start < end - CALENDAR:
            yield f"{what} does two things on day {start:.4g}"


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
    """Of what is bought, and of as many of one's own nodes as ever work at a time."""
    own = {pool.node: _power(pool) / (pool.count + pool.spares) for pool in a.pools if pool.way == "own"}
    working = {node: {x.id: x.count for x in a.pools if x.way == "own" and x.node == node} for node in own}
    bought = sum(_power(pool) * pool.copies for pool in a.pools if pool.way == "buy")
    return bought + sum(watts * _at_a_time(a, working[node]) for node, watts in own.items())


def _carbon(a: Alternative, pool: PoolBought) -> float:
    return watts_of(pool) * 24 * days_of(a, pool) / 1000 * pool.grams_per_kwh / 1000


def _nodes(a: Alternative, offer: str) -> float:
    """Nodes of an offer: those held, and the most that are hired on any day."""
    found = {pool.id: pool for pool in a.pools if pool.offer == offer}
    held = sum((x.count + x.spares) * x.copies for x in found.values() if x.way not in (*HIRED, "own"))
    return held + _at_a_time(a, {pool.id: pool.count + pool.spares for pool in found.values() if pool.way in HIRED})


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


def totals_are_sums(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Power, racks, carbon and the last day are those of pools and jobs; a pool's accelerators and use are its own."""
    held = [pool for pool in a.pools if pool.way not in HIRED]
    each = {
        name: planned.accelerators_per_node
        for job in a.workloads
        for name, planned in zip(job.pools, job.plan.cluster.pools, strict=False)
    }
    for what, stated, derived in (
        *((f"{x.id}: power_w", x.power_w, _power(x)) for x in a.pools),
        *((f"{x.id}: accelerators", x.accelerators, each[x.id] * x.count * x.copies) for x in a.pools if x.id in each),
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
    there = (
        min(question.horizon_days, math.inf if pool.end_day is None else pool.end_day) - pool.start_day
    ) * pool.copies
    return worked / there if there > 0 else 0.0


def value_is_of_the_objective(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """The value is what the question minimises: cost, last day, carbon; or tokens over cost."""
    tokens = sum(job.tokens_per_s * _worked(job) * 86400 for job in a.workloads)
    ratio = tokens / a.cost.total_usd if a.cost.total_usd else None
    if (a.tokens_per_usd is None) != (ratio is None) or (
        ratio and not math.isclose(a.tokens_per_usd or 0, ratio, rel_tol=1e-6)
    ):
        yield f"tokens_per_usd is {a.tokens_per_usd}, and {ratio} follows"
    wanted = {"cost": a.cost.total_usd, "time": a.done_day, "carbon": a.carbon_kg}.get(
        question.objective, ratio or math.inf
    )
    if not math.isclose(a.value, wanted, rel_tol=1e-6, abs_tol=bill.CENT):
        yield f"value is {a.value:.9g}, and {wanted:.9g} follows for {question.objective}"


def prices_have_their_age(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """A price is stale if it is older than a year on the question's day, undated, or still to come; none is older than
    the question allows.
    """
    for pool in a.pools:
        most = question.max_price_age_days
        if pool.way != "own" and most is not None and _stale(pool.price_date, question.as_of, most):
            yield f"{pool.id}: the price of {pool.price_date or 'no date'} is older than {most:g} days"
        if pool.way != "own" and pool.stale != _stale(pool.price_date, question.as_of):
            age = "stale" if pool.stale else "not stale"
            yield f"{pool.id}: the price of {pool.price_date or 'no date'} is said to be {age}"


def _stale(dated: str, as_of: str, most: float = STALE_DAYS) -> bool:
    parts = [int(part) for part in dated.split("-") if part.isdecimal()]
    if not parts or not 1990 <= parts[0] <= 2100:
        return True
    year, month, day = (*parts, 1, 1)[:3]
    try:
        return not 0 <= (date.fromisoformat(as_of) - date(year, month, day)).days <= most
    except ValueError:
        return True


FIRST: tuple[Check, ...] = (numbers_are_possible, names_are_known)
"""What must hold before anything is derived."""
CHECKS: tuple[Check, ...] = (
    *bill.CHECKS,
    *rented.CHECKS,
    value_is_of_the_objective,
    prices_have_their_age,
    jobs_are_done,
    deadlines_survive,
    plans_fit_their_pools,
    machines_do_one_thing_at_a_time,
    pools_are_there_as_long_as_is_paid,
    limits_hold,
    totals_are_sums,
)


def optimality_is_of_the_first(document: Procurement) -> Iterator[str]:
    """The proof is of the first alternative, ``gap = |value - bound| / |value|``; no alternative beats the bound."""
    sure, better = document.optimality, -1.0 if document.question.objective == "tokens-per-dollar" else 1.0
    unit = {"time": "d", "cost": "USD", "carbon": "kg"}.get(document.question.objective, "tokens/USD")
    if not document.alternatives:
        yield "there is no alternative"
        return
    if [a.rank for a in document.alternatives] != list(range(1, len(document.alternatives) + 1)):
        yield "alternatives are not ranked from 1"
        return
    if sure.unit != unit:
        yield f"unit is {sure.unit}, and {unit} is that of {document.question.objective}"
    first = document.alternatives[0].value
    cents = {a.rank: _rounding(sure.unit, a) for a in document.alternatives}
    if not math.isclose(sure.value, first, rel_tol=1e-6, abs_tol=cents[1]):
        yield f"value is {sure.value:.9g}, and that of the first alternative {first:.9g}"
    gap = abs(sure.value - sure.bound) / max(abs(sure.value), 1e-9)
    if not math.isclose(sure.gap, gap, rel_tol=1e-6, abs_tol=1e-9):
        yield f"gap is {sure.gap:.6g}, and {gap:.6g} follows from value and bound"
    for a in document.alternatives:
        if better * a.value < better * sure.bound - 1e-6 * abs(sure.bound) - cents[a.rank]:
            yield f"alternative {a.rank} of {a.value:.9g} is better than the bound of {sure.bound:.9g}"
    values = [better * a.value for a in document.alternatives[1:]]
    if any(later < earlier - 1e-6 * abs(earlier) - sum(cents.values()) for earlier, later in pairwise(values)):
        yield "alternatives are not in the order of their values"


def _rounding(unit: str, a: Alternative) -> float:
    """How far an objective in money may be off because each line of a bill is rounded to a cent."""
    cents = bill.CENT * len(a.bill_of_materials)
    if unit == "tokens/USD":
        return abs(a.value) * cents / max(a.cost.total_usd, bill.CENT)
    return cents if unit == "USD" else 0.0


def binding_is_what_binds(document: Procurement) -> Iterator[str]:
    """What binds is what (almost) nothing is left of in the first alternative, and what more of helps."""
    limits, gains = document.question.limits, {value.limit: value.gain for value in document.marginal_values}
    yield from (f"marginal value of {name}, which is no limit" for name in gains.keys() - limits.keys())
    tight = {c.name for a in document.alternatives[:1] for c in a.constraints if c.binding}
    wanted = tight | {name for name, gain in gains.items() if gain > 0}
    for name in sorted(wanted ^ set(document.binding)):
        yield f"{name} is binding, but not listed" if name in wanted else f"{name} is listed as binding, but is not"


def together_is_no_worse_than_apart(document: Procurement) -> Iterator[str]:
    """What every job on one pool reaches is told where the first alternative joins pools, and beats no bound."""
    joined = any(len(job.pools) > 1 for a in document.alternatives[:1] for job in a.workloads)
    apart, bound = document.apart, document.optimality.bound
    if (apart is not None) != joined:
        yield f"a job is{'' if joined else ' not'} on several pools, and apart is {apart}"
    if apart is None or apart.value is None:
        return
    better = -1.0 if document.question.objective == "tokens-per-dollar" else 1.0
    cents = sum(_rounding(document.optimality.unit, a) for a in document.alternatives[:1])
    if not math.isfinite(apart.value) or better * apart.value < better * bound - 1e-6 * abs(bound) - cents:
        yield f"apart reaches {apart.value:.9g}, better than the bound of {bound:.9g}"


SUMMARIES: tuple[Callable[[Procurement], Iterator[str]], ...] = (
    optimality_is_of_the_first,
    binding_is_what_binds,
    together_is_no_worse_than_apart,
)


def violations(document: Procurement) -> list[Violation]:
    """Everything in a procurement that cannot be; empty for one that holds."""
    found = [Violation(question_is_possible.__name__, says) for says in question_is_possible(document.question)]
    found = found or [found for a in document.alternatives for found in _violations_of(document.question, a)]
    return found + [Violation(check.__name__, says) for check in SUMMARIES for says in check(document)]


def _violations_of(question: ProcureOptions, a: Alternative) -> Iterator[Violation]:
    from planner.verify import violations as of_plan

    impossible = [
        Violation(check.__name__, f"alternative {a.rank}: {says}") for check in FIRST for says in check(question, a)
    ]
    if impossible:
        yield from impossible
        return
    for v in findings((check.__name__, check(question, a)) for check in CHECKS):
        yield Violation(v.name, f"alternative {a.rank}: {v.says}")
    for job in a.workloads:
        for v in of_plan(job.plan):
            yield Violation(v.name, f"alternative {a.rank}, plan of {job.name}: {v.says}")


def keeps(question: ProcureOptions, a: Alternative) -> None:
    """Lets one answer pass that holds and keeps to its question.

    Raises:
        AssertionError: it does not, which is a fault of the program; the message says all that is wrong.
    """
    found = [str(violation) for violation in _violations_of(question, a)]
    if found:
        raise AssertionError(f"the answer does not hold: {'; '.join(found)}")


def check(document: Procurement) -> None:
    """Lets a procurement pass that holds.

    Raises:
        Inconsistent: it does not hold; the message says all that is wrong.
    """
    found = tuple(violations(document))
    if found:
        raise Inconsistent(found)
