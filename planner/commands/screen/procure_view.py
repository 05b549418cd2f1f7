"""A procurement on one screen: the answer, the alternatives, binding limits and shadow prices, assumptions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.base.units import format_count, format_many, format_percent, format_power, format_seconds
from planner.commands.screen import render
from planner.commands.screen.hand_over import assumed, hand_over
from planner.report import key_figures, offer_evidence, quantities, recommendation
from planner.report.offer_evidence import Money

if TYPE_CHECKING:
    from planner.base.stopping import Watch
    from planner.question.given import Progress
    from planner.schema.procurement import Alternative, JobDone, MarginalValue, PoolBought, Procurement
from planner.schema.rl import PLACED, layout, replicas

_SHOWN = 6
"""Old prices on the screen; the document has all."""
_LINES = 24
"""Of the calendar."""
_MOST_NAMED = 4
"""Deadlines that the headline names."""


def deliver(found: Procurement, *, as_json: bool, output: Path | None, verbose: bool = False) -> None:
    """Prints the report or the document, and writes the document where asked; verbose: with every assumption."""
    planned = next((job.name for job in found.alternatives[0].workloads if job.plan), None)
    export = f"export {output} --workload {shlex.quote(planned or '')} --to list shows the launchers of its plans"
    written = f"clusterwright {export if planned else f'explain {output} says why'}"
    unwritten = "-o offer.json saves bills, schedules and training plans; --sweep budget=A..B shows the Pareto front"
    hand_over(
        found, partial(show, verbose=verbose), as_json=as_json, output=output, after=written if output else unwritten
    )


def progress(watch: Watch) -> Progress:
    """Progress of the work, beside it the best answer and the bound that the search has told of."""

    @contextmanager
    def shown(what: str, total: float | None) -> Iterator[Callable[[int], None]]:
        with render.progress(what, total) as advance:
            watch.say = partial(advance, 0)
            yield advance

    return shown


def show(found: Procurement, rank: int = 1, *, verbose: bool = False) -> None:
    """The whole report, with the work and the bill of one alternative."""
    as_money = found.question.currency.format
    _headline(found, as_money)
    render.text()
    _alternatives(found, as_money)
    render.text()
    if rank > 1:
        render.text(f"#{rank}: {found.alternatives[rank - 1].what}")
        render.text()
    _jobs(found.alternatives[rank - 1])
    render.text()
    _calendar(found.alternatives[rank - 1])
    _bill(found.alternatives[rank - 1], as_money, lambda usd: _to_the_cent(found, usd))
    render.labelled("Price range", *offer_evidence.price_range(found.alternatives[rank - 1], as_money))
    _spot(found.alternatives[rank - 1], as_money)
    _survives(found.alternatives[rank - 1])
    render.text()
    _binding(found, as_money)
    _single_pools(found, as_money)
    _rent_or_buy(found)
    _sensitivity(found, as_money)
    _rests(found, verbose)


def _headline(found: Procurement, as_money: Money) -> None:
    best, sure = found.alternatives[0], found.optimality
    earliest, latest = (
        max(days) for days in zip(*((x.finish_low, x.finish_high) for x in best.workloads), strict=True)
    )
    parts = offer_evidence.accelerators(found, best)
    # A bound of some of the answers says nothing of the whole question: it stands in the search's line alone.
    proven = "" if sure.restrictions else f", gap {format_percent(sure.gap, 2 if sure.gap else 0)}"
    tokens = f"{format_count(best.value)} tokens, " if sure.unit == "tokens" else ""
    render.text(
        f"{best.what[:1].upper()}{best.what[1:]} ({parts:,} accelerators): {tokens}{as_money(best.cost.total_usd)}, "
        f"done day {best.done_day:.0f} (80 %: {earliest:.0f}-{latest:.0f}){proven}"
    )
    render.labelled("Warning", *key_figures.late(best))
    for line in offer_evidence.rests_on(best, as_money):
        render.text(f"rests on {line}")
    for line in offer_evidence.fresh(found, as_money):
        render.text(line)
    asked = dict(found.question.limits)
    dates = [name for name in asked if name.startswith("deadline:")]
    if len(dates) > _MOST_NAMED:
        asked = {name: value for name, value in asked.items() if name not in dates}
    limits = [f"{quantities.limit(name)} {quantities.limited(name, value, as_money)}" for name, value in asked.items()]
    limits += [f"{len(dates)} deadlines"] if len(dates) > _MOST_NAMED else []
    render.text(f"{quantities.SOUGHT[found.question.objective]} within {', '.join(limits) or 'no limit'}")


def _alternatives(found: Procurement, as_money: Money) -> None:
    headers = ["#", "what", "done", "total", "per 1T tokens", "power", "carbon"]
    rows = [
        [
            a.rank,
            a.what,
            f"{a.done_day:,.0f} d",
            as_money(a.cost.total_usd),
            as_money(1e12 / a.tokens_per_usd) if a.tokens_per_usd else None,
            format_power(a.power_w) if a.power_w else None,
            f"{a.carbon_kg / 1000:,.1f} t",
        ]
        for a in found.alternatives
    ]
    render.table(headers, rows, align="rlrrrrr", priority=["carbon", "per 1T tokens", "power"], folded="what")
    for a in found.alternatives:
        if a.cost.capital_usd:
            resale = f"; sold for {as_money(a.cost.sold_usd)}" if a.cost.sold_usd else ""
            resale += f"; resale value at the end {as_money(a.cost.resale_usd)}" if a.cost.resale_usd else ""
            render.text(
                f"  #{a.rank}: capital {as_money(a.cost.capital_usd)}, "
                f"depreciation by this work {as_money(a.cost.used_usd)}"
                f"{resale}"
            )


def _jobs(best: Alternative) -> None:
    rows = [
        [
            f"{job.name.partition('#')[0]} ({times} times)" if times > 1 else job.name,
            " + ".join(job.pools),
            format_count(job.tokens),
            format_count(job.tokens_per_s),
            f"{job.days:,.1f} d",
            f"{job.finish_day:,.1f} d",
            f"{job.deadline_day:,.0f} d{_late(job)}",
            quantities.degrees(job.plan.parallelism) if job.plan else _placed(job),
        ]
        for job, times in _once(best.workloads)
    ]
    render.table(
        ["workload", "machines", "tokens", "tokens/s", "duration", "done", "deadline", "plan"],
        rows,
        align="llrrrrrl",
        priority=["tokens", "tokens/s", "duration"],
        folded="machines",
    )
    each = [
        f"{job.name.partition('#')[0] if times > 1 else job.name}: {_configuration(job)}"
        for job, times in _once(best.workloads)[:_MOST_NAMED]
        if not (job.plan and job.plan.parallelism.groups)
    ]
    render.labelled("Train with", *each)


def _late(job: JobDone) -> str:
    chance = quantities.late(job.late_chance)
    return f", late with {chance}" if chance else ""


def _placed(job: JobDone) -> str:
    return job.post_training.placement if job.post_training else ""


def _configuration(job: JobDone) -> str:
    """What its plan decides, or the placement, the layout and the replicas of a post-training."""
    if job.plan:
        return recommendation.configuration(job.plan)
    assert job.post_training is not None
    step = job.post_training
    steps = format_many(round(job.tokens / step.tokens_per_s / step.step_s * (step.steps_times or 1.0)), "step")
    took = f"{steps} of {format_seconds(step.step_s)}"
    return f"{PLACED[step.placement]}, {took}; {layout(step)}; rollout {replicas(step)}"


def _calendar(best: Alternative) -> None:
    """Who runs where and when, where anyone waits or is paused."""
    pools = {pool.id: pool for pool in best.pools}
    if not any(job.pauses or job.schedule[0].start_day > job.release_day + 0.05 for job in best.workloads):
        return
    rows = [
        [s.start_day, s.end_day, job.name, f"{s.pool}{_copy(pools[s.pool], s.copy)}"]
        for job in best.workloads
        for s in job.schedule
    ]
    rows.sort(key=lambda row: (row[0], row[1]))
    shown = [[f"{start:,.1f} d", f"{end:,.1f} d", *rest] for start, end, *rest in rows[:_LINES]]
    render.table(["from", "to", "workload", "on"], shown, align="rrll", folded="on")
    paused = [f"{job.name} {job.pauses} times" for job in best.workloads if job.pauses]
    if paused:
        render.labelled("Paused", f"{', '.join(paused)}; each pause costs its restart")
    if len(rows) > _LINES:
        render.text(f"and {len(rows) - _LINES} more lines of the calendar in the document (--json)")
    render.text()


def _copy(pool: PoolBought, copy: int) -> str:
    """Which of several, where that means the same machines as before."""
    return f", copy {copy + 1}" if pool.copies > 1 and pool.way not in ("own", "on-demand", "spot") else ""


def _once(jobs: Sequence[JobDone]) -> list[tuple[JobDone, int]]:
    """What recurs (``name#1``, ``name#2``) on the same machines, once: its last time, and how often."""
    last: dict[tuple[str, tuple[str, ...]], tuple[JobDone, int]] = {}
    for job in jobs:
        key = (job.name.partition("#")[0] if "#" in job.name else job.name, job.pools)
        last[key] = (job, last[key][1] + 1 if key in last else 1)
    return list(last.values())


def _to_the_cent(found: Procurement, usd: float) -> str:
    currency = found.question.currency
    return f"{'$' if currency.code == 'USD' else f'{currency.code} '}{usd / currency.usd:,.2f}"


def _bill(best: Alternative, as_money: Money, each: Money) -> None:
    rows: list[list[Any]] = [
        [line.item, line.kind, f"{line.count:,.0f}{f' {line.unit}' if line.unit else ''}",
         each(line.unit_price_usd), as_money(line.usd), line.date or None]
        for line in best.bill_of_materials
    ]  # fmt: skip
    headers = ["item", "kind", "quantity", "unit price", "amount", "price date"]
    render.table(headers, rows, align="llrrrl", priority=["price date", "unit price"])
    years = [f"year {year.year} {as_money(year.total_usd)}" for year in best.cost.by_year if year.total_usd]
    if len(years) > 1:
        render.labelled("By year", ", ".join(years))
    _sales(best, as_money)


def _sales(best: Alternative, as_money: Money) -> None:
    """What is sold, when and for how much, and what that brings by year."""
    sales = [
        f"{pool.id} on day {pool.end_day:,.1f} for {as_money(pool.sold_usd * pool.copies)}"
        for pool in best.pools
        if pool.sold_usd is not None and pool.end_day is not None
    ]
    years = [f"year {year.year} {as_money(year.sold_usd)}" for year in best.cost.by_year if year.sold_usd]
    render.labelled("Sold", *sales, *([f"by year: {', '.join(years)}"] if len(years) > 1 else []))


def _spot(best: Alternative, as_money: Money) -> None:
    """What jobs on machines that may be taken back risk, the dearest first."""
    risky = sorted((job for job in best.workloads if job.spot), key=lambda job: -job.spot.usd if job.spot else 0.0)
    lines = []
    for job in risky[:_MOST_NAMED]:
        assert job.spot is not None
        risk, even = job.spot, job.spot.break_even_per_node_day
        instead = f"on demand {as_money(risk.on_demand_usd or 0.0)}"
        cheaper = "" if even is None else f"; {instead}, cheaper above {even:.2g} preemptions a node and day"
        lines.append(
            f"{job.name}: {as_money(risk.usd)}, done day {job.finish_day:,.1f} expected; 90 % of runs "
            f"{as_money(risk.usd_90)}, day {risk.finish_90_day:,.1f}, at {risk.preemptions_per_node_day:g} "
            f"preemptions a node and day (assumed){cheaper}"
        )
    if len(risky) > _MOST_NAMED:
        lines.append(f"and {len(risky) - _MOST_NAMED} more jobs in the document (--json)")
    render.labelled("Spot", *lines)


def _survives(best: Alternative) -> None:
    """What each job needs so that its deadline holds without some nodes."""
    lines = []
    for job in best.workloads[:_MOST_NAMED]:
        if (lost := job.survives) is None:
            return
        share = lost.tokens_per_s / job.tokens_per_s
        meanwhile = "waits for them" if share == 0 else f"trains at {format_percent(share, 0)}"
        meanwhile = "a spare takes over" if share == 1 else meanwhile
        lines.append(
            f"{job.name} with {lost.lost_nodes} node{'' if lost.lost_nodes == 1 else 's'} lost for "
            f"{lost.repair_days:g} d: {meanwhile}, done day {job.finish_day + lost.days:,.1f}"
        )
    if len(best.workloads) > _MOST_NAMED:
        lines.append(f"and {len(best.workloads) - _MOST_NAMED} more jobs in the document (--json)")
    render.labelled("Survives", *lines)


def _binding(found: Procurement, as_money: Money) -> None:
    best = found.alternatives[0]
    names = ", ".join(quantities.limit(name) for name in found.binding) or "nothing"
    loose = [
        f"{quantities.limit(c.name)} ({format_percent(c.slack / c.limit, 0)} unused)"
        for c in best.constraints
        if c.name not in found.binding and c.limit and not c.name.startswith(("deadline", "horizon"))
    ]
    rest = f"; not binding: {', '.join(loose)}" if loose else ""
    render.labelled("Limited by", f"{names}{rest}")
    if found.soonest is not None:
        more = found.soonest
        render.labelled(
            "More money",
            f"the whole budget buys day {more.done_day:,.0f} in place of {best.done_day:,.0f}: {more.what}, "
            f"{as_money(more.cash_usd)}",
        )
    worth = [_worth(value, as_money) for value in found.marginal_values if value.gain > 0]
    if found.marginal_values:
        render.labelled(
            "Shadow prices", "; ".join(worth) or "zero: raising any one limit by its usual step gains nothing"
        )


def _worth(value: MarginalValue, as_money: Money) -> str:
    step = {"USD": as_money(value.step), "W": format_power(value.step), "d": f"{value.step:.0f} d"}
    gain = {
        "USD": f"saves {as_money(value.gain)}",
        "tokens": f"gains {format_count(value.gain)} tokens",
        "d": f"finishes {value.gain:.1f} d earlier",
        "kg": f"saves {value.gain / 1000:,.1f} t CO2e",
    }
    amount = step.get(value.unit, f"{value.step:,.0f} {value.unit}".rstrip())
    name = quantities.limit(value.limit)
    return f"{name} (+{amount}) {gain.get(value.gain_unit, f'gains {format_count(value.gain)} tokens per USD')}"


def _single_pools(found: Procurement, as_money: Money) -> None:
    """The best answer with every job on a single pool, to show the gain of mixed pools."""
    if found.apart is None:
        return
    if found.apart.value is None:
        render.labelled("Single pools", "no answer meets the limits with every job on one pool")
        return
    amount = offer_evidence.value(found, found.apart.value, as_money)
    render.labelled("Single pools", f"best with every job on one pool: {found.apart.what}, {amount}")


def _rent_or_buy(found: Procurement) -> None:
    lines = []
    for each in sorted(found.break_even, key=lambda x: x.owned_usd_per_accelerator_hour)[:2]:
        payback = "renting is cheaper however much it is used"
        if each.months and each.utilisation <= 1.0:
            used = format_percent(each.utilisation, 0)
            payback = f"pays back after {each.months:.0f} months at full utilisation, or above {used} utilisation"
        lines.append(
            f"{each.buy}: ${each.owned_usd_per_accelerator_hour:.2f} per "
            f"accelerator-hour against ${each.rented_usd_per_accelerator_hour:.2f} rented ({each.rent}); {payback}"
        )
    render.labelled("Rent or buy", *lines)


def _sensitivity(found: Procurement, as_money: Money) -> None:
    turned = [
        f"prices {x.prices - 1:+.0%}: {'same node types' if x.same else x.what}"
        + (f", {as_money(x.value)}" if found.optimality.unit == "USD" else "")
        for x in found.sensitivity
    ]
    if turned:
        render.labelled("Sensitivity", "; ".join(turned))


def _rests(found: Procurement, verbose: bool) -> None:
    """Old prices, the exchange rate, assumptions, and how the answer was found."""
    if found.stale_prices:
        stale = "; ".join(found.stale_prices[:_SHOWN])
        render.labelled(
            "Stale prices",
            f"as of {found.question.as_of} (older than a year, an exchange rate older than a month, or dated later): "
            f"{stale}",
        )
    currency = found.question.currency
    if currency.code != "USD":
        render.labelled(
            "Exchange rate", f"1 {currency.code} = {currency.usd:g} USD, {currency.date} {currency.source}".rstrip()
        )
    for aged in found.assumptions:
        if aged.flag == "--max-price-age":
            render.labelled("Left out", f"{aged.what.removeprefix('left out: ')}: {aged.why} ({aged.flag})")
    assumed(found.assumptions, verbose)
    sure = found.optimality
    among = f"; best of those in which {_in_words(sure.restrictions)}" if sure.restrictions else ""
    mixed = f", {sure.mixed_columns:,} on mixed pools (gap at most {format_percent(sure.mixed_gap)})"
    render.labelled(
        "Search",
        f"{_counted(sure.pools, 'purchase option')}, {_counted(sure.columns, 'precomputed plan')}"
        f"{mixed if sure.mixed_columns else ''}{among}; "
        f"bound {sure.bound:,.6g} {sure.unit}, proven gap {format_percent(sure.gap, 2)}"
        f"{' to these alone' if sure.restrictions else ''}"
        f"{'; stopped by Ctrl-C: what was not computed by then is left out' if sure.stopped else ''}",
    )


def _in_words(clauses: Sequence[str]) -> str:
    *others, last = clauses
    return f"{', '.join(others)} and {last}" if others else last


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def deliver_bill(found: Procurement, *, output: Path | None) -> None:
    """The bill of materials of the best answer as CSV: US dollars, a line each, and the total that they add up to."""
    import csv
    import io

    from planner.base import writing

    best, text = found.alternatives[0], io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["pool", "item", "kind", "quantity", "unit", "unit_price_usd", "usd", "price_date", "source"])
    for x in best.bill_of_materials:
        quantity = f"{x.count:.15g}"
        rows.writerow(
            [x.pool, x.item, x.kind, quantity, x.unit, f"{x.unit_price_usd:.15g}", f"{x.usd:.2f}", x.date, x.source]
        )
    rows.writerows(_capacities(best))
    rows.writerow(["", "total", "", "", "", "", f"{best.cost.cash_usd:.2f}", found.question.as_of, best.what])
    if best.cost.sold_usd:
        rows.writerow(["", "nodes sold", "", "", "", "", f"{-best.cost.sold_usd:.2f}", "", "resale"])
        rows.writerow(["", "cost", "", "", "", "", f"{best.cost.total_usd:.2f}", found.question.as_of, best.what])
    if output is None:
        click.echo(text.getvalue(), nl=False)
        return
    writing.write(output, text.getvalue(), replace=True)
    render.text(f"{output}: {len(best.bill_of_materials)} lines, {_to_the_cent(found, best.cost.cash_usd)} in all")
    if best.rests_on:
        render.text(f"rests on {'; '.join(best.rests_on)}")


