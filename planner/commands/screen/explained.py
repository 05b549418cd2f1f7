"""A document again, with its reasons, after checking it: on the screen, and as a text for Python."""

from __future__ import annotations

from contextlib import redirect_stdout

from planner import document
from planner.api import plan_sources
from planner.api.entry import entry, in_keywords
from planner.api.plan_sources import Source
from planner.commands.screen import procure_view, render, report
from planner.schema.procurement import Procurement


class PrintedText(str):
    """A text that a session shows as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@entry
def explain(
    plans: Source, *, rank: int | None = None, workload: str | None = None, alternative: int | None = None
) -> PrintedText:
    """The report on a plan, a set of plans or an offer, with its reasons, after checking it.

    Args:
        plans: The document, or the file that holds it.
        rank: Which plan of a set (1).
        workload: Of an offer: whose plan.
        alternative: Of an offer: which (1).

    Raises:
        WrongQuestion: it cannot be read, or holds no such plan.
        Inconsistent: its figures contradict each other.

    >>> from planner import estimate
    >>> print(explain(estimate("llama3-8b", "dgx-h100:1", tp=8)).splitlines()[0])
    Llama 3 8B, pre-training, 8,192 tokens/sequence, batch 512 sequences
    """
    with redirect_stdout(render.PlainText()) as text:
        show(plans, rank=rank, workload=workload, alternative=alternative)
    return PrintedText(in_keywords(text.getvalue()))


def show(
    source: Source,
    *,
    rank: int | None = None,
    workload: str | None = None,
    alternative: int | None = None,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Prints the report, or the document as JSON."""
    given, where = plan_sources.opened(source)
    found = plan_sources.narrowed(given, where, rank=rank, workload=workload, alternative=alternative)
    if isinstance(found, Procurement):
        if as_json:
            render.json(document.stamped(found if alternative is None else found.alternatives[alternative - 1]))
        else:
            procure_view.show(found, alternative or 1)
        return
    chosen = document.chosen(found, 1 if rank is None else rank, where)
    for plan in (chosen,) if as_json else report.printed(found, chosen):
        plan_sources.sound(plan)
    if as_json:
        render.json(document.stamped(chosen))
    else:
        report.explained(found, chosen, verbose=verbose)
