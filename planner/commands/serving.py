"""``clusterwright mcp`` and ``serve``: questions as tools of an agent, or on a local page."""

from __future__ import annotations

import functools
import inspect
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from planner.commands.agent_tools import Answer
    from planner.commands.one_search import OneSearch


LISTED = re.compile(r"list_(\w+)\(\)")
"""A function of Python that is a tool here."""
INSTRUCTIONS = """Clusterwright recommends accelerator clusters and training plans; it predicts step time, memory, cost.
Look up ids with catalog, then ask plan (or fit or procure, where the machines are open). Save a plan to compare,
explain or export it. State the interval and the price's source with a figure. An error says what to ask instead."""


def folder_option(purpose: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--folder``, whose help says what the folder is for."""
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("clusterwright-files"),
        show_default=True,
        metavar="DIR",
        help=purpose,
    )


@click.command()
@folder_option("All that its tools read and write by name lies here.")
def mcp(folder: Path) -> None:
    """Serve the program's questions as tools of the Model Context Protocol, over standard input and output.

    An agent's host starts it; it asks for the extra clusterwright[mcp]. Its tools: catalog, plan, estimate,
    evaluate_many, fit, procure, compare, explain, export, validate.

    \b
      claude mcp add clusterwright -- clusterwright mcp --folder ~/plans
    """  # noqa: D301 - click reads the control character itself
    from planner.base import writing

    serving = server(folder)
    writing.make_folder(folder)
    serving.run()


def server(folder: Path) -> Any:
    """The server with its tools.

    Raises:
        WrongQuestion: the SDK is not installed.
    """
    from planner.base.errors import WrongQuestion
    from planner.base.version import __version__
    from planner.commands.agent_tools import AgentTools
    from planner.commands.one_search import OneSearch

    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.tools import Tool
    except ImportError:
        raise WrongQuestion("the server needs the MCP SDK: pip install 'clusterwright[mcp]'") from None
    search = OneSearch(folder)
    tools = [Tool.from_function(answered(each, search)) for each in AgentTools(folder).all()]
    for tool in tools:  # a misspelt argument is refused, never passed over
        taken = tool.fn_metadata.arg_model
        taken.model_config["extra"] = "forbid"
        taken.model_rebuild(force=True)
        tool.parameters = taken.model_json_schema(by_alias=True)
    return MCPServer("clusterwright", version=__version__, instructions=INSTRUCTIONS, tools=tools, log_level="ERROR")


SEARCHES = ("plan", "fit", "procure", "validate")
"""Tools that may take minutes: each call is a process, which ends when the agent cancels it."""


def answered(tool: Callable[..., Answer], search: OneSearch | None = None) -> Callable[..., Any]:
    """The tool, whose errors are messages that say what to ask instead; with `search`, long ones go there."""

    @functools.wraps(tool)
    def run(*args: Any, **keywords: Any) -> Answer:
        with _in_the_words_of_tools():
            return tool(*args, **keywords)

    @functools.wraps(tool)
    async def searched(*args: Any, **keywords: Any) -> Answer:
        given = inspect.signature(tool, eval_str=True).bind(*args, **keywords)
        with _in_the_words_of_tools():
            answer: Answer = await cast("OneSearch", search).answer(tool.__name__, given.arguments)
            return answer

    made = searched if search is not None and tool.__name__ in SEARCHES else run
    vars(made)["__signature__"] = inspect.signature(tool, eval_str=True)  # of the method as it is bound, without `self`
    return made


@contextmanager
def _in_the_words_of_tools() -> Iterator[None]:
    """Errors as the SDK tells them."""
    from mcp.server.mcpserver.exceptions import ToolError

    from planner.base.errors import ClusterwrightError
    from planner.base.secrets import scrubbed

    try:
        yield
    except ClusterwrightError as error:
        raise ToolError(LISTED.sub(r"catalog(what='\1')", scrubbed(str(error)))) from None
    except OSError as error:
        raise ToolError(f"{error.strerror or error}") from None


@click.command()
@folder_option("Plans are kept here; nothing else is written, and no file elsewhere is read by name.")
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
    from planner.question.values import positive_amount
    from planner.report import html_page

    try:
        import uvicorn
    except ImportError:
        raise WrongQuestion("the page needs Uvicorn: pip install 'clusterwright[serve]'") from None
    token, limit_s = secrets.token_urlsafe(32), positive_amount("--time-limit", time_limit, "time")
    search = OneSearch(folder, limit_s or 0.0, ", or begin the server with a longer --time-limit")
    application = web.application(folder, token, search)
    try:
        listening = socket.create_server((web.HOST, port))
    except OSError as error:
        raise WrongQuestion(f"--port {port}: {error.strerror or error}; --port 0 takes a free one") from None
    writing.make_folder(folder)
    html_page.library()  # seconds, in which Ctrl-C ends all: later it would wait for them
    render.labelled("Open", f"http://{web.HOST}:{listening.getsockname()[1]}/?token={token}")
    settings = uvicorn.Config(application, log_level="error", access_log=False, server_header=False)
    server: Any = uvicorn.Server(settings)  # whose handler is replaced
    stops = server.handle_exit

    def handle_exit(signal: int, frame: FrameType | None) -> None:
        search.end()
        stops(signal, frame)

    server.handle_exit = handle_exit
    server.run(sockets=[listening])
