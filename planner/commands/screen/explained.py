"""A document again, with its reasons, after checking it: on the screen, and as a text for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from planner import catalog as catalogs
from planner.api import plan_sources, rechecking
from planner.api.entry import asks
from planner.api.rechecking import RecheckInputs
from planner.api.wording import in_keywords
from planner.base.errors import WrongQuestion
from planner.base.units import format_many, format_percent, format_seconds
from planner.commands.screen import design_view, images_view, plan_view, procure_view, render, rl_view
from planner.planning import document
from planner.question.document_options import ExplainQuestion
from planner.question.given import path
from planner.question.pools import own_clusters
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.record import dump
from planner.schema.reports import TracedCause, TracedRank, TraceReport
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult


class PrintedText(str):
    """A text that a session shows as it prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _recheck_inputs(asked: ExplainQuestion) -> RecheckInputs | None:
    """What to price a document's plans with; None unless it is asked for."""
    tables = _several(asked.table)
    given = {"--catalog": asked.catalog, "--site": asked.site, "--cluster": asked.cluster or None,
             "--table": tables or None}  # fmt: skip
    if not asked.recheck:
        if flags := [flag for flag, value in given.items() if value is not None]:
            raise WrongQuestion(f"{flags[0]} is what a document is made again with: add --recheck")
        return None
    known = catalogs.load(path(asked.catalog), path(asked.site))
    own = own_clusters(asked.cluster, known)
    return RecheckInputs(tuple(own), tuple(map(str, tables)), path(asked.catalog), path(asked.site))


@asks(ExplainQuestion)
def explain(asked: ExplainQuestion) -> PrintedText:
    """The report on a document, with its reasons, after checking it: plans, an offer, a study, shares of images.

    Args: as declared.

    Raises:
        WrongQuestion: it cannot be read, or holds no such plan; a trace without kernels or steps.
        Inconsistent: its figures contradict each other.
        NoAnswer: on rechecking, a figure differs; the message lists which.

    >>> from planner import estimate
    >>> print(explain(estimate("llama3-8b", "dgx-h100:1", tp=8)).splitlines()[0])
    Llama 3 8B, pre-training, 8,192 tokens/sequence, batch 512 sequences
    """
    with redirect_stdout(render.PlainText()) as text:
        show(asked)
    return PrintedText(in_keywords(text.getvalue()))


def _several(given: str | Path | Sequence[str | Path]) -> Sequence[str | Path]:
    """One file as a list of one."""
    return [given] if isinstance(given, str | Path) else given


def show(asked: ExplainQuestion, *, as_json: bool = False) -> None:
    """Prints the report, or the document as JSON; with traces, that of a traced step. Of a document that is made again
    it says that it is the same.

    Raises:
        WrongQuestion: there is no such plan in it, or traces are given for what is no single plan.
    """
    means = _recheck_inputs(asked)
    given, where = plan_sources.opened(asked.plans, document.load_document)
    trace = tuple(Path(each).expanduser() for each in _several(asked.trace))
    same = 0 if means is None else rechecking.check(given, where, means)
    if means is None and isinstance(asked.plans, str | Path):
        plan_sources.consistent(given)
        rechecking.warn_of_figures(given, where)
    if isinstance(given, StudyResult | ImagePlan | RLPlanSet):
        options = {
            "--rank": asked.rank,
            "--workload": asked.workload,
            "--alternative": asked.alternative,
            "--trace": trace or None,
        }
        _whole(given, where, options, as_json, asked.verbose)
        _rechecked(same, as_json)
        return
    found = plan_sources.narrowed(given, where, rank=asked.rank, workload=asked.workload, alternative=asked.alternative)
    if isinstance(found, Procurement):
        if trace:
            raise WrongQuestion("--trace: of a plan; name one of the offer's with --workload")
        _offer(found, asked.alternative, as_json, asked.verbose)
    else:
        chosen = document.chosen(found, 1 if asked.rank is None else asked.rank, where)
        _plan(found, chosen, trace, asked.steps, as_json=as_json, verbose=asked.verbose)
    _rechecked(same, as_json)
    if means is not None and not means.tables and isinstance(given, Plan) and _by_table(given) and not as_json:
        render.labelled("", "but for the rules of its calls, which a table led to: --table FILE chooses them again")


def _rechecked(same: int, as_json: bool) -> None:
    """Says how many figures were compared, if any were."""
    if same and not as_json:
        render.labelled("Recheck", f"all {same:,} figures are what this catalog and program make of them")


def _by_table(plan: Plan) -> bool:
    return plan.communication_choice is not None and not plan.communication_choice.modelled


