"""Tokens that are dealt unevenly to experts' ranks: what the busiest one works on, keeps and receives."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import api, verify
from planner.base.errors import WrongQuestion
from planner.cost import experts
from planner.models.workload import model, workload
from planner.planning import document
from planner.schema.workload import Model, TokenRouter
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from tests.cases import problem_of
from tests.sweeps import sweep

SPLIT = ["tp=1", "pp=2", "ep=8", "micro=1", "recompute=none", "ep_overlap=off"]


@cache
def estimated(imbalance: float | None, **axes: Any) -> Any:
    return api.estimate("mixtral-8x7b", "dgx-h100:4", SPLIT, imbalance=imbalance, batch=64, **axes).plans[0]


def test_the_busiest_rank_does_and_receives_so_much_more() -> None:
    even, uneven = estimated(None), estimated(1.5)
    exchanged = uneven.prediction.breakdown["ep"] / even.prediction.breakdown["ep"]
    assert 1.4 < exchanged < 1.5  # Bytes half as many again; what a call takes before its first byte is the same.
    assert even.prediction.breakdown["matrix"] < uneven.prediction.breakdown["matrix"]
    assert uneven.prediction.breakdown["matrix"] < 1.5 * even.prediction.breakdown["matrix"]
    assert uneven.prediction.memory.activations_bytes > even.prediction.memory.activations_bytes
    assert uneven.prediction.breakdown["attention"] == even.prediction.breakdown["attention"]
    assert uneven.prediction.model_flops == even.prediction.model_flops
    assert estimated(1.0).prediction == even.prediction


def test_ranks_that_hold_every_expert_are_even() -> None:
    problem = problem_of("mixtral-8x7b", "dgx-h100:4", batches=(32,), pins="cp=1 micro=1")
    shape = replace(problem.figures.shape, imbalance=2.0)
    for index, block in enumerate(problem.blocks):
        grid = replace(problem.grid(index), shape=shape)
        found = np.broadcast_to(experts.imbalance(grid), block.height)
        ep = block.rows["ep"] if "ep" in block.rows else np.ones(block.height)
        assert np.array_equal(found, np.where(ep > 1, 2.0, 1.0))


def test_the_search_stays_exact() -> None:
    problem = problem_of("mixtral-8x7b", "dgx-h100:4", batches=(32,), pins="cp=1 micro=1..2")
    uneven = replace(problem, figures=replace(problem.figures, shape=replace(problem.figures.shape, imbalance=1.7)))
    found, every = Bounded().search(uneven), Exhaustive().search(uneven)
    assert found.best == every.best and found.proven
    assert found.best[0].time > Bounded().search(problem).best[0].time


@pytest.mark.slow
def test_the_answer_says_which_it_counted() -> None:
    even, uneven = (api.plan("mixtral-8x7b", "dgx-h100:4", imbalance=given, top=1).plans[0] for given in (None, 2.0))
    assert uneven.prediction.step_time_s > even.prediction.step_time_s
    assert document.dump(uneven)["workload"]["imbalance"] == 2.0
    assert "imbalance" not in document.dump(even)["workload"]
    assert [a.flag for a in even.assumptions if "experts' ranks" in a.what] == ["--imbalance"]
    assert not [a for a in uneven.assumptions if "experts' ranks" in a.what]
    verify.check(uneven)


def test_no_expert_gets_more_than_its_capacity() -> None:
    assert workload(dropping(1.25), imbalance=3.0).imbalance == 1.25
    assert workload(dropping(1.25), imbalance=1.1).imbalance == 1.1
    assert workload(dropping(None), imbalance=3.0).imbalance == 3.0


def dropping(capacity: float | None) -> Model:
    mixtral = model("mixtral-8x7b")
    assert mixtral.moe is not None
    router = TokenRouter(score="softmax", normalised=True, capacity=capacity)
    return replace(mixtral, moe=replace(mixtral.moe, router=router))


@sweep("given", [0.9, 65.0, float("nan"), -1.0])
def test_shares_that_cannot_be_are_refused(given: float) -> None:
    with pytest.raises(WrongQuestion, match=r"imbalance=.*: must be from 1 \(even\) to 64"):
        api.plan("mixtral-8x7b", "dgx-h100:1", imbalance=given)
    with pytest.raises(verify.Inconsistent, match=r"workload\.imbalance is"):
        verify.check(edited(given))


def edited(given: float) -> Any:
    plan = estimated(1.5)
    return replace(plan, workload=replace(plan.workload, imbalance=given))


def test_dense_models_have_none() -> None:
    with pytest.raises(WrongQuestion, match="imbalance=2: llama3-8b has no experts"):
        api.plan("llama3-8b", "dgx-h100:1", imbalance=2.0)
