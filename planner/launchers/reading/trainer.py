"""Hugging Face's Trainer and those who build on it: a command, or TRL's, LLaMA-Factory's or Axolotl's YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import megatron_family
from planner.launchers.reading.command import command
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_dialects import (
    CHAT,
    DIALECTS,
    LIGER,
    NAMES,
    NEAREST,
    OPTIMIZERS,
    OPTIONS,
    OTHERWISE,
    REFUSED,
    SWIFT,
    TARGETS,
    TRAINER,
    TRL,
    UNDERSTOOD,
    WORDS,
    Dialect,
    Values,
    accelerate,
    count,
    fsdp_config,
    launched,
    library_name,
    mapping,
    named_file,
    sharding,
    true,
    with_files,
)
from planner.schema.launcher_table import launcher_table

BASES = {0: "lora", 4: "qlora", 8: "qlora:int8"}
"""Bits of frozen weights -> method."""
OFFLOADING = "activation_offloading"
"""TRL's and Axolotl's key for what layers keep in host memory."""
STAGES = ("sft", "pt", None)
"""LLaMA-Factory's stages that train one model on one sequence each."""
PREFERENCES = re.compile(r"(^|[/_-])(dpo|grpo|ppo|kto|orpo|cpo|rloo|reward|gkd|bco|prm|rlhf)(?=[/_.-]|$)")
"""In the name of a program or its folder: models that are compared, judged or sampled from."""
PADS = "sequences are as long as the longest of a micro-batch; predicted all as long as the limit (packing fills them)"
_QUANTISERS: list[str] = WORDS["keys"]["quantisers"]
_MATTER, _BESIDES = (re.compile(WORDS["keys"][name]) for name in ("matter", "besides"))
_PROGRAMS: dict[str, str] = WORDS["programs"]
_SHOWN = ("processes", "plugins", "torch_dtype", "pure_bf16")
"""Keys that other lines tell of."""
_LAUNCHES = {"config_file", "mixed_precision", "use_deepspeed", "deepspeed_config_file", "use_fsdp"}
"""Options of ``accelerate launch`` that say how the job is spread and computed."""
_HARMLESS = re.compile("|".join(WORDS["keys"]["harmless"]))
_TRL_ONLY: list[str] = launcher_table("trl").head["marks"]


def read_command(script: Script) -> FoundOptions:
    """A command that trains with Hugging Face's Trainer, or as DeepSpeed-Chat does.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    started = command(script, OPTIONS)
    if started is None:
        raise WrongQuestion("--from trainer: no option of a Trainer in it (--per_device_train_batch_size ...)")
    if other := _PROGRAMS.get(started.program.rpartition("/")[2]):
        raise WrongQuestion(f"{started.program}: {other}; its options say less than they do of the Trainer's")
    if of := PREFERENCES.search(f"{script.folder.absolute()}/{started.program}".lower()):
        raise WrongQuestion(
            f"{started.program}: by its name ({of[2]}) it trains on preferences, rewards or its own answers; only "
            "plain training is read"
        )
    values: dict[str, Any] = {name: _word(words) for name, words in started.options.items()}
    if isinstance(values.get("config"), str):
        values = {**mapping(named_file(script.folder, values["config"], script.files)), **values}
    values = with_files(values, script.files)
    if swift := started.starter == "swift":
        values = {"tuner_type": values.get("train_type", "lora"), **_swift_precision(values), **values}
    if not _LAUNCHES.isdisjoint(started.launcher):
        given = started.launcher.get("config_file")
        file = mapping(named_file(script.folder, given[0], script.files)) if given else {}
        launch = accelerate({**file, **launched(started.launcher)})
        values = {**launch, **values}
        if "gradient_checkpointing" in launch:  # FSDP recomputes, whatever the program's own switch says
            values["gradient_checkpointing"] = True
    chats = "zero_stage" in values
    dialect = CHAT if chats else _swift(values, started.ranks or 1) if swift else TRAINER
    found = _read(dialect, {"dtype": "fp16" if chats else None, **values}, script.folder)
    return replace(found, ranks=started.ranks or found.ranks, assumed=[*started.assumed, *found.assumed])


def _swift(values: Values, ranks: int) -> Dialect:
    """ms-swift, which accumulates to 16 sequences a step where nothing is stated."""
    micro = max(count(values, "per_device_train_batch_size"), 1)
    return replace(SWIFT, defaults={**SWIFT.defaults, "accumulation": -(-16 // (micro * ranks))})


def _swift_precision(values: Values) -> dict[str, str]:
    """What ms-swift computes in: by the weights' own type, bf16 of nearly all checkpoints, if nothing is stated."""
    if {"bf16", "fp16"} & values.keys():
        return {}
    return {"dtype": "fp16" if values.get("torch_dtype") in ("float16", "float32") else "bf16"}


