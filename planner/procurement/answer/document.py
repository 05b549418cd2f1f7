"""From a solution to the alternative that leaves the program: its calendar, plans, pools and constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.catalog.ages import is_stale
from planner.cost import money
from planner.procurement.answer.bill import CAPITAL, billed, costs, offers_of
from planner.procurement.answer.money_risks import rests_on, spot_risk
from planner.procurement.program.calendar import dated, most_in_a_month
from planner.procurement.program.instance import ProcureInstance, ProgramSolution, ScheduledStretch, limits
from planner.procurement.program.job_order import EPS
from planner.procurement.supply import prices
from planner.procurement.supply.pools import SupplyPool, node_power
from planner.procurement.throughput.column import Place
from planner.procurement.throughput.job_days import Throughputs
from planner.question.node_prices import AgedPrice
from planner.schema import procurement as schema
from planner.schema.plan import Constraint
from planner.schema.rl import RLPlan

NEAR = 0.02
"""A limit binds when less than this share of it is left."""
POOL_FIELDS = (
    *("id", "way", "offer", "spares", "wiring", "start_day", "sold_usd", "month_usd", "held_days", "day_usd"),
    *("colocated", "load", "pue", "racks", "switch_ports"),
)
"""What a document says of a pool by the name that the pool itself has for it."""
UNITS = {"time": "d", "cost": "USD", "tokens-per-dollar": "tokens/USD", "tokens": "tokens", "carbon": "kg"}
SCALES = {"tokens-per-dollar": -1e6, "tokens": -1e6}
"""What a program's value is multiplied by where it minimises millions of tokens, negative; 1 elsewhere."""


def alternative(
    instance: ProcureInstance, speeds: Throughputs, solution: ProgramSolution, rank: int
) -> schema.Alternative:
    """Everything that is known of one answer."""
    instance = dated(instance, solution)
    stretches = solution.calendar
    used = solution.pools
    bill = tuple(line for p in used for line in billed(instance, solution, p, stretches))
    cost = costs(instance, solution, bill, stretches)
    done = tuple(_job(instance, speeds, solution, j, stretches) for j in sorted(solution.run))
    pools = tuple(_pool(instance, solution, p, stretches) for p in used)
    tokens = sum(job.tokens_per_s * _worked(job) * money.DAY_S for job in done)
    use = _use(instance, solution, bill, stretches)
    peak = sum(_peak(instance.pools[p]) * n for p, n in solution.hold.items() if instance.pools[p].way == "buy")
    return schema.Alternative(
        rank=rank,
        what=what(instance, solution),
        value=value(instance, cost.total_usd, use["carbon"], tokens, max(job.finish_day for job in done)),
        bill_of_materials=bill,
        cost=cost,
        power_w=use["power"],
        racks=sum(instance.pools[p].racks * n for p, n in solution.hold.items()),
        carbon_kg=use["carbon"],
        tokens_per_usd=tokens / cost.total_usd if cost.total_usd else None,
        usd_per_peak_pflops=cost.capital_usd / (peak / 1e15) if peak else None,
        done_day=max(job.finish_day for job in done),
        pools=pools,
        workloads=done,
        constraints=tuple(_constraints(instance, use, done)),
        rests_on=tuple(rests_on(instance.asked, [instance.pools[p] for p in used])),
    )


def _worked(job: schema.JobDone) -> float:
    """Days on which a job makes progress: those of any one of its pools, without its restarts."""
    return sum(s.end_day - s.start_day for s in job.schedule if s.pool == job.pools[0]) - job.pauses * job.restart_days


def value(instance: ProcureInstance, cost: float, carbon: float, tokens: float, done: float) -> float:
    """The objective's value; larger is better for tokens, in all or per dollar."""
    ratio = tokens / cost if cost else math.inf
    values = {"cost": cost, "carbon": carbon, "time": done, "tokens": tokens, "tokens-per-dollar": ratio}
    return values[instance.asked.objective]


