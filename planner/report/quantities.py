"""How quantities of a plan read, on the screen and on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from planner.base.units import UNITS, format_bytes, format_count, format_power, format_seconds, format_usd

if TYPE_CHECKING:
    from planner.schema.plan import Parallelism

_DAY = 86400.0
_TERMS = {"vector": "element-wise", "tp": "TP", "cp": "CP", "ep": "EP", "dp": "DP", "resident": "runtime"}


def seconds(value: float) -> str:
    """A step's time in seconds whatever its size, so that rows compare at a glance."""
    return format_seconds(value) if value < 1 else f"{value:,.{2 if value < 10 else 1}f} s"


def days(value: float) -> str:
    """A run's length: days, unless it is over within one."""
    return f"{value:,.1f} d" if value >= 1 else format_seconds(value * _DAY)


def term(name: str) -> str:
    """A cause of a step's time or a kind of memory, as it is called: ``vector`` is element-wise kernels'."""
    return _TERMS.get(name, name)


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


def amount(value: float, unit: str) -> str:
    """So much of what an offer counts: US dollars, watts, days, kilograms, tokens per dollar or pieces."""
    if unit == "USD":
        return format_usd(value)
    if unit == "W":
        return format_power(value)
    known = {"d": f"{value:,.1f} d", "kg": f"{value / 1000:,.1f} t CO2e"}
    return known.get(unit, f"{format_count(value)} {unit}".rstrip())


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
