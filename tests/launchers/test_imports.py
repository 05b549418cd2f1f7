"""``import`` reads of Megatron-LM's own examples what Megatron-LM's parser makes of the commands that they start.

Nothing here runs unless Megatron-LM is at hand: ``make test-launchers MEGATRON_LM=DIR``. Scripts are run in the
sandbox, as ``--run-script`` does, and read without running; the list is in docs/launchers.md.
"""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import reading
from planner.launchers.reading import command, megatron_family, torchtitan
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.shell import sandbox
from planner.launchers.reading.shell.script import Script, script
from planner.launchers.reading.torchtitan import CONFIGS
from planner.models import workload
from planner.schema.workload import FP8_RECIPES, LOW_PRECISION
from tests.launchers.environments import ask, checkout, python

EXAMPLES = json.loads((Path(__file__).parent.parent / "data" / "launcher_examples.json").read_text(encoding="utf-8"))
"""Scripts of repositories at a commit, each with what starts it, and how it is read or why it is refused."""


@dataclass(frozen=True)
class Example:
    """A script, and the words with which somebody starts it."""

    path: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    refused: str | None
    invalid: str | None
    """What Megatron-LM itself says against it, at that commit."""
    without: str | None
    """The option without which Megatron-LM takes it; no plan holds it."""


def examples(repository: str) -> list[Example]:
    (found,) = [each for each in EXAMPLES if each["repository"] == repository]
    return [
        Example(
            each["path"],
            tuple(each.get("arguments", ())),
            each.get("environment", {}),
            each.get("refused"),
            each.get("invalid"),
            each.get("without"),
        )
        for each in found["scripts"]
    ]


def scripts(example: Example) -> tuple[Script, Script | None]:
    """(run, read) the example from the repository's folder, which is the current one; None where reading refuses it."""
    path = Path(example.path)
    ran = sandbox.ran(path, example.arguments, example.environment)
    try:
        return ran, script(path.read_text(encoding="utf-8"), example.arguments, example.environment)
    except WrongQuestion:
        return ran, None


NEEDS_GPU = ("--moe-permute-fusion",)
"""Switches that Megatron-LM refuses without Transformer Engine; no plan holds them."""


def arguments(ran: Script) -> list[str]:
    """The words behind the training program."""
    started = command.command(ran, megatron_family.OPTIONS)
    assert started is not None
    return [word for word in started.words if word not in NEEDS_GPU]


def left_out(words: list[str], option: str) -> Iterator[str]:
    """The words without an option and its values."""
    skip = False
    for word in words:
        skip = word == option or (skip and not word.startswith("--"))
        if not skip:
            yield word


def wanted(found: FoundOptions) -> dict[str, Any]:
    """What was read, as Megatron's configuration calls it."""
    shape, set_ = found.shape, found.settings
    mixture = shape.get("moe") or {}
    return {
        **{name: set_[name] for name in ("tp", "pp", "vpp", "cp", "ep", "micro")},
        "sequence": found.sequence,
        "layers": shape["layers"],
        "hidden": shape["hidden"],
        "ffn": shape["ffn"],
        "heads": shape["heads"],
        "groups": shape["kv_heads"],
        "experts": mixture.get("experts"),
        "gated": shape["gated"],
        "tied": shape["tied"],
        "bf16": found.precision in ("bf16", *LOW_PRECISION),
        "fp16": found.precision == "fp16",
        "fp8": found.precision in (*FP8_RECIPES, "mxfp8"),
        "zero": set_["zero"],
        "recompute": str(set_["recompute"]).partition(":")[0],
        "sequence_parallel": set_["sequence_parallel"] == "on",
        "modules": found.mtp_layers,
        "window": (shape.get("window") or {}).get("size"),
        "latent": (shape.get("latent") or {}).get("kv_rank"),
        "per_expert": mixture.get("ffn"),
        "per_token": mixture.get("experts_per_token"),
        "shared": mixture.get("shared_ffn") or None,
        "head": shape["head_dim"] if "latent" not in shape else None,
    }


