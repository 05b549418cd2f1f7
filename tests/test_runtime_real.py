"""Uneven batches in a real job: torchrun, Gloo, DistributedDataParallel. Needs PyTorch (``make test-real``)."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed here; make test-real installs it"
)


@functools.cache
def trained(ranks: int) -> dict[str, Any]:
    """What the job of so many ranks printed."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, str(ROOT / "tests" / "uneven_training.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_loss_curve_is_that_of_one_process(ranks: int) -> None:
    found = trained(ranks)
    assert len(found["losses"]) == 24
    assert max(abs(a - b) for a, b in zip(found["losses"], found["alone"], strict=True)) <= 1e-6
    assert len({tuple(epoch["shares"]) for epoch in found["epochs"]}) > 1


@pytest.mark.parametrize("ranks", [2, 4])
def test_steps_come_close_to_the_ideal_once_replanned(ranks: int) -> None:
    found = trained(ranks)
    first, last = found["epochs"][0]["step_s"], found["epochs"][-1]["step_s"]
    assert last <= 1.1 * found["ideal_s"], found["epochs"]
    assert last <= 0.75 * first, found["epochs"]


def test_the_noise_scale_is_estimated() -> None:
    assert trained(4)["noise"] > 0
