"""The published step that a plan of post-training is nearest to."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.api.post_training import plan_rl
from planner.catalog import load
from planner.rl import constants, measured, nearest

RUNS = Path(__file__).parent.parent / "benchmarks" / "data" / "rl_runs.csv"


def test_plan_of_a_published_step_names_it_and_another_says_in_what_it_differs() -> None:
    """rl-nemo-rl-001: Llama 3.1 8B, 16 H100 colocated, 2,048 responses of 1,060 tokens, at most 4,096, took 97.7 s."""
    asked = {
        "samples": 32,
        "prompts": 64,
        "response": "1060/4096",
        "placement": "colocated",
        "runtime": "megatron-core",
    }

    own = plan_rl("llama3.1-8b", "dgx-h100:2", **asked)[0].nearest
    other = plan_rl("llama3-8b", "dgx-h100:4", **asked)[0].nearest

    assert own is not None and (own.id, own.measured_s, own.differs) == ("rl-nemo-rl-001", 97.7, ())
    assert own.distance == pytest.approx(0.0)
    assert other is not None and "no measured step has model llama3-8b" in other.differs and other.distance > 0.6


@pytest.mark.parametrize("place", [0, 20, 40])
def test_table_holds_what_is_predicted_today(place: int) -> None:
    row = nearest.measured_steps()[place]
    published = next(each for each in measured.rows(RUNS) or () if each["id"] == row["id"])

    step_s = measured.parts(load(None), published).step(constants.fitted())

    assert float(row["predicted_s"]) == pytest.approx(step_s, rel=0.02), "python -m benchmarks.rl_sources --write"
