"""Several answers on one page: a point for each plan to run over its time and its cost, and which no other beats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.base.units import format_count, format_percent, format_usd
from planner.planning import comparison
from planner.report import machines, quantities, vega_lite
from planner.report.html_page import Chart, Content, KeyFigure, Lines, Section, TextTable
from planner.schema.plan import Plan, PlanSet

UNBEATEN, BEATEN = "not beaten", "beaten"
AXES = {"days": "days", "usd": "cost (USD)", "accelerators": "accelerators", "gib": "memory (GiB)"}
MOST_NAMED = 12
"""Points of which the plans to run carry their names in the chart; of more, the hover and the table tell."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One point: an answer's plan to run, or its best plan on one of several counts of nodes."""

    name: str
    on: str
    figures: Mapping[str, float | None]
    """Axis -> figure; of days also the ends of the 80 % interval."""
    step: str
    mfu: str

    def beats(self, other: _Answer) -> bool:
        """Whether it is at least as fast and as cheap, and better in one; as small, without prices."""
        paid = "usd" if self.figures["usd"] is not None and other.figures["usd"] is not None else "accelerators"
        mine = [self.figures[axis] or 0.0 for axis in ("days", paid)]
        theirs = [other.figures[axis] or 0.0 for axis in ("days", paid)]
        return mine != theirs and all(one <= its for one, its in zip(mine, theirs, strict=True))


def of_answers(documents: Sequence[tuple[str, PlanSet | Plan]]) -> Content:
    """The page of several documents (origin -> document), all for the tokens of the first; of those for the model that
    most are for, and it names the others.
    """
    every = [(origin, kept, kept.plan_to_run if isinstance(kept, PlanSet) else kept) for origin, kept in documents]
    model = Counter(plan.workload.name for _, _, plan in every).most_common(1)[0][0]
    runs = [run for run in every if run[2].workload.name == model]
    unlike = [f"{origin}: trains {plan.workload.name}" for origin, _, plan in every if plan.workload.name != model]
    apart = [("Not compared", [*unlike, f"compared are answers for one model, here {model}"])] if unlike else []
    named = ", ".join(origin for origin, _ in documents)
    if len(runs) < 2:
        none = [("Not compared", ["each answer is for another model; each stands below by itself"])]
        return Content("Answers for different models", named, [Section("Cost and time", (Lines(none),))])
    first = runs[0][2]
    answers = [answer for origin, kept, plan in runs for answer in _points(Path(origin).stem, kept, plan, first)]
    unbeaten = [one for one in answers if not any(other.beats(one) for other in answers)]
    rows = [_row(one, one in unbeaten) for one in answers]
    ids = [f"answer-{place}" for place in range(len(answers))]
    headers = ("answer", "time", "cost", "step", "MFU", "machines", "by others")
    table = TextTable("Answers", headers, rows, ids)
    others = {text for _, _, plan in runs[1:] for text in comparison.compare(first, plan).questions}
    same = [f"here all for {format_count(first.workload.tokens)}"] if comparison.TOKENS in others else []
    different = [("Different questions", [", ".join([*sorted(others), *same])])] if others else []
    blocks = [Lines([*different, *apart])] if different or apart else []
    chart = _chart(answers, unbeaten, ids)
    return Content(
        f"{len(runs)} answers compared",
        named,
        [Section("Cost and time", (*blocks, *chart, table))],
        [*_ends(answers)],
    )


