"""A DeepSpeed configuration to axes of a plan."""

from __future__ import annotations

import json
from typing import Any

from planner.axes.values import WITH_WEIGHTS, offload_name
from planner.base.errors import WrongQuestion, malformed
from planner.launchers import deepspeed
from planner.launchers.reading.found_options import FoundOptions

RUNTIME = "deepspeed"


def read(text: str) -> FoundOptions:
    """The text of a ``ds_config.json``.

    Raises:
        WrongQuestion: not a JSON object, or one that DeepSpeed would misread without a word.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"--from deepspeed: not JSON: {malformed(error)}") from None
    if not isinstance(config, dict):
        raise WrongQuestion("--from deepspeed: a JSON object is expected")
    zero, tensor, pipeline = (_inner(config, name) for name in ("zero_optimization", "tensor_parallel", "pipeline"))
    assumed = ["recomputation: set by the script, which is not read (--recompute)"]
    stage = _whole(zero, "zero_optimization.stage", 0, assumed)
    settings: dict[str, object] = {
        "tp": max(_whole(tensor, "tensor_parallel.autotp_size", 1, assumed), 1),
        "pp": max(_whole(pipeline, "pipeline.stages", 1, assumed), 1),
        "zero": stage,
        "offload": _offload(zero, stage, assumed),
        "dp_overlap": "on" if stage and _overlaps(zero, stage, assumed) else "off",
    }
    gathered = _whole(zero, "zero_optimization.zero_hpz_partition_size", 1, assumed) if stage == 3 else 1
    if gathered > 1:
        settings["zero_scope"] = "node"
    if _whole(config, "sequence_parallel_size", 1, assumed) > 1:
        raise WrongQuestion("--from deepspeed: sequence_parallel_size: sequences cut over ranks have no plan yet")
    micro, accumulation, batch = _batch(config, assumed)
    return FoundOptions(
        runtime=RUNTIME,
        settings=settings | ({"micro": micro} if micro is not None else {}),
        batch=batch,
        accumulation=accumulation,
        per_rank=micro * (accumulation or 1) if micro is not None else None,
        precision=_precision(config, assumed),
        shards=None,
        degrees=(-1, gathered) if gathered > 1 else None,
        unread=sorted(
            [*config.keys() - _READ, *(f"zero_optimization.{name}" for name in zero.keys() - _ZERO_READ)],
        ),
        assumed=assumed,
    )


AUTO = "auto"
"""What Hugging Face's Trainer fills in from its own arguments; DeepSpeed takes its default for the rest."""
PER_DEVICE = 8
"""``per_device_train_batch_size`` where nobody says it (transformers 5.23.0); it accumulates 1."""


def _batch(config: dict[str, Any], assumed: list[str]) -> tuple[int | None, int | None, int | None]:
    """Micro-batch, accumulation and global batch; where all that is said is ``auto``, those of the Trainer."""
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    micro, accumulation, batch = (_size(config, name) for name in names)
    if accumulation is None and config.get(names[1]) == AUTO:
        accumulation = 1
        assumed.append(f"{names[1]} auto: 1, the Trainer's default")
    if micro is None and config.get(names[0]) == AUTO and batch is None:
        micro = PER_DEVICE
        assumed.append(f"{names[0]} auto: {PER_DEVICE}, the Trainer's default (per_device_train_batch_size; --micro)")
    if config.get(names[2]) == AUTO and micro is not None:
        assumed.append(f"{names[2]} auto: micro-batch x accumulation x ranks")
    return micro, accumulation, batch


def _size(config: dict[str, Any], name: str) -> int | None:
    value = config.get(name)
    if value is None or value == AUTO:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WrongQuestion(f"--from deepspeed: {name} is {value!r:.40}; a whole number from 1 is expected")
    return value


