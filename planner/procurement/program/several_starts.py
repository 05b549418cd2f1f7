"""Copies of one offer that begin on different days: the offer as several pools, each with a first day of its own.

The copies of a pool all begin together (``late`` in :mod:`.integer_program`). A term for the jobs of this year and
another one for jobs two years on are therefore two pools, of which together no more can be had than of the one offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from planner.procurement.program.instance import ProcureInstance, ProgramSolution
from planner.procurement.program.job_order import EPS
from planner.procurement.supply.pools import SupplyPool

COUNT_MONEY = ("cost", "tokens-per-dollar")
"""Objectives to which it matters that a purchase costs less if it begins later."""
MOST_STARTS = 6
"""Days on which copies of one offer may begin, at most."""
MOST_COLUMNS = 2000
"""Columns with all the pools that are added; of a larger question the copies begin on fewer days."""


def with_several_starts(instance: ProcureInstance) -> ProcureInstance:
    """The instance with every purchase and term once for each day on which some of its copies may begin.

    The pools that are added depend on the offers and jobs alone, so that instances of one question with fewer columns
    name them alike.
    """
    starts = _starts(instance)
    pools = list(instance.pools)
    repeats = dict[int, int]()
    same = {p: [p] for p in range(len(pools))}
    for p, wanted in starts.items():
        pools[p] = replace(pools[p], lengths_of=pools[p].lengths_of or pools[p].id)
        for n in range(2, min(MOST_STARTS, wanted) + 1):
            same[p].append(len(pools))
            repeats[len(pools)] = p
            pools.append(replace(pools[p], id=f"{pools[p].id} (start {n})"))

    most = _most_starts(instance, starts)
    places = [(c, place) for c in instance.columns for place in product(*(same[p][:most] for p in c.place))]
    survivals = {(c.job, place): instance.survivals[c.job, c.place] for c, place in places if instance.survivals}
    return replace(
        instance,
        pools=pools,
        columns=[replace(c, pool=place[0], other_pools=place[1:]) for c, place in places],
        survivals={**instance.survivals, **survivals},
        repeats=repeats,
    )


def merged(instance: ProcureInstance, solution: ProgramSolution) -> ProgramSolution:
    """The answer with copies of one offer that begin on the same day as copies of one pool."""
    hold = dict[int, int]()
    pool_of = dict[int, int]()
    copies_before = dict[int, int]()
    for p, copies in sorted(solution.hold.items()):
        same = (q for q in hold if _begin_together(instance, solution, p, q))
        q = next(same, p)
        pool_of[p] = q
        copies_before[p] = hold.get(q, 0)
        hold[q] = copies_before[p] + copies

    return replace(
        solution,
        hold=hold,
        run={j: tuple(pool_of.get(p, p) for p in place) for j, place in solution.run.items()},
        calendar=tuple(
            replace(s, pool=pool_of.get(s.pool, s.pool), copy=s.copy + copies_before.get(s.pool, 0))
            for s in solution.calendar
        ),
        starts={p: day for p, day in solution.starts.items() if p in hold},
    )


def _begin_together(instance: ProcureInstance, solution: ProgramSolution, p: int, q: int) -> bool:
    days = [solution.starts.get(pool, instance.pools[pool].start_day) for pool in (p, q)]
    return instance.as_offered((p,)) == instance.as_offered((q,)) and abs(days[0] - days[1]) <= EPS


def has_all_starts(instance: ProcureInstance, most_usd: float) -> bool:
    """Whether the columns leave every offer as many first days as may be of use to an answer of so many US dollars."""
    jobs: dict[int, set[int]] = {}
    tried: dict[int, set[int]] = {}
    for c in instance.columns:
        for p, offered in zip(c.place, instance.as_offered(c.place), strict=True):
            jobs.setdefault(offered, set()).add(c.job)
            tried.setdefault(offered, set()).add(p)
    wanted = _starts(instance)
    return all(
        min(wanted.get(p, 1), len(jobs[p])) <= len(tried[p])
        or (len(tried[p]) + 1) * _least_usd(instance.pools[p]) > most_usd
        for p in tried
    )


def _least_usd(pool: SupplyPool) -> float:
    """US dollars that a copy costs, at least, on whatever day it begins."""
    whole = pool.fixed_charge if pool.day_charge == 0 else 0.0
    return whole + (pool.held_usd if pool.term_days else 0.0)


def _starts(instance: ProcureInstance) -> dict[int, int]:
    """Pool -> days on which its copies may need to begin: one a job, where the first day matters.

    It does for what ends before the last job must, and for purchases that cost less if they begin later.
    """
    windows = {(job.release_day, job.deadline_day) for job in instance.jobs}
    last = max(deadline for _, deadline in windows)

    def matters(pool: SupplyPool) -> bool:
        if pool.term_days:
            return len(windows) > 1 and pool.last_day < last
        return pool.idle_usd > 0 and instance.asked.objective in COUNT_MONEY

    return {
        p: min(pool.copies, len(instance.jobs))
        for p, pool in enumerate(instance.pools)
        if pool.held and p not in instance.repeats and matters(pool)
    }


def _most_starts(instance: ProcureInstance, starts: Mapping[int, int]) -> int:
    """The most first days of one offer with which there are not too many columns."""
    for most in range(MOST_STARTS, 1, -1):
        if sum(prod(min(most, starts.get(p, 1)) for p in c.place) for c in instance.columns) <= MOST_COLUMNS:
            return most
    return 1
