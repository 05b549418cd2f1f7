"""Hugging Face's Trainer and those who build on it: a command, or TRL's, LLaMA-Factory's or Axolotl's YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import deepspeed, documents
from planner.launchers.reading.command import command
from planner.launchers.reading.found import FoundOptions
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_options import (
    CHAT,
    DIALECTS,
    FSDP,
    HARMLESS,
    NAMES,
    OPTIMIZERS,
    OPTIONS,
    OTHERWISE,
    PADS,
    PREFERENCES,
    REFUSED,
    STAGES,
    TARGETS,
    TRAINER,
    TRL,
    TRL_ONLY,
    Dialect,
    Values,
    count,
    true,
)
from planner.models import files


def read_command(script: Script) -> FoundOptions:
    """A command that trains with Hugging Face's Trainer, or as DeepSpeed-Chat does.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, OPTIONS)
    if started is None:
        raise WrongQuestion("--from trainer: no option of a Trainer in it (--per_device_train_batch_size ...)")
    if of := PREFERENCES.search(f"{script.folder.absolute()}/{started.program}".lower()):
        raise WrongQuestion(
            f"{started.program}: by its name ({of[2]}) it trains on preferences, rewards or its own answers; only "
            "plain training is read"
        )
    values: dict[str, Any] = {name: _word(words) for name, words in started.options.items()}
    if isinstance(values.get("config"), str):
        values = {**documents.mapping(_file(script.folder, values["config"])), **values}
    given = started.launcher.get("config_file")
    if given:
        values = {**accelerate(documents.mapping(_file(script.folder, given[0])), script.folder), **values}
    dialect = TRAINER
    if "zero_stage" in values:  # DeepSpeed-Chat's own names and defaults
        dialect = replace(TRAINER, defaults=CHAT)
    found = _read(dialect, {"dtype": "fp16" if "zero_stage" in values else None, **values}, script.folder)
    return replace(found, ranks=started.ranks or found.ranks, assumed=[*started.assumed, *found.assumed])


def read_file(name: str) -> Callable[[str, Path], FoundOptions]:
    """The reader of a dialect's YAML."""
    return lambda text, folder: _read(DIALECTS[name], documents.mapping(text), folder)


def accelerate(config: Values, folder: Path) -> dict[str, Any]:
    """What Accelerate's configuration says, as the Trainer's own arguments say it."""
    kind = str(config.get("distributed_type", "NO"))
    found: dict[str, Any] = {"processes": config.get("num_processes")}
    mixed = config.get("mixed_precision")
    found |= {str(mixed): True} if mixed in ("bf16", "fp16") else {}
    if kind == "FSDP":
        inner = {str(key).removeprefix("fsdp_"): value for key, value in _inner(config, "fsdp_config").items()}
        found |= {"fsdp": "full_shard", "fsdp_config": inner}
        found |= {"gradient_checkpointing": True} if true(inner.get("activation_checkpointing")) else {}
    if kind == "DEEPSPEED":
        engine = _inner(config, "deepspeed_config")
        found["deepspeed"] = engine.get("deepspeed_config_file") or _zero(engine)
    degrees = _inner(config, "parallelism_config")
    for axis in ("tp", "cp"):
        size = degrees.get(f"parallelism_config_{axis}_size")
        found |= {f"{axis}_size": size} if size else {}
    if kind not in ("FSDP", "DEEPSPEED", "MULTI_GPU", "NO"):
        raise WrongQuestion(f"--from trainer: distributed_type {kind:.40}: choose FSDP, DEEPSPEED or MULTI_GPU")
    return found


def _zero(inner: Values) -> dict[str, Any]:
    """Accelerate's own few keys as a DeepSpeed configuration."""
    device = inner.get("offload_optimizer_device", "none")
    zero = {"stage": inner.get("zero_stage", 2), "offload_optimizer": {"device": device}}
    return {"zero_optimization": zero, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}


