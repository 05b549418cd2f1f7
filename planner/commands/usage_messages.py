"""What is said of a wrong command line: an option or a command that does not exist, and the nearest that does."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from planner.base.errors import nearest, suggestion


def usage_message(error: click.ClickException) -> str:
    """One line for a wrong command line: what is wrong, the nearest thing that exists, and where the rest is listed."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    wrong = _wrong_name(error)
    message = f"no such {wrong[0]} {wrong[1]!r}." if wrong else _lower_first(error.format_message())
    if context is None:
        return message
    if wrong:
        choices = _choices(context, wrong[0])
        axes: list[str] = getattr(context.command, "axis_options", list)()
        other = _called_here(wrong[1], [*choices, *axes]) if wrong[0] == "option" else None
        hidden = {*nearest(wrong[1], [*choices, *axes])[:1]} <= {*axes}  # the axes, which the help lists apart
        message += f" Did you mean {other}?" if other else suggestion(wrong[1], axes if hidden else choices)
    return f"{message} ({context.command_path} --help)"


def _called_here(option: str, choices: Sequence[str]) -> str | None:
    """The option of a command that has another name elsewhere: ``--global-batch-size`` is ``--batch``."""
    from planner.api.entry import COUNTED, OTHERWISE

    name = option.lstrip("-").replace("-", "_")
    if name in COUNTED and "--cluster" in choices:
        return "--cluster NODE:COUNT"
    others = OTHERWISE.get(name, ())
    return next((there for each in others if (there := f"--{each.replace('_', '-')}") in choices), None)


def _wrong_name(error: click.ClickException) -> tuple[str, str] | None:
    """``("command" | "option", name)`` where the error is a name that does not exist."""
    if isinstance(error, click.NoSuchOption):
        return "option", error.option_name
    match = re.fullmatch(r"No such command '(.*)'\.", error.message)
    return ("command", match[1]) if match else None


def _choices(context: click.Context, kind: str) -> list[str]:
    command = context.command
    if kind == "command":
        return command.list_commands(context) if isinstance(command, click.Group) else []
    return [name for parameter in command.get_params(context) for name in parameter.opts if name.startswith("--")]


def _lower_first(message: str) -> str:
    """The program's messages start in lower case, as they stand behind its name."""
    line = re.sub(r"\s*\n\s*", " ", message)
    return line[:1].lower() + line[1:]
