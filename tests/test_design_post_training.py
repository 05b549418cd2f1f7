"""A post-training among the workloads of a study: what a point is worth to it."""

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner import catalog
from planner.api import rechecking
from planner.base.errors import NoAnswer, WrongQuestion
from planner.models.parameters import parameters
from planner.models.workload import find_model
from planner.schema.study import StudyResult
from planner.study.answer.document import question
from planner.study.question import reading
from planner.verify import study as verified
from planner.verify.finding import Inconsistent

STEPPED = """
objectives = ["step-time", "cost", "performance-per-dollar"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory_bandwidth" = ["2 TB/s", "3.35 TB/s"]
[[workloads]]
model = "qwen3-0.6b"
task = "grpo"
pins = ["tp=1", "pp=1", "cp=1", "recompute=full"]
step = { response = "lengths.txt", placement = "colocated", rollout = "tp=1", prompts = 64 }
[costs]
accelerator = "$3,000"
"""


def test_points_of_a_post_training_are_worth_its_fastest_step(tmp_path: Path) -> None:
    """On the catalog's own machine as ``plan --task grpo`` says it; with less bandwidth its responses take longer. The
    file of lengths stands beside the study.
    """
    (tmp_path / "lengths.txt").write_text("100\n300\n800\n", encoding="utf-8")
    file = tmp_path / "study.toml"
    file.write_text(STEPPED, encoding="utf-8")
    made = planner.design(file)
    assert isinstance(made, StudyResult)
    alone = planner.plan_rl("qwen3-0.6b", "dgx-h100:1", response=tmp_path / "lengths.txt", placement="colocated",
                            prompts=64, rollout="tp=1", pin=["tp=1", "pp=1", "cp=1", "recompute=full"])[0]  # fmt: skip

    slow, fast = made.trials
    assert fast.objectives["step-time"] == pytest.approx(alone.step_s)
    assert slow.objectives["step-time"] > 1.05 * alone.step_s
    flops = 6.0 * parameters(find_model("qwen3-0.6b")).active * alone.tokens_per_s
    assert fast.objectives["performance-per-dollar"] == pytest.approx(flops / (8 * 3000.0))
    (point,) = {point.number: point for point in made.best}.values()
    assert not point.plan and point.steps()[0].trainer == alone.trainer
    written = tmp_path / "study.json"
    written.write_text(made.to_json(), encoding="utf-8")
    assert planner.load(written) == made
    assert str(tmp_path) not in written.read_text(encoding="utf-8")
    assert "400 tokens a response, log-normal" not in str(made.assumptions)
    (law,) = [each for each in made.assumptions if each.what == "the same learning at any staleness"]
    assert law.flag == "workloads.step"
    rechecking.check(made, str(written))
    (tmp_path / "lengths.txt").write_text("100\n300\n900\n", encoding="utf-8")
    with pytest.raises(NoAnswer, match=r"lengths lengths\.txt"):
        rechecking.check(made, str(written))
    (tmp_path / "lengths.txt").unlink()
    with pytest.raises(WrongQuestion, match="no such file next to the file that names it"):
        rechecking.check(made, str(written))
    moved = replace(made.trials[1].plan[0], layout={"trains": 4, "rolls_out": 8})
    with pytest.raises(Inconsistent, match="not placed as the trial says"):
        verified.check(replace(made, trials=(slow, replace(fast, plan=(moved,)))))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"lengths.txt"', '"4k/1k"', r"workloads\.0\.step: response"),
        ('"lengths.txt"', '"none.txt"', "no such file"),
        ('"lengths.txt"', '"../lengths.txt"', "in its own folder or below"),
        ('"lengths.txt"', '"/etc/passwd"', "in its own folder or below"),
        ('"lengths.txt"', '"study.toml"', "line 2 is no length; write one of at least 1 a line$"),
        ('model = "qwen3-0.6b"', 'model = "qwen3-0.6b"\nlaunchable = true', "launchable: says nothing of grpo"),
    ],
)
def test_study_whose_step_cannot_be_is_refused_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STEPPED.replace(old, new), encoding="utf-8")

    with pytest.raises(WrongQuestion, match=says):
        planner.design(file)


def test_shards_from_two_folders_are_of_one_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name stands as it was written; what a document says of the lengths is their hash."""
    monkeypatch.chdir(tmp_path)
    asked = []
    for folder, longest in (("a", 800), ("b", 800), ("c", 900)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lengths.txt").write_text(f"100\n300\n{longest}\n", encoding="utf-8")
        (tmp_path / folder / "study.toml").write_text(STEPPED, encoding="utf-8")
        asked.append(question(reading.read(Path(folder, "study.toml"), catalog.load())))
    assert asked[0] == asked[1] != asked[2]
    assert asked[0].workloads[0]["step"]["response"] == "lengths.txt"
