"""Scripts that the package holds as texts: each reaches a job, and there it is Python or shell without a fault."""

import subprocess
import sys
from pathlib import Path

import pytest

from planner.launchers import EXPORTERS, bundle, parts, scripts
from planner.launchers.benchmark import in_turn, short
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

H100 = "dgx-h100:1"
JOBS = {
    "hf_trainer.py": ("hf-trainer", Case("hf-trainer", "llama3-8b", H100, "zero=3"), "train.py"),
    "megatron_bridge.py": ("megatron-bridge", Case("megatron-core", "llama3-8b", H100, "tp=2"), "train.py"),
    "plan_check.py": ("megatron-bridge", Case("megatron-core", "llama3-8b", H100, "tp=2"), "plan_check.py"),
    "plan_check_accelerate.py": ("hf-trainer", Case("hf-trainer", "llama3-8b", H100, "zero=3"), "plan_check.py"),
    "plan_check_deepspeed.py": ("deepspeed+ray-train", Case("deepspeed", "llama3-8b", H100, "zero=1"), "plan_check.py"),
    "plan_check_megatron.py": ("megatron", Case("megatron-core", "llama3-8b", H100, "tp=2"), "plan_check.py"),
    "plan_check_maxtext.py": ("maxtext", Case("maxtext", "llama3-8b", "tpu-v5p-4:8", "zero=3"), "plan_check.py"),
    "plan_check_primus.py": ("primus", Case("primus", "llama3.1-8b", "mi300x-8:1", "tp=2"), "plan_check.py"),
    "plan_check_torchtitan.py": ("torchtitan", Case("fsdp2", "llama3-8b", H100, ""), "plan_check.py"),
    "preflight.py": ("megatron", Case("megatron-core", "llama3-8b", H100, "tp=2"), "preflight.py"),
    "ray_train.py": ("torchrun+ray-train", Case("fsdp2", "llama3-8b", H100, ""), "ray_train.py"),
    "release_check.py": ("megatron", Case("megatron-core", "llama3-8b", H100, "tp=2"), "release_check.py"),
    "torchtitan.py": ("torchtitan", Case("fsdp2", "llama3-8b", H100, "precision=fp8"), "plan_config.py"),
    "torchtitan_dense.py": ("torchtitan", Case("fsdp2", "llama3-8b", "dgx-h100:2", "pp=2"), "plan_config.py"),
    "torchtitan_mixture.py": ("torchtitan", Case("fsdp2", "qwen3-30b-a3b", "dgx-h100:4", "ep=8"), "plan_config.py"),
    "torchtitan_random_tokens.py": ("torchtitan", Case("fsdp2", "llama3-8b", H100, ""), "plan_on_random_tokens.py"),
}
"""Script -> a target, a plan that it is written for, and what it is called in the job."""


def test_exported_scripts_have_no_fault(tmp_path: Path) -> None:
    assert {f"{name}.txt" for name in (*JOBS, "benchmark.sh")} == {path.name for path in scripts.FOLDER.glob("*.txt")}
    for name, (target, case, called) in JOBS.items():
        changed = None if "+" in target else short
        before = target != "maxtext"  # no preflight for TPUs
        text = bundle(plan(case), parts(target), given(target.partition("+")[0]), changed, before=before).files[called]
        (tmp_path / name).write_text(text, encoding="utf-8")
        compile(text, name, "exec")
    shell = in_turn(["rank-1", "rank-2"], [EXPORTERS["megatron"]]).files["benchmark.sh"]

    rules = ["--isolated", "--select", "E,F,W,B", "--line-length", "120", "--ignore", "E501", "--no-cache"]
    ruff = subprocess.run([sys.executable, "-m", "ruff", "check", *rules, tmp_path], capture_output=True, text=True)
    bash = subprocess.run(["bash", "-n"], input=shell, capture_output=True, text=True)

    assert ruff.returncode == 0, ruff.stdout
    assert bash.returncode == 0, bash.stderr


def test_a_slot_is_filled_once_and_by_name() -> None:
    text = scripts.script("torchtitan_mixture.py", ROUTER="@BALANCE@", BALANCE="0.5")

    assert "@BALANCE@\n" in text
    assert "load_balance_coeff=0.5," in text
    with pytest.raises(AssertionError, match="BALANCE"):
        scripts.script("torchtitan_mixture.py", ROUTER="")