def _read(dialect: Dialect, values: Values, folder: Path) -> FoundOptions:
    if dialect is TRAINER and not values.keys().isdisjoint(TRL_ONLY):
        dialect = replace(TRAINER, defaults=TRL)
        if values.get("bf16") is None and not true(values.get("fp16")):
            values = {**values, "bf16": True}
    _refuse(dialect, values)
    sharding, assumed = _sharding(values, folder)
    micro, accumulation = (_whole(dialect, values, name) for name in ("micro", "accumulation"))
    assert micro is not None and accumulation is not None
    settings: dict[str, object] = {
        **sharding.settings,
        "micro": micro,
        "recompute": "full" if _recomputes(dialect, values) else "none",
    }
    settings |= {axis: int(size) for axis in ("tp", "cp") if (size := _size(values, axis)) > 1}
    lora, targets = dialect.lora(values), dialect.get(values, "targets")
    steps = _whole(dialect, values, "steps")
    return FoundOptions(
        runtime=sharding.runtime,
        settings=settings,
        accumulation=accumulation,
        per_rank=micro * accumulation,
        precision=_precision(values, assumed),
        sequence=_whole(dialect, values, "sequence"),
        steps=steps if steps is not None and steps > 0 else None,
        method="lora" if lora else "pretrain" if values.get("stage") == "pt" else "finetune",
        rank=_whole(dialect, values, "rank") if lora else None,
        targets=_targets(targets, assumed) if lora else None,
        optimizer=_optimizer(dialect, values),
        model=_library_name(str(dialect.get(values, "model") or "")) or None,
        ranks=values.get("processes"),
        differs=tuple(_differs(dialect, values, sharding)),
        unread=sorted(str(name) for name in values if _unread(str(name), values[name])),
        assumed=[*_defaults(dialect, values), *assumed],
    )


def _refuse(dialect: Dialect, values: Values) -> None:
    for name in values.keys() & REFUSED.keys():
        if values[name] not in (None, False, "false", "False", "none", "", 0, "no"):
            raise WrongQuestion(f"--from {dialect.name}: {name}: {REFUSED[name]} cannot be taken over")
    if values.get("stage") not in STAGES or values.get("adapter") == "qlora":
        what = values.get("stage") or "adapter: qlora"
        raise WrongQuestion(f"--from {dialect.name}: {what!s:.40}: only plain training and LoRA are read")
    if true(values.get("do_predict")) and not true(values.get("do_train")):
        raise WrongQuestion(f"--from {dialect.name}: do_predict: it does not train")
    if values.get("finetuning_type", "full") not in ("full", "lora"):
        raise WrongQuestion(
            f"--from {dialect.name}: finetuning_type {values['finetuning_type']!s:.40}: choose full, lora"
        )


def _sharding(values: Values, folder: Path) -> tuple[FoundOptions, list[str]]:
    """Runtime and sharding: by DeepSpeed's file, FSDP's words, or plain replicas."""
    given = values.get("deepspeed") or values.get("deepspeed_config")
    if "zero_stage" in values:
        device = "cpu" if true(values.get("offload")) else "none"
        given = _zero({"zero_stage": count(values, "zero_stage"), "offload_optimizer_device": device})
        given["zero_optimization"] |= {
            "overlap_comm": True,
            "offload_param": {"device": device},
        }  # dschat/utils/ds_utils.py
    if given is not None and given is not False:
        text = json.dumps(given) if isinstance(given, dict) else _file(folder, str(given))
        found = deepspeed.read(text)
        micro_lines = (
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "train_batch_size",
            "bf16.enabled",
        )
        return found, [line for line in found.assumed if not line.startswith(micro_lines)]
    config = values.get("fsdp_config") or {}
    words = _words(values.get("fsdp"))
    if words or config or values.get("fsdp_version"):
        return _fsdp(words, config if isinstance(config, dict) else {}), []
    return FoundOptions(runtime="pytorch-ddp", settings={"zero": 0}), [
        "no sharding: replicas (DistributedDataParallel)"
    ]


def _fsdp(words: list[str], config: Values) -> FoundOptions:
    plain = {str(key).removeprefix("fsdp_"): value for key, value in config.items()}
    kind = str(plain.get("sharding_strategy", "")).lower() or next(
        (word for word in words if word in FSDP), "full_shard"
    )
    reshard = plain.get("reshard_after_forward", True)
    if kind not in FSDP:
        raise WrongQuestion(f"--from trainer: fsdp {kind:.40}: choose {', '.join(FSDP)}")
    stage, scope = FSDP[kind]
    if "offload" in words or true(plain.get("offload_params")):
        raise WrongQuestion("--from trainer: fsdp_offload_params: weights in host memory cannot be taken over")
    kept = stage == 2 or (stage == 3 and not true(reshard) and str(reshard).upper() != "FULL_SHARD")
    return FoundOptions(
        runtime="pytorch-ddp" if stage == 0 else "fsdp2",
        settings={"zero": 3 if stage else 0, "zero_scope": scope},
        differs=("weights stay whole after the forward pass; predicted as given back",) if kept else (),
    )


def _differs(dialect: Dialect, values: Values, sharding: FoundOptions) -> Iterator[str]:
    yield from sharding.differs
    notes = dict.fromkeys(text for name, text in OTHERWISE.items() if true(values.get(name)))
    yield from (f"{text}; predicted without" for text in notes)
    if count(values, "lora_dim") and not true(values.get("only_optimize_lora")):
        yield "embeddings and norms are trained, too; predicted frozen"
    if not true(dialect.get(values, "packing")) and values.get("stage") != "pt" and "zero_stage" not in values:
        yield PADS


