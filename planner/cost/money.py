"""Dollars, joules and carbon of a run and of owned machines; goodput, the share of wall time that trains.

Goodput with failures and checkpoints: Young 1974 and Daly 2006, first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.base import units
from planner.cost.figures import Figure

DAY_S = 86400.0
HOUR_S = 3600.0
JOULES_PER_KWH = 3.6e6


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


ACCELERATOR_MTBF_S = 5.1e4 * 3600.0
"""Accelerator-seconds between unexpected interruptions: Llama 3 405B, 16,384 H100, 54 days, 419 interruptions
(2024)."""
RESTART_S = 600.0
"""Detection, restart and reload, minutes. Assumed."""
CHECKPOINT_PAUSE_S = 5.0
"""Synchronisation around a checkpoint, beside the copy to host memory; written out asynchronously. Assumed."""


@dataclass(frozen=True, slots=True)
class GoodputEstimate:
    """Terms of the goodput. Seconds and fractions."""

    fraction: Figure
    mtbf: Figure
    interval: Figure
    blocks: Figure
    restart: Figure


@dataclass(frozen=True, slots=True)
class PoolFailures:
    """What interrupts a job on the nodes of one pool."""

    accelerators: Figure
    """In use."""
    preemptions_per_s: Figure
    """Preemptions by the owner a second, of all nodes in use together."""
    restart_s: float
    """Seconds until the job goes on, after an interruption that comes from this pool."""


def basis(restart_s: float) -> str:
    """What goodput rests on, in words, where a restart takes so many seconds."""
    assumed = "restart 10 min and checkpoint pause 5 s assumed"
    if restart_s != RESTART_S:
        assumed = f"restart {units.format_seconds(restart_s)}, checkpoint pause 5 s assumed"
    return f"MTBF 3.1 h per 16,384 accelerators (Llama 3 405B, 2024), {assumed}"


def wall_time(step_time: Figure, count: Figure, fraction: Figure) -> Figure:
    """Seconds that a run is expected to take, with all it loses: ``steps step_time / goodput``."""
    return count * step_time / fraction


def wall_time_deviation(seconds: Figure, good: GoodputEstimate) -> Figure:
    """Standard deviation of the seconds that a run takes, expected to take so many: ``sqrt(T / M E[L^2]) / fraction``.

    Interruptions come independently, each loses ``L = R + U(0, tau)``, so ``E[L^2] = R^2 + R tau + tau^2 / 3``; what a
    stretch of time loses varies as a compound Poisson sum, and the time to the end by that over the progress made.
    """
    squared = good.restart**2 + good.restart * good.interval + good.interval**2 / 3.0
    return np.sqrt(seconds / good.mtbf * squared) / good.fraction


def failure_rate(fraction: Figure, blocks: Figure, restart: Figure) -> Figure:
    """Interruptions a second at which so much of the time trains: ``x^2`` of ``R x^2 + sqrt(2 C) x = 1 - fraction``."""
    root = np.sqrt(2.0 * blocks)
    return ((np.sqrt(root**2 + 4.0 * restart * (1.0 - fraction)) - root) / (2.0 * restart)) ** 2


def joint_goodput(pools: Sequence[PoolFailures], blocks: Figure) -> GoodputEstimate:
    """Goodput of a job on several pools: whatever interrupts one of them interrupts the job.

    Rates add, ``1 / M = sum(accelerators) / MTBF + sum(preemptions)``, and a restart takes the mean of the pools' own,
    each as often as that pool interrupts. `blocks` is the pause ``C`` of a checkpoint, seconds.
    """
    rate = sum(p.accelerators for p in pools) / ACCELERATOR_MTBF_S + sum(p.preemptions_per_s for p in pools)
    first = pools[0].restart_s
    longer = sum((p.accelerators / ACCELERATOR_MTBF_S + p.preemptions_per_s) * (p.restart_s - first) for p in pools[1:])
    return at_best(1.0 / rate, blocks, first + longer / rate)


def goodput(
    accelerators: Figure,
    state_bytes: Figure,
    host_bandwidth: Figure,
    *,
    accelerator_mtbf: float = ACCELERATOR_MTBF_S,
    restart: float = RESTART_S,
    preemptions_per_s: Figure = 0.0,
) -> GoodputEstimate:
    """``1 - C / tau - (tau / 2 + R) / M`` at the best interval ``tau = sqrt(2 C M)``, not below 0.

    `state_bytes` is what one accelerator copies to host memory for a checkpoint; ``C`` that over `host_bandwidth`
    plus a pause. ``1 / M = accelerators / MTBF + preemptions``.
    """
    mtbf = 1.0 / (accelerators / accelerator_mtbf + preemptions_per_s)
    return at_best(mtbf, CHECKPOINT_PAUSE_S + state_bytes / host_bandwidth, restart)


def at_best(mtbf: Figure, blocks: Figure, restart: Figure) -> GoodputEstimate:
    """``1 - C / tau - (tau / 2 + R) / M`` at ``tau = sqrt(2 C M)``, from C and M themselves (seconds)."""
    interval = np.sqrt(2.0 * blocks * mtbf)
    fraction = np.maximum(1.0 - blocks / interval - (interval / 2.0 + restart) / mtbf, 0.0)
    return GoodputEstimate(fraction, mtbf, interval, blocks, restart)


HOURS_PER_YEAR = 8766.0
DAYS_PER_YEAR = 365.25
MONTHS_PER_YEAR = 12.0
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