def what(instance: ProcureInstance, solution: ProgramSolution) -> str:
    """The answer in a few words: ``buy 4 dgx-h200, rent 8 p5 (spot)``."""
    parts = []
    on_own_nodes = [s for s in solution.calendar if instance.pools[s.pool].way == "own"]
    for node in dict.fromkeys(instance.pools[s.pool].node.id for s in sorted(on_own_nodes, key=lambda s: s.pool)):
        most = _at_a_time(instance.pools, [s for s in on_own_nodes if instance.pools[s.pool].node.id == node])
        parts.append(f"use {most:.0f} {node}")
    for p in solution.pools:
        pool = instance.pools[p]
        if pool.way == "own":
            continue
        copies = solution.hold.get(p) or solution.jobs_on(p)
        times = f"{copies} x " if copies > 1 and not pool.hired else ""
        jobs = f" for {copies} jobs" if copies > 1 and pool.hired else ""
        verb = "buy" if pool.way == "buy" else "rent"
        how = "" if pool.way in ("buy", "on-demand") else f" {pool.way}"
        spare = f" (+{pool.spares} spare)" if pool.spares else ""
        terms = round(pool.term_days / prices.TERM_DAYS.get(pool.way, math.inf))
        term = f" for {terms} terms" if terms > 1 else ""
        start = f" from day {solution.starts[p]:.0f}" if p in solution.starts else ""
        days = solution.starts.get(p, pool.start_day) + pool.held_days
        sold = f" (sold on day {days:.0f})" if pool.sold_usd is not None else ""
        parts.append(f"{verb} {times}{pool.cluster.count} {pool.node.id}{how}{spare}{jobs}{term}{start}{sold}")
    return ", ".join(parts)


# ---- jobs, pools, limits ---------------------------------------------------------------------------------------------


def _job(
    instance: ProcureInstance,
    speeds: Throughputs,
    solution: ProgramSolution,
    j: int,
    stretches: Sequence[ScheduledStretch],
) -> schema.JobDone:
    job = instance.jobs[j]
    place = solution.run[j]
    column = next(c for c in instance.columns if (c.job, c.place) == (j, instance.as_offered(place)))
    mine = [s for s in stretches if s.job == j]
    end = solution.finish(j)
    start = mine[0].start
    pauses = sum(s.pool == place[0] for s in mine) - 1
    tokens = job.tokens
    days = column.days
    if instance.asked.objective == "tokens":  # what is asked of the job is the least that it sees
        days = sum(s.end - s.start for s in mine if s.pool == place[0]) - pauses * job.restart_days
        tokens = column.tokens_per_s * days * money.DAY_S
    plan = speeds.plan(column, tokens)
    rl = None
    if isinstance(plan, RLPlan):
        times = tokens / job.tokens
        rl = replace(plan, days=times * plan.days, usd=None if plan.usd is None else times * plan.usd)
        ends = (plan.step_low_s / plan.step_s, plan.step_high_s / plan.step_s)
        risk = None
    else:
        interval = plan.prediction.intervals["step_time_s"]
        ends = (interval.low / plan.prediction.step_time_s, interval.high / plan.prediction.step_time_s)
        often = instance.asked.reliability.preemptions_per_node_day
        risk = spot_risk([instance.pools[p] for p in place], plan, end, often)
    done = schema.JobDone(
        name=job.name,
        model=job.model_name if isinstance(plan, RLPlan) else plan.workload.model,
        tokens=tokens,
        days=days,
        tokens_per_s=column.tokens_per_s,
        release_day=job.release_day,
        deadline_day=job.deadline_day,
        finish_day=end,
        finish_low=start + (end - start) * ends[0],
        finish_high=start + (end - start) * ends[1],
        pools=tuple(instance.pools[p].id for p in place),
        interruptible=job.interruptible,
        restart_days=job.restart_days if job.interruptible else 0.0,
        pauses=pauses,
        schedule=tuple(
            schema.Stretch(pool=instance.pools[s.pool].id, copy=s.copy, start_day=s.start, end_day=s.end) for s in mine
        ),
        plan=None if isinstance(plan, RLPlan) else plan,
        post_training=rl,
        spot=risk,
        survives=_survives(instance, j, place),
    )
    # A job that takes all days for more tokens is never late: it sees fewer.
    return done if instance.asked.objective == "tokens" else replace(done, late_chance=done.chance_late())


def _survives(instance: ProcureInstance, j: int, place: Place) -> schema.Survives | None:
    survival = instance.survivals.get((j, place))
    asked = instance.asked.reliability
    if survival is None or asked.survive is None:
        return None
    return schema.Survives(
        lost_nodes=asked.survive,
        repair_days=asked.repair_days,
        tokens_per_s=survival.tokens_per_s,
        restart_days=max(instance.pools[p].restart_s for p in place) / money.DAY_S,
        days=survival.days,
    )


