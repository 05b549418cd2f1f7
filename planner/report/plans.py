"""The page of plans: what to run, what else there is, where time and memory go, machines, sources and assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from planner.base.units import format_bytes, format_count, format_percent, format_power, format_usd
from planner.planning import comparison
from planner.report import key_figures, machines, measured_step, quantities, recommendation, step_breakdown, vega_lite
from planner.report.html_page import Block, Chart, Content, Lines, Section, Sliders, TextTable
from planner.report.quantities import days, seconds
from planner.schema.plan import Assumption, OlderRelease, Plan, PlanDifference, PlanSet

AXES = {
    "days": (("days", 1.0), ("hours", 24.0), ("minutes", 1440.0), ("seconds", 86400.0)),
    "usd": (("cost (USD)", 1.0),),
    "gib": (("memory (GiB)", 1.0),),
    "mwh": (("energy (MWh)", 1.0), ("energy (kWh)", 1e3), ("energy (Wh)", 1e6)),
    "accelerators": (("accelerators", 1.0),),
}
"""What points are placed by, and its units: the first in which the largest is 1 or more. On one cluster, where days are
dollars, memory comes before cost."""


def of_set(found: PlanSet, origin: str) -> Content:
    """A set of ranked plans."""
    plan = found.plan_to_run
    return Content(
        _title(plan),
        origin,
        [
            Section("Recommendation", (Lines([*recommendation.lines(found), *_warned(found)]), linear(plan))),
            _choice(found),
            step_breakdown.section(found.plans[:8], plan, comparison.stated(found)),
            machines.memory_section(plan),
            *_reasons(found),
            machines.section(plan),
            *_contingency(found),
            sources(plan),
        ],
        [*key_figures.of_plan(plan)],
    )


def _warned(found: PlanSet) -> list[tuple[str, list[str]]]:
    lines = {
        "Quickest": recommendation.quicker_than_least(found),
        "At an edge": recommendation.at_an_edge(found),
        "Search": recommendation.stopped(found.search),
    }
    return [*measured_step.of_set(found), *((label, [text]) for label, text in lines.items() if text)]


def of_plan(plan: Plan, origin: str) -> Content:
    """One plan by itself."""
    top = Section("Plan", (Lines([*recommendation.of_plan(plan)]), linear(plan)))
    parts = [
        step_breakdown.section((plan,), plan),
        machines.memory_section(plan),
        machines.section(plan),
        sources(plan),
    ]
    return Content(_title(plan), origin, [top, *parts], [*key_figures.of_plan(plan)])


def _title(plan: Plan) -> str:
    return f"{plan.workload.name} on {_machines(plan)}"


def _machines(plan: Plan) -> str:
    return " + ".join(f"{pool.count} × {pool.node}" for pool in plan.cluster.pools)


def linear(plan: Plan) -> Sliders:
    """Days and dollars, which are in proportion to tokens and price."""
    hour = plan.money.usd_per_hour
    each = None if hour is None else hour / plan.cluster.accelerators
    return Sliders(plan.workload.tokens, plan.money.days, each, plan.cluster.accelerators)


# ---- what else there is ----------------------------------------------------------------------------------------------


def _choice(found: PlanSet) -> Section:
    """Every plan as a row and a point; points of the front that are no plan of the set, too."""
    plans = found.plans
    chosen = found.plan_to_run
    ids = [f"plan-{plan.rank}" for plan in plans]
    apart = {difference.rank: difference for difference in comparison.stated(found)}
    headers = ("plan", "step", "cost", "time", f"time vs #{chosen.rank}", "tokens/s", "MFU", "memory", "power",
               "machines", "configuration")  # fmt: skip
    rows = [_row(plan, apart.get(plan.rank)) for plan in plans]
    table = TextTable("Plans, best first", headers, rows, ids, f"plan-{chosen.rank}")
    if len(plans) + len(found.front) < 2:
        return Section("Plans", (table,))
    values = [*_front(found), *(_point(plan, found, apart.get(plan.rank)) for plan in plans)]
    axes = _axes(values)
    if not axes:
        return Section("Plans", (table,))
    summary = "Lower is better on each axis. A plan chosen here or in the table is marked in both."
    if apart:
        summary += f" Lines: 80 % of the difference from #{chosen.rank}."
    titles = {name: title for name, (title, _) in axes.items()}
    spec = vega_lite.points(_in_units(values, axes), titles, ("recommended", "plan", "front"))
    return Section("Plans", (table, Chart("Trade-offs", summary, spec, _points_table(values, titles))))


def _axes(values: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """Axes in which the points differ, each with its title and how many of its units are one of the figure's."""
    several = len({each.get("accelerators") for each in values}) > 1
    order = list(AXES) if several else ["days", "gib", "usd", "mwh"]
    known = {name: {each[name] for each in values if each.get(name) is not None} for name in order}
    return {name: _unit(name, max(known[name])) for name in order if len(known[name]) > 1}


