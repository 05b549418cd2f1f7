"""Single values of questions: of a file's keys (spans, dates, shares, counts, money, power, rates), and of flags.

Readers of a key raise ``UnitError`` or ``ValueError`` with a message that says what to write; those of a flag's text
(``--seq 8k``, ``--batch 256..1024``) raise ``WrongQuestion``. Money is in the portfolio's own currency: another one, or
none, is refused. Types of fields of records need a :class:`QuestionContext` for money and names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ConfigDict

from planner.base import units
from planner.base.errors import WrongQuestion
from planner.base.typed import knows, listed, missing, reads
from planner.catalog import Catalog
from planner.cost import stage_memory
from planner.question.given import spelled
from planner.schema.procurement import Currency

SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_CODE_FIRST = re.compile(r"^\s*([A-Z]{3})\s*([\d.,]+[kMB]?)(?![\w.])")
"""``EUR 30k``, as answers print it."""
_CODE = re.compile(r"(?:(?<=\d)([kMB])\s+|(?<![A-Za-z])([kMB]?))([A-Z]{3})(?![A-Za-z])")


def usd(text: object, currency: Currency) -> float:
    """US dollars of an amount such as ``"30,000 EUR"``, ``"30k EUR"``, ``"EUR 30k"``, ``"€30k"`` or ``"$5M"``.

    Raises:
        UnitError: no currency, another than the portfolio's, a negative amount, or none at all.
    """
    if not isinstance(text, str):
        raise units.UnitError(f"{text!r} has no currency; write for example {example(currency.code)}")
    code, plain = _in_dollars(text)
    if not code:
        raise units.UnitError(f"{text!r} has no currency; write for example {example(currency.code)}")
    if code != currency.code:
        raise units.UnitError(
            f'{text!r} is in {code}, and the portfolio in {currency.code}; convert it, or set currency = "{code}"'
        )
    try:
        value = units.parse(plain, "money") * currency.usd
    except units.UnitError:
        raise units.UnitError(f"{text!r} is no amount; write for example {example(code)}") from None
    if value < 0:
        raise units.UnitError(f"{text!r}: must not be negative")
    if value > MOST_USD["money"]:
        raise units.UnitError(f"{text!r}: must be at most {MOST_USD['money']:,.0f} US dollars")
    return value


def example(code: str) -> str:
    """How amounts of a currency are written."""
    symbol = next((symbol for symbol, known in SYMBOLS.items() if known == code), "")
    return f"'{symbol}5M' or '30,000 {code}'"


def _in_dollars(text: str) -> tuple[str, str]:
    """The currency that a text names, and the text with dollars in its place."""
    for symbol, code in SYMBOLS.items():
        if symbol in text:
            return code, text.replace(symbol, "$")
    text = _CODE_FIRST.sub(r"\2 \1", text)
    found = _CODE.search(text)
    if not found:
        return "", text
    return found[3], text[: found.start()] + f" {found[1] or found[2] or ''}USD" + text[found.end() :]


T = TypeVar("T")
DAY_S = 86400.0
DAYS_PER_MONTH = 365.25 / 12
MOST_NODES = 100_000
MOST_USD = {"money": 1e15, "price per hour": 1e6}
"""US dollars of an amount, and of an hour of an accelerator: more is a slip of the pen."""
LONGEST_DAYS = 20 * 365.25
TABLE = ConfigDict(extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)
"""How tables of question files are read: unknown keys are refused, a number may stand for the text that it is."""


@dataclass(frozen=True, kw_only=True)
class QuestionContext:
    """What the values of a question file refer to."""

    catalog: Catalog
    currency: Currency = field(default_factory=Currency)
    folder: Path = Path()
    """Where files stand that the question names."""


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


def number(requirement: str, is_right: Callable[[float], bool]) -> Callable[[object], float]:
    """A reader of numbers without a unit; `requirement` are the words for those that are right."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_right(value):
            raise ValueError(f"{value!r}: must be a number {requirement}")
        return float(value)

    return read


