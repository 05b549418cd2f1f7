"""Solving a program: the answer as plain numbers, with the bound that was proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.base.errors import NoAnswer
from planner.procurement.program.model import FAR, ProcureInstance, ProcureProgram, ProcureVariant, build, monthly_limit
from planner.procurement.program.schedule import calendar, makespan, most_in_a_month
from planner.procurement.program.solution import Piece, ProgramSolution
from planner.solver import GAP, Outcome, SolverName, Status

TIME_LIMIT_S = 60.0
SHORTEST_STEP = 1e-4
"""Relative width to which the earliest completion is narrowed down."""
RATIO_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how exactly to solve."""

    gap: float = GAP
    time_limit_s: float = TIME_LIMIT_S
    solver: SolverName = "highs"


USUAL = Settings()


def solve(instance: ProcureInstance, variant: ProcureVariant, settings: Settings = USUAL) -> ProgramSolution | None:
    """The best answer of one variant, or None if there is none.

    A monthly limit makes a program many times larger, and seldom matters: it is left out first, and what is then best
    is best if it keeps the limit.
    """
    limit = monthly_limit(instance.asked, variant)
    if limit is None or variant.minimise == "monthly":
        return _solved(instance, variant, settings)
    without = _solved(instance, replace(variant, dropped=variant.dropped | {"monthly"}), settings)
    if without is None or most_in_a_month(instance, without, calendar(instance, without)) <= limit:
        return without
    return _solved(instance, variant, settings)


def _solved(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    program = build(instance, variant)
    if len({j for j, _ in program.run}) < len(instance.jobs):
        return None  # some job fits nowhere in its window
    outcome = program.problem.solve(gap=settings.gap, time_limit_s=settings.time_limit_s, solver=settings.solver)
    if outcome.status is Status.INFEASIBLE:
        return None
    if not outcome.status.found:
        raise NoAnswer(f"no answer was found in {settings.time_limit_s:g} s, and none was excluded; allow more time")
    return replace(
        _solution_of(program, instance, outcome),
        latest=variant.latest,
        by_month=monthly_limit(instance.asked, variant) is not None,
    )


def _solution_of(program: ProcureProgram, instance: ProcureInstance, outcome: Outcome) -> ProgramSolution:
    value = outcome.value
    hold = {p: n for p, x in program.hold.items() if (n := round(value(x))) > 0}
    run = {j: place for (j, place), x in program.run.items() if value(x) > 0.5}
    pieces = tuple(
        Piece(j, place, *program.spans[t], days)
        for (j, place, t), day in program.day.items()
        if run.get(j) == place and (days := value(day)) > 1e-9
    )
    return ProgramSolution(
        hold,
        run,
        {j: value(program.work[j, place]) for j, place in run.items()},
        pieces,
        outcome.objective,
        outcome.bound,
        {name: value(expression) for name, expression in program.use.items()},
        value(program.cost),
        value(program.tokens),
    )


# ---- objectives that take several programs ---------------------------------------------------------------------------


def best(
    instance: ProcureInstance, variant: ProcureVariant, objective: str, settings: Settings = USUAL
) -> ProgramSolution | None:
    """The best answer under an objective of the question; its value is days, US dollars, kilograms, or (negative)
    million tokens per US dollar.
    """
    if objective == "time":
        return _earliest(instance, variant, settings)
    if objective == "tokens-per-dollar":
        return _most_per_dollar(instance, variant, settings)
    found = solve(instance, replace(variant, minimise=objective), settings)
    return None if found is None else replace(found, value=found.value * 1e3, bound=found.bound * 1e3)


def _earliest(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """Bisection on the day by which all is done; every step is a program that asks for the least cost by that day."""
    found = solve(instance, variant, settings)
    if found is None:
        return None
    low, high, asked_low = _no_earlier(instance, variant), makespan(instance, found), False
    while high - low > SHORTEST_STEP * high:
        # The best thinkable is often reached: it is asked first, then the middle.
        middle = (low + high) / 2 if asked_low else low
        asked_low = True
        trial = solve(instance, replace(variant, latest=middle * (1 + 1e-9)), settings)
        if trial is None:
            low = middle
        else:
            found, high = trial, min(middle, makespan(instance, trial))
    return replace(found, value=high, bound=min(low, high))


def _no_earlier(instance: ProcureInstance, variant: ProcureVariant) -> float:
    """A day before which no answer is done: the last job alone where it is done first."""
    first: dict[int, float] = {}
    for c in instance.columns:
        ready = max(instance.jobs[c.job].release_day, *(instance.pools[p].start_day for p in c.place))
        done = ready + c.days * variant.scale
        first[c.job] = min(done, first.get(c.job, FAR))
    return max(first.values())


def _most_per_dollar(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """Dinkelbach (1967): the ratio's optimum is where ``max tokens - ratio cost`` is 0."""
    found = solve(instance, variant, settings)
    if found is None:
        return None
    least_cost = found.bound * 1e3
    bound = math.inf
    for _ in range(RATIO_ROUNDS):
        if found.cost <= 0:
            return replace(found, value=-math.inf, bound=-math.inf)
        price = found.cost / found.tokens
        trial = solve(instance, replace(variant, per_million_tokens=price), settings)
        if trial is None:
            break
        # cost - price tokens >= bound for every answer, so tokens / cost <= (1 - bound / cost) / price.
        excess = min(trial.bound * 1e3, 0.0)
        bound = (1.0 - excess / max(least_cost, 1e-9)) / price
        if trial.cost / trial.tokens >= price * (1 - 1e-9):
            break
        found = trial
    ratio = found.tokens / found.cost
    return replace(found, value=-ratio, bound=-max(bound, ratio))
