"""Where the real launchers are installed (``make test-launchers``), and how their readers are asked."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.launchers import bundle, parts, tpu
from planner.schema.plan import Plan

ROOT = Path(__file__).resolve().parent.parent.parent
READERS = Path(__file__).resolve().parent
ENVIRONMENTS = {
    "megatron_core": "torch",
    "megatron": "torch",
    "megatron-bridge": "torch",
    "primus": "torch",
    "torchtitan": "torch",
    "torchtitan_configs": "torch",
    "torchtitan_data": "torch",
    "deepspeed_chat": "torch",
    "deepspeed": "torch",
    "accelerate": "torch",
    **dict.fromkeys(("hf-trainer", "trl", "axolotl", "llama-factory"), "torch"),
    "torchrun": "torch",
    "ray-train": "torch",
    "torchtitan-on-cpu": "torchtitan",
    "maxtext": "maxtext",
    "skypilot": "skypilot",
    "dstack": "dstack",
}


def python(name: str) -> Path:
    """The interpreter that has the launcher; skips the test where it is not installed."""
    folder = os.environ.get("LAUNCHERS", "")
    if not folder:
        pytest.skip("the launchers' own parsers run in environments of their own: make test-launchers")
    skipped = ROOT / folder / f"{ENVIRONMENTS[name]}.skipped"
    if skipped.exists():  # CI says why
        pytest.skip(f"{name}: {skipped.read_text(encoding='utf-8').strip()}")
    found = ROOT / folder / ENVIRONMENTS[name] / "bin" / "python"
    assert found.exists(), f"{name} is not installed: make test-launchers"
    return found


CHECKOUTS = {
    "MEGATRON_LM": ("NVIDIA/Megatron-LM", "megatron/training/arguments.py"),
    "MEGATRON_BRIDGE": (
        "NVIDIA-NeMo/Megatron-Bridge with its submodule",
        "3rdparty/Megatron-LM/megatron/core/transformer/transformer_config.py",
    ),
    "PRIMUS": ("AMD-AGI/Primus with its submodule", "third_party/Megatron-LM/megatron/training/arguments.py"),
    "AXOLOTL": ("axolotl-ai-cloud/axolotl", "src/axolotl/utils/schemas/config.py"),
    "MAXTEXT": ("AI-Hypercomputer/maxtext", "src/maxtext/configs/pyconfig.py"),
    "LLAMA_FACTORY": ("hiyouga/LLaMA-Factory", "src/llamafactory/hparams/parser.py"),
}
"""Variable -> repository, and the file that its parser is in."""


def checkout(variable: str = "MEGATRON_LM") -> str:
    """The checkout that a variable names; its parser is not published as a package, or needs what has no place here."""
    found = os.environ.get(variable, "")
    repository, file = CHECKOUTS[variable]
    if not found or not Path(found, file).exists():
        pytest.skip(f"{variable} names no checkout of {repository}")
    return found


def given(target: str) -> dict[str, str]:
    """A value for every setting without a default."""
    named = {"tokenizer-type": "NullTokenizer"} if "megatron" in target.split("+") else {}
    return named | {s.name: f"/given/{s.name}" for e in parts(target) for s in e.settings if s.default is None}


def export(plan: Plan, target: str, folder: Path) -> dict[str, Any]:
    """Writes a plan's files into a folder, and says what a reader may need to know of it."""
    made = bundle(plan, parts(target), given(target))
    folder.mkdir(parents=True)
    for name, text in made.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    said = json.loads(made.files["target.json"])
    return {
        "folder": str(folder),
        "argv": said["argv"],
        "environment": said["environment"],
        "world": plan.cluster.accelerators,
        "dp": plan.parallelism.dp,
        "older": any("fp4" not in pool.peak_flops for pool in plan.cluster.pools),
        **(_slices(plan) if tpu.is_one(plan.cluster.pools[0]) else {}),
    }


def _slices(plan: Plan) -> dict[str, Any]:
    """Slices and their name in MaxText's table, which counts cores for some: two a chip."""
    kind, count = plan.cluster.pools[0].accelerator.partition("-")[2], tpu.chips(plan)
    return {"topology": f"{kind}-{count if kind in ('v5e', 'v6e') else 2 * count}", "slices": tpu.slices(plan)}


def ask(name: str, jobs: Sequence[Any], folder: Path, *before: str) -> list[dict[str, Any]]:
    """What the launcher's reader says of every job: ``{values}`` or ``{error}``."""
    questions, answers = folder / "jobs.json", folder / "answers.json"
    questions.write_text(json.dumps(list(jobs)), encoding="utf-8")
    command = [python(name), READERS / f"read_{name.replace('-', '_')}.py", *before, questions, answers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(answers.read_text(encoding="utf-8"))
    assert len(found) == len(jobs)
    return found
