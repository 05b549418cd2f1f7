"""Under a limit on what a month costs: every purchase and term once for each day on which it may begin.

Its first day decides in which months what is held costs money, and can be no share of a variable there, as it is
elsewhere (``late`` in :mod:`.integer_program`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product

from planner.procurement.program.calendar import MOST_CHAINED, first_days
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, ProgramSolution, monthly_limit, window
from planner.procurement.program.job_order import EPS
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column, Place
from planner.question.values import DAYS_PER_MONTH

MOST_COLUMNS = 5000
"""More are not tried: HiGHS takes a minute for some ten thousand."""


@dataclass(frozen=True)
class OnDates:
    """A question with its pools on every day."""

    instance: ProcureInstance

    def back(self, solution: ProgramSolution) -> ProgramSolution:
        """The answer in terms of the question's own pools and the days from which they are held."""
        dated = self.instance.dated
        free = {p: [p, *more] for p, more in self.instance.more_starts.items()}
        pool_of = {p: free.get(dated.get(p, p), [dated.get(p, p)]).pop(0) for p in solution.hold}

        def undated(p: int) -> int:
            return pool_of.get(p, p)

        return replace(
            solution,
            hold={undated(p): n for p, n in solution.hold.items()},
            run={j: tuple(undated(p) for p in place) for j, place in solution.run.items()},
            calendar=tuple(replace(s, pool=undated(s.pool)) for s in solution.calendar),
            starts={undated(p): self.instance.pools[p].start_day for p in solution.hold if p in dated},
        )


def on_dates(instance: ProcureInstance, variant: ProcureVariant) -> OnDates | None:
    """The question with its pools on every day; None where it has too many columns then."""
    limit = monthly_limit(instance.asked, variant)
    tried = (_on(instance, variant, value) for value in ([limit] if limit else []) + [None])
    return next((OnDates(solution) for solution in tried if len(solution.columns) <= MOST_COLUMNS), None)


def _on(instance: ProcureInstance, variant: ProcureVariant, limit: float | None) -> ProcureInstance:
    offered = [c for c in instance.columns if c.place == instance.as_offered(c.place)]
    pools = list(instance.pools)
    dated = dict[int, int]()
    dated_of = dict[int, list[int]]()
    for p in sorted({p for c in offered for p in c.place}):
        dated_of[p] = [p]
        for day in _later(instance, p, limit):
            dated_of[p].append(len(pools))
            dated[len(pools)] = p
            pools.append(instance.pools[p].starting(day))
    places = [(c, place) for c in offered for place in product(*(dated_of[p] for p in c.place))]
    survivals = {(c.job, q): instance.survivals[c.job, c.place] for c, q in places if instance.survivals}
    spread = replace(instance, pools=pools, dated=dated, survivals=survivals)
    columns = []
    for c, place in places:
        start, end = window(spread, c.job, place, variant)
        if c.days * variant.scale <= end - start + EPS and _wanted(spread, c, place):
            columns.append(replace(c, pool=place[0], other_pools=place[1:]))
    return replace(spread, columns=columns)


def _later(instance: ProcureInstance, p: int, limit: float | None) -> Iterator[float]:
    """Days after its delivery on which a pool may begin: some of its jobs, one after another, are then just in time.

    A term begins also so that one of its jobs just ends with it, or so that its first or last days in a month just keep
    the limit, alone or with another pool.
    """
    pools = instance.pools
    horizon = instance.asked.horizon_days
    pool = pools[p]
    if not pool.held or pool.month_usd <= 0:
        return
    work_days = {c.job: c.days for c in instance.columns if p in c.place}
    days = {*first_days(instance, pool), *latest_days(instance, work_days)}
    if pool.term_days:
        days |= {instance.jobs[j].release_day + work - pool.term_days for j, work in work_days.items()}
    if pool.term_days and limit is not None:
        for left in {limit, *(limit - q.month_usd for q in pools if q.held and q.month_usd < limit)}:
            part = left / pool.month_usd * DAYS_PER_MONTH
            for month in range(math.ceil((horizon + pool.term_days) / DAYS_PER_MONTH)):
                first = month * DAYS_PER_MONTH
                days |= {first - part, first + part - pool.term_days}
    last = horizon - pool.term_days if pool.sold_usd is not None else horizon - EPS
    yield from sorted(day for day in days if pool.start_day + EPS < day <= last)


def latest_days(instance: ProcureInstance, work_days: Mapping[int, float]) -> Iterator[float]:
    """Days on which some of these jobs begin at the latest: one after another, the last ends on its deadline."""
    for n in range(1, len(work_days) + 1 if len(work_days) <= MOST_CHAINED else 2):
        for chain in combinations(work_days, n):
            work = sum(work_days[j] for j in chain)
            yield from (instance.jobs[j].deadline_day - work for j in chain)


def _wanted(instance: ProcureInstance, column: Column, place: Place) -> bool:
    """Whether no purchase is put off for a job without a deadline of its own, but for its release."""
    job = instance.jobs[column.job]

    def waits(p: int) -> bool:
        pool: SupplyPool = instance.pools[p]
        first = instance.pools[instance.dated[p]].start_day
        return not pool.term_days and pool.start_day > max(first, job.release_day) + EPS

    return job.given_deadline or not any(p in instance.dated and waits(p) for p in place)
