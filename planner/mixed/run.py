"""From a question about several pools to ranked, verified plans."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from planner import planning
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.mixed import reasons
from planner.mixed.answer import value_of
from planner.mixed.pool_subsets import Alone, FoundPlan, Searched, any_pipelines, identical_pipelines, steps_decide
from planner.question.job_pools import JobPool, Pools, merged
from planner.question.request import Request, preemptions, restart
from planner.schema.plan import Plan, PlanSet, SearchSection

METHODS = (
    "branch and bound over integer programs; each pool alone by lower bound",
    "all plans of identical pipelines; each pool alone by lower bound",
)
"""How plans are found: of any kinds, or of one only."""
Refused = list[tuple[str, ClusterwrightError]]
"""Pools without a plan, and why."""
Singles = tuple[list[Alone], Refused]
"""The best plan of every pool by itself, and why others have none."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and what it was made from where it is over several pools."""

    found: PlanSet
    first: FoundPlan | None = None
    """The best of its plans."""
    singles: Singles | None = None


def plan(catalog: Catalog, request: Request, offered: Pools, progress: planning.Progress | None = None) -> PlanSet:
    """Searches which of the pools to use and how, against each pool alone, and returns the best plans, verified.

    Pools without nodes are as if absent, pools that are alike are one; where one is left, this is
    :func:`planner.planning.plan`.

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    return answered(catalog, request, offered, progress).found


def answered(
    catalog: Catalog,
    request: Request,
    offered: Pools,
    progress: planning.Progress | None = None,
    singles: Singles | None = None,
) -> Answered:
    """The same with what it was made from; `singles` are those of :func:`alone` where they are known.

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    pools = Pools(merged(offered.all, {name for pair in offered.given for name in pair}), offered.given)
    if not pools.all:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    if len(pools.all) == 1:
        return Answered(planning.plan(catalog, _on_one(request, pools.all[0], whole=True), progress))
    request = replace(request, weighs_own_runs=False)
    started, cpu = time.perf_counter(), time.process_time()
    singles = singles or alone(catalog, request, pools.all)
    single, errors = singles
    refused = [f"{name} alone: {str(error).splitlines()[0]}" for name, error in errors]
    with progress("search", None) if progress else nullcontext() as advance:
        searched = [_searched(catalog, request, pools, batch, single, advance) for batch in request.batches]
    one = [FoundPlan(value, each) for value, each, _ in single]
    found = one + [each for s in searched for each in s.plans if _adds(each, one)]
    if not found:
        wrong = [error for s in searched for _, error in s.errors]
        if wrong and all(isinstance(error, WrongQuestion) for error in (*wrong, *(e for _, e in errors))):
            raise WrongQuestion("\n".join([str(wrong[0]), *refused]))
        raise NoAnswer(reasons.nothing(request, pools, refused))
    ranked = sorted(found, key=lambda each: each.value)[: request.top]
    plans = tuple(replace(each.plan, rank=rank) for rank, each in enumerate(ranked, 1))
    for each in plans:
        planning.second_opinion(each)
    gap = max(s.gap for s in searched)
    kinds, sections = sum(s.kinds for s in searched), [each for _, _, each in single]
    answer = PlanSet(
        search=SearchSection(
            candidates=kinds + sum(each.candidates for each in sections),
            feasible=kinds + sum(each.feasible for each in sections),
            costed=kinds + sum(each.costed for each in sections),
            proven_optimal=gap == 0.0,
            method=METHODS[request.launchable],
            objective=request.objective,
            near_duplicates=1,
            gap=gap,
        ),
        plans=plans,
        reasons=reasons.reasons(request, pools, plans, refused, searched),
        front=(),
        meta={
            "wall_s": round(time.perf_counter() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "host": platform.machine(),
        },
    )
    return Answered(answer, ranked[0], singles)


def _searched(catalog: Catalog, request: Request, pools: Pools, batch: int, alone: Sequence[Alone],
              advance: object) -> Searched:  # fmt: skip
    if request.launchable:
        return identical_pipelines(catalog, request, pools, batch, advance)
    return any_pipelines(catalog, request, pools, batch, alone, advance)


def _on_one(request: Request, pool: JobPool, *, whole: bool) -> Request:
    """The same question on one pool: all of it, or (where fewer nodes may be better) doublings up to it."""
    count = pool.count
    counts = (count,) if whole else tuple(sorted({2**i for i in range(count.bit_length()) if 2**i <= count} | {count}))
    return replace(
        request,
        cluster=pool.cluster,
        counts=counts,
        price=pool.price,
        sold_as=pool.sold_as,
        restart_s=restart(request, pool),
        preemptions_per_node_s=preemptions(request, pool),
    )


def _adds(found: FoundPlan, alone: Sequence[FoundPlan]) -> bool:
    """Whether a plan is over several pools, or better than what the search of its one pool found."""
    pools = found.plan.cluster.pools
    same = [known.value for known in alone if known.plan.cluster.pools[0].node == pools[0].node]
    return len(pools) > 1 or found.value < min(same, default=float("inf")) * (1.0 - 1e-9)


def alone(catalog: Catalog, request: Request, each: Sequence[JobPool]) -> Singles:
    """The best plan of every pool by itself, from the search of one cluster; and why others have none."""
    found: list[Alone] = []
    refused: Refused = []
    limited = request.deadline_s is not None or request.max_cost_usd is not None
    whole = request.objective == "time" and not limited and steps_decide(request, each)
    known: list[tuple[Request, Plan, SearchSection]] = []
    for pool in each:
        asked = replace(_on_one(request, pool, whole=whole), weighs_own_runs=False)
        same = next(((plan, how) for other, plan, how in known if other == asked), None)
        try:
            best, how = same or planning.best(catalog, asked)
        except ClusterwrightError as error:
            refused.append((pool.name, error))
            continue
        known.append((asked, best, how))
        found.append((value_of(request, best), _in_zone(best, pool), how))
    return found, refused


def _in_zone(each: Plan, pool: JobPool) -> Plan:
    """A plan of one pool that says in which zone it stands."""
    (stands,) = each.cluster.pools
    return replace(each, cluster=replace(each.cluster, pools=(replace(stands, zone=pool.zone),)))
