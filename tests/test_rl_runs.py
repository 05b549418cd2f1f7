"""A run of RL post-training beyond its step: failures, a stated law of learning, the engine's release."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import catalog, plan_rl
from planner.base.errors import WrongQuestion
from planner.commands.screen import rl_view
from planner.cost.goodput import ACCELERATOR_MTBF_S, RESTART_S
from planner.report.post_training import proof
from planner.rl import comparison, constants
from planner.schema.rl import RLPlan
from planner.verify.finding import Inconsistent
from planner.verify.post_training import check_post_training

ASKED: dict[str, Any] = {"response": "1k/4k", "pin": ["tp=1", "pp=1", "cp=1", "recompute=full"], "prompts": 64}


def asked(placement: str, **more: Any) -> RLPlan:
    """The best step of a placement on two nodes of H100."""
    return plan_rl("qwen3-0.6b", "dgx-h100:2", placement=placement, **{**ASKED, **more})[0]  # type: ignore[arg-type]


def test_replicas_apart_are_lost_one_by_one_and_colocated_ones_with_all() -> None:
    """Of 8 replicas 7 are left: responses of each by 8 / 7, a step no longer than that. Losses: seconds of the run with
    interruptions, times accelerators, over the mean time between failures.
    """
    apart = asked("in-step", split="8:8", rollout="tp=1", steps=100_000)
    lost = apart.failures

    assert lost is not None and lost.step_without_s is not None
    assert apart.rollout[0].replicas == 8
    assert apart.step_s < lost.step_without_s < 8.0 / 7.0 * apart.step_s
    assert lost.interruptions == pytest.approx(lost.replica_losses, rel=1e-9)  # as many accelerators train
    assert lost.again_s is not None
    away_s = RESTART_S * (lost.step_without_s / apart.step_s - 1.0)
    training_s = lost.days * 86400.0 - lost.replica_losses * (away_s + lost.again_s)
    assert lost.replica_losses == pytest.approx(8.0 * training_s / ACCELERATOR_MTBF_S, rel=1e-9)
    assert 1.0 < lost.days / apart.days < 1.01

    alone = asked("in-step", split="8:2", rollout="tp=2").failures
    together = asked("colocated").failures
    assert alone is not None and together is not None
    assert alone.step_without_s is None and alone.replica_losses > 0.0
    assert together.replica_losses == 0.0 and together.interruptions > 0.0


def test_responses_in_flight_of_a_lost_replica_are_generated_again(tmp_path: Path) -> None:
    """Half of the responses have 100 tokens, half 300: a long one is in flight three times as long, half done, so by
    mean lengths of 200 each has (0.25 x 50 + 0.75 x 150) / 200 = 0.625 done. All 128 of a replica of 8 are in flight.
    """
    file = tmp_path / "lengths.txt"
    file.write_text("100\n300\n", encoding="utf-8")
    lost = (apart := asked("in-step", split="8:8", rollout="tp=1", response=file)).failures

    assert lost is not None and lost.responses_lost == 128.0
    assert lost.again_s == pytest.approx(128 * 0.625 / 1024 * apart.phases.generation_s, rel=1e-6)


def test_law_of_learning_is_the_users_own(capsys: pytest.CaptureFixture[str]) -> None:
    """2 times as many steps at staleness 1: 1.5 at 0.5; what is best is so by the steps that it needs."""
    free = plan_rl("qwen3-0.6b", "dgx-h100:2", split="8:8", **ASKED)
    ruled = plan_rl("qwen3-0.6b", "dgx-h100:2", split="8:8", steps_at="1=2", **ASKED)

    by_placement = {plan.placement: plan for plan in ruled}
    off = by_placement["one-step-off"]
    assert off.steps_times == 2.0 and by_placement["in-step"].steps_times == 1.0
    plain = {plan.placement: plan for plan in free}["one-step-off"]
    assert (off.days, off.step_s) == (pytest.approx(2.0 * plain.days), plain.step_s)
    needed = [plan.step_s * (plan.steps_times or 1.0) for plan in ruled]
    assert needed == sorted(needed)
    half = asked("async", staleness=0.5, split="8:8", steps_at="1=2")
    assert half.steps_times == pytest.approx(1.5)
    with pytest.raises(WrongQuestion, match=r"ends at a staleness of 0\.5 and says nothing of 1"):
        asked("one-step-off", split="8:8", steps_at="0.5=1.2")
    short = plan_rl("qwen3-0.6b", "dgx-h100:2", placement="async", split="8:8", steps_at="0.5=1.2", **ASKED)
    assert max(point.staleness for point in short.front) == 0.5
    gain = comparison.compared(free, replace(ruled, plans=(off,)))
    assert gain["gain"] == pytest.approx(off.tokens_per_s / free.plans[0].tokens_per_s / 2.0)
    assert gain["usd"] == pytest.approx(2.0 * off.usd_per_step / free.plans[0].usd_per_step)  # type: ignore[operator]
    assert ["steps of learning", "1 x", "2 x"] in gain["differing"]
    for answer, head in ((free, "1,000 steps"), (ruled, "the run")):
        rl_view.show(answer)
        shown = capsys.readouterr().out
        assert head in shown and ("1,000 steps " in shown) == (head != "the run")
    for text in ("1=0.9", "1=2,4=1.5", "0=2", "much", "", "1=1.1,1=3"):
        with pytest.raises(WrongQuestion, match="steps_at"):
            asked("async", steps_at=text)


def test_older_engine_takes_its_own_defaults() -> None:
    """vLLM before 0.8 has 256 sequences in flight, of 1,024 a replica here."""
    more = {"rollout": "tp=1", "prompts": 1024}
    newest = asked("colocated", engine_release="0.8.0", **more)
    older = asked("colocated", engine_release="0.7.3", **more)

    assert (newest.rollout[0].in_flight, older.rollout[0].in_flight) == (1024.0, 256.0)
    assert older.phases.generation_s > newest.phases.generation_s == asked("colocated", **more).phases.generation_s
    with pytest.raises(WrongQuestion, match="the newest vLLM known here is"):
        asked("colocated", engine_release="9.9")
    with pytest.raises(WrongQuestion, match="no release"):
        asked("colocated", engine_release="newest")
    with pytest.raises(WrongQuestion, match="TensorRT-LLM is known as one; leave it out, or take vllm, sglang"):
        asked("colocated", engine="tensorrt-llm", engine_release="1.0")


@pytest.mark.parametrize(
    ("release", "on_h100", "on_h20", "on_b200"),
    [
        (None, (256, 512), (256, 512), (512, 512)),
        ("0.5.23", (256, 512), (256, 512), (512, 512)),
        ("v0.5.3", (256, 512), (256, 512), (512, 512)),
        ("0.5.2", (160, 160), (256, 256), (512, 512)),
        ("0.4.6.post1", (160, 160), (256, 256), (512, 512)),
        ("0.4.5", (160, 160), (160, 160), (160, 160)),
    ],
)
def test_graphs_of_sglang_by_release(
    release: str | None, on_h100: tuple[int, int], on_h20: tuple[int, int], on_b200: tuple[int, int]
) -> None:
    """Most sequences that its graphs launch, below tp=4 and from it on, as its files have them."""
    engine = constants.at_release(constants.engine("sglang"), release)
    known = catalog.load()
    found = [engine.captures(known.accelerators[name]) for name in ("H100-SXM5-80GB", "H20", "B200-SXM-180GB")]

    assert found == [on_h100, on_h20, on_b200]


def test_sequences_beyond_the_graphs_of_a_release_are_launched_by_the_host() -> None:
    """240 responses in flight: 0.5.3 has graphs for them on H100, 0.5.2 for 160; at tp=4 0.5.23 has some for 512."""
    more = {"engine": "sglang", "rollout": "tp=1,sequences=240", "prompts": 1024}
    newer, older = (asked("colocated", engine_release=release, **more) for release in ("0.5.3", "0.5.2"))

    assert newer.phases.generation_s < 0.9 * older.phases.generation_s
    for no_release in ("0.5.x", "0.5.", "0", "0.5.2.1.1", "0.5.2a"):
        with pytest.raises(WrongQuestion, match="no release; write it as"):
            asked("colocated", engine="sglang", engine_release=no_release)
    with pytest.raises(WrongQuestion, match=r"SGLang changed in 0\.5\.3; write all three numbers"):
        asked("colocated", engine="sglang", engine_release="0.5")
    with pytest.raises(WrongQuestion, match=r"the newest SGLang known here is 0\.5\.23"):
        asked("colocated", engine="sglang", engine_release="0.5.24")


def test_failures_that_shorten_a_run_are_found() -> None:
    found = plan_rl("qwen3-0.6b", "dgx-h100:2", placement="colocated", **ASKED)
    plan = found.plans[0]
    assert plan.failures is not None
    edited = replace(plan, failures=replace(plan.failures, days=0.5 * plan.days))
    with pytest.raises(Inconsistent, match="days with failures"):
        check_post_training(replace(found, plans=(edited,)))


def test_roles_have_whole_nodes_and_one_layout_of_replicas() -> None:
    """Training sets the pace: fewer replicas, of two layouts, would do, and the rest of their node would stand idle.
    The cheapest step has these: whatever fills the node is billed.
    """
    posed: dict[str, Any] = {"task": "ppo", "response": "1k/4k", "placement": "async"}
    found = plan_rl("llama3.1-8b", "dgx-h100:2", **posed)[0]
    least = plan_rl("llama3.1-8b", "dgx-h100:2", objective="cost", **posed)

    assert [side.accelerators for side in found.rollout] == [8]
    assert found.rollout[0].replicas * found.rollout[0].tp == 8
    assert sum(side.accelerators for side in least[0].rollout) < 8
    assert least[0].usd_per_step is not None and found.usd_per_step is not None
    assert least[0].usd_per_step < 0.95 * found.usd_per_step
    assert proof(least) == "proven over the splits and lengths of a step tried"


def test_decoding_is_as_an_engine_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Of dense models within a third, nothing fitted; of a mixture twice as long is a known shortfall."""
    from benchmarks import rl_engine

    rl_engine.main()
    ratios = {line.partition(":")[0]: float(line.split("predicted ")[1].split()[0])
              for line in capsys.readouterr().out.splitlines() if " on " in line}  # fmt: skip

    dense = {name: ratio for name, ratio in ratios.items() if "llama" in name}
    assert len(dense) == 6 and all(0.9 < ratio < 1.35 for ratio in dense.values())
    assert all(1.5 < ratio < 2.1 for name, ratio in ratios.items() if name not in dense)
