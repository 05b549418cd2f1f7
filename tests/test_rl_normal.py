"""A stated step of post-training beside a measured one: which phase is slow, and what would explain it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.api.post_training import estimate_rl, plan_rl
from planner.base.errors import NoAnswer, WrongQuestion
from planner.commands.command_line import cli
from planner.rl import phase_names
from planner.schema.rl import RLPlanSet
from planner.verify.post_training import check_post_training

ASKED = {"response": "1k/4k", "updates": 4, "placement": "colocated"}


def stated(measured: object = None, **changed: object) -> RLPlanSet:
    """Llama 3.1 8B on two nodes, colocated."""
    asked = {**ASKED, **changed}
    return estimate_rl("llama3.1-8b", "dgx-h100:2", "recompute=full zero=1", measured=measured, **asked)


def test_stated_plan_has_the_step_of_the_search() -> None:
    for placement, split in (("colocated", None), ("in-step", "8:8"), ("one-step-off", "8:8"), ("async", "8:8")):
        asked = {**ASKED, "placement": placement, "split": split}
        best = plan_rl("llama3.1-8b", "dgx-h100:2", staleness=None, **asked)[0]
        trainer = best.trainer
        axes = {**trainer.layout, "zero": trainer.zero, "recompute": trainer.recompute, **trainer.options}
        settings = " ".join(f"{axis}={str(value).lower()}" for axis, value in axes.items() if axis != "dp")
        side = best.rollout[0]
        if best.placement == "async":
            asked["staleness"] = best.staleness

        mine = estimate_rl("llama3.1-8b", "dgx-h100:2", settings, rollout=f"tp={side.tp}", **asked)

        assert mine[0].trainer == trainer
        if side.accelerators == (16 if split is None else 8):
            assert mine[0].step_s == pytest.approx(best.step_s, rel=1e-3)


def test_what_is_measured_as_predicted_is_normal() -> None:
    phases = stated()[0].phases
    names = {"gen": "generation_s", "old_log_prob": "log_probabilities_s", "update_actor": "update_s"}

    answer = stated({name: getattr(phases, field) for name, field in names.items()})

    assert answer.measured is not None
    assert [row.verdict for row in answer.measured.phases] == ["as predicted"] * 3
    assert answer.measured.verdict == "every phase that was given is within its interval"


def test_slow_generation_is_told_with_the_length_that_explains_it() -> None:
    longer = stated(response="2k/4k")[0].phases.generation_s
    plain = stated()[0].phases

    answer = stated(f"generation={1.3 * longer:.1f},update={plain.update_s:.1f}")

    assert answer.measured is not None
    slow, normal = answer.measured.phases
    assert (slow.phase, slow.verdict, normal.verdict) == ("generation", "slow", "as predicted")
    told = float(slow.causes[0].partition("responses of ")[2].partition(" ")[0].replace(",", ""))
    assert stated(response=f"{told:.0f}/4k")[0].phases.generation_s == pytest.approx(slow.measured_s, rel=0.02)
    assert answer.measured.verdict.startswith("generation is slow")


def test_one_that_does_not_fit_is_priced_and_told() -> None:
    answer = estimate_rl("llama3.1-8b", "dgx-h100:1", "zero=0 micro=8", **ASKED)

    assert answer.fits is False
    check_post_training(answer)
    with pytest.raises(NoAnswer):
        estimate_rl("llama3-70b", "dgx-h100:1", "tp=8", **ASKED)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (
            "step:1 - timing_s/gen:99.0 - timing_s/step:200.0\n"
            "step:2 - timing_s/gen:50.5 - timing_s/update_actor:40.0 - timing_s/values:1.0 - timing_s/update_critic:2.0"
            " - timing_s/step:100.0 - timing_s/testing:9.0\n",
            {"generation": 50.5, "update": 40.0, "critic": 3.0, "step": 100.0},
        ),
        (
            "\n  • Total step time: 60.00s\n  • generation: 30.00s (50.0%)\n  • policy_training: 20.00s (33.3%)\n",
            {"step": 60.0, "generation": 30.0, "update": 20.0},
        ),
    ],
)
def test_logs_of_trainers_are_read(tmp_path: Path, text: str, seconds: dict[str, float]) -> None:
    log = tmp_path / "train.log"
    log.write_text(text, encoding="utf-8")

    assert dict(phase_names.measured(log).seconds) == seconds


def test_numbers_of_a_log_are_whole_or_none(tmp_path: Path) -> None:
    """Cut, elided or in other units are none; exponents count; 2,016 tokens are 2 responses of 8 + 1,000 tokens."""
    log = tmp_path / "train.log"
    log.write_text(
        "step:1 - timing_s/gen:122.5... - timing_s/ref:1.2.3 - timing_s/values:12ms - timing_s/adv:7e"
        " - timing_s/step:2\n"
        "step:2 - timing_s/gen:1.5e+01, 'timing_s/update_actor': np.float64(4.0) - response_length/mean:1.0e3 - "
        "prompt_length/mean:8.0 - perf/total_num_tokens:2016 - timing_s/step:1" + "0" * 400 + "\n"
        "step:3 - response_length/mean:10...\n",
        encoding="utf-8",
    )

    taken = phase_names.measured(log)

    assert dict(taken.seconds) == {"generation": 15.0, "update": 4.0, "step": 2.0}
    assert (taken.mean_tokens, taken.responses) == (1000.0, 2.0)


def test_nonsense_is_refused() -> None:
    for measured, words in (("generaton=3", "did you mean generation"), ("update=-3", "seconds above 0")):
        with pytest.raises(WrongQuestion, match=words):
            stated(measured)
    with pytest.raises(WrongQuestion, match="how is it placed"):
        stated(placement=None)
    with pytest.raises(WrongQuestion, match="split"):
        stated(placement="in-step")


def test_terminal_and_json_say_the_same(tmp_path: Path) -> None:
    words = ["estimate", "llama3.1-8b", "--task", "grpo", "--response", "1k/4k", "--placement", "colocated",
             "--cluster", "dgx-h100:2", "recompute=full", "--measured", "generation=900"]  # fmt: skip

    shown = CliRunner().invoke(cli, words)
    document = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)

    assert shown.exit_code == 0, shown.output
    assert "generation is slow" in shown.output and document["measured"]["phases"][0]["verdict"] == "slow"
    with pytest.raises(WrongQuestion, match="with --task grpo"):
        CliRunner().invoke(cli, ["estimate", "llama3-8b", "--cluster", "dgx-h100:1", "tp=8", "--measured", "gen=3"],
                           catch_exceptions=False)  # fmt: skip
