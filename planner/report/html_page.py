"""What a page is made of, and documents as one self-contained HTML page.

A page has sections of lines, tables, charts and drawings, all text. No file, no font and no script comes from anywhere
else. The template escapes every text (Jinja2's autoescape), specifications stand in it as JSON without ``<``, and the
page's own policy lets no script run but the two whose hashes it states, and no request leave.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from planner.base.errors import WrongQuestion
from planner.base.version import __version__
from planner.report import vega_lite


@dataclass(frozen=True, slots=True)
class Lines:
    """Labels, and what is stated under each."""

    form: ClassVar[str] = "lines"
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as a reader sees it; the first column names the row."""

    form: ClassVar[str] = "table"
    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    ids: Sequence[str] = ()
    """Of rows that a chart's points stand for, in order."""
    recommended: str = ""
    """The id of the row that is advised; empty where none is."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite specification, what it shows in a sentence, and the same figures as a table."""

    form: ClassVar[str] = "chart"
    title: str
    summary: str
    spec: dict[str, Any]
    table: TextTable


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines with texts; figures in pixels of the drawing."""

    form: ClassVar[str] = "drawing"
    title: str
    summary: str
    width: float
    height: float
    boxes: Sequence[Box]
    wires: Sequence[Wire]
    texts: Sequence[Caption]
    table: TextTable


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; what it stands for is its `title`."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""
    colour: int | None = None
    """Place in the palette; None: an outline."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Wire:
    """A line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Caption:
    """Caption whose base line begins (or ends) at a point."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True, slots=True)
class Sliders:
    """What is in proportion to tokens and price: a run's days and US dollars."""

    form: ClassVar[str] = "linear"
    tokens: float
    days: float
    usd_per_accelerator_hour: float | None
    accelerators: int


Block = Lines | TextTable | Chart | Drawing | Sliders


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page under a heading."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A figure that leads the page, what it is of, and how sure it is."""

    value: str
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """All that a page shows of one document."""

    title: str
    origin: str
    """Its file's name, or its kind."""
    sections: Sequence[Section]
    figures: Sequence[KeyFigure] = ()
    """At most three, which lead the page."""


TEMPLATES = Path(__file__).parent / "templates"
GENERATOR = '<meta name="generator" content="clusterwright '
"""In the head of every page, before the version: by this it is known again."""


def page(documents: Sequence[Content]) -> str:
    """The HTML of these documents, one after the other.

    Raises:
        WrongQuestion: the libraries that draw are not installed.
    """
    own = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    scripts = [library(), own] if library() else []
    return rendered(
        "page.html",
        documents=documents,
        scripts=scripts,
        hashes=[script_hash(each) for each in scripts],
        palette=vega_lite.PALETTE,
        version=__version__,
    )


def rendered(template: str, **values: object) -> str:
    """A template with our style, every text in it escaped.

    Raises:
        WrongQuestion: Jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise _missing("Jinja2") from None
    loader = jinja2.FileSystemLoader(TEMPLATES)
    known = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return str(known.get_template(template).render(style=style, **values))


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed (BSD-3-Clause) as one script of 0.9 MB, which vl-convert holds; empty where its
    JavaScript engine, which reserves more address space than it uses, is not given that (ulimit -v).

    It takes seconds to put it together, and minds no Ctrl-C in them: in a process of its own, which is ended with ours.

    Raises:
        WrongQuestion: vl-convert is not installed.
    """
    if find_spec("vl_convert") is None:
        raise _missing("vl-convert-python")
    found = subprocess.run([sys.executable, "-P", "-c", BUNDLE], capture_output=True, encoding="utf-8", check=False)
    if found.returncode:
        return ""
    # Nothing in the bundle may end the script element that it stands in.
    return found.stdout.replace("</script", "<\\/script")


BUNDLE = """
import signal, sys, vl_convert
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""


def _missing(name: str) -> WrongQuestion:
    return WrongQuestion(f"a page needs {name}, which is not installed: pip install 'clusterwright[report]'")


def script_hash(script: str) -> str:
    """As a content security policy states it (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
