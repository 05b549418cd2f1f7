"""Everything that reaches the screen: tables, lines, JSON, errors, progress. The only importer of rich.

Piped, the output is plain text at full width. On a terminal it has colour, long lines are folded under their label, and
a table too wide for the window never wraps: it says once what is the same in all rows, and goes on below.
"""

from __future__ import annotations

import io
import json as json_module
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from planner.base.secrets import scrubbed
from planner.commands.screen import typeset

if TYPE_CHECKING:
    from rich.progress import Progress

    from planner.schema.record import Record


PROGRAM = "clusterwright"
QUIET_SECONDS = 1.0
"""Work that takes less than this shows no bar."""
FIRST_LINE_S = 10.0
SELDOM_S = 60.0
"""In a pipe: seconds of work before its first line, and between lines at most."""


LABEL_WIDTH = 15
"""Columns of a report's labels: the longest, ``Suggested fix``, and two spaces."""


class Advance(Protocol):
    """What :func:`progress` yields: ``advance(n, note)`` counts `n` more units of work done."""

    def __call__(self, n: float = 1, note: str = "") -> None:
        """Count `n` more units as done; `note` is shown behind the bar."""


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    align: str = "",
    title: str = "",
    priority: Sequence[str | int] | None = None,
    folded: str | None = None,
) -> None:
    """Print a table: a header line, then aligned columns two spaces apart.

    Arguments:
        headers: one a column; an empty one leaves its column unlabelled.
        rows: cells; ``None`` prints as ``-``, anything but text and numbers by ``str``.
        align: one letter a column, ``l`` or ``r``; empty: numbers right, on the decimal point, and text left.
        title: a line above the header.
        priority: headers or indices of the columns that a narrow terminal loses, first to last; a short table goes on
            below with the others, a long one loses them from the right. The first column always stays.
        folded: the header of a column that is broken over lines before any is dropped.
    """
    width = _width(sys.stdout)
    found = typeset.table(headers, rows, align=align, priority=priority, width=width, folded=folded)
    if title:
        _print(title, "bold")
    for head, *body in found.blocks:
        _print(head, "bold cyan")
        for line in body:
            _print(line)
    if found.alike:
        text(f"  the same in all: {', '.join(found.alike)}")
    if found.hidden:
        _print(typeset.hidden_note(found.hidden, width), "dim")


def text(line: str = "") -> None:
    """Print one line. A terminal folds it, hanging under the text behind ``Label  ``; a pipe gets it whole."""
    width, line = _width(sys.stdout), typeset.harmless(line)
    folded = typeset.fold(line, width) if width else [line]
    label = typeset.label_width(line)
    for number, part in enumerate(folded):
        _print(part, bold=label if number == 0 else 0)


def labelled(label: str, *lines: str) -> None:
    """Print lines under a label: the label stands before the first of them and blanks before the others."""
    for index, line in enumerate(lines):
        text(f"{label if index == 0 else '':{LABEL_WIDTH}}{line}")


def verbatim(text: str) -> None:
    """Print the text of a file as it is, never folded, so that what is copied from a terminal can be read back."""
    for line in text.splitlines():
        _write(sys.stdout, typeset.harmless(line))


def json(obj: object) -> None:
    """Print a document as JSON: keys in their own order, indented by two, UTF-8, and no NaN."""
    document = json_module.dumps(obj, indent=2, ensure_ascii=not _speaks_unicode(sys.stdout), allow_nan=False)
    sys.stdout.write(document + "\n")


def record(document: Record) -> None:
    """Print a record as the document that its fields describe, without a digest."""
    from planner.schema.record import dump

    json(dump(document))


def report(table: Mapping[str, object]) -> None:
    """Print, as JSON, what no record stands for and ``load`` reads again: with its digest."""
    from planner.schema.digest import sealed

    json(sealed(table))


def error(message: str) -> None:
    """Print what went wrong to stderr, behind the program's name and without secrets."""
    message = scrubbed(message)
    if _colour(sys.stderr):
        from rich.text import Text

        name, _, rest = _folded(f"{PROGRAM}: {message}", sys.stderr).partition(" ")
        _rich(sys.stderr, Text.assemble((f"{name} ", "bold red"), rest))
    else:
        _write(sys.stderr, _folded(f"{PROGRAM}: {message}", sys.stderr))


def _folded(message: str, stream: TextIO) -> str:
    """Lines of a message broken between words where the stream is a terminal that is too narrow for them."""
    width = _width(stream)
    lines = [typeset.harmless(line) for line in message.splitlines()]
    parts = [typeset.fold(line, width) if width else [line] for line in lines]
    return "\n".join(part for each in parts for part in each)


