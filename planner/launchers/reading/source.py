"""A configuration's text, and the reader for it: said, or found out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.launchers.reading import deepspeed, documents, megatron, torchtitan, trainer
from planner.launchers.reading.found import FoundOptions
from planner.launchers.reading.shell import sandbox
from planner.launchers.reading.shell.script import Script, script
from planner.models import files

COMMANDS: dict[str, Callable[[Script], FoundOptions]] = {
    "megatron": megatron.read,
    "torchtitan": torchtitan.read,
    "trainer": trainer.read_command,
}
FILES: dict[str, Callable[[str, Path], FoundOptions]] = {
    "deepspeed": lambda text, folder: deepspeed.read(text),
    "llama-factory": trainer.read_file("llama-factory"),
    "axolotl": trainer.read_file("axolotl"),
}
SOURCES = (*COMMANDS, *FILES)
"""What a configuration may be for: a command or a script with one, or a file of its own format."""


@dataclass(frozen=True, slots=True)
class Started:
    """How a script is started: its arguments, its variables, and whether it is run (in a sandbox) or only read."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run: bool = False
    ignored: frozenset[str] = frozenset()
    """Options, without dashes, that are left out."""


AS_IT_IS = Started()
"""Without arguments, and only read."""


def read(source: str, text: str, started: Started = AS_IT_IS) -> FoundOptions:
    """What a configuration says; `text` is a command, or names a file with one.

    Raises:
        WrongQuestion: it cannot be read.
    """
    folder = Path(text).parent if _is_file(text) else Path()
    if source == "trainer" and documents.detect(text_of(text)) == "trainer":
        return trainer.read_file("trainer")(text_of(text), folder)
    if source == "torchtitan" and torchtitan.IS_FILE.search(text_of(text)):
        return torchtitan.read_file(text_of(text))
    if source not in COMMANDS:
        if started != AS_IT_IS:
            raise WrongQuestion(f"--from {source}: a file, not a script: --run-script, --arg and --env say nothing")
        return FILES[source](text_of(text), folder)
    if started.run and not Path(text).is_file():
        raise WrongQuestion("--run-script: needs the name of a script")
    if started.run:
        found = sandbox.ran(Path(text), started.arguments, started.environment)
    else:
        found = script(text_of(text), started.arguments, started.environment)
    return COMMANDS[source](replace(found, ignored=started.ignored, folder=folder))


def text_of(text: str) -> str:
    """The file's text if there is such a file, else the text itself, unless that is only a name.

    Raises:
        WrongQuestion: it looks like the name of a file that does not exist.
    """
    named = _is_file(text)
    if not named and _is_folder(text):
        raise WrongQuestion(f"{text}: a folder; a file with the command, or the command itself, is expected")
    if not named and re.fullmatch(r"[^\s{\[-]\S*", text):
        raise WrongQuestion(f"{text}: no such file")
    return files.read_text(Path(text)) if named else text


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False


def detect(text: str) -> str:
    """Which of :data:`SOURCES` a configuration is for; `text` is a command, or names a file.

    Raises:
        WrongQuestion: a format that no reader takes, or nothing that is known.
    """
    inner = text_of(text)
    if (found := documents.detect(inner)) is not None:
        return found
    if torchtitan.IS_FILE.search(inner):
        return "torchtitan"
    for source, mark in _MARKS.items():
        if mark.search(inner):
            return source
    raise WrongQuestion(f"no option of a known trainer in it; say what it is for (--from {', '.join(SOURCES)})")


_MARKS = {
    "torchtitan": re.compile(r"--(parallelism|training)\.\w|torchtitan"),
    "trainer": re.compile(r"--(per_device_train_batch_size|(actor_)?model_name_or_path|zero_stage)\b"),
    "megatron": re.compile(r"--(tensor-model-parallel-size|micro-batch-size|num-layers)\b|pretrain_gpt"),
}
"""What a command of each trainer holds."""
