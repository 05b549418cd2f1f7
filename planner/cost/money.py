"""Dollars, joules and carbon of a run."""

from __future__ import annotations

from planner.cost.figures import Figure

DAY_S = 86400.0
HOUR_S = 3600.0
JOULES_PER_KWH = 3.6e6
HOURS_PER_YEAR = 8766.0
DAYS_PER_YEAR = 365.25
MONTHS_PER_YEAR = 12.0


def steps(tokens: Figure, batch: Figure, sequence: Figure) -> Figure:
    """Steps to see all tokens: ``tokens / (batch sequence)``."""
    return tokens / (batch * sequence)


def rent(seconds: Figure, nodes: Figure, usd_per_hour: Figure) -> Figure:
    """US dollars for `nodes` rented by the hour."""
    return seconds / HOUR_S * nodes * usd_per_hour


def power(nodes: Figure, max_power: Figure, share: Figure, pue: Figure) -> Figure:
    """Watts at the facility: ``nodes max_power share PUE``."""
    return nodes * max_power * share * pue


def electricity(energy: Figure, usd_per_kwh: Figure) -> Figure:
    """US dollars for an energy in joules."""
    return energy / JOULES_PER_KWH * usd_per_kwh


def carbon(energy: Figure, grams_per_kwh: Figure) -> Figure:
    """Kilograms of CO2 equivalent for an energy in joules."""
    return energy / JOULES_PER_KWH * grams_per_kwh / 1000.0
