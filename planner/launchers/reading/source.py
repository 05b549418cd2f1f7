"""A configuration's text, and the reader for it: said, or found out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import (
    built_configurations,
    deepspeed,
    formats,
    megatron_family,
    nemo_rl,
    option_files,
    recipes,
    table_commands,
    torchtitan,
    trainer,
)
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.started import AS_IT_IS, Started, is_file, of_script, text_of
from planner.launchers.reading.trainer_dialects import WORDS, mapping
from planner.launchers.reading.trainer_sharding import with_files
from planner.schema.launcher_table import launcher_table

COMMANDS: dict[str, Callable[[Script], FoundOptions]] = {
    "megatron": megatron_family.read,
    "torchtitan": torchtitan.read,
    "trainer": trainer.read_command,
    **{name: table_commands.reader(name) for name, kind in formats.formats().items() if "program" in kind.rows},
}
FILES: dict[str, Callable[[str, Path], FoundOptions]] = {
    "deepspeed": lambda text, folder: deepspeed.read(text),
    "llama-factory": trainer.read_file("llama-factory"),
    "axolotl": trainer.read_file("axolotl"),
}
TABLED = tuple(formats.formats())
"""Formats that a table alone says how to read."""
SOURCES = tuple(dict.fromkeys((*COMMANDS, *FILES, *TABLED, *built_configurations.recipes(), "primus")))
"""What a configuration may be for."""


def read(source: str, text: str, started: Started = AS_IT_IS) -> FoundOptions:
    """What a configuration says; `text` is a command, or names a file with one.

    Raises:
        WrongQuestion: it cannot be read.
    """
    folder = started.folder or (Path(text).parent if is_file(text) else Path())
    options = _found(source, text, folder, started)
    if started.files:
        named = ", ".join(path.name for path in started.files)
        options = replace(options, assumed=[*options.assumed, f"read with it: {named}"])
    if started.ignored and not any(text.startswith("left out as asked") for text in options.assumed):
        left = ", ".join(sorted(started.ignored))
        options = replace(options, assumed=[*options.assumed, f"left out as asked: {left}"])
    return options


def _found(source: str, text: str, folder: Path, started: Started) -> FoundOptions:
    if source in built_configurations.recipes():
        return recipes.read(source, text_of(text), folder, started)
    if source == "trainer" and _file_for(text_of(text)) == "trainer":
        return trainer.read_file("trainer")(_whole(text_of(text), started), folder)
    if source in TABLED and (source not in COMMANDS or _is_file_of_keys(text_of(text))):
        if started.run or started.arguments:
            raise WrongQuestion(f"--from {source}: a file, not a script: --run-script and --arg say nothing")
        kind = formats.formats()[source]
        taken: list[str] = []
        values = flat(text_of(text), started, folder, taken if kind.rows.get("inherits") else None)
        options = formats.read(kind, values)
        return replace(options, assumed=[*options.assumed, *taken])
    if source == "torchtitan" and torchtitan.IS_FILE.search(text_of(text)):
        return torchtitan.read_file(text_of(text), started.ignored)
    if source not in COMMANDS:
        if started.run or started.arguments:
            raise WrongQuestion(f"--from {source}: a file, not a script: --run-script and --arg say nothing")
        if source == "primus":
            values = with_files(mapping(text_of(text)), started.files)
            return megatron_family.read_primus(values, started.environment, started.ignored)
        return FILES[source](_whole(text_of(text), started), folder)
    if source == "megatron" and option_files.holds(_keys(text_of(text)) or set()):
        made = option_files.script(text_of(text), folder, started.files)
        return megatron_family.read(replace(made, ignored=started.ignored, folder=folder, files=started.files))
    options, how = of_script(COMMANDS[source], text, folder, started)
    return replace(options, assumed=[*options.assumed, how]) if how else options


def _whole(text: str, started: Started) -> str:
    """A file's text with those that belong to it, without what is left out."""
    if not started.files and not started.ignored:
        return text
    values = with_files(mapping(text), started.files)
    return json.dumps(_left_in(values, started.ignored), default=str)


def _left_in(values: Mapping[str, Any], ignored: frozenset[str], before: str = "") -> dict[str, Any]:
    return {
        key: _left_in(value, ignored, f"{before}{key}.") if isinstance(value, dict) else value
        for key, value in values.items()
        if ignored.isdisjoint((key, f"{before}{key}"))
    }


def flat(
    text: str, started: Started = AS_IT_IS, folder: Path = Path(), inherits: list[str] | None = None
) -> dict[str, Any]:
    """A file's keys with those of its sections and of the files that it inherits, without what is left out.

    Args:
        text: The file's.
        started: What is left out, variables, other files.
        folder: Where the files are that it inherits.
        inherits: None where it inherits none, else what was taken in place of one is added.
    """
    values = formats.mapping_of(text)
    if inherits is None:
        values = with_files(values, started.files)
    else:
        values = nemo_rl.inherited(values, folder, started.files, inherits)
    inner = values.get("parameters")
    whole = formats.flat(inner if isinstance(inner, dict) else values, started.environment)
    return {key: value for key, value in whole.items() if started.ignored.isdisjoint((key, key.rpartition(".")[2]))}