def read_file(name: str) -> Callable[[str, Path], FoundOptions]:
    """The reader of a dialect's YAML."""
    return lambda text, folder: _read(DIALECTS[name], mapping(text), folder)


def _read(dialect: Dialect, values: Values, folder: Path) -> FoundOptions:
    if dialect is TRAINER and not values.keys().isdisjoint(_TRL_ONLY):
        dialect = TRL
        if values.get("bf16") is None and not true(values.get("fp16")):
            values = {**values, "bf16": TRL.defaults["bf16"]}
    if dialect.name == "llama-factory" and not values.keys().isdisjoint(megatron_family.adapter_marks()):
        return megatron_family.read_adapter(values)
    _refuse(dialect, values)
    sharded, assumed = sharding(values, folder)
    base = _base(dialect, values)
    micro, accumulation = (_whole(dialect, values, name) for name in ("micro", "accumulation"))
    assert micro is not None and accumulation is not None
    settings: dict[str, object] = {
        **sharded.settings,
        "micro": micro,
        "recompute": "full" if _recomputes(dialect, values, folder) else "none",
    }
    settings |= {axis: size for axis in ("tp", "cp") if (size := _size(dialect, values, axis) or 1) > 1}
    replicas = _size(dialect, values, "replicas") or 1
    if replicas > 1 and sharded.settings.get("zero"):
        settings["zero_scope"] = "node"
    offloads = true(values.get(OFFLOADING)) and sharded.settings.get("zero") in (0, 3)
    if offloads:
        settings["activation_offload"] = "all"
    runtime = _runtime(dialect, values, sharded.runtime, anyhow=bool(base or offloads))
    lora = dialect.adapts(values)
    targets = "all" if true(values.get("lora_target_linear")) else dialect.get(values, "targets")
    steps = _whole(dialect, values, "steps")
    return FoundOptions(
        runtime=runtime,
        settings=settings,
        accumulation=accumulation,
        per_rank=micro * accumulation,
        precision=_precision(values, assumed),
        sequence=_whole(dialect, values, "sequence"),
        steps=steps if steps is not None and steps > 0 else None,
        method=BASES[base] if lora else "pretrain" if _untrained(values) else "finetune",
        rank=_whole(dialect, values, "rank") if lora else None,
        targets=_targets(targets, assumed) if lora else None,
        optimizer=_optimizer(dialect, values),
        model=library_name(str(dialect.get(values, "model") or "")) or None,
        ranks=values.get("processes") or _size(dialect, values, "ranks"),
        degrees=_mesh(dialect, values, replicas),
        shards=replicas if replicas > 1 else None,
        differs=tuple(_differs(dialect, values, sharded, runtime)),
        unread=sorted(
            str(name) for name in values if _unread(str(name), values[name]) and not (offloads and name == OFFLOADING)
        ),
        assumed=[*_defaults(dialect, values), *assumed],
    )


def _mesh(dialect: Dialect, values: Values, replicas: int) -> tuple[int, int] | None:
    """Replicas and shards, where they are stated."""
    shards = _size(dialect, values, "shards")
    return (replicas, shards or -1) if shards or replicas > 1 else None


