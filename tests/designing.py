"""Small studies of a cluster's design, and what tests of several of their parts begin with."""

import types
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner import catalog
from planner.catalog.files import TomlDocument
from planner.commands.command_line import main
from planner.study import run as designing
from planner.study.question import reading
from planner.study.question.study import Study

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted((ROOT / "examples" / "studies").glob("*.toml"))
known = cache(catalog.load)


def run(*line: str) -> int:
    return main(list(line))


TINY = """
name = "tiny"
objectives = ["cost"]
trials = 20
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["24 GiB", "48 GiB", "80 GiB"]
"accelerator.peak.bf16" = { from = "250 TFLOP/s", to = "1000 TFLOP/s", points = 3, log = true }
"node.scaleup_bandwidth" = ["100 GB/s", "450 GB/s"]
"node.accelerators" = [4, 8]
[[workloads]]
model = "llama3-8b"
batch = 64
pins = ["recompute=none|full", "micro=1", "zero=1", "cp=1", "vpp=1", "offload=none"]
[costs]
basis = "purchase"
accelerator = "$3,000"
node = "$20,000"
[costs.per]
"accelerator.memory" = "$50 per GiB"
"accelerator.peak.bf16" = "$14 per TFLOP/s"
"node.scaleup_bandwidth" = "$5 per GB/s"
"""
TWO = TINY.replace('objectives = ["cost"]', 'objectives = ["step-time", "cost"]')


def parsed(text: str) -> TomlDocument:
    import tomllib

    return TomlDocument(Path("study.toml"), text, tomllib.loads(text))


@cache
def study(text: str = TINY) -> Study:
    return reading.study(parsed(text), known())


def _limited(usd: str) -> str:
    return TINY.replace("[costs]", f'[[constraints]]\nof = "capital"\nat_most = "{usd}"\n[costs]', 1)


@cache
def whole(text: str = TINY) -> Any:
    return designing.design(known(), study(text), designing.How())


@pytest.fixture
def searched(monkeypatch):
    """Small studies are searched by trials, not enumerated."""
    monkeypatch.setattr(designing, "SMALL", 0)


def by_trials(text, count, **more):
    how = designing.How(trials=count, explained=False, **more)
    return designing.design(known(), study(text), how)


class Tried:
    """Trials of a study that is not Optuna's: what proposals look at."""

    def __init__(self, points, worth):
        from optuna.study import StudyDirection
        from optuna.trial import TrialState

        self.directions = [StudyDirection.MINIMIZE]
        axes = study().axes
        self.trials = [
            types.SimpleNamespace(
                number=n, values=[worth(p)], constraints={}, state=TrialState.COMPLETE,
                params={axis.path: place for axis, place in zip(axes, p, strict=True)},
            )
            for n, p in enumerate(points)
        ]  # fmt: skip

    def get_trials(self, deepcopy, states):
        return self.trials


def whole_with(place, text=TINY, **more):
    how = designing.How(storage=str(place), explained=False, **more)
    return designing.design(known(), study(text), how)


LONG = """
import sys
from pathlib import Path
from planner import catalog
from planner.study import run
from planner.study.question import reading
run.SMALL = 0
study = reading.read(Path(sys.argv[1]), catalog.load())
run.design(catalog.load(), study, run.How(trials=34, storage=sys.argv[2], explained=False))
"""
