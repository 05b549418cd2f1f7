"""A click group whose subcommands are imported only when they are called, and the wording of its errors."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from planner.base.errors import suggestion


class LazyCommand(NamedTuple):
    """Where a command is, and what ``--help`` says of it without importing it."""

    module: str
    attribute: str
    summary: str


class PipeClosed(Exception):
    """The reader of our output has gone. click would exit with 1, which here means that there is no feasible answer."""


@contextmanager
def _own_pipe_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise PipeClosed from None


class LazyGroup(click.Group):
    """A group that knows its subcommands from a table."""

    def __init__(self, *, table: Mapping[str, LazyCommand], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]  # click's own keyword arguments, passed through
        self.table = table

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """Parse; ``--help`` prints here."""
        with _own_pipe_error():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _own_pipe_error():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands, in the table's order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand; None if there is no such name."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}:{entry.attribute} is not a click command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands from the table, importing none of them, and the group's own options."""
        named = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that the arguments name, or say which exist."""
        if args[0] not in self.table and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}.", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries from the table, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])


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
        nearest = suggestion(wrong[1], choices) or suggestion(wrong[1], axes)
        message += f" Did you mean {other}?" if other else nearest
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
