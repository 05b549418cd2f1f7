"""What interrupts a job on several pools: rates add, restarts are each pool's own, and owners take nodes back."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from planner import verify
from planner.base.errors import NoAnswer
from planner.catalog import Catalog
from planner.cost.goodput import ACCELERATOR_MTBF_S
from planner.mixed import answer, prepared_pools, run, search
from planner.planning import document
from planner.question.job_pools import JobPool, Pools, default_link
from planner.question.plan_options import PlanOptions
from planner.question.request import Request, goodput_of, goodput_over
from planner.question.several_pools import pooled_request
from planner.schema.plan import Plan

POOLS = ("ws-4xrtx6000:2", "t4-4:2")
HOUR, DAY = 3600.0, 86400.0
Posed = tuple[Catalog, Request, Pools]


def posed() -> Posed:
    return pooled_request("gpt2-medium", POOLS, PlanOptions(batch="1024", pin=("tp=1", "pp=1..2")))


def told(pools: Pools, **changes: Any) -> Pools:
    """The same pools, the second of which interrupts a job otherwise."""
    first, second = pools.all
    return Pools((first, replace(second, **changes)), pools.given)


def joint(question: Posed) -> Plan:
    """The best plan that stands on both pools."""
    known, wanted, pools = question
    return next(each for each in run.plan(known, wanted, pools).plans if len(each.cluster.pools) == 2)


def used(plan: Plan, pools: Pools) -> list[tuple[JobPool, float]]:
    """The nodes that a plan uses of each pool."""
    return [(next(p for p in pools.all if p.cluster.node.id == q.node), float(q.count)) for q in plan.cluster.pools]


@pytest.fixture(scope="module")
def plain() -> Plan:
    return joint(posed())


def altered(plan: Plan, **changes: Any) -> Plan:
    """The plan with another goodput, all else made to agree with it."""
    good = replace(plan.money.goodput, **changes)
    interval = (2.0 * good.checkpoint_blocks_s * good.mtbf_s) ** 0.5
    lost = good.checkpoint_blocks_s / interval + (interval / 2.0 + good.restart_s) / good.mtbf_s
    good = replace(good, checkpoint_interval_s=interval, fraction=1.0 - lost)
    days = plan.money.steps * plan.prediction.step_time_s / good.fraction / DAY
    return replace(plan, money=replace(plan.money, goodput=good, days=days))


def names(plan: Plan) -> set[str]:
    return {each.name for each in verify.violations(plan)}


def test_two_identical_pools_are_one_of_the_sum() -> None:
    _, wanted, pools = posed()
    wanted = replace(wanted, restart_s=HOUR, preemptions_per_node_s=2 / DAY)
    pool = pools.all[0]
    apart = goodput_over(wanted, [(pool, 3.0), (pool, 5.0)])
    whole = goodput_of(replace(wanted, cluster=pool.cluster), 8)
    for term in ("fraction", "mtbf", "interval", "blocks", "restart"):
        assert float(getattr(apart, term)) == pytest.approx(float(getattr(whole, term)), rel=1e-12)


def test_rates_add_and_a_restart_takes_as_often_as_a_pool_interrupts() -> None:
    _, wanted, pools = posed()
    first, second = told(pools, preemptions_per_node_s=3 / DAY, restart_s=2 * HOUR).all
    found = goodput_over(wanted, [(first, 1.0), (second, 2.0)])
    mine, theirs = 4 / ACCELERATOR_MTBF_S, 8 / ACCELERATOR_MTBF_S + 6 / DAY
    assert float(found.mtbf) == pytest.approx(1 / (mine + theirs), rel=1e-12)
    assert float(found.restart) == pytest.approx((mine * 600 + theirs * 2 * HOUR) / (mine + theirs), rel=1e-12)


@pytest.mark.slow
def test_the_questions_own_restart_and_preemptions_hold(plain: Plan) -> None:
    known, wanted, pools = posed()
    slow = joint((known, replace(wanted, restart_s=24 * HOUR), pools))
    taken = joint((known, replace(wanted, preemptions_per_node_s=1 / DAY), pools))
    was = plain.money.goodput
    assert slow.prediction == taken.prediction == plain.prediction
    assert (slow.money.goodput.restart_s, slow.money.goodput.mtbf_s) == (24 * HOUR, was.mtbf_s)
    assert "restart 1.00 d" in slow.money.goodput.basis and "restart 10 min" in was.basis
    assert taken.money.goodput.mtbf_s < 0.5 * DAY < was.mtbf_s
    for worse in (slow, taken):
        assert worse.money.goodput.fraction < was.fraction and worse.money.days > plain.money.days
        assert verify.violations(worse) == []
    assert {p.preemptions_per_node_s for p in taken.cluster.pools} == {1 / DAY}


@pytest.mark.slow
def test_a_pool_that_may_be_taken_back_beside_one_that_may_not(plain: Plan) -> None:
    known, wanted, pools = posed()
    pools = told(pools, preemptions_per_node_s=1 / DAY, restart_s=0.5 * HOUR)
    found = joint((known, wanted, pools))
    second = next(q for q in found.cluster.pools if q.node == pools.all[1].cluster.node.id)
    first = next(q for q in found.cluster.pools if q is not second)
    assert (first.preemptions_per_node_s, second.preemptions_per_node_s) == (None, 1 / DAY)
    assert (first.restart_s, second.restart_s) == (600.0, 0.5 * HOUR)
    expected = goodput_over(wanted, used(found, pools))
    good = found.money.goodput
    assert (good.mtbf_s, good.restart_s) == pytest.approx((float(expected.mtbf), float(expected.restart)), rel=1e-12)
    assert good.mtbf_s < DAY < plain.money.goodput.mtbf_s
    assert good.fraction < plain.money.goodput.fraction
    assert verify.violations(found) == []
    assert document.parse(document.dump(found), "here") == found


def test_a_plan_that_leaves_interruptions_out_does_not_pass(plain: Plan) -> None:
    """One by one: a pre-emption that is told and not counted, a restart of another pool, failures of no accelerator."""
    known, wanted, pools = posed()
    found = joint((known, wanted, told(pools, preemptions_per_node_s=1 / DAY, restart_s=0.5 * HOUR)))
    good = found.money.goodput
    for wrong in (
        altered(found, mtbf_s=plain.money.goodput.mtbf_s),
        altered(found, restart_s=600.0),
        altered(found, restart_s=0.5 * HOUR),
        altered(plain, mtbf_s=plain.money.goodput.mtbf_s * 2),
    ):
        assert "interruptions_follow_from_pools" in names(wrong)
    assert names(altered(found, mtbf_s=good.mtbf_s)) == names(altered(plain)) == set()
    one, other = found.cluster.pools
    silent = replace(found, cluster=replace(found.cluster, pools=(replace(one, restart_s=None), other)))
    assert "interruptions_follow_from_pools" in names(silent)


@pytest.mark.slow
def test_the_same_plan_for_another_run_is_what_would_be_written_for_it(plain: Plan) -> None:
    known, wanted, pools = posed()
    pools = told(pools, preemptions_per_node_s=1 / DAY, restart_s=0.5 * HOUR)
    fresh = joint((known, wanted, pools))
    own = [pool for pool, _ in used(plain, pools)]
    again = document.for_another_run(
        plain,
        plain.workload.tokens,
        [wanted.restart_s if pool.restart_s is None else pool.restart_s for pool in own],
        [pool.preemptions_per_node_s or 0.0 for pool in own],
    )
    assert again.cluster == fresh.cluster
    assert again.money.days == pytest.approx(fresh.money.days, rel=1e-12)
    for term in ("fraction", "mtbf_s", "checkpoint_interval_s", "checkpoint_blocks_s", "restart_s"):
        assert getattr(again.money.goodput, term) == pytest.approx(getattr(fresh.money.goodput, term), rel=1e-12)


@pytest.mark.slow
def test_a_pool_that_is_taken_back_all_the_time_is_left_out() -> None:
    """Steps alone would use both pools; together they get nowhere."""
    known, wanted, pools = posed()
    found = run.plan(known, wanted, told(pools, preemptions_per_node_s=100 / HOUR))
    assert {q.node for each in found.plans for q in each.cluster.pools} == {pools.all[0].cluster.node.id}
    with pytest.raises(NoAnswer, match="makes progress between interruptions"):
        run.plan(known, replace(wanted, preemptions_per_node_s=100 / HOUR), pools)


@pytest.mark.slow
def test_what_interruptions_cost_decides_between_sets_of_pools() -> None:
    """Four nodes more, often taken back, make the shortest step; one node that nobody takes makes the shortest run.

    By steps alone the second set would be shown to be no better, and left aside.
    """
    clusters = ("ws-4xrtx6000:2", "t4-4:4", "t4-4:1@own")
    known, wanted, pools = pooled_request("gpt2-medium", clusters, PlanOptions(batch="1024", pin=("tp=1", "pp=1..2")))
    link = {frozenset((a.name, b.name)): default_link(a, a) for a, b in combinations(pools.all, 2)}
    first, second, third = pools.all
    found = run.plan(known, wanted, Pools((first, replace(second, preemptions_per_node_s=0.5 / HOUR), third), link))
    shortest = min(found.plans, key=lambda each: each.prediction.step_time_s)
    assert [q.zone for q in found.plans[0].cluster.pools] == ["", "own"]
    assert ["t4-4", ""] in [[q.node, q.zone] for q in shortest.cluster.pools]


@pytest.mark.slow
def test_a_deadline_that_interruptions_break_is_missed() -> None:
    known, wanted, pools = posed()
    alone = min(each.money.days for each in run.plan(known, wanted, pools).plans)
    late = replace(wanted, deadline_s=1.02 * alone * DAY)
    assert run.plan(known, late, pools).plans
    for worse in ({"preemptions_per_node_s": 1 / HOUR}, {"deadline_s": 0.5 * alone * DAY}):
        with pytest.raises(NoAnswer, match="keeps the limits"):
            run.plan(known, replace(late, **worse), pools)


def test_a_plan_whose_own_goodput_breaks_a_limit_is_not_kept() -> None:
    """The search knows limits with the goodput of all nodes; the plan is judged by its own."""
    known, wanted, pools = posed()
    prepared = prepared_pools.prepare(known, wanted, pools, 1024)
    (found, *_) = search.search(prepared.setting).best
    days = answer.plan(prepared, found, 1).money.days
    for share, stays in ((1.01, True), (0.99, False)):
        asked = replace(prepared, request=replace(wanted, deadline_s=share * days * DAY))
        assert (answer.kept(asked, found) is not None) is stays