def _unit(name: str, most: float) -> tuple[str, float]:
    """The unit of an axis in which its largest value is 1 or more, or its smallest unit."""
    units = AXES[name]
    return next((unit for unit in units if most * unit[1] >= 1.0), units[-1])


def _in_units(values: Sequence[Mapping[str, Any]], axes: Mapping[str, tuple[str, float]]) -> list[dict[str, Any]]:
    """The points with their figures, and the ends of what these are within, in the units of the axes."""
    factors = {f"{name}{end}": factor for name, (_, factor) in axes.items() for end in ("", "_low", "_high")}
    return [
        {**point, **{name: point[name] * factor for name, factor in factors.items() if point.get(name) is not None}}
        for point in values
    ]


def _row(plan: Plan, apart: PlanDifference | None) -> tuple[str, ...]:
    found, money, power = plan.prediction, plan.money, plan.energy.power_w
    return (
        f"#{plan.rank}",
        seconds(found.step_time_s),
        "–" if money.usd_total is None else format_usd(money.usd_total),
        days(money.days),
        "–" if apart is None else comparison.in_short(apart.interval),
        format_count(found.tokens_per_s),
        format_percent(found.mfu),
        format_bytes(found.memory.total_bytes),
        "–" if power is None else format_power(power),
        _machines(plan),
        recommendation.configuration(plan),
    )


def _texts(figures: dict[str, float | None]) -> dict[str, object]:
    """Figures, and each as read."""
    write: dict[str, Callable[[float], str]] = {
        "days": days,
        "usd": format_usd,
        "gib": lambda v: f"{v:.1f} GiB",
        "mwh": _energy,
        "accelerators": lambda v: f"{v:,.0f}",
    }
    known = {name: value for name, value in figures.items() if value is not None}
    return {**known, **{f"{name}_text": write[name](value) for name, value in known.items()}}


def _energy(mwh: float) -> str:
    """As the axis has it that this energy alone would make."""
    title, factor = _unit("mwh", mwh)
    return f"{mwh * factor:,.1f} {title.removeprefix('energy (').removesuffix(')')}"


def _point(plan: Plan, found: PlanSet, apart: PlanDifference | None) -> dict[str, object]:
    joules = plan.energy.energy_j
    figures = {
        "days": plan.money.days,
        "usd": plan.money.usd_total,
        "gib": plan.prediction.memory.total_bytes / machines.GIB,
        "mwh": None if joules is None else joules / 3.6e9,
        "accelerators": float(plan.cluster.accelerators),
    }
    kind = "recommended" if plan == found.plan_to_run else "plan"
    name = {"name": f"#{plan.rank}, recommended"} if kind == "recommended" else {}
    within = _within(plan, found.plan_to_run, apart)
    return {"id": f"plan-{plan.rank}", "label": f"#{plan.rank}", "kind": kind, **name, **_texts(figures), **within}


def _within(plan: Plan, chosen: Plan, apart: PlanDifference | None) -> dict[str, float]:
    """Ends of the 80 % interval of a plan's days and US dollars, both from its difference from the chosen plan."""
    if apart is None:
        return {}
    known = {"days": (chosen.money.days, plan.money.days), "usd": (chosen.money.usd_total, plan.money.usd_total)}
    ends: dict[str, float] = {}
    for name, (first, second) in known.items():
        if first and second:
            interval = comparison.scaled(apart, second / first)
            ends |= {f"{name}_low": first * interval.low, f"{name}_high": first * interval.high}
    return ends