def detect(text: str) -> str:
    """Which of :data:`SOURCES` a configuration is for; `text` is a command, or names a file.

    Raises:
        WrongQuestion: a format that no reader takes, or nothing that is known.
    """
    inner = text_of(text)
    if (recipe := built_configurations.framework(inner)) is not None:
        return recipe
    if (found := _file_for(inner)) is not None:
        return found
    if torchtitan.IS_FILE.search(inner):
        return "torchtitan"
    for source, mark in _MARKS.items():
        if mark.search(inner):
            return source
    program = re.search(r"(?:[\w./-]+\.py|(?<=-m )[\w.]+)(?=[\s\"'])", inner)
    known = f"no reader for what it starts ({program.group():.80})" if program else "no option of a known trainer in it"
    raise WrongQuestion(
        f"{known}; say what it is for (--from {', '.join(SOURCES)}), or state its layout: clusterwright estimate "
        "MODEL --cluster NODE:COUNT --runtime fsdp2 --batch N micro=1 zero=3 recompute=full"
    )


_MARKS = {
    "torchtitan": re.compile(r"--(parallelism|training)\.\w|--job\.config_file|torchtitan"),
    **{
        name: re.compile(
            rf"(?<![\w/.-]){kind.rows['program']}(?=[\s\"']|$)(?=[\s\S]*{kind.rows.get('with', '')})"
            + (f"|{kind.rows['known_by']}" if "known_by" in kind.rows else ""),
            re.MULTILINE,
        )
        for name, kind in formats.formats().items()
        if "program" in kind.rows
    },
    "trainer": re.compile("|".join([*WORDS["keys"]["marks"], *WORDS["own_programs"]])),
    "megatron": re.compile(
        r"--(tensor[-_]model[-_]parallel[-_]size|micro[-_]batch[-_]size|num[-_]layers)\b|pretrain_gpt"
        r"|\bmegatron (sft|pt|rlhf|export)\s",
    ),
}
"""What a command of each trainer holds."""
_FILE_MARKS: Mapping[str, list[str]] = {
    **{name: launcher_table(name).head["marks"] for name in ("deepspeed", "axolotl", "llama-factory")},
    "trainer": launcher_table("hf-trainer").head["marks"],
}
"""Trainer -> keys of its files, the most telling first."""
_UNREAD: Mapping[str, tuple[str, ...]] = {
    "GPT-NeoX": ("pipe-parallel-size", "model-parallel-size", "pipe_parallel_size", "model_parallel_size"),
    "Accelerate (a trainer's file or command is read with it: --file)": ("distributed_type", "compute_environment"),
    "MaxText (without model_name; say it)": ("base_emb_dim", "ici_fsdp_parallelism", "base_num_decoder_layers"),
    "llm-foundry": ("global_train_batch_size", "device_train_microbatch_size"),
    "Primus": ("work_group", "exp_name", "modules"),
    "NeMo or Megatron-Bridge": ("trainer", "exp_manager", "ddp", "train", "checkpoint"),
    "OLMo": ("device_train_microbatch_size", "wandb_group", "model_ladder"),
    "torchtune": ("_component_", "recipe", "tune"),
    "Kubernetes": ("apiVersion",),
}
"""What other files hold: they are told by name."""


def _file_for(text: str) -> str | None:
    """Which trainer's file a text is; None where it is a command or a script.

    Raises:
        WrongQuestion: a file of a format that no reader takes, by its name if that is known.
    """
    keys = _keys(text)
    if keys is None and not re.search(r"^parameters:\s*$", text, re.MULTILINE) and not formats.IS_PYTHON.search(text):
        return None
    if (tabled := _tabled(text)) is not None or keys is None:
        return tabled
    if option_files.holds(keys):
        return "megatron"
    if {"work_group", "modules"} <= keys:
        return "primus"
    for source, marks in _FILE_MARKS.items():
        if keys.intersection(marks):
            return source
    counted = {name: len(keys.intersection(marks)) for name, marks in _UNREAD.items()}
    best = max(counted, key=lambda name: counted[name])
    by_table = (name for name, kind in formats.formats().items() if "marks" in kind.rows)
    known = ", ".join((*_FILE_MARKS, *by_table, "primus"))
    if counted[best]:
        raise WrongQuestion(f"a configuration of {best}: no reader takes it; read are commands, and files for {known}")
    raise WrongQuestion(
        f"a configuration of no known format ({', '.join(sorted(keys)[:5])}); read are files for {known}"
    )


def _tabled(text: str) -> str | None:
    """The format of a file that a table alone says how to read."""
    try:
        kind = formats.format_of(flat(text))
    except WrongQuestion:
        return None
    return kind.name if kind else None


def _is_file_of_keys(text: str) -> bool:
    return _keys(text) is not None or formats.IS_PYTHON.search(text) is not None


def _keys(text: str) -> set[str] | None:
    """Keys of a text that is JSON or YAML; None where it is neither."""
    if re.match(r"(\s*#[^\n]*\n)*\s*\{", text):
        try:
            return {*mapping(text)}
        except WrongQuestion:
            return None
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    keyed = [line for line in lines if re.match(r"[\"']?[\w.-]+[\"']?:(\s|$)", line)]
    if not keyed or any(
        re.match(r"\s*[A-Za-z_]\w*=|\s*(torchrun|python3?|srun|export|deepspeed)\s", line) for line in lines
    ):
        return None
    return {line.partition(":")[0].strip("\"'") for line in keyed}
