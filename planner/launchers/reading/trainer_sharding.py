"""How programs on Hugging Face's Trainer spread a job: Accelerate's configuration, DeepSpeed's file, FSDP's words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.axes.values import WITH_WEIGHTS, offload_name
from planner.base.errors import WrongQuestion
from planner.launchers.reading import deepspeed, trainer_keys
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.trainer_dialects import NAMES, WORDS, Values, count, mapping, named_file, true
from planner.models import files

FSDP: Mapping[str, Mapping[str, Any]] = WORDS["fsdp"]
"""FSDP's word -> ZeRO stage and scope."""
_READ = (
    *("distributed_type", "mixed_precision", "num_processes", "deepspeed_config", "fsdp_config", "parallelism_config"),
    *("dynamo_config", "dynamo_backend"),
)
_READ_OF_DEEPSPEED = (
    *("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file"),
    "gradient_accumulation_steps",
)
_SWITCHED = frozenset(
    ("amp", "torch_autocast", "autotuning", "curriculum_learning", "data_efficiency", "eigenvalue", "elasticity")
) | {"hybrid_engine", "progressive_layer_drop"}
"""Sections of DeepSpeed that do nothing with ``enabled: false``."""
_READ_OF_FSDP = ("version", "sharding_strategy", "reshard_after_forward", "offload_params", "activation_checkpointing")


def accelerate(config: Values) -> dict[str, Any]:
    """What Accelerate's configuration says, as the Trainer's own arguments say it.

    Raises:
        WrongQuestion: a kind of distribution that is not predicted.
    """
    if config and not {*config} & {*_READ}:
        raise WrongQuestion("--from trainer: no configuration of Accelerate: none of its keys (distributed_type ...)")
    trainer_keys.classified("accelerate", config, _READ)
    kind = str(config.get("distributed_type", "NO"))
    found: dict[str, Any] = {"processes": config.get("num_processes")}
    mixed = str(config.get("mixed_precision", "no")).lower()
    if mixed not in ("bf16", "fp16", "no", "none", "false"):
        raise WrongQuestion(
            f"--from trainer: mixed_precision {mixed:.20}: choose bf16, fp16 or no; no plan holds others"
        )
    found |= {mixed: True} if mixed in ("bf16", "fp16") else {}
    dynamo = _inner(config, "dynamo_config").get("dynamo_backend", config.get("dynamo_backend"))
    found |= {} if trainer_keys.off(dynamo) else {"torch_compile": True}
    if kind == "FSDP":
        inner = {str(key).removeprefix("fsdp_"): value for key, value in _inner(config, "fsdp_config").items()}
        found |= {"fsdp": "full_shard", "fsdp_config": inner}
        found |= {"gradient_checkpointing": True} if true(inner.get("activation_checkpointing")) else {}
    if kind == "DEEPSPEED":
        engine = _inner(config, "deepspeed_config")
        trainer_keys.classified("accelerate-deepspeed", engine, _READ_OF_DEEPSPEED)
        if re.fullmatch(r"[1-9]\d{0,5}", str(engine.get("gradient_accumulation_steps"))):
            found["gradient_accumulation_steps"] = engine["gradient_accumulation_steps"]
        found["deepspeed"] = engine.get("deepspeed_config_file") or _zero(engine)
    degrees = _inner(config, "parallelism_config")
    if str(degrees.get("parallelism_config_sp_size", 1)) != "1":
        raise WrongQuestion("--from trainer: parallelism_config_sp_size: sequences cut over ranks have no plan yet")
    for axis in ("tp", "cp", "dp_shard", "dp_replicate"):
        size = degrees.get(f"parallelism_config_{axis}_size")
        found |= {f"{axis}_size": size} if size else {}
    if kind not in ("FSDP", "DEEPSPEED", "MULTI_GPU", "NO"):
        raise WrongQuestion(f"--from trainer: distributed_type {kind:.40}: choose FSDP, DEEPSPEED or MULTI_GPU")
    return found


def launched(options: Mapping[str, list[str]]) -> dict[str, Any]:
    """Options of ``accelerate launch`` as its configuration says them.

    Raises:
        WrongQuestion: it starts an engine or an accelerator that is not priced.
    """
    stated: dict[str, Any] = {name: words[0] if words else True for name, words in options.items()}
    if other := next((name for name in ("use_megatron_lm", "cpu", "tpu", "ipex", "use_xpu") if name in stated), None):
        raise WrongQuestion(
            f"--from trainer: accelerate launch --{other}: another engine or accelerator than is priced"
        )
    engine = {key: stated[key] for key in _READ_OF_DEEPSPEED if key in stated}
    config = {key: stated[key] for key in _READ if key in stated}
    if "use_deepspeed" in stated or engine.keys() - {"gradient_accumulation_steps"}:
        config |= {"distributed_type": "DEEPSPEED", "deepspeed_config": engine}
    if "use_fsdp" in stated:
        inner = {key: value for key, value in stated.items() if key.startswith("fsdp_")}
        config |= {"distributed_type": "FSDP", "fsdp_config": inner}
    return config


