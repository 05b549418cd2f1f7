"""Writes a manual page a command: ``python -m docs.man_pages build/man``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from planner.base.version import __version__
from planner.commands.command_line import PROGRAM, cli


def loaded(group: click.Group) -> click.Group:
    """A group with its subcommands as click keeps them: those of the program are imported only when they are called."""
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    group.commands = {name: command for name, command in commands.items() if command is not None}
    return group


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_man_pages(PROGRAM, loaded(cli), version=__version__, target_dir=str(folder))
    print(f"{len(list(folder.iterdir()))} pages in {folder}")