def _pool(
    instance: ProcureInstance, solution: ProgramSolution, p: int, stretches: Sequence[ScheduledStretch]
) -> schema.PoolBought:
    pool = instance.pools[p]
    asked = instance.asked
    region = pool.cluster.region
    quote = pool.quote
    copies = solution.hold.get(p) or solution.jobs_on(p)
    mine = [s for s in stretches if s.pool == p]
    days = (min(asked.horizon_days, pool.end_day) - pool.start_day) * copies
    if pool.hired:
        days = sum(s.end - s.start for s in mine)
    return schema.PoolBought(
        **{name: getattr(pool, name) for name in POOL_FIELDS},
        node=pool.node.id,
        count=pool.cluster.count,
        copies=copies,
        accelerators=pool.cluster.accelerators * copies,
        region=region.id if region else "",
        end_day=None if math.isinf(pool.end_day) else pool.end_day,
        power_w=pool.power,
        node_power_w=node_power(pool.node, pool.cluster),
        network_power_w=pool.network_power,
        usd_per_kwh=region.electricity if region else 0.0,
        grams_per_kwh=region.carbon if region else 0.0,
        utilisation=sum(s.end - s.start for s in mine) / days if days > 0 else 0.0,
        price_date=quote.date if quote else "",
        stale=quote is not None and is_stale(quote.date, asked.as_of),
        offers=offers_of(pool),
        price_spread=quote.spread if isinstance(quote, AgedPrice) else None,
    )


def _peak(pool: SupplyPool) -> float:
    peak = pool.cluster.accelerator.peak
    return (max(peak.get("bf16", 0.0), peak.get("fp16", 0.0)) or peak.get("fp32", 0.0)) * pool.cluster.accelerators


def _use(
    instance: ProcureInstance,
    solution: ProgramSolution,
    bill: Sequence[schema.Line],
    stretches: Sequence[ScheduledStretch],
) -> dict[str, float]:
    """What every limit limits, from the bill and the calendar."""
    pools, hold = instance.pools, solution.hold
    use = {
        "budget": round(sum(line.usd for line in bill), 2),
        "capital": round(sum(line.usd for line in bill if line.kind in CAPITAL), 2),
        "monthly": most_in_a_month(instance, solution),
        "power": sum(pools[p].power * n for p, n in hold.items() if pools[p].held) + _own_power(pools, stretches),
        "racks": sum(pools[p].racks * n for p, n in hold.items()) + instance.standing.get("racks", 0.0),
        "switch_ports": sum(pools[p].switch_ports * n for p, n in hold.items())
        + instance.standing.get("switch_ports", 0.0),
        "carbon": sum(pools[s.pool].day_kg * (s.end - s.start) for s in stretches),
    }
    for limit in limits(instance.asked, pools):
        if limit.name.startswith("quantity:"):
            use[limit.name] = _nodes(pools, hold, stretches, limit.name.partition(":")[2])
    return use


def _own_power(pools: Sequence[SupplyPool], stretches: Sequence[ScheduledStretch]) -> float:
    """Watts of the most owned nodes that ever work at a time."""
    node_watts = {pool.node.id: pool.power / pool.nodes for pool in pools if pool.way == "own"}
    return sum(
        watts
        * _at_a_time(pools, [s for s in stretches if pools[s.pool].way == "own" and pools[s.pool].node.id == node])
        for node, watts in node_watts.items()
    )


def _nodes(
    pools: Sequence[SupplyPool], hold: Mapping[int, int], stretches: Sequence[ScheduledStretch], offer: str
) -> float:
    """Nodes of an offer that are held, and the most that are hired at a time."""
    held = sum(pools[p].nodes * n for p, n in hold.items() if pools[p].offer == offer and pools[p].held)
    return held + _at_a_time(pools, [s for s in stretches if pools[s.pool].hired and pools[s.pool].offer == offer])


def _at_a_time(pools: Sequence[SupplyPool], stretches: Sequence[ScheduledStretch]) -> float:
    """The most nodes that these take at a time."""
    together = (sum(pools[x.pool].nodes for x in stretches if x.start <= s.start + EPS < x.end) for s in stretches)
    return float(max(together, default=0))


def _constraints(instance: ProcureInstance, use: dict[str, float], done: Sequence[schema.JobDone]) -> list[Constraint]:
    constraints = []
    finished = {f"deadline:{job.name}": job.finish_day for job in done} | {"horizon": max(x.finish_day for x in done)}
    for limit in limits(instance.asked, instance.pools):
        reached = use[limit.name] if limit.name in use else finished[limit.name]
        slack = limit.value - reached
        constraints.append(
            Constraint(
                name=limit.name,
                limit=limit.value,
                value=reached,
                slack=slack,
                binding=slack <= NEAR * limit.value,
                unit=limit.unit,
            )
        )
    return constraints
