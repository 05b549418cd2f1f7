"""How old prices are: what a date says of a day, which are stale, and a list of those that are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime

from planner.base.errors import WrongQuestion
from planner.catalog.loading import Catalog
from planner.schema.hardware import Entry
from planner.schema.listings import StalePrice

STALE_DAYS = 365
"""A price older than this is flagged."""
DAY = "SOURCE_DATE_EPOCH"
"""Environment variable that states today, in seconds since 1970, so that a page can be made the same again:
https://reproducible-builds.org/specs/source-date-epoch/."""


def today() -> str:
    """The day that ages count to where nobody names one: the environment's, else the computer's; an ISO date.

    Raises:
        WrongQuestion: the environment's is no number of seconds.
    """
    stated = os.environ.get(DAY, "")
    try:
        return (datetime.fromtimestamp(int(stated), UTC).date() if stated else date.today()).isoformat()
    except (ValueError, OverflowError, OSError):
        raise WrongQuestion(f"{DAY}={stated}: no day; unset it, or set it to seconds since 1970") from None


def with_age(dated: str, as_of: str) -> str:
    """A price's date, and why it should not decide alone: ``2025-03, over 365 days old``."""
    age = age_days(dated, as_of)
    if age is None or not is_stale(dated, as_of):
        return dated or "no date"
    return f"{dated}, {'a day to come' if age < 0 else f'over {STALE_DAYS} days old'}"


def age_days(dated: str, as_of: str) -> float | None:
    """Days from a price's date (a day, a month or a year, from its start) to another; None where it is no date."""
    parts = [int(part) for part in dated.split("-") if part.isdecimal()]
    if not parts or not 1990 <= parts[0] <= 2100:
        return None
    year, month, day = (*parts, 1, 1)[:3] if len(parts) > 1 else (parts[0], 1, 1)
    try:
        return float((date.fromisoformat(as_of) - date(year, month, day)).days)
    except ValueError:
        return None


def is_stale(dated: str, as_of: str, most: float = STALE_DAYS) -> bool:
    """Whether a price is older than a year (or `most` days), undated, or of a day that is still to come."""
    age = age_days(dated, as_of)
    return age is None or not 0 <= age <= most


def stale(
    known: Catalog, as_of: str, most: float = STALE_DAYS, parts: Iterable[tuple[Entry, float]] = ()
) -> list[StalePrice]:
    """Every price of an accelerator, a node or one of these parts, with their US dollars, that is older than so many
    days on a day, the oldest first.
    """
    bought = (_aged(part.id, "purchase", usd, part.date, part.source, as_of) for part, usd in parts)
    old = [price for price in (*_prices(known, as_of), *bought) if is_stale(price.date, as_of, most)]
    return sorted(old, key=lambda each: (-(each.age_days or 1e9), each.entry, each.basis))


def _prices(known: Catalog, as_of: str) -> Iterator[StalePrice]:
    listed = [(entry.id, price) for entry in known.accelerators.values() for price in entry.prices]
    listed += [(entry.id, price) for entry in known.nodes.values() for price in entry.prices]
    for entry, price in listed:
        yield _aged(entry, price.basis, price.usd, price.date, price.source, as_of)


def _aged(entry: str, basis: str, usd: float, dated: str, source: str, as_of: str) -> StalePrice:
    return StalePrice(entry=entry, basis=basis, usd=usd, date=dated, age_days=age_days(dated, as_of), source=source)
