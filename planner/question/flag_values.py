"""The text of one flag as a value: ``--seq 8k``, ``--batch 256..1024``, ``--oom-risk "5 %"``, ``--price 2``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.base import units
from planner.base.errors import WrongQuestion
from planner.cost import held_memory
from planner.question.given import spelled

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


def positive(flag: str, text: float | str | None, dimension: str) -> float | None:
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
        raise WrongQuestion(f"{flag} {text}: must be more than nothing")
    return value


def parse_risk(text: str | float) -> float:
    """``5 %`` or ``0.05`` as a fraction.

    Raises:
        WrongQuestion: not a share, or one outside of what a risk can be.
    """
    allowed = (
        f"more than 0 and at most {units.format_risk(held_memory.MOST)}, where the median prediction must just fit"
    )
    try:
        value = units.parse(str(text), "share")
    except units.UnitError as error:
        raise WrongQuestion(f"--oom-risk {error}") from None
    if not _LEAST_RISK <= value <= held_memory.MOST:
        hint = f"; did you mean {text} %?" if 1.0 <= value <= 50.0 and "%" not in str(text) else ""
        small = f" (from {units.format_risk(_LEAST_RISK)} on)" if 0.0 < value < _LEAST_RISK else ""
        raise WrongQuestion(f"--oom-risk {text}: must be {allowed}{small}{hint}")
    return value


def plain_price(price: float | str) -> float | str:
    """``"2"`` as the number that it is: US dollars per accelerator-hour."""
    return float(price) if isinstance(price, str) and re.fullmatch(r"\s*-?\d+(\.\d+)?\s*", price) else price
