"""From a question about several pools to ranked, verified plans with reasons: why the best is best, what it leaves out,
and what would help where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner import planning
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.base.progress import Clock, advancing
from planner.base.stopping import STOPPED, asked
from planner.base.units import format_percent
from planner.catalog import Catalog
from planner.mixed import alone_first, answer
from planner.mixed.answer import value_of
from planner.mixed.pool_subsets import (
    Alone,
    FoundPlan,
    Searched,
    any_pipelines,
    how_many,
    identical_pipelines,
    steps_decide,
)
from planner.planning import comparison
from planner.question.given import Progress
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request, preemptions, restart
from planner.schema.plan import Plan, PlanDifference, PlanSet, Reasons, SearchSection
from planner.schema.plan_machines import nodes_used
from planner.schema.plan_prediction import called


def reasons(request: Request, plans: Sequence[Plan], left_out: Sequence[str], refused: Sequence[str],
            differences: Sequence[PlanDifference]) -> Reasons:  # fmt: skip
    """What limits the first of `plans`, what it leaves of the pools, and how much worse the others are."""
    best = plans[0]
    why_not = [text for text in left_out if text]
    words = {"time": ("slower", "faster"), "energy": ("more energy", "less energy")}
    for other, difference in zip(plans[1:], differences, strict=True):
        interval = comparison.scaled(difference, value_of(request, other) / value_of(request, best))
        change = comparison.in_words(interval, *words.get(request.objective, ("dearer", "cheaper")))
        unlike = f" (in {other.precision}, #1 in {best.precision})" if other.precision != best.precision else ""
        why_not.append(f"#{other.rank} {' + '.join(nodes_used(other.cluster))}: {change}{unlike}")
    return Reasons(binds=_binds(best), gains={}, why_not=(*why_not, *refused))


def of_given(plan: Plan) -> Reasons:
    """What limits a plan that was given, not searched."""
    return Reasons(binds=_binds(plan), gains={}, why_not=())


def _binds(best: Plan) -> tuple[str, ...]:
    memory = best.prediction.memory
    parts = best.prediction.breakdown
    name = max(parts, key=lambda part: parts[part])
    largest = (f"{called(name)} ({format_percent(parts[name] / best.prediction.step_time_s, 0)} of the step)",)
    free = 1.0 - memory.total_bytes / memory.capacity_bytes
    left = f"{format_percent(free)} free" if free >= 0.0 else f"{format_percent(-free)} too little"
    scarce = f"memory of stage {memory.stage + 1} ({left})"
    return (scarce, *largest) if free < 0.05 else largest


def _apart(pool: JobPool, searched: Sequence[Searched]) -> str:
    """Why no set of several pools with this one could be searched; empty where one was."""
    if any(len(names) > 1 and pool.name in names for s in searched for names in s.done):
        return ""
    refused = [error for s in searched for names, error in s.errors if len(names) > 1 and pool.name in names]
    return str(refused[0]).splitlines()[0] if refused else ""


def _left_out(best: Plan, pool: JobPool, apart: str, fastest: Plan) -> str:
    """What the first plan leaves of a pool, in words; empty where it uses all of it."""
    node = pool.cluster.node.id
    named = f"{node}@{pool.zone}" if pool.zone else node
    used = sum(p.count for p in best.cluster.pools if p.node == node and p.zone == pool.zone)
    if used >= pool.count:
        return ""
    many = "all" if not used else f"{pool.count - used:,} of"
    otherwise = "they do not improve the best plan found"
    if len(fastest.cluster.pools) > len(best.cluster.pools):
        less = format_percent(1.0 - fastest.money.days / best.money.days)
        otherwise = (
            f"what they add ({less} of the time) is within the error of predictions, and costs more than it saves"
        )
    why = (not used and apart) or ("the search was stopped" if asked() else otherwise)
    return f"excluded: {many} {pool.count:,} x {named}: {why}"


METHODS = (
    "branch and bound over integer programs; each pool alone by lower bound",
    "all plans of identical pipelines; each pool alone by lower bound",
)
"""How plans are found: of any kinds, or of one only."""
Refused = list[tuple[str, ClusterwrightError]]
"""Pools without a plan, and why."""
Singles = tuple[list[Alone], Refused]
"""The best plan of every pool by itself, and why others have none."""
Starts = Callable[[Plan], bool]
"""Whether a launcher starts a plan as it is."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and what it was made from where it is over several pools."""

    found: PlanSet
    first: FoundPlan | None = None
    """The first of its plans."""
    singles: Singles | None = None
    is_simpler: bool = False
    """Whether the first is on one pool, and another over several is faster by less than anybody can tell."""