def whole(most: int, value: object) -> int:
    """A count from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{value!r}: must be a whole number from 1 to {most:,}")
    return value


def name(value: object) -> str:
    """What something is called: some text, without the mark behind which the runs of a period are numbered."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r}: must be some text")
    if "#" in value:
        raise ValueError(f"{value!r}: must not hold a #, behind which the runs of a period are numbered")
    return value


def above_nothing(text: object, value: float) -> float:
    """The value, which must be above 0; `text` is how it was written."""
    if value <= 0:
        raise units.UnitError(f"{text!r}: must be more than nothing")
    return value


def quantity(dimension: str, text: object) -> float:
    """A quantity above 0, in SI units."""
    return above_nothing(text, units.parse(text, dimension))  # type: ignore[arg-type]


def weight(text: object) -> float:
    """Kilograms of ``"120 t"`` or ``"900 kg"``."""
    match = re.fullmatch(r"\s*([\d.,]+)\s*(kg|t)(?:\s*CO2e?)?\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r}: write for example '120 t' or '900 kg'")
    return above_nothing(text, float(units.ungrouped(match[1], text)) * (1000.0 if match[2] == "t" else 1.0))


def rate(text: object) -> float:
    """Tokens per second of ``"1.2M tokens/s"``."""
    match = re.fullmatch(r"\s*(.*?)\s*tokens/s\s*", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} has no unit; write for example '1.2M tokens/s'")
    return above_nothing(text, units.parse(match[1], "count"))


# ---- field types of records ------------------------------------------------------------------------------------------

positive = number("above 0", lambda x: 0 < x < 1e30)
Days = Annotated[float, reads(span)]
Delay = Annotated[float, reads(delay)]
IsoDate = Annotated[str, reads(iso_date)]
Positive = Annotated[float, reads(positive)]
Share = Annotated[float, reads(number("from 0 to 1", lambda x: 0 <= x <= 1))]
PositiveShare = Annotated[float, reads(number("above 0 and at most 1", lambda x: 0 < x <= 1))]
Residual = Annotated[float, reads(number("from 0 to below 1: no machine gains by its age", lambda x: 0 <= x < 1))]
Whole = Annotated[int, reads(partial(whole, MOST_NODES))]
Watts = Annotated[float, reads(partial(quantity, "power"))]
Bandwidth = Annotated[float, reads(partial(quantity, "bandwidth"))]
Samples = Annotated[float, reads(partial(quantity, "count"))]
Name = Annotated[str, reads(name)]
Kilograms = Annotated[float, reads(weight)]
TokensPerSecond = Annotated[float, reads(rate)]
Money = Annotated[float, knows(lambda text, given: usd(text, given.currency))]
"""US dollars, written in the currency of the question."""
PositiveMoney = Annotated[float, knows(lambda text, given: above_nothing(text, usd(text, given.currency)))]
NodeId = Annotated[
    str, knows(lambda id, given: given.catalog.node(str(id)).id), missing('write for example node = "dgx-h100"')
]
FabricId = Annotated[str, knows(lambda id, given: given.catalog.fabric(str(id)).id)]
RegionId = Annotated[str, knows(lambda id, given: given.catalog.region(str(id)).id)]
Several = Annotated[tuple[T, ...], reads(listed)]
"""A list, or one thing in place of a list of one."""


_MOST_COUNTS = 16
"""Counts that a range is tried at: a search takes as much longer, and a table of more is not read."""
_LEAST_RISK = 1e-6


def sequence_length(text: int | str | None) -> int | None:
    """Tokens of ``8192`` or ``"8k"``: as contexts are named, k is 1,024 and M 1,024 of these.

    Raises:
        WrongQuestion: no such number.
    """
    if text is None or isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(-?\d{1,30}|\d{1,3}(?:,\d{3}){1,9})\s*([kKM]?)\s*", text)
    if match is None:
        raise WrongQuestion(f"--seq {text!r}: write 8192 or 8k")
    return int(match[1].replace(",", "")) * {"": 1, "K": 1024, "M": 1024**2}[match[2].upper()]


