"""Quantities as people write them, and the SI floats that the program computes with.

Text is parsed where it enters (catalog files, flags) and formatted where it leaves (tables, messages); in between
everything is a plain float in SI units: bytes, bytes per second, FLOP per second, seconds, watts, US dollars.
``Gbit/s`` is not ``GB/s`` and ``GB`` is not ``GiB``: both are understood, and never taken for one another.
"""

from __future__ import annotations

import difflib
import math
import re
import sys

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _prefixed(symbol: str, scale: float = 1.0, *, binary: bool = False) -> dict[str, float]:
    """Every prefixed spelling of a unit: ``B`` gives ``kB``, ``GB``, and with `binary` also ``GiB``."""
    table = {prefix + symbol: factor * scale for prefix, factor in _DECIMAL.items()}
    if binary:
        table |= {prefix + symbol: factor * scale for prefix, factor in _BINARY.items()}
    return table


_BYTES = _prefixed("B", binary=True)
_BITS = _prefixed("bit", 1 / 8)
_WORDS = {"h": ("hr", "hour", "hours"), "d": ("day", "days"), "y": ("yr", "year", "years")}
"""What people write for a unit of time."""
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "y": 8766 * 3600.0}
_TIME |= dict.fromkeys(("week", "weeks"), 7 * 86400.0)
_TIME |= {word: _TIME[unit] for unit in ("h", "d", "y") for word in _WORDS[unit]}

UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bandwidth": {f"{unit}/s": factor for unit, factor in (_BYTES | _BITS).items()},
    "compute": _prefixed("FLOP/s") | _prefixed("OP/s"),
    "time": _TIME,
    "power": _prefixed("W"),
    "money": {"USD": 1.0, "kUSD": 1e3, "MUSD": 1e6, "BUSD": 1e9},
    "price per hour": {"USD/h": 1.0},
    "energy price": {"USD/kWh": 1.0},
    "carbon intensity": {"gCO2e/kWh": 1.0, "kgCO2e/kWh": 1e3},
    "share": {"%": 0.01, "": 1.0},
    "count": {"": 1.0, **dict.fromkeys("kK", 1e3), **dict.fromkeys("mM", 1e6), **dict.fromkeys("bB", 1e9)}
    | dict.fromkeys("tT", 1e12),
}
"""Dimension -> unit spelling -> factor to the SI (or named) unit that the program computes in."""

_QUANTITY = re.compile(r"\s*([-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*")

_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?")


class UnitError(ValueError):
    """A quantity that could not be read; the message says what was written and what would have been understood."""


