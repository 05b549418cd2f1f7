"""``clusterwright serve``."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from types import FrameType
from typing import Any

import click


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("clusterwright-files"),
    show_default=True,
    metavar="DIR",
    help="Plans are kept here; nothing else is written, and no file elsewhere is read by name.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    metavar="N",
    help="On 127.0.0.1 alone; 0 takes a free one.",
)
@click.option("--time-limit", default="10 min", show_default=True, metavar="TIME", help="Of a search, which then ends.")
def serve(folder: Path, port: int, time_limit: str) -> None:
    """Ask for plans on a local web page: model, cluster and limits in, the report out.

    The address that is printed holds a token of this run; without it nothing is answered, and only this machine is.
    Ctrl-C ends it, and a search under way with it. It asks for the extra clusterwright[serve].

    \b
      clusterwright serve
      clusterwright serve --folder ~/plans --port 0
    """  # noqa: D301 - click reads the control character itself
    from planner.base import writing
    from planner.base.errors import WrongQuestion
    from planner.commands import web
    from planner.commands.one_search import OneSearch
    from planner.commands.screen import render
    from planner.question.flag_values import positive
    from planner.report import html

    try:
        import uvicorn
    except ImportError:
        raise WrongQuestion("the page needs Uvicorn: pip install 'clusterwright[serve]'") from None
    token, limit_s = secrets.token_urlsafe(32), positive("--time-limit", time_limit, "time")
    search = OneSearch(folder, limit_s or 0.0)
    application = web.application(folder, token, search)
    try:
        listening = socket.create_server((web.HOST, port))
    except OSError as error:
        raise WrongQuestion(f"--port {port}: {error.strerror or error}; --port 0 takes a free one") from None
    writing.make_folder(folder)
    html.library()  # seconds, in which Ctrl-C ends all: later it would wait for them
    render.labelled("Open", f"http://{web.HOST}:{listening.getsockname()[1]}/?token={token}")
    settings = uvicorn.Config(application, log_level="error", access_log=False, server_header=False)
    server: Any = uvicorn.Server(settings)  # whose handler is replaced
    stops = server.handle_exit

    def handle_exit(signal: int, frame: FrameType | None) -> None:
        search.end()
        stops(signal, frame)

    server.handle_exit = handle_exit
    server.run(sockets=[listening])
