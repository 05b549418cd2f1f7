"""The example consumer starts a job from the JSON alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "start_from_plan.py"
KEPT = ROOT / "tests" / "golden" / "plans"
PLANS = sorted(KEPT.glob("[12]/*.json"))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", EXAMPLE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_short_and_needs_nothing() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 45
    assert not [line for line in lines if "planner" in line and "import" in line]


@sweep("path", PLANS, ids=lambda path: path.stem)
def test_it_reads_every_released_plan(path: Path) -> None:
    said = run(path, "train.py", "--rank-of-node", 1)
    assert said.returncode == 0, said.stderr
    found = json.loads(path.read_text(encoding="utf-8"))
    plan = found["plans"][0] if found["kind"] == "plan-set" else found
    axes = plan.get("axes") or plan["parallelism"]
    assert f"TP={axes['tp']} PP={axes['pp']} " in said.stdout
    nodes = sum(pool["count"] for pool in plan["cluster"]["pools"])
    assert f"torchrun --nnodes={nodes} --nproc-per-node=8 --node-rank=1" in said.stdout


def test_it_refuses_another_version(tmp_path: Path) -> None:
    plan = json.loads((KEPT / "1" / "uneven.json").read_text(encoding="utf-8")) | {"schema_version": 99}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    said = run(tmp_path / "plan.json", "train.py")
    assert said.returncode == 2
    assert "schema version 99; this program reads 1 and 2" in said.stderr


@pytest.mark.slow
def test_unlike_pipelines_get_a_sentence(tmp_path: Path) -> None:
    from planner.planning import document
    from tests.launchers.spread import MIXED, mixed

    (tmp_path / "plan.json").write_text(document.as_json(mixed(*MIXED[0])), encoding="utf-8")
    said = run(tmp_path / "plan.json", "train.py")
    assert said.returncode == 2
    assert "groups of pipelines are cut differently" in said.stderr
    assert "Traceback" not in said.stderr
