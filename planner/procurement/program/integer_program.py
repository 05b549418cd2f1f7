"""The integer program: which pools to hold, from when, and which job runs on which. Every constraint has a name.

Sets: jobs j, pools p, places q (mostly one pool; several where one job is to run on unlike pools at once), resources r
that jobs share while they run (:mod:`.resources`). ``D[j,q]`` days that j takes on q, ``u[r,j,q]`` what it takes of r.
Of jobs that differ in name alone the first stands for all ``n[j]`` of them.

Variables: ``hold[p]`` whole number of copies held; ``late[p]`` days by which they start after their delivery, summed
over copies; ``run[j,q]`` how many of these jobs run on q, mostly 0 or 1; ``work[j,q]`` days that they work, ``D run``
but where more tokens are worth something; ``pause[j,q]`` how often they are paused. A sum over ``q of p`` is over the
places that p belongs to: a job on several pools takes a copy of each of them while it runs.

Who runs when is no variable here: the program asks of every interval only that the work which must lie in it has room,
and :mod:`.job_order` finds the order, or what of an answer cannot be put in one, which :mod:`.cuts` then forbids
(logic-based Benders decomposition, Hooker and Ottosson 2003).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.base.solver import Linear, Problem, total
from planner.procurement.program.calendar import month_share
from planner.procurement.program.instance import (
    FAR,
    ProcureInstance,
    ProcureVariant,
    alike,
    deadline,
    limits,
    monthly_limit,
    moves,
    too_large,
    window,
)
from planner.procurement.program.resources import Resource, resources
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Place
from planner.question.values import DAYS_PER_MONTH

MOST_DAYS = 3000
"""First or last days of jobs that the program asks of, on all pools together; the order of jobs keeps to every one."""
GRAIN = 2.0**-13
"""Days (ten seconds) to which work is rounded down where the program asks whether it has room; the order of jobs then
sees the rest. Of jobs that differ by a millionth of a day HiGHS 1.15 may lose the best answer.
"""
Work = Mapping[tuple[int, Place], Linear]
"""Job and place -> days of work."""
TONNE = 1000.0
MILLION = 1e6


@dataclass
class ProcureProgram:
    """A program with its variables and expressions, ready to be solved."""

    problem: Problem
    alike: dict[int, tuple[int, ...]]
    """The first of jobs that differ in name alone -> all of them."""
    hold: dict[int, Linear] = field(default_factory=dict)
    late: dict[int, Linear] = field(default_factory=dict)
    run: dict[tuple[int, Place], Linear] = field(default_factory=dict)
    days: dict[tuple[int, Place], float] = field(default_factory=dict)
    """``D``, with the variant's scale on it."""
    work: dict[tuple[int, Place], Linear] = field(default_factory=dict)
    pause: dict[tuple[int, Place], Linear] = field(default_factory=dict)
    most: dict[str, Linear] = field(default_factory=dict)
    """Resource -> how much of it there must be, where that is to be found."""
    shared: list[Resource] = field(default_factory=list)
    use: dict[str, Linear] = field(default_factory=dict)
    """Limit -> what it limits, in its unit."""
    cost: Linear = field(default_factory=lambda: total(()))
    tokens: Linear = field(default_factory=lambda: total(()))
    """In millions."""

    def first(self, job: int) -> int:
        """The job that stands for it."""
        return next(first for first, jobs in self.alike.items() if job in jobs)

    def number(self, key: tuple[int, Place]) -> int:
        """How many jobs may run so."""
        return len(self.alike[key[0]])

    def at_least(self, key: tuple[int, Place], count: int) -> Linear:
        """A variable that is 1 wherever so many jobs run so; that of one job itself."""
        if self.number(key) == 1:
            return self.run[key]
        label = f"run_{count}_{name(*key)}"
        if label not in self.problem.columns:
            fewer = count - 1
            more = self.number(key) - count + 1
            self.problem.constrain(self.run[key] <= fewer + more * self.problem.binary(label), f"if_{label}")
        return Linear({label: 1.0})


