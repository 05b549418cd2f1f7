"""Commands and files with options of Megatron-LM, its earlier releases, its forks, and what builds on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import (
    formats,
    megatron,
    megatron_forks,
    megatron_model,
    megatron_options,
    torchtitan,
)
from planner.launchers.reading.command import command, visible, without_settings
from planner.launchers.reading.found_options import FoundOptions, Options
from planner.launchers.reading.shell.script import Script, Words
from planner.launchers.reading.trainer_dialects import TARGETS, count, library_name
from planner.models import workload
from planner.schema.launcher_table import launcher_table

Values = Mapping[str, Any]
_PROGRAMS: dict[str, str] = megatron.TABLE.head["programs"]
_FORK = ("deepspeed starts it: a fork of Megatron-LM, whose options are read as Megatron-LM's",)
OPTIONS = frozenset(megatron_forks.RENAMED.keys() | megatron_options.READ | megatron_options.REFUSED.keys())
"""By which a command is known as one of Megatron-LM."""
_OFF = ("false", "none", "null", "")


def read(script: Script) -> FoundOptions:
    """A command line, or a script with one.

    Raises:
        WrongQuestion: it says nothing, or something that no plan can say.
    """
    if (swift := read_swift(script)) is not None:
        return swift
    started = command(script, OPTIONS.union(megatron_forks.UNDERSCORED))
    flags = started.options if started else {}
    flags, engine, assumed = megatron_forks.todays(flags, script)
    if started is None or not megatron_options.READ & flags.keys():
        raise WrongQuestion("--from megatron: no option of Megatron-LM in it (--tensor-model-parallel-size ...)")
    program = started.program.rpartition("/")[2]
    if why := _by_program(_PROGRAMS, started.program):
        raise WrongQuestion(f"{program}: {why}; only the training of decoders is read (pretrain_gpt.py)")
    flags = megatron_model.completed(flags, program)
    megatron_options.refuse(flags)
    options = megatron.found_options(flags)
    whole = megatron_forks.forked(options, engine) if engine else options
    forks = _FORK if started.starter == "deepspeed" and not engine else ()
    fused = () if engine else megatron_options.fused_all_the_same(flags)
    otherwise = _by_program(megatron.TABLE.head["otherwise_by_program"], started.program)
    return replace(
        whole,
        method="finetune" if program.startswith("finetune") else whole.method,
        ranks=started.ranks,
        differs=(*whole.differs, *((otherwise,) if otherwise else ())),
        assumed=(*started.assumed, *assumed, *forks, *fused, *whole.assumed),
    )


def _by_program(rows: Mapping[str, str], program: str) -> str | None:
    names = (program.rpartition("/")[2], "/".join(program.split("/")[-2:]))
    return next((text for pattern, text in rows.items() for name in names if re.fullmatch(pattern, name)), None)


_SWITCHED_OFF = {
    name.removeprefix("no_"): option.replace("_", "-")
    for option, name in launcher_table("primus").head["kept_as"].items()
    if name.startswith("no_")
}
"""Key of Primus -> Megatron-LM's option that switches it off."""
_ALGORITHMS = {
    **{word: schedule for schedule, word in launcher_table("primus").head["schedules"].items()},
    **dict.fromkeys(("none", "1f1b", "1f1b-interleaved")),
}
"""Primus's pipeline algorithm -> schedule, None where that is Megatron-LM's own."""
_OTHER_MODEL = "{key} {value}: another model than {model} is trained; --ignore {key} and --model"
UNSHAPED = "language_model"
"""Primus's model without a shape (configs/models/megatron/language_model.yaml): the experiment's own keys say it."""


