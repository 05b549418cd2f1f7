"""Documents as one self-contained HTML page: no file, no font and no script comes from anywhere else.

The template escapes every text (Jinja2's autoescape), specifications stand in it as JSON without ``<``, and the page's
own policy lets no script run but the two whose hashes it states, and no request leave.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.version import __version__
from planner.report import charts
from planner.report.blocks import Content

TEMPLATES = Path(__file__).parent / "templates"
GENERATOR = '<meta name="generator" content="clusterwright '
"""In the head of every page, before the version: by this it is known again."""


def page(documents: Sequence[Content]) -> str:
    """The HTML of these documents, one after the other.

    Raises:
        WrongQuestion: the libraries that draw are not installed.
    """
    own = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return rendered(
        "page.html",
        documents=documents,
        scripts=[library(), own],
        hashes=[_hash(library()), _hash(own)],
        palette=charts.PALETTE,
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
    """Vega, Vega-Lite and Vega-Embed (BSD-3-Clause) as one script of 0.9 MB, which vl-convert holds.

    It takes seconds to put it together, and minds no Ctrl-C in them: in a process of its own, which is ended with ours.
    """
    if find_spec("vl_convert") is None:
        raise _missing("vl-convert-python")
    found = subprocess.run([sys.executable, "-P", "-c", BUNDLE], capture_output=True, encoding="utf-8", check=True)
    # Nothing in the bundle may end the script element that it stands in.
    return found.stdout.replace("</script", "<\\/script")


BUNDLE = """
import signal, sys, vl_convert
signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""


def _missing(name: str) -> WrongQuestion:
    return WrongQuestion(f"a page needs {name}, which is not installed: pip install 'clusterwright[report]'")


def _hash(script: str) -> str:
    """As a content security policy states it (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