def build(instance: ProcureInstance, variant: ProcureVariant) -> ProcureProgram:
    """The program of a variant. Columns that cannot end in their window are left out."""
    program = ProcureProgram(Problem(), alike(instance, variant))
    _variables(program, instance, variant)
    _assign(program)
    _held_where_run(program)
    _lengths(program, instance)
    _dates(program, instance)
    _clusters(program)
    _starts(program, instance, variant)
    _resources(program, instance, variant)
    _money(program, instance)
    _limits(program, instance, variant)
    _cuts(program, instance, variant)
    program.problem.minimise(_objective(program, instance, variant))
    return program


def _variables(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    for c in instance.columns:
        closed = any(instance.pools[p].way in variant.without for p in c.place)
        if c.job not in program.alike or closed or too_large(instance, variant, c.place):
            continue
        start, end = window(instance, c.job, c.place, variant)
        days = c.days * variant.scale
        term = min((instance.pools[p].term_days or math.inf) for p in c.place)
        if days > min(end - start, term) * (1 + 1e-12):
            continue
        key = (c.job, c.place)
        label = name(c.job, c.place)
        run = program.run[key] = program.problem.integer(f"run_{label}", high=program.number(key))
        program.days[key] = days
        if variant.works_on:
            work = program.work[key] = program.problem.continuous(f"work_{label}")
            program.problem.constrain(work >= days * run, f"enough_{label}")
            program.problem.constrain(work <= (end - start) * run, f"window_{label}")
        else:
            program.work[key] = days * run
        if instance.jobs[c.job].interruptible:
            program.pause[key] = program.problem.continuous(f"pause_{label}")
    for p in sorted({p for _, place in program.run for p in place}):
        if instance.pools[p].held:
            program.hold[p] = program.problem.integer(f"hold_{p}", high=instance.pools[p].copies)


def busy(program: ProcureProgram, instance: ProcureInstance, key: tuple[int, Place]) -> Linear:
    """Days for which a job takes its pools: ``work + restart pause``."""
    pause = program.pause.get(key)
    return program.work[key] if pause is None else program.work[key] + instance.jobs[key[0]].restart_days * pause


def name(j: int, place: Place) -> str:
    """A suffix for names of variables: a job and its place."""
    return "_".join(str(n) for n in (j, *place))


def _assign(program: ProcureProgram) -> None:
    """``assign[j]``: ``sum_q run[j,q] = n[j]``, every job runs in one place."""
    for j, jobs in program.alike.items():
        runs = [run for (job, _), run in program.run.items() if job == j]
        program.problem.constrain(total(runs) == len(jobs), f"assign_{j}")


def _held_where_run(program: ProcureProgram) -> None:
    """``held[j,q,p]``: ``run[j,q] <= n[j] hold[p]`` for p of q; ``needed[p]``: ``hold[p] <= sum_{j, q of p} run[j,q]``,
    nothing is held idle.
    """
    for (j, place), run in program.run.items():
        for p in place:
            if p in program.hold:
                held = program.number((j, place)) * program.hold[p]
                program.problem.constrain(run <= held, f"held_{name(j, place)}_for_{p}")
    for p, hold in program.hold.items():
        program.problem.constrain(hold <= total(r for (_, q), r in program.run.items() if p in q), f"needed_{p}")


def _lengths(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``copies[p]``: ``sum_p' hold[p'] <= copies``, p' all lengths of time for which p is offered: of each there are no
    more than of all. ``repeats[q]``: ``hold[q] <= hold[q']``, q' the pool before q of the same offer.
    """
    lengths: dict[tuple[str, ...], list[int]] = {}
    for p in program.hold:
        pool = instance.pools[p]
        if pool.lengths_of and pool.copies < len(instance.jobs):
            region = pool.cluster.region.id if pool.cluster.region else ""
            lengths.setdefault((pool.offer, region, pool.lengths_of), []).append(p)
    for p, *others in lengths.values():
        held = total(program.hold[q] for q in (p, *others))
        program.problem.constrain(held <= instance.pools[p].copies, f"copies_{p}")
    for q, p in instance.repeats.items():
        # Any of them may be the one that begins first: the solver need not try them all.
        before = q - 1 if instance.repeats.get(q - 1) == p else p
        if not instance.dated and {before, q} <= program.hold.keys():
            program.problem.constrain(program.hold[q] <= program.hold[before], f"repeats_{q}")


def _dates(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``dates[p]``: ``sum_d begins[p,d] <= starts`` and ``hold[p,d] <= copies begins[p,d]``, d all days from which p
    may be held, ``starts`` how many of them its copies may begin on.
    """
    days: dict[int, list[int]] = {}
    for p in program.hold:
        days.setdefault(instance.dated.get(p, p), []).append(p)
    more = instance.more_starts
    for p, dates in days.items():
        starts = 1 + len(more.get(p, ()))
        if len(dates) > starts:
            for d in dates:
                begins = instance.pools[p].copies * program.problem.binary(f"begins_{d}")
                program.problem.constrain(program.hold[d] <= begins, f"begins_{d}")
            program.problem.constrain(total(Linear({f"begins_{d}": 1.0}) for d in dates) <= starts, f"dates_{p}")


def _clusters(program: ProcureProgram) -> None:
    """``clusters``: ``sum_p hold[p] = clusters``, a whole number. It says nothing new, and is what to branch on first:
    fractions of clusters, all but alike, take each other's place when one of them is forbidden.
    """
    if len(program.hold) < 2:
        return
    clusters = program.problem.integer("clusters")
    program.problem.constrain(total(program.hold.values()) == clusters, "clusters")


def _resources(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``fits[r,j]``: ``sum_q u[r,j,q] run[j,q] <= n[j] C[r]``; ``room[r,a,b]``: ``sum_{j,q} u[r,j,q] W[j,q] run[j,q] <=
    (b - a) C[r]``, ``C = capacity + sum_p c[r,p] hold[p]``, ``W`` the days that must lie between a and b.
    """
    keys = [(twin, place) for j, place in program.run for twin in program.alike[j]]
    for resource in resources(instance, variant, keys):
        capacity = total((resource.capacity,))
        if resource.sought:
            high = None if math.isinf(resource.capacity) else resource.capacity
            capacity = program.most[resource.name] = program.problem.integer(f"most_{resource.label}", high=high)
        capacity += total(n * program.hold[p] for p, n in resource.holds.items() if p in program.hold)
        program.shared.append(resource)
        if not resource.name.startswith("pool:"):  # there ``run <= hold``
            _fits(program, resource, capacity)
        for n, (a, b) in enumerate(resource.intervals):
            if a == resource.intervals[0][0] and any(p in program.late for p in resource.holds):
                continue  # ``by[p,b]`` says more
            terms = [
                u * _within(program, instance, variant, key, a, b)
                for key, u in resource.units.items() if key in program.run
            ]  # fmt: skip
            program.problem.constrain(_coarse(total(terms)) <= (b - a) * capacity, f"room_{resource.label}_{n}")


def _coarse(work: Linear) -> Linear:
    """Not more than the work, of which nothing is negative."""
    return Linear({x: math.floor(days / GRAIN) * GRAIN for x, days in work.coefficients.items()}, work.constant)


def _fits(program: ProcureProgram, resource: Resource, capacity: Linear) -> None:
    if resource.holds:
        program.problem.constrain(capacity >= 0, f"held_{resource.label}")
    for j in sorted({j for j, _ in resource.units} & program.alike.keys()):
        taken = total(u * program.run[key] for key, u in resource.units.items() if key[0] == j)
        program.problem.constrain(taken <= len(program.alike[j]) * capacity, f"fits_{resource.label}_{j}")


def _within(
    program: ProcureProgram,
    instance: ProcureInstance,
    variant: ProcureVariant,
    key: tuple[int, Place],
    a: float,
    b: float,
) -> Linear:
    """``W[j,q] run[j,q]``: in one piece the less of what is left if it runs as early and as late as it can; in pieces
    what does not fit before a and after b; all of its work where its window is within.
    """
    start, end = window(instance, *key, variant)
    if start >= a and end <= b:
        return busy(program, instance, key)
    days = program.days[key]
    before, after = max(0.0, a - start), max(0.0, end - b)
    if instance.jobs[key[0]].interruptible:
        inside = days - before - after
    else:
        inside = min(b - a, days - before, days - after)
    return max(0.0, inside) * program.run[key]


def _starts(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``late[p]``: copies may start later, and what is bought is paid for from then on. ``by[p,b]``: ``sum_{j, q of p}
    W[j,q] run[j,q] <= (b - start) hold - late``, W what must be done by b; of a term, which ends later, too,
    ``from[p,a]``: ``sum W run <= (end - a) hold + late``, W what must be done from a on; ``term[p]``: all within it.
    """
    most = max(2, MOST_DAYS // max(1, len(program.hold)))
    for p, hold in program.hold.items():
        pool = instance.pools[p]
        keys = [key for key in program.run if p in key[1]]
        windows = {key: window(instance, *key, variant) for key in keys}
        if not moves(instance, pool, variant) or not (_saves(instance, pool, variant) or pool.term_days):
            continue
        last = max(end for _, end in windows.values())
        if pool.term_days and pool.last_day >= last:
            continue
        latest = max(end - program.days[key] - pool.start_day for key, (_, end) in windows.items())
        if pool.sold_usd is not None:
            latest = min(latest, instance.asked.horizon_days - pool.last_day)
        late = program.late[p] = program.problem.continuous(f"late_{p}")
        program.problem.constrain(late <= latest * hold, f"latest_{p}")

        def work(a: float, b: float, keys: Sequence[tuple[int, Place]] = keys) -> Work:
            return {key: _within(program, instance, variant, key, a, b) for key in keys}

        ends = _spread(sorted({end for _, end in windows.values()}), most)
        by = [(b - pool.start_day, work(0.0, b)) for b in ends]
        _have_room(program, f"by_{p}", by, hold, -late, [pool.copies * (latest - room) for room, _ in by])
        if not pool.term_days:
            _not_postponed(program, instance, p, keys, latest)
            continue
        starts = _spread(sorted({start for start, _ in windows.values()}), most)
        after = [(pool.last_day - a, work(a, FAR)) for a in reversed(starts)]
        _have_room(program, f"from_{p}", after, hold, late, [-pool.copies * room for room, _ in after])
        worked = total(busy(program, instance, key) for key in keys)
        program.problem.constrain(worked <= pool.held_days * hold, f"term_{p}")


def _have_room(
    program: ProcureProgram,
    label: str,
    days: Sequence[tuple[float, Work]],
    hold: Linear,
    late: Linear,
    short: Sequence[float],
) -> None:
    """``sum W run <= room hold + late + short idle``, for each day: ``idle`` 1 at most, and only where no job has work
    on that side of it; then copies may be there on the other side alone. Each day's work is some of the next one's.
    """
    idle: Linear | None = None
    seen = set[tuple[int, Place]]()
    for n, ((room, work), missing) in enumerate(zip(days, short, strict=True)):
        room_days = room * hold + late
        if missing > 0:
            before = idle
            idle = program.problem.continuous(f"idle_{label}_{n}", high=1.0)
            if before is not None:
                program.problem.constrain(idle <= before, f"idle_{label}_{n}")
            for key in (
                key for key, work_days in work.items() if key not in seen and any(work_days.coefficients.values())
            ):
                program.problem.constrain(idle <= 1 - program.at_least(key, 1), f"idle_{label}_{n}_{name(*key)}")
                seen.add(key)
            room_days += missing * idle
        program.problem.constrain(total(work.values()) <= room_days, f"{label}_{n}")


def _spread(ordered: Sequence[float], most: int) -> list[float]:
    """The first and the last of these, and so many between them, evenly."""
    if len(ordered) <= most:
        return list(ordered)
    return [ordered[round(n * (len(ordered) - 1) / (most - 1))] for n in range(most)]


def _not_postponed(
    program: ProcureProgram, instance: ProcureInstance, p: int, keys: Sequence[tuple[int, Place]], most: float
) -> None:
    """``soon[j,q]``: ``late[p] <= wait hold[p] + most copies (1 - run[j,q])``, j without a deadline of its own: a
    purchase for it waits for its release, and not for the last month that is planned.
    """
    for key in keys:
        job = instance.jobs[key[0]]
        pool = instance.pools[p]
        if not job.given_deadline:
            wait = max(0.0, job.release_day - pool.start_day)
            elsewhere = max(0.0, most) * pool.copies * (1 - program.at_least(key, 1))
            soon = program.late[p] <= wait * program.hold[p] + elsewhere
            program.problem.constrain(soon, f"soon_{name(*key)}_on_{p}")


def _saves(instance: ProcureInstance, pool: SupplyPool, variant: ProcureVariant) -> bool:
    """Whether dollars that a later day saves count: in what is minimised, or under a budget."""
    limited = instance.asked.limits.budget is not None and "budget" not in variant.dropped
    return pool.idle_usd > 0 and (variant.minimise in ("cost", "budget") or variant.per_million_tokens > 0 or limited)


def _money(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``cost = sum_p hold (charge + held) - sum_p late idle + sum (work + restart pause) rate``, the rate of a place
    that of all its pools; ``tokens = sum work rate``, in millions.
    """
    rate = {(c.job, c.place): c.tokens_per_s for c in instance.columns}
    by_day = [instance.pools[p].day_usd * busy(program, instance, key) for key in program.work for p in key[1]]
    held = [(instance.pools[p].fixed_charge + instance.pools[p].held_usd) * x for p, x in program.hold.items()]
    saved = [-instance.pools[p].idle_usd * x for p, x in program.late.items()]
    program.cost = total(by_day + held + saved)
    program.tokens = total(rate[key] * 86400.0 / MILLION * work for key, work in program.work.items())


def _limits(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """Every limit as ``use <= value``, both over the value: ``budget``, ``capital``, ``power``, ``racks``,
    ``switch_ports``, ``carbon``, ``quantity:OFFER`` and ``monthly`` (one a month).
    """
    pools = instance.pools

    def held(figure: Callable[[SupplyPool], float]) -> Linear:
        return total(figure(pools[p]) * x for p, x in program.hold.items())

    def worked(figure: Callable[[SupplyPool], float]) -> Linear:
        return total(figure(pools[p]) * busy(program, instance, key) for key in program.work for p in key[1])

    program.use = {
        "budget": held(lambda q: q.capital + q.held_usd) + worked(lambda q: q.day_usd)
        - total(pools[p].month_usd / DAYS_PER_MONTH * x for p, x in program.late.items() if not pools[p].term_days),
        "capital": held(lambda q: q.capital),
        "power": held(lambda q: q.power) + _own_power(program, instance),
        "racks": held(lambda q: q.racks) + instance.standing.get("racks", 0.0),
        "switch_ports": held(lambda q: q.switch_ports) + instance.standing.get("switch_ports", 0.0),
        "carbon": worked(lambda q: q.day_kg),
    }  # fmt: skip
    for limit in limits(instance.asked, pools):
        if limit.name.startswith("quantity:"):
            program.use[limit.name] = (
                program.most[limit.name] if limit.name in program.most else _held_of(program, instance, limit.name[9:])
            )
        value = variant.moved.get(limit.name, limit.value)
        if limit.name in variant.dropped or limit.name not in program.use:
            continue
        scale = value or 1.0
        program.problem.constrain(program.use[limit.name] / scale <= value / scale, limit.name.replace(":", "_"))
    if variant.least_tokens > 0:
        program.problem.constrain(program.tokens / variant.least_tokens >= 1, "tokens")
    monthly = monthly_limit(instance.asked, variant)
    if monthly is not None:
        if "monthly" in variant.dropped:
            most = program.use["monthly"] = program.problem.continuous("most_in_a_month")
        for n, spent in _by_month(program, instance, variant):
            if "monthly" in variant.dropped:
                program.problem.constrain(spent <= most, f"monthly_{n}")
            else:
                program.problem.constrain(spent / monthly <= 1, f"monthly_{n}")


def _held_of(program: ProcureProgram, instance: ProcureInstance, offer: str) -> Linear:
    return total(instance.pools[p].nodes * x for p, x in program.hold.items() if instance.pools[p].offer == offer)


def _own_power(program: ProcureProgram, instance: ProcureInstance) -> Linear:
    """Watts of the owned nodes that work at one time."""
    watts = own_watts(instance)
    return total(watts[name] * most for name, most in program.most.items() if name in watts)


def own_watts(instance: ProcureInstance) -> dict[str, float]:
    """Resource of nodes owned -> watts of one."""
    return {f"own:{q.node.id}": q.power / q.nodes for q in instance.pools if q.way == "own"}


def _by_month(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> list[tuple[int, Linear]]:
    """What is spent in each month, without capital: holding by its days, use by its days: ``spread[j,q]``: ``sum_t
    day[j,q,t] = work + restart pause``.
    """
    months: dict[int, list[Linear]] = {}
    for key in program.work:
        start, end = window(instance, *key, variant)
        a_day = sum(instance.pools[p].day_usd for p in key[1])
        days = []
        for n in range(int(start / DAYS_PER_MONTH + 1e-9), math.ceil(end / DAYS_PER_MONTH - 1e-9)):
            inside = min(end, (n + 1) * DAYS_PER_MONTH) - max(start, n * DAYS_PER_MONTH)
            high = inside * program.number(key)
            days.append(program.problem.continuous(f"day_{name(*key)}_in_{n}", high=high))
            months.setdefault(n, []).append(a_day * days[-1])
        program.problem.constrain(total(days) == busy(program, instance, key), f"spread_{name(*key)}")
    ends = (pool.start_day + pool.held_days for pool in (instance.pools[p] for p in program.hold))
    last = max(*(deadline(job, variant) for job in instance.jobs), 0.0, *ends)
    by_month = []
    for n in range(int(min(last, FAR) / DAYS_PER_MONTH - 1e-9) + 1):
        held = [share * instance.pools[p].month_usd * x for p, x in program.hold.items()
                if (share := month_share(instance.pools[p], n)) > 0]  # fmt: skip
        terms = held + months.get(n, [])
        if terms:
            by_month.append((n, total(terms)))
    return by_month


def _cuts(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``uses[f]`` 1 if a pool of family f runs a job; ``cut[n]``: not exactly the families of an earlier answer."""
    if not variant.cut:
        return
    by_family: dict[str, list[tuple[int, Linear]]] = {}
    for key, run in program.run.items():
        for family in sorted({instance.pools[p].family for p in key[1]}):
            by_family.setdefault(family, []).append((program.number(key), run))
    uses = {}
    for n, (name, runs) in enumerate(sorted(by_family.items())):
        used = uses[name] = program.problem.binary(f"uses_{n}")
        program.problem.constrain(used <= total(run for _, run in runs), f"used_{n}")
        for m, (number, run) in enumerate(runs):
            program.problem.constrain(run <= number * used, f"uses_if_run_{n}_{m}")
    for n, names in enumerate(variant.cut):
        if names <= uses.keys():  # else what was used then cannot be used now
            inside = total(uses[name] for name in names)
            outside = total(used for name, used in uses.items() if name not in names)
            program.problem.constrain(inside - outside <= len(names) - 1, f"cut_{n}")


def _objective(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> Linear:
    """US dollars or kilograms over a thousand; tokens over a million million, negative; or the use of a limit over its
    value.
    """
    if variant.per_million_tokens > 0:
        return program.cost / 1e3 - variant.per_million_tokens / 1e3 * program.tokens
    if variant.minimise == "cost":
        return program.cost / 1e3
    if variant.minimise == "tokens":
        return -program.tokens / MILLION
    if variant.minimise == "carbon":
        return program.use["carbon"] / TONNE
    if not variant.minimise:
        return total(())
    scale = next(
        (limit.value for limit in limits(instance.asked, instance.pools) if limit.name == variant.minimise), 1.0
    )
    return program.use[variant.minimise] / (scale or 1.0)
