"""Which columns of a large program may matter: a first answer closes all those that reduced costs put above it.

Reduced-cost fixing (Nemhauser and Wolsey 1988, II.5): whatever uses a column costs at least what the program without
whole numbers says, and the column's reduced cost on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.procurement.program.cuts import begin_on_first_days
from planner.procurement.program.instance import ProcureInstance, ProcureVariant
from planner.procurement.program.integer_program import ProcureProgram, build
from planner.procurement.program.job_order import EPS
from planner.procurement.program.settings import Settings
from planner.procurement.program.solution import ProgramSolution, better
from planner.solver import Linear, Outcome, Status

MANY = 1000
"""Columns from which on it pays to ask first which of them may matter."""
PARTED_ROUNDS = 8
"""Of asking a large program in which jobs may be parted, with the days on which purchases may begin."""
SAFELY = 1e-6
"""By which what a column costs, at least, may be wrong."""
Answer = Callable[[ProcureInstance], ProgramSolution | None]
"""The best answer to a part of a question, if one is found."""


def pays(program: ProcureProgram) -> bool:
    """Whether a program is large, and something in it is minimised."""
    return MANY <= len(program.run) and bool(program.problem.objective.coefficients)


def narrowed(
    instance: ProcureInstance, variant: ProcureVariant, program: ProcureProgram, settings: Settings, answer: Answer
) -> tuple[ProcureInstance, ProgramSolution | None, float]:
    """The instance with only those columns of a large program that an answer may have which is better than the first
    ones that are found, the best of these, and a bound on all.
    """
    outcome = program.problem.relaxed().solve(time_limit_s=settings.time_limit_s, solver=settings.solver)
    if not outcome.status.found:
        return instance, None, -math.inf
    known = _on_used(instance, program, outcome, answer)
    if known is None or not outcome.reduced:
        return instance, known, outcome.bound
    instance = _mattering(instance, program, outcome, known.value)
    program, reached, dates = build(instance, variant), outcome.bound, set[int]()
    runs = {x for run in program.run.values() for x in run.coefficients}
    for _ in range(PARTED_ROUNDS):
        outcome = program.problem.relaxed(runs).solve(
            gap=settings.gap / 2, time_limit_s=settings.time_limit_s, solver=settings.solver
        )
        reached = max(reached, outcome.bound)
        if outcome.status is not Status.OPTIMAL:
            break
        late = {p: outcome.value(x) / n for p, x in program.late.items() if (n := outcome.value(program.hold[p])) > EPS}
        if not begin_on_first_days(program, instance, _as_late(instance, program, late), dates):
            break
    known = better(known, _on_used(instance, program, outcome, answer))
    return instance, known, reached


def _as_late(instance: ProcureInstance, program: ProcureProgram, late: Mapping[int, float]) -> dict[int, float]:
    """Days late of pools, and of all others with as many of the same nodes, that would be as late in their place."""
    kinds = {(instance.pools[p].family, instance.pools[p].nodes): days for p, days in late.items()}
    found = {p: (instance.pools[p].family, instance.pools[p].nodes) for p in program.late}
    return {p: kinds[kind] for p, kind in found.items() if kind in kinds} | dict(late)


def _on_used(
    instance: ProcureInstance, program: ProcureProgram, outcome: Outcome, answer: Answer
) -> ProgramSolution | None:
    """The best answer on the pools that one with parts of jobs works on."""
    if not outcome.status.found:
        return None
    used = {p for (_, place), x in program.run.items() if outcome.value(x) > EPS for p in place}
    few = [c for c in instance.columns if used.issuperset(c.place)]
    return answer(replace(instance, columns=few)) if len(few) < len(instance.columns) else None


def _mattering(instance: ProcureInstance, program: ProcureProgram, outcome: Outcome, most: float) -> ProcureInstance:
    """The instance without columns that make any answer dearer than `most`, by what a relaxed program says they cost,
    at least.
    """
    spare = (most - outcome.objective) * (1 + SAFELY) + SAFELY

    def matters(x: Linear) -> bool:
        return all(outcome.reduced.get(name, 0.0) <= spare for name in x.coefficients)

    held = {p: matters(x) for p, x in program.hold.items()}
    kept = {key for key, x in program.run.items() if matters(x) and all(held.get(p, True) for p in key[1])}
    return replace(instance, columns=[c for c in instance.columns if (program.first(c.job), c.place) in kept])
