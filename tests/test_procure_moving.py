"""The bound on answers whose jobs move between pools: below every one of them, and often near the best."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.moving import least
from planner.procurement.program.solve import best
from planner.procurement.question.portfolio import Limits
from planner.procurement.throughput.column import Column
from planner.question.values import DAY_S
from tests.procuring import best_value, hired, job, portfolio, random_instance


def bound_of(instance: ProcureInstance, value: float) -> float:
    days = {(c.job, c.pool): c.days for c in instance.columns}
    bound = least(instance, lambda j, p: days.get((j, p)), value, lambda pair: False)
    assert bound is not None
    return bound


def with_a_slow_machine(seed: int) -> ProcureInstance:
    """A random question with one machine more: cheap, and a little too slow for every deadline."""
    instance = random_instance(seed)
    last = len(instance.pools)
    slow = replace(hired(1, 300.0), id="slow")
    columns = [Column(j, last, 1.2 * (x.deadline_day - x.release_day), 1e3) for j, x in enumerate(instance.jobs)]
    return replace(instance, pools=[*instance.pools, slow], columns=[*instance.columns, *columns])


def with_a_move(instance: ProcureInstance) -> Iterator[ProcureInstance]:
    """Questions whose answers are some with a move: one job is two, of which the second begins where the first ends."""
    for j, share, when in itertools.product(range(len(instance.jobs)), (0.3, 0.6), (0.4, 0.8)):
        moved = instance.jobs[j]
        day = moved.release_day + when * (moved.deadline_day - moved.release_day)
        first = replace(moved, deadline_day=day)
        second = replace(moved, name="second", release_day=day)
        jobs = [*instance.jobs[:j], first, *instance.jobs[j + 1 :], second]
        columns = [replace(c, days=c.days * share) if c.job == j else c for c in instance.columns]
        columns += [replace(c, job=len(jobs) - 1, days=c.days * (1 - share)) for c in instance.columns if c.job == j]
        yield replace(instance, asked=replace(instance.asked, jobs=tuple(jobs)), columns=columns)


def test_no_answer_with_a_move_costs_less_than_the_bound() -> None:
    cheaper = near = answered = 0
    for seed in (*range(9), *range(13, 30, 4)):
        instance = with_a_slow_machine(seed) if seed > 8 or seed == 5 else random_instance(seed)
        value = best_value(instance, "cost")
        if math.isinf(value):
            continue
        moving = min(value, *(best_value(question, "cost") for question in with_a_move(instance)))

        bound = bound_of(instance, value)

        assert bound <= moving * (1 + 1e-6), seed
        assert bound_of(instance, 2 * value) <= moving * (1 + 1e-6), f"{seed}: the known answer is what keeps it low"
        answered += 1
        cheaper += moving < value * (1 - 1e-6)
        near += bound > 0.9 * moving
    assert cheaper >= 3 and near > answered / 2


def test_no_answer_with_a_move_emits_less_than_the_bound() -> None:
    answered = cleaner = 0
    for seed in range(9):
        instance = with_a_slow_machine(seed)
        instance = replace(instance, asked=replace(instance.asked, objective="carbon"))
        value = best_value(instance, "carbon")
        if math.isinf(value):
            continue
        moving = min(value, *(best_value(question, "carbon") for question in with_a_move(instance)))

        assert bound_of(instance, value) <= moving * (1 + 1e-6), seed
        answered += 1
        cleaner += moving < value * (1 - 1e-6)
    assert answered > 3 and cleaner


def test_bound_is_what_a_move_saves() -> None:
    """60 days of work at $100 a day are late on day 40; half of it there, half at $400 in 10 of 20 days: $7,000 in all.

    Alone the fast machine costs $8,000.
    """
    pools = [hired(0, 100.0), hired(1, 400.0)]
    instance = ProcureInstance(portfolio((job(0, 40.0),)), pools, [Column(0, 0, 60.0, 1e3), Column(0, 1, 20.0, 3e3)])
    alone = best(instance, ProcureVariant(), "cost", Settings(gap=1e-9))
    assert alone is not None and alone.value == pytest.approx(8000.0)

    assert bound_of(instance, alone.value) == pytest.approx(7000.0)


def test_unknown_plans_are_searched_where_the_bound_would_use_them() -> None:
    """At the best rate the cheap machine takes 30 days, $3,000; its plan takes 60, as above."""
    pools = [hired(0, 100.0), hired(1, 400.0)]
    instance = ProcureInstance(portfolio((job(0, 40.0),)), pools, [])
    days = {(0, 0): 30.0, (0, 1): 20.0}

    def search(pair: tuple[int, int]) -> bool:
        days.update({(0, 0): 60.0} if pair == (0, 0) else {})
        return pair == (0, 0)

    assert least(instance, lambda j, p: days[j, p], 8000.0, search) == pytest.approx(7000.0)


def test_bound_is_what_a_move_trains_more() -> None:
    """For $7,000 the machine at $400 a day trains 17.5 days at 3,000 tokens/s; 10 days there and 30 at $100 and 1,000
    tokens/s are 40 days of 1,500.
    """
    asked = portfolio((replace(job(0, 40.0), tokens=1e3 * DAY_S),), "tokens", Limits(budget=7000.0))
    columns = [Column(0, 0, 1.0, 1e3), Column(0, 1, 1 / 3, 3e3)]
    instance = ProcureInstance(asked, [hired(0, 100.0), hired(1, 400.0)], columns)
    alone = best(instance, ProcureVariant(), "tokens", Settings(gap=1e-9))
    assert alone is not None and alone.value == pytest.approx(-17.5 * 3e3 * DAY_S / 1e6)

    assert bound_of(instance, alone.value) == pytest.approx(-40 * 1.5e3 * DAY_S / 1e6)


def test_bound_is_how_much_sooner_a_move_ends() -> None:
    """40 days at 1,000 tokens/s and $100 a day; at 3,000 and $400 it would be 13 1/3 days, dearer than the $4,600."""
    asked = portfolio((replace(job(0, 60.0), tokens=40e3 * DAY_S),), "time", Limits(budget=4600.0))
    columns = [Column(0, 0, 40.0, 1e3), Column(0, 1, 40 / 3, 3e3)]
    instance = ProcureInstance(asked, [hired(0, 100.0), hired(1, 400.0)], columns)
    alone = best(instance, ProcureVariant(), "time", Settings(gap=1e-9))
    assert alone is not None and alone.value == pytest.approx(40.0)

    # a days at 3,000 and b at 1,000 tokens/s: 3 a + b = 40 and 400 a + 100 b = 4,600, so a = 6 and b = 22.
    assert 28.0 * 0.99 <= bound_of(instance, alone.value) <= 28.0
    # Nor does a machine that comes when all could be done make moves worth less.
    late = replace(hired(2, 100.0), start_day=39.0)
    more = ProcureInstance(asked, [*instance.pools, late], [*columns, Column(0, 2, 40 / 3, 3e3)])
    assert 28.0 * 0.99 <= bound_of(more, alone.value) <= 28.0