def _offer(found: Procurement, alternative: int | None, as_json: bool, verbose: bool) -> None:
    if as_json:
        render.json(document.stamped(found if alternative is None else found.alternatives[alternative - 1]))
    else:
        procure_view.show(found, alternative or 1, verbose=verbose)


def _plan(
    found: PlanSet | Plan, chosen: Plan, trace: Sequence[Path], steps: int | None, *, as_json: bool, verbose: bool
) -> None:
    if trace or steps is not None:
        _traced(plan_sources.sound(chosen), trace, steps, as_json=as_json)
        return
    for plan in (chosen,) if as_json else plan_view.printed(found, chosen):
        plan_sources.sound(plan)
    if as_json:
        render.json(document.stamped(chosen))
    else:
        plan_view.explained(found, chosen, verbose=verbose)


def _whole(
    found: StudyResult | ImagePlan | RLPlanSet, where: str, options: Mapping[str, object], as_json: bool, verbose: bool
) -> None:
    """A document of which no one plan is chosen."""
    for flag, value in options.items():
        if value is not None:
            raise WrongQuestion(f"{where}: {flag} is of one plan; this is of kind {found.kind}, shown as a whole")
    plan_sources.consistent(found)
    if as_json:
        render.json(document.stamped(found))
    elif isinstance(found, StudyResult):
        design_view.show(found, verbose=verbose)
    elif isinstance(found, RLPlanSet):
        rl_view.show(found, verbose=verbose)
    else:
        images_view.show(found)


def _traced(plan: Plan, trace: Sequence[Path], steps: int | None, *, as_json: bool) -> None:
    """Where the time of a traced step went."""
    from planner.site.trace import report as traced

    if not trace:
        raise WrongQuestion("--steps: of a trace; name it with --trace FILE")
    found = traced.explain(plan, trace, steps)
    if as_json:
        render.report(dump(found))
    else:
        show_trace(found)


MOST_RANKS = 8
"""Ranks that are listed: of more, those that compute longest."""


def show_trace(found: TraceReport) -> None:
    """The table of causes, the ranks where they are several, and what was noted."""
    on_cpu = found.measured_on == "cpu"
    off = f"predicted ({100 * (found.predicted_s / found.step_s - 1.0):+.0f} %)"
    unlike = "predicted on accelerators: compare shares, not times"
    render.text(
        f"{format_seconds(found.step_s)} a step traced{' on CPUs' if on_cpu else ''}, "
        f"{format_seconds(found.predicted_s)} {unlike if on_cpu else off}; "
        f"{format_many(found.steps, 'step')} on {format_many(len(found.ranks), 'rank')}"
    )
    render.text()
    rows = [
        (
            row.cause,
            _some(row.measured_s),
            *_compared(row, found),
            _some(row.hidden_s),
        )
        for row in found.rows
    ]
    compared = ["of the step", "predicted", "points"] if on_cpu else ["predicted", "difference", "of the step"]
    render.table(["", "traced", *compared, "hidden"], rows, align="lrrrrr")
    render.text()
    for row in found.rows:
        if row.why:
            label = row.cause.partition(" ")[0]
            render.labelled(label if label.isupper() else label.capitalize(), row.why)
    _ranks(found)
    render.labelled("Notes", *found.notes)


def _compared(row: TracedCause, report: TraceReport) -> tuple[str, str, str]:
    """A cause next to its prediction: in seconds, or as shares of two steps where one of them ran on CPUs."""
    share = row.measured_s / report.step_s
    if report.measured_on == "cpu":
        predicted = row.predicted_s / report.predicted_s
        return format_percent(share), format_percent(predicted), f"{100 * (share - predicted):+.0f}"
    difference = f"{'+' if row.longer_s >= 0 else '-'}{format_seconds(abs(row.longer_s))}"
    return _some(row.predicted_s), difference, format_percent(share)


def _some(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "-"


def _ranks(found: TraceReport) -> None:
    if len(found.ranks) < 2:
        return
    render.text()
    listed = sorted(found.ranks, key=lambda rank: -rank.computing_s)[:MOST_RANKS]
    rows = [
        (
            _name(each),
            *(format_seconds(value) for value in (each.step_s, each.computing_s, each.waiting_s, each.idle_s)),
        )
        for each in listed
    ]
    render.table(["rank", "step", "computing", "communicating alone", "idle"], rows, align="rrrrr")
    render.text()


def _name(each: TracedRank) -> str:
    """A rank's number, or the accelerator's of a file that is of several."""
    return f"device {each.device}" if each.device is not None else "-" if each.rank is None else str(each.rank)
