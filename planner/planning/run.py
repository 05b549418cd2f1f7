"""From a question to ranked, verified plans."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from planner import verify
from planner.base.errors import ClusterwrightError, NoAnswer
from planner.catalog import Catalog
from planner.planning import answer, explain, infeasible, measured
from planner.planning.measured import MeasuredRuns
from planner.question.prepared import Prepared, prepare, problem
from planner.question.request import Request
from planner.schema.plan import FrontPoint, Plan, PlanSet, SearchSection
from planner.search.bounded import Bounded
from planner.search.costing import near_duplicates
from planner.search.problem import SearchResult

Progress = Callable[[str, float], AbstractContextManager[Callable[[int], None]]]
"""Given what is done and how many units of it, a context that yields ``advance(n)``."""


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
    started, cpu = time.perf_counter(), time.process_time()
    prepared = prepare(catalog, request)
    extra = len(runs.pins(prepared.request)) if runs else 0
    asked = problem(prepared, request.top + extra)
    with progress("search", asked.candidates) if progress else nullcontext() as advance:
        found = Bounded(front=True).search(asked, advance)
    if not found.best:
        raise NoAnswer(infeasible.nothing_fits(catalog, prepared, found))
    section = _search_section(prepared, found)
    if runs is None:
        plans = tuple(answer.plan(prepared, candidate, rank) for rank, candidate in enumerate(found.best, 1))
    else:
        candidates, plans = measured.ranked(catalog, prepared, found.best, runs)
        if candidates[0] != found.best[0]:
            section = replace(section, near_duplicates=1)  # of the plan that is predicted to be best
        found = replace(found, best=candidates)
    if pick is not None:
        places = pick(plans)
        if not places:
            raise NoAnswer("no plan is left for a shortlist: all were run, or the target starts none (--to, --pin)")
        plans = tuple(replace(plans[place], rank=rank) for rank, place in enumerate(places, 1))
        found = replace(found, best=tuple(found.best[place] for place in places))
    result = PlanSet(
        search=section,
        plans=plans,
        reasons=explain.reasons(prepared, found, plans),
        front=_front(catalog, prepared, found),
        meta={
            "wall_s": round(time.perf_counter() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "host": platform.machine(),
        },
    )
    for each in result.plans:
        _second_opinion(each)
    return result


def best(catalog: Catalog, request: Request) -> tuple[Plan, SearchSection]:
    """The best plan that :func:`plan` would give and how it was searched, without a front, alternatives or reasons.

    Not verified: whoever publishes it does that.

    Raises:
        WrongQuestion: the question allows no layout.
        NoAnswer: layouts exist, and none fits into memory or within the limits; the message says what would.
    """
    prepared = prepare(catalog, replace(request, top=1))
    found = Bounded().search(problem(prepared, 1))
    if not found.best:
        raise NoAnswer(infeasible.nothing_fits(catalog, prepared, found))
    return answer.plan(prepared, found.best[0], 1), _search_section(prepared, found)


def _second_opinion(plan: Plan, *, may_exceed_limits: bool = False) -> None:
    """Checks a plan by code that never saw the search; what it finds is a defect of this program, not of the
    question.
    """
    try:
        verify.check(plan, may_exceed_limits=may_exceed_limits)
    except verify.Inconsistent as error:
        raise AssertionError(f"plan {plan.rank} does not hold: {error}") from error


def _search_section(prepared: Prepared, found: SearchResult) -> SearchSection:
    request = prepared.request
    variants = near_duplicates(problem(prepared, 1), found.best[0].block, found.best[0].flat) if request.fold else 1
    return SearchSection(
        candidates=found.candidates,
        feasible=found.feasible,
        costed=found.costed,
        proven_optimal=found.proven,
        method=found.method,
        objective=request.objective,
        near_duplicates=variants,
    )


def _front(catalog: Catalog, prepared: Prepared, found: SearchResult) -> tuple[FrontPoint, ...]:
    """Over several counts the best of each count; on one count, faster against leaner."""
    if len(prepared.request.counts) == 1:
        return tuple(answer.front_point(prepared, candidate) for candidate in found.front)
    points = []
    for count in prepared.request.counts:
        try:
            alone = prepare(catalog, replace(prepared.request, counts=(count,), top=1))
        except ClusterwrightError:
            continue
        points += [answer.front_point(alone, candidate) for candidate in Bounded().search(problem(alone, 1)).best]
    return tuple(points)


def estimate(catalog: Catalog, request: Request) -> PlanSet:
    """One pinned configuration, predicted whether it fits or not.

    Raises:
        WrongQuestion: the configuration is not legal, or leaves more than switches open.
    """
    prepared = prepare(catalog, request)
    everything = replace(problem(prepared, 1, capacity=math.inf), fold=True)
    found = Bounded().search(everything)
    if not math.isfinite(found.best[0].memory):
        raise NoAnswer(infeasible.overflowing(prepared, found.best[0]))
    plans = (answer.plan(prepared, found.best[0], 1),)
    _second_opinion(plans[0], may_exceed_limits=True)
    fits = found.best[0].memory <= prepared.usable
    reasons = explain.reasons(prepared, found, plans)
    if not fits:
        reasons = replace(reasons, why_not=explain.remedies(catalog, request, found.best[0]))
    return PlanSet(
        # What was left open (overlap switches) is not for comparison.
        search=replace(_search_section(prepared, found), feasible=found.candidates if fits else 0, near_duplicates=1),
        plans=plans,
        reasons=reasons,
        front=(),
        meta={"host": platform.machine()},
    )