def _overlaps(zero: dict[str, Any], stage: int, assumed: list[str]) -> bool:
    """``overlap_comm``, by default on for ZeRO-3 alone (DeepSpeed 0.19.8)."""
    value = zero.get("overlap_comm")
    if isinstance(value, bool):
        return value
    if value is not None and value != AUTO:
        raise WrongQuestion(
            f"--from deepspeed: zero_optimization.overlap_comm is {value!r:.40}; true or false is expected"
        )
    stated = "auto" if value == AUTO else "not set"
    assumed.append(f"overlap_comm {stated}: {'on' if stage == 3 else 'off'}, DeepSpeed's default for ZeRO-{stage}")
    return stage == 3


def _offload(zero: dict[str, Any], stage: int, assumed: list[str]) -> str:
    device = _inner(zero, "offload_optimizer").get("device", "none")
    if device == AUTO:
        assumed.append("offload_optimizer.device auto: none, DeepSpeed's default")
    elif device not in ("none", "cpu"):
        raise WrongQuestion(f"--from deepspeed: offload_optimizer.device is {device!r:.40}; choose none, cpu")
    held = _inner(zero, "offload_param").get("device", "none") if stage == 3 else "none"
    if held in ("none", AUTO):
        return "none" if device in ("none", AUTO) else "optimizer"
    if held != "cpu" or device != "cpu":
        raise WrongQuestion(
            f"--from deepspeed: zero_optimization.offload_param {held!s:.20} with offload_optimizer {device}: a plan "
            "has weights in host memory with the optimizer's states; with cpu for both it is priced"
        )
    return offload_name(WITH_WEIGHTS)


def _precision(config: dict[str, Any], assumed: list[str]) -> str | None:
    """What is switched on; None where it is left to Hugging Face's Trainer."""
    switches = {name: _inner(config, name).get("enabled") for name in ("bf16", "fp16")}
    found = next((name for name, on in switches.items() if on is True), None)
    if found is None and AUTO in switches.values():
        names = " and ".join(f"{name}.enabled" for name, on in switches.items() if on == AUTO)
        assumed.append(f"{names} auto: 16 bit, as the Trainer's --bf16 or --fp16 would set (--precision)")
        return None
    return found or "fp32"


_ROWS = [row.name.split(".") for row in deepspeed.TABLE.options.values() if not row.is_job]
_READ = {name for name, *_ in _ROWS} - {"optimizer"}
_ZERO_READ = {inner[0] for name, *inner in _ROWS if name == "zero_optimization"} | {
    *deepspeed.TABLE.head["keys"]["pieces"]
}


def check(text: str, world: int) -> None:
    """Refuses what DeepSpeed would take although it is wrong on so many accelerators."""
    config = _set(json.loads(text))
    tp = _whole(_inner(config, "tensor_parallel"), "tensor_parallel.autotp_size", 1, [])
    stages = _whole(_inner(config, "pipeline"), "pipeline.stages", 1, [])
    deepspeed.lint(config, world, max(tp, 1) * max(stages, 1), "--from deepspeed")


def _set(value: Any) -> Any:
    """A configuration without what is ``auto`` (or null), as DeepSpeed reads it."""
    if not isinstance(value, dict):
        return value
    return {name: _set(inner) for name, inner in value.items() if inner not in (AUTO, None)}


def _inner(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name, {})
    if found is None or found == AUTO:
        return {}
    if not isinstance(found, dict):
        raise WrongQuestion(f"--from deepspeed: {name} is {found!r:.40}; an object is expected")
    return found


def _whole(config: dict[str, Any], name: str, default: int, assumed: list[str]) -> int:
    """The whole number under the last part of a name; DeepSpeed drops ``auto`` and takes its default."""
    value = config.get(name.rpartition(".")[2])
    if value is None:
        return default
    if value == AUTO:
        assumed.append(f"{name} auto: {default}, DeepSpeed's default")
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WrongQuestion(f"--from deepspeed: {name} is {value!r:.40}; a whole number is expected")
    return value
