"""A search whose answer is in the order of what is known: a plan that a site has run has its measured step time.

All that follows from a step time (rank, tokens per second, days, dollars, limits) follows from the measured one: it is
put in place of the predicted one where a candidate becomes a plan (:func:`planner.planning.answer.plan`), and nowhere
else. What ran out of memory is no plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner import cost
from planner.axes.table import ATTENTION_KERNEL, GRAPHS, ZERO_SCOPE
from planner.axes.values import ALONE, EVERYWHERE, nodes_of, over_nodes
from planner.base.errors import ClusterwrightError
from planner.base.progress import Progress, advancing
from planner.catalog import Catalog
from planner.planning import answer, order
from planner.planning.answer import MeasuredRuns
from planner.question.request import Request
from planner.question.search_problem import Prepared, legal_rows, levers_of, prepare, problem, wave
from planner.schema.plan import Plan
from planner.search import waves
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate, SearchResult
from planner.search.waves import LeverSearch
from planner.space.cost_grid import single_grid
from planner.space.pins import Pins

LIMITS = ("deadline", "budget")
"""Constraints that a measured step time may keep or break against the prediction."""
ROUNDING = 1e-9
"""Share of a limit by which a plan may seem to break it: the search multiplies in another order."""
WIDER = 4
"""Times as many plans are searched as are wanted where some are left out: dominated, out of memory, or slow."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What was found, and its best as plans, best first: `found.best` holds their candidates as they were predicted."""

    found: SearchResult
    plans: tuple[Plan, ...]
    as_predicted: bool = True
    """Whether the first is the one that is predicted to be best."""
    levers: LeverSearch | None = None
    """What was found beyond the base space; none where the question leaves no lever free."""
    least: float | None = None
    """The best value of the base space."""


def search(
    catalog: Catalog,
    prepared: Prepared,
    runs: MeasuredRuns | None = None,
    *,
    top: int,
    front: bool = False,
    progress: Progress | None = None,
) -> Ranking:
    """The best `top` plans of a prepared question.

    Arguments:
        catalog: Where the question was prepared from.
        prepared: The question.
        runs: What was measured, if anything.
        top: How many.
        front: Whether to find the front of objective against memory, too.
        progress: Shows how many candidates have been dealt with; Ctrl-C ends the search with the best so far.
    """
    if runs is None:
        base = _listed(prepared, top, front, progress)
        levers = beyond(prepared, base, progress)
        result = replace(base, best=_with(levers, base.best, top)[:top]) if levers else base
        plans = tuple(answer.plan(prepared, candidate, rank) for rank, candidate in enumerate(result.best, 1))
        return Ranking(result, plans, levers=levers, least=base.best[0].value if base.best else None)
    tried = list(_run(catalog, prepared.request, runs))
    wanted = top + len(runs.pins(prepared.request))
    levers = None
    while True:
        found = _searched(prepared, wanted, front, progress)
        levers = levers or beyond(prepared, found, progress)
        best = _without_dominated(prepared, found)
        listed = replace(found, best=_with(levers, best, top) if levers else best)
        ranking = replace(_ranked(prepared, listed, tried, runs, top), levers=levers)
        if len(ranking.plans) == top or len(found.best) < wanted or not found.proven:
            return ranking
        wanted, progress = WIDER * wanted, None


def _searched(prepared: Prepared, wanted: int, front: bool, progress: Progress | None) -> SearchResult:
    """The base space searched for so many candidates."""
    posed = problem(prepared, wanted)
    with advancing(progress, "search", posed.candidates) as advance:
        return Bounded(front=front, stops=True).search(posed, advance)


def _listed(prepared: Prepared, top: int, front: bool, progress: Progress | None) -> SearchResult:
    """What was found, and of the best candidates the first `top` that are not dominated."""
    wanted = WIDER * top if top > 1 and prepared.request.fold else top
    while True:
        result = _searched(prepared, wanted, front, progress)
        best = _without_dominated(prepared, result)
        if len(best) >= top or len(result.best) < wanted or not result.proven:
            return replace(result, best=best[:top])
        wanted, progress = WIDER * wanted, None


def _without_dominated(prepared: Prepared, result: SearchResult) -> tuple[Candidate, ...]:
    """The best candidates but for dominated ones, which ``--all`` lists, too."""
    return order.not_dominated(result.best) if prepared.request.fold else result.best


