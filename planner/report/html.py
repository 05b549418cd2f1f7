"""Documents as one self-contained HTML page: no file, no font and no script comes from anywhere else.

The template escapes every text (Jinja2's autoescape), specifications stand in it as JSON without ``<``, and the page's
own policy lets no script run but the two whose hashes it states, and no request leave.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.version import __version__
from planner.report import charts
from planner.report.blocks import Content

TEMPLATES = Path(__file__).parent / "templates"


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
    """Vega, Vega-Lite and Vega-Embed (BSD-3-Clause) as one script of 0.9 MB, which vl-convert holds."""
    try:
        import vl_convert
    except ImportError:
        raise _missing("vl-convert-python") from None
    # Nothing in the bundle may end the script element that it stands in.
    return str(vl_convert.javascript_bundle()).replace("</script", "<\\/script")


def _missing(name: str) -> WrongQuestion:
    return WrongQuestion(f"a page needs {name}, which is not installed: pip install 'clusterwright[report]'")


def _hash(script: str) -> str:
    """As a content security policy states it (https://www.w3.org/TR/CSP3/#grammardef-hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
