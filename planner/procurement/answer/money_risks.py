"""Risks of an answer's money: figures without a current source, preemptions of spot nodes, and rent against purchase.

For a job on spot nodes: how late and how dear it may become, and from which rate of preemptions on-demand is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.catalog.ages import is_stale
from planner.cost.goodput import GoodputEstimate, at_best, failure_rate, wall_time_deviation
from planner.cost.money import DAY_S, rent
from planner.cost.ownership import break_even_utilisation, hourly_cost
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.supply.prices import OLD_RATE_DAYS
from planner.schema.plan import Plan
from planner.schema.procurement import BreakEven, SpotRisk


def rests_on(asked: Portfolio, used: Sequence[SupplyPool]) -> Iterator[str]:
    """Old prices, assumed prices, assumed preemptions, a resale value and an old exchange rate, of the pools used."""
    quoted = [(pool.node.id, pool.quote) for pool in used if pool.quote is not None]
    old = dict.fromkeys(f"{node} of {q.date or 'no date'}" for node, q in quoted if is_stale(q.date, asked.as_of))
    if old:
        yield f"prices older than a year: {', '.join(old)}"
    assumed = dict.fromkeys(node for node, quote in quoted if quote.assumed)
    if assumed:
        yield f"assumed prices: {', '.join(assumed)}"
    if any(pool.way == "spot" for pool in used):
        yield "an assumed rate of preemptions on spot"
    owner = asked.ownership
    if asked.charge == "amortised" and owner.residual and any(pool.way == "buy" for pool in used):
        yield f"a resale value of {owner.residual:.0%} after {owner.life_years:g} years"
    if any(pool.sold_usd is not None for pool in used):
        yield f"a resale value of {asked.resale:.0%} of what nodes are worth by their age"
    rate = asked.currency
    if rate.code != "USD" and is_stale(rate.date, asked.as_of, OLD_RATE_DAYS):
        yield f"an exchange rate of {rate.date or 'no date'}"


def is_fresh(asked: Portfolio, pool: SupplyPool) -> bool:
    """Whether a source gives the pool's price for the last year; nodes that are owned have none."""
    return pool.quote is None or not (pool.quote.assumed or is_stale(pool.quote.date, asked.as_of))


NINE_OF_TEN = 1.2816
"""Standard deviations above the mean that 90 % of a normal distribution lie below."""


def spot_risk(pools: Sequence[SupplyPool], plan: Plan, finish_day: float, often: float) -> SpotRisk | None:
    """The risk of a job on these pools; None where none of them is spot.

    Args:
        pools: That work on it, as hired.
        plan: Its plan, with the goodput that these pools leave.
        finish_day: Expected.
        often: Pre-emptions of a node a day, as assumed.
    """
    if all(pool.way != "spot" for pool in pools):
        return None
    stated = plan.money.goodput
    seconds = plan.money.days * DAY_S
    good = GoodputEstimate(
        stated.fraction, stated.mtbf_s, stated.checkpoint_interval_s, stated.checkpoint_blocks_s, stated.restart_s
    )
    late = NINE_OF_TEN * float(wall_time_deviation(seconds, good))
    usd = sum(pool.day_usd for pool in pools) * plan.money.days
    on_demand, even = _on_demand(pools[0], good, seconds) if len(pools) == 1 else (None, None)
    return SpotRisk(
        preemptions_per_node_day=often,
        interruptions=seconds / stated.mtbf_s,
        finish_90_day=finish_day + late / DAY_S,
        usd=usd,
        usd_90=usd * (1.0 + late / seconds),
        on_demand_usd=on_demand,
        break_even_per_node_day=even,
    )


def _on_demand(pool: SupplyPool, good: GoodputEstimate, seconds: float) -> tuple[float | None, float | None]:
    """Rent of the same nodes on demand, and the preemptions of a node a day at which spot costs as much.

    ``price_s / f(r) = price_d / f(0)``: both pay for the time that does not train.
    """
    if pool.on_demand_usd is None:
        return None, None
    count = pool.cluster.count
    failing = 1.0 / float(good.mtbf) - count * pool.preemptions_per_node_s
    undisturbed = at_best(1.0 / failing, good.blocks, good.restart).fraction
    on_demand_usd = float(rent(seconds * good.fraction / undisturbed, count, pool.on_demand_usd))
    share = float(undisturbed) * pool.day_usd / (24.0 * count * pool.on_demand_usd)
    rate = failure_rate(share, good.blocks, good.restart) if share < undisturbed else failing
    return on_demand_usd, max(0.0, float(rate) - failing) / count * DAY_S


HOURS_PER_MONTH = 8766.0 / 12


def break_evens(asked: Portfolio, pools: Sequence[SupplyPool]) -> tuple[BreakEven, ...]:
    """For every node type that is for sale, the cheapest rent of the same accelerator on demand, if any."""
    bought: dict[str, SupplyPool] = {}
    for pool in pools:
        if pool.way == "buy":
            held = bought.get(pool.node.id)
            if held is None or _each(pool) < _each(held):
                bought[pool.node.id] = pool
    compared = [(pool, _cheapest(pools, pool)) for pool in bought.values()]
    return tuple(_compared(asked, pool, rented) for pool, rented in compared if rented is not None)


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