def _runtime(dialect: Dialect, values: Values, sharding: str, *, anyhow: bool) -> str:
    """The runtime whose predictions hold: the Trainer's own, with Liger's kernels or without, on replicas, under FSDP,
    and `anyhow` (over a quantised base, with activations in host memory); else that of what shards it: DeepSpeed, or a
    mesh with tensor or context parallelism, which the Trainer's runtime has not.
    """
    liger = any(true(values.get(name)) for name in LIGER)
    trainer = "hf-trainer-liger" if liger else "hf-trainer"
    alone = all((_size(dialect, values, axis) or 1) == 1 for axis in ("tp", "cp"))
    by_torch = sharding in ("pytorch-ddp", "fsdp2") or (liger and dialect.adapts(values))
    return trainer if anyhow or (alone and by_torch) else sharding


def _untrained(values: Values) -> bool:
    return values.get("stage") == "pt" or true(values.get("reinit_weights"))


def _refuse(dialect: Dialect, values: Values) -> None:
    for name in filter(REFUSED.__contains__, values):
        if values[name] not in (None, False, "false", "False", "none", "", 0, "no"):
            raise WrongQuestion(f"--from {dialect.name}: {name}: {REFUSED[name]} cannot be taken over")
    whole = values.get("model_quantization_config_kwargs") == {"dequantize": True}
    wrong = sorted(
        name
        for name in values
        if _matters(name, values[name]) and name not in UNDERSTOOD and not (whole and name.startswith("model_quant"))
    )
    if true(values.get(OFFLOADING)) and values.get("deepspeed"):
        wrong.append(OFFLOADING)
    if wrong:
        raise WrongQuestion(
            f"--from {dialect.name}: {', '.join(wrong[:6])}: may change precision, memory or time, and no plan holds "
            f"it; --ignore {wrong[0]} prices the rest without"
        )
    if values.get("stage") not in STAGES:
        raise WrongQuestion(f"--from {dialect.name}: {values['stage']!s:.40}: only plain training and LoRA are read")
    if true(values.get("do_predict")) and not true(values.get("do_train")):
        raise WrongQuestion(f"--from {dialect.name}: do_predict: it does not train")
    if values.get("finetuning_type", "full") not in ("full", "lora"):
        raise WrongQuestion(
            f"--from {dialect.name}: finetuning_type {values['finetuning_type']!s:.40}: choose full, lora"
        )


def _differs(dialect: Dialect, values: Values, sharded: FoundOptions, runtime: str) -> Iterator[str]:
    yield from sharded.differs
    predicted = LIGER if runtime == "hf-trainer-liger" else ()
    notes = dict.fromkeys(text for name, text in OTHERWISE.items() if true(values.get(name)) and name not in predicted)
    yield from (f"{text}; predicted without" for text in notes)
    if (name := str(dialect.get(values, "optimizer") or "")) in NEAREST:
        yield f"optimizer {name}, of which {NEAREST[name][1]}; predicted as {NEAREST[name][0]}"
    if plugins := [str(name).rpartition(".")[2] for name in values.get("plugins") or () if "Liger" not in str(name)]:
        yield f"kernels of plugins as stated ({', '.join(plugins)}); predicted with the runtime's usual ones"
    narrow = true(values.get("pure_bf16")) or str(values.get("torch_dtype")) in ("bfloat16", "float16")
    if narrow and not dialect.adapts(values) and sharded.runtime == "pytorch-ddp":
        yield "weights and optimizer states in 16 bit, without a copy in 32 bit; predicted with one"
    if count(values, "lora_dim") and not true(values.get("only_optimize_lora")):
        yield "embeddings and norms are trained, too; predicted frozen"
    if _base(dialect, values) == 4 and not true(dialect.get(values, "nested")):
        yield "scales of 4-bit weights are in 32 bit; predicted quantised, too (0.4 bit a weight less)"
    if not true(dialect.get(values, "packing")) and values.get("stage") != "pt" and "zero_stage" not in values:
        yield PADS


