"""Whether the pools of a plan stay the best choice under other software: by bounds alone, without a search."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.errors import ClusterwrightError
from planner.catalog import Catalog
from planner.cost import money
from planner.mixed import releases, search
from planner.mixed.pool_subsets import Alone, FoundPlan, PreparedCache, pool_sets, steps_decide
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request
from planner.schema.plan import Plan

LEAST = 0.01
"""Difference of the objective from which on a choice counts as another: the search's own gap."""


def unbeaten(catalog: Catalog, request: Request, offered: Pools, first: FoundPlan, alone: Sequence[Alone]) -> bool:
    """Whether no other pools are better by :data:`LEAST` than those of a plan, under another question's software.

    Its own pools reach what the plan itself does, priced again, or the best plan of the one pool that it stands on. No
    other set of pools is better than its relaxation without failures, nor than the best plan of one pool.

    Args:
        catalog: Records and measurements.
        request: The other question.
        offered: Its pools and links.
        first: The plan, found under the first question.
        alone: The best plan of every pool by itself under the other question.

    Returns:
        False where these bounds leave it open.
    """
    if request.objective == "energy" or not steps_decide(request, offered.all):
        return False
    enough = _enough(catalog, request, offered, first, alone)
    if enough is None or any(value < enough for value, plan, _ in alone if where(plan) != where(first.plan)):
        return False
    others = [
        part for part in pool_sets(offered.all) if {(p.cluster.node.id, p.zone) for p in part} != where(first.plan)
    ]
    kept = [PreparedCache(catalog, request, offered, batch) for batch in request.batches]
    return all(_beyond(cache, part, _of_a_step(request, enough, cache.batch)) for cache in kept for part in others)


def where(plan: Plan) -> set[tuple[str, str]]:
    """The pools that a plan uses: node and zone of each."""
    return {(pool.node, pool.zone or "") for pool in plan.cluster.pools}


def _enough(
    catalog: Catalog, request: Request, offered: Pools, first: FoundPlan, alone: Sequence[Alone]
) -> float | None:
    """An objective from which on other pools are no better choice: over several pools the search ends within a gap of
    the best, and what it finds may lie that much above the plan priced again.
    """
    if first.made is None:
        own = [value for value, plan, _ in alone if where(plan) == where(first.plan)]
        return min(own) / (1.0 + LEAST) if own else None
    prepared, found = first.made
    longer = releases.under(catalog, prepared, found, request, offered) / found.time
    return first.value * longer * (1.0 + LEAST) if _keeps_limits(request, first.plan, longer) else None


def _keeps_limits(request: Request, plan: Plan, longer: float) -> bool:
    """Whether a plan whose steps take that many times as long keeps the deadline and the budget."""
    days, dollars = plan.money.days * longer, (plan.money.usd_total or 0.0) * longer
    in_time = request.deadline_s is None or days * money.DAY_S <= request.deadline_s
    return in_time and (request.max_cost_usd is None or dollars <= request.max_cost_usd)


def _of_a_step(request: Request, value: float, batch: int) -> float:
    """The same in the search's terms: a step's seconds, or those times the dollars an hour of all nodes."""
    each = money.DAY_S if request.objective == "time" else money.HOUR_S
    return value * each / float(money.steps(request.workload.tokens, batch, request.workload.sequence))


def _beyond(kept: PreparedCache, part: Sequence[JobPool], value: float) -> bool:
    """Whether nothing on all of these pools is below a value; what cannot work together is not."""
    try:
        prepared, exact = kept.prepared(part)
    except ClusterwrightError:
        return True
    return search.beyond(prepared.setting, value, exact)