def whole_numbers(
    flag: str, text: int | str, body: str, example: str = "16, or 8..64 to try several"
) -> tuple[int, ...]:
    """``16`` or ``8..64``: the values to try, ascending: every one, multiples of the first, or its doublings, whichever
    are at most :data:`_MOST_COUNTS`; the last always. A comma is refused: ``8,192`` may be two values or one.

    Raises:
        WrongQuestion: no whole numbers from one on, or an empty range; the message shows the `example`.
    """
    match = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", body)
    if match is None or int(match[1]) < 1:
        shown = repr(text) if " " in str(text) else text
        raise WrongQuestion(f"{flag} {shown}: {body!r} is not a count; write {example}")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if high < low:
        raise WrongQuestion(f"{flag} {text}: the range is empty; write {high}..{low}")
    if high - low < _MOST_COUNTS:
        values = set(range(low, high + 1))
    elif high // low <= _MOST_COUNTS:
        values = {*range(low, high + 1, low), high}
    else:
        values = {low * 2**i for i in range(64) if low * 2**i <= high} | {high}
    return tuple(sorted(values))


def batches(usual: int, asked: int | str | Sequence[int] | None) -> tuple[int, ...]:
    """The usual batch, the one asked for, those of a list, or doublings over a range: sequences a step.

    Raises:
        WrongQuestion: no such numbers.
    """
    if asked is None:
        return (usual,)
    text = asked if isinstance(asked, int) else spelled(asked)
    written = "256 (sequences; tokens over the length of one), or 256..1024 or '256|768' to try several"
    if "|" in str(text):
        return tuple(
            sorted({v for part in str(text).split("|") for v in whole_numbers("--batch", text, part, written)})
        )
    values = whole_numbers("--batch", text, str(text), written)
    return tuple(v for v in values if v == values[-1] or (v % values[0] == 0 and (v // values[0]).bit_count() == 1))


def positive_amount(flag: str, text: float | str | None, dimension: str) -> float | None:
    """An amount above nothing, in SI units or US dollars; a plain number is in them already.

    Raises:
        WrongQuestion: nothing, less than that, or another unit.
    """
    if text is None:
        return None
    try:
        value = units.parse(text, dimension) if isinstance(text, str) else units.parse(text, "count")
    except units.UnitError as error:
        raise WrongQuestion(f"{flag} {error}") from None
    if value <= 0:
        own = "; of your own, what an hour of its electricity costs" if flag == "--price" else ""
        raise WrongQuestion(f"{flag} {text}: must be more than nothing{own}")
    if value > MOST_USD.get(dimension, math.inf):
        raise WrongQuestion(f"{flag} {text}: must be at most {MOST_USD[dimension]:,.0f} US dollars")
    return value


def parse_risk(text: str | float) -> float:
    """``5 %`` or ``0.05`` as a fraction.

    Raises:
        WrongQuestion: not a share, or one outside of what a risk can be.
    """
    allowed = (
        f"more than 0 and at most {units.format_risk(stage_memory.MOST)}, where the median prediction must just fit"
    )
    try:
        value = units.parse(str(text), "share")
    except units.UnitError as error:
        raise WrongQuestion(f"--oom-risk {error}") from None
    if not _LEAST_RISK <= value <= stage_memory.MOST:
        hint = f"; did you mean {text} %?" if 1.0 <= value <= 50.0 and "%" not in str(text) else ""
        small = f" (from {units.format_risk(_LEAST_RISK)} on)" if 0.0 < value < _LEAST_RISK else ""
        raise WrongQuestion(f"--oom-risk {text}: must be {allowed}{small}{hint}")
    return value


def plain_price(price: float | str) -> float | str:
    """``"2"`` as the number that it is: US dollars per accelerator-hour."""
    return float(price) if isinstance(price, str) and re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", price) else price
