"""Which program on Hugging Face's Trainer a command or a file is for, and its options as today's release calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats
from planner.launchers.reading.command import TrainingCommand, file_of, pairs
from planner.launchers.reading.shell.script import Script, Words
from planner.launchers.reading.trainer_dialects import (
    CHAT,
    DIALECTS,
    NAMES,
    SWIFT,
    TRAINER,
    TRL,
    WORDS,
    Dialect,
    Values,
    count,
    mapping,
    named_file,
    true,
)

PREFERENCES = re.compile(r"(^|[/_-])(dpo|grpo|ppo|kto|orpo|cpo|rloo|reward|gkd|bco|prm|rlhf)(?=[/_.-]|$)")
"""In the name of a program or its folder: models that are compared, judged or sampled from."""
_OTHERS = re.compile(r"(^|[_-])(rm|simpo|distill\w*|rerank\w*|embed\w*|retriev\w*|classif\w*|vlm|diffusion)(?=[_.-])")
"""In the name of a program: other heads, other losses, or several models."""
_PLAIN = re.compile(r"sft|pretrain|finetun|clm|instruct")
"""In the name of a program that trains plainly, whatever its folder is called."""
_OWN: dict[str, str] = WORDS["own_programs"]
_SECOND: Mapping[str, Any] = WORDS["llama_factory_1"]


def learnt_from(started: TrainingCommand, script: Script) -> str | None:
    """The stage that a program has by its name, or by its folder's where its own says nothing; None: plain training.

    Raises:
        WrongQuestion: it is one that no plan has.
    """
    own = started.program.rpartition("/")[2].lower()
    named = _OTHERS.search(own) or PREFERENCES.search(own)
    if named is None and not _PLAIN.search(own):
        named = PREFERENCES.search(f"{script.folder.absolute()}/{started.program}".lower())
    if started.starter == "swift":  # whose option says it, and whose own value is DPO
        return "dpo" if "rlhf" in started.words[:2] and "rlhf_type" not in started.options else None
    if named is None:
        return None
    stages = {"dpo": "dpo", "reward": "rm"} if PREFERENCES.search(own) else {"dpo": "dpo"}
    if named[2] not in stages:
        raise WrongQuestion(
            f"{started.program or started.starter}: by its name ({named[2]}) it trains on preferences, rewards or its "
            "own answers, or another head; read are plain training, DPO and reward models"
        )
    return stages[named[2]]


def is_stated(values: Values, name: str) -> bool:
    """Whether an option, or another of the same meaning, is stated."""
    same = next((names for names in NAMES.values() if name in names), [name])
    precision = ["bf16", "fp16"]
    return any(values.get(key) is not None for key in (precision if name in precision else same))


def listed(taken: Values) -> str:
    """Options with their values, in a row."""
    return ", ".join(f"{name} {value!s:.40}" for name, value in sorted(taken.items()))


def names_a_file(words: Words) -> bool:
    """Whether a command is one of a program that reads everything from a file."""
    text = " ".join(words)
    return any(re.search(pattern, text) for pattern in _OWN)


def with_its_file(started: TrainingCommand, script: Script) -> dict[str, Any]:
    """A command's options over those of the file that it names; ``key=value`` behind it leads, too."""
    values: dict[str, Any] = {name.replace("-", "_"): _word(words) for name, words in started.options.items()}
    named = values.get("config") if isinstance(values.get("config"), str) else file_of(started.words)
    if named is None:
        return values
    over = {name: None if text == "null" else text for name, text in pairs(started.words).items()}
    return {**mapping(named_file(script.folder, named, script.files)), **over, **values}


def dialect_of(started: TrainingCommand, values: Values) -> Dialect:
    """The program that a command starts: by its name, else by options that only one has."""
    text = " ".join((started.starter, started.program, *started.words[:3]))
    name = next((name for pattern, name in _OWN.items() if name and re.search(pattern, text)), "")
    if name == "ms-swift":
        return SWIFT
    if "base_model" in values and "datasets" in values:
        name = "axolotl"
    if "finetuning_type" in values or {"stage", "template"} <= values.keys():
        name = "llama-factory"
    if name in DIALECTS:
        return DIALECTS[name]
    return CHAT if "zero_stage" in values else TRAINER


