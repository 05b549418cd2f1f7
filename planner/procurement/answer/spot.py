"""What a job risks on machines that may be taken back: how late, how dear, and from when on demand is cheaper."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cost.goodput import GoodputEstimate, at_best, failure_rate, wall_time_deviation
from planner.cost.money import DAY_S, rent
from planner.procurement.supply.pools import SupplyPool
from planner.schema.plan import Plan
from planner.schema.procurement import SpotRisk

NINE_OF_TEN = 1.2816
"""Standard deviations above the mean that 90 % of a normal distribution lie below."""


def spot_risk(pools: Sequence[SupplyPool], plan: Plan, finish_day: float, often: float) -> SpotRisk | None:
    """Of a job on these pools; None where none of them is spot.

    Args:
        pools: That work on it, as hired.
        plan: Its plan, with the goodput that these pools leave.
        finish_day: Expected.
        often: Pre-emptions of a node a day, as assumed.
    """
    if all(pool.way != "spot" for pool in pools):
        return None
    stated, seconds = plan.money.goodput, plan.money.days * DAY_S
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
    there = float(rent(seconds * good.fraction / undisturbed, count, pool.on_demand_usd))
    share = float(undisturbed) * pool.day_usd / (24.0 * count * pool.on_demand_usd)
    rate = failure_rate(share, good.blocks, good.restart) if share < undisturbed else failing
    return there, max(0.0, float(rate) - failing) / count * DAY_S
