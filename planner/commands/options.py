"""The options of commands: those that a question's record declares, and those that say how an answer is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from planner.base import writing
from planner.commands import completion
from planner.question.option import Asked, asked

Command = TypeVar("Command", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


# ---- what a record declares ------------------------------------------------------------------------------------------


def declared(record: type, *names: str | tuple[str, str]) -> Callable[[Command], Command]:
    """Flags of a record's fields, in the order of their names; a pair is the first and the last of several."""
    flags = [_flag(field) for name in names for field in _span(record, name) if field.option.help]

    def add(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add


def _span(record: type, name: str | tuple[str, str]) -> Iterator[Asked]:
    """The field of a name, or the fields from the first to the last of a pair."""
    fields = asked(record)
    names = list(fields)
    first, last = (name, name) if isinstance(name, str) else name
    for between in names[names.index(first) : names.index(last) + 1]:
        yield fields[between]


def _flag(field: Asked) -> Callable[[Any], Any]:
    """One field as click's option."""
    option = field.option
    default = field.default if option.unset is None else option.unset
    flags = option.flags or (f"--{field.name.replace('_', '-')}",)
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    if words := option.complete:
        settings["shell_complete"] = getattr(completion, words) if isinstance(words, str) else completion.of(words)
    if bool in field.kinds and not default:
        return click.option(*flags, field.name, is_flag=True, default=default, **settings)
    if default == ():
        settings["multiple"] = True
    elif default is MISSING:
        settings["required"] = True
    elif default is not None:
        settings |= {"default": default, "show_default": True}
    return click.option(*flags, field.name, type=_type(field), **settings)


def _type(field: Asked) -> Any:
    """What click reads a flag's text as: a choice, a number in its range, a path or a text."""
    kinds, option = field.kinds, field.option
    if choices := [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]:
        return click.Choice(choices)
    if option.range is not None:
        least, most = option.range
        if int in kinds:
            return click.IntRange(int(least), None if most is None else int(most))
        return click.FloatRange(least, most)
    if option.type is Path or (option.type is None and set(kinds) == {str, Path}):
        return PATH
    return kinds[0] if len(kinds) == 1 and kinds[0] in (int, float) else None


# ---- how an answer is shown and kept ---------------------------------------------------------------------------------


def _forced(ctx: click.Context, _: click.Parameter, force: bool) -> None:
    ctx.meta["force"] = force


def _new(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a file that is there before the work is done, not after it."""
    writing.may_write(path, replace=ctx.meta["force"])
    return path


_FORCE = click.option(
    "--force", is_flag=True, is_eager=True, expose_value=False, callback=_forced, help="Replace FILE if it exists."
)
verbose = click.option("-v", "--verbose", is_flag=True, help="List every assumption, with what changes it.")


def output(what: str = "Write the document to a file.") -> Callable[[Command], Command]:
    """``-o FILE`` and ``--force``; the command is given `output`, a file that may be written or None."""
    file = click.option("-o", "output", type=PATH, metavar="FILE", callback=_new, help=what)
    return lambda command: file(_FORCE(command))


def new_file(command: Command) -> Command:
    """``FILE`` and ``--force``; the command is given `output`, a file that may be written."""
    return click.argument("output", type=PATH, metavar="FILE", callback=_new)(_FORCE(command))


def json(what: str = "Print the document instead of the report.") -> Callable[[Command], Command]:
    """``--json``; the command is given `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def shown(command: Command) -> Command:
    """``--json``, ``--verbose``, ``-o FILE`` and ``--force``."""
    return json()(verbose(output()(command)))


def catalog(what: str, name: str = "catalog") -> Callable[[Command], Command]:
    """``--catalog DIR``."""
    return click.option("--catalog", name, type=PATH, metavar="DIR", help=what)


# ---- axes typed as options -------------------------------------------------------------------------------------------


class TakesAxes(click.Command):
    """A command on which an axis may be typed as an option, too: ``--tp 8`` for ``tp=8``."""

    as_pin = False
    """Whether settings are pins: behind ``--pin``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, axes turned into what they stand for."""
        return super().parse_args(ctx, self._with_settings(ctx, args))

    @staticmethod
    def axis_options() -> list[str]:
        """Options that stand for axes."""
        from planner.axes import PINNED

        return [f"--{axis.replace('_', '-')}" for axis in PINNED]

    def _with_settings(self, ctx: click.Context, args: list[str]) -> list[str]:
        declared_options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        rewritten: list[str] = []
        left = list(args)
        while left:
            word = left.pop(0)
            option, equals, value = word.partition("=")
            is_axis = option.startswith("--") and option not in declared_options
            if not is_axis or option.replace("_", "-") not in self.axis_options():
                rewritten.append(word)
                if word == "--price" and word in rewritten[:-1] and left:  # prices of several pools are one list
                    rewritten.pop()
                    rewritten[rewritten.index(word) + 1] += f",{left.pop(0)}"
                continue
            if not equals:
                value = left.pop(0) if left and not left[0].startswith("-") else ""
            rewritten += [*(["--pin"] if self.as_pin else []), f"{option[2:]}={value}"]
        return rewritten


class PinsAxes(TakesAxes):
    """A command that searches: an axis typed as an option is a pin."""

    as_pin = True
