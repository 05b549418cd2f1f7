"""MaxText's command to axes of a plan; the table of formats says what its keys are."""

from __future__ import annotations

import re

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.hydra import word
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_dialects import mapping
from planner.models.files import read_text

_STARTS = re.compile(
    r"(maxtext|MaxText)(\.trainers\.pre_train)?\.train|\S*(maxtext|MaxText)/(trainers/pre_train/)?train\.py"
)
"""The word of a command that starts MaxText."""


def read(commands: Script) -> FoundOptions:
    """MaxText's command: a file of its own, and ``key=value`` that lead.

    Raises:
        WrongQuestion: there is none, or its file is not at hand.
    """
    runs = {words for way in commands.ways for words in way if any(map(_STARTS.fullmatch, words))}
    if len(runs) != 1:
        raise WrongQuestion(f"--from maxtext: {len(runs)} commands with python -m maxtext...train in it; read one")
    (words,) = runs
    name = next((word for word in words if word.endswith((".yml", ".yaml"))), "")
    at_hand = [path for path in (*commands.files, commands.folder / name) if path.is_file()]
    if name.rpartition("/")[2] not in ("base.yml", "") and not at_hand:
        raise WrongQuestion(f"{name:.120}: no such file; the command names it (--file says where it is)")
    stated = {key: word(value) for key, equals, value in (text.partition("=") for text in words) if equals}
    values = {**(formats.flat(mapping(read_text(at_hand[0])), {}) if at_hand else {}), **stated}
    left = {key: value for key, value in values.items() if key not in commands.ignored and "-" not in key}
    return formats.read(formats.formats()["maxtext"], left)
