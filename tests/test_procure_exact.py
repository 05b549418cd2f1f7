"""The integer program finds what trying everything finds, and behaves as an optimum must."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from planner.base.solver import SolverName, installed
from planner.procurement.program import infeasible, pruning, shadow_prices
from planner.procurement.program.alternatives import families, ranked
from planner.procurement.program.instance import FAR, ProcureInstance, ProcureVariant, Settings, limits
from planner.procurement.program.solve import best, excluded, solve
from planner.procurement.question.portfolio import Job, Limits
from planner.procurement.throughput.column import Column
from planner.question.plan_options import PlanOptions
from planner.question.values import DAYS_PER_MONTH
from tests.procuring import (
    answers,
    best_ratio,
    best_value,
    bought,
    hired,
    job,
    most_tokens_in_one_window,
    most_tokens_of_one,
    portfolio,
    random_instance,
    with_limits,
)
from tests.sweeps import depth, sweep

SETTINGS = Settings(gap=1e-9)
SEEDS = range(240)


@sweep("objective", ["cost", "carbon", "time"], every=4)
def test_agrees_with_trying_everything(objective: str) -> None:
    some, seeds = 0, SEEDS[: depth(240, 120)]
    for seed in seeds:
        instance = random_instance(seed)
        wanted = best_value(instance, objective)
        found = best(instance, ProcureVariant(), objective, SETTINGS)
        if math.isinf(wanted):
            assert found is None, seed
            continue
        some += 1
        assert found is not None, seed
        assert found.value == pytest.approx(wanted, rel=2e-4 if objective == "time" else 1e-6), seed
        assert found.bound <= wanted * (1 + 1e-6), seed
        # The same with dominated columns left out.
        lean = replace(instance, columns=pruning.undominated(instance, across=seed % 2 == 0))
        pruned = best(lean, ProcureVariant(), objective, SETTINGS)
        assert pruned is not None and pruned.value == pytest.approx(found.value, rel=2e-4), seed
    assert len(seeds) / 3 < some < len(seeds)  # both kinds of questions occur


@pytest.mark.parametrize("off", [-5e-6, 2e-6])
def test_a_budget_that_an_answer_just_keeps_or_misses(off: float) -> None:
    # Where carbon counts, too, what is bought later costs less, which may be what keeps the budget.
    answered = tighter = 0
    for seed in range(60):
        whole = with_limits(random_instance(seed), budget=None)
        costs = sorted(answer.cost for answer in answers(whole))
        if not costs:
            assert excluded(whole, SETTINGS), seed
            continue
        instance = with_limits(whole, budget=random.Random(seed).choice(costs) * (1 + off))
        wanted = best_value(instance, "carbon")
        found = best(instance, ProcureVariant(), "carbon", SETTINGS)
        assert (found is None) == math.isinf(wanted) == excluded(instance, SETTINGS), seed
        if found is not None:
            answered += 1
            tighter += wanted > best_value(whole, "carbon")
            assert found.value == pytest.approx(wanted, rel=1e-6) and found.bound <= wanted * (1 + 1e-6), seed
    assert answered > 10 and tighter > 1


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cost", "carbon"])
def test_agrees_with_trying_everything_in_several_copies(objective: str) -> None:
    several = 0
    for seed in range(120):
        instance = random_instance(seed, copies=3)
        wanted = best_value(instance, objective)
        found = best(instance, ProcureVariant(), objective, SETTINGS)
        assert (found is None) == math.isinf(wanted), seed
        if found is not None:
            assert found.value == pytest.approx(wanted, rel=1e-6), seed
            several += any(n > 1 for n in found.hold.values())
            assert all(s.copy < max(found.hold.get(s.pool, 1), 1) for s in found.calendar)
    assert several > 3


def _one_window(seed: int) -> ProcureInstance:
    """One or two jobs with one window, and the limits that what is held must keep: there the best ratio is a sum."""
    whole = random_instance(seed)
    jobs = tuple(replace(j, release_day=0.0, deadline_day=60.0) for j in whole.jobs[:2])
    given = whole.asked.limits
    limits = Limits(power=given.power, racks=given.racks, capital=given.capital)
    columns = [c for c in whole.columns if c.job < len(jobs)]
    return ProcureInstance(replace(whole.asked, jobs=jobs, limits=limits), whole.pools, columns)


@pytest.mark.slow
def test_most_tokens_per_dollar() -> None:
    answered = several = 0
    for seed in SEEDS:
        instance = _one_window(seed)
        wanted = best_ratio(instance, 60.0)
        found = best(instance, ProcureVariant(), "tokens-per-dollar", SETTINGS)
        assert (found is None) == (wanted == 0.0), seed
        if found is None:
            continue
        answered += 1
        several += len(instance.jobs) > 1
        assert -found.value * 1e6 == pytest.approx(wanted, rel=1e-5), seed
        assert found.bound <= found.value * (1 - 1e-9)
    assert answered > 150 and several > 60


def test_most_tokens_agree_with_trying_everything() -> None:
    """Of one job within a budget every pool is tried; of two jobs in one window every pair, each working to its end."""
    answered = limited = 0
    for seed in SEEDS:
        some = _one_window(seed)
        one = replace(random_instance(seed), columns=[c for c in some.columns if c.job == 0])
        one = replace(one, asked=replace(one.asked, jobs=one.jobs[:1]))
        for instance, wanted in ((one, most_tokens_of_one(one)), (some, most_tokens_in_one_window(some, 60.0))):
            found = best(instance, ProcureVariant(), "tokens", SETTINGS)
            assert (found is None) == (wanted == 0.0), seed
            if found is not None:
                answered += 1
                budget = instance.asked.limits.budget
                limited += budget is not None and found.use["budget"] > budget * 0.999
                assert -found.value * 1e6 == pytest.approx(wanted, rel=1e-5), seed
                assert found.bound <= found.value and -found.bound * 1e6 <= wanted * (1 + 1e-5), seed
    assert answered > 300 and limited > 5


@sweep("name", ["budget", "power", "capital", "racks", "carbon"])
def test_more_of_a_limit_is_never_worse(name: str) -> None:
    for seed in range(25):
        instance = random_instance(seed)
        have = getattr(instance.asked.limits, name)
        if have is None:
            continue
        values = []
        for factor in (0.7, 1.0, 1.5):
            found = best(with_limits(instance, **{name: have * factor}), ProcureVariant(), "cost", SETTINGS)
            values.append(math.inf if found is None else found.value)
        assert values[0] >= values[1] * (1 - 1e-6) and values[1] >= values[2] * (1 - 1e-6), seed


def test_held_machines_work_only_while_they_are_paid_for() -> None:
    held = bought(0, 1e5, 1e3)
    late = Job(name="late", model="llama3-8b", asked=PlanOptions(), tokens=1e9, deadline_day=100.0)
    instance = ProcureInstance(portfolio((late,)), [held], [Column(0, 0, 120.0, 1e3)])
    assert best(instance, ProcureVariant(moved={"horizon": 130.0}), "cost", SETTINGS) is None
    hire = ProcureInstance(portfolio((late,)), [hired(0, 100.0)], [Column(0, 0, 120.0, 1e3)])
    assert best(hire, ProcureVariant(moved={"horizon": 130.0}), "cost", SETTINGS) is not None


def _two_after_one_another(second: float, **more: object) -> ProcureInstance:
    """Two jobs of 12 days, each due 20 days after its release, the second from a day on, and one offer to hire."""
    jobs = (job(0, 20.0), job(1, second + 20.0, second))
    columns = [Column(j, 0, 12.0, 1e3) for j in range(2)]
    return ProcureInstance(portfolio(jobs), [replace(hired(0, 100.0), **more)], columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("scarce", [{"at_most": 1, "offer": "it"}, {"copies": 1}])
def test_hired_nodes_count_while_they_are_hired(scarce: dict[str, object]) -> None:
    at_once = _two_after_one_another(0.0, **scarce)
    assert best(at_once, ProcureVariant(), "cost", SETTINGS) is None
    later = _two_after_one_another(20.0, **scarce)
    found = best(later, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and set(found.run) == {0, 1}
    if "at_most" in scarce:
        assert infeasible.conflict(at_once, SETTINGS).relaxed["quantity:it"] == pytest.approx(2.0)


def test_scarce_machines_need_what_they_dominate() -> None:
    jobs = (job(0, 15.0), job(1, 15.0))
    offered = [replace(hired(0, 100.0), copies=1), replace(hired(2, 200.0), copies=1)]
    instance = ProcureInstance(portfolio(jobs), offered, [Column(j, p, 10.0, 1e3) for j in range(2) for p in range(2)])
    lean = replace(instance, columns=pruning.undominated(instance, across=True))
    found = best(lean, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and sorted(found.run.values()) == [(0,), (1,)]


def test_more_time_is_never_worse() -> None:
    for seed in range(25):
        instance = random_instance(seed)
        later = replace(
            instance.asked, jobs=tuple(replace(j, deadline_day=j.deadline_day * 1.4) for j in instance.jobs)
        )
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        if found is not None:
            more = best(replace(instance, asked=later), ProcureVariant(), "cost", SETTINGS)
            assert more is not None and more.value <= found.value * (1 + 1e-6)


def test_a_dominated_pool_is_never_chosen() -> None:
    for seed in range(25):
        instance = random_instance(seed)
        # A worse twin of the first pool: dearer and slower, otherwise the same.
        twin = replace(instance.pools[0], id="worse", fixed_charge=instance.pools[0].fixed_charge * 1.1 + 1.0)
        twin = replace(twin, items=tuple(replace(i, unit_price_usd=i.unit_price_usd * 1.1 + 1) for i in twin.items))
        last = len(instance.pools)
        slower = [Column(c.job, last, c.days * 1.05, c.tokens_per_s / 1.05) for c in instance.columns if c.pool == 0]
        copies = len(instance.jobs)
        pools = [replace(instance.pools[0], copies=copies), *instance.pools[1:], replace(twin, copies=copies)]
        both = ProcureInstance(instance.asked, pools, [*instance.columns, *slower])
        assert all(c.pool != last for c in pruning.undominated(both))
        found = best(both, ProcureVariant(), "cost", SETTINGS)
        assert found is None or last not in found.pools, seed


def test_a_job_runs_in_one_piece_unless_it_may_be_paused() -> None:
    # A job of 20 days by day 30 on one copy, and one of 5 days that has to run from day 10 to day 16.
    jobs = (job(0, 30.0), job(1, 16.0, 10.0))
    pool = bought(0, 1e5, copies=2)
    instance = ProcureInstance(portfolio(jobs), [pool], [Column(0, 0, 20.0, 1e3), Column(1, 0, 5.0, 1e3)])
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.hold == {0: 2}
    assert len(found.calendar) == 2
    paused = replace(instance, asked=replace(instance.asked, jobs=(replace(jobs[0], interruptible=True), jobs[1])))
    cheaper = best(paused, ProcureVariant(), "cost", SETTINGS)
    assert cheaper is not None and cheaper.hold == {0: 1}
    mine = [(s.start, s.end) for s in cheaper.calendar if s.job == 0]
    assert len(mine) == 2 and mine[0] == (0.0, 10.0) and mine[1][0] == pytest.approx(15.0)
    assert sum(end - start for start, end in mine) == pytest.approx(20.0 + jobs[0].restart_days)


def test_a_pause_costs_its_restart() -> None:
    # Two offers: the cheap one takes a pause of 8 days at 1,000 USD; the dear one costs 5,000 USD more and does not.
    jobs = (replace(job(0, 60.0), interruptible=True, restart_days=8.0), job(1, 16.0, 10.0))
    cheap, dear = replace(hired(0, 1_000.0), copies=1), hired(1, 1_250.0)
    columns = [Column(0, 0, 20.0, 1e3), Column(0, 1, 20.0, 1e3), Column(1, 0, 5.0, 1e3)]
    instance = ProcureInstance(portfolio(jobs), [cheap, dear], columns)
    free = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert free is not None and free.run[0] == (0,)  # after the other there is time: no pause at all
    assert free.cost == pytest.approx(25_000.0)
    hurried = replace(instance, asked=replace(instance.asked, jobs=(replace(jobs[0], deadline_day=34.0), jobs[1])))
    found = best(hurried, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.run[0] == (1,) and found.cost == pytest.approx(30_000.0)
    only = replace(hurried, columns=[columns[0], columns[2]])
    paid = best(only, ProcureVariant(), "cost", SETTINGS)
    assert paid is not None and paid.cost == pytest.approx(33_000.0)
    assert paid.bound == pytest.approx(33_000.0, rel=1e-3)


def test_a_monthly_limit_spreads_rent_over_months() -> None:
    # 20 days at 3,000 USD; a month pays for 10: two months' worth, the second one right at its start.
    instance = ProcureInstance(
        portfolio((job(0, 100.0),), "time", Limits(monthly=30_000.0)), [hired(1, 3_000.0)], [Column(0, 0, 20.0, 1e3)]
    )
    found = best(instance, ProcureVariant(), "time", SETTINGS)
    assert found is not None
    assert found.value == pytest.approx(DAYS_PER_MONTH + 10, rel=1e-3)
    none = replace(instance, asked=replace(instance.asked, jobs=(job(0, 35.0),)))
    assert best(none, ProcureVariant(), "cost", SETTINGS) is None


def test_owned_nodes_are_divided_not_multiplied() -> None:
    from planner.procurement.question.portfolio import Owned

    own = replace(bought(0, 0.0), way="own", items=(), fixed_charge=0.0, held_days=0.0, copies=2, day_usd=10.0)
    jobs = (job(0, 30.0), job(1, 30.0))
    asked = replace(portfolio(jobs), owned=(Owned(node=own.node.id, count=1),))
    pools = [own, hired(1, 900.0)]
    instance = ProcureInstance(asked, pools, [Column(j, p, 20.0, 1e3) for j in range(2) for p in range(2)])
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and sorted(found.run.values()) == [(0,), (1,)]  # one at home, one rented
    later = replace(instance, asked=replace(asked, jobs=(jobs[0], job(1, 40.0))))
    after = best(later, ProcureVariant(), "cost", SETTINGS)
    assert after is not None and set(after.run.values()) == {(0,)}  # one after the other


def test_alternatives_differ_in_kind_and_get_worse() -> None:
    for seed in range(12):
        instance = random_instance(seed)
        found = ranked(instance, instance, "cost", 4, SETTINGS)
        kinds = [families(instance, solution) for solution in found]
        assert len(set(kinds)) == len(kinds)
        values = [solution.value for solution in found]
        assert values == sorted(values)
        if found:
            assert values[0] == pytest.approx(best_value(instance, "cost"), rel=1e-6)


def test_marginal_values_are_what_solving_again_finds() -> None:
    for seed in range(12):
        instance = random_instance(seed)
        first = best(instance, ProcureVariant(), "cost", SETTINGS)
        if first is None:
            continue
        for value in shadow_prices.marginal_values(instance, first, SETTINGS):
            if value.limit in ("budget", "power", "capital", "racks", "carbon"):
                have = getattr(instance.asked.limits, value.limit)
                again = best_value(with_limits(instance, **{value.limit: have + value.step}), "cost")
                assert value.gain == pytest.approx(first.value - again, abs=1e-5 * first.value), (seed, value.limit)
                assert value.gain == 0.0 or again < first.value * (1 - 1e-9), (seed, value.limit)


def test_the_whole_budget_buys_the_earliest_completion_that_trying_everything_finds() -> None:
    sooner = same = 0
    for seed in SEEDS[::4]:
        instance = with_limits(random_instance(seed), budget=3e6)
        first = best(instance, ProcureVariant(), "cost", SETTINGS)
        if first is None:
            continue
        least_done = best_value(instance, "time")

        solution = shadow_prices.soonest(instance, first, SETTINGS)

        if first.use["budget"] > 1.5e6 or least_done > 0.99 * first.done:
            assert solution is None, seed
            same += 1
        else:
            assert solution is not None and solution.done == pytest.approx(least_done, rel=2e-4), seed
            assert solution.use["budget"] <= 3e6 * (1 + 1e-9), seed
            sooner += 1
    assert sooner > 5 and same > 5


def test_conflicts_are_smallest_and_relaxations_suffice() -> None:
    told = 0
    for seed in SEEDS:
        instance = random_instance(seed)
        if not math.isinf(best_value(instance, "cost")) or told >= 8:
            continue
        if (
            best(
                instance,
                ProcureVariant(dropped=frozenset(x.name for x in limits(instance.asked, instance.pools))),
                "cost",
            )
            is None
        ):
            continue  # no limit is to blame
        told += 1
        found = infeasible.conflict(instance, SETTINGS)
        everything = frozenset(limit.name for limit in limits(instance.asked, instance.pools))
        assert solve(instance, ProcureVariant(dropped=everything - set(found.limits)), SETTINGS) is None
        for name in found.limits:
            others = everything - set(found.limits) | {name}
            assert solve(instance, ProcureVariant(dropped=others), SETTINGS) is not None, (seed, name)
        for name, value in found.relaxed.items():
            enough = ProcureVariant(moved={name: value * (1 + 1e-6) + 1e-6})
            assert solve(instance, enough, SETTINGS) is not None, (seed, name)
            if not name.startswith("deadline"):
                assert solve(instance, ProcureVariant(moved={name: value * (1 - 1e-3)}), SETTINGS) is None, (seed, name)
    assert told >= 4


needs_cbc = pytest.mark.skipif(not installed("cbc"), reason="PuLP 4 brings no CBC")


@pytest.mark.slow
@needs_cbc
def test_cbc_finds_the_same() -> None:
    for seed in range(6):
        instance = random_instance(seed)
        ours = best(instance, ProcureVariant(), "cost", SETTINGS)
        theirs = best(instance, ProcureVariant(), "cost", replace(SETTINGS, solver="cbc"))
        assert (ours is None) == (theirs is None)
        if ours and theirs:
            assert ours.value == pytest.approx(theirs.value, rel=1e-6)


def test_the_oracle_counts_what_it_should() -> None:
    instance = ProcureInstance(portfolio((job(0, 30.0),)), [hired(1, 1_000.0)], [Column(0, 0, 20.0, 1e3)])
    assert [a.cost for a in answers(instance)] == [20_000.0]
    assert FAR > 10_000


def test_a_slower_and_cheaper_pool_is_kept() -> None:
    # The cheap one takes too long for the deadline; the dear one does not.
    slow, fast = bought(0, 1e5, copies=1), bought(0, 2e5, copies=1)
    instance = ProcureInstance(
        portfolio((job(0, 30.0),)), [slow, fast], [Column(0, 0, 40.0, 1e3), Column(0, 1, 20.0, 2e3)]
    )
    for across in (False, True):
        kept = replace(instance, columns=pruning.undominated(instance, across=across))
        found = best(kept, ProcureVariant(), "cost", SETTINGS)
        assert found is not None and found.run == {0: (1,)}
    # Dearer and slower is not.
    dear = bought(0, 3e5, copies=1)
    worse = replace(instance, pools=[dear, fast])
    assert [c.pool for c in pruning.undominated(worse)] == [1]
    # What may run out does not stand for another node.
    scarce = replace(
        worse, pools=[replace(dear, offer="a"), replace(fast, offer="b", at_most=1, cluster=bought(1, 1).cluster)]
    )
    assert [c.pool for c in pruning.undominated(scarce, across=True)] == [0, 1]


def test_of_two_jobs_that_are_due_together_the_more_urgent_goes_first() -> None:
    for urgent in (0, 1):
        jobs = tuple(job(n, 60.0, priority=int(n == urgent)) for n in range(2))
        instance = ProcureInstance(portfolio(jobs), [bought(0, 1e5)], [Column(n, 0, 20.0, 1e3) for n in range(2)])
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        assert found is not None
        assert [stretch.job for stretch in found.calendar] == [urgent, 1 - urgent]


@pytest.mark.parametrize("solver", ["highs", pytest.param("cbc", marks=needs_cbc)])
def test_racks_that_are_full_already_are_said_to_be(solver: SolverName) -> None:
    # Nothing can be bought: the machines that stand there fill more than the limit, whatever is hired.
    asked = portfolio((job(0, 30.0),), "cost", Limits(racks=1.0))
    instance = ProcureInstance(asked, [hired(1, 100.0)], [Column(0, 0, 10.0, 1e3)], {"racks": 2.0})
    settings = replace(SETTINGS, solver=solver)
    assert best(instance, ProcureVariant(), "cost", settings) is None
    found = infeasible.conflict(instance, settings)
    assert (found.limits, found.relaxed) == (("racks",), {"racks": 2.0})
