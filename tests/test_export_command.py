"""``clusterwright export`` as it is typed."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from planner.base.reading import short_hash
from planner.planning import document
from planner.schema.digest import sealed
from tests.asking import ask
from tests.launchers.spread import Case, plan
from tests.words import worded

TRANSCRIPT = Path(__file__).parent / "golden" / "transcripts" / "export.txt"
KEPT = Path(__file__).parent / "golden" / "plans" / "1" / "dense.json"
EXPECTED = ["README", "job.sbatch", "plan.json", "plan_check.py", "release_check.py", "start.sh", "target.json"]
LINES = (
    "export plan.json --to megatron+slurm --rank 1",
    "export plan.json --to megatron+slurm --rank 1",
    "export plan.json --to megatron+slurm --rank 1 --force --set save=/ckpt --set data-path=/data",
    "export plan.json --to torchtitan",
    "export plan.json --to torchrun+jobset -o both",
    "export plan.json --to megatron+slrm",
    "export plan.json --to megatron --set data-pth=/data",
    "export plan.json --to megatron --set data-path",
    "export plan.json --to megatron --rank 7",
    "export missing.json --to megatron",
    "export --to megatron",
    "export --to list",
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_bytes(KEPT.read_bytes())
    return tmp_path


def test_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for line in LINES:
        answer = ask(capsys, line)
        shown.append(f"$ clusterwright {line}\n{answer.report}{answer.err}[{answer.code}]\n")
    transcript = "\n".join(shown)
    if os.environ.get("CLUSTERWRIGHT_REGENERATE"):
        TRANSCRIPT.write_text(transcript, encoding="utf-8")
    assert transcript == TRANSCRIPT.read_text(encoding="utf-8"), "CLUSTERWRIGHT_REGENERATE=1 if this is meant"


def test_json_says_what_was_written(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    answer = ask(capsys, "export plan.json --to megatron+slurm -o out --json")
    assert answer.code == 0
    assert [*answer.document["folders"]] == ["out/rank-1", "out/rank-2"]
    for name, said in answer.document["folders"].items():
        assert sorted(path.name for path in (folder / name).iterdir()) == said["files"]
        assert os.access(folder / name / "start.sh", os.X_OK)


def test_plans_that_a_target_cannot_express_are_left_out(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    found["plans"][1] = {**document.dump(plan(Case("fsdp2", "llama3-8b", "dgx-h100:2", "tp=2"))), "rank": 2}
    (folder / "plan.json").write_text(json.dumps(found), encoding="utf-8")
    answer = ask(capsys, "export plan.json --to torchtitan -o out")
    assert answer.code == 0
    assert "Excluded       plan 1 cannot be written for torchtitan" in answer.report
    assert [path.name for path in (folder / "out").iterdir()] == ["rank-2"]


def test_each_plan_of_a_set_is_told_of(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """What all say once, what some say with their folders."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    found["plans"][1] = {**document.dump(plan(Case("fsdp2", "llama3-8b", "dgx-h100:2", "tp=2"))), "rank": 2}
    (folder / "plan.json").write_text(json.dumps(found), encoding="utf-8")
    said = ask(capsys, "export plan.json --to megatron -o out").report.splitlines()
    kept = [f"rank-{p['rank']}" for p in found["plans"] if p["rank"] != 2]
    others = f"({', '.join(kept)})" if len(kept) > 1 else f"({kept[0]})"
    assert [line.endswith("(rank-2)") for line in said if " runtime: " in line] == [True]
    assert [line.endswith(others) for line in said if "norm epsilon" in line] == [True]
    assert len([line for line in said if "<data-path>" in line]) == 1
    assert not [line for line in said if "(--set" in line and "rank-" in line]
    assert len([line for line in said if line.startswith("Start ")]) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parallelism": {"tp": 8}}, "tp x pp x cp x dp is 256, the cluster has 128"),
        ({"batch": {"micro": 3}}, "is not the global batch"),
        ({"schema_version": 99}, "schema_version is 99, this program reads 1 and 2; write the plan again"),
        ({"batch": {"size": 3}}, "batch.size"),
    ],
)
def test_a_plan_edited_into_a_contradiction_is_refused(
    change: dict[str, object], says: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))["plans"][0]
    for key, value in change.items():
        found[key] = {**found[key], **value} if isinstance(value, dict) else value
    (folder / "plan.json").write_text(json.dumps(found), encoding="utf-8")
    answer = ask(capsys, "export plan.json --to megatron")
    assert answer.code == 2
    assert says in answer.err
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_plan_that_does_not_fit_is_not_written(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    ask(capsys, "estimate llama3-70b --cluster dgx-h100:16 tp=2 pp=2 -o plan.json --force")
    answer = ask(capsys, "export plan.json --to megatron")
    assert answer.code == 2
    assert re.search(r"plan 1 does not fit: memory [\d.]+ GiB, the limit is [\d.]+ GiB; it would", answer.err)
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_settings_of_a_pool_reach_the_plans_that_use_it(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    over_two = json.loads(KEPT.with_name("pools.json").read_text(encoding="utf-8"))["plans"][0]
    found["plans"] = [over_two, found["plans"][1]]
    (folder / "plan.json").write_text(json.dumps(found), encoding="utf-8")
    answer = ask(capsys, "export plan.json --to torchrun+slurm -o out --set pool.dgx-a100-80gb.gpu-type=ampere")
    assert answer.code == 0
    scripts = [(folder / "out" / f"rank-{n}" / "job.sbatch").read_text(encoding="utf-8") for n in (1, 2)]
    assert ["=ampere:8" in script for script in scripts] == [True, False]


@worded("export.values")
def test_values_that_a_launcher_would_stop_at_are_refused(
    more: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> str:
    answer = ask(capsys, f"export plan.json --to megatron -o out {more}")
    assert answer.code == 2 and not (folder / "out").exists()
    return answer.err.splitlines()[-1]  # behind what is said of the catalog


def test_an_empty_folder_is_filled_and_stays_the_same(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder / "here"
    here.mkdir()
    before = here.stat().st_ino
    monkeypatch.chdir(here)
    assert ask(capsys, "export ../plan.json --to megatron -o . --rank 1").code == 0
    assert ask(capsys, "export ../plan.json --to megatron+slurm -o . --rank 2 --force").code == 0
    assert here.stat().st_ino == before
    assert sorted(path.name for path in Path.cwd().iterdir()) == EXPECTED
    assert sorted(path.name for path in folder.iterdir()) == ["here", "plan.json"]


@pytest.mark.parametrize("planted", ["unsealed", "elsewhere", "link", "pipe", "large"])
def test_a_list_that_somebody_planted_gets_no_file_removed(
    planted: str, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts a ``target.json`` beside a file may know its digest."""
    made = folder / "out"
    made.mkdir()
    (made / "thesis.tex").write_text("years of work", encoding="utf-8")
    digests = {"thesis.tex": short_hash(b"years of work")}
    if planted == "elsewhere":
        digests = {"../out/thesis.tex": digests["thesis.tex"]}
    elif planted == "link":
        (made / "thesis.tex").rename(folder / "thesis.tex")
        (made / "thesis.tex").symlink_to(folder / "thesis.tex")
    elif planted == "pipe":
        (made / "thesis.tex").unlink()
        os.mkfifo(made / "thesis.tex")
    elif planted == "large":
        monkeypatch.setattr("planner.launchers.folder.LARGEST", 100)
    target = {"kind": "target", "sha256": digests}
    (made / "target.json").write_text(json.dumps(target if planted == "unsealed" else sealed(target)), encoding="utf-8")

    answer = ask(capsys, "export plan.json --to megatron -o out --force")

    assert (answer.code, "export did not write" in answer.err) == (2, True)
    assert sorted(path.name for path in made.iterdir()) == ["target.json", "thesis.tex"]


def test_the_recommended_plan_of_several_is_marked(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = document.load(folder / "plan.json")
    (folder / "run.json").write_text(replace(found, recommended=2).to_json(), encoding="utf-8")
    shown = ask(capsys, "export run.json --to megatron -o out").report
    assert "out/rank-2 (recommended): " in shown and "out/rank-1: " in shown
    answer = ask(capsys, "export run.json --to megatron -o out --force --json")
    assert answer.document["recommended"] == "out/rank-2"
    alone = ask(capsys, "export run.json --to megatron -o alone --rank 2")
    assert "(recommended)" not in alone.report
