"""A log of RL post-training read into a site: the factors that plans take from it."""

import json
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import planner
from planner.base.errors import WrongQuestion
from planner.commands.command_line import cli
from planner.rl import learned, phase_names
from planner.rl.learned import LikeJob, SitePhase, SiteSteps
from planner.schema.rl import RLPlanSet
from planner.schema.rl_site import RLLesson, SitePhaseName

ASKED: dict[str, Any] = {"response": "1k/4k", "placement": "colocated"}
JOB = LikeJob("llama3.1-8b", 4000.0)


def row(phase: SitePhaseName, measured_s: float, predicted_s: float, cap: float = 4000.0) -> SitePhase:
    """A measured phase of a run of vLLM on H100."""
    return SitePhase(run=f"{measured_s:g}", source="log", model="llama3.1-8b", cap=cap, phase=phase,
                     accelerator="H100-SXM5-80GB", software="vllm", measured_s=measured_s,
                     predicted_s=predicted_s)  # fmt: skip


def test_factor_is_the_mean_of_runs_held_by_the_built_in_figure() -> None:
    """Runs 1.5 and 1.2 times their predictions, an interval of 0.48: ln f = (ln 1.5 + ln 1.2) / (2 + 0.1397)."""
    steps = SiteSteps("lab", (row("generation", 150.0, 100.0), row("generation", 120.0, 100.0),
                              row("generation", 300.0, 100.0, cap=8000.0)))  # fmt: skip
    factor = steps.factor("generation", "H100-SXM5-80GB", "vllm@0.10", JOB)

    assert factor is not None and factor.runs == 2
    held = (0.14 / (0.48 / 1.2816)) ** 2
    assert factor.factor == pytest.approx(math.exp((math.log(1.5) + math.log(1.2)) / (2.0 + held)), rel=1e-3)
    for other in (
        ("training", "H100-SXM5-80GB", "vllm"),
        ("generation", "H20", "vllm"),
        ("generation", "H100-SXM5-80GB", "sglang"),
    ):
        assert steps.times(other[0], other[1], other[2], JOB) == 1.0  # type: ignore[arg-type]


