"""Nodes over time: every order of every assignment finds what the program finds."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from planner.base.errors import NoAnswer
from planner.base.solver import Linear, Outcome, Problem, Status
from planner.procurement.program import cuts, infeasible, shadow_prices
from planner.procurement.program import solve as solving
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, ProgramSolution, Settings
from planner.procurement.program.solve import best, solve
from planner.procurement.throughput.column import Column
from tests.procuring import best_value, bought, hired, job, portfolio, random_instance
from tests.sequencing import QUOTA, TERM, hire, least_cost, scarce_instance
from tests.sweeps import depth, sweep

SETTINGS = Settings(gap=1e-9)
SEEDS = range(depth(320, 120))


@pytest.mark.slow
def test_agrees_with_every_order_of_every_assignment() -> None:
    answered = queued = 0
    for seed in SEEDS:
        instance = scarce_instance(seed)
        wanted = least_cost(instance)
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert (found is None) == math.isinf(wanted), seed
        if found is not None:
            answered += 1
            queued += _queues(instance, found)
            assert found.value == pytest.approx(wanted, rel=1e-6), seed
            assert found.bound <= wanted * (1 + 1e-6), seed
    assert answered > len(SEEDS) / 2 and queued > len(SEEDS) / 10


@pytest.mark.slow
def test_what_may_matter_is_asked_first_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MANY", 4)
    mattering = cuts._mattering
    left: list[int] = []

    def counted(instance: ProcureInstance, *of: Any) -> ProcureInstance:
        fewer = mattering(instance, *of)
        left.append(len(fewer.columns) - len(instance.columns))
        return fewer

    monkeypatch.setattr(cuts, "_mattering", counted)
    narrowed = 0
    for seed in SEEDS[::5]:
        for instance, wanted in ((scarce_instance(seed), least_cost), (random_instance(seed), best_cost)):
            least = wanted(instance)
            found = best(instance, ProcureVariant(), "cost", SETTINGS)
            assert (found is None) == math.isinf(least), seed
            if found is not None:
                narrowed += len(instance.columns) >= 4
                assert found.value == pytest.approx(least, rel=1e-6), seed
                assert found.bound <= least * (1 + 1e-6), seed
    assert narrowed > 30 and sum(less < 0 for less in left) > 15


def best_cost(instance: ProcureInstance) -> float:
    return best_value(instance, "cost")


@pytest.mark.parametrize("by", [3e-8, 1e-7])
def test_jobs_that_differ_by_next_to_nothing_lose_no_answer(by: float) -> None:
    # Here HiGHS 1.15 alone would take a term for three of the jobs, though all of them have room in the quota.
    whole, r = scarce_instance(25), random.Random(25)
    first = [c for c in whole.columns if c.job == 0]
    jobs = tuple(replace(each, release_day=0.0, deadline_day=3 * first[4].days) for each in whole.jobs)
    columns = [replace(c, job=j, days=c.days * (1 + by * r.uniform(-1, 1))) for j in range(len(jobs)) for c in first]
    instance = replace(whole, asked=replace(whole.asked, jobs=jobs), columns=columns)
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.value == pytest.approx(least_cost(instance), rel=1e-6)


def _queues(instance: ProcureInstance, found: ProgramSolution) -> bool:
    """Whether some job waits for its nodes."""
    first = {s.job: s.start for s in reversed(found.calendar)}
    return any(day > instance.jobs[j].release_day + 1e-6 for j, day in first.items())


def test_a_purchase_waits_for_its_job_and_not_for_the_end_of_the_plan() -> None:
    released = job(0, 100.0, 40.0)
    pool = bought(0, 1e5, 3_000.0)
    for given, day in ((True, 65.0), (False, 40.0)):
        # Of 20 days of work: with a deadline the last day on which it can begin, without one as soon as it may.
        asked = portfolio((replace(released, deadline_day=85.0 if given else 100.0, given_deadline=given),))
        instance = ProcureInstance(asked, [pool], [Column(0, 0, 20.0, 1e3)])
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert found is not None and found.starts == {0: pytest.approx(day)}
        assert found.cost == pytest.approx(1e5 + 3_000.0 * (100.0 - day) / (365.25 / 12))


def test_a_purchase_waits_for_the_jobs_that_it_does_alone() -> None:
    # The job that is due soon could run on what is bought, too, and is hired for: the other one is due in time.
    soon, later = job(0, 40.0), job(1, 100.0)
    pools = [bought(0, 1e5, 3_000.0), hired(1, 10.0)]
    columns = [Column(0, 0, 20.0, 1e3), Column(0, 1, 20.0, 1e3), Column(1, 0, 20.0, 1e3)]
    found = best(ProcureInstance(portfolio((soon, later)), pools, columns), ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.run == {0: (1,), 1: (0,)} and found.starts == {0: pytest.approx(80.0)}


def test_a_term_that_ends_before_another_job_is_released_serves_those_before() -> None:
    soon, later = job(0, 30.0), job(1, 100.0, 60.0)
    term = replace(hired(0, 0.0), way="reserved-1y", month_usd=900.0, copies=1, held_days=40.0, end_day=40.0)
    columns = [Column(0, 0, 20.0, 1e3), Column(1, 0, 20.0, 1e3), Column(1, 1, 20.0, 1e3)]
    asked = ProcureInstance(portfolio((soon, later)), [term, hired(1, 10.0)], columns)
    found = best(asked, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.run == {0: (0,), 1: (1,)}


def test_what_was_proven_stays_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    # Five and five of nine nodes have room for the work of both jobs and are not there at once, which is asked next.
    asked = portfolio((job(0, 39.0), job(1, 39.0)))
    pools = [hire("on-demand", QUOTA, 5, day_usd=100.0, at_most=9), hire("spot", TERM, 2, day_usd=300.0)]
    instance = ProcureInstance(asked, pools, [Column(j, p, 20.0, 1e3) for j in (0, 1) for p in (0, 1)])
    solve_program, rounds = Problem.solve, []

    def out_of_time(program: Problem, **how: object) -> Outcome:
        outcome = solve_program(program, **how)  # type: ignore[arg-type]
        rounds.append("run_0_1" in program.columns)
        return replace(outcome, status=Status.FEASIBLE, bound=0.0) if rounds[-1] and sum(rounds) > 1 else outcome

    monkeypatch.setattr(Problem, "solve", out_of_time)
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and sum(rounds) == 2
    assert found.value == pytest.approx(20.0 * 100.0 + 20.0 * 300.0)
    assert found.bound == pytest.approx(2 * 20.0 * 100.0)


@pytest.mark.slow
@sweep(("late", "nothing", "rounds"), [(0.6, 0.0, 400), (0.6, 0.4, 400), (0.0, 0.0, 1)])
def test_out_of_time_the_best_that_was_seen_is_answered(
    late: float, nothing: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "MANY", 4)
    monkeypatch.setattr(solving, "ROUNDS", rounds)
    seen: list[float] = []
    solve_program, as_solution, r = Problem.solve, solving._solution_of, random.Random(0)

    def out_of_time(program: Problem, **how: object) -> Outcome:
        outcome = solve_program(program, **how)  # type: ignore[arg-type]
        if not outcome.status.found or not program.objective.coefficients or r.random() >= late:
            return outcome
        if r.random() < nothing:
            return Outcome(Status.UNKNOWN, math.inf, -math.inf)
        other = program.relaxed(())
        other.minimise(Linear({name: r.random() for name in program.columns if not name.startswith("late")}))
        some = solve_program(other, **how)  # type: ignore[arg-type]
        return Outcome(Status.FEASIBLE, some.value(program.objective), -math.inf, some.values)

    def noted(*given: Any) -> ProgramSolution:
        found = as_solution(*given)
        seen.append(found.value * 1e3)
        return found

    monkeypatch.setattr(Problem, "solve", out_of_time)
    monkeypatch.setattr(solving, "_solution_of", noted)
    answered = 0
    for seed in range(60):
        seen.clear()
        try:
            found = best(scarce_instance(seed), ProcureVariant(), "cost", SETTINGS)
        except NoAnswer:
            assert not seen, seed
            continue
        if found is not None:
            answered += 1
            least = least_cost(scarce_instance(seed))
            assert found.value == pytest.approx(min(seen)), seed
            assert 0 <= found.bound <= least * (1 + 1e-6) and found.value >= least * (1 - 1e-6), seed
    assert answered > 20


def test_a_term_begins_when_its_job_does_and_is_renewed_for_one_that_is_longer() -> None:
    late = (job(0, 95.0, 50.0),)
    term = replace(hired(0, 0.0), way="reserved-1y", month_usd=900.0, copies=1)
    terms = [replace(term, id=f"{n}", held_days=40.0 * n, end_day=40.0 * n) for n in (1, 2)]
    columns = [[Column(0, p, days, 1e3) for p in (0, 1)] for days in (30.0, 44.0)]
    asked = (ProcureInstance(portfolio(late), terms, each) for each in columns)
    short, long = (best(instance, ProcureVariant(), "cost", SETTINGS) for instance in asked)
    assert short is not None and short.run == {0: (0,)} and short.starts == {0: 50.0}
    assert long is not None and long.run == {0: (1,)} and long.cost == pytest.approx(2 * short.cost)
    assert long.starts.get(1, 0.0) + 80.0 >= long.done


@pytest.mark.slow
def test_advice_names_the_least_that_suffices() -> None:
    told = 0
    for seed in SEEDS:
        whole = scarce_instance(seed)
        instance = replace(whole, columns=[c for c in whole.columns if whole.pools[c.pool].hired])
        if told >= 4 or {c.job for c in instance.columns} != set(range(len(whole.jobs))):
            continue
        if best(instance, ProcureVariant(), "cost", SETTINGS) is not None:
            continue
        found = infeasible.conflict(instance, SETTINGS)
        for name, value in found.relaxed.items():
            kind, enough = name.partition(":")[0], ProcureVariant(moved={name: value * (1 + 1e-9)})
            less = value - 1 if kind == "quantity" else value * (1 - 2e-3)
            within = infeasible.reaching(instance, value)
            assert best(within, enough, "cost", SETTINGS) is not None, (seed, name)
            assert best(within, ProcureVariant(moved={name: less}), "cost", SETTINGS) is None, (seed, name)
            told += kind == "quantity"
        assert solve(instance, ProcureVariant(scale=found.work * (1 - 1e-9)), SETTINGS) is not None, seed
    assert told >= 3


def test_what_a_longer_plan_would_do_is_not_said_to_fit_nowhere() -> None:
    # What is bought is there until the horizon; 150 days of work lack 50 days, and no machine.
    asked = portfolio((replace(job(0, 100.0), given_deadline=False),))
    found = infeasible.conflict(ProcureInstance(asked, [bought(0, 1e5)], [Column(0, 0, 150.0, 1e3)]), SETTINGS)
    assert (found.limits, found.nowhere) == (("horizon",), ())
    assert found.relaxed["horizon"] == pytest.approx(150.0, rel=2e-3)


def test_more_of_a_quota_sees_clusters_that_it_does_not_allow_yet() -> None:
    # Five nodes take 30 days at 500 USD, six take 10 at 600; five can be had.
    jobs = (job(0, 60.0),)
    pools = [hire("on-demand", QUOTA, n, day_usd=100.0 * n, at_most=5) for n in (5, 6)]
    instance = ProcureInstance(portfolio(jobs), pools, [Column(0, 0, 30.0, 1e3), Column(0, 1, 10.0, 3e3)])
    first = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert first is not None and first.run == {0: (0,)}
    (worth,) = [x for x in shadow_prices.marginal_values(instance, first, SETTINGS) if x.limit == f"quantity:{QUOTA}"]
    assert worth.gain == pytest.approx(15_000.0 - 6_000.0)


def test_a_term_for_more_jobs_than_are_chained_begins_as_the_program_says() -> None:
    """Three of ten days each by day 37, two released on day 33 and due on day 57: fifty days from day 3 to 7 on."""
    jobs = (*(job(n, 37.0) for n in range(3)), *(job(n, 57.0, 33.0) for n in range(3, 5)))
    term = replace(hire("reserved-1y", QUOTA, 2, month_usd=1e4, held_days=50.0, end_day=50.0), copies=1)
    instance = ProcureInstance(portfolio(jobs), [term], [Column(n, 0, 10.0, 1e3) for n in range(5)])
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and 3.0 - 1e-6 <= found.starts[0] <= 7.0 + 1e-6
