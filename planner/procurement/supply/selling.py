"""Selling what was bought: the day is a decision, a whole number of months after the purchase, or the horizon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.cost.ownership import DAYS_PER_YEAR, resale
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.question.file_values import DAYS_PER_MONTH


def sold(asked: Portfolio, pool: SupplyPool) -> Iterator[SupplyPool]:
    """A purchase that is sold after one month, after two and so on, or at the end; nothing where nothing is sold.

    The nodes bring ``resale K 10^(-0.14 t)``, to the cent; network and storage bring nothing. What is due by the month
    ends with the sale.
    """
    if asked.resale is None:
        return
    nodes = sum(item.usd for item in pool.items if item.kind == "node")
    for called, days in _lengths(asked, pool):
        usd = round(asked.resale * resale(nodes, days / DAYS_PER_YEAR), 2)
        yield replace(
            pool,
            id=f"{pool.id} {called}",
            held_days=days,
            end_day=pool.start_day + days,
            fixed_charge=pool.capital - usd,
            sold_usd=usd,
        )


def _lengths(asked: Portfolio, pool: SupplyPool) -> Iterator[tuple[str, float]]:
    """Days for which it may be held, with a name: whole months until every job must be done, within the horizon; all
    days to the horizon where those months are not enough.
    """
    first = max(pool.start_day, min(job.release_day for job in asked.jobs))
    needed = math.ceil((max(job.deadline_day for job in asked.jobs) - first) / DAYS_PER_MONTH - 1e-9)
    left = asked.horizon_days - pool.start_day
    whole = int(left / DAYS_PER_MONTH + 1e-9)
    for months in range(1, min(needed, whole) + 1):
        yield f"for {months} month{'s' if months > 1 else ''}", months * DAYS_PER_MONTH
    if needed > whole:
        yield "to the horizon", left
