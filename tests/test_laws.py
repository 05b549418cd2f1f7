"""Laws of whole answers: what more of anything, other names and other machines may do to them.

Laws of one pool's search (more memory, bandwidth, FLOPs, NICs, less latency, prices, order of entries) stand in
``test_cost_properties.py``; these are of the answers around it.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.api import records
from planner.base.errors import ClusterwrightError
from tests.sweeps import sweep

PORTFOLIO: dict[str, Any] = {
    "model": "llama3-8b",
    "tokens": 5e10,
    "deadline": "60 d",
    "node": ("dgx-h100",),
    "ways": "on-demand",
    "quick": True,
}


@pytest.mark.slow
@sweep("model", ["llama3-8b", "mixtral-8x7b", "gpt2"], ci=3)
def test_a_looser_memory_risk_never_slows_the_best_plan(model: str) -> None:
    times = [
        api.plan(model, "dgx-a100-80gb:4", top=1, oom_risk=risk)[0].prediction.step_time_s
        for risk in (0.001, 0.01, 0.05, 0.2, 0.5)
    ]
    assert times == sorted(times, reverse=True)
    assert model == "gpt2" or times[0] > times[-1], "the risk decides something"


def test_a_renamed_cluster_has_the_same_plans() -> None:
    shipped = records.cluster("dgx-h100:2")
    node = replace(shipped.node, id="x", name="X", rented_as="dgx-h100")
    renamed = replace(shipped, node=node, accelerator=replace(shipped.accelerator, name="Y"), name="mine")
    mine, theirs = (api.plan("llama3-8b", c, top=3, price="$2/h") for c in (renamed, shipped))
    assert [(p.parallelism, p.batch, p.prediction, p.money.usd_total) for p in mine] == [
        (p.parallelism, p.batch, p.prediction, p.money.usd_total) for p in theirs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", "cost"])
def test_doubled_prices_double_what_it_costs_and_change_no_rank(objective: Any) -> None:
    once, twice = (api.plan("llama3-8b", "dgx-h100:1..4", price=p, objective=objective, top=4) for p in (2.0, 4.0))
    assert [p.parallelism for p in once] == [p.parallelism for p in twice]
    for one, two in zip(once, twice, strict=True):
        assert one.money.usd_total is not None
        assert two.money.usd_total == pytest.approx(2 * one.money.usd_total, rel=1e-12)


@pytest.mark.slow
def test_a_pin_on_the_neighbours_of_the_best_never_beats_it() -> None:
    best = api.plan("llama3-8b", "dgx-h100:4", top=1)[0]
    for axis in ("tp", "pp", "micro", "cp"):
        held = best.batch.micro if axis == "micro" else getattr(best.parallelism, axis)
        for value in {2 * held, max(held // 2, 1)} - {held}:
            try:
                other = api.plan("llama3-8b", "dgx-h100:4", top=1, pin=f"{axis}={value}")[0]
            except ClusterwrightError:
                continue
            assert other.prediction.step_time_s >= best.prediction.step_time_s


# ---- procurement: more choice is never dearer ------------------------------------------------------------------------


@cache
def cost(**more: Any) -> float:
    return api.procure(**{**PORTFOLIO, **more})[0].cost.total_usd


NO_DEARER = 1 + 1e-6
"""To the cent, on bills of thousands."""


@pytest.mark.slow
def test_more_time_and_more_budget_are_never_dearer() -> None:
    quick, usual, slow = (cost(deadline=f"{days} d") for days in (20, 60, 120))
    assert slow <= usual * NO_DEARER
    assert usual <= quick * NO_DEARER
    assert cost(deadline="60 d", budget=1.05 * usual) == pytest.approx(usual, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"node": ("dgx-h100", "dgx-a100-80gb")}, {"ways": ("on-demand", "spot", "buy")}])
def test_more_candidates_are_never_dearer(more: dict[str, Any]) -> None:
    assert cost(**more) <= cost() * NO_DEARER


# ---- the same bytes --------------------------------------------------------------------------------------------------

ASK = """
import json
from planner import api
from planner.planning import document
pools = ["dgx-v100:1", "t4-4:1"]
found = [api.plan("mixtral-8x7b", "dgx-h100:4", top=3), api.plan("gpt2-medium", pools, batch=64, top=2)]
print(json.dumps([{**document.dump(each), "meta": 0} for each in found]))
"""
HERE = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "LC_ALL": "C"}
ELSEWHERE = {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "4", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"}


@pytest.mark.slow
def test_hash_seeds_threads_and_locales_change_no_byte() -> None:
    texts = [
        subprocess.run([sys.executable, "-c", ASK], env={**os.environ, **own}, capture_output=True, check=True).stdout
        for own in (HERE, ELSEWHERE)
    ]
    assert texts[0] == texts[1]
    assert len(json.loads(texts[0])) == 2
