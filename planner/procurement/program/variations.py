"""Variations of the best answer: others that differ in kind, and what more of each limit would buy.

Alternatives are never the same plan with one node less. First comes the best without the ways that the answers before
it used (without spot, without renting); then, by no-good cuts, the best with other nodes. An integer program has no
duals, so for a limit's marginal value the limit is moved and the program solved again.
"""

from __future__ import annotations

from planner.procurement.answer.document import UNITS
from planner.procurement.program.instance import (
    Limit,
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
    limits,
    moved,
)
from planner.procurement.program.solve import best
from planner.procurement.throughput.bounds import LARGEST_STEP
from planner.question.file_values import DAYS_PER_MONTH
from planner.schema.procurement import MarginalValue


def ranked(
    instance: ProcureInstance, lean: ProcureInstance, objective: str, top: int, settings: Settings
) -> list[ProgramSolution]:
    """Up to `top` answers, best first; two of them never come by the same nodes in the same ways.

    `lean` is the instance without what other nodes of the same way dominate: enough where only the best is wanted.
    """
    first = best(lean, ProcureVariant(), objective, settings)
    if first is None:
        return []
    solutions = [first]
    for chosen, narrowed in ((lean, _other_ways), (instance, _other_nodes)):
        while len(solutions) < top:
            solution = best(chosen, narrowed(instance, solutions), objective, settings)
            if solution is None:
                break
            solutions.append(solution)
    return [first, *sorted(solutions[1:], key=lambda solution: solution.value)]


def _other_ways(instance: ProcureInstance, solutions: list[ProgramSolution]) -> ProcureVariant:
    ways = {instance.pools[p].way for solution in solutions for p in solution.pools}
    closed = frozenset(ways - {"own"})
    # Where nothing is closed there is nothing new to find.
    return ProcureVariant(without=closed, cut=tuple(families(instance, solution) for solution in solutions))


def _other_nodes(instance: ProcureInstance, solutions: list[ProgramSolution]) -> ProcureVariant:
    return ProcureVariant(cut=tuple(families(instance, solution) for solution in solutions))


def families(instance: ProcureInstance, solution: ProgramSolution) -> frozenset[str]:
    """How which nodes are come by."""
    return frozenset(instance.pools[p].family for p in solution.pools)


STEPS = {"USD": 1e5, "W": 5e4, "d": DAYS_PER_MONTH, "kg": 1e4}
"""$100k, 50 kW, a month, 10 t; one of what is counted."""


def marginal_values(instance: ProcureInstance, first: ProgramSolution, settings: Settings) -> tuple[MarginalValue, ...]:
    """Every limit's, in the order of the limits."""
    return tuple(_marginal_value(instance, first, limit, settings) for limit in limits(instance.asked, instance.pools))


def step(limit: Limit) -> float:
    """How far a limit is moved: its unit's usual step, at most a quarter of it."""
    usual = STEPS.get(limit.unit, 1.0)
    return usual if limit.unit == "" else min(usual, LARGEST_STEP * limit.value) or usual


def _marginal_value(
    instance: ProcureInstance, first: ProgramSolution, limit: Limit, settings: Settings
) -> MarginalValue:
    objective = instance.asked.objective
    by = step(limit)
    again = best(instance, moved(ProcureVariant(), limit.name, limit.value + by), objective, settings)
    gain = 0.0 if again is None else first.value - again.value
    scale = 1e6 if objective == "tokens-per-dollar" else 1.0
    # What lies within the gap of either answer is no gain.
    worth = gain if gain > 2 * settings.gap * abs(first.value) else 0.0
    return MarginalValue(limit=limit.name, step=by, unit=limit.unit, gain=worth * scale, gain_unit=UNITS[objective])
