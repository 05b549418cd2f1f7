"""Logs and traces of jobs that really run on CPU: Hugging Face's Trainer in two processes, PyTorch's profiler."""

import csv
import os
import subprocess
from pathlib import Path

import pytest

from planner.commands.command_line import main
from planner.site.trace import reading
from planner.site.trace.ranks import shares
from tests.launchers.environments import python
from tests.test_trace import cut

SCRIPT = Path(__file__).resolve().parent / "trainer_job.py"
SAID = (
    *("model=gpt2", "family=dense", "accelerator=H100-SXM5-80GB", "num_accelerators=2", "seq_len=64"),
    *("tp=1", "pp=1", "runtime=pytorch-ddp"),
)
"""What this log does not say: the job ran on a CPU, which no catalog has."""


def test_the_log_of_a_job_that_trains_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interpreter = python("accelerate")
    monkeypatch.chdir(tmp_path)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    with Path("train.log").open("w", encoding="utf-8") as log:
        known = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([str(interpreter), *run], env=known, stdout=log, stderr=log, timeout=300)
    assert done.returncode == 0, Path("train.log").read_text()[-2000:]
    assert main(["init", "site", "lab"]) == 0
    given = [word for cell in SAID for word in ("--set", cell)]
    assert (
        main(["learn", "train.log", "--site", "lab", "--accept", *given]) == 0
    )  # a CPU is far from the GPU that is named
    with Path("lab/runs.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    # Two processes, four sequences each, accumulated twice: read from the log. Where all steps take a second or two,
    # the bar of progress has no fractions, the mean of the run is what there is: grade B.
    assert (row["global_batch_seqs"], row["micro_batch"]) == ("16", "4")
    assert row["grade"] == "B" or int(row["steps"]) >= 3
    assert 0.0 < float(row["step_time_s"]) < 30.0
    assert "Hugging Face Trainer: " in capsys.readouterr().out


PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule

with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=2),
    on_trace_ready=lambda each: each.export_chrome_trace("cpu.json.gz"),
) as profiler:
    for _ in range(3):
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))
        profiler.step()
"""


def test_a_trace_that_torch_makes_is_read(tmp_path: Path) -> None:
    """Of a CPU: its steps and operators are read."""
    subprocess.run([str(python("torchrun")), "-c", PROFILED], cwd=tmp_path, check=True, timeout=120)
    path = tmp_path / "cpu.json.gz"
    trace = reading.read(path, cut())
    assert len(trace.steps) == 2 and trace.is_host and not trace.cut_off
    (rank,) = trace.ranks()
    assert shares(rank).alone["matrix"] > 0.0
