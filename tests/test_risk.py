"""The risk of running out of memory: a threshold that is exact, monotone, and told."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import cost
from planner.base.errors import WrongQuestion
from planner.cost import stage_memory
from planner.figures import conformal_intervals
from planner.question.search_problem import problem
from planner.question.values import parse_risk
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from tests import oracle
from tests.asking import ask
from tests.cases import CATALOG, prepared
from tests.plans import plans
from tests.sweeps import sweep

RISKS = (1e-4, 0.01, 0.05, 0.2, 0.5)
risks, widths = st.floats(1e-6, 0.5), st.floats(0.001, 1.0)
capacities = st.floats(1e9, 1e12)


# ---- the formula -----------------------------------------------------------------------------------------------------


@given(capacities, widths, st.tuples(risks, risks).map(sorted))
def test_a_lower_risk_leaves_less(capacity, width, pair):
    low, high = pair
    assert stage_memory.usable(capacity, width, low) <= stage_memory.usable(capacity, width, high) <= capacity


@given(capacities, widths)
def test_at_a_half_the_median_is_compared(capacity, width):
    assert stage_memory.usable(capacity, width, 0.5) == capacity
    assert stage_memory.chance(capacity, capacity, width) == 0.5


@given(capacities, widths, st.floats(1e-4, 0.5))
def test_the_chance_at_the_threshold_is_the_risk(capacity, width, asked):
    assert stage_memory.chance(stage_memory.usable(capacity, width, asked), capacity, width) == pytest.approx(
        asked, rel=1e-6
    )


@given(capacities, widths)
def test_a_tenth_lies_beyond_each_end_of_the_interval(held, width):
    assert stage_memory.chance(held, held * math.exp(width), width) == pytest.approx(0.1)
    assert stage_memory.chance(held, held * math.exp(-width), width) == pytest.approx(0.9)


def test_without_spread_it_fits_or_does_not():
    assert [stage_memory.chance(held, 2.0, 0.0) for held in (1.0, 2.0, 3.0)] == [0.0, 0.5, 1.0]
    assert stage_memory.chance(1.0, 1e300, 1e-3) == pytest.approx(0.0)


# ---- the search ------------------------------------------------------------------------------------------------------

SPACES = {
    "dense": (("llama3-8b", "dgx-h100:1"), {"batches": (32,), "pins": "tp=1..4"}),
    "sharded": (("llama3-8b", "dgx-a100-40gb:1"), {"batches": (32,), "runtime": "fsdp2"}),
    "update copies": (("llama2-7b", "dgx-a100-40gb:1"), {"batches": (32,), "runtime": "deepspeed"}),
}


def space(name, asked):
    question, more = SPACES[name]
    return prepared(*question, oom_risk=asked, **more)


@pytest.mark.slow
@sweep("name", SPACES)
def test_a_lower_risk_never_admits_more(name):
    found = [Bounded().search(problem(space(name, asked), 5)) for asked in RISKS]
    for less, more in pairwise(found):
        assert less.feasible <= more.feasible
        if less.best:
            assert more.best[0].value <= less.best[0].value
    assert found[0].feasible < found[-1].feasible


@sweep("asked", RISKS, every=3, ci=2)
@sweep("name", SPACES, every=3)
def test_exhaustive_and_bounded_agree_at_any_risk(name, asked):
    question = problem(space(name, asked), 10)
    slow, fast = Exhaustive().search(question), Bounded(front=True).search(question)
    assert (fast.best, fast.feasible) == (slow.best, slow.feasible)
    usable = space(name, asked).usable
    assert all(candidate.memory <= usable for candidate in (*fast.best, *fast.front))


def test_a_half_is_the_capacity_and_any_capacity_is_scaled():
    at_half, careful = space("dense", 0.5), space("dense", 0.05)
    assert problem(at_half, 1).capacity == at_half.request.cluster.accelerator.memory
    assert problem(careful, 1).capacity < problem(at_half, 1).capacity
    assert problem(careful, 1, capacity=2e9).capacity == pytest.approx(2e9 * careful.usable / at_half.usable)


@pytest.mark.slow
@sweep("name", SPACES)
def test_the_oracle_admits_the_same_candidates(name):
    """Peaks by the scalar reference, against the odds that a logistic variable has."""
    ready = space(name, 0.05)
    asked = problem(ready, 1)
    capacity = ready.request.cluster.accelerator.memory
    chances = np.random.default_rng(1)
    seen = set()
    for index, block in enumerate(asked.blocks):
        held = np.broadcast_to(cost.evaluate(asked.grid(index)).memory, block.shape)
        for flat in chances.choice(block.size, 20):
            place = np.unravel_index(flat, block.shape)
            grid = _one(asked.grid(index), block.shape, place)
            peak = max(oracle.memory(oracle.plan(grid)))
            above = 1 / (1 + (capacity / peak) ** (math.log(9) / ready.memory_half_width))
            assert (held[place] <= asked.capacity) == (above <= 0.05)
            seen.add(above <= 0.05)
    assert seen == {True, False}


def _one(grid, shape, place):
    """One candidate of a block's grid, as scalars."""

    def figure(value):
        return float(np.broadcast_to(value, shape)[place])

    parts = {}
    for name in ("shape", "device", "network", "stack", "layout", "options"):
        record = getattr(grid, name)
        figures = {field: getattr(record, field) for field in type(record).__slots__}
        parts[name] = replace(record, **{field: figure(value) for field, value in figures.items() if value is not None})
    return replace(grid, **parts)