def _zero(inner: Values) -> dict[str, Any]:
    """Accelerate's own few keys as a DeepSpeed configuration."""
    device = inner.get("offload_optimizer_device", "none")
    stage = inner.get("zero_stage", 2)
    stage = int(stage) if re.fullmatch(r"[0-3]", str(stage)) else stage
    zero = {"stage": stage, "offload_optimizer": {"device": device}}
    zero["offload_param"] = {"device": inner.get("offload_param_device", "none")}
    return {"zero_optimization": zero, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}


def sharding(values: Values, folder: Path) -> tuple[FoundOptions, list[str]]:
    """Runtime and sharding: by DeepSpeed's file, FSDP's words, or plain replicas.

    Raises:
        WrongQuestion: a file is named that is not there, or a stage that is not predicted.
    """
    given = values.get("deepspeed") or values.get("deepspeed_config")
    if "zero_stage" in values:
        device = "cpu" if true(values.get("offload")) else "none"
        given = _zero({"zero_stage": count(values, "zero_stage"), "offload_optimizer_device": device})
        given["zero_optimization"] |= {
            "overlap_comm": True,
            "offload_param": {"device": device},
        }  # dschat/utils/ds_utils.py
    if given is True:
        raise WrongQuestion(
            "--deepspeed: no file behind it; write its name, or --ignore deepspeed prices the rest without"
        )
    if given is not None and given is not False:
        text, whose = (json.dumps(given), []) if isinstance(given, dict) else _engine_file(folder, str(given))
        found = _agreed(deepspeed.read(text), json.loads(text), values)
        said_elsewhere = (
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "train_batch_size",
            "bf16.enabled",
            "recomputation:",
        )
        return found, [*whose, *(line for line in found.assumed if not line.startswith(said_elsewhere))]
    config = fsdp_config(values, folder)
    words = _words(values.get("fsdp"))
    if words or config or values.get("fsdp_version"):
        return _fsdp(words, config), []
    return FoundOptions(runtime="pytorch-ddp", settings={"zero": 0}), [
        "no sharding: replicas (DistributedDataParallel)"
    ]


def _agreed(engine: FoundOptions, config: Values, values: Values) -> FoundOptions:
    """What DeepSpeed's configuration says, with its batch only where it is a number.

    Raises:
        WrongQuestion: it says something that no plan has, or another batch or precision than the options do.
    """
    zero = {f"zero_optimization.{name}": value for name, value in _inner(config, "zero_optimization").items()}
    unread = {
        name: value
        for name, value in {**config, **zero}.items()
        if name in engine.unread
        and name != "optimizer"
        and not (name in _SWITCHED and trainer_keys.off(_inner(config, name).get("enabled", True)))
    }
    trainer_keys.classified("deepspeed", unread, ())
    kind = str(_inner(config, "optimizer").get("type", "adamw")).lower()
    if kind not in ("adam", "adamw", "auto", "fusedadam", "deepspeedcpuadam"):
        raise WrongQuestion(f"--from trainer: DeepSpeed's optimizer.type {kind:.30}: choose Adam, AdamW")
    batch = {}
    for ours, name in (("micro", "train_micro_batch_size_per_gpu"), ("accumulation", "gradient_accumulation_steps")):
        stated = next((values[key] for key in NAMES[ours] if values.get(key) is not None), None)
        if isinstance(config.get(name), int):
            batch[ours] = config[name]
            if stated is not None and str(stated) != str(config[name]):
                raise WrongQuestion(
                    f"--from trainer: {name} {config[name]} in DeepSpeed's configuration, {stated!s:.20} by the "
                    f"options: the Trainer stops there; make them one, or {name} auto"
                )
    accumulates = "accumulation" in batch or any(values.get(key) is not None for key in NAMES["accumulation"])
    if isinstance(config.get("train_batch_size"), int) and not accumulates:
        raise WrongQuestion(
            f"--from trainer: train_batch_size {config['train_batch_size']} in DeepSpeed's configuration: how often it "
            "accumulates hangs on the ranks; write gradient_accumulation_steps"
        )
    other = {"bf16": "fp16", "fp16": "bf16"}.get(str(engine.precision), "")
    if other and true(values.get(other)):
        raise WrongQuestion(
            f"--from trainer: {engine.precision} in DeepSpeed's configuration, {other} by the options: the Trainer "
            "stops there; make them one, or both auto"
        )
    settings = {axis: value for axis, value in engine.settings.items() if axis != "micro"}
    micro = {"micro": batch["micro"]} if "micro" in batch else {}
    return replace(engine, settings={**settings, **micro}, accumulation=batch.get("accumulation"))


