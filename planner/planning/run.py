"""From a question to ranked, verified plans."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner import verify
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.base.progress import Clock, advancing
from planner.base.stopping import STOPPED, asked
from planner.catalog import Catalog
from planner.planning import answer, comparison, document, infeasible, order, ranked, usual, why_this_plan
from planner.planning.answer import MeasuredRuns
from planner.planning.ranked import Ranking
from planner.question.given import Progress
from planner.question.request import Request
from planner.question.search_problem import OWN_RUNS_SHARED, Prepared, levers_of, prepare, problem
from planner.schema.plan import FrontPoint, LeverSection, MeasuredSection, Plan, PlanSet, SearchQuestion, SearchSection
from planner.search.branch_and_bound import Bounded
from planner.search.costing import near_duplicates
from planner.verify.prediction import hardware_is_not_beaten


def plan(
    catalog: Catalog,
    request: Request,
    progress: Progress | None = None,
    runs: MeasuredRuns | None = None,
    pick: Callable[[Sequence[Plan]], Sequence[int]] | None = None,
) -> PlanSet:
    """Searches the request's whole space and returns its best plans, verified; those that a site has run by what was
    measured. `pick` names the places of those to keep, in their order.

    Raises:
        WrongQuestion: the question allows no layout.
        NoAnswer: layouts exist, and none fits into memory or within the limits; the message says what would.
    """
    clock = Clock()
    prepared = prepare(catalog, request)
    most = max(request.top, order.CHOSEN_AMONG)
    ranking = ranked.search(catalog, prepared, runs, top=most, front=True, progress=progress)
    if not ranking.plans and not ranking.found.proven:
        raise KeyboardInterrupt
    if not ranking.plans:
        raise NoAnswer(infeasible.nothing_fits(catalog, prepared, ranking, runs))
    plans = ranking.plans
    if pick is not None:
        places = pick(plans)
        if not places:
            raise NoAnswer("no plan is left for a shortlist: all were run, or the target starts none (--to, --pin)")
    else:
        places = order.with_first(order.recommended(plans), len(plans))[: request.top]
    ranking = _in_order(ranking, places)
    each_count = _on_each_count(catalog, prepared, ranking, runs, progress)
    chosen = (prepared, ranking)
    if pick is None and request.objective != "time" and each_count and not asked():
        chosen = each_count[order.quickest_of_cheapest([alone.plans[0] for _, alone in each_count])]
        ranking = _with_first(ranking, chosen[1], request.top)
    plans = ranking.plans
    differences = comparison.differences(plans, plans[0], catalog)
    section = _search_section(prepared, ranking)
    result = PlanSet(
        search=replace(section, near_duplicates=_variants(*chosen)),
        plans=plans,
        recommended=plans[0].rank,
        differences=differences,
        reasons=why_this_plan.reasons(prepared, ranking.found, plans, differences or (), ranking.least),
        front=_front(prepared, ranking, [alone.plans[0] for _, alone in each_count], runs),
        meta=clock.meta(),
        question=_question(request) if runs is None and pick is None else None,
        usual=usual.run(catalog, request, plans[0]),
    )
    for each in result.plans:
        second_opinion(each)
    return result


def _question(request: Request) -> SearchQuestion:
    return SearchQuestion(
        pins={axis: str(bound) for axis, bound in request.pins.bounds.items()},
        nodes=request.counts,
        batches=request.batches,
        waived=tuple(sorted(request.waived)),
        top=request.top,
        all=not request.fold,
    )


def best(catalog: Catalog, request: Request) -> tuple[Plan, SearchSection]:
    """The plan that :func:`plan` would recommend and how it was searched, without a front, alternatives or reasons.

    Not verified: whoever publishes it does that.

    Raises:
        WrongQuestion: the question allows no layout.
        NoAnswer: layouts exist, and none fits into memory or within the limits; the message says what would.
    """
    prepared = prepare(catalog, replace(request, top=1))
    ranking = ranked.search(catalog, prepared, top=order.CHOSEN_AMONG)
    if not ranking.plans:
        raise NoAnswer(infeasible.nothing_fits(catalog, prepared, ranking))
    return ranking.plans[order.recommended(ranking.plans)], _search_section(prepared, ranking)


def priced(catalog: Catalog, request: Request, rank: int = 1, measured: MeasuredSection | None = None) -> Plan:
    """One pinned configuration as this catalog and this program price it, by what was measured of it if anything was,
    whether it fits and keeps the request's limits or not; not verified.

    Raises:
        WrongQuestion: the configuration is not legal.
    """
    prepared = prepare(catalog, replace(request, deadline_s=None, max_cost_usd=None, top=1))
    found = Bounded().search(problem(prepared, 1, capacity=math.inf))
    if not found.best or not math.isfinite(found.best[0].memory):
        raise WrongQuestion(f"plan {rank}: its configuration is not legal, or overflows expanded memory")
    predicted = answer.solution(replace(prepared, request=request), found.best[0])
    if measured is not None:
        predicted = answer.as_measured(predicted, replace(measured, predicted_s=predicted.step_time))
    return document.write(predicted, rank)


def second_opinion(plan: Plan, *, may_exceed_limits: bool = False) -> None:
    """Checks a plan, over one pool or several, by code that never saw the search; what it finds is a defect of this
    program, not of the question. Only what was measured may be wrong by itself.

    Raises:
        WrongQuestion: what a site measured makes the plan faster than its hardware.
        AssertionError: the plan does not hold.
    """
    try:
        verify.check(plan, may_exceed_limits=may_exceed_limits)
    except verify.Inconsistent as error:
        too_fast = all(each.name == hardware_is_not_beaten.__name__ for each in error.violations)
        if plan.measured and too_fast:
            raise WrongQuestion(f"the site's journal holds a run that cannot be: {error}; see runs.csv") from None
        if _shifted_by_own_runs(plan) and too_fast:
            raise WrongQuestion(
                f"by the site's own runs a plan is faster than its hardware: {error}; see their times and batches in "
                "own_runs/ of its catalog, and learn or calibrate again"
            ) from None
        raise AssertionError(f"plan {plan.rank} does not hold: {error}") from error


def _shifted_by_own_runs(plan: Plan) -> bool:
    """Whether a site's own runs are in its predicted time: those near it, or (over several pools) all by one factor."""
    return plan.prediction.own_runs is not None or any(OWN_RUNS_SHARED in each.why for each in plan.assumptions)


