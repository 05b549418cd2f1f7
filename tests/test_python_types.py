"""Strict type checkers see what Python callers write: a misspelt or wrong-typed keyword is an error in each line."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RIGHT = """
from dataclasses import replace
from pathlib import Path
from typing import assert_type

import planner
import clusterwright as cw
from planner.schema.plan import Plan, PlanSet

plans = cw.plan("llama3-8b", "dgx-h100:2", batch=64, tokens=1e12, pin={"tp": 8}, catalog=Path("own"), deadline="30 d")
assert_type(plans, PlanSet)
assert_type(plans[0], Plan)
several: list[cw.PlanSet | cw.Plan] = [plans, plans[0]]
plans[:2].to_frame().plot()
assert_type(cw.list_nodes()[0].accelerators, int)
cw.plan(cw.list_models()[0], cw.node("dgx-h100"), batch=[64, 128], pin={"tp": [4, 8]})
cw.procure(model="llama3-8b", node=cw.node("dgx-h100"))
assert_type([plan.prediction.mfu for plan in plans], list[float])
assert_type(planner.estimate("llama3-8b", "dgx-h100:2", tp=8, recompute="full"), PlanSet)
part = replace(cw.accelerator("H100-SXM5-80GB"), memory=1e11)
mixed = cw.plan("llama3-8b", [cw.cluster("dgx-h100", 2, accelerator=part), "dgx-a100-80gb:1"], price=2.1)
cw.export(mixed, "megatron", "out", rank=1, set={"lr": 1e-4})
cw.procure("lab.toml", deadline="60 d", node=["hgx-h100"])[0].to_frame().plot()
cw.procure(model=replace(cw.model("llama3-8b"), layers=40), tokens=1e12)
cw.design("study.toml", shard=(1, 4))[0].to_json()
cw.design("study.toml", merge=["shard-1.json", Path("shard-2.json")])
cw.validate("runs.csv", by="model").document["overall"]
"""
WRONG = [
    'cw.plan("llama3-8b", "dgx-h100:2", bacth=64)',
    'cw.plan("llama3-8b", "dgx-h100:2", tpo=1)',
    'cw.plan("llama3-8b", "dgx-h100:2", seq=8.5)',
    'cw.plan("llama3-8b", "dgx-h100:2", objective="tme")',
    'cw.plan("llama3-8b", "dgx-h100:2", pin={"tq": 8})',
    'cw.plan("llama3-8b", 16)',
    'cw.estimate("llama3-8b", "dgx-h100:2", ttp=8)',
    'cw.estimate("llama3-8b", "dgx-h100:2", tp=8.5)',
    'cw.plan("llama3-8b", "dgx-h100:2", batch=["64"])',
    'cw.list_nodes("h100")',
    'cw.plan_images("resnet50", batch="256")',
    'cw.procure(buget="$5M")',
    'cw.design(3)',
    'cw.design("study.toml", merge=3)',
    'cw.procure(model=3)',
    'cw.compare("a.json")',
    'cw.explain("a.json", rank="1")',
    'cw.export("a.json", "megatron", set=["lr=3"])',
    'cw.validate("runs.csv", by="sorce")',
    'cw.calibrate("runs.csv", output=None)',
    "cw.load(3)",
    'cw.cluster("dgx-h100", count="2")',
    'cw.model("llama3-8b", 3)',
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(RIGHT, encoding="utf-8")
    wrong.write_text("import clusterwright as cw\n" + "\n".join(WRONG) + "\n", encoding="utf-8")
    return right, wrong


def refused(command: list[str], cwd: Path) -> dict[str, set[int]]:
    """Lines with an error, by file."""
    shown = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    found: dict[str, set[int]] = {"right.py": set(), "wrong.py": set()}
    for name, line in re.findall(r"(right\.py|wrong\.py):(\d+)(?::\d+)?:? (?:- )?error", shown.stdout):
        found[name].add(int(line))
    assert shown.stdout, shown.stderr
    return found


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is of the development install")
def test_mypy(files: tuple[Path, Path]) -> None:
    found = refused([sys.executable, "-m", "mypy", "--strict", *map(str, files)], ROOT)
    assert found == {"right.py": set(), "wrong.py": set(range(2, len(WRONG) + 2))}


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed (pip install pyright)")
def test_pyright(files: tuple[Path, Path]) -> None:
    found = refused(["pyright", "--pythonpath", sys.executable, *map(str, files)], files[0].parent)
    assert found == {"right.py": set(), "wrong.py": set(range(2, len(WRONG) + 2))}
