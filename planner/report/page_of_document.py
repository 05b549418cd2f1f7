"""Files and answers to the documents of a page; the pages that are a table or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.units import format_bytes, format_count, format_seconds, format_usd
from planner.planning import comparison, document
from planner.planning.document.reader import LARGEST_STUDY, json_file
from planner.report import (
    fits,
    key_figures,
    offers,
    plans,
    post_training,
    quantities,
    step_breakdown,
    studies,
    vega_lite,
)
from planner.report.html_page import Chart, Content, Lines, Section, TextTable
from planner.report.quantities import days, seconds
from planner.schema.images import ImagePlan
from planner.schema.listings import Fits
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.reports import Communication, Comparison, Validation
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult

Kept = PlanSet | Plan | Procurement | StudyResult | ImagePlan | RLPlanSet
"""What ``-o FILE`` writes."""
PRINTED = {"comparison": Comparison, "validation": Validation, "communication": Communication, "fit": Fits}
"""Kind of document that ``--json`` prints -> its record."""


def file(path: Path) -> Kept | Content:
    """A document to be checked, or the page of what ``--json`` or ``validate -o`` wrote.

    Raises:
        WrongQuestion: it cannot be read, or is of another kind.
    """
    if path.suffix.lower() == ".csv":
        return studies.of_runs(path)
    return parsed(json_file(path, LARGEST_STUDY), path.name)


def parsed(data: object, origin: str) -> Kept | Content:
    """A document from JSON types."""
    found = document.parse_answer(data, origin, PRINTED)
    if isinstance(found, Comparison):
        return of_comparison(found, origin)
    if isinstance(found, Fits):
        return fits.of_fits(found, origin)
    if isinstance(found, Validation):
        return studies.of_validation(found, origin)
    return of_communication(found, origin) if isinstance(found, Communication) else found


def shown(found: Kept, origin: str) -> Content:
    """What a page shows of a document.

    Raises:
        WrongQuestion: there is nothing in it.
    """
    if (isinstance(found, PlanSet) and not found.plans) or (isinstance(found, Procurement) and not found.alternatives):
        raise WrongQuestion(f"{origin}: nothing in it to show")
    if isinstance(found, PlanSet):
        return plans.of_set(found, origin)
    if isinstance(found, Plan):
        return plans.of_plan(found, origin)
    if isinstance(found, Procurement):
        return offers.of_offer(found, origin)
    if isinstance(found, RLPlanSet):
        return post_training.of_post_training(found, origin)
    return of_images(found, origin) if isinstance(found, ImagePlan) else studies.of_study(found, origin)


def of_comparison(found: Comparison, origin: str) -> Content:
    """Where two plans differ, and what the second gains."""
    paid = quantities.compared(("first", "second"), [plan.money for plan in found.plans])
    lines = [
        *_gain(found),
        ("Different questions", list(found.questions)),
        ("Prices", paid),
    ]
    table = TextTable("Where they differ", ("axis", "first", "second"), found.differing)
    top = Section("Gain of the second plan", (Lines([each for each in lines if each[1]]), table))
    if "models" in found.questions:
        return Content("Two plans compared", origin, [top])
    named = dict(zip(("first", "second"), found.plans, strict=True))
    return Content("Two plans compared", origin, [top, _steps(found, named)], [*key_figures.of_comparison(found)])


def _steps(found: Comparison, named: Mapping[str, Plan]) -> Section:
    """Both steps by kind of time, with the interval of the second's, and of each of its causes what it gains."""
    first = found.plans[0].prediction.step_time_s
    ends = []
    summary = "What one saves in one place it may spend in another."
    if found.interval is not None:
        # The interval is of tokens a second; a step's is its inverse, for the second plan's own batch.
        scale = first * found.step * found.tokens
        ends = [("second", scale / found.interval.high, scale / found.interval.low)]
        summary += " The line: 80 % of the difference from the first."
    return Section("Where the time goes", (step_breakdown.by_kind("Steps, by kind of time", summary, named, ends),))