def beyond(prepared: Prepared, base: SearchResult, progress: Progress | None = None) -> LeverSearch | None:
    """The best with levers that is better than the best of the base space; None where the question leaves none free,
    or was asked to end before.
    """
    levers = levers_of(prepared)
    if not levers or not base.proven:
        return None
    best = base.best[0] if base.best else None
    rows = legal_rows(prepared)
    pins = prepared.request.pins
    result = waves.search(partial(wave, prepared), rows, pins, levers, best, progress=progress)
    if result.device is None:
        return result
    plainer = result.device if _limited(prepared.request) else _plainer(prepared, result.device)
    worth = best is None or plainer.value <= (1.0 - order.TIED) * best.value
    return replace(result, device=plainer if worth else result.device)


def _limited(request: Request) -> bool:
    return request.deadline_s is not None or request.max_cost_usd is not None


def _plainer(prepared: Prepared, candidate: Candidate) -> Candidate:
    """The candidate without those faster levers, and with copies over all ranks or in nodes, that make less than a tie
    together: nobody must set or install what brings nothing.
    """
    slowest = (1.0 + order.TIED) * candidate.time
    plainer = candidate
    simpler = [(ATTENTION_KERNEL, ALONE), (GRAPHS, ALONE)]
    if nodes_of(candidate.options[ZERO_SCOPE]) > 1:
        simpler += [(ZERO_SCOPE, EVERYWHERE), (ZERO_SCOPE, over_nodes(1))]
    for axis, plain in (pair for pair in simpler if prepared.request.pins.allow(pair[0].name, pair[1])):
        options = plainer.options.replaced(**{axis.name: plain})
        step = cost.evaluate(single_grid(prepared.figures, candidate.layout, options))
        time, memory = float(step.time), float(step.memory)
        if time <= slowest and memory <= prepared.usable:
            value = candidate.value * time / candidate.time
            plainer = replace(plainer, options=options, time=time, memory=memory, value=value)
    return plainer


def _with(levers: LeverSearch, best: Sequence[Candidate], top: int) -> tuple[Candidate, ...]:
    """The best of the base space behind what levers make faster by more than a tie: first with anything in host memory,
    which is never the only answer where there is another, then without.
    """
    kept = list(best)
    for better in (levers.device, levers.host):
        alone = better is levers.host and top == 1
        if better and not (kept and (alone or better.value > (1.0 - order.TIED) * kept[0].value)):
            kept.insert(0, better)
    # Of several plans one is without levers.
    too_many = len(kept) - len(best) - (top - 1) if best and top > 1 else 0
    return tuple(kept[max(too_many, 0) :])


def _ranked(prepared: Prepared, found: SearchResult, own: Sequence[Candidate], runs: MeasuredRuns, top: int) -> Ranking:
    """The best of what was found and of what was run, by the objective at the step time that is known."""
    pairs = [(candidate, answer.plan(prepared, candidate, 1, runs)) for candidate in found.best]
    keys = {runs.key(plan) for _, plan in pairs}
    more = [(candidate, answer.plan(prepared, candidate, 1, runs)) for candidate in own]
    pairs += [pair for pair in more if runs.key(pair[1]) not in keys]
    able = [pair for pair in pairs if not runs.ran_out(pair[1]) and _keeps_limits(pair[1])]
    ordered = sorted(able, key=_value)
    kept = ordered[:top]
    run = next((pair for pair in ordered[top:] if pair[1].measured), None)
    if run and order.recommended([plan for _, plan in (*kept, run)]) == top:
        kept[-1] = run  # the one to run, whatever the number of plans that are listed
    return Ranking(
        found=replace(found, best=tuple(candidate for candidate, _ in kept)),
        plans=tuple(replace(plan, rank=rank) for rank, (_, plan) in enumerate(kept, 1)),
        as_predicted=bool(kept and found.best) and kept[0][0] == found.best[0],
    )


def _value(pair: tuple[Candidate, Plan]) -> float:
    """The objective, which grows with the step time."""
    candidate, plan = pair
    return candidate.value * plan.prediction.step_time_s / candidate.time


def _keeps_limits(plan: Plan) -> bool:
    """Whether the deadline and the budget hold, by the step time that is known."""
    return all(each.slack >= -ROUNDING * each.limit for each in plan.constraints if each.name in LIMITS)


def _run(catalog: Catalog, request: Request, runs: MeasuredRuns) -> Iterator[Candidate]:
    """The candidates that were run, in the switches predicted to be fastest; limits are for what they took."""
    free = replace(request, top=1, deadline_s=None, max_cost_usd=None)
    for pins in runs.pins(request):
        if not all(request.pins.allow(axis, bound) for axis, bound in pins.bounds.items()):
            continue
        try:
            own = prepare(catalog, replace(free, pins=Pins({**request.pins.bounds, **pins.bounds})))
        except ClusterwrightError:
            continue  # what was run is not legal under the pins of this question
        yield from Bounded().search(problem(own, 1)).best
