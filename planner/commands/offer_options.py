"""One plan out of an offer: the options that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """``--workload`` and ``--alternative``."""
    for option in (
        click.option("--alternative", type=int, metavar="N", help="Which alternative of an offer (default: 1)."),
        click.option("--workload", metavar="NAME", help="Of an offer: whose plan."),
    ):
        command = option(command)
    return command