def from_keys(name: str, values: Values, model: str, accumulation: int | None = None) -> FoundOptions:
    """Keys of a trainer that are Megatron-LM's options, as axes of a plan.

    Args:
        name: The trainer, as the table calls it.
        values: Key -> value.
        model: What it calls its model.
        accumulation: Micro-batches of a step, where it says these rather than a batch.

    Raises:
        WrongQuestion: a key that is not understood.
    """
    rows = formats.family()[name]
    flags: Options = {}
    for option in rows["usual"]:
        head, *words = option.split()
        flags[head] = words
    differs: list[str] = []
    for key, value in values.items():
        if text := next((text for text, keys in rows["otherwise"].items() if re.fullmatch(keys, key)), None):
            if str(value).lower() not in _OFF:
                differs.append(text)
            continue
        if re.fullmatch(rows["harmless"], key):
            continue
        value = formats.SWITCHES.get(str(value).lower(), value)
        option = rows["renamed"].get(key, key.replace("_", "-"))
        row = megatron.TABLE.options.get(option)
        if isinstance(value, bool) and (switch_off := _SWITCHED_OFF.get(key)) is not None:
            flags.pop(switch_off, None)
            flags |= {} if value else {switch_off: []}
            biased = library_name(model) if value and key == "add_bias_linear" and model != UNSHAPED else None
            if biased is not None and not workload.model(biased).mlp_bias:
                raise WrongQuestion(_OTHER_MODEL.format(key=key, value="true", model=model))
        elif value is False and option == "multi-latent-attention" and (named := library_name(model)) is not None:
            if workload.model(named).latent:
                raise WrongQuestion(_OTHER_MODEL.format(key=key, value="false", model=model))
        elif str(value).lower() in _OFF:
            flags.pop(option, None)
        elif (
            model != UNSHAPED and row is not None and not row.is_axis
            and row.says.startswith(("shape.", "latent", "recurrence"))
        ):  # fmt: skip
            if "router" not in row.says:
                raise WrongQuestion(_OTHER_MODEL.format(key=key, value=f"{value!s:.20}", model=model))
        else:
            switch = value is True or str(value).lower() == "true" or (row is not None and row.format == "switch")
            flags[option] = [] if switch else [str(word) for word in (value if isinstance(value, list) else [value])]
    for option in ("fp16", "fp8-format", "fp4-format"):
        if option == "fp16" and option in flags:
            flags.pop("bf16", None)
    known = None if model == UNSHAPED else library_name(model)
    read = _of_model(flags, known) if known is not None else _of_its_own(flags)
    micro = int(str(read.settings["micro"]))
    read = replace(read, runtime=rows["runtime"], model=known, differs=(*read.differs, *dict.fromkeys(differs)))
    if accumulation is None:
        return read
    return replace(read, batch=None, per_rank=micro * accumulation, accumulation=accumulation)


def _of_its_own(flags: Options) -> FoundOptions:
    megatron_options.refuse(flags)
    return megatron.found_options(flags)


def _of_model(flags: Options, name: str) -> FoundOptions:
    """The options read with what Megatron-LM's reader has to know of a model that is named rather than written."""
    built = workload.model(name)
    known: Options = {"num-layers": [str(built.layers)]}
    known |= {"num-experts": [str(built.moe.experts)]} if built.moe else {}
    known |= {"multi-latent-attention": []} if built.latent else {}
    whole = {**known, **flags}
    megatron_options.refuse(whole)
    return replace(megatron.found_options(whole), shape={})


def swift(words: Words) -> tuple[str, dict[str, Any]]:
    """(model, key -> value) of ``megatron sft --key value ...``."""
    values: dict[str, Any] = {}
    key = ""
    for word in words[2:]:
        if word.startswith("--"):
            key = word[2:]
            values[key] = True
        elif key:
            values[key] = (
                word if values[key] is True else f"{values[key]} {word}" if key == "target_modules" else values[key]
            )
    loaded = str(values.get("load", "")).rpartition("/")[2].removesuffix("-mcore")  # as its releases 3 named it
    return str(values.get("model") or loaded), values


def read_swift(script: Script) -> FoundOptions | None:
    """A script that starts ms-swift's ``megatron sft`` or ``megatron pt``; None where it starts another program.

    Raises:
        WrongQuestion: it starts several, or says something that no plan can say.
    """
    started = {without_settings(words): words for way in script.ways for words in way}
    ways = {words for words in started if words[0].rpartition("/")[2] == "megatron" and words[1:]}
    if not ways:
        return None
    (words, *others) = sorted(ways)
    if others or words[1] not in ("sft", "pt"):
        named = ", ".join(sorted({f"megatron {words[1]}" for words in ways}))
        raise WrongQuestion(f"ms-swift's {named}: read is a script with one megatron sft or megatron pt")
    model, values = swift(words)
    read = from_keys("ms-swift", _without(values, script.ignored), model)
    read = replace(read, ranks=visible(started[words]))
    if str(values.get("packing")).lower() != "true":
        read = replace(read, differs=(*read.differs, formats.PADS))
    adapts = "lora" in (values.get("tuner_type"), values.get("train_type"))
    if adapts:
        targets = _targets(str(values.get("target_modules") or "all-linear"))
        return replace(read, method="lora", rank=count(values, "lora_rank") or 8, targets=targets)
    return replace(read, method="finetune" if words[1] == "sft" else "pretrain")


def _targets(names: str) -> tuple[str, ...]:
    """Matrices with adapters, of the names of layers."""
    words = re.split(r"[\s,]+", names.strip("[]"))
    return tuple(dict.fromkeys(target for name in words for target in TARGETS.get(name.strip("\"'"), (name,))))


