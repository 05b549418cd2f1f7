"""Under a limit on what a month costs, too, purchases and terms begin when that is best: every set of days tried."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.procurement.program import on_dates
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best, excluded
from planner.procurement.question.portfolio import Limits
from planner.procurement.throughput.column import Column
from tests.procuring import HORIZON, bought, job, portfolio
from tests.sequencing import TERM, hire

MONTH = 365.25 / 12
SETTINGS = Settings(gap=1e-9)
Days = dict[tuple[int, int], float]


def monthly(seed: int) -> ProcureInstance:
    """One to three jobs, two clusters to buy and one to be had for 40 days, all paid by the month alone."""
    r = random.Random(seed)
    jobs = tuple(
        job(n, r.choice((45.0, 70.0, 100.0)), r.choice((0.0, 0.0, 10.0, 40.0))) for n in range(r.randint(1, 3))
    )
    pools = [bought(n, r.uniform(2e4, 6e4), r.uniform(1e4, 3e4), start_day=r.choice((0.0, 20.0))) for n in range(2)]
    term = hire("reserved-1y", TERM, 2, month_usd=r.uniform(1e4, 5e4), held_days=40.0, end_day=40.0)
    pools.append(replace(term, copies=1))
    days = {(j, p): r.uniform(3, 40) for j in range(len(jobs)) for p in range(3) if r.random() < 0.8}
    columns = [Column(j, p, d, jobs[j].tokens / d / 86400) for (j, p), d in days.items()]
    limits = Limits(monthly=r.uniform(1e4, 3e4))
    return ProcureInstance(portfolio(jobs, "cost", limits), pools, columns)


def least_cost(instance: ProcureInstance) -> float:
    """Every assignment, with every day on which each of its clusters may begin, in every order."""
    days = {(c.job, c.pool): c.days for c in instance.columns}
    found = math.inf
    for run in itertools.product(range(len(instance.pools)), repeat=len(instance.jobs)):
        if all((j, p) in days for j, p in enumerate(run)):
            mine = {p: [j for j, q in enumerate(run) if q == p] for p in run}
            starts = [
                [day for day in _starts(instance, p, js, days) if _done(instance, js, p, days, day)]
                for p, js in mine.items()
            ]
            for chosen in itertools.product(*starts):
                found = min(found, _cost(instance, dict(zip(mine, chosen, strict=True))))
    return found


def _ends(instance: ProcureInstance, p: int, start: float) -> float:
    return start + 40.0 if instance.pools[p].term_days else HORIZON


def _starts(instance: ProcureInstance, p: int, mine: Sequence[int], days: Days) -> list[float]:
    """Delivery, releases, months and the latest on which jobs in a chain are done just in time; a term any half day."""
    pool = instance.pools[p]
    starts = {pool.start_day, *(each.release_day for each in instance.jobs), *(n * MONTH for n in range(4))}
    if pool.term_days:
        starts |= {n / 2 for n in range(2 * int(HORIZON))}
    for chain in itertools.chain.from_iterable(itertools.combinations(mine, n + 1) for n in range(len(mine))):
        starts |= {instance.jobs[j].deadline_day - sum(days[k, p] for k in chain) for j in chain}
    return sorted(day for day in starts if pool.start_day <= day < HORIZON)


def _done(instance: ProcureInstance, mine: Sequence[int], p: int, days: Days, start: float) -> bool:
    for order in itertools.permutations(mine):
        free = start
        for j in order:
            free = max(free, instance.jobs[j].release_day) + days[j, p]
            if free > min(instance.jobs[j].deadline_day, _ends(instance, p, start)) + 1e-9:
                break
        else:
            return True
    return False


def _cost(instance: ProcureInstance, starts: dict[int, float]) -> float:
    """Of holding these from their days on; infinite where a month costs more than it may."""
    cost, months = 0.0, [0.0] * 6
    for p, start in starts.items():
        pool, end = instance.pools[p], _ends(instance, p, start)
        cost += pool.capital + pool.month_usd * (end - start) / MONTH
        for n in range(6):
            months[n] += pool.month_usd * max(0.0, min(end, (n + 1) * MONTH) - max(start, n * MONTH)) / MONTH
    assert instance.asked.limits.monthly is not None
    return cost if max(months) <= instance.asked.limits.monthly * (1 + 1e-9) else math.inf


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_agrees_with_every_day_on_which_anything_may_begin(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = later = bound = 0
    for seed in range(part, 120, 2):
        instance = monthly(seed)
        wanted = least_cost(instance)
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert (found is None) == math.isinf(wanted), seed
        assert math.isinf(wanted) or not excluded(instance, SETTINGS), seed
        if found is None:
            continue
        answered += 1
        held = {p: found.starts.get(p, instance.pools[p].start_day) for p in found.hold}
        assert found.value == pytest.approx(_cost(instance, held), rel=1e-6), seed
        assert found.bound <= wanted * (1 + 1e-6) and found.value <= wanted * (1 + 1e-6), seed
        with monkeypatch.context() as few:  # a question that is too large for it claims no more than it looked at
            few.setattr(on_dates, "MOST_COLUMNS", 0)
            assert not excluded(instance, SETTINGS)
            first = best(instance, ProcureVariant(), "cost", SETTINGS)
            assert first is None or first.bound <= wanted * (1 + 1e-6) <= first.value * (1 + 2e-6), seed
            later += first is None or first.value > wanted * (1 + 1e-6)
        free = replace(instance, asked=replace(instance.asked, limits=Limits()))
        unlimited = best(free, ProcureVariant(), "cost", SETTINGS)
        bound += unlimited is not None and unlimited.value < wanted * (1 - 1e-6)
    assert answered > 15 and later > 1 and bound > 1


def test_a_month_after_all_is_done_keeps_the_limit_too() -> None:
    # Done on day 45, in a month of which only the last days are paid for; the next one would cost three times as much.
    held = bought(0, 1e5, 3e4)
    asked = portfolio((job(0, 60.0, 40.0),), "time", Limits(monthly=1.5e4))
    instance = ProcureInstance(asked, [held], [Column(0, 0, 5.0, 1e3)])
    assert best(instance, ProcureVariant(), "time", SETTINGS) is None
    assert not excluded(instance, SETTINGS)  # other days than those that are tried might keep the limit