def _search_section(prepared: Prepared, ranking: Ranking) -> SearchSection:
    request = prepared.request
    found = ranking.found
    searched = _levers(prepared, ranking)
    # Asked to end, the search left a part of the base space out.
    least = min((candidate.value for candidate in found.best), default=math.inf)
    left_out = searched.left_out if searched else 0.0 if found.proven else max(0.0, least / found.least_left - 1.0)
    return SearchSection(
        candidates=found.candidates,
        feasible=found.feasible,
        costed=found.costed,
        proven_optimal=found.proven and not left_out,
        method=f"{found.method}, {STOPPED}" if asked() else found.method,
        objective=request.objective,
        near_duplicates=_variants(prepared, ranking),
        gap=left_out,
        levers=searched,
    )


def _variants(prepared: Prepared, ranking: Ranking) -> int:
    """Candidates of the base space that are grouped under the first plan, itself included."""
    first = ranking.found.best[0]
    levers = ranking.levers
    if prepared.request.fold and ranking.as_predicted and not (levers and first in (levers.device, levers.host)):
        return near_duplicates(problem(prepared, 1), first.block, first.flat)
    return 1


def _levers(prepared: Prepared, ranking: Ranking) -> LeverSection | None:
    """What was searched beyond the base space."""
    levers = ranking.levers
    if levers is None or not ranking.found.best:
        return None
    listed = min(candidate.value for candidate in ranking.found.best)
    best = min(listed, levers.least)
    return LeverSection(
        axes=tuple(levers_of(prepared).added),
        looked_at=levers.looked_at,
        gained=listed / best - 1.0,
        left_out=max(0.0, best / levers.least_left - 1.0),
    )


def _in_order(ranking: Ranking, places: Sequence[int]) -> Ranking:
    """Some plans of a ranking, in the order of these places."""
    candidates = tuple(ranking.found.best[place] for place in places)
    plans = tuple(replace(ranking.plans[place], rank=rank) for rank, place in enumerate(places, 1))
    return replace(ranking, found=replace(ranking.found, best=candidates), plans=plans)


