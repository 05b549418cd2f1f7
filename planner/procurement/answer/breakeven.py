"""Rent or buy: the hourly cost of a machine of one's own against the rent of its like."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cost.ownership import break_even_utilisation, hourly_cost
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.schema.procurement import BreakEven

HOURS_PER_MONTH = 8766.0 / 12


def break_evens(asked: Portfolio, pools: Sequence[SupplyPool]) -> tuple[BreakEven, ...]:
    """For every node type that is for sale, the cheapest rent of the same accelerator on demand, if any."""
    bought: dict[str, SupplyPool] = {}
    for pool in pools:
        if pool.way == "buy":
            held = bought.get(pool.node.id)
            if held is None or _each(pool) < _each(held):
                bought[pool.node.id] = pool
    found = [(pool, _cheapest(pools, pool)) for pool in bought.values()]
    return tuple(_compared(asked, pool, rented) for pool, rented in found if rented is not None)


def _each(pool: SupplyPool) -> float:
    return pool.capital / pool.cluster.accelerators


def _cheapest(pools: Sequence[SupplyPool], like: SupplyPool) -> SupplyPool | None:
    same = [
        pool for pool in pools
        if pool.way == "on-demand" and pool.cluster.accelerator.id == like.cluster.accelerator.id
    ]  # fmt: skip
    return min(same, key=lambda pool: pool.day_usd / pool.cluster.accelerators, default=None)


def _compared(asked: Portfolio, pool: SupplyPool, rented: SupplyPool) -> BreakEven:
    watts = pool.power / pool.pue / pool.cluster.accelerators
    region = pool.cluster.region
    price = region.electricity if region else 0.0
    owned = hourly_cost(_each(pool), watts, price, pool.pue, asked.ownership)
    rent = rented.day_usd / 24 / rented.cluster.accelerators
    running = owned.total - owned.capital
    months = _each(pool) / ((rent - running) * HOURS_PER_MONTH) if rent > running else None
    return BreakEven(
        buy=pool.id,
        rent=rented.id,
        owned_usd_per_accelerator_hour=owned.total,
        rented_usd_per_accelerator_hour=rent,
        utilisation=break_even_utilisation(owned.total, rent),
        months=months,
    )