def log(path: Path, plan: RLPlanSet, over: float, mean: float = 1000.0, steps: int = 4, batch: float = 8192.0) -> Path:
    """A log of verl whose generation takes `over` times its prediction; the first step is slow."""
    phases = plan[0].phases
    lines = [
        f"step:{n} - response_length/mean:{mean} - prompt_length/mean:24.0 - perf/total_num_tokens:"
        f"{batch * (24.0 + mean):.0f} - timing_s/gen:{slow * over * phases.generation_s} - "
        f"timing_s/old_log_prob:{phases.log_probabilities_s} - timing_s/update_actor:{phases.update_s} - "
        f"timing_s/step:{slow * (plan[0].step_s + (over - 1.0) * phases.generation_s)}\n"
        for n, slow in enumerate([3.0, *[1.0] * (steps - 1)], 1)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_log_teaches_its_site_and_others_are_refused(tmp_path: Path) -> None:
    plan = colocated()
    file = tmp_path / "rl.json"
    file.write_text(plan.to_json(), encoding="utf-8")
    site = tmp_path / "lab"
    train = log(tmp_path / "train.log", plan, 1.4)
    assert CliRunner().invoke(cli, ["init", "site", str(site)]).exit_code == 0

    def learn(train: Path, **more: object) -> RLLesson:
        return planner.learn(train, plan=file, site=site, **more).document  # type: ignore[arg-type, return-value]

    learn(train, dry_run=True)
    assert not (site / learned.FILE).exists()
    shown = CliRunner().invoke(cli, ["learn", str(train), "--plan", str(file), "--site", str(site), "--json"])
    document = json.loads(shown.stdout)
    assert (
        document["new"]
        and document["written"]
        and [p["phase"] for p in document["phases"]][:2] == ["generation", "training"]
    )
    factor = document["phases"][0]["factor"]
    assert 1.3 < factor < 1.4

    again = planner.estimate_rl("llama3.1-8b", "dgx-h100:2", "recompute=full", site=site, **ASKED)
    assert again[0].phases.generation_s == pytest.approx(factor * plan[0].phases.generation_s, rel=0.01)
    assert again.site is not None and again.site.factors[0].runs == 1
    held_back = planner.learn(train, plan=_written(tmp_path / "again.json", again), site=site).document
    assert held_back["phases"][0]["predicted_s"] == pytest.approx(
        plan[0].phases.generation_s, rel=0.01
    )  # the built-in figure's

    for train, says in (
        (log(tmp_path / "long.log", plan, 1.4, mean=2000.0), "2,000 tokens in the mean, the plan's 1,000"),
        (log(tmp_path / "short.log", plan, 1.4, steps=2), "the first of which does not count"),
        (log(tmp_path / "far.log", plan, 9.0), "accept=True learns it"),
        (log(tmp_path / "half.log", plan, 0.5, batch=4096.0), "plan's 8,192 .* again with prompts=256 "),
    ):
        with pytest.raises(WrongQuestion, match=says):
            learn(train)
    with pytest.raises(WrongQuestion, match="step_time: says nothing of post-training"):
        planner.learn(plan=file, site=site, step_time="3s")


@lru_cache(maxsize=1)
def colocated() -> RLPlanSet:
    """A stated step without a site."""
    return planner.estimate_rl("llama3.1-8b", "dgx-h100:2", "recompute=full", **ASKED)


def taught(folder: Path, plan: RLPlanSet, train: Path) -> RLLesson:
    """What a log of a plan's first placement teaches a site in a folder."""
    run = learned.PlanRun(plan, plan[0], phase_names.measured(train))
    return learned.lesson(folder, "lab", run, accept=False, write=True)


def test_log_that_has_grown_is_the_same_run(tmp_path: Path) -> None:
    """Ten steps, then the first ten, of the next of which generation takes 1.1 times as long, under another name."""
    first = log(tmp_path / "train.log", colocated(), 1.4, steps=10)
    grown = tmp_path / "copy.log"
    slower = log(tmp_path / "slower.log", colocated(), 1.5, steps=40).read_text(encoding="utf-8")
    grown.write_text(first.read_text(encoding="utf-8") + slower, encoding="utf-8")

    before, after, other = (taught(tmp_path, colocated(), path) for path in (first, grown, tmp_path / "slower.log"))

    assert (before.new, after.new, other.new) == (True, False, True)
    assert before.phases[0].measured_s < after.phases[0].measured_s
    assert [lesson.phases[0].runs for lesson in (before, after, other)] == [1, 1, 2]


def test_plan_that_was_edited_teaches_nothing(tmp_path: Path) -> None:
    """A figure changed, the digest left or taken out; and one that predicts no time of a phase and says so itself."""
    plan = colocated()
    train = log(tmp_path / "train.log", plan, 1.4)
    document = json.loads(plan.to_json())
    document["plans"][0]["phases"]["generation_s"] *= 0.9
    without = {key: value for key, value in document.items() if key != "digest"}
    file = tmp_path / "rl.json"

    for table in (document, without):
        file.write_text(json.dumps(table), encoding="utf-8")
        with pytest.raises(WrongQuestion, match="edited since"):
            planner.learn(train, plan=file, site=tmp_path)

    phases = replace(plan[0].phases, generation_s=0.0, other_s=0.0)
    lesson = taught(tmp_path, replace(plan, plans=(replace(plan[0], phases=phases),)), train)
    assert [row.phase for row in lesson.phases] == ["training"]
    assert "generation: the plan has no time of it" in lesson.left_out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,b,c,4000,generation,H20,vllm,1," + "1" * 140_000, ":3: field larger"),
        ("a,b,c,4000,generation,H20,vllm,1", ":3: no measured phase"),
        ("a,b,c,4000,generation,H20,vllm,1,2,3", ":3: more cells"),
        ("a,b,c,nan,generation,H20,vllm,1,2", ":3: cap = 'nan'"),
        ("a,b,c,4000,wait,H20,vllm,1,2", ":3: no measured phase"),
    ],
)
def test_broken_row_of_a_site_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    text = (
        "run,source,model,cap,phase,accelerator,software,measured_s,predicted_s\na,b,c,4000,generation,H20,vllm,1,2\n"
    )
    (tmp_path / learned.FILE).write_text(text + line + "\n", encoding="utf-8")

    with pytest.raises(WrongQuestion, match=words):
        learned.read(tmp_path, "lab")


def _written(path: Path, plan: RLPlanSet) -> Path:
    path.write_text(plan.to_json(), encoding="utf-8")
    return path
