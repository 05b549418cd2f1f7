"""Documents as a page to look at, from Python."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from planner import report
from planner.api import plan_sources
from planner.api.entry import entry
from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.record import Report
from planner.schema.reports import Comparison
from planner.schema.study import StudyResult

HEAD_BYTES = 4096
"""Of a page, in which it says what wrote it."""
Shown = str | Path | PlanSet | Plan | Procurement | StudyResult | ImagePlan | Comparison | Report
"""A document, an answer, or the file that holds one."""


@entry
def page(documents: Shown | Sequence[Shown], output: str | Path | None = None) -> str:
    """Documents as one HTML page: the recommendation, charts, a timeline of the step, machines, sources.

    Args:
        documents: One or several: plans, an offer, a study, shares of images, a comparison, a validation, the
            collectives of a plan (`clusterwright comm show --json`), or files of them.
        output: File to write; a page that stands there is replaced, another file is not.

    Raises:
        WrongQuestion: one cannot be read, `output` is another file, or the libraries that draw are not installed
            (`clusterwright[report]`).
        Inconsistent: its figures contradict each other.

    >>> from planner import estimate
    >>> html = page(estimate("llama3-8b", "dgx-h100:1", tp=8))  # doctest: +SKIP
    """
    return written(documents if isinstance(documents, list | tuple) else [cast(Shown, documents)], output)


def written(documents: Sequence[Shown], output: str | Path | None) -> str:
    """The same of several, for the command line: its messages are in the words of flags.

    Raises:
        WrongQuestion: there is nothing to show, or `output` is what the page shows, or another file that is no page.
    """
    if not documents:
        raise WrongQuestion("documents: nothing to show; name at least one")
    if output is not None and any(_is_same(source, output) for source in documents):
        raise WrongQuestion(f"{output}: is what the page shows; name another file for it, such as report.html")
    target = None if output is None else Path(output).expanduser()
    if target is not None and target.is_file() and not _is_page(target):
        raise WrongQuestion(
            f"{output}: exists already, and is no page of clusterwright; name another file, or remove it"
        )
    text = report.page([_shown(each) for each in documents])
    if target is not None:
        writing.write(target, text, replace=True)
    return text


def _is_page(file: Path) -> bool:
    """Whether it was written here: by what its head says."""
    try:
        with file.open("rb") as opened:
            return report.GENERATOR.encode() in opened.read(HEAD_BYTES)
    except OSError:
        return False


def _is_same(source: Shown, output: str | Path) -> bool:
    files = [os.path.realpath(Path(each).expanduser()) for each in (source, output) if isinstance(each, str | Path)]
    return len(files) == 2 and files[0] == files[1]


def _shown(source: Shown) -> report.Content:
    """What is to be seen of a document, which is checked first."""
    if isinstance(source, str | Path):
        origin, found = Path(source).name, report.file(Path(source).expanduser())
    elif isinstance(source, Comparison | Report):
        origin, found = source.title(), report.parsed(json.loads(source.to_json()), source.title())
    else:
        origin, found = source.kind, source
    if isinstance(found, report.Content):
        return found
    plan_sources.warn_of_changes(found, origin)
    plan_sources.consistent(found)
    return report.shown(found, origin)
