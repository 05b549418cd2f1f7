"""From a choice of pools to a calendar: from when pools are held, who runs when, and on which copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from planner.procurement.program.instance import (
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    ScheduledStretch,
    kept_free,
    moves,
    window,
)
from planner.procurement.program.job_order import EPS, Found, Ground, Task, Times, conflicting, sequenced
from planner.procurement.program.resources import Resource
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Place
from planner.question.values import DAYS_PER_MONTH

HALVINGS = 20
"""Halvings in the search for the last day of a purchase, or for how much work beyond a job's tokens has room."""
MOST_STARTS = 200
"""Sets of first days of terms that are tried."""
MOST_CHAINED = 4
"""Jobs on a term of which every set is tried: one after another, they end with the term or just in time."""


@dataclass(frozen=True)
class Choice:
    """What a program chose, without an order."""

    run: Mapping[int, Place]
    days: Mapping[int, float]
    """Job -> days that it works."""
    hold: Mapping[int, int]
    late: Mapping[int, float]
    """Pool -> days by which each of its copies starts late."""
    most: Mapping[str, float]
    """Resource -> how much of it there is to be."""


@dataclass(frozen=True)
class Collision:
    """Jobs that cannot run as a program chose."""

    jobs: tuple[int, ...]
    resources: tuple[str, ...]
    proven: bool
    late: float | None = None
    """Days late at which their one pool would do; None: the start of pools is not to blame."""
    lost_usd: float = 0.0
    """They can, if so much is paid for pauses."""


@dataclass(frozen=True)
class Arranged:
    """When every job runs and every pool starts, or what stands in the way."""

    times: dict[int, Times]
    starts: dict[int, float]
    lost_usd: dict[tuple[int, ...], float]
    """Jobs that share something -> what their pauses cost, at least."""
    proven: bool
    collisions: tuple[Collision, ...]


def arranged(
    instance: ProcureInstance, variant: ProcureVariant, shared: Sequence[Resource], choice: Choice,
    months: Sequence[float] | None = None,
) -> Arranged:  # fmt: skip
    """A calendar for every group of jobs that share something."""
    times: dict[int, Times] = {}
    starts: dict[int, float] = {}
    lost: dict[tuple[int, ...], float] = {}
    collisions: list[Collision] = []
    proven = True
    capacity = {resource.name: _capacity(resource, choice) for resource in shared}
    for jobs in _groups(choice, shared, capacity, together=months is not None):
        takes = {j: _takes(shared, capacity, choice, j, jobs) for j in jobs}
        ground = Ground(capacity=capacity, months=months)
        arrangement = _group(instance, variant, choice, jobs, takes, ground)
        if isinstance(arrangement, Collision):
            collisions.append(arrangement)
            continue
        best, days = arrangement
        assert best.times is not None
        times |= best.times
        starts |= days
        proven &= best.proven
        if best.lost > 1e-3:
            lost[tuple(jobs)] = best.lost
    return Arranged(times, starts, lost, proven, tuple(collisions))


def _capacity(resource: Resource, choice: Choice) -> float:
    base = choice.most.get(resource.name, resource.capacity)
    return base + sum(n * choice.hold.get(p, 0) for p, n in resource.holds.items())


def _units(resource: Resource, choice: Choice, j: int) -> float:
    return resource.units.get((j, choice.run[j]), 0.0)


def _takes(
    shared: Sequence[Resource], capacity: Mapping[str, float], choice: Choice, j: int, jobs: Sequence[int]
) -> dict[str, float]:
    """What a job takes of that of which there is not enough for all of them at once."""
    return {
        resource.name: units
        for resource in shared
        if (units := _units(resource, choice, j))
        and sum(_units(resource, choice, k) for k in jobs) > capacity[resource.name] + EPS
    }


def _groups(
    choice: Choice, shared: Sequence[Resource], capacity: Mapping[str, float], *, together: bool
) -> list[list[int]]:
    """The jobs in groups that share something scarce, or a pool whose first day is to be found."""
    ties = [{j for j in choice.run if _units(resource, choice, j)} for resource in shared]
    short = [
        sum(_units(resource, choice, j) for j in tie) > capacity[resource.name] + EPS
        for resource, tie in zip(shared, ties, strict=True)
    ]
    joined = [
        tie
        for tie, scarce, resource in zip(ties, short, shared, strict=True)
        if scarce or resource.name.startswith("pool:")
    ]
    if together:
        joined.append(set(choice.run))
    groups: list[set[int]] = []
    for tie in [*joined, *({j} for j in choice.run)]:
        mine = [group for group in groups if group & tie]
        groups = [group for group in groups if group not in mine]
        groups.append(tie.union(*mine))
    return sorted(sorted(group) for group in groups if group)