def _engine_file(folder: Path, name: str) -> tuple[str, list[str]]:
    """A configuration of DeepSpeed by its name, and what is taken for one that is not there but that a program ships.

    Raises:
        WrongQuestion: there is no such file.
    """
    shipped = ((re.search(rf"(^|/){pattern}$", name), rows) for pattern, rows in WORDS["own_files"].items())
    known = next(((match["stage"], rows) for match, rows in shipped if match), None)
    try:
        return named_file(folder, name), []
    except WrongQuestion:
        if known is None:
            raise
    stage, rows = known
    zero = {"stage": int(stage), "overlap_comm": rows["overlap"]}
    zero["offload_optimizer"] = {"device": rows.get("optimizer", "none")}
    zero["offload_param"] = {"device": rows.get("weights", "none")}
    engine = {"zero_optimization": zero, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
    shipped_as = f"{name}: not there; ZeRO-{stage}, as the program's own file of that name has it"
    return json.dumps(engine), [shipped_as] if name.endswith(".json") else []


def with_fsdp_file(values: Values, folder: Path) -> Values:
    """A configuration with what the file says that ``fsdp`` names (ms-swift: its words, and settings of FSDP's).

    Raises:
        WrongQuestion: there is no such file, or words that FSDP has not.
    """
    given = values.get("fsdp")
    if isinstance(given, str) and given.endswith(".json"):
        inner = mapping(named_file(folder, given))
        values = {**values, "fsdp": None, **{key: inner[key] for key in ("fsdp", "fsdp_config") if key in inner}}
    if wrong := [word for word in _words(values.get("fsdp")) if word not in (*FSDP, "auto_wrap", "offload", "true")]:
        raise WrongQuestion(f"--from trainer: fsdp {wrong[0]:.40}: choose {', '.join(FSDP)}, auto_wrap, offload")
    return values


def fsdp_config(values: Values, folder: Path) -> dict[str, Any]:
    """FSDP's settings, their prefix left out, from the configuration or the file that it names.

    Raises:
        WrongQuestion: there is no such file.
    """
    given = values.get("fsdp_config") or {}
    if isinstance(given, str):
        given = mapping(given if given.lstrip().startswith("{") else named_file(folder, given))
    config = given
    if not isinstance(config, dict):
        return {}
    plain = {str(key).removeprefix("fsdp_"): value for key, value in config.items()}
    trainer_keys.classified("fsdp", plain, _READ_OF_FSDP)
    return plain


def _fsdp(words: list[str], config: Values) -> FoundOptions:
    plain = config
    kind = str(plain.get("sharding_strategy", "")).lower() or next(
        (word for word in words if word in FSDP), "full_shard"
    )
    reshard = plain.get("reshard_after_forward", True)
    if kind not in FSDP:
        raise WrongQuestion(f"--from trainer: fsdp {kind:.40}: choose {', '.join(FSDP)}")
    stage, scope = FSDP[kind]["zero"], FSDP[kind]["scope"]
    offloads = "offload" in words or true(plain.get("offload_params"))
    if offloads and stage != 3:
        raise WrongQuestion(f"--from trainer: fsdp_offload_params with {kind}: weights in host memory are shards alone")
    kept = stage == 2 or (stage == 3 and not true(reshard) and str(reshard).upper() != "FULL_SHARD")
    return FoundOptions(
        runtime="pytorch-ddp" if stage == 0 else "fsdp2",
        settings={"zero": 3 if stage else 0, "zero_scope": scope}
        | ({"offload": offload_name(WITH_WEIGHTS)} if offloads else {}),
        differs=("weights stay whole after the forward pass; predicted as given back",) if kept else (),
    )


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else str(value or "").replace(",", " ").split()


def _inner(config: Values, name: str) -> Values:
    value = config.get(name) or {}
    if not isinstance(value, dict):
        raise WrongQuestion(f"{name} is {value!r:.40}; a mapping is expected")
    return value


def with_files(values: Values, given: Sequence[Path]) -> dict[str, Any]:
    """A configuration with the files beside it that it does not find: those that it names, Accelerate's, and others
    whose keys it does not set itself.
    """
    whole = dict(values)
    for path in given:
        inner = mapping(files.read_text(path))
        named = [key for key, value in values.items() if isinstance(value, str) and Path(value).name == path.name]
        if named:
            whole |= dict.fromkeys(named, inner)
        else:
            whole = {**(accelerate(inner) if "distributed_type" in inner else inner), **whole}
    return whole
