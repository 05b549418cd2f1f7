"""Under a limit on what a month costs: every purchase and term once for each day on which it may begin.

Its first day decides in which months what is held costs money, and can be no share of a variable there, as it is
elsewhere (``late`` in :mod:`.integer_program`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from planner.procurement.program.calendar import first_days
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
        pools, dated = self.instance.pools, self.instance.dated
        return replace(
            solution,
            hold={dated.get(p, p): n for p, n in solution.hold.items()},
            run={j: tuple(dated.get(p, p) for p in place) for j, place in solution.run.items()},
            calendar=tuple(replace(s, pool=dated.get(s.pool, s.pool)) for s in solution.calendar),
            starts={dated[p]: pools[p].start_day for p in solution.hold if p in dated},
        )


def on_dates(instance: ProcureInstance, variant: ProcureVariant) -> OnDates | None:
    """The question with its pools on every day; None where it has too many columns then."""
    limit = monthly_limit(instance.asked, variant)
    tried = (_on(instance, variant, value) for value in ([limit] if limit else []) + [None])
    return next((OnDates(solution) for solution in tried if len(solution.columns) <= MOST_COLUMNS), None)


def _on(instance: ProcureInstance, variant: ProcureVariant, limit: float | None) -> ProcureInstance:
    pools = list(instance.pools)
    dated = dict[int, int]()
    dated_of = dict[int, list[int]]()
    for p in sorted({p for c in instance.columns for p in c.place}):
        dated_of[p] = [p]
        for day in _later(instance, p, limit):
            dated_of[p].append(len(pools))
            dated[len(pools)] = p
            pools.append(instance.pools[p].starting(day))
    places = [(c, place) for c in instance.columns for place in product(*(dated_of[p] for p in c.place))]
    survivals = {(c.job, q): instance.survivals[c.job, c.place] for c, q in places if instance.survivals}
    spread = replace(instance, pools=pools, dated=dated, survivals=survivals)
    columns = []
    for c, place in places:
        start, end = window(spread, c.job, place, variant)
        if c.days * variant.scale <= end - start + EPS and _wanted(spread, c, place):
            columns.append(replace(c, pool=place[0], other_pools=place[1:]))
    return replace(spread, columns=columns)


def _later(instance: ProcureInstance, p: int, limit: float | None) -> Iterator[float]:
    """Days after its delivery on which a pool may begin; a term also so that one of its jobs just ends with it, or just
    in time, or so that its first or last days in a month just keep the limit, alone or beside another pool.
    """
    pools = instance.pools
    horizon = instance.asked.horizon_days
    pool = pools[p]
    if not pool.held or pool.month_usd <= 0:
        return
    days = set(first_days(instance, pool))
    for c in instance.columns if pool.term_days else ():
        if p in c.place:
            job = instance.jobs[c.job]
            days |= {job.release_day + c.days - pool.term_days, job.deadline_day - c.days}
    if pool.term_days and limit is not None:
        for left in {limit, *(limit - q.month_usd for q in pools if q.held and q.month_usd < limit)}:
            part = left / pool.month_usd * DAYS_PER_MONTH
            for month in range(math.ceil((horizon + pool.term_days) / DAYS_PER_MONTH)):
                first = month * DAYS_PER_MONTH
                days |= {first - part, first + part - pool.term_days}
    last = horizon - pool.term_days if pool.sold_usd is not None else horizon - EPS
    yield from sorted(day for day in days if pool.start_day + EPS < day <= last)


def _wanted(instance: ProcureInstance, column: Column, place: Place) -> bool:
    """Whether no purchase is put off for a job without a deadline of its own, but for its release."""
    job = instance.jobs[column.job]

    def waits(p: int) -> bool:
        pool: SupplyPool = instance.pools[p]
        first = instance.pools[instance.dated[p]].start_day
        return not pool.term_days and pool.start_day > max(first, job.release_day) + EPS

    return job.given_deadline or not any(p in instance.dated and waits(p) for p in place)
