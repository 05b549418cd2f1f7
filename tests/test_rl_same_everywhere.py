"""A site's measured steps and a stated law of learning: every command answers as ``plan --task`` does."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import planner
from planner.api import rechecking
from planner.base.errors import NoAnswer
from planner.commands.command_line import cli
from planner.rl import learned
from planner.schema.procurement import Procurement
from planner.schema.rl import RLPlan
from planner.schema.study import StudyResult
from planner.site import folder as folders

PINS = ["tp=1", "pp=1", "cp=1", "recompute=full"]
LAW = "0.5=1,1=3"
ASKED: dict[str, Any] = {"response": "1k/4k", "prompts": 64, "rollout": "tp=1", "placement": "async", "steps_at": LAW}
WORKLOADS = f"""
[[workloads]]
model = "qwen3-0.6b"
task = "grpo"
pins = {PINS}
step = {{ response = "1k/4k", prompts = 64, rollout = "tp=1", placement = "async", steps_at = "{LAW}", steps = 500 }}
"""
STUDY = f"""
objectives = ["step-time"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["80 GB"]
{WORKLOADS}
[costs]
accelerator = "$3,000"
"""
OFFER = f"""
currency = "USD"
horizon = "60 days"
{WORKLOADS}
[[candidates]]
node = "dgx-h100"
ways = ["on-demand"]
counts = [1]
price = {{ amount = "$20/h", date = "2026-11-20", source = "made up" }}
"""
ROWS = "run,source,model,cap,phase,accelerator,software,measured_s,predicted_s\n" + "".join(
    f"a,log,qwen3-0.6b,4000,{phase},H100-SXM5-80GB,{software},{over},100\n"
    for phase, software, over in (("generation", "vllm", 240), ("training", "megatron-core", 130), ("other", "", 60))
)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A site whose generation takes 2.4 times as long as predicted, its training 1.3 times."""
    folder = tmp_path / "lab"
    folders.init(folder, folders.HEADER)
    (folder / learned.FILE).write_text(ROWS, encoding="utf-8")
    return folder


def written(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_study_and_offer_take_a_sites_steps_and_a_law_as_plan_does(tmp_path: Path, lab: Path) -> None:
    """Three times as many steps at staleness 1, none more at a half: no placement is one step off."""
    best = planner.plan_rl("qwen3-0.6b", "dgx-h100:1", pin=PINS, site=lab, **ASKED)
    assert best.site is not None and best.site.factors[0].factor > 2.0

    study = planner.design(written(tmp_path, "study.toml", STUDY), site=lab)
    offer = planner.procure(written(tmp_path, "offer.toml", OFFER), site=lab, quick=True)
    assert isinstance(study, StudyResult) and isinstance(offer, Procurement)
    (job,) = offer.alternatives[0].workloads
    (placed,) = study.best[0].steps()
    assert job.post_training is not None
    for plan in (placed, job.post_training):
        assert isinstance(plan, RLPlan)
        assert (plan.placement, plan.staleness, plan.steps_times) == (best[0].placement, best[0].staleness, 1.0)
        assert plan.step_s == pytest.approx(best[0].step_s)
    assert study.trials[0].objectives["step-time"] == pytest.approx(best[0].step_s)
    assert job.days == pytest.approx(best[0].step_s * 500 / 86400.0, rel=0.05)

    rechecking.check(study, str(tmp_path / "study.toml"), rechecking.RecheckInputs(site=lab))
    with pytest.raises(NoAnswer, match="site lab"):
        rechecking.check(offer, str(tmp_path / "offer.toml"))


def test_stale_steps_take_the_place_of_fewer_in_step(tmp_path: Path) -> None:
    """Twice as many steps at any staleness, one placement: a step-time and days of twice as many."""
    law = STUDY.replace(LAW, "0.1=2,1=2").replace("steps = 500", "staleness = 0.5")
    study = planner.design(written(tmp_path, "study.toml", law))
    offered = OFFER.replace(LAW, "0.1=2,1=2").replace("steps = 500", "staleness = 0.5")
    offer = planner.procure(written(tmp_path, "offer.toml", offered), quick=True)

    (placed,) = study.best[0].steps()
    (job,) = offer.alternatives[0].workloads
    assert placed.steps_times == 2.0
    assert study.trials[0].objectives["step-time"] == pytest.approx(2.0 * placed.step_s)
    assert job.days == pytest.approx(2 * 1000 * placed.step_s / 86400.0, rel=0.05)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (LAW, "1=0.5", "times of at least 1"),
        (f'steps_at = "{LAW}"', f'steps_at = "{LAW}", staleness = 4', "says nothing of 4"),
        ('"async"', '"colocated", staleness = 1', "nothing is stale there"),
        (f'"async", steps_at = "{LAW}"', '"colocated", weights = "broadcast"', "weights change in place there"),
    ],
)
def test_law_that_cannot_be_is_refused_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    for name, text in (("study.toml", STUDY), ("offer.toml", OFFER)):
        with pytest.raises(planner.WrongQuestion, match=rf"workloads\.0\.step.*{says}"):
            (planner.design if name == "study.toml" else planner.procure)(
                written(tmp_path, name, text.replace(old, new))
            )


def test_pools_of_one_file_are_those_named_one_by_one(tmp_path: Path) -> None:
    pools = '[[pools]]\nnode = "dgx-h100"\ncount = 1\n[[pools]]\nnode = "hgx-h20"\ncount = 1\n'
    words = ["plan", "qwen3-0.6b", "--task", "grpo", "--response", "1k/4k", "--placement", "in-step", "--json"]
    answers = [
        json.loads(CliRunner().invoke(cli, [*words, *named]).stdout)["plans"][0]
        for named in (
            ["--cluster", str(written(tmp_path, "lab.toml", pools))],
            ["--cluster", "dgx-h100:1", "--cluster", "hgx-h20:1"],
        )
    ]
    assert answers[0]["step_s"] == answers[1]["step_s"]


def test_broken_steps_of_a_site_stop_only_who_asks_for_them(tmp_path: Path, lab: Path) -> None:
    (lab / learned.FILE).write_text(ROWS + "broken\n", encoding="utf-8")
    plain = 'model = "qwen3-0.6b"\nmethod = "finetune"\nbatch = 8\n'
    study = STUDY.replace(WORKLOADS, f"[[workloads]]\n{plain}")

    assert planner.design(written(tmp_path, "plain.toml", study), site=lab, quick=True).best
    with pytest.raises(planner.WrongQuestion, match="no measured phase"):
        planner.design(written(tmp_path, "study.toml", STUDY), site=lab)
    with pytest.raises(planner.WrongQuestion, match="no measured phase"):
        planner.procure(written(tmp_path, "offer.toml", OFFER), site=lab)


def test_site_that_is_not_there_is_refused_alike(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for ask in (
        lambda: planner.procure(written(tmp_path, "offer.toml", OFFER), site=nowhere),
        lambda: planner.design(written(tmp_path, "study.toml", STUDY), site=nowhere),
        lambda: planner.fit_rl("qwen3-0.6b", "H100", response="1k/4k", site=nowhere),
        lambda: planner.plan_rl("qwen3-0.6b", "dgx-h100:1", response="1k/4k", site=nowhere),
    ):
        with pytest.raises(planner.WrongQuestion, match=r"nowhere'?: no such folder; make a site"):
            ask()
