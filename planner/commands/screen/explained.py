"""A document again, with its reasons, after checking it: on the screen, and as a text for Python."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from planner import document
from planner.api import plan_sources
from planner.api.entry import entry, in_keywords
from planner.api.plan_sources import Source
from planner.base.errors import WrongQuestion
from planner.commands.screen import procure_view, render, report
from planner.schema.plan import Plan
from planner.schema.procurement import Procurement


class PrintedText(str):
    """A text that a session shows as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@entry
def explain(
    plans: Source,
    *,
    rank: int | None = None,
    workload: str | None = None,
    alternative: int | None = None,
    trace: str | Path | Sequence[str | Path] = (),
    steps: int | None = None,
) -> PrintedText:
    """The report on a plan, a set of plans or an offer, with its reasons, after checking it.

    Args:
        plans: The document, or the file that holds it.
        rank: Which plan of a set (1).
        workload: Of an offer: whose plan.
        alternative: Of an offer: which (1).
        trace: Traces of a real run of the plan, one a rank: where its time went.
        steps: Steps in each trace, where the profiler did not mark them.

    Raises:
        WrongQuestion: it cannot be read, or holds no such plan; a trace without kernels or steps.
        Inconsistent: its figures contradict each other.

    >>> from planner import estimate
    >>> print(explain(estimate("llama3-8b", "dgx-h100:1", tp=8)).splitlines()[0])
    Llama 3 8B, pre-training, 8,192 tokens/sequence, batch 512 sequences
    """
    with redirect_stdout(render.PlainText()) as text:
        several = [trace] if isinstance(trace, str | Path) else trace
        paths = [Path(each).expanduser() for each in several]
        show(plans, rank=rank, workload=workload, alternative=alternative, trace=paths, steps=steps)
    return PrintedText(in_keywords(text.getvalue()))


def show(
    source: Source,
    *,
    rank: int | None = None,
    workload: str | None = None,
    alternative: int | None = None,
    trace: Sequence[Path] = (),
    steps: int | None = None,
    as_json: bool = False,
    verbose: bool = False,
) -> None:
    """Prints the report, or the document as JSON; with traces, that of a traced step."""
    given, where = plan_sources.opened(source)
    found = plan_sources.narrowed(given, where, rank=rank, workload=workload, alternative=alternative)
    if isinstance(found, Procurement):
        if trace:
            raise WrongQuestion("--trace: of a plan; name one of the offer's with --workload")
        if as_json:
            render.json(document.stamped(found if alternative is None else found.alternatives[alternative - 1]))
        else:
            procure_view.show(found, alternative or 1)
        return
    chosen = document.chosen(found, 1 if rank is None else rank, where)
    if trace or steps is not None:
        _traced(plan_sources.sound(chosen), trace, steps, as_json=as_json)
        return
    for plan in (chosen,) if as_json else report.printed(found, chosen):
        plan_sources.sound(plan)
    if as_json:
        render.json(document.stamped(chosen))
    else:
        report.explained(found, chosen, verbose=verbose)


def _traced(plan: Plan, trace: Sequence[Path], steps: int | None, *, as_json: bool) -> None:
    """Where the time of a traced step went."""
    from planner.commands.screen import trace_view
    from planner.trace import report as traced

    if not trace:
        raise WrongQuestion("--steps: of a trace; name it with --trace FILE")
    found = traced.explain(plan, trace, steps)
    if as_json:
        render.json(found.document())
    else:
        trace_view.show(found)
