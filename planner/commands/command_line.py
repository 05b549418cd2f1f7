"""The command line. Subcommands are listed here and imported only when called, so that ``--help`` stays instant."""

from __future__ import annotations

import keyword
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from planner.base.errors import ClusterwrightError, DocumentChanged
from planner.base.stopping import INTERRUPTED
from planner.base.version import __version__
from planner.commands.lazy import LazyCommand, LazyGroup, PipeClosed
from planner.commands.screen import render
from planner.commands.usage_messages import usage_message

PROGRAM = "clusterwright"


def _spelt(name: str) -> str:
    """A command's module and function: its name, with ``_`` behind it where Python has taken that."""
    return f"{name}_" if keyword.iskeyword(name) else name


_HOMES = {
    **dict.fromkeys(("plan", "estimate", "fit"), "plans"),
    **dict.fromkeys(("procure", "design"), "purchases"),
    **dict.fromkeys(("init", "examples"), "init_and_examples"),
    **dict.fromkeys(("explain", "report", "compare"), "documents"),
    **dict.fromkeys(("export", "import"), "launcher_files"),
    **dict.fromkeys(("calibrate", "validate"), "calibrate_and_validate"),
    **dict.fromkeys(("learn", "profile"), "learn_and_profile"),
    **dict.fromkeys(("mcp", "serve"), "serving"),
    **dict.fromkeys(("sign", "verify"), "signatures"),
}
"""Commands whose module has another name."""
COMMANDS = {
    name: LazyCommand(f"planner.commands.{_HOMES.get(name, _spelt(name))}", _spelt(name), summary)
    for name, summary in {
        "init": "Start a commented portfolio, study or cluster file, or a site.",
        "learn": "Read training logs into a site's journal; adapt predictions.",
        "runs": "Look at a site's runs, correct them, undo, merge.",
        "plan": "Rank the ways to train a model on a cluster.",
        "fit": "Which accelerators hold a fine-tuning; which models fit on some.",
        "estimate": "Predict one given configuration, and what limits it.",
        "procure": "Recommend what to buy or rent for a portfolio of jobs.",
        "design": "Recommend which cluster to build for the workloads of a study.",
        "explain": "Print a saved plan again, with its reasons.",
        "report": "Write documents as one HTML page with charts.",
        "compare": "Compare two plans and report the gain.",
        "sign": "Sign a document with your SSH key.",
        "verify": "Check who signed a document.",
        "export": "Write a plan as the files of a launcher.",
        "import": "Read a launcher's configuration into a plan.",
        "catalog": "List, show and check hardware, fabrics, prices and runtimes.",
        "models": "List and show models, with costs by layer; import a config.json.",
        "validate": "Report prediction errors on measured runs.",
        "calibrate": "Fit efficiencies to measured runs.",
        "profile": "Use layer times measured elsewhere.",
        "examples": "List, print or write the files that pages and helps show.",
        "completion": "Print what completes commands and names in bash, zsh or fish.",
        "mcp": "Serve these questions as tools to agents (MCP).",
        "serve": "Ask for plans on a local web page.",
        "comm": "List the collectives of a plan; measure and choose back ends.",
    }.items()
}
"""Name -> where the command is and its line in ``--help``."""

PIPE_CLOSED = 141
"""Exit code when the reader of our output has gone: 128 + SIGPIPE."""
DEFECT = 70
"""Exit code when the program itself is wrong (EX_SOFTWARE)."""

HELP = """Recommend an accelerator cluster to buy, rent or use, and how to train on it.

\b
  clusterwright plan llama3-70b --cluster dgx-h100:16
  clusterwright models list
  clusterwright catalog list nodes
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run a subcommand; without one, print the help."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif os.environ.get("SOURCE_DATE_EPOCH"):
        from planner.catalog.ages import today

        today()  # refused before a long search, not after it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 answered, 1 no feasible answer, 2 a wrong question.

    Every error becomes one message on stderr. An unexpected one asks for a report; ``CLUSTERWRIGHT_DEBUG=1`` shows its
    traceback instead.
    """
    if sys.stdout is None:  # the caller closed it (``>&-``)
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")
    try:
        with _ends_in_order(), _changes_told():
            code = _run(argv)
        # Buffered output meets a closed pipe or a full disk only when it is flushed: do it where that can be handled.
        sys.stdout.flush()
    except (BrokenPipeError, PipeClosed):
        _discard_output()
        return PIPE_CLOSED
    except OSError as error:
        _discard_output()
        render.error(f"the output cannot be written: {error.strerror}")
        return 2
    return code


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """Asked to end (``kill``, a time limit of SLURM or a container), what is half-written is removed first."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _changes_told() -> Iterator[None]:
    """Shows what was edited, and which catalogs have changed, as a line beside the answer."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        render.error(str(message)) if category is DocumentChanged else shown(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", DocumentChanged)
        warnings.showwarning = show
        yield


def _discard_output() -> None:
    """Send what is still buffered nowhere: the interpreter flushes once more at exit, and would meet the same error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        result = cli.main(list(argv) if argv is not None else None, prog_name=PROGRAM, standalone_mode=False)
    except ClusterwrightError as error:
        render.error(str(error))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        render.error(usage_message(error))
        return 2
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PipeClosed:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # the output's: files name themselves
        if isinstance(error, OSError):
            render.error(f"{error.filename}: {error.strerror or error}")
            return 2
        return _defect(error)
    return result if isinstance(result, int) else 0


def _defect(error: Exception) -> int:
    """Report an error that nobody foresaw."""
    if os.environ.get("CLUSTERWRIGHT_DEBUG") == "1":
        import traceback

        render.error("".join(traceback.format_exception(error)))
        return DEFECT
    render.error(
        f"this should not have happened: {type(error).__name__}: {error}\n"
        "Please report it with the command that you ran; CLUSTERWRIGHT_DEBUG=1 shows where."
    )
    return DEFECT
