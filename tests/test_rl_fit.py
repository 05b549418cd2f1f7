"""``fit --task grpo``: the fewest accelerators on which a step fits, or is as short as wanted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from planner.api.post_training import plan_rl
from planner.api.post_training_fits import fit_rl
from planner.base.errors import NoAnswer, WrongQuestion
from planner.commands.command_line import cli
from planner.rl import fewest


@pytest.mark.parametrize("first", range(12))
def test_the_first_count_that_is_enough_is_found_with_its_neighbour_tried(first: int) -> None:
    tried = []

    def enough(count: int) -> bool:
        tried.append(count)
        return count >= first

    place = fewest.fewest(range(11), enough)

    assert place == (first if first < 11 else None)
    assert not place or place - 1 in tried


def test_fewest_are_enough_and_one_node_less_is_not() -> None:
    asked = {"response": "3k/8k", "placement": "colocated"}

    step = fit_rl("qwen3-32b", "dgx-h100", step_time="15 min", **asked)[0]

    assert step.below == step.accelerators - 8 and step.holds_from < step.accelerators
    steps = [plan_rl("qwen3-32b", f"dgx-h100:{n // 8}", **asked)[0].step_s for n in (step.accelerators, step.below)]
    assert steps[0] == step.step_s <= 900.0 < steps[1]


@pytest.mark.parametrize(
    ("on", "asked", "says"),
    [
        ("H100:8", {}, "on='H100:8': the fewest are looked for; write on='H100' most=8"),
        ("H100", {"step_time": "5"}, "no unit"),
        ("H100", {"step_time": -1.0}, "must be above 0"),
        ("H100", {"split": "8:8"}, "fit finds how many"),
        ("V100", {}, "take fp16"),
        ("H100", {"precision": "nvfp4"}, "precision='nvfp4': H100-SXM5-80GB has no such matrix products"),
        ("H100", {"precision": "fp4"}, "precision='fp4': choose bf16"),
        ("H1O0", {}, "no such accelerator"),
    ],
)
def test_what_cannot_be_is_refused(on: str, asked: dict[str, object], says: str) -> None:
    with pytest.raises(WrongQuestion, match=says.replace("(", r"\(")):
        fit_rl("llama3.1-8b", on, **({"response": "1k/4k"} | asked))  # type: ignore[arg-type]


def test_what_no_count_reaches_is_said() -> None:
    with pytest.raises(NoAnswer, match="no 8 accelerators of H100 are as fast"):
        fit_rl("llama3.1-8b", "H100", response="1k/4k", most=8, step_time=1.0)


def test_command_prints_the_document_and_refuses_what_says_nothing() -> None:
    words = ["fit", "llama3.1-8b", "--task", "grpo", "--response", "1k/4k", "--on", "H100"]

    shown = CliRunner().invoke(cli, [*words, "--json"])
    refused = CliRunner().invoke(cli, [*words, "--method", "lora"])
    alone = CliRunner().invoke(cli, ["fit", "llama3.1-8b", "--step-time", "5 min"])

    document = json.loads(shown.stdout)
    assert document["kind"] == "rl-fit" and document["fits"][0]["accelerators"] == 1
    assert "--method: says nothing of --task grpo" in str(refused.exception)
    assert "--step-time: with --task grpo" in str(alone.exception)
