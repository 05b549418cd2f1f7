"""How quantities of a plan read, on the screen and on a page."""

from __future__ import annotations

from planner.base.units import format_seconds

_DAY = 86400.0


def seconds(value: float) -> str:
    """A step's time in seconds whatever its size, so that rows compare at a glance."""
    return format_seconds(value) if value < 1 else f"{value:,.{2 if value < 10 else 1}f} s"


def days(value: float) -> str:
    """A run's length: days, unless it is over within one."""
    return f"{value:,.1f} d" if value >= 1 else format_seconds(value * _DAY)
