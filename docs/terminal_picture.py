"""The picture of README and of the site's opening page: a terminal of 80 columns with a real answer, as SVG.

``python docs/generate.py`` asks the question and draws what is printed, so that the picture is never older than the
program; ``tests/test_docs.py`` compares the two.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from html import escape
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "figures" / "terminal.svg"
COMMAND = "clusterwright plan llama3-70b --cluster dgx-h100:16"
COLUMNS = 80
UNTIL = "the same in all"
"""What stands below the table: there the picture ends."""
STYLE = re.compile(r"\x1b\[([\d;]*)m")
CLASSES = {"1": "b", "1;36": "h", "2": "q"}
"""Codes of a terminal -> classes of the picture: labels, heads of tables, quiet text."""
ADVANCE, LINE, MARGIN, TOP = 8.4, 19, 16, 58
"""Pixels: width of a letter, from line to line, around the text, and down to the first line's foot."""
SHEET = (
    "text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d5dbe3; "
    "white-space: pre; } .b { fill: #8ec7ff; font-weight: bold; } .h { fill: #7fd8be; font-weight: bold; } "
    ".q { fill: #a3acb8; } .p { fill: #ffffff; font-weight: bold; }"
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Always."""
        return True


def printed(made_on: str) -> list[str]:
    """The lines of the answer on a terminal of 80 columns, down to its table, with the codes of their colours."""
    from planner.commands import command_line

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLUSTERWRIGHT_", "NO_COLOR"))}
    terminal = Terminal()
    with tempfile.TemporaryDirectory() as folder:
        private = {name: folder for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        shown = {"COLUMNS": str(COLUMNS), "TERM": "xterm", "FORCE_COLOR": "1", "CLUSTERWRIGHT_PROGRESS": "off"}
        environment = mock.patch.dict(os.environ, kept | private | shown | {"SOURCE_DATE_EPOCH": made_on}, clear=True)
        with environment, contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(io.StringIO()):
            assert command_line.main(shlex.split(COMMAND)[1:]) == 0
    return terminal.getvalue().partition(UNTIL)[0].splitlines()[:-1]


def drawn(lines: list[str]) -> str:
    """Lines with the codes of a terminal as SVG. A line is as wide as its letters are many, in whatever font."""
    rows = [f'<tspan class="p">$ {escape(COMMAND)}</tspan>', "", *map(_coloured, lines)]
    plain = [f"$ {COMMAND}", "", *(STYLE.sub("", line) for line in lines)]
    width = COLUMNS * ADVANCE + 2 * MARGIN
    height = TOP + LINE * len(rows) + MARGIN - LINE // 2
    texts = [
        f'<text x="{MARGIN}" y="{TOP + LINE * n}" textLength="{len(line) * ADVANCE:g}">{row}</text>'
        for n, (row, line) in enumerate(zip(rows, plain, strict=True))
        if line
    ]
    dots = [
        f'<circle cx="{MARGIN + 6 + 20 * n}" cy="20" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" role="img" aria-labelledby="title">'
    )
    title = f'<title id="title">What {escape(COMMAND)} prints</title>'
    paper = '<rect width="100%" height="100%" rx="8" fill="#10151c"/>'
    return "\n".join([head, title, f"<style>{SHEET}</style>", paper, *dots, *texts, "</svg>", ""])


def _coloured(line: str) -> str:
    """A line with spans in place of a terminal's codes."""
    text, *styled = STYLE.split(line)
    spans = [escape(text)]
    for code, piece in zip(styled[::2], styled[1::2], strict=True):
        name = CLASSES.get(code)
        spans.append(f'<tspan class="{name}">{escape(piece)}</tspan>' if name and piece else escape(piece))
    return "".join(spans)
