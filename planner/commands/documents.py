"""``clusterwright explain``, ``report`` and ``compare``: what can be done with written documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.base.errors import WrongQuestion
from planner.commands import options
from planner.question.document_options import ExplainQuestion

if TYPE_CHECKING:
    from planner.schema.plan import Plan
    from planner.schema.reports import Comparison


@click.command()
@click.argument("file", type=options.PATH)
@options.declared(ExplainQuestion, ("rank", "table"))
@options.json("Print the document as JSON.")
@options.declared(ExplainQuestion, "verbose")
def explain(file: Path, as_json: bool, **asked: Any) -> None:
    """Print a document again, with its reasons, after checking it: plans, an offer, a study, shares of images.

    With --trace: where the time of a real step went, next to the prediction. Traces are PyTorch's (Kineto JSON, gzipped
    or not) or Nsight Systems' exports to SQLite, one for each rank that was traced. PyTorch's may be of a job on CPUs:
    shares of its step stand next to those predicted.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain plan.json --recheck
      clusterwright explain offer.json --workload base
      clusterwright explain plan.json --trace rank0.json.gz --trace rank8.json.gz
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import explained

    explained.show(ExplainQuestion(file, **asked), as_json=as_json)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The page; one that stands there is replaced.",
)
def report(files: tuple[Path, ...], output: Path) -> None:
    """Write documents as one HTML page: the recommendation first, then charts, machines, sources and assumptions.

    FILES are what -o of plan, estimate, procure and design wrote, what --json of compare, fit, validate and comm show
    printed, or the CSV of validate -o. The page needs no network. It asks for the extra clusterwright[report].

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright report plan.json
      clusterwright report plan.json offer.json -o both.html
    """  # noqa: D301 - click reads the control character itself
    from planner.api import documents
    from planner.commands.screen import render
    from planner.report import html_page

    size = len(documents.written(files, output).encode())
    if not html_page.library():
        render.error("the page has tables and no charts: vl-convert, which holds their script, failed (ulimit -v?)")
    render.labelled("Written", f"{output}, {size / 1e6:.1f} MB; open it in a browser (it prints to PDF, too)")


_DAY = 86400.0


@click.command()
@click.argument("mine", type=click.Path(path_type=Path))
@click.argument("best", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(mine: Path, best: Path, as_json: bool) -> None:
    """Report the gain of the first plan in BEST over the first plan in MINE, and where they differ.

    \b
      clusterwright import megatron.sh --from megatron --cluster dgx-h100:16 -o mine.json
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o best.json
      clusterwright compare mine.json best.json
    """  # noqa: D301 - click reads the control character itself
    from planner.api import plan_sources
    from planner.commands.screen import render
    from planner.planning import comparison, document
    from planner.report import quantities

    if document.is_post_training(mine) or document.is_post_training(best):
        _compare_steps(mine, best, as_json)
        return
    plans = [plan_sources.sound(plan_sources.read(file)) for file in (mine, best)]
    found = comparison.compare(plans[0], plans[1])
    if as_json:
        render.json(document.stamped(found))
        return
    names = (mine.stem, best.stem) if mine.stem != best.stem else (str(mine), str(best))
    paid = quantities.compared(names, [plan.money for plan in plans])
    for label, line in _answer(found, names[1], *plans):
        render.labelled(label, line)
    render.text()
    render.table(
        ("", *names),
        [*found.differing, *_figures(plans[0], plans[1], comparison.token_share(plans[0], plans[1]))],
        align="lll",
    )
    render.text()
    render.labelled("Prices", *paid)


def _compare_steps(mine: Path, best: Path, as_json: bool) -> None:
    """The gain of one step of post-training over another's, and where they differ."""
    from planner.api import plan_sources
    from planner.commands.screen import render
    from planner.planning import document
    from planner.rl import comparison
    from planner.schema.rl import RLPlanSet

    answers = [plan_sources.opened(file, document.load_document)[0] for file in (mine, best)]
    first, second = answers
    if not isinstance(first, RLPlanSet) or not isinstance(second, RLPlanSet):
        raise WrongQuestion(f"{mine} and {best}: one is a plan of post-training and the other is none")
    gain = comparison.compared(first, second)
    if as_json:
        render.json(gain)
        return
    names = (mine.stem, best.stem) if mine.stem != best.stem else (str(mine), str(best))
    if "models" in gain["questions"]:
        render.labelled("Gain", "not comparable: they train different models")
    else:
        render.labelled("Gain", f"{names[1]}: {comparison.sentence(gain)}")
    if gain["questions"]:
        render.labelled("Warning", f"they answer different questions: different {', '.join(gain['questions'])}")
    for name, fits in zip(names, gain["fits"], strict=True):
        if not fits:
            render.labelled("Warning", f"{name} does not fit into memory at the accepted risk")
    render.text()
    render.table(("", *names), gain["differing"], align="lll")


def _figures(first: Plan, second: Plan, share: float) -> Iterator[tuple[str, str, str]]:
    """Name and both values of each predicted figure, in one unit and for the first plan's tokens, `share` times the
    second's.
    """
    from planner.base.units import format_bytes, format_count, format_percent, format_seconds, format_usd

    def row(name: str, write: Callable[..., str], one: float, other: float) -> tuple[str, str, str]:
        least = min(one, other)
        return name, write(one, like=least), write(other, like=least)

    a, b = first.prediction, second.prediction
    yield row("step", format_seconds, a.step_time_s, b.step_time_s)
    yield row("tokens/s", format_count, a.tokens_per_s, b.tokens_per_s)
    yield "MFU", format_percent(a.mfu), format_percent(b.mfu)
    yield row("memory/GPU", format_bytes, a.memory.total_bytes, b.memory.total_bytes)
    yield row("time", format_seconds, first.money.days * _DAY, second.money.days * share * _DAY)
    if first.money.usd_total is not None and second.money.usd_total is not None:
        yield row("cost", format_usd, first.money.usd_total, second.money.usd_total * share)


def _answer(found: Comparison, name: str, first: Plan, second: Plan) -> Iterator[tuple[str, str]]:
    """Label and line of each sentence of the answer."""
    from planner.api.plan_sources import too_large
    from planner.base.units import format_count, format_seconds, format_usd
    from planner.planning.comparison import TOKENS, faster

    if TOKENS in found.questions:
        tokens = [format_count(plan.workload.tokens) for plan in (first, second)]
        yield "Tokens", f"they differ, {tokens[0]} and {tokens[1]}: time and money are for {tokens[0]} on both sides"
    money = "" if found.usd is None else f", {format_usd(abs(found.usd))} {'saved' if found.usd <= 0 else 'more'}"
    time = f"{format_seconds(abs(found.days) * _DAY)} {'sooner' if found.days <= 0 else 'later'}"
    if not found.differing and found.tokens == 1.0 and not {*found.questions} - {TOKENS}:
        yield "Gain", "none: the two are the same plan"
        return
    if "models" in found.questions:
        yield "Gain", "not comparable: they train different models"
    else:
        sure = "" if found.distinguishable else "as predicted, "
        yield "Gain", f"{name}: {faster(found)}; {sure}done {time}{money}"
    if other := [question for question in found.questions if question != TOKENS]:
        yield "Warning", f"they answer different questions: different {', '.join(other)}"
    for plan, which in ((first, "first"), (second, "second")):
        if too_large(plan):
            yield "Warning", f"the {which} does not fit into memory"