def _gain(found: Comparison) -> Iterator[tuple[str, list[str]]]:
    """What the second plan brings, and how sure that is; nothing where the two train different models."""
    if "models" in found.questions:
        yield "Gain", ["not comparable: they train different models"]
        return
    sure = "" if found.distinguishable else ", as predicted"
    gain = [comparison.faster(found), f"{days(abs(found.days))} {'sooner' if found.days <= 0 else 'later'}{sure}"]
    if found.usd is not None:
        gain.append(f"{format_usd(abs(found.usd))} {'saved' if found.usd <= 0 else 'more'}{sure}")
    yield "Gain", gain
    if found.interval is not None:
        yield "Confidence", [found.interval.basis]


def of_communication(found: Communication, origin: str) -> Content:
    """Every kind of call of a step, and what of it shows."""
    name = [f"{c.op} ({c.group}, {c.ranks:,} ranks)" for c in found.calls]
    values = [
        {"row": row, "part": part, "value": took, "text": format_seconds(took)}
        for row, c in zip(name, found.calls, strict=True)
        for part, took in (("exposed", c.exposed_s), ("hidden behind compute", max(c.alone_s - c.exposed_s, 0.0)))
        if took
    ]
    rows = [
        (
            row,
            format_bytes(c.bytes),
            f"{c.count:,.0f}",
            format_seconds(c.alone_s),
            format_seconds(c.exposed_s),
            c.choice,
        )
        for row, c in zip(name, found.calls, strict=True)
    ]
    table = TextTable("Collectives of a step", ("call", "size", "calls", "alone", "exposed", "choice"), rows)
    spec = vega_lite.bars(values, "seconds", ["exposed", "hidden behind compute"])
    chart = Chart("Time of all calls of a step", f"A step takes {seconds(found.step_time_s)}.", spec, table)
    return Content("Communication of a step", origin, [Section("Collectives", (chart, table))])


def of_images(found: ImagePlan, origin: str) -> Content:
    """Images of each pool, and where the step goes."""
    even = [] if found.even_step_s is None else [f"{seconds(found.even_step_s)} a step with the same share for all"]
    lines = [
        ("Speed", [f"{seconds(found.step_time_s)} a step, {format_count(found.images_per_s)} images/s"]),
        ("Even", even),
        ("Not used", list(found.left_out)),
        ("Runtime", [f"{found.runtime} {found.release}, {found.precision}, batch {found.batch:,} images"]),
    ]
    shares = [
        {"row": pool.name, "part": "images", "value": pool.images, "text": f"{pool.images:,} images"}
        for pool in found.pools
    ]
    rows = [
        (p.name, f"{p.accelerators:,} x {p.accelerator}", f"{p.images:,}",
         " to ".join(f"{n:,}" for n in sorted({p.fewest, p.most})),
         f"{format_bytes(p.memory_bytes)} of {format_bytes(p.capacity_bytes)}")
        for p in found.pools
    ]  # fmt: skip
    table = TextTable("Shares of the batch", ("pool", "accelerators", "images", "of each", "memory"), rows)
    chart = Chart("Images of a step", "Of each pool.", vega_lite.bars(shares, "images", ["images"]), table)
    return Content(
        found.title(),
        origin,
        [
            Section("Recommendation", (Lines([each for each in lines if each[1]]), table)),
            Section("Shares", (chart, _causes(found.breakdown))),
            Section("Assumptions", (plans.assumed(found.assumptions),)),
        ],
        [*key_figures.of_images(found)],
    )


def _causes(breakdown: Mapping[str, float]) -> Chart:
    values = [{"row": cause, "part": "time", "value": t, "text": seconds(t)} for cause, t in breakdown.items()]
    table = TextTable("A step, by cause", ("cause", "time"), [(cause, seconds(t)) for cause, t in breakdown.items()])
    return Chart("A step, by cause", "Of the slowest accelerator.", vega_lite.bars(values, "seconds", ["time"]), table)