def _capacities(best: Alternative) -> Iterator[list[str]]:
    """What machines that are bought need of the place where they stand: racks, power and cooling, in no amount of their
    own, as the facility's monthly rate pays for them.
    """
    for pool in best.pools:
        if pool.way == "buy" and pool.racks:
            paid = "paid for in facility" if pool.colocated else "stands in the office"
            watts = pool.power_w * pool.copies / 1e3
            for item, count, unit in (
                ("rack", pool.racks * pool.copies, ""),
                ("power at the plug", watts, "kW"),
                ("cooling", watts / pool.pue, "kW"),
            ):
                yield [pool.id, item, "capacity", f"{count:.10g}", unit, "0", "0.00", "", paid]


def deliver_sweep(found: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    """The best at several values of one limit."""
    import json

    from planner.base import writing
    from planner.planning import document

    if output is not None:
        writing.write(output, json.dumps(document.sealed(found), indent=2) + "\n", replace=True)
    if as_json:
        render.report(found)
        return
    from planner.schema.procurement import Currency

    as_money = Currency(code=found["currency"]["code"], usd=found["currency"]["usd"]).format
    limited: dict[str, Money] = {"USD": as_money, "W": format_power, "": lambda x: f"{x:,.4g}"}
    rows = [
        [
            limited[found["limit_unit"]](p["limit"]),
            p["what"] or "no answer",
            f"{p['done_day']:,.1f} d" if p["what"] else None,
            as_money(p["total_usd"]) if p["what"] else None,
            f"{p['carbon_kg'] / 1000:,.1f} t" if p["what"] else None,
            "yes" if p["front"] else "",
        ]
        for p in found["points"]
    ]
    render.table([found["limit"], "what", "done", "total", "carbon", "Pareto"], rows, align="rlrrrl", folded="what")
    render.text()
    for what in dict.fromkeys(what for p in found["points"] for what in p["rests_on"]):
        render.text(f"rests on {what}")
    render.text(f"{found['objective']} at each value; Pareto: no smaller {found['limit']} gives as good a result")