def _without(values: Values, ignored: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in ignored}


def adapter_marks() -> list[str]:
    """Keys by which a YAML of LLaMA-Factory trains with Megatron-LM."""
    marks: list[str] = formats.family()["mcore-adapter"]["marks"]
    return marks


_TRAINS = {
    "stage": ("sft", "pt"),
    "finetuning_type": ("full", "lora"),
    "optim": ("adamw_torch", "adamw_torch_fused", "adam"),
}
"""Key of LLaMA-Factory -> its values that the adapter's job is priced with, its default first."""


def read_adapter(values: Values) -> FoundOptions:
    """LLaMA-Factory's YAML for its Megatron-Core adapter or Megatron-Bridge.

    Raises:
        WrongQuestion: another stage, another way to tune, another optimizer, or a key that is not understood.
    """
    for key, known in _TRAINS.items():
        if (stated := str(values.get(key, known[0] if key != "finetuning_type" else "lora"))) not in known:
            raise WrongQuestion(
                f"--from llama-factory: {key} {stated:.40}: with Megatron-LM read are {', '.join(known)}"
            )
    packs = any(str(values.get(key)).lower() == "true" for key in ("packing", "neat_packing"))
    values = {key: value for key, value in values.items() if key not in ("packing", "neat_packing", "optim")}
    adapts = values.get("finetuning_type", "lora") == "lora"
    accumulation = count(values, "gradient_accumulation_steps") or 1
    read = from_keys("mcore-adapter", values, str(values.get("model_name_or_path", "")), accumulation)
    differs = read.differs if packs else (*read.differs, formats.PADS)
    rank = (count(values, "lora_rank") or 8) if adapts else None
    named = values.get("lora_target") or "all"
    targets = _targets(" ".join(map(str, named)) if isinstance(named, list) else str(named)) if adapts else None
    return replace(read, method="lora" if adapts else "finetune", differs=differs, rank=rank, targets=targets)


def read_primus(values: Values, environment: Mapping[str, str], ignored: Iterable[str]) -> FoundOptions:
    """Primus's experiment with Megatron-LM.

    Raises:
        WrongQuestion: no module that trains with it.
    """
    inner = formats.flat(values, environment)
    module = next((key.removesuffix(".framework") for key in inner if key.endswith(".framework")), "")
    framework = inner.get(f"{module}.framework")
    if framework not in ("megatron", "torchtitan", "maxtext"):
        raise WrongQuestion(f"a configuration of Primus for {framework}: read are megatron, torchtitan, maxtext")
    start = f"{module}.overrides."
    overrides = {key.removeprefix(start): value for key, value in inner.items() if key.startswith(start)}
    if framework == "maxtext":
        name = str(inner.get(f"{module}.model", "")).removesuffix(".yaml")
        stated = {"model_name": name, "hardware": "gpu", **overrides}
        return formats.read(formats.formats()["maxtext"], _without(stated, ignored))
    if framework == "torchtitan":
        name = str(inner.get(f"{module}.model", "")).removesuffix(".yaml")
        return torchtitan.found_tables(_without(overrides, ignored), name)
    model = str(inner.get(f"{module}.model", "")).removesuffix(".yaml").removesuffix("-pretrain")
    stated = _without(overrides, ignored)
    algorithm = str(stated.pop("pp_algorithm", "none"))
    patched = str(stated.pop("patch_primus_pipeline", False)).lower() == "true"
    tuned = {key: stated.pop(key) for key in [*stated] if key.startswith("lora.")}
    read = from_keys("primus", stated, model)
    if str(tuned.get("lora.enabled")).lower() == "true":
        layers = tuned.get("lora.target_modules") or []
        names = [*map(str, layers)] if isinstance(layers, list) else [str(layers)]
        targets = tuple(target for name in names for target in TARGETS.get(name, (name,)))
        read = replace(read, method="lora", rank=count(tuned, "lora.dim") or 16, targets=targets or None)
    if not patched:
        return read
    if algorithm not in _ALGORITHMS:
        choices = ", ".join(_ALGORITHMS)
        raise WrongQuestion(f"pp_algorithm {algorithm:.40}: choose {choices}; --ignore pp_algorithm prices 1F1B")
    schedule = _ALGORITHMS[algorithm]
    # These schedules order sends themselves, and tokens by all-to-all are what a plan has with them by itself.
    without = {axis: value for axis, value in read.settings.items() if axis not in ("p2p_overlap", "dispatcher")}
    return read if schedule is None else replace(read, settings={**without, "schedule": schedule})
