"""The page of an offer: what to buy or rent, when each job runs, what is paid in each year."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.base.units import format_percent, format_power, format_seconds, format_usd
from planner.report import key_figures, offer_evidence, plans, quantities, recommendation, step_breakdown, vega_lite
from planner.report.html_page import Chart, Content, Lines, Section, TextTable
from planner.report.quantities import SOUGHT, amount, limit, limited
from planner.schema.plan import Plan
from planner.schema.procurement import Alternative, BreakEven, PoolBought, Procurement
from planner.schema.rl import PLACED, layout, replicas


def of_offer(found: Procurement, origin: str) -> Content:
    """Alternatives, and the first of them in full."""
    best = found.alternatives[0]
    return Content(
        f"Offer: {found.question.name}",
        origin,
        [
            Section("Recommendation", (_best(found, best), _machines(best))),
            Section("Calendar", (_calendar(best), _jobs(best))),
            Section("Cash flow", (_years(best), _bill(best))),
            *_alternatives(found),
            *_values(found),
            *_job_plans(best),
            Section("Sources and assumptions", (_about(found), plans.assumed(found.assumptions))),
        ],
        [*key_figures.of_offer(found)],
    )


def _best(found: Procurement, best: Alternative) -> Lines:
    cost, o = best.cost, found.optimality
    lines = [
        ("What", best.what.split("; ")),
        ("Warning", [*key_figures.late(best), *key_figures.idle(best)]),
        ("Cost", [f"{format_usd(cost.total_usd)} in all, of which {format_usd(cost.capital_usd)} capital"]),
        ("Price range", [*offer_evidence.price_range(best, format_usd)]),
        ("Rests on", [*offer_evidence.rests_on(best, format_usd), *offer_evidence.fresh(found, format_usd)]),
        ("Done", [f"day {best.done_day:,.0f} of {found.question.horizon_days:,.0f}"]),
        ("Power", [f"{format_power(best.power_w)}, {best.racks:,.0f} racks"] if best.power_w else []),
        ("Carbon", [f"{best.carbon_kg / 1000.0:,.1f} t"]),
        ("Limited by", [limit(name) for name in found.binding]),
        (
            "Optimality",
            [f"within {format_percent(o.gap, 2)}, {o.method}, {o.columns:,} plans of jobs on pools"],
        ),
        ("Old prices", list(found.stale_prices)),
    ]
    return Lines([each for each in lines if each[1]])


def _machines(best: Alternative) -> TextTable:
    rows = [
        (
            pool.id,
            pool.way,
            _nodes(pool),
            f"{offer_evidence.at_a_time(best, pool):,}",
            f"{pool.start_day:,.0f}",
            format_percent(pool.utilisation, 0),
            pool.price_date,
        )
        for pool in best.pools
    ]
    headers = ("pool", "way", "nodes", "accelerators", "from day", "in use", "price of")
    return TextTable("Machines", headers, rows)


def _nodes(pool: PoolBought) -> str:
    """How many there are; what is rented by the hour stands there for one job after another, or for several at once."""
    if pool.way in ("on-demand", "spot"):
        return f"{pool.count:,} for {pool.copies:,} jobs" if pool.copies > 1 else f"{pool.count:,}"
    return f"{pool.copies * pool.count:,}" + (f" + {pool.spares:,} spare" if pool.spares else "")


def _calendar(best: Alternative) -> Chart:
    values = [
        {
            "row": span.pool + (f", copy {span.copy}" if span.copy else ""),
            "part": job.name,
            "start": span.start_day,
            "end": span.end_day,
            "text": f"day {span.start_day:,.1f} to {span.end_day:,.1f}",
        }
        for job in best.workloads
        for span in job.schedule
    ]
    rows = list(dict.fromkeys(str(each["row"]) for each in values))
    due = {job.name: job.deadline_day for job in best.workloads}
    table = TextTable(
        "Calendar",
        ("pool", "job", "days", "deadline"),
        [(str(v["row"]), str(v["part"]), str(v["text"]), f"day {due[str(v['part'])]:,.0f}") for v in values],
    )
    # A deadline far beyond the work would leave the work no room.
    near = FAR * max((span.end_day for job in best.workloads for span in job.schedule), default=0.0)
    last = {str(each["part"]): str(each["row"]) for each in values}
    marks = [
        {"row": last[name], "part": name, "start": day, "text": f"deadline, day {day:,.0f}"}
        for name, day in due.items()
        if name in last and day <= near
    ]
    spec = vega_lite.spans(values, "day", vega_lite.parts_of(values), rows, marks)
    summary = "Days from the start of the question's horizon."
    if marks:
        summary += " An upright line: a job's deadline."
    if len(marks) < len(last):
        summary += " Deadlines beyond the chart stand in the table."
    return Chart("Which job runs where, and when", summary, spec, table)


FAR = 2.0
"""Multiple of the last day of work up to which a deadline is drawn."""


def _jobs(best: Alternative) -> TextTable:
    rows = [
        (
            job.name,
            job.model,
            f"{job.finish_day:,.1f}",
            f"{job.finish_low:,.1f} to {job.finish_high:,.1f}",
            f"{job.deadline_day:,.0f}",
            quantities.late(job.late_chance) or "-",
            ", ".join(job.pools),
        )
        for job in best.workloads
    ]
    return TextTable("Jobs", ("job", "model", "done on day", "80 % interval", "deadline", "late", "on"), rows)


def _years(best: Alternative) -> Chart:
    parts = ("capital", "rental", "running")
    one, unit = _scale(y.total_usd for y in best.cost.by_year)
    values = [
        {"row": f"year {y.year}", "part": part, "value": usd / one, "text": format_usd(usd)}
        for y in best.cost.by_year
        for part in parts
        if (usd := getattr(y, f"{part}_usd"))
    ]
    rows = [
        (f"{y.year}", *(format_usd(usd) for usd in (y.capital_usd, y.rental_usd, y.running_usd, y.total_usd)))
        for y in best.cost.by_year
    ]
    table = TextTable("Cash flow", ("year", *parts, "total"), rows)
    if best.cost.sold_usd:
        sold = [(*row, format_usd(y.sold_usd or 0.0)) for row, y in zip(rows, best.cost.by_year, strict=True)]
        table = TextTable("Cash flow", ("year", *parts, "total", "nodes sold for"), sold)
    return Chart("Cash by year", "All that is paid.", vega_lite.columns(values, unit, parts), table)


def _bill(best: Alternative) -> TextTable:
    rows = [
        (f"{x.item} ({x.pool})" if x.pool else x.item, x.kind, f"{x.count:,.0f} {x.unit}", format_usd(x.unit_price_usd),
         format_usd(x.usd), f"{x.source}, {x.date}" if x.date else x.source)
        for x in best.bill_of_materials
    ]  # fmt: skip
    return TextTable("Bill of materials", ("item", "kind", "count", "price of one", "total", "source"), rows)


def _alternatives(found: Procurement) -> list[Section]:
    if len(found.alternatives) < 2:
        return []
    each = found.alternatives
    one, unit = _scale(a.cost.total_usd for a in each)
    kinds = list(dict.fromkeys(kind for a in each for kind, usd in a.cost.by_kind.items() if usd))
    values = [
        {"row": f"#{a.rank}", "part": kind, "value": usd / one, "text": format_usd(usd)}
        for a in each
        for kind, usd in a.cost.by_kind.items()
        if usd
    ]
    rows = [
        (
            f"#{a.rank}",
            a.what,
            format_usd(a.cost.total_usd),
            f"{a.done_day:,.0f}",
            format_power(a.power_w) if a.power_w else "-",
        )
        for a in each
    ]
    table = TextTable("Alternatives", ("rank", "what", "cost", "done on day", "power"), rows)
    title = "What each alternative costs, by kind"
    chart = Chart(title, "Cash over the horizon.", vega_lite.bars(values, unit, kinds), table)
    return [Section("Alternatives", (chart, table))]


def _values(found: Procurement) -> list[Section]:
    even = [
        (b.buy, b.rent, f"${b.owned_usd_per_accelerator_hour:.2f}/h", f"${b.rented_usd_per_accelerator_hour:.2f}/h",
         "never" if b.utilisation > 1.0 else f"above {format_percent(b.utilisation, 0)}",
         "never" if b.months is None else f"{b.months:,.1f}")
        for b in found.break_even
    ]  # fmt: skip
    gains = [(limit(v.limit), amount(v.step, v.unit), amount(v.gain, v.gain_unit)) for v in found.marginal_values]
    unit = found.optimality.unit
    turned = [(f"{s.prices - 1:+.0%}", amount(s.value, unit), "yes" if s.same else "no", s.what)
              for s in found.sensitivity]  # fmt: skip
    tables = [
        TextTable(
            "Buying against renting",
            ("buy", "rent", "owned", "rented", "buying is cheaper at a use", "months of full use to break even"),
            even,
        ),
        TextTable("What more of a limit brings", ("limit", "more", "gain"), gains),
        TextTable("All prices of nodes changed", ("prices", "value", "same kinds", "what"), turned),
    ]
    known = [table for table in tables if table.rows]
    return [Section("What would change the answer", (*_crossover(found.break_even), *known))] if known else []


def _crossover(break_even: Sequence[BreakEven]) -> Iterator[Chart]:
    """An hour of use of an accelerator, bought and rented, over the share of its life in which it is used."""
    pairs = break_even[:MOST_DRAWN]
    if not pairs:
        return
    most = 2.0 * max(pair.rented_usd_per_accelerator_hour for pair in pairs)
    values: list[dict[str, object]] = []
    crossings = []
    for pair in pairs:
        for percent in range(5, 101, 5):
            usd = pair.owned_usd_per_accelerator_hour / percent * 100.0
            if usd <= most:
                values.append({"part": pair.buy, "x": percent, "y": usd, "level": False})
        if pair.utilisation <= 1.0:
            at = {"x": 100.0 * pair.utilisation, "y": pair.rented_usd_per_accelerator_hour}
            text = f"as dear as {pair.rent} at {format_percent(pair.utilisation, 0)}"
            crossings.append({"part": pair.buy, **at, "text": text})
    for name, usd in {pair.rent: pair.rented_usd_per_accelerator_hour for pair in pairs}.items():
        values += [{"part": name, "x": percent, "y": usd, "level": True} for percent in (5, 100)]
    parts = vega_lite.parts_of(values)
    spec = vega_lite.lines(values, "% of its life in use", "USD an hour of use", parts, crossings)
    rows = [
        (f"{percent} %", *(f"${pair.owned_usd_per_accelerator_hour / percent * 100.0:,.2f}" for pair in pairs))
        for percent in (20, 40, 60, 80, 100)
    ]
    table = TextTable("An hour of use, bought", ("in use", *(pair.buy for pair in pairs)), rows)
    summary = "Bought, an hour of use costs the less the more it is used; rented (dashed), it always costs the same. "
    summary += "From the point on, buying is cheaper."
    yield Chart("Rent or buy, by how much it is used", summary, spec, table)


MOST_DRAWN = 4
"""Pairs of bought and rented nodes in one chart."""


def _job_plans(best: Alternative) -> Iterator[Section]:
    """The plan of every job; runs of the same by the same plan stand together."""
    held: list[tuple[Plan, list[str]]] = []
    for job in best.workloads:
        if job.plan is None:
            continue
        names = next((names for plan, names in held if plan == job.plan), None)
        if names is None:
            held.append((job.plan, [job.name]))
        else:
            names.append(job.name)
    for plan, names in held:
        configuration = ("Configuration", [recommendation.configuration(plan)])
        lines = Lines([configuration, *recommendation.expected(plan)])
        yield Section(_together(names), (lines, *step_breakdown.section((plan,), plan).blocks))

    for job in best.workloads:
        if step := job.post_training:
            placement = f"{PLACED[step.placement]}, {format_seconds(step.step_s)} a step"
            lines = Lines([("Placement", [placement]), ("Training", [layout(step)]), ("Rollout", [replicas(step)])])
            yield Section(f"Job {job.name}", (lines,))


def _together(names: list[str]) -> str:
    return f"Job {names[0]}" if len(names) == 1 else f"{len(names):,} jobs, {names[0]} to {names[-1]}"


def _scale(usd: Iterable[float]) -> tuple[float, str]:
    """US dollars of one unit of a chart's axis, and its name."""
    most = max(map(abs, usd), default=0.0)
    return next((each for each in SCALES if most >= each[0]), SCALES[-1])


SCALES = ((1e6, "million USD"), (1e3, "thousand USD"), (1.0, "USD"))


def _about(found: Procurement) -> Lines:
    q = found.question
    limits = [f"{limit(name)} {limited(name, value, format_usd)}" for name, value in q.limits.items()]
    lines = [
        ("Asked", [f"{SOUGHT[q.objective]} over {q.horizon_days:,.0f} days, {q.charge}, prices as of {q.as_of}"]),
        ("Limits", limits),
        ("Made by", [f"clusterwright {found.generator.version}"]),
        ("Inputs", [f"{origin}: {digest}" for origin, digest in found.generator.inputs.items()]),
    ]
    return Lines([each for each in lines if each[1]])
