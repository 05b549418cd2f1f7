"""Re-derives the calendar of every machine, and whether every training plan is for the nodes that its pools have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from planner.schema.plan import Plan
from planner.schema.procurement import Alternative, JobDone, PoolBought, PoolGroup, ProcureOptions
from planner.verify.bill import HIRED
from planner.verify.finding import same

CALENDAR = 1e-6
"""Days that a calendar may be off."""
TERMS = {"reserved-1y": 365.25, "reserved-3y": 3 * 365.25}
"""Days of a term."""
MONTH = 365.25 / 12
"""Days."""


def jobs_are_done(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """Every job once, on the pools it names, for the days that its plan takes, between release and deadline."""
    names = [job.name for job in a.workloads]
    if len(set(names)) < len(names):
        yield "a job appears twice"
    for job in a.workloads:
        worked = days_worked(job)
        if worked < job.days * (1 - 1e-6) - CALENDAR:
            yield f"{job.name} works {worked:.6g} days and takes {job.days:.6g}"
        if worked > job.days * (1 + 1e-6) + CALENDAR and question.objective != "tokens-per-dollar":
            yield f"{job.name} works {worked:.6g} days and takes {job.days:.6g}"
        pauses = len(_times(job, job.pools[0])) - 1
        if pauses != job.pauses:
            yield f"{job.name} is paused {pauses} times, not {job.pauses}"
        if pauses > 0 and not job.interruptible:
            yield f"{job.name} is paused, and may not be"
        if not same(job.tokens_per_s * job.days * 86400.0, job.tokens):
            yield f"{job.name}: {job.tokens_per_s:.9g} tokens/s are not {job.tokens:.6g} in {job.days:.9g} days"
        plan = job.plan
        if plan and (not same(job.days, plan.money.days) or not same(job.tokens, plan.workload.tokens)):
            yield f"{job.name}: its plan takes {plan.money.days:.9g} days for {plan.workload.tokens:.6g} tokens"
        if (plan is None) == (job.post_training is None):
            yield f"{job.name} has {'no plan' if plan is None else 'two plans'}"
        if job.post_training and job.days < job.post_training.days * (1 - 1e-6):
            yield f"{job.name} takes {job.days:.9g} days, its steps alone {job.post_training.days:.9g}"
        if abs(job.finish_day - max(s.end_day for s in job.schedule)) > CALENDAR:
            yield f"{job.name} is not done on day {job.finish_day:g}"
        if job.late_chance is not None and not math.isclose(job.late_chance, job.chance_late(), abs_tol=1e-6):
            yield f"{job.name} is late with a chance of {job.late_chance:.6g}, {job.chance_late():.6g} by its interval"
        if min(s.start_day for s in job.schedule) < job.release_day - CALENDAR:
            yield f"{job.name} starts before its release"
        if {s.pool for s in job.schedule} != set(job.pools):
            yield f"{job.name} runs on other pools than it names"


def deadlines_survive(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """``finish + repair (1 - slow / whole) + restart <= deadline`` for every job, where the question asks for it, and
    for the most that a job on the same machines is late; spares keep a job as fast, and nothing makes it faster.
    """
    spares = {pool.id: pool.spares for pool in a.pools}
    offers = _shared_offers(question, a)
    for job in a.workloads:
        lost = job.survives
        if (lost.lost_nodes if lost else None) != question.survive_nodes:
            yield f"{job.name} survives the loss of {lost.lost_nodes if lost else 0}, asked: {question.survive_nodes}"
        if lost is None:
            continue
        left = lost.tokens_per_s / job.tokens_per_s
        if not math.isclose(lost.days, lost.repair_days * (1 - left) + lost.restart_days, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{job.name} is late by {lost.days:.6g} days after a loss, which does not follow"
        spared = all(spares.get(name, 0) >= lost.lost_nodes for name in job.pools)
        if left > 1 + 1e-9 or (spared and left < 1 - 1e-9):
            yield f"{job.name} trains {left:.3g} times as fast with nodes lost"
        late = max(
            other.survives.days for other in a.workloads
            if other.survives and (other is job or offers[other.name] & offers[job.name])
        )  # fmt: skip
        if job.finish_day + late > job.deadline_day + CALENDAR:
            yield f"{job.name} is done on day {job.finish_day + late:.6g} after a loss, due {job.deadline_day:.6g}"


def _shared_offers(question: ProcureOptions, a: Alternative) -> dict[str, set[str]]:
    """Job -> what it may share with others: pools that are held, offers of few nodes."""
    pools = {pool.id: pool for pool in a.pools}
    by_offer = {}
    for job in a.workloads:
        mine = [pools[name] for name in job.pools if name in pools]
        by_offer[job.name] = {pool.id for pool in mine if pool.way not in HIRED} | {
            pool.offer for pool in mine if pool.way == "own" or f"quantity:{pool.offer}" in question.limits
        }
    return by_offer


def days_worked(job: JobDone) -> float:
    """Days on which a job makes progress: those of any one of its pools, without its restarts."""
    return sum(s.end_day - s.start_day for s in job.schedule if s.pool == job.pools[0]) - job.pauses * job.restart_days


def machines_do_one_thing_at_a_time(_: ProcureOptions, a: Alternative) -> Iterator[str]:
    """On a copy of a held pool no two stretches overlap; no job is on two copies of a pool; all pools of a job work on
    it at the same times, and within their own time.
    """
    pools = {pool.id: pool for pool in a.pools}
    by_copy: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for job in a.workloads:
        worked = {name: _times(job, name) for name in job.pools}
        for name in job.pools:
            yield from _apart(job.name, worked[name])
        for name in job.pools[1:]:
            if not _same_times(worked[name], worked[job.pools[0]]):
                yield f"{job.name} is on {name} and on {job.pools[0]} at different times"
        for s in job.schedule:
            pool = pools[s.pool]
            if s.start_day < pool.start_day - CALENDAR or (pool.end_day or math.inf) < s.end_day - CALENDAR:
                yield f"{job.name} is on {pool.id} when it is not there"
            if s.copy >= pool.copies:
                yield f"{job.name} is on copy {s.copy + 1} of {pool.id}, of which there are {pool.copies}"
            if pool.way not in HIRED:
                by_copy.setdefault((s.pool, s.copy), []).append((s.start_day, s.end_day))
    for (name, copy), times in by_copy.items():
        yield from _apart(f"copy {copy + 1} of {name}", times)


def pools_are_there_as_long_as_is_paid(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """What is bought is held from its first day to the horizon, or for whole months and sold within it; what is
    reserved, for whole terms.
    """
    for pool in a.pools:
        if pool.sold_usd is not None:
            yield from _sold(question, pool)
        elif pool.way == "buy" and abs(pool.start_day + pool.held_days - question.horizon_days) > CALENDAR:
            yield f"{pool.id} is there from day {pool.start_day:g}, and paid for {pool.held_days:g} days"
        if pool.way in TERMS:
            if pool.end_day is None or abs(pool.start_day + pool.held_days - pool.end_day) > CALENDAR:
                yield f"{pool.id} is paid for {pool.held_days:g} days from day {pool.start_day:g}, and ends otherwise"
            terms = pool.held_days / TERMS[pool.way]
            if terms < 1 - 1e-9 or abs(terms - round(terms)) > 1e-9:
                yield f"{pool.id} is paid for {terms:g} terms"


def _sold(question: ProcureOptions, pool: PoolBought) -> Iterator[str]:
    if pool.way != "buy" or question.resale is None:
        yield f"{pool.id} is sold, and {'not bought' if pool.way != 'buy' else 'the question sells nothing'}"
    if pool.end_day is None or abs(pool.start_day + pool.held_days - pool.end_day) > CALENDAR:
        yield f"{pool.id} is paid for {pool.held_days:g} days from day {pool.start_day:g}, and sold otherwise"
    months = pool.held_days / MONTH
    left = question.horizon_days - pool.start_day - pool.held_days
    if abs(left) > CALENDAR and (months < 1 - 1e-9 or abs(months - round(months)) > 1e-9):
        yield f"{pool.id} is sold after {months:g} months"
    if left < -CALENDAR:
        yield f"{pool.id} is sold after the horizon of {question.horizon_days:g} days"


def _times(job: JobDone, pool: str) -> list[tuple[float, float]]:
    """When a job is on a pool; stretches without a break between them as one."""
    times: list[tuple[float, float]] = []
    for start, end in sorted((s.start_day, s.end_day) for s in job.schedule if s.pool == pool):
        if times and abs(times[-1][1] - start) <= CALENDAR:
            times[-1] = (times[-1][0], end)
        else:
            times.append((start, end))
    return times


def _same_times(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> bool:
    return len(one) == len(other) and all(
        abs(a - c) <= 2 * CALENDAR and abs(b - d) <= 2 * CALENDAR for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _apart(what: str, times: list[tuple[float, float]]) -> Iterator[str]:
    ordered = sorted(times)
    for (_, end), (start, _) in pairwise(ordered):
        if start < end - CALENDAR:
            yield f"{what} does two things on day {start:.4g}"


CHECKS = (jobs_are_done, deadlines_survive, machines_do_one_thing_at_a_time, pools_are_there_as_long_as_is_paid)


def plans_fit_their_pools(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """A job's plan is for the nodes that its pool has, with their number; over several pools for some nodes of each,
    where the question lets them work together, with failures of all of them.
    """
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        yield from (f"{job.name} runs on {name}, which is not come by" for name in job.pools if name not in pools)
        mine = [pools[name] for name in job.pools if name in pools]
        if job.plan is None:
            yield from _post_trained(job, mine)
            continue
        planned = job.plan.cluster.pools
        if len(job.pools) == 1 and [(x.node, x.count) for x in planned] != [(x.node, x.count) for x in mine]:
            yield f"{job.name}: its plan is for other nodes than {job.pools[0]}"
        if len(job.pools) > 1:
            yield from _planned_together(question, job, job.plan, mine)


def _post_trained(job: JobDone, mine: list[PoolBought]) -> Iterator[str]:
    """A placement lies on one pool and takes no more accelerators than it has."""
    for plan in [job.post_training] if job.post_training else []:
        apart = 0 if plan.placement == "colocated" else sum(side.accelerators for side in plan.rollout)
        have = [pool.accelerators // max(pool.copies, 1) for pool in mine]
        if len(have) != 1 or plan.trainer.accelerators + apart > have[0]:
            yield f"{job.name}: its placement takes {plan.trainer.accelerators + apart} accelerators of {have}"


def _planned_together(question: ProcureOptions, job: JobDone, plan: Plan, mine: list[PoolBought]) -> Iterator[str]:
    planned = plan.cluster.pools
    if [x.node for x in planned] != [x.node for x in mine]:
        yield f"{job.name}: its plan is for other nodes than {' and '.join(job.pools)}"
        return
    for x, pool in zip(planned, mine, strict=True):
        if not 0 < x.count <= pool.count:
            yield f"{job.name}: its plan is for {x.count} nodes of {pool.id}, which has {pool.count}"
    tables = [
        table for table in question.mixed or ()
        if {pool.offer for pool in mine} <= set(table.pools)
        and (not table.workloads or job.name.partition("#")[0] in table.workloads)
    ]  # fmt: skip
    if not tables:
        yield f"{job.name} runs on {' and '.join(job.pools)} at once, which the question does not ask for"
        return
    tables = [table for table in tables if _linked(table, plan)]
    if not tables:
        yield f"{job.name}: its plan has other links than the question"
    elif all(table.pipelines == "identical" for table in tables):
        yield from (f"{job.name}: {why}, but launchers need identical pipelines" for why in _not_identical(plan))


def _not_identical(plan: Plan) -> Iterator[str]:
    """Why the pipelines of a plan are not identical ones that fill its nodes with whole micro-batches."""
    groups = plan.parallelism.groups or ()
    if len(groups) != 1:
        yield f"it has {len(groups)} groups of different pipelines"
        return
    (group,) = groups
    if len({(s.tp, s.cp, s.ep, s.recompute) for s in group.stages}) > 1:
        yield "its stages are parallelised differently"
    if group.sequences != group.copies * group.width * group.micro * group.micro_batches:
        yield "some micro-batches are smaller than others"
    for index, pool in enumerate(plan.cluster.pools):
        ranks = group.copies * group.width * sum(s.tp * s.cp for s in group.stages if s.pool == index)
        if ranks != pool.count * pool.accelerators_per_node:
            yield f"it takes {ranks:,} of the {pool.count * pool.accelerators_per_node:,} accelerators of {pool.node}"


def _linked(table: PoolGroup, plan: Plan) -> bool:
    """Whether all links of a plan are as a table gives them."""
    wanted = [(table.link_bytes_per_s, "bytes_per_s"), (table.link_latency_s, "latency_s")]
    return all(
        figure is None or same(getattr(link, name), figure) for link in plan.cluster.links for figure, name in wanted
    )


PLACEMENT_CHECKS = (plans_fit_their_pools,)