def _points(name: str, kept: PlanSet | Plan, plan: Plan, first: Plan) -> Iterator[_Answer]:
    """The plan to run, and of a search over several counts of nodes the best of each other count."""
    share = comparison.token_share(first, plan)
    step = plan.prediction.step_time_s
    interval = plan.prediction.intervals.get("step_time_s")
    on = " + ".join(f"{pool.count} × {pool.node}" for pool in plan.cluster.pools)
    usd = plan.money.usd_total
    figures = {
        "days": plan.money.days * share,
        "days_low": None if interval is None else plan.money.days * share * interval.low / step,
        "days_high": None if interval is None else plan.money.days * share * interval.high / step,
        "usd": None if usd is None else usd * share,
        "accelerators": float(plan.cluster.accelerators),
        "gib": plan.prediction.memory.total_bytes / machines.GIB,
    }
    yield _Answer(name, on, figures, quantities.seconds(step), format_percent(plan.prediction.mfu))
    front = kept.front if isinstance(kept, PlanSet) else ()
    if len({point.accelerators for point in front}) < 2:
        return
    pool = plan.cluster.pools[0]
    for point in front:
        if point.accelerators == plan.cluster.accelerators:
            continue
        count = point.accelerators // pool.accelerators_per_node
        figures = {
            "days": point.days * share,
            "usd": None if point.usd_total is None else point.usd_total * share,
            "accelerators": float(point.accelerators),
            "gib": point.memory_bytes / machines.GIB,
        }
        shown = quantities.seconds(point.step_time_s)
        yield _Answer(f"{name}, {count:,} nodes", f"{count:,} × {pool.node}", figures, shown, "–")


def _row(answer: _Answer, is_unbeaten: bool) -> tuple[str, ...]:
    texts = _texts(answer)
    return (
        answer.name,
        texts["days"],
        texts["usd"],
        answer.step,
        answer.mfu,
        answer.on,
        UNBEATEN if is_unbeaten else BEATEN,
    )


def _texts(answer: _Answer) -> dict[str, str]:
    """Figures as read."""
    usd = answer.figures["usd"]
    return {
        "days": quantities.days(answer.figures["days"] or 0.0),
        "usd": "–" if usd is None else format_usd(usd),
        "accelerators": f"{answer.figures['accelerators']:,.0f}",
        "gib": f"{answer.figures['gib']:.1f} GiB",
    }


def _chart(answers: Sequence[_Answer], unbeaten: Sequence[_Answer], ids: Sequence[str]) -> list[Chart]:
    """Every answer over the axes in which they differ; none where they differ in one at most."""
    figures = {axis: {one.figures[axis] for one in answers if one.figures[axis] is not None} for axis in AXES}
    axes = {axis: title for axis, title in AXES.items() if len(figures[axis]) > 1}
    if len(axes) < 2:
        return []
    values: list[dict[str, object]] = []
    for key, one in zip(ids, answers, strict=True):
        texts = {f"{axis}_text": text for axis, text in _texts(one).items()}
        known = {axis: value for axis, value in one.figures.items() if value is not None}
        kind = UNBEATEN if one in unbeaten else BEATEN
        values.append({"id": key, "label": f"{one.name}: {one.on}", "kind": kind, **known, **texts})
        if "days_low" in one.figures and len(answers) <= MOST_NAMED:
            values[-1]["name"] = one.name
    rows = [(one.name, *(_texts(one)[axis] for axis in axes)) for one in answers]
    summary = "Beaten: another is as fast and as cheap. Lines: 80 % of each prediction."
    spec = vega_lite.points(values, axes, (UNBEATEN, BEATEN))
    return [Chart("Trade-offs", summary, spec, TextTable("Answers in the chart", ("answer", *axes.values()), rows))]


def _ends(answers: Sequence[_Answer]) -> Iterator[KeyFigure]:
    """The fastest and the cheapest."""
    fastest = min(answers, key=lambda one: one.figures["days"] or 0.0)
    yield KeyFigure(_texts(fastest)["days"], "the fastest", f"{fastest.name}: {_texts(fastest)['usd']}")
    if paid := [one for one in answers if one.figures["usd"] is not None]:
        cheapest = min(paid, key=lambda one: one.figures["usd"] or 0.0)
        yield KeyFigure(_texts(cheapest)["usd"], "the cheapest", f"{cheapest.name}: {_texts(cheapest)['days']}")
