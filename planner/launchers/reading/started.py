"""How a script is started, and what a reader makes of it: read, or run in the sandbox where reading leaves it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.launchers.reading.shell import counts, sandbox, usage
from planner.launchers.reading.shell.script import Branches, Script, script
from planner.launchers.reading.shell.sourced import LARGEST
from planner.models import files

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Started:
    """How a script is started: its arguments, its variables, and whether it is run (in a sandbox) or only read."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    run: bool = False
    ignored: frozenset[str] = frozenset()
    """Options, without dashes, or keys of a file that are left out."""
    files: tuple[Path, ...] = ()
    """Files that the configuration names, and others that belong to it."""
    machine: Callable[[], Mapping[str, str]] = dict
    """What a script that counts accelerators or nodes finds."""
    folder: Path | None = None
    """Where these are looked for, if not next to the configuration."""
    model: str | None = None
    """The model that is asked for instead of its own."""


WHAT = "a configuration of a job"
AS_IT_IS = Started()
"""Without arguments, and only read."""


def text_of(text: str) -> str:
    """The file's text if there is such a file, else the text itself, unless that is only a name.

    Raises:
        WrongQuestion: it looks like the name of a file that does not exist.
    """
    named = is_file(text)
    if not named and _is_folder(text):
        raise WrongQuestion(f"{text}: a folder; a file with the command, or the command itself, is expected")
    if not named and re.fullmatch(r"[^\s{\[-]\S*", text):
        raise WrongQuestion(f"{text}: no such file")
    if not named:
        return text
    # Outputs of a notebook's cells are large, and are not read.
    return files.read_text(path) if (path := Path(text)).suffix == ".ipynb" else reading.text(path, WHAT, LARGEST)


def is_file(text: str) -> bool:
    """Whether a text names a file that is there."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False


def of_script(reader: Callable[[Script], T], text: str, folder: Path, started: Started) -> tuple[T, str]:
    """What a reader makes of a command or a script, and how that had to be read where its branches left it open.

    Raises:
        WrongQuestion: it cannot be read.
    """
    if started.run and not Path(text).is_file():
        raise WrongQuestion("--run-script: needs the name of a script")
    example = usage.Example()
    if not started.arguments and is_file(text):
        example = usage.shown(text_of(text), Path(text))
        started = replace(started, arguments=example.arguments)

    def read_as(commands: Script) -> T:
        return reader(replace(commands, ignored=started.ignored, folder=folder, files=started.files))

    try:
        commands = started.run and sandbox.ran(Path(text), started.arguments, started.environment)
        counted = started.machine() if counts.COUNTS.search(text_of(text)) else {}
        given = {**counted, **started.environment}
        around = folder if is_file(text) else None
        return read_as(commands or script(text_of(text), started.arguments, given, around)), str(example)
    except Branches as branches:
        if started.run or not is_file(text):
            raise
        try:
            options = read_as(sandbox.ran(Path(text), started.arguments, started.environment))
        except WrongQuestion as error:
            why = re.split(r"[:;] (?=set |--run)", str(branches))[0]
            asks = 0 if started.arguments else usage.asked(text_of(text))
            missing = f"; it reads {asks} arguments (--arg WORD for each, in their order)" if asks else ""
            raise WrongQuestion(f"{why}; run in the sandbox: {error}{missing}") from None
        how = "what the script starts, or a file of it, hangs on running it: it was, in the sandbox (--env, --arg)"
        lacks = dict.fromkeys(match[0] for match in counts.MACHINE.finditer(text_of(text)))
        how += f"; where it asks for {', '.join(lacks)}, there was none" if lacks else ""
        return options, "; ".join(filter(None, (how, str(example))))
