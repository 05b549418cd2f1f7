"""Re-derives whether every training plan of a procurement is for the nodes that its pools have.

Nothing here is shared with what made the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.plan import Plan
from planner.schema.procurement import Alternative, JobDone, PoolBought, PoolGroup, ProcureOptions
from planner.verify.finding import same


def plans_fit_their_pools(question: ProcureOptions, a: Alternative) -> Iterator[str]:
    """A job's plan is for the nodes that its pool has, with their number; over several pools for some nodes of each,
    where the question lets them work together, with failures of all of them.
    """
    pools = {pool.id: pool for pool in a.pools}
    for job in a.workloads:
        yield from (f"{job.name} runs on {name}, which is not come by" for name in job.pools if name not in pools)
        mine = [pools[name] for name in job.pools if name in pools]
        planned = job.plan.cluster.pools
        if len(job.pools) == 1 and [(x.node, x.count) for x in planned] != [(x.node, x.count) for x in mine]:
            yield f"{job.name}: its plan is for other nodes than {job.pools[0]}"
        if len(job.pools) > 1:
            yield from _planned_together(question, job, mine)


def _planned_together(question: ProcureOptions, job: JobDone, mine: list[PoolBought]) -> Iterator[str]:
    planned = job.plan.cluster.pools
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
    tables = [table for table in tables if _linked(table, job)]
    if not tables:
        yield f"{job.name}: its plan has other links than the question"
    elif all(table.pipelines == "identical" for table in tables):
        yield from (f"{job.name}: {why}, but launchers need identical pipelines" for why in _not_identical(job.plan))


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


def _linked(table: PoolGroup, job: JobDone) -> bool:
    """Whether all links of a plan are as a table gives them."""
    wanted = [(table.link_bytes_per_s, "bytes_per_s"), (table.link_latency_s, "latency_s")]
    return all(
        figure is None or same(getattr(link, name), figure)
        for link in job.plan.cluster.links
        for figure, name in wanted
    )


CHECKS = (plans_fit_their_pools,)