def parse(text: str | float, dimension: str) -> float:
    """Read one quantity, e.g. ``parse("400 Gbit/s", "bandwidth") == 5e10``.

    A bare number is accepted for a count and refused for everything else: a figure without its unit is how an eighth
    or an eighth-fold slips in.

    Raises:
        UnitError: no number, an unknown unit, a missing unit, or a value that is not finite.
    """
    table = UNITS[dimension]
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UnitError(f"{text!r}: expected {_example(dimension)}")
    if isinstance(text, int | float):
        if dimension != "count":
            raise UnitError(f"{text!r} has no unit; write for example {_example(dimension)}")
        return _finite(float(text) if abs(text) <= sys.float_info.max else math.inf, text)
    body = _dollars(text) if dimension in ("money", "price per hour", "energy price") else text
    match = _QUANTITY.fullmatch(body)
    if match is None:
        raise UnitError(f"{text!r} is not a quantity; write for example {_example(dimension)}")
    number = float(ungrouped(match[1], text).replace("_", ""))
    unit = match[2]
    if unit not in table:
        near = difflib.get_close_matches(unit, table, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near and unit else f"write for example {_example(dimension)}"
        raise UnitError(f"{text!r}: {f'unknown unit {unit!r}' if unit else 'no unit'}; {hint}")
    return _finite(number * table[unit], text)


def ungrouped(number: str, text: object) -> str:
    """``1,000,000`` -> ``1000000``; commas anywhere else are a list, or the decimal point of other countries.

    Raises:
        UnitError: a comma that does not separate thousands; the message shows the whole `text`.
    """
    if "," in number and not _GROUPED.fullmatch(number):
        raise UnitError(f"{text!r}: a comma separates thousands (1,000,000); a decimal point is '.'")
    return number.replace(",", "")


def _dollars(text: str) -> str:
    """``$2.10/h`` -> ``2.10 USD/h``; ``$5M`` -> ``5 MUSD``: the spellings people use for money."""
    match = re.fullmatch(r"\s*([-+]?)\$\s*([\d,._]+)\s*([kKMB]?)\s*(/\s*\w+)?\s*", text)
    if match is None:
        return text
    scale = "k" if match[3] == "K" else match[3]
    return f"{match[1]}{match[2]} {scale}USD{(match[4] or '').replace(' ', '')}"


def plain_dollars(amount: float | str | None) -> float | str | None:
    """``"2.5M"`` and ``"1000"`` as US dollars, ``"2.5 MUSD"``; any other text as it is."""
    plain = re.fullmatch(r"\s*([\d.,_]+(?:[eE]\+?\d+)?)\s*([kKMB]?)\s*", amount) if isinstance(amount, str) else None
    return f"{plain[1]} {plain[2].replace('K', 'k')}USD" if plain else amount


def _finite(value: float, text: object) -> float:
    if not math.isfinite(value):
        raise UnitError(f"{text!r:.80} is not a finite number")
    return value


def _example(dimension: str) -> str:
    return {
        "bytes": "'80 GiB'",
        "bandwidth": "'400 Gbit/s' or '50 GB/s'",
        "compute": "'989 TFLOP/s'",
        "time": "'30 d', '3 h' or '5 us'",
        "power": "'10.2 kW'",
        "money": "'$5M' or '375000 USD'",
        "price per hour": "'$55.04/h'",
        "energy price": "'0.08 USD/kWh'",
        "carbon intensity": "'380 gCO2e/kWh'",
        "share": "'5 %' or '0.05'",
        "count": "'2T', '1e6' or 512",
    }[dimension]


# ---- formatting: one spelling for each quantity that a person reads; in the unit of `like` where one is given -------


def _scaled(value: float, steps: tuple[tuple[float, str], ...], like: float | None = None) -> str:
    """The value, to three digits, in the largest step that it, or what it is shown beside, reaches."""
    reached = abs(value if like is None else like)
    step, name = next((step for step in steps if reached >= step[0]), steps[-1])
    return f"{_significant(value / step)} {name}".rstrip()


def _significant(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def format_bytes(value: float, like: float | None = None) -> str:
    """Memory, in binary units: ``68.9 GiB``."""
    steps = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
    return _scaled(value, steps, like)


def format_seconds(value: float, like: float | None = None) -> str:
    """A duration: ``9.61 s``, ``350 us``, ``13.9 d``."""
    steps = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
    return _scaled(value, steps, like)


def format_count(value: float, like: float | None = None) -> str:
    """A number of things: ``873 k``, ``1.02 T``; below a thousand as it is."""
    return _scaled(value, ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")), like)


def format_usd(value: float, like: float | None = None) -> str:
    """Money: ``$152k``, ``$1.69M``, ``$55.04``."""
    if abs(value if like is None else like) < 1000:
        return f"${value:,.2f}"
    return "$" + _scaled(value, ((1e9, "B"), (1e6, "M"), (1e3, "k")), like).replace(" ", "")


def format_power(value: float) -> str:
    """Electric power: ``10.2 kW``."""
    return _scaled(value, ((1e6, "MW"), (1e3, "kW"), (1.0, "W")))


def format_risk(fraction: float) -> str:
    """A chance as per cent, to two significant digits: ``5 %``, ``0.12 %``; below a thousandth no tail is known."""
    percent = 100 * fraction
    if 0 < percent < 0.1:
        return "< 0.1 %"
    text = f"{percent:.{max(0, 1 - math.floor(math.log10(percent)))}f}" if percent > 0 else "0"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def format_percent(fraction: float, places: int = 1) -> str:
    """A fraction as per cent: ``46.9 %``."""
    return f"{100 * fraction:.{places}f} %"


def format_many(count: int, what: str) -> str:
    """``1 run``, ``1,200 runs``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
