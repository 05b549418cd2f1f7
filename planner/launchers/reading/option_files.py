"""Files whose keys are Megatron-LM's options, as the command that their program makes of them.

``MODEL_ARGS`` of Megatron-LM's functional tests; FlagScale's experiment and its ``system``, ``model`` and ``data``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers import megatron_hybrid
from planner.launchers.reading.shell.script import Script, Words
from planner.launchers.reading.trainer_dialects import mapping, named_file

Values = Mapping[str, Any]
TESTS = "MODEL_ARGS"
_PARTS = ("system", "model", "data")
"""Sections of FlagScale whose keys, however deep, are options (flagscale/runner/utils.py@da4935ec)."""
_FILES = ("train", "finetune")
"""What an experiment of FlagScale calls the list of its file."""


def holds(keys: set[str]) -> bool:
    """Whether a file with these keys is one of them."""
    return TESTS in keys or {"experiment", "defaults"} <= keys or {"system", "model"} <= keys


def script(text: str, folder: Path, files: Sequence[Path]) -> Script:
    """The command that a file stands for.

    Raises:
        WrongQuestion: an experiment that trains nothing, or whose file is not there.
    """
    values = mapping(text)
    if TESTS in values:
        options = [*_options(values[TESTS])]
        hybrid = any(word.startswith("--hybrid") for word in options)
        return Script(((("torchrun", megatron_hybrid.PROGRAMS[0] if hybrid else "pretrain_gpt.py", *options),),))
    started: Words = ("torchrun", "train_gpt.py")
    if "experiment" in values:
        started = _started(values["experiment"])
        values = {**_inner(values, folder, files), **{key: values[key] for key in _PARTS if key in values}}
    options = [word for part in _PARTS for word in _options(values.get(part) or {})]
    return Script((((*started, *options),),))


def _started(experiment: Values) -> Words:
    task = experiment.get("task") or {}
    kind = f"{task.get('backend', 'megatron')} {task.get('type', 'train')}"
    if kind != "megatron train":
        raise WrongQuestion(f"a configuration of FlagScale for {kind}: read is megatron train")
    runner = experiment.get("runner") or {}
    counts = [word for key in ("nnodes", "nproc_per_node") if key in runner for word in (f"--{key}", str(runner[key]))]
    return ("torchrun", *counts, str(task.get("entrypoint", "train_gpt.py")))


def _inner(values: Values, folder: Path, files: Sequence[Path]) -> Values:
    """The file that an experiment names: ``defaults: [{train: 7b}]`` is ``train/7b.yaml`` beside it."""
    for entry in values.get("defaults") or ():
        for part in _FILES:
            if isinstance(entry, dict) and entry.get(part):
                name = f"{part}/{str(entry[part]).removesuffix('.yaml')}.yaml"
                return mapping(named_file(folder, name, files, folder))
    return {}


def _options(values: Values) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _options(value)
        elif value is not None and str(value).lower() != "false":  # 0.0 is a value
            yield f"--{str(key).removeprefix('--').replace('_', '-')}"
            if str(value).lower() != "true":
                words = value if isinstance(value, list) else str(value).split()
                yield from (str(word) for word in words)
