"""Options of Megatron-LM's earlier releases and forks as today's, and what DeepSpeed says beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.axes import AXES
from planner.base.errors import WrongQuestion
from planner.launchers.reading import deepspeed, formats, megatron
from planner.launchers.reading.found_options import FoundOptions, Options, number
from planner.launchers.reading.shell.script import Branches, Script
from planner.launchers.reading.trainer_dialects import named_file

_FORKS: Mapping[str, Any] = megatron.TABLE.head["forks"]
RENAMED: Mapping[str, str] = _FORKS["renamed"]
"""Option of an older Megatron-LM or of a fork -> today's, with its value where that is fixed."""


UNDERSCORED = ("tensor_model_parallel_size", "micro_batch_size", "num_layers", "pipeline_model_parallel_size")
"""Options by which a command is one of epfLLM's Megatron-LLM."""
_EPFL: Mapping[str, Any] = megatron.TABLE.head["epfl"]


def _epfls(flags: Options) -> tuple[Options, list[str]]:
    """The options of Megatron-LLM as Megatron-LM's, with that program's own defaults, and what was assumed."""
    if flags.keys().isdisjoint(UNDERSCORED):
        return flags, []
    renamed: Options = {} if "use_bias" in flags else {"disable-bias-linear": []}
    for name, values in flags.items():
        option, _, fixed = _EPFL["renamed"].get(name, name.replace("_", "-")).partition(" ")
        words = [_EPFL["words"].get(value, value) for value in values]
        renamed |= {words[0]: []} if option == "glu-activation" and words else {option: [fixed] if fixed else words}
    if "hidden-size" in renamed:
        renamed.setdefault("ffn-hidden-size", [str(4 * (number(renamed, "hidden-size") or 1))])
    return renamed, [
        "options of epfLLM's Megatron-LLM (underscores), and its defaults: no biases, an MLP of four widths"
    ]


def todays(flags: Options, script: Script) -> tuple[Options, dict[str, object], list[str]]:
    """A command's options as today's Megatron-LM has them, what DeepSpeed says beside them, and what was assumed.

    Raises:
        WrongQuestion: mixtures of DeepSpeed's own, or a file of DeepSpeed that no plan can say.
    """
    options, epfls = _epfls(flags)
    options = dict(options)
    if {"num-key-value-heads", "n-head-kv"} & options.keys() or (epfls and "num-query-groups" in options):
        options["group-query-attention"] = []
    if options.pop("attention-head-type", ["multihead"]) == ["multiquery"]:
        options |= {"group-query-attention": [], "num-query-groups": ["1"]}
    by_engine = not {"deepspeed", "zero-stage", "deepspeed_config", "deepspeed-config"}.isdisjoint(options)
    for name in RENAMED.keys() & options.keys():
        option, _, value = RENAMED[name].partition(" ")
        values = options.pop(name)
        options.setdefault(option, [value] if value else values)
    if not by_engine:
        return options, {}, epfls
    experts = options.pop("num-experts", ["1"])
    if any(value != "1" for value in experts):
        raise WrongQuestion(f"--num-experts {' '.join(experts):.40}: mixtures of DeepSpeed are read by no plan")
    options = {name: values for name, values in options.items() if not re.fullmatch(_FORKS["experts"], name)}
    if "no-pipeline-parallel" in options:
        options |= {"pipeline-model-parallel-size": ["1"]}
        options.pop("no-pipeline-parallel")
    settings, assumed = _engine(options, script)
    return {name: values for name, values in options.items() if name not in _FORKS["engine"]}, settings, assumed


def _engine(flags: Options, script: Script) -> tuple[dict[str, object], list[str]]:
    """What DeepSpeed's file and options say: the file leads, where it can be read or the script itself writes it."""
    given = (flags.get("deepspeed_config") or flags.get("deepspeed-config") or [""])[0]
    stated = (flags.get("zero-stage") or [""])[0]
    read, switched = _config(given, script, quiet=bool(stated)) if given else (None, [])
    if read is not None:
        return {axis: read.settings[axis] for axis in ("zero", "offload")}, switched
    notes = [f"{given:.60}: not read; --zero-stage {stated}"] if given else []
    zero = int(stated) if stated.isdigit() else 0
    if zero == 0 and "bf16" in flags:
        notes.append("ZeRO-0 with --bf16: DeepSpeed's optimizer for it shards its states, as ZeRO-1 does")
        zero = 1
    return {"zero": zero}, notes


_SWITCHED = {
    "compression_training": "layers are compressed while training (compression_training); predicted without",
    "curriculum_learning": "sequences grow while training (curriculum_learning); predicted at their last length",
    "data_efficiency": "data or layers are dropped while training (data_efficiency); predicted whole",
}
"""Section of DeepSpeed's file, on where one of its switches is -> what is predicted otherwise."""


def _config(name: str, script: Script, *, quiet: bool) -> tuple[FoundOptions | None, list[str]]:
    """DeepSpeed's file, of those that lie there or that the script writes, and what of it is predicted otherwise;
    None where a stage is stated without it.

    Raises:
        WrongQuestion: it is not there, and no stage is stated.
    """
    texts = [text for text in script.documents if "zero_optimization" in text][-1:]
    why = WrongQuestion("")
    try:
        texts = [named_file(script.folder, name, script.files)]
    except WrongQuestion as error:
        why = error
    for text in texts:
        try:
            config = deepspeed.read(text)
        except WrongQuestion as error:
            why = error
            continue
        values = formats.flat(json.loads(text), {})
        on = {key.partition(".")[0] for key, value in values.items() if key.endswith("enabled") and value is True}
        return config, [text for section, text in _SWITCHED.items() if section in on]
    if quiet:
        return None, []
    raise Branches(f"{why}; --zero-stage N behind the command says what counts") from None


def forked(found: FoundOptions, settings: Mapping[str, object]) -> FoundOptions:
    """What a fork with DeepSpeed trains, in its runtime, which has fewer axes."""
    whole = {**found.settings, **settings}
    neutral = {name: (row.spell(row.neutral), str(row.neutral)) for name, row in AXES.items()}
    kept = {
        axis: value
        for axis, value in whole.items()
        if str(value) not in neutral[axis] or axis in ("zero", "micro", "sequence_parallel")
    }
    kept.pop("dp_overlap", None)
    differs = tuple(text for text in found.differs if text != megatron.NARROW)  # as that runtime has them
    settings = {"recompute": "none", **kept}
    return replace(found, runtime="megatron-deepspeed", settings=settings, chunks=None, differs=differs)
