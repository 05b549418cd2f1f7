"""The exported ``train.py`` really trains on CPU: replicas and FSDP2 compute alike, and a stopped job goes on."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from planner.launchers import bundle, parts
from planner.launchers.benchmark import short
from planner.schema.plan import Plan
from tests.launchers.environments import READERS, given, python
from tests.launchers.spread import Case, plan

TINY = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
}
SIZES = {"--block_size": "32", "--model_layers": "2", "--model_hidden": "64", "--model_vocab": "256"}
SHORT = {"--max_steps": "4", "--per_device_train_batch_size": "2", "--gradient_accumulation_steps": "2"}
FSDP2 = {
    **dict.fromkeys(("ACCELERATE_USE_FSDP", "FSDP_CPU_RAM_EFFICIENT_LOADING", "FSDP_RESHARD_AFTER_FORWARD"), "true"),
    **{"FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"},
    **{"ACCELERATE_USE_PARALLELISM_CONFIG": "true", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2"},
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
}
"""What ``accelerate launch`` sets for the exported accelerate.yaml (tests/launchers/read_hf_trainer.py asks it)."""


@pytest.fixture
def argv(tmp_path: Path) -> dict[str, str]:
    """The script in a folder with a tiny model, and the arguments of a benchmark of it."""
    return asked(plan(Case("fsdp2", "llama3-8b", "dgx-h100:1", "")), tmp_path)


def asked(whole: Plan, tmp_path: Path) -> dict[str, str]:
    made = bundle(whole, parts("hf-trainer"), given("hf-trainer"), changed=short)
    (tmp_path / "train.py").write_text(made.files["train.py"], encoding="utf-8")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    words = json.loads(made.files["target.json"])["argv"]
    exact = {"--use_cpu": "true", "--bf16": "false", "--lr_scheduler_type": "constant", "--model_name_or_path": "tiny"}
    return {**dict(zip(words[::2], words[1::2], strict=True)), **SIZES, **SHORT, **exact}


def trained(argv: dict[str, str], folder: Path, **known: str) -> subprocess.CompletedProcess[str]:
    script = [str(READERS / "sharded_on_cpu.py"), "train.py"] if known else ["train.py"]
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | known
    words = [word for pair in argv.items() for word in pair]
    command = [str(python("hf-trainer")), *run, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def logged(done: subprocess.CompletedProcess[str], name: str = "loss") -> list[float]:
    lines = (line for line in done.stderr.splitlines() if "rank" in line or "Error" in line)
    assert done.returncode == 0, "\n".join(lines)[-3000:]
    return [float(value) for value in re.findall(rf"'{name}': '?([0-9.]+)", done.stdout + done.stderr)]


@pytest.mark.parametrize("tied", [False, True])
def test_shards_compute_what_replicas_compute(tied: bool, argv: dict[str, str], tmp_path: Path) -> None:
    """Losses and gradients of all steps: every rank's shards go through the optimizer, each as itself."""
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY | {"tie_word_embeddings": tied}), encoding="utf-8")
    large = argv | {"--learning_rate": "0.003"}
    replicas, shards = trained(large, tmp_path), trained(large, tmp_path, **FSDP2)
    assert len(logged(replicas)) == len(logged(shards)) == 4
    for name in ("loss", "grad_norm"):
        assert logged(shards, name) == pytest.approx(logged(replicas, name), rel=1e-3)


def test_a_stopped_job_goes_on_from_its_checkpoint(argv: dict[str, str], tmp_path: Path) -> None:
    saving = argv | {"--save_strategy": "steps", "--save_steps": "2", "--output_dir": "out"}
    first = logged(trained(saving | {"--max_steps": "2"}, tmp_path))
    assert (tmp_path / "out" / "checkpoint-2").is_dir()
    assert len(first) == 2
    assert len(logged(trained(saving, tmp_path))) == 2  # steps 3 and 4 of 4


def test_another_model_than_the_plans_is_not_trained(argv: dict[str, str], tmp_path: Path) -> None:
    done = trained(argv | {"--model_layers": "3"}, tmp_path)
    assert done.returncode != 0
    assert "layers, width, vocabulary are (2, 64, 256), in the plan (3, 64, 256)" in done.stderr


# ---- adapters --------------------------------------------------------------------------------------------------------

ADAPTERS = 2 * 16 * (64 + 64 + 64 + 32 + 64 + 32 + 64 + 64)
"""Of rank 16 on q, k, v and o of the tiny model's two layers."""


@pytest.fixture
def adapted(tmp_path: Path) -> dict[str, str]:
    """The same with adapters on weights that are there."""
    words = asked(plan(Case("hf-trainer", "llama3-8b", "dgx-h100:1", "", "lora")), tmp_path)
    make = "from transformers import AutoConfig as C, AutoModelForCausalLM as M, set_seed; set_seed(1);"
    make += " M.from_config(C.from_pretrained('tiny')).save_pretrained('tiny')"
    subprocess.run([str(python("hf-trainer")), "-c", make], cwd=tmp_path, check=True, capture_output=True)
    return words | {"--lora_parameters": str(ADAPTERS), "--learning_rate": "0.01"}


def test_shards_train_adapters_as_replicas_do(adapted: dict[str, str], tmp_path: Path) -> None:
    replicas, shards = trained(adapted, tmp_path), trained(adapted, tmp_path, **FSDP2)
    assert len(logged(replicas)) == 4
    assert logged(shards) == pytest.approx(logged(replicas), rel=1e-3)


def test_recomputed_blocks_train_adapters_alike(adapted: dict[str, str], tmp_path: Path) -> None:
    plain, again = trained(adapted, tmp_path), trained(adapted | {"--gradient_checkpointing": "true"}, tmp_path)
    assert logged(again) == pytest.approx(logged(plain), rel=1e-3)


def test_adapters_lie_on_weights_of_four_bit(adapted: dict[str, str], tmp_path: Path) -> None:
    """bitsandbytes has its kernels for CPU, too: losses move as they do over weights in 32 bit."""
    plain, quantised = trained(adapted, tmp_path), trained(adapted | {"--quantization_bit": "4"}, tmp_path)
    assert logged(quantised) == pytest.approx(logged(plain), rel=0.02)
    assert logged(quantised) != logged(plain)


def test_other_adapters_than_the_plans_are_not_trained(adapted: dict[str, str], tmp_path: Path) -> None:
    done = trained(adapted | {"--lora_target": "q_proj"}, tmp_path)
    assert done.returncode != 0
    assert f"adapters on q_proj have 4096 parameters, in the plan {ADAPTERS}" in done.stderr
