"""Commands of programs whose keys a table says (``launchers/formats.toml``): a file of theirs, and keys that lead.

``key=value``, ``+key=value``, ``--key=value`` and ``--key value`` are all read; a file ends in ``.yaml``, ``.yml`` or
``.py``, or stands behind ``--config``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading import formats, nemo_rl
from planner.launchers.reading.command import assumed, refuse_open, started_ranks
from planner.launchers.reading.found_options import FoundOptions
from planner.launchers.reading.hydra import word
from planner.launchers.reading.shell.expansion import open_variable
from planner.launchers.reading.shell.script import Branches, Script, Words
from planner.launchers.reading.trainer_dialects import named_file

_KEY = re.compile(r"(?:--|\+{1,2})?([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_MOST_COMMANDS = 12
"""Commands of a script that are read."""
_FILES = ("--config", "--config-file", "--config_file")


def reader(name: str) -> Callable[[Script], FoundOptions]:
    """The reader of a format's commands."""
    return lambda commands: _read(formats.formats()[name], commands)


def _read(kind: formats.Format, commands: Script) -> FoundOptions:
    program = re.compile(kind.rows["program"])
    starts = {
        (words[: at + 1], words[at + 1 :])
        for way in commands.ways
        for words in way
        if (at := next((at for at, text in enumerate(words) if program.fullmatch(text)), None)) is not None
    }
    runs = [_options(kind, before, after, commands) for before, after in sorted(starts)[:_MOST_COMMANDS]]
    if not runs:
        raise WrongQuestion(f"--from {kind.name}: no command of {kind.title} in it")
    if len({repr(_work(options)) for options in runs}) > 1 or len(starts) > len(runs):
        raise Branches(
            f"--from {kind.name}: {len(starts)} commands of {kind.title} in it, which differ in "
            f"{_difference(runs)}: set the variable that decides (--env NAME=VALUE), or --run-script"
        )
    return runs[0]


def _options(kind: formats.Format, before: Words, after: Words, commands: Script) -> FoundOptions:
    """One command's words as axes of a plan."""
    stated, names = _stated(kind, after)
    whole = _file(kind, names, commands)
    is_own = bool(whole) and any(Path(name).name in kind.rows.get("own_files", ()) for name in names)
    base = {key: value for key, value in whole.items() if not is_own or _is_known(kind, key, value)}
    leads = kind.rows.get("variables", "~")  # beginning of variables that are keys, too
    around = (text.removeprefix(leads).partition("=") for text in before if text.startswith(leads))
    values = {**base, **{name.lower(): word(text) for name, _, text in around}, **stated}
    left = {key: value for key, value in values.items() if commands.ignored.isdisjoint((key, key.rpartition(".")[2]))}
    options = formats.read(kind, left)
    alone = re.fullmatch(kind.rows.get("alone", "$^"), before[-1])  # a program of one process
    ranks = 1 if alone else started_ranks((*before[:-1], *after)) or options.ranks
    also = (
        f"{len(whole) - len(base)} other keys of its {Path(names[0]).name}: the program's own defaults"
        if is_own
        else ""
    )
    return replace(options, ranks=ranks, assumed=[*assumed(commands), *options.assumed, *([also] if also else [])])


def _is_known(kind: formats.Format, key: str, value: Any) -> bool:
    """Whether a key of the program's own file of defaults is one that the table reads; rules of its mesh are not."""
    keys = {
        *kind.says,
        *kind.rows.get("only", {}),
        *(key for row in kind.rows.get("where", {}).values() for key in row),
    }
    return key in keys and not (isinstance(value, list) and any(isinstance(part, list) for part in value))


def _work(options: FoundOptions) -> dict[str, Any]:
    """What of a command a plan holds: commands that differ in their steps and files alone do the same."""
    others = ("steps", "assumed", "unread", "differs")
    return {field.name: getattr(options, field.name) for field in fields(options) if field.name not in others}


def _difference(runs: Sequence[FoundOptions]) -> str:
    """What the first command that differs from the first does otherwise."""
    first, *rest = ({**_work(options), **options.settings} for options in runs)
    pairs = ((name, values.get(name)) for values in rest for name in values if values[name] != first.get(name))
    name, value = next(((name, value) for name, value in pairs if name != "settings"), ("their number", len(runs)))
    return f"{name.replace('_', ' ')} ({first.get(name)!s:.40} and {value!s:.40})"


def _stated(kind: formats.Format, words: Words) -> tuple[dict[str, Any], list[str]]:
    """(key -> value of a command's words, files that it names).

    Raises:
        WrongQuestion: a variable that the script does not set, where a key is read that has it.
    """
    values: dict[str, Any] = {}
    files: list[str] = []
    for key, text in _pairs(words):
        if key in _FILES or (not key and text.endswith((".yaml", ".yml", ".py"))):
            files.append(text)
        elif not key:
            refuse_open([text])
            if text.startswith("~") or re.match(r"[+\w.@/-]+=", text):
                raise WrongQuestion(
                    f"--from {kind.name}: {text:.60}: a part that is taken out or replaced is not read; write its keys"
                )
        elif key:
            name = key.removeprefix("--").replace("-", "_")
            place = kind.says.get(name, ("", {}))[0] == "model" and not open_variable(text.rpartition("/")[2])
            if open_variable(text) and not place and (name in kind.says or re.fullmatch(kind.rows["matter"], name)):
                raise WrongQuestion(
                    f"--from {kind.name}: {name} {text:.60}: the text does not set it; --env NAME=VALUE does"
                )
            values[name] = word(text)
    return values, files


def _pairs(words: Words) -> Iterator[tuple[str, str]]:
    """(key, value): a switch has "true", a word by itself no key."""
    at = 0
    while at < len(words):
        text = words[at]
        following = words[at + 1] if at + 1 < len(words) else "--"
        at += 1
        if match := _KEY.fullmatch(text):
            yield f"--{match[1]}", match[2]
        elif text.startswith("--") and (following.startswith("--") or "=" in following):
            yield text, "true"
        elif text.startswith("--"):
            yield text, following
            at += 1
        else:
            yield "", text


def _file(kind: formats.Format, names: list[str], commands: Script) -> dict[str, Any]:
    for name in names or [path.name for path in commands.files[:1]]:
        try:
            text = named_file(commands.folder, name, commands.files)
        except WrongQuestion:
            if name.rpartition("/")[2] in kind.rows.get("own_files", ()):
                return {}
            raise
        values = formats.mapping_of(text)
        if kind.rows.get("inherits"):
            values = nemo_rl.inherited(values, commands.folder / Path(name).parent, commands.files)
        return formats.flat(values, {})
    return {}
