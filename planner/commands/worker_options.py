"""``--workers`` and ``--engine``: who does work that can be shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])


def options(what: str) -> Callable[[Command], Command]:
    """Both; `what` says what a cluster would do, as a verb."""

    def added(command: Command) -> Command:
        workers = click.option(
            "--workers",
            type=click.IntRange(1, 256),
            default=1,
            show_default=True,
            metavar="K",
            help="Number of processes.",
        )
        return workers(engine(what)(command))

    return added


def engine(what: str) -> Callable[[Command], Command]:
    """``--engine`` alone."""
    return click.option(
        "--engine",
        metavar="dask://HOST:PORT",
        help=f"{what} on a Dask cluster (needs the extra clusterwright[dask]).",
    )
