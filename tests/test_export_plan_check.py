"""``plan_check.py``: a job stops before its first step where its model or its mesh is not the plan's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.launchers import bundle, parts
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

H100 = "dgx-h100:2"
CHECKED = {
    "megatron": Case("megatron-core", "qwen3-30b-a3b", H100, "ep=8 tp=2"),
    "torchtitan": Case("fsdp2", "llama3-8b", H100, "tp=2"),
    "hf-trainer": Case("hf-trainer", "llama3-8b", H100, "zero=3"),
    "deepspeed": Case("deepspeed", "llama3-8b", H100, "zero=1"),
    "trl": Case("hf-trainer", "llama3-8b", "dgx-h100:1", "micro=2", "lora"),
    "primus": Case("primus", "llama3.1-8b", "mi300x-8:1", "tp=2"),
    "maxtext": Case("maxtext", "llama3-8b", "tpu-v5p-4:8", "zero=3"),
}


HOOKS = {"megatron": "Model.__init__", "torchtitan": "in_tokens(sys.argv", "hf-trainer": "before(Accelerator",
         "deepspeed": 'before(deepspeed, "initialize"', "trl": "before(Accelerator", "primus": "Model.__init__",
         "maxtext": "before(MetricLogger"}  # fmt: skip
"""Target -> what stands in its check alone of those there are."""


def files(target: str, case: Case, **more: str) -> dict[str, str]:
    return dict(bundle(plan(case), parts(target), given(target) | more).files)


def check(target: str, case: Case) -> dict[str, Any]:
    """The names of the exported check, which imports no launcher before it starts one."""
    held: dict[str, Any] = {"__name__": "plan_check"}
    exec(files(target, case)["plan_check.py"], held)
    return held


@pytest.mark.parametrize("target", CHECKED)
def test_another_model_or_mesh_stops_the_job(
    target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan's own figures pass; one rank or parameter more is told with both figures."""
    held = check(target, CHECKED[target])
    planned = dict(held["PLANNED"])
    assert planned["parameters"] == plan(CHECKED[target]).workload.parameters

    held["compare"](planned)
    assert "as planned" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=rf"ranks {planned['ranks'] + 1} \(plan: {planned['ranks']}\)"):
        held["compare"](planned | {"ranks": planned["ranks"] + 1})
    with pytest.raises(SystemExit, match="nothing is trained"):
        held["compare"](planned | {"parameters": planned["parameters"] + 1})
    held["compare"]({"parameters": planned["parameters"] + 1}, within=1e-3)

    monkeypatch.setenv("PLAN_CHECK", "warn")
    held["compare"](planned | {"ranks": planned["ranks"] + 1})
    assert "NOT what was planned" in capsys.readouterr().out


@pytest.mark.parametrize("target", CHECKED)
def test_the_check_hooks_into_the_library_that_builds_the_model(target: str) -> None:
    text = files(target, CHECKED[target])["plan_check.py"]
    assert {hook for hook in HOOKS.values() if hook in text} == {HOOKS[target]}


def test_the_check_finds_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    """Megatron-LM's packages lie beside its ``pretrain_gpt.py``, and the job starts in its own folder."""
    written = {
        "job/plan_check.py": files("megatron", CHECKED["megatron"])["plan_check.py"],
        "there/megatron/core/models/gpt/gpt_model.py": "class GPTModel:\n    pass\n",
        "there/megatron/training/training.py": "setup_model_and_optimizer = None\n",
        "there/pretrain_gpt.py": "from megatron.training import training\nprint(training.setup_model_and_optimizer)\n",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "plan_check.py", str(tmp_path / "there" / "pretrain_gpt.py")]
    done = subprocess.run(command, cwd=tmp_path / "job", capture_output=True, text=True, timeout=60)
    assert "hook.<locals>.checked" in done.stdout, done.stderr


def test_a_dense_model_has_experts_over_the_tensor_ranks() -> None:
    """Megatron-LM says a degree of tensor parallelism of experts also where there are none: its tensor ranks."""
    assert check("megatron", Case("megatron-core", "llama3-70b", H100, "tp=8"))["PLANNED"]["etp"] == 8
    assert check("megatron", CHECKED["megatron"])["PLANNED"]["etp"] == 1


def test_adapters_are_counted_apart() -> None:
    """Rank 16 on q, k, v, o of Llama 3 8B: 32 layers x 16 x (8192 + 5120 + 5120 + 8192) = 13,631,488."""
    planned = check("trl", CHECKED["trl"])["PLANNED"]
    assert planned["trained"] == 13_631_488
    assert planned["parameters"] == 8_030_261_248


def test_a_job_that_is_changed_on_purpose_is_warned() -> None:
    """What ``extra-args`` contradicts would stop the job each time."""
    changed = {"extra-args": "--tensor-model-parallel-size 4"}
    assert "export PLAN_CHECK=warn" in files("megatron", CHECKED["megatron"], **changed)["start.sh"]
    assert "PLAN_CHECK" not in files("megatron", CHECKED["megatron"])["start.sh"]
    saved = {"extra-args": "--save-interval 500 --eval-iters 10"}
    assert "PLAN_CHECK" not in files("megatron", CHECKED["megatron"], **saved)["start.sh"]


def test_options_of_torchtitan_after_its_release_count_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages, micro-batches of 2, 4 a step of a rank, 64 in all, of 8,192 tokens; what stands behind leads."""
    held = check("torchtitan", Case("fsdp2", "llama3-8b", H100, "tp=2"))
    monkeypatch.delenv("PLAN_DATASET", raising=False)
    words = "--module plan_config --training.local_batch_size 8 --parallelism.pipeline_parallel_microbatch_size 2"
    words += " --training.global_batch_size 64 --training.seq_len 4096 --dataloader.dataset c4 --training.seq_len=8192"

    said = held["in_tokens"](words.split())

    assert said[:2] == ["--module", "plan_config"]
    assert dict(zip(said[2::2], said[3::2], strict=True)) == {
        "--training.max_context_length": "8192",
        "--training.num_tokens_per_microbatch_per_dp_rank": "16384",
        "--training.num_tokens_per_train_step": "524288",
        "--parallelism.num_pp_microbatches": "4",
    }
    assert held["os"].environ.pop("PLAN_DATASET") == "c4"
