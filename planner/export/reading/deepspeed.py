"""A DeepSpeed configuration to axes of a plan."""

from __future__ import annotations

import json
from typing import Any

from planner.errors import WrongQuestion
from planner.export import deepspeed
from planner.export.reading.found import Found

RUNTIME = "deepspeed"


def read(text: str) -> Found:
    """The text of a ``ds_config.json``.

    Raises:
        WrongQuestion: not a JSON object, or one that DeepSpeed would misread without a word.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"--from deepspeed: not JSON: {error}") from None
    if not isinstance(said, dict):
        raise WrongQuestion("--from deepspeed: a JSON object is expected")
    zero, tp = _inner(said, "zero_optimization"), _inner(said, "tensor_parallel").get("autotp_size", 1)
    stages = _inner(said, "pipeline").get("stages", 1)
    pp = stages if isinstance(stages, int) else 1
    offloaded = _inner(zero, "offload_optimizer").get("device", "none") != "none"
    settings: dict[str, object] = {
        "tp": max(_whole(tp, "tensor_parallel.autotp_size", 1), 1),
        "pp": pp,
        "zero": _whole(zero.get("stage", 0), "zero_optimization.stage"),
        "offload": "optimizer" if offloaded else "none",
        "dp_overlap": "on" if zero.get("overlap_comm") is True else "off",
    }
    micro, batch = said.get("train_micro_batch_size_per_gpu"), said.get("train_batch_size")
    accumulation = said.get("gradient_accumulation_steps")
    if isinstance(micro, int):
        settings["micro"] = micro
    if _whole(said.get("sequence_parallel_size", 1), "sequence_parallel_size", 1) > 1:
        raise WrongQuestion("--from deepspeed: sequence_parallel_size: sequences cut over ranks have no plan yet")
    return Found(
        runtime=RUNTIME,
        settings=settings,
        batch=batch if isinstance(batch, int) else None,
        accumulation=accumulation if isinstance(accumulation, int) else None,
        per_rank=micro * (accumulation if isinstance(accumulation, int) else 1) if isinstance(micro, int) else None,
        precision=_precision(said),
        shards=None,
        unread=sorted(said.keys() - _READ),
    )


def _precision(said: dict[str, Any]) -> str | None:
    """What is switched on; None where it is left to Hugging Face's Trainer."""
    switches = {name: _inner(said, name).get("enabled") for name in ("bf16", "fp16")}
    found = next((name for name, on in switches.items() if on is True), None)
    return found or (None if "auto" in switches.values() else "fp32")


_READ = {
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("zero_optimization", "tensor_parallel", "pipeline", "bf16", "fp16"),
}


def check(text: str, world: int) -> None:
    """Refuses what DeepSpeed would take although it is wrong on so many accelerators."""
    said = json.loads(text)
    tp, stages = _inner(said, "tensor_parallel").get("autotp_size", 1), _inner(said, "pipeline").get("stages", 1)
    deepspeed.lint(
        said,
        world,
        max(_whole(tp, "tensor_parallel.autotp_size", 1), 1) * (stages if isinstance(stages, int) else 1),
        "--from deepspeed",
    )


def _inner(said: dict[str, Any], name: str) -> dict[str, Any]:
    found = said.get(name, {})
    if not isinstance(found, dict):
        raise WrongQuestion(f"--from deepspeed: {name} is {found!r:.40}; an object is expected")
    return found


def _whole(value: object, name: str, default: int = 0) -> int:
    if value == "auto":  # of Hugging Face's Trainer, which fills it in
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongQuestion(f"--from deepspeed: {name} is {value!r:.40}; a whole number is expected")
    return value
