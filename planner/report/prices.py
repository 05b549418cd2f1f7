"""The prices behind an amount of money: each with its date, who states it, and what others ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.base.units import format_usd
from planner.catalog import ages
from planner.schema.plan import ComparableOffers, Money, PriceUsed

GIVEN = "--price"
"""Source of a price that the question states: it has no date."""


def of_money(money: Money) -> tuple[PriceUsed, ...]:
    """One for each pool; none where a pool has none."""
    return money.prices or ((money.price,) if money.price else ())


def line(price: PriceUsed) -> str:
    """A node-hour: price, date and whether that is old, region, source, and the range over comparable offers."""
    if price.source == GIVEN:
        return f"{price.node} at {format_usd(price.usd_per_hour)}/h, as given ({GIVEN})"
    spread = "" if price.offers is None or len(price.offers.providers) < 2 else f"; {offered(price.offers)}"
    return ", ".join(part for part in (dated(price), price.region, price.source or "no source") if part) + spread


def dated(price: PriceUsed) -> str:
    """A node-hour of the catalog: price, and its date with whether that is old."""
    hour = f"{price.node} {price.basis} {format_usd(price.usd_per_hour)}/h"
    return f"{hour}, {ages.with_age(price.date, ages.today())}"


def offered(offers: ComparableOffers) -> str:
    """The cheapest and the dearest current offer of an accelerator, and of how many."""
    hours = f"{format_usd(offers.low_usd)} to {format_usd(offers.high_usd)}"
    return f"{hours} an accelerator-hour over {len(offers.providers)} providers"


def old(prices: Iterable[PriceUsed]) -> list[str]:
    """What is sold at a price too old to decide alone, each once, with its date."""
    day = ages.today()
    catalogued = (each for each in prices if each.source != GIVEN)
    return sorted({f"{p.node} of {p.date or 'no date'}" for p in catalogued if ages.is_stale(p.date, day)})


def compared(names: Sequence[str], each: Sequence[Money]) -> list[str]:
    """The prices of several plans, under their names where they differ; nothing where none has a price."""
    lines = [[line(price) for price in of_money(money)] or ["no such price in the catalog"] for money in each]
    if not any(map(of_money, each)):
        return []
    if all(other == lines[0] for other in lines):
        return lines[0]
    return [f"{name}: {text}" for name, texts in zip(names, lines, strict=True) for text in texts]
