"""What runs inside the job, as far as that needs no PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

from planner import api
from planner.planning import document
from planner.rebalancing.shares import evenly, none_idle, of_plan

ROOT = Path(__file__).resolve().parent.parent


def test_shares_come_from_a_plan(tmp_path: Path) -> None:
    found = api.plan(
        "bert-large", ("dgx-h100:1", "dgx-a100-80gb:1"), batch="96", pin=("tp=1", "pp=1"), launchable=False
    )
    assert found.plans[0].parallelism.groups
    file = tmp_path / "plan.json"
    file.write_text(document.as_json(found), encoding="utf-8")
    shares = of_plan(file)
    assert len(shares) == found.plans[0].parallelism.dp and sum(shares) == 96
    assert len(set(shares)) > 1
    alike = next(p for p in found.plans if not p.parallelism.groups)
    assert len(set(of_plan(file, alike.rank))) == 1


def test_a_plan_that_cuts_layers_is_refused(tmp_path: Path) -> None:
    found = api.plan("gpt2-medium", "t4-4:1", batch="64", pin=("pp=2",))
    file = tmp_path / "plan.json"
    file.write_text(document.as_json(found), encoding="utf-8")
    with pytest.raises(ValueError, match="pin tp=1 pp=1"):
        of_plan(file)


def test_every_rank_has_a_sample() -> None:
    assert evenly(10, 4) == [3, 3, 2, 2]
    assert none_idle([9, 0, 1, 0]) == (7, 1, 1, 1)
    with pytest.raises(ValueError, match="too small"):
        none_idle([1, 0])


def test_the_runtime_needs_neither_the_search_nor_pytorch_to_be_imported() -> None:
    told = (
        "import sys, planner.rebalancing.training as u; "
        "assert not {m for m in sys.modules if m.split('.')[0] in ('torch', 'pulp', 'pydantic', 'pandas')}; "
        "assert not {m for m in sys.modules if m.startswith(('planner.search', 'planner.cost', 'planner.catalog'))}"
    )
    subprocess.run([sys.executable, "-c", told], check=True, cwd=ROOT)
