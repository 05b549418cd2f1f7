"""A click group whose subcommands are imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


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
