"""What a single value of a portfolio file may be: spans of days, dates, shares, counts, power, weights, rates.

Every reader raises ``UnitError`` or ``ValueError`` with a message that says what to write.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from planner.base import units
from planner.catalog import Catalog
from planner.question.tables import positive

DAY_S = 86400.0
DAYS_PER_MONTH = 365.25 / 12
MOST_NODES = 100_000
LONGEST_DAYS = 20 * 365.25


def span(text: object) -> float:
    """Days of ``"60 d"`` or ``"12 months"``."""
    months = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*months?\s*", text) if isinstance(text, str) else None
    days = float(months[1]) * DAYS_PER_MONTH if months else units.parse(text, "time") / DAY_S  # type: ignore[arg-type]
    if not 0 < days <= LONGEST_DAYS:
        raise units.UnitError(f"{text!r}: must be more than nothing and at most 20 years")
    return days


def delay(text: object) -> float:
    """Days, none allowed."""
    return 0.0 if isinstance(text, str) and re.fullmatch(r"\s*0\s*(d|days?|months?)\s*", text) else span(text)


def iso_date(text: object) -> str:
    """A date as ISO text."""
    if isinstance(text, date):
        return text.isoformat()
    try:
        return date.fromisoformat(str(text)).isoformat()
    except ValueError:
        raise ValueError(f'{text!r} is no date; write for example "2026-11-20"') from None


def share(value: object) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r}: must be a number from 0 to 1")
    return float(value)


def some_share(value: object) -> float:
    """The same, above 0."""
    return positive(share(value))


def residual(value: object) -> float:
    """A share that is not all."""
    left = share(value)
    if left >= 1:
        raise ValueError(f"{value!r}: must be a number from 0 to below 1: no machine gains by its age")
    return left


def whole(value: object) -> int:
    """A count of nodes or the like."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NODES:
        raise ValueError(f"{value!r}: must be a whole number from 1 to {MOST_NODES:,}")
    return value


def name(value: object) -> str:
    """What something is called: some text, without the mark behind which the runs of a period are numbered."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r}: must be some text")
    if "#" in value:
        raise ValueError(f"{value!r}: must not hold a #, behind which the runs of a period are numbered")
    return value


def listed(value: object) -> list[Any]:
    """A list, or one thing as a list."""
    return value if isinstance(value, list) else [value]


def regions(catalog: Catalog, value: object) -> tuple[str, ...]:
    """Ids of regions that the catalog knows."""
    return tuple(catalog.region(str(name)).id for name in listed(value))


def watts(text: object) -> float:
    """Watts of ``"400 kW"``."""
    return above_nothing(text, units.parse(text, "power"))  # type: ignore[arg-type]


def above_nothing(text: object, value: float) -> float:
    """The value, which must be above 0; `text` is how it was written."""
    if value <= 0:
        raise units.UnitError(f"{text!r}: must be more than nothing")
    return value


def weight(text: object) -> float:
    """Kilograms of ``"120 t"`` or ``"900 kg"``."""
    match = re.fullmatch(r"\s*([\d.,]+)\s*(kg|t)(?:\s*CO2e?)?\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r}: write for example '120 t' or '900 kg'")
    return above_nothing(text, float(match[1].replace(",", "")) * (1000.0 if match[2] == "t" else 1.0))


def rate(text: object) -> float:
    """Tokens per second of ``"1.2M tokens/s"``."""
    match = re.fullmatch(r"\s*(.*?)\s*tokens/s\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} has no unit; write for example '1.2M tokens/s'")
    return above_nothing(text, units.parse(match[1], "count"))