STAGES = {None: 0, "no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def parsed(values: dict[str, Any]) -> dict[str, Any]:
    """What Megatron-LM's parser made of the command, in the same words."""
    model, mixture = values["model"], values["experts"] is not None
    kind, method, _ = values["recompute"]
    names = (
        "tp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "micro",
        "sequence",
        "layers",
        "hidden",
        "ffn",
        "heads",
        "groups",
        "experts",
    )
    return {
        **{name: values[name] for name in (*names, "gated", "tied", "bf16", "fp16", "sequence_parallel", "modules")},
        "fp8": values["fp8"] is not None,
        "zero": STAGES[values["fsdp"]] or int(values["distributed_optimizer"]),
        "recompute": {None: "none", "selective": "selective"}.get(kind, "block" if method == "block" else "full"),
        "window": values["window"][0] + 1 if values["window"] else None,
        "latent": model["kv_lora_rank"] if model["multi_latent_attention"] else None,
        "per_expert": (model["moe_ffn_hidden_size"] or values["ffn"]) if mixture else None,
        "per_token": model["moe_router_topk"] if mixture else None,
        "shared": model["moe_shared_expert_intermediate_size"] if mixture else None,
        "head": model["kv_channels"] if not model["multi_latent_attention"] else None,
    }


def test_megatrons_examples_are_read_as_megatron_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python("megatron")
    folder = checkout()
    monkeypatch.chdir(folder)
    read: dict[str, FoundOptions] = {}
    invalid: dict[str, str] = {}
    jobs: list[dict[str, Any]] = []
    for example in (each for each in examples("NVIDIA/Megatron-LM") if Path(each.path).exists()):
        ran, text = scripts(example)
        called = " ".join([example.path, *example.arguments])
        if example.refused is not None:
            with pytest.raises(WrongQuestion, match=example.refused):
                megatron_family.read(ran)
            continue
        if example.invalid is not None:
            invalid[called] = example.invalid
        read[called] = megatron_family.read(ran)
        if text is not None:  # what is only read is the same, or refused
            only_read = None
            try:
                only_read = megatron_family.read(text)
            except WrongQuestion as error:
                assert "--run-script" in str(error) or "no option of Megatron" in str(error), called
            assert only_read is None or wanted(only_read) == wanted(read[called]), called
        copy = math.prod(int(str(read[called].settings[axis])) for axis in ("tp", "pp", "cp"))
        world = max(read[called].ranks or 1, copy)
        job = {"argv": arguments(ran), "environment": {}, "world": world, "older": True, "more": True}
        jobs.append(job)
        if example.without is not None:
            read[f"{called} without {example.without}"] = read[called]
            words = [*left_out(arguments(ran), example.without)]
            jobs.append(job | {"argv": words, "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}})  # the script's own
    wrong: dict[str, Any] = {}
    for called, answer in zip(read, ask("megatron", jobs, tmp_path, folder), strict=True):
        if called in invalid:
            assert invalid[called] in answer["error"], called
            continue
        mine, theirs = wanted(read[called]), parsed(answer["values"]) if "error" not in answer else answer
        if mine != theirs:
            wrong[called] = {name: (mine.get(name), it) for name, it in theirs.items() if mine.get(name) != it}
    assert not wrong, json.dumps(wrong, indent=1)
    assert len(read) >= 4


def test_torchtitans_own_configurations_are_as_torchtitan_has_them(tmp_path: Path) -> None:
    python("torchtitan_configs")
    names = [*CONFIGS]
    answers = ask("torchtitan_configs", names, tmp_path)
    for name, answer in zip(names, answers, strict=True):
        config = CONFIGS[name]
        found = torchtitan.read(script(f"torchrun --nproc_per_node 8 -m torchtitan.train --config {name}"))
        model, degrees = workload.model(config.model), found.degrees
        assert degrees is not None
        assert answer["values"] == {
            "micro": found.settings["micro"],
            "sequence": found.sequence,
            "steps": found.steps,
            "recompute": found.settings["recompute"],
            "precision": found.precision,
            "degrees": [*(found.settings[axis] for axis in ("tp", "pp", "cp", "ep")), *degrees],
            "global": -1 if found.batch is None else found.batch,
            "layers": model.layers,
            "hidden": model.hidden,
        }, name


def test_deepspeed_chats_scripts_are_read_as_its_parser_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python("deepspeed_chat")
    folder = Path(os.environ.get("DEEPSPEED_EXAMPLES", ""))
    main = folder / "applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py"
    if not os.environ.get("DEEPSPEED_EXAMPLES") or not main.exists():
        pytest.skip("DEEPSPEED_EXAMPLES names no checkout of deepspeedai/DeepSpeedExamples")
    monkeypatch.chdir(folder)
    found: dict[str, FoundOptions] = {}
    jobs: list[list[str]] = []
    for example in examples("deepspeedai/DeepSpeedExamples"):
        started = reading.Started(example.arguments, run=True)
        if example.refused is not None:
            with pytest.raises(WrongQuestion, match=example.refused):
                reading.read("trainer", example.path, started)
            continue
        found[example.path] = reading.read("trainer", example.path, started)
        only_read = reading.read("trainer", example.path, reading.Started(example.arguments))
        assert only_read.settings == found[example.path].settings, example.path
        ran = sandbox.ran(Path(example.path), example.arguments)
        (words,) = [words for words in ran.ways[0] if "main.py" in words]
        jobs.append([*words[words.index("main.py") + 1 :]])
    for path, answer in zip(found, ask("deepspeed_chat", jobs, tmp_path, str(main)), strict=True):
        one = found[path]
        assert one.accumulation and one.per_rank
        assert answer["values"] == {
            "micro": one.settings["micro"],
            "accumulation": one.accumulation,
            "sequence": one.sequence,
            "zero": one.settings["zero"],
            "offload": one.settings["offload"] == "optimizer",
            "precision": one.precision,
            "recompute": one.settings["recompute"] == "full",
            "rank": one.rank,
            "alone": one.method == "lora" and not any("embeddings" in text for text in one.differs),
        }, path
