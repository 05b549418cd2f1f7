"""The oracle of jobs on several pools at once: every assignment, and in each every order of the jobs.

Pools cost nothing by the month here, so that they may as well be there from their first day; from when they should be
is asked of :mod:`tests.procuring`. The planner has no part in it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.procurement.program.instance import ProcureInstance, ProgramSolution
from planner.procurement.throughput.column import Column, Place
from tests.procuring import bought, random_instance, within

Hold = dict[int, int]


def mixed_instance(seed: int, *, copies: int = 1, third: bool = False) -> ProcureInstance:
    """A random instance some jobs of which may also run on two or three of its pools at once, mostly faster; with a
    `third` pool to buy, those may be at odds: jobs on A and B, on B and C, on C and A.
    """
    plain = random_instance(seed, copies=copies)
    plain = replace(plain, pools=[replace(pool, month_usd=0.0, running={}) for pool in plain.pools])
    r = random.Random(10_000 + seed)
    if third:
        more = bought(2, r.uniform(10, 300) * 1e3, 0.0, r.uniform(0, 500), day_kg=r.uniform(10, 900), copies=copies)
        own = [
            Column(j, len(plain.pools), days := r.uniform(3, 70), job.tokens / days / 86400)
            for j, job in enumerate(plain.jobs)
        ]
        plain = replace(plain, pools=[*plain.pools, more], columns=[*plain.columns, *own])
    alone = {(c.job, c.pool): c.days for c in plain.columns}
    sets = [q for n in (2, 3) for q in itertools.combinations(range(len(plain.pools)), n)]
    found = []
    for j in range(len(plain.jobs)):
        for place in sets:
            if r.random() < 0.6:
                rate = sum(1 / alone[j, p] for p in place if (j, p) in alone) or 1 / r.uniform(3, 70)
                days = 1 / rate * r.uniform(0.9, 1.6)
                found.append(Column(j, place[0], days, plain.jobs[j].tokens / days / 86400, place[1:]))
    # Sometimes together is the only way.
    kept = [c for c in plain.columns if r.random() < 0.7]
    return replace(plain, columns=[*kept, *found])


@dataclass(frozen=True)
class Way:
    """An assignment with what is held for it, and what that comes to."""

    run: tuple[Place, ...]
    hold: Hold
    cost: float
    carbon: float


def ways(instance: ProcureInstance) -> Iterator[Way]:
    """Every assignment with every number of copies that keeps the limits on what is held and on what it costs."""
    days = {(c.job, c.place): c.days for c in instance.columns}
    each = [[c.place for c in instance.columns if c.job == j] for j in range(len(instance.jobs))]
    for run in itertools.product(*each):
        used = sorted({p for place in run for p in place if not instance.pools[p].hired})
        most = [min(instance.pools[p].copies, sum(p in place for place in run)) for p in used]
        for counts in itertools.product(*(range(1, n + 1) for n in most)):
            way = _way(instance, run, dict(zip(used, counts, strict=True)), days)
            if way is not None:
                yield way


def _way(
    instance: ProcureInstance, run: tuple[Place, ...], hold: Hold, days: dict[tuple[int, Place], float]
) -> Way | None:
    limits = instance.asked.limits
    held = [instance.pools[p] for p, n in hold.items() for _ in range(n)]
    worked = [(instance.pools[p], days[j, place]) for j, place in enumerate(run) for p in place]
    capital = sum(pool.items[0].unit_price_usd for pool in held)
    running = sum(pool.month_usd * pool.held_days / (365.25 / 12) for pool in held)
    running += sum(pool.day_usd * d for pool, d in worked)
    carbon = sum(pool.day_kg * d for pool, d in worked)
    if not within(limits, held, capital, running, carbon):
        return None
    return Way(run, hold, capital + running, carbon)


def earliest(instance: ProcureInstance, way: Way) -> float:
    """The day on which all is done under a way, at the earliest; infinite where a deadline cannot be kept."""
    days = {(c.job, c.place): c.days for c in instance.columns}
    return min(_done(instance, way, days, order) for order in itertools.permutations(range(len(way.run))))


def _done(instance: ProcureInstance, way: Way, days: dict[tuple[int, Place], float], order: tuple[int, ...]) -> float:
    """When all is done if every job in its turn starts as soon as a copy of each of its pools is free until its end."""
    booked: list[tuple[int, float, float]] = []
    for j in order:
        place, each = way.run[j], instance.jobs[j]
        ready = max(each.release_day, *(instance.pools[p].start_day for p in place))
        for start in sorted({ready, *(end for _, _, end in booked if end > ready)}):
            end = start + days[j, place]
            if end > each.deadline_day + 1e-9:
                return math.inf
            if all(_free(booked, p, start, end) < way.hold[p] for p in place if not instance.pools[p].hired):
                booked += [(p, start, end) for p in place if not instance.pools[p].hired]
                booked += [(-1, start, end)]
                break
    return max(end for _, _, end in booked)


def _free(booked: list[tuple[int, float, float]], p: int, start: float, end: float) -> int:
    """The most copies of a pool that are taken on a day between two."""
    mine = [(a, b) for q, a, b in booked if q == p and b > start + 1e-9 and a < end - 1e-9]
    return max(
        (sum(a <= day + 1e-9 < b for a, b in mine) for day in [start, *(a for a, _ in mine if a > start)]), default=0
    )


def best_way(instance: ProcureInstance, objective: str) -> float:
    """The best value there is; infinite where nothing keeps the limits."""
    if objective == "time":
        return min((earliest(instance, way) for way in ways(instance)), default=math.inf)
    found = sorted(ways(instance), key=lambda way: getattr(way, objective))
    return next((getattr(way, objective) for way in found if math.isfinite(earliest(instance, way))), math.inf)


def faults(instance: ProcureInstance, solution: ProgramSolution) -> list[str]:
    """What cannot be about a calendar: copies that do two things, pools of a job apart, days missing, windows left."""
    found = []
    stretches, days = solution.calendar, {(c.job, c.place): c.days for c in instance.columns}
    for a, b in itertools.combinations(stretches, 2):
        apart = a.end <= b.start + 1e-6 or b.end <= a.start + 1e-6
        if not apart and a.pool == b.pool and (a.job == b.job or (a.copy == b.copy and a.pool in solution.hold)):
            found.append(f"{a} and {b}")
    for j, place in solution.run.items():
        times = {p: sorted((s.start, s.end) for s in stretches if (s.job, s.pool) == (j, p)) for p in place}
        for p, mine in times.items():
            if abs(sum(end - start for start, end in mine) - days[j, place]) > 1e-5:
                found.append(f"job {j} has not its days on {p}")
            covered = [(s, e) for q in place for s, e in times[q]]
            if any(not any(a - 1e-6 <= s and e <= b + 1e-6 for a, b in _whole(mine)) for s, e in covered):
                found.append(f"the pools of job {j} work at different times")
            ready = max(instance.jobs[j].release_day, instance.pools[p].start_day)
            if mine[0][0] < ready - 1e-6 or mine[-1][1] > instance.jobs[j].deadline_day + 1e-5:
                found.append(f"job {j} leaves its window")
    return found + [f"no copy {s.copy} of {s.pool}" for s in stretches if s.copy >= solution.hold.get(s.pool, 1)]


def _whole(times: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times without a break between them as one."""
    joined: list[tuple[float, float]] = []
    for start, end in times:
        if joined and start - joined[-1][1] < 1e-6:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
