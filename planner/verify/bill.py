"""Re-derives the money of a procurement: every line of its bill, its charge, its years, and what pools cost.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.procurement import Alternative, Line, PoolBought, ProcureOptions

CAPITAL = ("node", "network", "head node", "I/O node", "storage")
HELD = ("facility", "maintenance", "staff")
"""What is due by the month, used or not."""
CENT = 0.005
DAYS_PER_YEAR = 365.25
DAYS_PER_MONTH = DAYS_PER_YEAR / 12
HIRED = ("on-demand", "spot")
OWNED = ("own", "buy")
DECADES_PER_YEAR = 0.14
"""By which price-performance improves in a year, and so by which a machine loses its value (Epoch AI)."""


def days_of(a: Alternative, pool: PoolBought) -> float:
    """Days on which its copies work, all together."""
    return sum(s.end_day - s.start_day for job in a.workloads for s in job.schedule if s.pool == pool.id)


def watts_of(pool: PoolBought) -> float:
    """Drawn at the plug while one copy works: ``(nodes power load + network) PUE``."""
    return (pool.count * pool.node_power_w * pool.load + pool.network_power_w) * pool.pue


def bill_adds_up(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """``usd = count unit_price`` to the cent for each line; cash is their sum, capital that of what is bought."""
    pools = {pool.id for pool in a.pools}
    for line in a.bill_of_materials:
        if abs(line.usd - round(line.count * line.unit_price_usd, 2)) > CENT:
            yield f"{line.pool}, {line.item}: {line.usd:.2f} USD is not {line.count:g} x {line.unit_price_usd:g}"
        if line.pool not in pools:
            yield f"{line.item} is for {line.pool}, which is not come by"
    yield from _cents("cash_usd", a.cost.cash_usd, _sum(a))
    yield from _cents("capital_usd", a.cost.capital_usd, _sum(a, *CAPITAL))
    yield from _cents("total_usd", a.cost.total_usd, _sum(a) - _sum(a, *CAPITAL) + a.cost.charged_usd)
    for kind in a.cost.by_kind.keys() | {line.kind for line in a.bill_of_materials}:
        yield from _cents(f"by_kind.{kind}", a.cost.by_kind.get(kind, 0.0), _sum(a, kind))


def _sum(a: Alternative, *kinds: str) -> float:
    return round(sum(line.usd for line in a.bill_of_materials if not kinds or line.kind in kinds), 2)


def _cents(what: str, stated: float, derived: float, lines: int = 1) -> Iterator[str]:
    """A sentence if two amounts differ by more than rounding so many of them can."""
    if abs(stated - derived) > 2 * CENT * lines + 1e-12 * abs(derived):
        yield f"{what} is {stated:.2f}, and {derived:.2f} follows from the bill"


def _capital(a: Alternative, pool: PoolBought, *kinds: str) -> float:
    """US dollars paid at once for all copies of a pool."""
    return sum(x.usd for x in a.bill_of_materials if x.pool == pool.id and x.kind in (kinds or CAPITAL))


def charge_is_as_asked(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """In cash a purchase counts with its price, less what it is sold for; amortised with ``(1 - rho (1+r)^-Y) CRF K`` a
    year for the days it is held.

    What is used up is ``(1 - rho) K`` over the life for the days that machines work; what nodes that are kept would
    fetch at the end of the horizon is ``K 10^(-0.14 t)``, and when they are sold the question's share of that.
    """
    bought = [pool for pool in a.pools if pool.way == "buy"]
    lines = len(a.bill_of_materials) + len(bought)
    if question.charge == "cash":
        yield from _cents("charged_usd", a.cost.charged_usd, a.cost.capital_usd - (a.cost.sold_usd or 0.0))
    if a.cost.resale_usd is not None:
        fetched = sum(_worth(a, x, question.horizon_days - x.start_day) for x in bought if x.sold_usd is None)
        yield from _cents("resale_usd", a.cost.resale_usd, fetched, lines)
    yield from _sales(question, a)
    owner = question.ownership
    if owner is None:
        return
    if question.charge == "amortised":
        r, life = owner.interest, owner.life_years
        recovery = r / (1 - (1 + r) ** -life) if r else 1 / life
        yearly = (1 - owner.residual * (1 + r) ** -life) * recovery
        charged = sum(_capital(a, x) * yearly * x.held_days / DAYS_PER_YEAR for x in bought)
        yield from _cents("charged_usd", a.cost.charged_usd, charged, lines)
    days = owner.life_years * DAYS_PER_YEAR
    worn = sum(_capital(a, x) / x.copies * days_of(a, x) / days for x in bought) * (1 - owner.residual)
    yield from _cents("used_usd", a.cost.used_usd, worn, lines)


def _worth(a: Alternative, pool: PoolBought, days: float) -> float:
    """US dollars that the nodes of all its copies are worth at an age."""
    return float(_capital(a, pool, "node") * 10.0 ** (-DECADES_PER_YEAR * max(0.0, days) / DAYS_PER_YEAR))


def _sales(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """What each pool is sold for, and what all bring, by year too."""
    for pool in a.pools:
        if pool.sold_usd is not None:
            usd = (question.resale or 0.0) * _worth(a, pool, pool.held_days) / pool.copies
            yield from _cents(f"{pool.id}: sold_usd", pool.sold_usd, usd, 2)
    sold = [(x.end_day or 0.0, (x.sold_usd or 0.0) * x.copies) for x in a.pools]
    if (a.cost.sold_usd is None) != (question.resale is None):
        yield f"sold_usd is {a.cost.sold_usd}, and the question's resale {question.resale}"
    yield from _cents("sold_usd", a.cost.sold_usd or 0.0, sum(usd for _, usd in sold))
    for n, year in enumerate(a.cost.by_year):
        last = math.inf if n == len(a.cost.by_year) - 1 else (n + 1) * DAYS_PER_YEAR
        usd = sum(usd for day, usd in sold if n * DAYS_PER_YEAR < day <= last)
        yield from _cents(f"by_year.{n + 1}.sold_usd", year.sold_usd or 0.0, usd)


def bill_has_what_is_used(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Nodes, hours of rent, kilowatt-hours and months of the bill follow from pools and calendar."""
    for pool in a.pools:
        lines = [line for line in a.bill_of_materials if line.pool == pool.id]
        wanted = _wanted(a, pool)
        for kind, count in wanted.items():
            stated = sum(line.count for line in lines if line.kind == kind)
            if not math.isclose(stated, count, rel_tol=1e-9, abs_tol=1e-6):
                yield f"{pool.id}: {stated:g} of {kind} on the bill, and {count:g} follow from pools and calendar"
        for line in lines:
            if line.kind not in wanted and not (pool.way == "buy" and line.kind in (*CAPITAL, *HELD)):
                yield f"{pool.id}: {line.kind} is on the bill, and nothing calls for it"
            months = pool.held_days / DAYS_PER_MONTH * pool.copies
            if line.kind in HELD and not math.isclose(line.count, months, rel_tol=1e-9):
                yield f"{pool.id}: {line.count:g} months of {line.kind} on the bill, and it is held for {months:g}"