def _group(
    instance: ProcureInstance, variant: ProcureVariant, choice: Choice, jobs: Sequence[int],
    takes: Mapping[int, Mapping[str, float]], ground: Ground,
) -> tuple[Found, dict[int, float]] | Collision:  # fmt: skip
    """The calendar of one group, with the first days of its pools."""
    pools = sorted({p for j in jobs for p in choice.run[j]})
    terms = [p for p in pools if (q := instance.pools[p]).term_days and moves(instance, q, variant)]
    bought = {p: choice.late[p] for p in pools if choice.late.get(p, 0.0) > EPS and p not in terms}

    def days(share: float) -> dict[int, float]:
        return {p: instance.pools[p].start_day + share * late for p, late in bought.items()}

    def tasks(starts: Mapping[int, float]) -> list[Task]:
        return [_task(instance, variant, choice, j, starts, takes[j]) for j in jobs]

    names = tuple(sorted({name for j in jobs for name in takes[j]}))
    for first in _first_days(instance, variant, choice, jobs, terms):
        schedule = sequenced(tasks(days(1.0) | first), ground)
        if schedule.times is not None:
            return schedule, days(1.0) | first
    if terms and sequenced(tasks(days(0.0)), ground).times is not None:
        return Collision(tuple(jobs), names, proven=False)  # another first day may do; here terms have none
    if bought and sequenced(tasks(days(0.0)), ground).times is not None:
        share = largest(lambda share: sequenced(tasks(days(share)), ground).times is not None)
        later = sequenced(tasks(days(share + 0.5**HALVINGS)), ground)
        proven = len(bought) == 1 and later.times is None and later.proven
        return Collision(tuple(jobs), names, proven, late=share * min(bought.values()))
    least = conflicting(tasks(days(0.0)), ground)
    names = tuple(sorted({name for task in least for name in task.takes}))
    # What months leave depends on what is held, and an order in which money lasts may be none of those that are tried.
    certain = ground.months is None or (len(least) == 1 and not choice.hold)
    proven = certain and sequenced(least, ground).proven
    return Collision(tuple(sorted(task.job for task in least)), names, proven)


def _task(
    instance: ProcureInstance, variant: ProcureVariant, choice: Choice, j: int, starts: Mapping[int, float],
    takes: Mapping[str, float],
) -> Task:  # fmt: skip
    job, place = instance.jobs[j], choice.run[j]
    start, due = window(instance, j, place, variant)
    for p in place:
        if p in starts:
            pool = instance.pools[p].starting(starts[p])
            start = max(start, pool.start_day)
            due = min(due, pool.last_day - kept_free(instance, j, place))
    return Task(
        job=j,
        start=start,
        due=due,
        days=choice.days[j],
        takes=takes,
        restart=job.restart_days if job.interruptible else None,
        usd=sum(instance.pools[p].day_usd for p in place),
        priority=job.priority,
    )


def _first_days(
    instance: ProcureInstance, variant: ProcureVariant, choice: Choice, jobs: Sequence[int], terms: Sequence[int]
) -> Iterator[dict[int, float]]:
    """Days from which terms may run: releases before months, months before days on which something would just fit."""
    days_by_pool = [_days_of_term(instance, variant, choice, [j for j in jobs if p in choice.run[j]], p) for p in terms]
    for n, days in enumerate(product(*days_by_pool)):
        if n < MOST_STARTS:
            yield dict(zip(terms, days, strict=True))


