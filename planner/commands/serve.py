"""``clusterwright serve``."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

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
def serve(folder: Path, port: int) -> None:
    """Ask for plans on a local web page: model, cluster and limits in, the report out.

    The address that is printed holds a token of this run; without it nothing is answered, and only this machine is.
    Ctrl-C ends it. It asks for the extra clusterwright[serve].

    \b
      clusterwright serve
      clusterwright serve --folder ~/plans --port 0
    """  # noqa: D301 - click reads the control character itself
    from planner.base import writing
    from planner.base.errors import WrongQuestion
    from planner.commands import web
    from planner.commands.screen import render

    try:
        import uvicorn
    except ImportError:
        raise WrongQuestion("the page needs Uvicorn: pip install 'clusterwright[serve]'") from None
    token = secrets.token_urlsafe(32)
    application = web.application(folder, token)
    try:
        listening = socket.create_server((web.HOST, port))
    except OSError as error:
        raise WrongQuestion(f"--port {port}: {error.strerror or error}; --port 0 takes a free one") from None
    writing.make_folder(folder)
    render.labelled("Open", f"http://{web.HOST}:{listening.getsockname()[1]}/?token={token}")
    settings = uvicorn.Config(application, log_level="error", access_log=False, server_header=False)
    uvicorn.Server(settings).run(sockets=[listening])
