"""``preflight.py``: two processes of gloo measure their links, and stop where these are slower than planned."""

import os
import subprocess
from pathlib import Path

import pytest

from planner.launchers import bundle, parts
from tests.launchers.environments import given, python
from tests.launchers.spread import Case, plan

PROCESSES = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.mark.parametrize(("link", "code"), [(1e3, 0), (1e15, 1)])
def test_links_slower_than_planned_stop_the_job(link: float, code: int, tmp_path: Path) -> None:
    """One node of two accelerators: of 1 kB/s any two processes are faster, of 1 PB/s none."""
    runs = python("torchrun")
    whole = plan(Case("megatron-core", "llama3-8b", "dgx-h100:1", "tp=2"))
    text = bundle(whole, parts("megatron"), given("megatron"), before=True).files["preflight.py"]
    text = text.replace("'per_node': 8", "'per_node': 2").replace("'scaleup': 450000000000.0", f"'scaleup': {link}")
    (tmp_path / "preflight.py").write_text(text, encoding="utf-8")

    done = subprocess.run(
        [runs, *PROCESSES, "preflight.py"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == code, done.stderr
    assert "preflight: all-reduce in a node" in done.stdout
    assert done.stdout.count("NOT as planned") == 2 * code
