"""The bill of an alternative: a line for everything that is paid, sums by kind and by year, and the range of its total
if the same hours were bought at the other current offers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.cost.ownership import resale, used
from planner.procurement.program.instance import ProcureInstance, ProgramSolution, ScheduledStretch
from planner.procurement.question.portfolio import DAYS_PER_YEAR
from planner.procurement.supply import prices
from planner.procurement.supply.pools import SupplyPool
from planner.question.node_prices import AgedPrice, MarketPrice
from planner.question.values import DAYS_PER_MONTH
from planner.schema import procurement as schema
from planner.schema.hardware import Price
from planner.schema.plan import ComparableOffers
from planner.schema.procurement import Line, PriceRange


def offers_of(pool: SupplyPool) -> ComparableOffers | None:
    """What an hour of a rented pool's accelerator is sold for; None where its price is the question's own."""
    return pool.quote.offers if isinstance(pool.quote, MarketPrice) else None


def price_range(
    pools: Mapping[str, SupplyPool], bill: Sequence[Line], total_usd: float, charged: float
) -> PriceRange | None:
    """The total with every rented node-hour at the cheapest, the median and the dearest offer of its accelerator, and
    what has an old or assumed price at what today's may be; None where there is neither.

    Args:
        pools: By id.
        bill: Every line of the answer.
        total_usd: What it comes to.
        charged: Share of what is bought that the total counts.
    """
    low = median = high = total_usd
    used: dict[str, ComparableOffers] = {}
    aged: set[str] = set()
    for line in bill:
        quote = pools[line.pool].quote
        if isinstance(quote, AgedPrice) and line.kind in ("rental", "node"):
            counted = line.usd if line.kind == "rental" else charged * line.usd
            low += (quote.spread[0] - 1.0) * counted
            high += (quote.spread[1] - 1.0) * counted
            aged.add(quote.date)
        offers = offers_of(pools[line.pool]) if line.kind == "rental" else None
        if offers is not None:
            accelerator_hours = line.count * pools[line.pool].node.accelerators
            low += accelerator_hours * offers.low_usd - line.usd
            median += accelerator_hours * offers.median_usd - line.usd
            high += accelerator_hours * offers.high_usd - line.usd
            used[f"{pools[line.pool].way} {pools[line.pool].node.accelerator}"] = offers
    count = sum(len(offers.providers) for offers in used.values())
    if count <= len(used) and not aged:
        return None
    oldest = min([offers.oldest for offers in used.values()] + [*aged])
    return PriceRange(
        low_usd=round(low, 2), median_usd=round(median, 2), high_usd=round(high, 2), offers=count, oldest=oldest
    )


CAPITAL = ("node", "network", "head node", "I/O node", "storage")
"""Kinds of lines that are paid once and belong to whoever paid."""


def billed(
    instance: ProcureInstance, solution: ProgramSolution, p: int, stretches: Sequence[ScheduledStretch]
) -> list[schema.Line]:
    """The lines of pool `p`: parts that are bought, hours of rent, energy of the days it works, months of upkeep."""
    pool = instance.pools[p]
    copies = solution.hold.get(p, 0)
    days = sum(s.end - s.start for s in stretches if s.pool == p)
    lines = [
        _line(
            pool, item.item, item.kind, item.count * copies, "", UnitPrice(item.unit_price_usd, item.source, item.date)
        )
        for item in pool.items
    ]
    quote = pool.quote
    if pool.hired and quote:
        hours = days * 24 * pool.cluster.count
        lines.append(_line(pool, pool.node.id, "rental", hours, "node-hours", _unit_price(quote)))
    elif pool.way in prices.TERM_DAYS and quote:
        hours = pool.held_days * 24 * pool.cluster.count * copies
        lines.append(_line(pool, pool.node.id, "rental", hours, "node-hours", _unit_price(quote)))
    elif pool.cluster.region and days:
        region = pool.cluster.region
        kwh = pool.kwh_per_day * days
        price = UnitPrice(region.electricity, region.source, region.date)
        lines.append(_line(pool, "electricity", "energy", kwh, "kWh", price))
    months = pool.held_days / DAYS_PER_MONTH * copies
    for kind, usd in pool.running.items():
        if usd and kind != "rent":
            lines.append(_line(pool, kind, kind, months, "months", UnitPrice(usd, "the portfolio's [ownership]", "")))
    return lines


class UnitPrice(NamedTuple):
    """US dollars for one unit of a line, with the source and its date."""

    usd: float
    source: str
    date: str


def _unit_price(quote: Price) -> UnitPrice:
    return UnitPrice(quote.usd, quote.source, quote.date)


def _line(pool: SupplyPool, item: str, kind: str, count: float, unit: str, price: UnitPrice) -> schema.Line:
    return schema.Line(
        pool=pool.id,
        item=item,
        kind=kind,  # type: ignore[arg-type]
        count=float(count),
        unit=unit,
        unit_price_usd=price.usd,
        usd=round(count * price.usd, 2),
        source=price.source,
        date=price.date,
    )


def costs(
    instance: ProcureInstance,
    solution: ProgramSolution,
    bill: Sequence[schema.Line],
    stretches: Sequence[ScheduledStretch],
) -> schema.Cost:
    """What the lines sum to: cash, capital and what is charged of it, by kind and by year, in US dollars."""
    cash = round(sum(line.usd for line in bill), 2)
    capital = round(sum(line.usd for line in bill if line.kind in CAPITAL), 2)
    charged = round(sum(instance.pools[p].fixed_charge * n for p, n in solution.hold.items()), 2)
    total = round(cash - capital + charged, 2)
    kinds = dict.fromkeys(line.kind for line in bill)
    return schema.Cost(
        total_usd=total,
        cash_usd=cash,
        capital_usd=capital,
        charged_usd=charged,
        used_usd=round(_used(instance, solution, stretches), 2),
        resale_usd=round(_resale(instance, solution), 2),
        sold_usd=_sold(instance, solution),
        by_kind={kind: round(sum(line.usd for line in bill if line.kind == kind), 2) for kind in kinds},
        by_year=_years(instance, solution, bill, stretches),
        range=price_range(
            {pool.id: pool for pool in instance.pools}, bill, total, charged / capital if capital else 1.0
        ),
    )


def _used(instance: ProcureInstance, solution: ProgramSolution, stretches: Sequence[ScheduledStretch]) -> float:
    """Capital over the life, for the days that machines work."""
    days = {p: sum(s.end - s.start for s in stretches if s.pool == p) for p in solution.hold}
    return sum(used(instance.pools[p].capital, n, instance.asked.ownership) for p, n in days.items())


def _resale(instance: ProcureInstance, solution: ProgramSolution) -> float:
    """What the nodes that are bought and kept would fetch at the end of the horizon; networks and storage are worth
    nothing.
    """
    resale_usd = 0.0
    for p, copies in solution.hold.items():
        pool = instance.pools[p]
        if pool.sold_usd is not None:
            continue
        nodes = sum(item.usd for item in pool.items if item.kind == "node") * copies
        resale_usd += resale(nodes, (instance.asked.horizon_days - pool.start_day) / DAYS_PER_YEAR)
    return resale_usd


def _sold(
    instance: ProcureInstance, solution: ProgramSolution, after: float = 0.0, until: float = math.inf
) -> float | None:
    """What nodes bring that are sold after one day and until another; None where the question sells nothing."""
    if instance.asked.resale is None:
        return None
    held = [(instance.pools[p], copies) for p, copies in solution.hold.items()]
    return round(sum((q.sold_usd or 0.0) * copies for q, copies in held if after < q.end_day <= until), 2)


def _years(
    instance: ProcureInstance,
    solution: ProgramSolution,
    bill: Sequence[schema.Line],
    stretches: Sequence[ScheduledStretch],
) -> tuple[schema.Year, ...]:
    """Every line laid on the days on which it falls due; cents of rounding go to the last that has a share."""
    pools = {pool.id: (p, pool) for p, pool in enumerate(instance.pools)}
    count = max(
        1,
        math.ceil(max([instance.asked.horizon_days, *(_until(pools[x.pool][1]) for x in bill)]) / DAYS_PER_YEAR - 1e-9),
    )
    table = {name: [0.0] * count for name in ("capital", "rental", "running")}
    for line in bill:
        p, pool = pools[line.pool]
        name = "capital" if line.kind in CAPITAL else "rental" if line.kind == "rental" else "running"
        for year, usd in enumerate(_spread(line.usd, _shares(p, pool, line, stretches, count))):
            table[name][year] += usd
    return tuple(
        schema.Year(
            year=year + 1,
            **{f"{name}_usd": round(table[name][year], 2) for name in table},
            total_usd=round(sum(table[name][year] for name in table), 2),
            sold_usd=_sold(instance, solution, *_days_of(year, count)),
        )
        for year in range(count)
    )


def _until(pool: SupplyPool) -> float:
    return pool.start_day + pool.held_days


def _shares(
    p: int, pool: SupplyPool, line: schema.Line, stretches: Sequence[ScheduledStretch], count: int
) -> list[float]:
    """Shares of a line by year."""
    if line.kind in CAPITAL:
        spans = [(pool.start_day, pool.start_day + 1e-6)]
    elif line.kind == "energy" or pool.hired:
        spans = [(s.start, s.end) for s in stretches if s.pool == p]
    else:
        spans = [(pool.start_day, _until(pool))]
    years = [_days_of(y, count) for y in range(count)]
    days = [sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans) for start, end in years]
    return [day / (sum(days) or 1.0) for day in days]


def _days_of(year: int, count: int) -> tuple[float, float]:
    """From when to when a year (from 0) lasts; the last of so many has no end."""
    return year * DAYS_PER_YEAR, (year + 1) * DAYS_PER_YEAR if year < count - 1 else math.inf


def _spread(usd: float, shares: Sequence[float]) -> list[float]:
    parts = [round(usd * share, 2) for share in shares]
    last = max((year for year, share in enumerate(shares) if share > 0), default=len(shares) - 1)
    parts[last] = round(usd - sum(parts[:last]), 2)
    return parts