def _defaults(dialect: Dialect, values: Values) -> Iterator[str]:
    """What is left to the program, and what it takes by itself."""
    for name, value in dialect.defaults.items():
        if name in ("micro", "accumulation", "sequence", "recompute") and not any(
            key in values for key in dialect.keys[name]
        ):
            yield f"{dialect.keys[name][0]} not stated: {value}, the program's default"


def _recomputes(dialect: Dialect, values: Values) -> bool:
    return true(dialect.get(values, "recompute")) and not true(values.get("disable_gradient_checkpointing"))


def _precision(values: Values, assumed: list[str]) -> str:
    if (kind := values.get("dtype")) in ("bf16", "fp16"):
        return str(kind)
    for name in ("bf16", "fp16"):
        if values.get(name) == "auto":
            assumed.append(f"{name} auto: bf16, as accelerators since Ampere have it")
            return "bf16"
        if true(values.get(name)):
            return name
    assumed.append("neither bf16 nor fp16 is set: 32 bit")
    return "fp32"


def _optimizer(dialect: Dialect, values: Values) -> str:
    name = str(dialect.get(values, "optimizer") or "adamw_torch")
    if name not in OPTIMIZERS:
        raise WrongQuestion(f"--from {dialect.name}: optimizer {name:.40}: choose {', '.join(sorted(OPTIMIZERS))}")
    return OPTIMIZERS[name]


def _targets(given: Any, assumed: list[str]) -> tuple[str, ...] | None:
    if given is None:
        assumed.append("LoRA's layers not stated: q, k, v and o (--target says others)")
        return None
    names = [name.strip() for name in given.split(",")] if isinstance(given, str) else [str(name) for name in given]
    if unknown := [name for name in names if name not in TARGETS]:
        raise WrongQuestion(f"LoRA layer {unknown[0]:.40}: choose {', '.join(TARGETS)}")
    return tuple(dict.fromkeys(target for name in names for target in TARGETS[name]))


def _library_name(name: str) -> str:
    """An id of the library for a name on the hub; a path or an unknown name as it is."""
    from planner.models.workload import library

    if not name or Path(name).exists():
        return str(Path(name) / "config.json") if name and Path(name).is_dir() else name
    own = re.sub(r"(-?(hf|instruct|chat|base|it|v0\.\d|2507|bf16))+$", "", name.rpartition("/")[2].lower())
    plain = re.sub(r"[^a-z0-9.]", "", own.removeprefix("meta-"))
    return next((known for known in library() if re.sub(r"[^a-z0-9.]", "", known) == plain), name)


def _unread(name: str, value: Any) -> bool:
    understood = NAMES | OTHERWISE.keys() | REFUSED.keys()
    return (
        name not in understood and value not in (None, False) and not HARMLESS.fullmatch(name) and name != "processes"
    )


# ---- values ----------------------------------------------------------------------------------------------------------


def _word(words: list[str]) -> Any:
    """An option's value; True for a switch."""
    return True if not words else words[0] if len(words) == 1 else words


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else str(value or "").replace(",", " ").split()


def _size(values: Values, axis: str) -> int:
    names = {"tp": ("tp_size", "tensor_parallel_size"), "cp": ("cp_size", "context_parallel_size")}[axis]
    value = next((values[name] for name in names if values.get(name) is not None), 1)
    if not re.fullmatch(r"[1-9][0-9]{0,6}", str(value)):
        raise WrongQuestion(f"{names[1]} {value!s:.40}: must be a whole number from 1")
    return int(value)


def _whole(dialect: Dialect, values: Values, name: str) -> int | None:
    value = dialect.get(values, name)
    if value is None or value == "auto":
        return dialect.defaults.get(name)
    if (
        isinstance(value, bool)
        or not re.fullmatch(r"-?[0-9]{1,12}", str(value))
        or (int(value) < 1 and name != "steps")
    ):
        raise WrongQuestion(f"--from {dialect.name}: {name} is {value!r:.40}; a whole number from 1 is expected")
    return int(value)


def _inner(config: Values, name: str) -> Values:
    value = config.get(name) or {}
    if not isinstance(value, dict):
        raise WrongQuestion(f"{name} is {value!r:.40}; a mapping is expected")
    return value


def _file(folder: Path, name: str) -> str:
    """A file that a configuration names, from its own folder or one above it, or where we are."""
    for place in (folder, *[*folder.parents][:3], Path.cwd()):
        if (place / name).is_file():
            return files.read_text(place / name)
    raise WrongQuestion(f"{name:.100}: no such file in {folder}; the configuration names it")
