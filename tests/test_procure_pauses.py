"""Jobs that may be paused: day by day, whatever runs, no schedule is better than the one that is found."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from planner.procurement.program import infeasible
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.job_order import Ground, Task, sequenced
from planner.procurement.program.solve import excluded, solve
from planner.procurement.question.portfolio import Limits
from planner.procurement.throughput.column import Column
from tests.procuring import job, portfolio
from tests.sequencing import QUOTA, hire
from tests.sweeps import sweep

A_PAUSE = 1e-6
"""US dollars, so that no one is paused in vain."""


def tasks(r: random.Random, most: int) -> list[Task]:
    """A long one and one or two short ones, in whole days; some may be paused."""
    return [_task(r, n, most, long=n == 0) for n in range(r.choice((2, 3, 3)))]


def _task(r: random.Random, n: int, most: int, *, long: bool) -> Task:
    start, days = (0, r.randrange(3, 7)) if long else (r.randrange(6), r.randrange(1, 3))
    due = min(13, start + days + (r.randrange(1, 7) if long else r.randrange(3)))
    restart, units = r.choice((None, 0.0, 0.0, 1.0, 1.0)), r.randrange(1, most + 1)
    return Task(job=n, start=start, due=due, days=days, takes={"nodes": units}, restart=restart, usd=r.randrange(1, 4))


def least_lost(asked: list[Task], most: int) -> float | None:
    """US dollars that pauses cost at least: every set of jobs on every day. None if nothing is in time."""
    last, sets = int(max(task.due for task in asked)), range(1 << len(asked))

    @cache
    def go(day: int, left: tuple[int, ...], ran: int) -> float | None:
        if not any(left):
            return 0.0
        if day == last:
            return None
        ways = [_worked(asked, most, day, left, ran, now) for now in sets]
        costs = [(usd, go(day + 1, then, now)) for now, (usd, then) in zip(sets, ways, strict=True) if then is not None]
        return min((usd + rest for usd, rest in costs if rest is not None), default=None)

    return go(0, tuple(int(task.days) for task in asked), 0)


def _worked(
    asked: list[Task], most: int, day: int, left: tuple[int, ...], ran: int, now: int
) -> tuple[float, tuple[int, ...] | None]:
    """What a day on which these jobs run costs in restarts, and the days left after it; None if it cannot be."""
    then, usd, units = list(left), 0.0, 0.0
    for task in asked:
        n, runs, before = task.job, now >> task.job & 1, ran >> task.job & 1
        begun = 0 < left[n] and (left[n] < task.days or before)
        if not runs:
            if begun and task.restart is None:
                return 0.0, None
            continue
        if not left[n] or not task.start <= day < task.due:
            return 0.0, None
        again = begun and not before
        usd += (task.restart or 0.0) * task.usd + A_PAUSE if again else 0.0
        then[n] += int(task.restart or 0.0) * again - 1
        units += task.takes["nodes"]
    return usd, tuple(then) if units <= most else None


@sweep("part", range(3))
def test_agrees_with_every_set_of_jobs_on_every_day(part: int) -> None:
    paused = 0
    for seed in range(part, 360, 3):
        r = random.Random(seed)
        most = r.choice((1, 2))
        asked = tasks(r, most)
        wanted, found = least_lost(asked, most), sequenced(asked, Ground(capacity={"nodes": most}))
        assert (found.times is None) == (wanted is None), seed
        if wanted is not None:
            paused += wanted > 0
            assert found.lost == pytest.approx(wanted, abs=1e-9), seed
    assert paused > 8


def test_two_jobs_within_a_third_wait_for_each_other() -> None:
    one, two = (Task(job=n, start=2 * n, due=2 * n + 3, days=2, takes={"nodes": 1}) for n in (1, 2))
    around = Task(job=0, start=0, due=7, days=4, takes={"nodes": 2}, restart=0.0, usd=2.0)
    found = sequenced([around, one, two], Ground(capacity={"nodes": 2}))
    assert found.times == {0: ((0, 3), (6, 7)), 1: ((3, 5),), 2: ((4, 6),)} and not found.lost > A_PAUSE
    # Three jobs of which one may be paused: what is not found is not excluded.
    tight = replace(around, days=6.0)
    assert sequenced([tight, one, two], Ground(capacity={"nodes": 2})) == replace(
        found, times=None, proven=False, lost=0.0
    )


def test_what_no_order_was_found_for_is_only_excluded_where_all_were_tried() -> None:
    """In one piece no month's money lasts: certain of one job alone, but of two not every order was tried."""
    pools = [hire("on-demand", QUOTA, 4, day_usd=100.0)]
    for count, sure in ((1, True), (2, False)):
        asked = replace(portfolio(tuple(job(n, 90.0) for n in range(count))), limits=Limits(monthly=2000.0 * count))
        columns = [Column(j, 0, 50.0, 1e3) for j in range(count)]
        instance = ProcureInstance(asked, pools, columns)
        assert solve(instance, ProcureVariant(), Settings(gap=1e-9)) is None
        assert excluded(instance) is sure


def test_more_money_a_month_is_advised_as_a_job_in_one_piece_needs_it() -> None:
    """50 days at 100 USD: 25 days in each of two months, though spread over three a month would take 1,667."""
    asked = replace(portfolio((job(0, 90.0),)), limits=Limits(monthly=1500.0))
    pools = [hire("on-demand", QUOTA, 4, day_usd=100.0)]
    found = infeasible.conflict(ProcureInstance(asked, pools, [Column(0, 0, 50.0, 1e3)]), Settings(gap=1e-9))
    assert found.relaxed["monthly"] == pytest.approx(2500.0, rel=2e-3)


def test_a_month_holds_no_more_days_of_a_window_than_lie_in_it() -> None:
    """Released on day 20 and due after two months, 40 days leave 29.6 to the second: at 100 USD, 5,913 for two jobs."""
    pools = [hire("on-demand", QUOTA, 4, day_usd=100.0)]
    for monthly, sure in ((5900.0, True), (5950.0, False)):
        asked = replace(portfolio((job(0, 60.875, 20.0), job(1, 60.875, 20.0))), limits=Limits(monthly=monthly))
        assert excluded(ProcureInstance(asked, pools, [Column(j, 0, 40.0, 1e3) for j in range(2)])) is sure
