"""What a question leaves open of its software is told, with what another choice makes of the plan."""

import json
import math

import pytest

from planner import api, verify
from planner.planning import releases
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.schema.plan import Plan
from planner.search.branch_and_bound import Bounded
from tests.asking import ask
from tests.cases import problem_of
from tests.plans import plans
from tests.sweeps import sweep


def best(runtime: str | None = None, *pins: str, cluster: str = "dgx-b200:2") -> Plan:
    return api.plan("llama3-8b", cluster, runtime=runtime, pin=pins, top=1).plans[0]


def test_an_unstated_release_is_told_with_what_an_older_one_takes():
    plan = best()
    old = plan.runtime.older
    assert old is not None and (plan.runtime.release, old.release, old.lacks) == ("2026.06", "2024", ())
    # On a young generation older software is slower.
    assert old.step_time_s is not None and old.step_time_s > 1.02 * plan.prediction.step_time_s
    stated = best("megatron-core@2024", f"tp={plan.parallelism.tp}", f"micro={plan.batch.micro}")
    assert stated.runtime.older is None
    assert stated.prediction.step_time_s == pytest.approx(old.step_time_s, rel=0.05)


def test_a_release_that_lacks_what_the_plan_uses_says_so():
    old = best(None, "zero=3").runtime.older
    assert old is not None and old.step_time_s is None and "zero=3" in old.lacks


@pytest.mark.slow
def test_where_an_older_release_cannot_run_the_plan_the_first_that_it_can_is_told(capsys):
    shown = ask(capsys, "plan llama3-8b --cluster dgx-h100:4 --json").out
    first, *rest = (each for each in json.loads(shown)["plans"])
    assert first["runtime"]["older"]["lacks"] and first["runtime"]["older"]["step_time_s"] is None
    able = next(each for each in rest if each["runtime"]["older"]["step_time_s"])
    more = able["runtime"]["older"]["step_time_s"] / first["prediction"]["step_time_s"] - 1
    line = next(x for x in ask(capsys, "plan llama3-8b --cluster dgx-h100:4 -v").out.splitlines() if "Release" in x)
    assert f"has no {', '.join(first['runtime']['older']['lacks'])}; #{able['rank']} takes" in line
    assert f"(+{100 * more:.1f} %)" in line


@sweep(("runtime", "older"), [(None, "2024"), ("fsdp", "2023"), ("fsdp2", "2024"), ("megatron-core@2021", "")])
def test_which_release_is_the_older_one(runtime, older):
    assert request("llama3-8b", "dgx-h100:1", PlanOptions(runtime=runtime))[1].older == older


def test_every_candidate_uses_what_since_may_name():
    found = Bounded().search(problem_of("llama3-8b", "dgx-h100:1", batches=(8,), pins="tp=2,zero=1", top=1)).best[0]
    assert {"tp", "zero=1", "precision=bf16", "zero_scope=full"} <= set(
        releases.used(releases.chosen(found.layout, found.options))
    )


def test_a_framework_of_unknown_name_is_as_unsure_as_frameworks_are_apart():
    one, any_ = best("megatron-core", "tp=1", "pp=1", "cp=1"), best("any", "tp=1", "pp=1", "cp=1")
    halves = [math.log(p.prediction.intervals["step_time_s"].high / p.prediction.step_time_s) for p in (one, any_)]
    assert halves[1] > halves[0]
    assert "any of megatron-core, megatron-core@2023, nemo" in any_.prediction.intervals["step_time_s"].basis


def test_an_older_release_beats_no_hardware():
    from dataclasses import replace

    plan = plans("dense").plans[0]
    old = plan.runtime.older
    assert old is not None and verify.violations(plan) == []
    for wrong in (
        replace(old, release=plan.runtime.release),
        replace(old, step_time_s=1e-3, lacks=()),
        replace(old, step_time_s=None, lacks=()),
        replace(old, step_time_s=1e3, lacks=("cp",)),
    ):
        assert verify.violations(replace(plan, runtime=replace(plan.runtime, older=wrong))), wrong
