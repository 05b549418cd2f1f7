"""How quantities of a plan read, on the screen and on a page; the prices behind an amount of money.

A price is stated with its date, who states it, and what others ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.base.units import UNITS, format_bytes, format_count, format_power, format_seconds, format_usd
from planner.catalog import ages
from planner.schema.plan import ComparableOffers, Money, PriceUsed

if TYPE_CHECKING:
    from planner.schema.plan import Parallelism

_DAY = 86400.0


def seconds(value: float, like: float | None = None) -> str:
    """A step's time in seconds whatever its size, so that rows compare at a glance; in the unit of another, `like`."""
    least = value if like is None else like
    return format_seconds(value, like) if least < 1 else f"{value:,.{2 if value < 10 else 1}f} s"


def days(value: float, like: float | None = None) -> str:
    """A run's length: days, unless it is over within one; in the unit of another, `like`."""
    least = value if like is None else like
    if least < 1:
        return format_seconds(value * _DAY, least * _DAY)
    return f"{value:,.{0 if value >= 1000 else 1}f} d"


def energy(joules: float) -> str:
    """Electricity: ``8,140 kWh``, ``313 MWh``."""
    kwh = joules / 3.6e6
    return f"{_digits(kwh)} kWh" if kwh < 1e4 else f"{_digits(kwh / 1e3)} MWh"


def limit(name: str) -> str:
    """The readable name of a limit: ``deadline of base``, ``nodes of p5.48xlarge``."""
    kind, _, of = name.partition(":")
    return f"{'nodes' if kind == 'quantity' else kind} of {of}" if of else kind.replace("_", " ")


def limited(name: str, value: float, as_money: Callable[[float], str]) -> str:
    """The value of a limit with its unit."""
    kind = name.partition(":")[0]
    if kind in ("budget", "capital", "monthly"):
        return as_money(value)
    if kind in ("deadline", "horizon"):
        return f"{value:,.0f} d"
    return format_power(value) if kind == "power" else f"{value:,.0f} kg" if kind == "carbon" else f"{value:,.0f}"


SOUGHT = {
    "time": "earliest completion", "cost": "least cost", "carbon": "least carbon", "tokens": "most tokens",
    "tokens-per-dollar": "most tokens per dollar",
}  # fmt: skip
"""What is best under each objective of an offer."""


def amount(value: float, unit: str) -> str:
    """So much of what an offer counts: US dollars, watts, days, kilograms, tokens per dollar or pieces."""
    if unit == "USD":
        return format_usd(value)
    if unit == "W":
        return format_power(value)
    known = {"d": f"{value:,.1f} d", "kg": f"{value / 1000:,.1f} t CO2e"}
    return known.get(unit, f"{format_count(value)} {unit}".rstrip())


def late(chance: float | None) -> str:
    """``1 in 5``, or ``6 in 10``: the chance that a job is late, in words; empty up to 1 in 10."""
    if chance is None or chance <= UNSURE:
        return ""
    return f"1 in {1.0 / chance:.0f}" if chance < 0.4 else f"{min(10.0 * chance, 9.0):.0f} in 10"


UNSURE = 0.1
"""Chance up to which a deadline counts as kept: the slow end of an 80 % interval."""


def degrees(p: Parallelism) -> str:
    """``TP8 PP4 DP2``: the degrees above 1."""
    named = {"TP": p.tp, "PP": p.pp, "CP": p.cp, "EP": p.ep, "DP": p.dp}
    return " ".join(f"{name}{n}" for name, n in named.items() if n > 1) or "one rank"


def axis(value: Any, unit: str) -> str:
    """A value of an axis with its unit, formatted for reading."""
    if isinstance(value, str):
        return value
    formats = {
        "bytes": lambda x: format_bytes(x),
        "bandwidth": lambda x: f"{_digits(x / 1e12)} TB/s" if x >= 1e12 else f"{_digits(x / 1e9)} GB/s",
        "compute": lambda x: f"{_digits(x / 1e12)} TFLOP/s",
        "power": lambda x: format_power(x),
        "time": lambda x: format_seconds(x),
    }
    if unit in formats:
        return formats[unit](value)
    for named in UNITS.values():
        if unit and unit in named:
            return f"{_digits(value / named[unit])} {unit}"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _digits(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def objective(name: str, value: float) -> str:
    """A value of an objective with its unit, formatted for reading."""
    if name == "step-time":
        return format_seconds(value)
    if name == "cost":
        return f"${value:,.3g}/Mtoken"
    return f"{value:,.3g} J/token" if name == "energy" else f"{format_count(value)}FLOP/s/$".replace(" ", " ", 1)


def took(meta: Mapping[str, object], spent: str) -> str:
    """Seconds that an answer took, by its own word, behind a comma; nothing where that is no number."""
    found = meta.get(spent)
    return f", {found:,.1f} s" if isinstance(found, int | float) and found else ""


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
