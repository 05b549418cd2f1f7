"""What a point of a study is worth: the exact plans of many machines at once, its cost, what breaks a limit."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.axes import AXES
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.question.search_problem import prepare, problem
from planner.search.best_per_machine import best_on_each
from planner.search.branch_and_bound import Bounded
from planner.search.side_by_side import Machine, on
from planner.space.levers import FASTER, LEANER
from planner.study.program.evaluation import POINT_S, ROW_S, SAMPLED, TABLE_ROW_S, Evaluator
from tests.designing import TINY, _limited, known, study


@cache
def small_problem(precision: str = "bf16") -> Any:
    asked = PlanOptions(batch="64", pin=("cp=1", "vpp=1|2", "micro=1", "recompute=none|full"), precision=precision)
    return problem(prepare(*request("llama3-8b", "dgx-h100:2", asked, known=known())), 1)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(
    data=st.lists(st.tuples(*[st.floats(0.2, 5.0)] * 4, st.floats(0.2, 1.5)), min_size=2, max_size=5),
    precision=st.sampled_from(["bf16", "bf16,fp8"]),
)
def test_many_machines_get_the_plans_of_each_alone(data, precision):
    asked = small_problem(precision)
    machines = []
    for matrix, memory, near, far, capacity in data:
        devices = {
            name: replace(d, matrix_rate=d.matrix_rate * matrix, memory_rate=d.memory_rate * memory)
            for name, d in asked.figures.devices.items()
        }
        network = asked.figures.network
        network = replace(network, scaleup=network.scaleup * near, pair=network.pair * near, nic=network.nic * far)
        machines.append(Machine(devices, network, asked.capacity * capacity))
    for machine, found in zip(machines, best_on_each(asked, machines), strict=True):
        alone = Bounded().search(on(asked, machine)).best
        assert found == (alone[0] if alone else None)


def test_machines_of_unlike_spaces_are_refused():
    asked = small_problem()
    machine = Machine(asked.figures.devices, asked.figures.network, asked.capacity)
    other = replace(machine, network=replace(machine.network, domain=4.0))
    with pytest.raises(ValueError, match="domain"):
        best_on_each(asked, [machine, other])


BASE = tuple(f"{axis}={AXES[axis].spell(AXES[axis].neutral)}" for axis in (*FASTER, *LEANER))
"""Pins that leave no lever: points are plans of the base space."""


def test_a_point_is_worth_what_plan_says():
    """The same step, dollars and joules as ``clusterwright plan`` prints for the base cluster without levers."""
    text = """
    objectives = ["step-time", "cost", "energy"]
    [base]
    node = "dgx-h100"
    count = 2
    [axes]
    "accelerator.memory" = ["80 GiB", "160 GiB"]
    [[workloads]]
    model = "llama3-8b"
    batch = 64
    pins = ["cp=1", "micro=1"]
    """
    asked = study(text)
    found = Evaluator(known(), asked).one((0,)).objectives
    plan = api.plan("llama3-8b", "dgx-h100:2", batch="64", pin=("cp=1", "micro=1", *BASE)).plans[0]
    assert found["step-time"] == plan.prediction.step_time_s
    assert plan.money.usd_total is not None and plan.energy.energy_j is not None
    assert found["cost"] == pytest.approx(plan.money.usd_total / plan.workload.tokens * 1e6, rel=1e-12)
    assert found["energy"] == pytest.approx(plan.energy.energy_j / plan.workload.tokens, rel=1e-12)


@pytest.mark.slow
def test_one_by_one_and_side_by_side_agree():
    points = [study().point(n) for n in range(study().size)]
    together = Evaluator(known(), study()).many(points)
    alone = Evaluator(known(), study())
    for point, outcome in zip(points, together, strict=True):
        single = alone.one(point)
        assert single.objectives == outcome.objectives
        assert single.candidates == outcome.candidates
        assert single.feasible == outcome.feasible


def test_what_changes_a_price_alone_is_not_searched_again():
    text = TINY.replace('"node.accelerators" = [4, 8]', '"accelerator.tdp" = ["500 W", "700 W"]\nregion = ["us", "no"]')
    asked = study(text.replace('"accelerator.memory" = "$50 per GiB"', '"accelerator.tdp" = "$1 per W"'))
    evaluator = Evaluator(known(), asked)
    found = evaluator.many([asked.point(n) for n in range(asked.size)])
    assert len({outcome.objectives["cost"] for outcome in found if outcome.objectives}) > asked.size // 4
    assert evaluator.searches == 3 * 3 * 2


def test_what_breaks_a_limit_is_not_searched_for():
    asked = replace(study(), constraints=study(_limited("$60k")).constraints)
    evaluator = Evaluator(known(), asked)
    found = [evaluator.one(asked.point(n)) for n in range(asked.size)]
    over = [outcome for outcome in found if outcome.violations["capital at most"] > 0]
    assert over and len(over) < len(found)
    assert evaluator.searches <= len(found) - len(over)
    for outcome in found:
        assert (outcome.measures["capital"] > 6e4) == (outcome.violations["capital at most"] > 0)


def test_a_point_where_nothing_fits_says_by_how_much():
    text = TINY.replace('"24 GiB"', '"4 GiB"')
    outcome = Evaluator(known(), study(text)).one((0, 0, 0, 0))
    assert not outcome.feasible and not outcome.objectives
    assert outcome.violations["memory"] > 0.5 and "memory" in outcome.why


def test_weights_share_the_objective():
    job = TINY[TINY.index("[[workloads]]") : TINY.index("[costs]")]
    both = study(TINY.replace(job, job + job.replace("llama3-8b", "mistral-7b").replace("batch", "weight = 3\nbatch")))
    alone = [replace(both, workloads=(work,)) for work in both.workloads]
    one, other, joined = (Evaluator(known(), s).one((2, 2, 1, 1)).objectives["cost"] for s in (*alone, both))
    assert joined == pytest.approx((one + 3 * other) / 4)


def test_points_of_one_space_are_estimated_to_share_its_tables():
    """Accelerators of a node, the tiny study's last axis, change the space: two points of a row share none."""
    whole = Evaluator(known(), study(TINY))
    values = [whole.study.values(whole.study.point(n * whole.study.size // SAMPLED)) for n in range(SAMPLED)]
    spaces = [whole.prepared(whole.study.workloads[0], each) for each in values]
    layouts = sum(block.height for here in spaces if not isinstance(here, str) for block in here.blocks) / SAMPLED
    for many, beside in ((1, 1), (2, 1), (36, 18)):
        assert whole.seconds(many) == pytest.approx(POINT_S + layouts * (ROW_S + TABLE_ROW_S / beside))


def test_points_over_a_limit_are_estimated_without_a_search():
    limited = Evaluator(known(), study(_limited("$60,000")))
    assert POINT_S < limited.seconds(36) < Evaluator(known(), study(TINY)).seconds(36)
