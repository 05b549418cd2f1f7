"""Smaller programs with the same answers: what dominance leaves out is missed by none, and jobs alike are counted."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from planner.base.solver import Outcome, Problem, Status
from planner.catalog import cluster
from planner.procurement.program import pruning
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings, alike
from planner.procurement.program.solve import best, solve
from planner.procurement.question.portfolio import Limits
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column
from tests.procuring import CATALOG, bought, hired, job, portfolio, random_instance
from tests.sequencing import scarce_instance

SETTINGS = Settings(gap=1e-9)
OFFERS = 6


def scarce_offers(seed: int) -> ProcureInstance:
    """Two or three jobs, some of which may be paused; six offers of few nodes, each in two sizes, to buy or to hire."""
    r = random.Random(seed)
    jobs = tuple(
        job(n, r.choice((25.0, 50.0, 100.0)), interruptible=r.random() < 0.3, restart_days=1.0)
        for n in range(r.choice((2, 3)))
    )
    hires, pools = r.random() < 0.5, list[SupplyPool]()
    for n in range(OFFERS):
        most = r.randint(2, 5)
        price = r.uniform(0.7, 1.3)
        for count in r.sample((1, 2, 3), 2):
            usd = price * count * r.uniform(0.9, 1.1)
            base = hired(2 * n + 1, 1e3 * usd) if hires else bought(0, 1e5 * usd, 1e3 * usd, 10.0 * count)
            pools.append(
                replace(base, id=f"{n} {count}", offer=f"offer {n}", at_most=most, copies=len(jobs), power=1e3 * count,
                        cluster=cluster(CATALOG, base.node.id, count, None, "us"))
            )  # fmt: skip
    speed = [r.uniform(0.8, 1.2) for _ in range(OFFERS)]
    columns = [
        Column(j, p, days, 1e3)
        for j in range(len(jobs))
        for p, pool in enumerate(pools)
        if (days := r.uniform(9, 11) * (j + 2) / pool.nodes / speed[p // 2]) and pool.nodes <= (pool.at_most or 0)
    ]
    limits = Limits(power=r.choice((None, 4e3)))
    return ProcureInstance(portfolio(jobs, limits=limits), pools, columns)


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
def test_no_answer_needs_what_is_left_out(across: bool) -> None:
    fewer = 0
    for seed in range(40):
        instance = scarce_offers(seed)
        lean = replace(instance, columns=pruning.undominated(instance, across=across))
        fewer += len(lean.columns) < len(instance.columns)
        sought = ProcureVariant(minimise="quantity:offer 0", dropped=frozenset({"quantity:offer 0"}))
        for variant in (ProcureVariant(), sought):
            whole, found = (solve(each, variant, SETTINGS) for each in (instance, lean))
            assert (whole is None) == (found is None), seed
            if whole is not None and found is not None:
                assert found.value == pytest.approx(whole.value, rel=1e-6, abs=1e-9), (seed, variant.minimise)
    assert fewer > 18


def test_many_offers_that_run_out_stand_for_one_that_they_dominate() -> None:
    # Of two jobs, one at most is on another's nodes: of three offers that are better, two may be sought and in use.
    jobs = (job(0, 15.0), job(1, 15.0))
    for better, kept in ((2, 3), (3, 3)):
        pools = [replace(hired(1, 100.0 + n), id=f"{n}", offer=f"{n}", at_most=1, copies=2) for n in range(better + 1)]
        columns = [Column(j, p, 10.0, 1e3) for j in range(2) for p in range(better + 1)]
        instance = ProcureInstance(portfolio(jobs), pools, columns)
        left = pruning.undominated(instance, across=True)
        assert {c.pool for c in left} == set(range(kept)), better
        found = best(replace(instance, columns=left), ProcureVariant(), "cost", SETTINGS)
        assert found is not None and found.cost == pytest.approx(2_010.0)


def test_less_in_all_but_more_in_a_month_is_no_better() -> None:
    # In one piece, the dear one takes $91,000 of its middle month, and the cheap one $49,000.
    pools, limits = [hired(0, 3_000.0), hired(2, 1_600.0)], Limits(monthly=50e3)
    asked = portfolio((job(0, 100.0),), limits=limits)
    instance = ProcureInstance(asked, pools, [Column(0, 0, 37.0, 1e3), Column(0, 1, 70.0, 1e3)])
    lean = replace(instance, columns=pruning.undominated(instance, across=True))
    found = best(lean, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.run == {0: (1,)}


def test_less_in_all_but_more_for_a_pause_is_no_better() -> None:
    # One copy of either, and a job in the middle: a pause of 4 days takes back what 24 days have saved.
    jobs = (replace(job(0, 36.0), interruptible=True, restart_days=4.0), job(1, 16.0, 10.0))
    pools = [bought(0, 1e5, 0.0, 1_630.0, copies=2), replace(bought(0, 1e5, 0.0, 1_600.0, copies=2), id="slower")]
    columns = [Column(0, 0, 24.0, 1e3), Column(0, 1, 24.5, 1e3), Column(1, 0, 5.0, 1e3), Column(1, 1, 5.0, 1e3)]
    instance = ProcureInstance(portfolio(jobs), pools, columns)
    lean = replace(instance, columns=pruning.undominated(instance))
    found = best(lean, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.cost == pytest.approx(1e5 + (24.5 + 4.0 + 5.0) * 1_600.0)


def test_jobs_alike_are_counted_and_not_told_apart() -> None:
    # Four jobs that differ in name and priority alone, against four whose days differ by less than anything counts.
    for seed in range(12):
        r, few = random.Random(seed), random_instance(seed, copies=2)
        jobs = tuple(replace(few.jobs[0], name=f"job {n}", priority=n, interruptible=seed % 2 == 0) for n in range(4))
        pools = [replace(pool, copies=r.choice((1, 2, 4))) for pool in few.pools]
        columns = [replace(c, job=n) for c in few.columns if c.job == 0 for n in range(4)]
        same = ProcureInstance(replace(few.asked, jobs=jobs), pools, columns)
        unlike = replace(same, columns=[replace(c, days=c.days * (1 + 1e-9 * c.job)) for c in columns])
        assert [len(alike(each, ProcureVariant())) for each in (same, unlike)] == [1, 4]
        one, other = (best(each, ProcureVariant(), "cost", SETTINGS) for each in (same, unlike))
        assert (one is None) == (other is None), seed
        if one is not None and other is not None:
            assert one.value == pytest.approx(other.value, rel=1e-6), seed
            assert {s.job for s in one.calendar} == set(range(4))


def test_out_of_time_the_order_is_sought_on_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, fewer = Problem.solve, 0
    for seed in range(24):
        instance, asked = scarce_instance(seed), list[int]()

        def out_of_time(problem: Problem, asked: list[int] = asked, **options: Any) -> Outcome:
            found = usual(problem, **options)
            asked.append(len(problem.columns))
            late = len(asked) == 1 and found.status is Status.OPTIMAL
            return replace(found, status=Status.FEASIBLE, bound=0.5 * found.bound) if late else found

        with monkeypatch.context() as patched:
            best_of_all = best(instance, ProcureVariant(), "cost", SETTINGS)
            patched.setattr(Problem, "solve", out_of_time)
            found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert (found is None) == (best_of_all is None), seed
        if found is not None and best_of_all is not None:
            fewer += asked[1] < asked[0]
            assert found.bound <= best_of_all.value * (1 + 1e-9) <= found.value * (1 + 1e-6), seed
            assert found.gap > 0.3 or len(asked) == 1, seed
    assert fewer > 8
