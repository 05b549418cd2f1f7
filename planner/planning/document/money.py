"""What the whole run takes, as sections of a plan's document: days, goodput, dollars, joules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.cost import money
from planner.cost.goodput import GoodputEstimate, PoolFailures, basis, joint_goodput, wall_time
from planner.planning.document.solution import PoolInUse, Solution
from planner.question.job_pools import JobPool
from planner.question.node_prices import MarketPrice
from planner.question.request import goodput_over
from planner.schema import plan as schema


def goodput_of(solution: Solution) -> GoodputEstimate:
    """Share of time that trains on the nodes in use of all pools; its fraction is 0 where the job gets nowhere."""
    return goodput_over(solution.request, [(each.pool, float(each.nodes)) for each in solution.pools])


def money_section(solution: Solution) -> schema.Money:
    """Days and dollars for all tokens; dollars only where every pool in use has a price."""
    good = goodput_of(solution)
    workload = solution.request.workload
    steps = money.steps(workload.tokens, solution.configuration.batch.global_, workload.sequence)
    seconds = float(wall_time(solution.step_time, steps, good.fraction))
    prices = tuple(price for each in solution.pools if (price := price_section(each.pool)) is not None)
    paid = list(zip(solution.pools, prices, strict=True)) if len(prices) == len(solution.pools) else []
    total = float(sum(money.rent(seconds, used.nodes, price.usd_per_hour) for used, price in paid)) if paid else None
    return schema.Money(
        days=seconds / money.DAY_S,
        steps=steps,
        usd_per_hour=sum(used.nodes * price.usd_per_hour for used, price in paid) if paid else None,
        usd_total=total,
        tokens_per_usd=workload.tokens / total if total else None,
        price=prices[0] if paid else None,
        goodput=_goodput_section(good),
        prices=prices if paid and solution.heterogeneous else (),
    )


def price_section(pool: JobPool) -> schema.PriceUsed | None:
    """The price of a node of a pool; None where it is not known."""
    if pool.price is None:
        return None
    return schema.PriceUsed(
        node=pool.sold_as,
        basis=pool.price.basis,
        usd_per_hour=pool.price.usd,
        region=pool.price.region,
        date=pool.price.date,
        source=pool.price.source,
        assumed=pool.price.assumed,
        offers=pool.price.offers if isinstance(pool.price, MarketPrice) else None,
    )


def _goodput_section(good: GoodputEstimate) -> schema.Goodput:
    return schema.Goodput(
        fraction=float(good.fraction),
        mtbf_s=float(good.mtbf),
        checkpoint_interval_s=float(good.interval),
        checkpoint_blocks_s=float(good.blocks),
        restart_s=float(good.restart),
        basis=basis(float(good.restart)),
    )


def energy_section(solution: Solution, seconds: float) -> schema.Energy:
    """Electricity of so many seconds, in the first pool's region; unknown without it, or without a node's power."""
    first = solution.pools[0].pool.cluster
    region = first.region
    share = first.utilisation_of_peak_power
    missing = [each.pool.name for each in solution.pools if each.pool.cluster.node.max_power is None]
    if missing or region is None:
        lacking = f"the power of {', '.join(missing)}" if solution.heterogeneous else "the node's power"
        what = lacking if missing else "a region (--region)"
        return schema.Energy(power_w=None, energy_j=None, usd=None, carbon_kg=None, basis=f"not known: {what}")
    watts = float(sum(_power(each, region.pue) for each in solution.pools))
    joules = watts * seconds
    whose = "each node's" if solution.heterogeneous else "the node's"
    return schema.Energy(
        power_w=watts,
        energy_j=joules,
        usd=float(money.electricity(joules, region.electricity)),
        carbon_kg=float(money.carbon(joules, region.carbon)),
        basis=f"{100 * share:.0f} % of {whose} maximum power, PUE {region.pue:g}, {region.id}",
    )


def _power(used: PoolInUse, pue: float) -> float:
    """Watts of a pool's nodes in use, at the facility."""
    cluster = used.pool.cluster
    return float(money.power(used.nodes, cluster.node.max_power, cluster.utilisation_of_peak_power, pue))


# ---- the same plan for another run -----------------------------------------------------------------------------------


def for_another_run(plan: schema.Plan, tokens: float, restarts: Sequence[float],
                    preemptions: Sequence[float]) -> schema.Plan:  # fmt: skip
    """The same plan for another number of tokens, and for pools that interrupt it otherwise: a step takes as long, the
    whole run does not.

    Args:
        plan: The plan.
        tokens: To train on.
        restarts: Seconds until the job goes on, after an interruption of each of the plan's pools.
        preemptions: How often the owner takes a node of each pool back, per second.
    """
    run = plan.money
    known = plan.money.goodput
    pools = plan.cluster.pools
    failures = [
        PoolFailures(float(pool.count * pool.accelerators_per_node), pool.count * often, restart)
        for pool, restart, often in zip(pools, restarts, preemptions, strict=True)
    ]
    good = joint_goodput(failures, known.checkpoint_blocks_s)
    steps = money.steps(tokens, plan.batch.global_, plan.workload.sequence)
    days = float(wall_time(plan.prediction.step_time_s, steps, good.fraction)) / money.DAY_S
    total = None if run.usd_per_hour is None else run.usd_per_hour * 24.0 * days
    own = [
        replace(pool, preemptions_per_node_s=often or None, restart_s=restart if len(set(restarts)) > 1 else None)
        for pool, restart, often in zip(pools, restarts, preemptions, strict=True)
    ]
    return replace(
        plan,
        workload=replace(plan.workload, tokens=tokens),
        cluster=replace(plan.cluster, pools=tuple(own)),
        money=replace(
            run,
            days=days,
            steps=steps,
            usd_total=total,
            tokens_per_usd=tokens / total if total else None,
            goodput=_goodput_section(good),
        ),
        energy=_lasting(plan.energy, days / run.days),
    )


def _lasting(energy: schema.Energy, longer: float) -> schema.Energy:
    """The energy of a run that takes `longer` times as long."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * longer

    return replace(energy, energy_j=scaled(energy.energy_j), usd=scaled(energy.usd), carbon_kg=scaled(energy.carbon_kg))