def _front(found: PlanSet) -> list[dict[str, object]]:
    """Points of the front; their energy is in proportion to days and accelerators, all being in the same nodes."""
    plan, joules = found.plan_to_run, found.plan_to_run.energy.energy_j
    each = None if joules is None else joules / 3.6e9 / (plan.money.days * plan.cluster.accelerators)
    return [
        {
            "id": f"front-{place}",
            "label": point.label,
            "kind": "front",
            **_texts(
                {
                    "days": point.days,
                    "usd": point.usd_total,
                    "gib": point.memory_bytes / machines.GIB,
                    "mwh": None if each is None else each * point.days * point.accelerators,
                    "accelerators": float(point.accelerators),
                }
            ),
        }
        for place, point in enumerate(found.front)
    ]


def _points_table(values: Sequence[Mapping[str, object]], axes: Mapping[str, str]) -> TextTable:
    rows = [(str(each["label"]), *(str(each.get(f"{name}_text", "–")) for name in axes)) for each in values]
    return TextTable("Plans, and the Pareto front", ("plan", *axes.values()), rows)


# ---- why -------------------------------------------------------------------------------------------------------------


def _reasons(found: PlanSet) -> list[Section]:
    about = found.reasons
    lines = [("Other plans", about.why_not)]
    blocks: list[Block] = [Lines([each for each in lines if each[1]])]
    gains = [(name, gain) for name, gain in about.gains.items() if gain]
    if gains:
        values = [
            {"row": name, "part": "faster", "value": -100 * gain, "text": f"{format_percent(-gain)} faster"}
            for name, gain in gains
        ]
        table = TextTable(
            "+10 % of a resource", ("resource", "step time"), [(n, f"{100 * g:+.1f} %") for n, g in gains]
        )
        summary = "How much shorter a step is where one resource is a tenth larger."
        chart = Chart("Sensitivity (+10 %)", summary, vega_lite.bars(values, "% faster", ["faster"]), table)
        blocks.append(chart)
    return [Section("Why", blocks)] if about.why_not or gains else []


def _contingency(found: PlanSet) -> list[Section]:
    if not found.contingency:
        return []
    rows = [
        (
            f"{each.lost_nodes:,}",
            recommendation.configuration(each.plan),
            seconds(each.plan.prediction.step_time_s),
            seconds(each.reshard_s),
        )
        for each in found.contingency
    ]
    headers = ("nodes lost", "continues with", "step", "until it continues")
    return [Section("When nodes are lost", (TextTable("Plans to continue with", headers, rows),))]


# ---- sources ---------------------------------------------------------------------------------------------------------


def sources(plan: Plan) -> Section:
    """Prices, failures, power, versions, hashes of inputs, and every assumption."""
    run, energy, interval = plan.money, plan.energy, plan.prediction.intervals.get("step_time_s")
    lines = [
        (
            "Prices",
            [*map(quantities.line, quantities.of_money(run))] or ["none in the catalog for these machines"],
        ),
        ("Failures", [f"goodput {format_percent(run.goodput.fraction)}: {run.goodput.basis}"]),
        ("Power", [energy.basis]),
        ("Interval", [interval.basis] if interval else []),
        ("Runtime", [f"{plan.runtime.name} {plan.runtime.release}{_older(plan.runtime.older)}"]),
        ("Made by", [f"clusterwright {plan.generator.version}"]),
        ("Inputs", [f"{name}: {digest}" for name, digest in plan.generator.inputs.items()]),
    ]
    return Section(
        "Sources and assumptions", (Lines([each for each in lines if any(each[1])]), assumed(plan.assumptions))
    )


def _older(older: OlderRelease | None) -> str:
    if older is None:
        return ""
    missing = f" has no {', '.join(older.lacks)}" if older.lacks else ""
    return f"; {older.release}{missing or ' takes ' + seconds(older.step_time_s or 0.0) + ' a step'}"


def assumed(assumptions: Iterable[Assumption]) -> TextTable:
    """What was not asked for, or not read in a source."""
    rows: Sequence[tuple[str, str, str]] = [(each.what, each.why, each.flag) for each in assumptions]
    return TextTable("Assumptions", ("what", "why", "change it with"), rows)