def _wanted(a: Alternative, pool: PoolBought) -> dict[str, float]:
    days = days_of(a, pool)
    if pool.way in HIRED:
        return {"rental": days * 24 * pool.count}
    if pool.way not in OWNED:
        return {"rental": pool.held_days * 24 * pool.count * pool.copies}
    energy = {"energy": watts_of(pool) * 24 / 1000 * days} if days else {}
    nodes = {"node": float((pool.count + pool.spares) * pool.copies)} if pool.way == "buy" else {}
    return {**energy, **nodes}


def prices_are_those_of_pools(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """What a pool costs by the day and by the month follows from the unit prices on the bill, and those from the
    question's terms of owning.
    """
    for pool in a.pools:
        prices: dict[str, float] = {}
        for line in a.bill_of_materials:
            if line.pool == pool.id and line.kind not in CAPITAL:
                prices[line.kind] = prices.get(line.kind, 0.0) + line.unit_price_usd
        if "energy" in prices and not _close(prices["energy"], pool.usd_per_kwh):
            yield f"{pool.id}: a kWh is {prices['energy']:g} USD on the bill, but {pool.usd_per_kwh:g} in its region"
        an_hour = prices.get("rental", 0.0) * pool.count
        day = an_hour * 24
        month = 0.0
        if pool.way in OWNED:
            day = watts_of(pool) * 24 / 1000 * pool.usd_per_kwh
            month = sum(prices.get(kind, 0.0) for kind in HELD)
        elif pool.way not in HIRED:
            day = 0.0
            month = an_hour * 24 * DAYS_PER_MONTH
        for what, stated, derived in (("day_usd", pool.day_usd, day), ("month_usd", pool.month_usd, month)):
            if not _close(stated, derived):
                yield f"{pool.id}: {what} is {stated:.9g}, and {derived:.9g} follows from the bill"
        if pool.way == "buy" and question.ownership is not None:
            yield from _owning(question, a, pool, prices)


def _owning(question: ProcureOptions, a: Alternative, pool: PoolBought, prices: dict[str, float]) -> Iterator[str]:
    """A month of one copy: colocation by the kW provided, maintenance by the capital, staff by the accelerator."""
    owner = question.ownership
    assert owner is not None
    accelerators = pool.accelerators / (pool.count * pool.copies) * (pool.count + pool.spares)
    wanted = {
        "facility": pool.power_w / pool.pue / 1000 * owner.colocation_usd_per_kw_month if pool.colocated else 0.0,
        "maintenance": owner.maintenance * _capital(a, pool) / pool.copies / 12,
        "staff": owner.staff_usd_per_accelerator_year * accelerators / 12,
    }
    for kind, usd in wanted.items():
        # Cents of capital are rounded line by line.
        if pool.colocated is not None and not math.isclose(prices.get(kind, 0.0), usd, rel_tol=1e-9, abs_tol=CENT):
            yield f"{pool.id}: a month of {kind} is {prices.get(kind, 0.0):.2f} on the bill, and {usd:.2f} follows"


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def years_are_of_the_bill(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Each line falls due when its pool is bought, works or is held; a year is the sum of what falls into it."""
    count = len(a.cost.by_year)
    pools = {pool.id: pool for pool in a.pools}
    table = [dict.fromkeys(("capital", "rental", "running"), 0.0) for _ in range(count)]
    for line in a.bill_of_materials:
        if line.pool in pools and count:
            name = "capital" if line.kind in CAPITAL else "rental" if line.kind == "rental" else "running"
            for n, share in enumerate(_shares(a, line, pools[line.pool], count)):
                table[n][name] += share * line.usd
    lines = len(a.bill_of_materials) * max(count, 1)
    for n, (year, derived) in enumerate(zip(a.cost.by_year, table, strict=True)):
        for name, usd in derived.items():
            yield from _cents(f"by_year.{n + 1}.{name}_usd", getattr(year, f"{name}_usd"), usd, lines)
        yield from _cents(f"by_year.{n + 1}.total_usd", year.total_usd, sum(_parts(year)), 2)
        if year.year != n + 1:
            yield f"by_year: year {year.year} is at position {n + 1}"
    yield from _cents("by_year", sum(year.total_usd for year in a.cost.by_year), _sum(a), max(count, 1))


def _parts(year: object) -> tuple[float, ...]:
    return tuple(getattr(year, f"{name}_usd") for name in ("capital", "rental", "running"))


def _shares(a: Alternative, line: Line, pool: PoolBought, count: int) -> list[float]:
    """Shares of a line by year; all that lies beyond belongs to the last."""
    times = [(pool.start_day, pool.start_day + pool.held_days)]
    if line.kind in CAPITAL:
        times = [(pool.start_day, pool.start_day + 1e-6)]
    elif line.kind == "energy" or pool.way in HIRED:
        times = [(s.start_day, s.end_day) for job in a.workloads for s in job.schedule if s.pool == pool.id]
    whole = sum(end - start for start, end in times) or 1.0
    shares = []
    for year in range(count):
        first = year * DAYS_PER_YEAR
        last = first + DAYS_PER_YEAR if year < count - 1 else math.inf
        shares.append(sum(max(0.0, min(last, end) - max(first, start)) for start, end in times) / whole)
    return shares


CHECKS = (
    bill_adds_up,
    charge_is_as_asked,
    bill_has_what_is_used,
    prices_are_those_of_pools,
    years_are_of_the_bill,
)
