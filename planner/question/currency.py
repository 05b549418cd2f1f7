"""Money in the portfolio's own currency: another currency, or none, is a mistake that is refused."""

from __future__ import annotations

import re

from planner.base import units
from planner.schema.procurement import Currency

SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_CODE = re.compile(r"(?:(?<=\d)([kMB])\s+|(?<![A-Za-z])([kMB]?))([A-Z]{3})(?![A-Za-z])")


def usd(text: object, currency: Currency) -> float:
    """US dollars of an amount such as ``"30,000 EUR"``, ``"30k EUR"``, ``"€30k"`` or ``"$5M"``.

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
    found = _CODE.search(text)
    if not found:
        return "", text
    return found[3], text[: found.start()] + f" {found[1] or found[2] or ''}USD" + text[found.end() :]
