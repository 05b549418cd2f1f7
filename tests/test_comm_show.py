"""``comm show``: the calls of a step are what its predicted time is made of."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from planner import catalog, cost, document
from planner.comm.listing import CAUSES, grid_of, listed
from planner.cost import calls
from planner.errors import WrongQuestion
from tests.asking import ask, refused
from tests.plans import QUESTIONS, plans

CATALOG = catalog.load()


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_exposed_adds_up_to_the_breakdown(name: str) -> None:
    for plan in plans(name).plans:
        found = listed(plan, CATALOG)
        for cause in CAUSES:
            told = plan.prediction.breakdown.get(cause, 0.0)
            mine = sum(call.exposed_s for call in found if call.cause == cause)
            assert math.isclose(mine, told, rel_tol=1e-9, abs_tol=1e-15), (plan.rank, cause)
        again = sum(call.exposed_s for call in found if call.cause == "recompute")
        assert again <= plan.prediction.breakdown.get("recompute", 0.0) * (1 + 1e-9)
        assert {call.cause for call in found} <= {*CAUSES, "recompute"}


@pytest.mark.parametrize("name", QUESTIONS)
def test_without_overlap_all_of_it_shows(name: str) -> None:
    plan = plans(name).plans[0]
    grid = grid_of(plan, CATALOG, "plan")
    off = dict.fromkeys(("tp_overlap", "dp_overlap", "p2p_overlap", "cp_overlap", "ep_overlap"), 0.0)
    bare = replace(grid, stack=replace(grid.stack, **off), options=replace(grid.options, dp_overlap=0.0))
    parts = cost.breakdown(bare)
    for cause in CAUSES:
        found = [call for call in calls.calls(bare) if call.cause == cause]
        assert sum(c.alone_s for c in found) == pytest.approx(float(parts[cause]), rel=1e-9), cause


def test_calls_say_where_they_run() -> None:
    found = {(c.op, c.group): c for c in listed(plans("latent").plans[0], CATALOG)}
    assert found["all-gather", "tp"].where == "domain" and found["all-gather", "tp"].inside == 2
    exchange = found["all-to-all", "ep"]
    assert (exchange.ranks, exchange.where) == (256, "rail") and exchange.inside < exchange.ranks
    assert found["reduce-scatter", "dp"].where == "spine"


def test_figures_of_another_catalog_are_refused(tmp_path: Path) -> None:
    plan = plans("dense").plans[0]
    parts = plan.prediction.breakdown
    other = replace(plan, prediction=replace(plan.prediction, breakdown=parts | {"tp": 2 * parts["tp"]}))
    with pytest.raises(WrongQuestion, match="give the catalog that it was made with"):
        listed(other, CATALOG, "x.json")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(document.as_json(plans("dense")), encoding="utf-8")
    answer = ask(capsys, "comm show plan.json")
    assert answer.code == 0 and "reduce-scatter" in answer.out and "clusterwright comm choose plan.json" in answer.out
    told = json.loads(ask(capsys, "comm show plan.json --json").out)
    parts = plans("dense").plans[0].prediction.breakdown
    assert all(told["exposed_s"][cause] == pytest.approx(parts[cause]) for cause in CAUSES if cause in parts)
    assert "no plan of rank 99" in refused(capsys, "comm show plan.json --rank 99")
    assert "no such file" in refused(capsys, "comm show nowhere.json").lower()
    Path("one.json").write_text(json.dumps({"kind": "nonsense"}), encoding="utf-8")
    assert "kind is 'nonsense'" in refused(capsys, "comm show one.json")
