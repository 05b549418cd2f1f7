"""``estimate --measured``: is a step normal, and what would explain one that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.api.plans import estimate
from planner.base.errors import WrongQuestion
from planner.commands.agent_tools import AgentTools
from planner.commands.command_line import cli, main
from planner.planning import document, measured_step
from planner.schema.measured_step import MeasuredStep
from planner.schema.plan import PlanSet
from planner.verify import Inconsistent
from planner.verify.one_question import check
from tests import training_logs as logs

ASKED = ["estimate", "llama3-8b", "--cluster", "dgx-h100:1", "--batch", "128", "tp=2"]


def beside(measured: object, settings: str = "tp=2", **asked: object) -> MeasuredStep:
    """A measured step of Llama 3 8B on eight H100."""
    given = {"batch": 128, **asked}
    answer = estimate("llama3-8b", "dgx-h100:1", settings, measured=measured, **given).measured
    assert answer is not None
    return answer


def test_inside_the_interval_is_normal_and_says_the_utilisation() -> None:
    plan = estimate("llama3-8b", "dgx-h100:1", "tp=2", batch=128)[0]
    step_s = plan.prediction.step_time_s
    interval = plan.prediction.intervals["step_time_s"]

    times = {step_s: "as predicted", 1.001 * interval.high: "slow", 0.999 * interval.low: "fast"}
    for measured_s, verdict in times.items():
        (whole,) = beside(measured_s).phases
        assert (whole.verdict, whole.low_s, whole.high_s) == (verdict, interval.low, interval.high)
        assert bool(whole.causes) == (verdict != "as predicted")

    says = beside(2.0 * step_s).verdict
    assert says.startswith("the step takes 2.0 times its prediction")
    assert says.endswith(f"{50 * plan.prediction.mfu:.1f} % MFU")


def test_what_ran_otherwise_is_named_with_its_price() -> None:
    """With all recomputed a step takes as long as measured: so the answer says."""
    recomputed = estimate("llama3-8b", "dgx-h100:1", "tp=2 recompute=full", batch=128)[0].prediction.step_time_s

    (whole,) = beside(recomputed).phases

    assert whole.verdict == "slow"
    assert whole.causes[0].startswith("the prediction: steps of labs that nothing was fitted to were as far off")
    assert whole.causes[1].startswith(f"recompute=full would explain it, with {recomputed:.1f} s")


def test_rate_that_is_named_takes_as_long() -> None:
    """At 77 % of the matrix rate: 1 / 0.77 of the products' share and 1 of the rest."""
    plan = estimate("llama3-8b", "dgx-h100:1", "tp=2", batch=128)[0]
    products_s = plan.prediction.breakdown["matrix"]
    measured_s = plan.prediction.step_time_s + products_s

    (whole,) = beside(measured_s).phases

    line = next(cause for cause in whole.causes if cause.startswith("matrix FLOP/s at "))
    share = float(line.partition(" at ")[2].partition(" %")[0]) / 100
    # Half the rate doubles the products, and attention, logits and what they hide or wait for.
    assert 0.5 < share < 0.62


def test_log_of_the_run_is_read_and_one_of_another_refused(tmp_path: Path) -> None:
    train = tmp_path / "train.log"
    times = [30.0, *([14.0] * 20)]
    train.write_text("\n".join([*logs.megatron_arguments(), *logs.megatron(times)]), encoding="utf-8")

    step = beside(train)

    assert step.phases[0].measured_s == pytest.approx(14.0)
    assert step.source.startswith("train.log: Megatron-LM: 20 steps count")
    with pytest.raises(WrongQuestion, match="tp is 2 in the log and 4 in the plan; give the configuration that ran"):
        beside(train, "tp=4")
    with pytest.raises(WrongQuestion, match="64"):
        beside(train, batch=64)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ("generation=3", "phases of a step are measured with task='grpo'"),
        ("nothing.log", "no such file; write what a step took, 12.3s"),
        ("12,3s", "with a point for decimals"),
        (-1.0, "write seconds of a step"),
        ("0.5s", "at the peak rate of these accelerators a step takes"),
    ],
)
def test_what_is_no_step_is_refused(measured: object, words: str) -> None:
    with pytest.raises(WrongQuestion, match=words):
        beside(measured)


def test_screen_document_and_report_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(cli, [*ASKED, "--step-time", "30s", "-o", "mine.json"])

    assert shown.exit_code == 0, shown.output
    kept = document.load(Path("mine.json"))
    assert isinstance(kept, PlanSet) and kept.measured is not None
    assert kept.measured.verdict in " ".join(shown.output.split())
    assert "clusterwright explain mine.json --trace FILE" in " ".join(shown.output.split())
    assert main(["explain", "mine.json", "--recheck"]) == 0
    forged = replace(kept.measured, phases=(replace(kept.measured.phases[0], verdict="as predicted"),))
    with pytest.raises(Inconsistent, match="it says as predicted"):
        check(replace(kept, measured=forged))


def test_agent_is_told_and_reads_logs_of_its_folder_alone(tmp_path: Path) -> None:
    tools = AgentTools(tmp_path)

    told = tools.estimate("llama3-8b", "dgx-h100:1", "tp=2", batch=128, measured="30s")

    assert json.loads(json.dumps(told))["measured"]["phases"][0]["verdict"] == "slow"
    with pytest.raises(WrongQuestion, match="below the server's folder"):
        tools.estimate("llama3-8b", "dgx-h100:1", "tp=2", batch=128, measured="../train.log")


def test_fast_step_names_no_rate_above_the_datasheet_s() -> None:
    """Half the time would take twice the rate of products, which run at three quarters of their peak."""
    (whole,) = beside(7.5).phases

    assert whole.verdict == "fast"
    assert not [cause for cause in whole.causes if cause.startswith("matrix FLOP/s")]
    assert any(cause.startswith("fewer tokens than stated") for cause in whole.causes)


def test_next_command_states_the_time_in_full_and_what_does_not_fit_exits_with_1() -> None:
    slow = CliRunner().invoke(cli, [*ASKED, "--measured", "12345.678s"])

    assert "learn --step-time 12345.678s --plan" in " ".join(slow.output.split())
    assert main([*ASKED, "--measured", "30s"]) == 0
    assert main(["estimate", "llama3-70b", "--cluster", "dgx-h100:1", "tp=8", "--measured", "900s"]) == 1


def test_what_unseen_labs_were_off_by_is_the_accuracy_pages_figure() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "accuracy.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| dense, all stated |")]
    assert float(row.strip("| ").split("|")[-1]) == measured_step.UNSEEN
