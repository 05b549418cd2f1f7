"""Small questions asked by the Python functions, each answered once a session."""

from functools import cache
from pathlib import Path

import clusterwright as cw
from planner.schema.plan import PlanSet
from planner.schema.study import StudyResult

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"batch": 64, "pin": {"cp": 1, "micro": 1}}
"""A question whose search takes a moment."""
STUDY = """
objectives = ["cost"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["40 GiB", "80 GiB"]
"node.accelerators" = [4, 8]
[[workloads]]
model = "llama3-8b"
batch = 64
pins = ["recompute=none", "micro=1", "zero=1", "cp=1", "vpp=1", "offload=none"]
[costs]
basis = "purchase"
accelerator = "$3,000"
"""


@cache
def sets() -> PlanSet:
    return cw.plan("llama3-8b", "dgx-h100:1..2", top=3, **SMALL)


@cache
def study(folder: Path) -> StudyResult:
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return cw.design(folder / "study.toml")