def todays(dialect: Dialect, values: Values) -> dict[str, Any]:
    """Options of another release by the names that they have today, and what the program takes by itself.

    Raises:
        WrongQuestion: ms-swift trains neither the whole model nor adapters.
    """
    if dialect.name == "llama-factory" and "model" in values and not values.keys().isdisjoint(_SECOND["marks"]):
        return _of_second(values)
    if dialect is not SWIFT:
        return {**values}
    former: dict[str, str] = WORDS["former_swift"]
    values = {former.get(name, name): value for name, value in values.items()}
    kind = values.get("tuner_type") or values.get("train_type") or "lora"
    if kind not in ("lora", "full"):
        raise WrongQuestion(f"--from trainer: tuner_type {kind!s:.40}: choose full, lora")
    return {"tuner_type": kind, "torch_dtype": "bfloat16", **_swift_precision(values), **values}


def as_its_program(values: Values) -> tuple[Values, list[str]]:
    """Options with what a program takes by itself that is known by them, and a line that says so."""
    for row in WORDS["takes"]:
        if sum(mark in values for mark in row["marks"]) >= row["needs"]:
            renamed = row.get("renamed", {})
            stated = {renamed.get(name, name): value for name, value in values.items()}
            adapts = row["usual"].get("use_lora") or any(true(stated.get(name)) for name in NAMES["adapters"])
            usual = {name: value for name, value in row["usual"].items() if adapts or not name.startswith("lora_")}
            taken = {name: value for name, value in usual.items() if not is_stated(stated, name)}
            return {**taken, **stated}, [f"as {row['program']} takes: {listed(taken)}"] if taken else []
    return values, []


def _of_second(values: Values) -> dict[str, Any]:
    """LLaMA-Factory's second configuration, its sections laid flat, by the names of the first."""
    flat = formats.flat(values, {})
    named = {_SECOND["names"].get(name, name): value for name, value in flat.items()}
    if named.get("dist_config.name") == "fsdp2":
        named["fsdp_version"] = 2
    if named.get("kernel_config.name") == "liger_kernel":
        named["enable_liger_kernel"] = True
    if any(name.startswith("pref_") for name in named):
        named["stage"] = "dpo"
    named["disable_gradient_checkpointing"] = named.get("enable_activation_checkpointing") is False
    return {**_SECOND["usual"], **named}


def accumulating(values: Values, ranks: int) -> Dialect:
    """ms-swift, which accumulates to 16 sequences a step where nothing is stated."""
    micro = max(count(values, "per_device_train_batch_size"), 1)
    return replace(SWIFT, defaults={**SWIFT.defaults, "accumulation": -(-16 // (micro * ranks))})


def _swift_precision(values: Values) -> dict[str, str]:
    """What ms-swift computes in: by the weights' own type, bf16 of nearly all checkpoints, if nothing is stated."""
    if {"bf16", "fp16"} & values.keys():
        return {}
    return {"dtype": "fp16" if values.get("torch_dtype") in ("float16", "float32", "fp16") else "bf16"}


def compared(folder: Path) -> str:
    """What a recipe with a ``beta`` compares answers by, which the name of its folder alone says.

    Raises:
        WrongQuestion: it does not, or not by DPO.
    """
    named = PREFERENCES.search(f"{folder.absolute()}/")
    if named is None or named[2] != "dpo":
        raise WrongQuestion("--from trainer: beta: rewards or preferences cannot be taken over; only DPO's are")
    return "dpo"


def of_trl(values: Values) -> tuple[Dialect, Values]:
    """TRL's own defaults; its releases until 0.19, known by former names, recompute nothing and compute in 32 bit."""
    former = not values.keys().isdisjoint(WORDS["former"]["trl"])
    if former:
        return replace(TRL, defaults={**TRL.defaults, "recompute": False}), values
    if values.get("bf16") is None and not true(values.get("fp16")):
        return TRL, {**values, "bf16": TRL.defaults["bf16"]}
    return TRL, values


def _word(words: list[str]) -> Any:
    """An option's value; True for a switch."""
    return True if not words else words[0] if len(words) == 1 else words