# ---- what is told ----------------------------------------------------------------------------------------------------


def test_a_plan_says_its_interval_its_chance_and_the_limit():
    plan = plans("dense").plans[0]
    memory, interval = plan.prediction.memory, plan.prediction.intervals["memory_bytes"]
    limit = next(k for k in plan.constraints if k.name == "memory")
    assert interval.low < memory.total_bytes < interval.high
    assert memory.oom_risk == 0.05 and 0 < memory.oom_chance <= 0.05
    assert memory.total_bytes <= limit.limit < memory.capacity_bytes


def test_runtimes_with_measured_peaks_are_surer():
    known = conformal_intervals.read(CATALOG, conformal_intervals.MEMORY)
    measured, which = conformal_intervals.found_memory(known, "fsdp2")
    unknown, stands_in = conformal_intervals.found_memory(known, "maxtext")
    assert (which, stands_in) == ("fsdp2", "all")
    assert measured <= known["all"].half < unknown
    assert conformal_intervals.found_memory({}, "fsdp2") == (0.5, "nothing")


ESTIMATE = "estimate llama3-70b --cluster dgx-h100:16 tp=4 pp=4 vpp=4 cp=2"


def test_what_one_risk_admits_a_lower_one_refuses(capsys):
    daring, careful = (ask(capsys, f"{ESTIMATE} --oom-risk '{asked}'") for asked in ("50 %", "0.001 %"))
    assert (daring.code, careful.code) == (0, 1)
    assert "Too risky" in careful.out and "Too risky" not in daring.out
    assert "OOM probability" in careful.out


@sweep(("text", "value"), [("5 %", 0.05), ("5%", 0.05), ("0.05", 0.05), (0.2, 0.2), ("50 %", 0.5)])
def test_a_risk_is_a_share(text, value):
    assert parse_risk(text) == pytest.approx(value)


@sweep("text", ["0", "0 %", "100 %", "-5", "-5 %", "70 %", "5", "nan", "inf", "", "half", "5 GiB"])
def test_what_is_no_risk_is_refused(text):
    with pytest.raises(WrongQuestion, match="--oom-risk"):
        parse_risk(text)


def test_a_number_without_its_sign_is_asked_about():
    with pytest.raises(WrongQuestion, match="did you mean 5 %"):
        parse_risk("5")