def _base(dialect: Dialect, values: Values) -> int:
    """Bits of the weights that adapters leave frozen, which bitsandbytes quantises; 0: they are not."""
    switches = {
        4: any(true(values.get(name)) for name in ("load_in_4bit", "q_lora", "use_4bit_quantization")),
        8: any(true(values.get(name)) for name in ("load_in_8bit", "use_8bit_quantization")),
    }
    bits = count(values, "quantization_bit") or next((bits for bits, on in switches.items() if on), 0)
    kinds = {str(values[name]).lower() for name in _QUANTISERS if values.get(name) is not None}
    known = bits in BASES and kinds <= {"nf4", "bnb", "bitsandbytes"}
    if (bits and not (known and dialect.adapts(values))) or (values.get("adapter") == "qlora" and bits != 4):
        raise WrongQuestion(f"--from {dialect.name}: quantised weights are read in 4 bit (nf4) or 8, under adapters")
    return bits


def _defaults(dialect: Dialect, values: Values) -> Iterator[str]:
    """What is left to the program, and what it takes by itself."""
    for name, value in dialect.defaults.items():
        if name in ("micro", "accumulation", "sequence", "recompute") and not any(key in values for key in NAMES[name]):
            yield f"{NAMES[name][0]} not stated: {value}, the program's default"


def _recomputes(dialect: Dialect, values: Values, folder: Path) -> bool:
    if true(fsdp_config(values, folder).get("activation_checkpointing")):
        return True
    return true(dialect.get(values, "recompute")) and not true(values.get("disable_gradient_checkpointing"))


def _precision(values: Values, assumed: list[str]) -> str:
    if (kind := values.get("dtype")) in ("bf16", "fp16"):
        return str(kind)
    if true(values.get("pure_bf16")):
        return "bf16"
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
    if name in NEAREST:
        return NEAREST[name][0]
    if name not in OPTIMIZERS:
        raise WrongQuestion(f"--from {dialect.name}: optimizer {name:.40}: choose {', '.join(sorted(OPTIMIZERS))}")
    return OPTIMIZERS[name]


def _targets(given: Any, assumed: list[str]) -> tuple[str, ...] | None:
    if given is None:
        assumed.append("LoRA's layers not stated: q, k, v and o (--target says others)")
        return None
    names = [*map(str, given)] if isinstance(given, list) else [name.strip() for name in str(given).split(",")]
    names = [part for name in names for part in _alternatives(name)]
    if unknown := [name for name in names if name not in TARGETS]:
        raise WrongQuestion(f"LoRA layer {unknown[0]:.40}: choose {', '.join(TARGETS)}")
    return tuple(dict.fromkeys(target for name in names for target in TARGETS[name]))


def _unread(name: str, value: Any) -> bool:
    stated = name not in UNDERSTOOD and value not in (None, False) and name not in _SHOWN
    return stated and not _HARMLESS.fullmatch(name)


def _alternatives(name: str) -> list[str]:
    """The linear layers of a pattern that ends in them: ``(mlp|self_attn).(up|q|o)_proj``."""
    ending = re.search(r"\(([a-z|]+)\)_proj$", name)
    return [f"{letter}_proj" for letter in ending[1].split("|")] if ending else [name]


def _matters(name: str, value: Any) -> bool:
    """Whether a key speaks of parallelism, precision, memory or batch, and is set."""
    on = str(value).lower() not in ("none", "null", "false", "no", "", "0", "1")
    return bool(on and _MATTER.fullmatch(name) and not _BESIDES.fullmatch(name)) and name not in _SHOWN


# ---- values ----------------------------------------------------------------------------------------------------------


def _word(words: list[str]) -> Any:
    """An option's value; True for a switch."""
    return True if not words else words[0] if len(words) == 1 else words


def _size(dialect: Dialect, values: Values, name: str) -> int | None:
    if (value := dialect.get(values, name)) is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,6}", str(value)):
        raise WrongQuestion(f"{NAMES[name][-1]} {value!s:.40}: must be a whole number from 1")
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