@contextmanager
def progress(description: str, total: float | None, *, quiet: bool = False) -> Iterator[Advance]:
    """Show a bar on the terminal's stderr once the work has lasted a second; in a pipe a line now and then, once it has
    lasted some more. If `quiet`, show nothing; with ``CLUSTERWRIGHT_PROGRESS=off``, nothing in a pipe.

    Work of which nobody knows how much there is (no `total`) gets a clock in place of a bar and the time that is left.

    Yields:
        A callable ``advance(n=1, note="")`` with ``advance.notes``.
    """
    terminal = sys.stderr.isatty()
    watched = terminal or (sys.stderr is sys.__stderr__ and os.environ.get("CLUSTERWRIGHT_PROGRESS") != "off")
    if quiet or not watched:
        yield _ignore
        return
    bar = _Bar(description, total) if terminal else _Lines(description, total)
    try:
        yield bar
    finally:
        bar.stop()


def _ignore(n: float = 1, note: str = "") -> None:
    """Advance nothing: nobody is watching."""


class _Lines:
    """Progress where no bar can move: a line after some seconds of work, and then ever more seldom."""

    notes = True

    def __init__(self, description: str, total: float | None) -> None:
        self._description = description
        self._total = total
        self._done = 0.0
        self._note = ""
        self._began = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._tell, daemon=True).start()

    def __call__(self, n: float = 1, note: str = "") -> None:
        self._done += n
        self._note = note or self._note

    def _tell(self) -> None:
        wait_s = FIRST_LINE_S
        while not self._stopped.wait(wait_s):
            share = f" {self._done / self._total:.0%}" if self._total else ""
            note = f", {self._note}" if self._note else ""
            lasted = time.monotonic() - self._began
            print(f"{self._description}{share}{note}, {lasted:,.0f} s so far", file=sys.stderr, flush=True)
            wait_s = min(2 * wait_s, SELDOM_S)

    def stop(self) -> None:
        self._stopped.set()


class _Bar:
    """A progress bar that appears only when the work turns out to be long; of unknown work, how long it has taken."""

    notes = True

    def __init__(self, description: str, total: float | None) -> None:
        self._description, self._total, self._done, self._note = description, total, 0.0, ""
        self._shown: Progress | None = None
        self._one_at_a_time, self._stopped = threading.Lock(), False
        self._timer = threading.Timer(QUIET_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, n: float = 1, note: str = "") -> None:
        with self._one_at_a_time:
            self._done += n
            self._note = note or self._note
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=self._done, note=self._note)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        what, note = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[note]"))
        done = (SpinnerColumn(), what, BarColumn(12), TaskProgressColumn())
        known = (*done, note, TimeRemainingColumn(), TextColumn("left"))
        unknown = (SpinnerColumn(), what, note, TimeElapsedColumn())
        with self._one_at_a_time:
            if self._stopped:
                return
            bar = Progress(
                *(unknown if self._total is None else known),
                console=Console(file=sys.stderr, no_color=not _colour(sys.stderr)),
                transient=True,
            )
            bar.add_task(self._description, total=self._total, completed=self._done, note=self._note)  # type: ignore[arg-type]
            bar.start()
            self._shown = bar

    def stop(self) -> None:
        self._timer.cancel()
        with self._one_at_a_time:
            self._stopped = True
            if self._shown is not None:
                self._shown.stop()


# ---- the terminal ----------------------------------------------------------------------------------------------------


class PlainText(io.StringIO):
    """A text that what is shown is kept in, for a page or a notebook: never coloured."""


def _colour(stream: TextIO) -> bool:
    """Whether to colour: never with NO_COLOR or in a text, always with FORCE_COLOR, else on a terminal that can."""
    if os.environ.get("NO_COLOR") or isinstance(stream, PlainText):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _width(stream: TextIO) -> int | None:
    """Columns of the terminal; None where the stream is no terminal and lines may be as long as they are."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def _print(line: str, style: str = "", *, bold: int = 0) -> None:
    """Print a finished line in a style, or with its first `bold` characters emphasised."""
    if (style or bold) and _colour(sys.stdout):
        from rich.text import Text

        styled = Text(line, style=style)
        styled.stylize("bold", 0, bold)
        _rich(sys.stdout, styled)
    else:
        _write(sys.stdout, line)


def _rich(stream: TextIO, styled: object) -> None:
    """Print one styled line as it is: no wrapping, no markup, no highlighting."""
    from rich.console import Console

    Console(file=stream, force_terminal=True, highlight=False, soft_wrap=True).print(styled)


def _write(stream: TextIO, line: str) -> None:
    """Write one line; what the stream's encoding lacks becomes ``?`` instead of an error."""
    if not _speaks_unicode(stream):
        encoding = stream.encoding or "ascii"
        line = line.encode(encoding, "replace").decode(encoding)
    stream.write(line + "\n")


def _speaks_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "utf-8").lower().replace("-", "") in ("utf8", "utf16", "utf32")
