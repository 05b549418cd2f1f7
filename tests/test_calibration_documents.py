"""What ``calibrate`` prints is what the published schemas say, of all it can be asked."""

import json
from pathlib import Path

import pytest

from planner.base import resources
from tests.asking import ask
from tests.installed import collectives
from tests.test_measure import _elsewhere
from tests.test_plan_schema import wrong


@pytest.mark.slow
def test_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = resources.runs().read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "runs.csv").write_text("".join([rows[0], *rows[1:400:8]]), encoding="utf-8")
    asked = f"calibrate {tmp_path / 'runs.csv'} -o {tmp_path / 'mine'} --json"
    data = json.loads(ask(capsys, f"{asked} --no-cross-validate").out)
    assert data["factors"] and data["files"] and wrong(data, "calibration") == []
    assert wrong({**data, "rows": "many"}, "calibration")
    site = json.loads(ask(capsys, f"{asked.replace('mine', 'site')} --site").out)
    assert site["before"] and site["files"] and wrong(site, "calibration") == []


def test_of_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = _elsewhere(tmp_path / "gemm.csv")
    asked = f"calibrate --table {table} --accelerator H100-SXM5-80GB -o {tmp_path / 'mine'} --json"
    data = json.loads(ask(capsys, asked).out)
    assert data["kinds"] and data["files"] and wrong(data, "kernel-calibration") == []
    assert wrong({**data, "mape": None}, "kernel-calibration")


def test_of_collectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nccl.csv").write_text(collectives(), encoding="utf-8")
    asked = (
        f"calibrate --collectives {tmp_path / 'nccl.csv'} --accelerator H100-SXM5-80GB -o {tmp_path / 'mine'} --json"
    )
    data = json.loads(ask(capsys, asked).out)
    assert data["errors"] and data["files"] and wrong(data, "collective-calibration") == []
    assert wrong({**data, "entries": 3}, "collective-calibration")
