"""Plans in the order of what is known of them: by their measurement, and without those that ran out of memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Protocol

from planner.base.errors import ClusterwrightError, NoAnswer
from planner.catalog import Catalog
from planner.planning import answer
from planner.question.prepared import Prepared, prepare, problem
from planner.question.request import Request
from planner.schema.plan import MeasuredSection, Plan
from planner.search.bounded import Bounded
from planner.search.problem import Candidate
from planner.space.axes import Pins


class MeasuredRuns(Protocol):
    """What a site knows of plans."""

    def pins(self, request: Request) -> Sequence[Pins]:
        """The configurations of runs that answer the request."""
        ...

    def key(self, plan: Plan) -> Hashable:
        """What plans share that one run measures."""
        ...

    def measured(self, plan: Plan) -> MeasuredSection | None:
        """The runs that followed the plan."""
        ...

    def ran_out(self, plan: Plan) -> bool:
        """Whether the plan ran out of memory, and never ran."""
        ...


def ranked(
    catalog: Catalog, prepared: Prepared, found: Sequence[Candidate], runs: MeasuredRuns
) -> tuple[tuple[Candidate, ...], tuple[Plan, ...]]:
    """The best of what was found and of what was measured: of a measured plan the objective is as its step time was.

    Arguments:
        catalog: Where the question was prepared from.
        prepared: The question.
        found: Candidates of the search, best first, more than are asked for.
        runs: What was measured.

    Raises:
        NoAnswer: every plan of the search has run out of memory.
    """
    pairs: dict[Hashable, tuple[Candidate, Plan]] = {}
    for candidate in (*_run(catalog, prepared.request, runs), *found):
        plan = answer.plan(prepared, candidate, 1)
        pairs.setdefault(runs.key(plan), (candidate, replace(plan, measured=runs.measured(plan))))
    best = sorted((pair for pair in pairs.values() if not runs.ran_out(pair[1])), key=_value)
    if not best:
        raise NoAnswer("every plan that is predicted to fit has run out of memory at this site; try a lower --oom-risk")
    kept = best[: prepared.request.top]
    plans = tuple(replace(plan, rank=rank) for rank, (_, plan) in enumerate(kept, 1))
    return tuple(candidate for candidate, _ in kept), plans


def _value(pair: tuple[Candidate, Plan]) -> float:
    """The objective, with the measured step time in place of the predicted one."""
    candidate, plan = pair
    ratio = plan.measured.step_time_s / candidate.time if plan.measured else 1.0
    return candidate.value * ratio


def _run(catalog: Catalog, request: Request, runs: MeasuredRuns) -> list[Candidate]:
    """The candidates that were run, in the switches predicted to be fastest."""
    found: list[Candidate] = []
    for pins in runs.pins(request):
        if not all(request.pins.allow(axis, bound) for axis, bound in pins.bounds.items()):
            continue
        bounds = {**request.pins.bounds, **pins.bounds}
        try:
            own = prepare(catalog, replace(request, pins=Pins(bounds), top=1))
        except ClusterwrightError:
            continue  # what was run is not legal under the pins of this question
        found += Bounded().search(problem(own, 1)).best
    return found
