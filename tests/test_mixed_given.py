"""Groups of pipelines as text: what ``plan`` prints over several pools, ``estimate`` answers with the same document."""

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.question.given_groups import parsed_group, spelled_group
from planner.report.recommendation import configuration
from planner.schema.plan import Plan
from planner.schema.record import dump
from tests.answered_once import answered_once
from tests.asking import ask
from tests.sweeps import sweep

PLANNED: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "apart": ("gpt2-medium", ("ws-4xrtx6000:2", "t4-4:2"), {"batch": 64}),
    "zones": ("gpt2-xl", ("dgx-v100:1@east", "dgx-v100:1@west"), {"batch": 64, "launchable": True}),
    "parts": (
        "llama3.2-1b",
        (),
        {"accelerators": "A100-SXM4-80GB:4,V100-SXM2-32GB:4", "runtime": "megatron-core@2024"},
    ),
}
POOLS = ("dgx-h100", "dgx-a100@b#2")


@answered_once
def planned(name: str) -> Plan:
    """The best plan of several pools that a question has."""
    model, clusters, asked = PLANNED[name]
    return next(plan for plan in api.plan(model, list(clusters), **asked) if plan.parallelism.groups)


@pytest.mark.slow
@sweep("name", PLANNED, ci=2)
def test_what_is_printed_gives_the_same_document(name: str) -> None:
    """Layers, shares of the batch, time, memory, money: to the bit, with all of the pools or only those in use."""
    model, clusters, asked = PLANNED[name]
    plan = planned(name)
    asked = {key: value for key, value in asked.items() if key != "launchable"}
    found = api.estimate(model, list(clusters), configuration(plan), **asked)
    assert dump(found[0]) == {**dump(plan), "rank": 1}
    assert found.search.candidates == found.search.feasible == 1


@sweep(
    "text",
    [
        "group=dgx-h100:layers=32",
        "group=copies=4,width=2,micro=3,dgx-h100:layers=2x16+14:tp=2:cp=2:ep=4:recompute=full",
        "group=dgx-h100:layers=1+2x2+1,dgx-a100@b#2:layers=3x4:tp=8:recompute=selective",
    ],
)
def test_groups_are_read_as_they_are_spelled(text: str) -> None:
    assert spelled_group(parsed_group(text, POOLS), POOLS) == text


@pytest.mark.slow
def test_layers_may_be_given_otherwise() -> None:
    """A stage more for the slower pool takes longer, and says so."""
    model, clusters, asked = PLANNED["apart"]
    best = planned("apart").prediction.step_time_s
    halves = "group=copies=2,ws-4xrtx6000:layers=12,t4-4:layers=12 zero=0"
    found = api.estimate(model, list(clusters), halves, **asked)
    assert [s.layers for s in found[0].parallelism.stages] == [12, 12]
    assert found[0].prediction.step_time_s > best


def test_what_does_not_fit_is_predicted_and_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = "estimate gpt2-xl --cluster ws-4xrtx6000:1 --cluster t4-4:1 --batch 64"
    answer = ask(capsys, f"{asked} group=micro=16,ws-4xrtx6000:layers=40,t4-4:layers=8 -o {tmp_path / 'plan.json'}")
    assert answer.code == 1 and "Does not fit" in answer.out and "optimum of" not in answer.out
    assert ask(capsys, f"explain {tmp_path / 'plan.json'}").code == 0


def test_python_says_what_groups_are() -> None:
    with pytest.raises(WrongQuestion, match="group="):
        api.estimate("llama3-8b", ["dgx-h100:1", "dgx-v100:1"], tp=2)