def plan(catalog: Catalog, request: Request, offered: Pools, progress: Progress | None = None) -> PlanSet:
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
    progress: Progress | None = None,
    singles: Singles | None = None,
    starts: Starts | None = None,
) -> Answered:
    """The answer with what it was made from; `singles` are the plans of :func:`alone` where they are known.

    Where `starts` says that no launcher starts the best plan, and the question leaves it open, those that one starts
    are the answer, with the gain of the best.

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    pools = offered.merged()
    if not pools.all:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    if len(pools.all) == 1:
        return Answered(planning.plan(catalog, _on_one(request, pools.all[0], whole=True), progress))
    request = replace(request, weighs_own_runs=False)
    clock = Clock()
    sets = len(request.batches) * how_many(request, pools.all)
    with advancing(progress, "search", len(pools.all) - 1 + sets) as advance:
        singles = singles or alone(catalog, request, pools.all, advance)
        single, errors = singles
        refused = [f"{name} alone: {str(error).splitlines()[0]}" for name, error in errors]
        searched = [_searched(catalog, request, pools, batch, single, advance) for batch in request.batches]
    one = [FoundPlan(value, plan) for value, plan, _ in single]
    candidates = one + [plan for s in searched for plan in s.plans if _adds(plan, one)]
    if not candidates and asked():
        raise KeyboardInterrupt
    if not candidates:
        wrong = [error for s in searched for _, error in s.errors]
        if wrong and all(isinstance(error, WrongQuestion) for error in (*wrong, *(e for _, e in errors))):
            raise WrongQuestion("\n".join([str(wrong[0]), *refused]))
        raise NoAnswer(answer.nothing(request, pools, refused))
    if starts and request.launchable:
        candidates = [plan for plan in candidates if starts(plan.plan)] or candidates
    ranked = sorted(candidates, key=lambda plan: plan.value)
    best = ranked[0]
    if starts and request.launchable is not False:
        ranked = alone_first.in_order(catalog, request, ranked)
    ranked = ranked[: request.top]
    plans = tuple(replace(plan.plan, rank=rank) for rank, plan in enumerate(ranked, 1))
    for plan in plans:
        planning.second_opinion(plan)
    gap = max(s.gap for s in searched)
    if ranked[0] is not best:
        gap = (1.0 + gap) * ranked[0].value / best.value - 1.0
    kinds = sum(s.kinds for s in searched)
    sections = [plan for _, _, plan in single]
    differences = comparison.differences(plans, plans[0], catalog)
    left_out = [_left_out(plans[0], pool, _apart(pool, searched), best.plan) for pool in pools.all]
    plan_set = PlanSet(
        search=SearchSection(
            candidates=kinds + sum(section.candidates for section in sections),
            feasible=kinds + sum(section.feasible for section in sections),
            costed=kinds + sum(section.costed for section in sections),
            proven_optimal=gap == 0.0 and not asked(),
            method=METHODS[bool(request.launchable)] + (f", {STOPPED}" if asked() else ""),
            objective=request.objective,
            near_duplicates=1,
            gap=gap,
        ),
        plans=plans,
        differences=differences,
        reasons=reasons(request, plans, left_out, refused, differences or ()),
        front=(),
        meta=clock.meta(),
    )
    free = Answered(plan_set, ranked[0], singles, is_simpler=ranked[0] is not best)
    if starts is None or request.launchable is not None or asked() or starts(best.plan):
        return free
    try:
        only = answered(catalog, replace(request, launchable=True), offered, progress, singles, starts)
    except (NoAnswer, WrongQuestion):
        return free
    return _preferred(only, free, best) if only.first and starts(only.first.plan) else free


def _preferred(only: Answered, free: Answered, best: FoundPlan) -> Answered:
    """Plans that launchers start, with what the best of any pipelines would gain."""
    assert only.first
    beyond = answer.beyond_launchers(best.plan, 1.0 - best.value / only.first.value)
    alone = [how for _, _, how in free.singles[0]] if free.singles else []  # in the counts of both searches
    counts = {
        name: sum(getattr(of.found.search, name) for of in (only, free)) - sum(getattr(how, name) for how in alone)
        for name in ("candidates", "feasible", "costed")
    }
    meta = {name: value if name == "host" else round(value + free.found.meta[name], 3)
            for name, value in only.found.meta.items()}  # fmt: skip
    whole = replace(
        only.found,
        search=replace(only.found.search, **counts),
        reasons=replace(only.found.reasons, beyond_launchers=beyond),
        meta=meta,
    )
    return replace(only, found=whole)


def _searched(catalog: Catalog, request: Request, pools: Pools, batch: int, alone: Sequence[Alone],
              advance: object) -> Searched:  # fmt: skip
    if request.launchable:
        return identical_pipelines(catalog, request, pools, batch, advance)
    return any_pipelines(catalog, request, pools, batch, alone, advance)


def _on_one(request: Request, pool: JobPool, *, whole: bool) -> Request:
    """The question on one pool: all of it, or (where fewer nodes may be better) doublings up to it."""
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


def _adds(plan: FoundPlan, alone: Sequence[FoundPlan]) -> bool:
    """Whether a plan is over several pools, or better than what the search of its one pool found."""
    pools = plan.plan.cluster.pools
    same = [known.value for known in alone if known.plan.cluster.pools[0].node == pools[0].node]
    return len(pools) > 1 or plan.value < min(same, default=float("inf")) * (1.0 - 1e-9)


def alone(catalog: Catalog, request: Request, pools: Sequence[JobPool], advance: object = None) -> Singles:
    """The best plan of every pool by itself, from the search of one cluster; and why others have none."""
    answers: list[Alone] = []
    refused: Refused = []
    limited = request.deadline_s is not None or request.max_cost_usd is not None
    whole = request.objective == "time" and not limited and steps_decide(request, pools)
    known: list[tuple[Request, Plan, SearchSection]] = []
    for done, pool in enumerate(pools):
        if done and callable(advance):
            advance(1)
        if answers and asked():
            refused.append((pool.name, NoAnswer("not searched, because the search was stopped")))
            continue
        question = replace(_on_one(request, pool, whole=whole), weighs_own_runs=False)
        same = next(((plan, how) for other, plan, how in known if other == question), None)
        try:
            best, how = same or planning.best(catalog, question)
        except ClusterwrightError as error:
            refused.append((pool.name, error))
            continue
        known.append((question, best, how))
        answers.append((value_of(request, best), _in_zone(best, pool), how))
    return answers, refused


def _in_zone(plan: Plan, pool: JobPool) -> Plan:
    """A plan of one pool that says in which zone it stands."""
    (stands,) = plan.cluster.pools
    return replace(plan, cluster=replace(plan.cluster, pools=(replace(stands, zone=pool.zone),)))
