"""What owned machines cost: capital paid off over their life, facility, maintenance; renting compared with owning."""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.money import DAYS_PER_YEAR, HOUR_S, HOURS_PER_YEAR, MONTHS_PER_YEAR, electricity, power

DECADES_PER_YEAR = 0.14
"""Orders of magnitude by which price-performance improves in a year (Epoch AI, training-cost-trends, 2026-04)."""


def capital_recovery(interest: float, years: float) -> float:
    """Share of a capital that is due each year: ``r / (1 - (1 + r)^-Y)``, and ``1 / Y`` without interest."""
    if interest == 0.0:
        return 1.0 / years
    return float(interest / (1.0 - (1.0 + interest) ** -years))


def annuity(capital: float, interest: float, years: float, residual: float = 0.0) -> float:
    """US dollars a year that pay a capital off: ``(K - R (1 + r)^-Y) CRF(r, Y)``, R what it is worth afterwards."""
    return float((capital - residual * (1.0 + interest) ** -years) * capital_recovery(interest, years))


def resale(capital: float, years: float) -> float:
    """US dollars that a machine is worth after some years: ``K 10^(-0.14 t)``, as newer ones do more for the money."""
    return float(capital * 10.0 ** (-DECADES_PER_YEAR * years))


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """What owning costs beside the price of the machines. Each is printed with an answer and may be changed."""

    interest: float = 0.08
    """A year."""
    life_years: float = 5.0
    """Over which the capital is paid off."""
    residual: float = 0.0
    """Share of the capital that is left at the end of the life."""
    load: float = 0.75
    """Power drawn while training over the most that can be drawn."""
    colocation_usd_per_kw_month: float = 163.44
    """Per kW provided (CBRE 2023: 137.86 in 2022, and 19 % more)."""
    maintenance: float = 0.03
    """Share of the capital spent on maintenance in a year."""
    staff_usd_per_accelerator_year: float = 0.0
    availability: float = 0.97
    """Share of the hours in which an accelerator is there, where an hour of one's own is compared with rent. Jobs count
    failures themselves (:func:`wall_time`).
    """


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """US dollars per hour in which an accelerator is available, by cause."""

    capital: float
    energy: float
    facility: float
    maintenance: float
    staff: float

    @property
    def total(self) -> float:
        """All causes: ``capital + energy + facility + maintenance + staff``."""
        return self.capital + self.energy + self.facility + self.maintenance + self.staff


def charge(capital: float, days: float, owner: Ownership) -> float:
    """US dollars of a capital that count for some days of its life: ``annuity(K, residual K) days / 365.25``."""
    yearly = annuity(capital, owner.interest, owner.life_years, owner.residual * capital)
    return yearly * days / DAYS_PER_YEAR


def used(capital: float, days: float, owner: Ownership) -> float:
    """US dollars by which some days of work use a capital up: ``(1 - residual) K days / (365.25 Y)``."""
    return (1.0 - owner.residual) * capital * days / (DAYS_PER_YEAR * owner.life_years)


def hourly_cost(capital: float, watts: float, usd_per_kwh: float, pue: float, owner: Ownership) -> HourlyCost:
    """Total cost of ownership of one accelerator that is always on, per available hour.

    ``(annuity + kW load PUE 8766 h USD/kWh + kW 12 colocation + m K + staff) / (8766 availability)``
    """
    joules = power(1.0, watts, owner.load, pue) * HOURS_PER_YEAR * HOUR_S
    hours = HOURS_PER_YEAR * owner.availability
    return HourlyCost(
        annuity(capital, owner.interest, owner.life_years, owner.residual * capital) / hours,
        electricity(joules, usd_per_kwh) / hours,
        facility_per_month(watts, owner) * MONTHS_PER_YEAR / hours,
        owner.maintenance * capital / hours,
        owner.staff_usd_per_accelerator_year / hours,
    )


def facility_per_month(watts: float, owner: Ownership) -> float:
    """US dollars a month for the power that is provided: ``kW rate``."""
    return watts / 1000.0 * owner.colocation_usd_per_kw_month


def break_even_utilisation(owned_usd_per_hour: float, rented_usd_per_hour: float) -> float:
    """Share of the hours above which owning is cheaper than renting: ``owned / rented``; above 1, never."""
    return owned_usd_per_hour / rented_usd_per_hour