def _with_first(ranking: Ranking, alone: Ranking, top: int) -> Ranking:
    """The best `top` plans of all counts behind the first one of a count."""
    first = alone.plans[0]
    others = [place for place, plan in enumerate(ranking.plans) if plan.axes != first.axes]
    candidates = (alone.found.best[0], *(ranking.found.best[place] for place in others))
    plans = (first, *(ranking.plans[place] for place in others))
    both = replace(ranking, found=replace(ranking.found, best=candidates), plans=plans)
    return _in_order(both, range(len(both.plans))[:top])


def _on_each_count(
    catalog: Catalog, prepared: Prepared, listed: Ranking, runs: MeasuredRuns | None, progress: Progress | None
) -> list[tuple[Prepared, Ranking]]:
    """The plan to run on each count of several, with the question that it answers; nothing for one count."""
    counts = prepared.request.counts
    if len(counts) == 1:
        return []
    on_each: list[tuple[Prepared, Ranking]] = []
    with advancing(progress, "best of each count", len(counts)) as advance:
        for count in counts:
            if asked():
                break
            if listed.plans[0].cluster.pools[0].count == count:
                on_each.append((prepared, listed))
            else:
                on_each += _best_on(catalog, replace(prepared.request, counts=(count,)), runs)
            if advance:
                advance(1)
    return on_each


def _front(
    prepared: Prepared, listed: Ranking, on_each: Sequence[Plan], runs: MeasuredRuns | None
) -> tuple[FrontPoint, ...]:
    """Over several counts the plan to run on each; on one count, faster against leaner."""
    if len(prepared.request.counts) > 1:
        return tuple(map(answer.front_point, on_each))
    if runs is None:
        points = [answer.front_point_of(prepared, candidate) for candidate in listed.found.front or listed.found.best]
    else:
        plans = [answer.plan(prepared, candidate, 1, runs) for candidate in listed.found.front]
        points = [answer.front_point(plan) for plan in plans if not runs.ran_out(plan)]
    return tuple(point for point in points if not any(_beats(other, point) for other in points))


def _best_on(catalog: Catalog, request: Request, runs: MeasuredRuns | None) -> list[tuple[Prepared, Ranking]]:
    """The plan of a question to run, alone, with the question; nothing where no layout is legal or nothing fits."""
    try:
        alone = prepare(catalog, request)
    except ClusterwrightError:
        return []
    ranking = ranked.search(catalog, alone, runs, top=order.CHOSEN_AMONG)
    return [(alone, _in_order(ranking, [order.recommended(ranking.plans)]))] if ranking.plans else []


def _beats(one: FrontPoint, other: FrontPoint) -> bool:
    """Whether one is faster and leaner: a measurement may have moved either."""
    return one.step_time_s < other.step_time_s and one.memory_bytes < other.memory_bytes


def estimate(catalog: Catalog, request: Request, runs: MeasuredRuns | None = None) -> PlanSet:
    """One pinned configuration, predicted whether it fits or not; measured, where a site has run it.

    Raises:
        WrongQuestion: the configuration is not legal, or leaves more than switches open.
    """
    prepared = prepare(catalog, request)
    everything = replace(problem(prepared, 1, capacity=math.inf), fold=True)
    found = Bounded().search(everything)
    if not math.isfinite(found.best[0].memory):
        raise NoAnswer(infeasible.overflowing(prepared, found.best[0]))
    plans = (answer.plan(prepared, found.best[0], 1, runs),)
    second_opinion(plans[0], may_exceed_limits=True)
    fits = found.best[0].memory <= prepared.usable
    reasons = why_this_plan.reasons(prepared, found, plans)
    if not fits:
        reasons = replace(reasons, why_not=why_this_plan.remedies(catalog, request, found.best[0]))
    return PlanSet(
        # What was left open (overlap switches) is not for comparison.
        search=replace(
            _search_section(prepared, Ranking(found, plans)),
            feasible=found.candidates if fits else 0,
            near_duplicates=1,
        ),
        plans=plans,
        reasons=reasons,
        front=(),
        meta={"host": platform.machine()},
    )
