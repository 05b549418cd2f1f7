"""Exported benchmarks train whole on two processes without a GPU, by their own ``start.sh`` from a clean folder.

``make test-launchers-real``. TRL's job and a script of one's own under Accelerate bring data and weights. The plan is
for two RTX 4090; ``on_cpu.py`` beside the job replaces what a CPU lacks.
``learn`` reads the logs; ``--accept``, for they are far from any prediction for a GPU.
"""

import csv
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from planner.commands.command_line import main
from tests.launchers.conformance import kept
from tests.launchers.environments import READERS, checkout, python

TINY = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rope_theta": 10000.0},
}
MEGATRON_OFF_GPU = (
    "--distributed-backend gloo --use-cpu-initialization --transformer-impl local --no-persist-layer-norm "
    "--no-rope-fusion --no-gradient-accumulation-fusion --no-masked-softmax-fusion"
)
JOBS = {
    "megatron": (
        "megatron-core",
        ["extra-args=" + MEGATRON_OFF_GPU],
        r"iteration +(\d+)/ +50 .* lm loss: ([0-9.E+-]+)",
    ),
    "torchtitan": ("fsdp2", [], r"step: +(\d+) .*?loss: +([0-9.]+)"),
    "hf-trainer": ("fsdp2", ["model=.", "extra-args=--use_cpu true"], r"()'loss': '?([0-9.]+)"),
}
"""Target -> runtime, settings, and how its log says a step's number, if it does, and its loss."""
OFF_GPU = {
    **{"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "PYTHONPATH": ".", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    **{"TORCHDYNAMO_DISABLE": "1", "MAKEFLAGS": "n"},  # nothing is compiled, Megatron-LM's index builder neither
}


LONG = pytest.mark.skipif("FIFTY_STEPS" not in os.environ, reason="jobs of some minutes: make test-launchers-real")


def started(target: str, binaries: Path) -> str:
    """What the exported job says, of its release, its model, its mesh and its steps."""
    shutil.copy(READERS / "on_cpu.py", "job/sitecustomize.py")
    shutil.copy("config.json", "job/config.json")
    known = os.environ | OFF_GPU | {"ON_CPU": target, "PATH": f"{binaries}:{os.environ['PATH']}"}
    with Path("job/train.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(["bash", "start.sh"], cwd="job", env=known, stdout=log, stderr=log, timeout=1800)

    text = re.sub(r"\x1b\[[0-9;]*m", "", Path("job/train.log").read_text(encoding="utf-8"))
    assert done.returncode == 0, text[-3000:]
    said = re.findall("plan_check: as planned: .*", text)
    assert any("parameters " in line for line in said) and any("ranks 2 " in line for line in said)
    return text


@LONG
@pytest.mark.parametrize("target", JOBS)
def test_an_exported_job_runs_fifty_steps(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, settings, step = JOBS[target]
    binaries = python("torchtitan-on-cpu" if target == "torchtitan" else target).parent
    if target == "megatron":
        settings = [*settings, f"megatron-lm={checkout()}"]
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(TINY), encoding="utf-8")
    words = ["--cluster", "ws-2xrtx4090:1", "--runtime", runtime, "--seq", "256", "--batch", "2", "-o", "plan.json"]
    assert main(["models", "import", "config.json", "--id", "tiny", "-o", "tiny.toml"]) == 0
    assert main(["estimate", "tiny.toml", *words]) == 0
    given = [word for setting in settings for word in ("--set", setting)]
    assert main(["export", "plan.json", "--to", target, "--benchmark", "-o", "job", *given]) == 0

    text = started(target, binaries)
    steps = re.findall(step, text)
    assert len({number for number, _ in steps} if target != "hf-trainer" else steps) == 50
    kept(target, steps=50)
    assert 4.0 < float(steps[-1][1]) < 7.0  # ln 256 = 5.5 of a model that knows nothing
    assert main(["init", "site", "lab"]) == 0
    assert main(["learn", "job/train.log", "--site", "lab", "--accept"]) == 0
    with Path("lab/runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))  # several where others take the processors for a while
    assert {(row["global_batch_seqs"], row["seq_len"], row["num_accelerators"]) for row in rows} == {("2", "256", "2")}
    assert all(float(row["step_time_s"]) > 0.0 for row in rows) and sum(int(row["steps"] or 50) for row in rows) >= 20


OWN_DATA = {
    "trl": ["model=model", "dataset=texts", "save=out", "extra-args=--use_cpu true"],
    "accelerate": ["script=own_script.py", "layer-class=LlamaDecoderLayer"],
}
"""Target -> settings of a job whose data and weights are those of :mod:`tests.launchers.own_script`."""


@LONG
@pytest.mark.parametrize("target", OWN_DATA)
def test_an_exported_job_with_own_data_runs_fifty_steps(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = python(target).parent
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(TINY), encoding="utf-8")
    words = ["--cluster", "ws-2xrtx4090:1", "--runtime", "hf-trainer", "--seq", "256", "--batch", "2"]
    words += ["--method", "full", "--tokens", "25600", "-o", "plan.json"]
    assert main(["models", "import", "config.json", "--id", "tiny", "-o", "tiny.toml"]) == 0
    assert main(["estimate", "tiny.toml", "zero=3", *words]) == 0
    given = [word for setting in OWN_DATA[target] for word in ("--set", setting)]
    assert main(["export", "plan.json", "--to", target, "-o", "job", *given]) == 0
    shutil.copy("config.json", "job/config.json")
    shutil.copy(READERS / "own_script.py", "job")
    subprocess.run([binaries / "python", "own_script.py", "write"], cwd="job", env=os.environ | OFF_GPU, check=True)

    text = started(target, binaries)

    assert "50/50" in text or "step: 50 " in text
    losses = [float(number) for number in re.findall(r"'?loss'?: '?([0-9.]+)", text)]
    assert losses and all(4.0 < loss < 7.0 for loss in losses)  # ln 256 = 5.5 of a model that knows nothing
    kept(target, steps=50)