def _days_of_term(
    instance: ProcureInstance, variant: ProcureVariant, choice: Choice, jobs: Sequence[int], p: int
) -> list[float]:
    pool = instance.pools[p]
    windows = {j: window(instance, j, choice.run[j], variant) for j in jobs}
    fitting = [
        day
        for n in range(1, len(jobs) + 1 if len(jobs) <= MOST_CHAINED else 2)
        for chain in combinations(jobs, n)
        for worked in (sum(choice.days[j] for j in chain),)
        for a, b in (windows[j] for j in chain)
        for day in (a + worked - pool.term_days, b - worked)
    ]
    latest = math.inf if pool.sold_usd is None else instance.asked.horizon_days - pool.term_days
    likely = [pool.start_day + choice.late.get(p, 0.0), *([] if math.isinf(latest) else [latest]), *fitting]
    known = dict.fromkeys([*first_days(instance, pool), *sorted(likely)])
    return [
        day
        for day in known
        if pool.start_day <= day <= latest + EPS
        and all(max(a, day) + choice.days[j] <= min(b, day + pool.term_days) + EPS for j, (a, b) in windows.items())
    ]


def first_days(instance: ProcureInstance, pool: SupplyPool) -> list[float]:
    """Days on which a commitment may begin: its delivery, releases of jobs, first days of months."""
    months = [n * DAYS_PER_MONTH for n in range(math.ceil(instance.asked.horizon_days / DAYS_PER_MONTH))]
    releases = sorted({job.release_day for job in instance.jobs})
    return [day for day in dict.fromkeys([pool.start_day, *releases, *months]) if day >= pool.start_day]


def largest(holds: Callable[[float], bool]) -> float:
    """The largest share, between one that holds (0) and one that does not (1)."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# ---- copies ----------------------------------------------------------------------------------------------------------


def stretches(
    instance: ProcureInstance, run: Mapping[int, Place], times: Mapping[int, Times]
) -> tuple[ScheduledStretch, ...]:
    """Every job's times on a copy of each of its pools: the one it had if that is free, else the first free one."""
    stretches_of_jobs: list[ScheduledStretch] = []
    for p in sorted({p for place in run.values() for p in place}):
        free_from: dict[int, float] = {}
        had: dict[int, int] = {}
        pieces = sorted((a, b, j) for j, place in run.items() if p in place for a, b in times[j])
        for start, end, j in pieces:
            copy = 0
            if not instance.pools[p].hired:
                free = [c for c in range(len(pieces)) if free_from.get(c, -math.inf) <= start + EPS]
                copy = had[j] if had.get(j) in free else free[0]
            free_from[copy], had[j] = end, copy
            stretches_of_jobs.append(ScheduledStretch(j, p, copy, start, end))
    return tuple(sorted(stretches_of_jobs, key=lambda s: (s.start, s.job, s.pool)))


# ---- money by month --------------------------------------------------------------------------------------------------


def month_share(pool: SupplyPool, month: int) -> float:
    """Share of a month (from 0) for which a pool is held."""
    a = month * DAYS_PER_MONTH
    b = (month + 1) * DAYS_PER_MONTH
    return max(0.0, min(b, pool.start_day + pool.held_days) - max(a, pool.start_day)) / DAYS_PER_MONTH


def held_in_months(instance: ProcureInstance, hold: Mapping[int, int], last: float) -> list[float]:
    """US dollars that what is held costs in each month until a day."""
    return [
        sum(month_share(instance.pools[p], n) * instance.pools[p].month_usd * x for p, x in hold.items())
        for n in range(int(last / DAYS_PER_MONTH) + 1)
    ]


def most_in_a_month(instance: ProcureInstance, solution: ProgramSolution) -> float:
    """US dollars spent in the dearest month, without capital; of a dated instance."""
    ends = [instance.pools[p].start_day + instance.pools[p].held_days for p in solution.hold]
    months = held_in_months(instance, solution.hold, max([solution.done, *ends]))
    for n in range(len(months)):
        a = n * DAYS_PER_MONTH
        b = (n + 1) * DAYS_PER_MONTH
        for s in solution.calendar:
            months[n] += max(0.0, min(b, s.end) - max(a, s.start)) * instance.pools[s.pool].day_usd
    return max(months)


def dated(instance: ProcureInstance, solution: ProgramSolution) -> ProcureInstance:
    """The instance with its pools as an answer holds them: from the day on which it takes them."""
    pools = [
        pool.starting(solution.starts[p]) if p in solution.starts else pool for p, pool in enumerate(instance.pools)
    ]
    return replace(instance, pools=pools)
