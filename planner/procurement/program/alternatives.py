"""The best answer of a procurement and others that differ in kind: never the same one with a node less.

First comes the best without the ways that the answers before it used (without spot, without renting); then, by no-good
cuts, the best with other nodes.
"""

from __future__ import annotations

from functools import partial

from planner.procurement.program.instance import (
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
)
from planner.procurement.program.solve import best


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
            variant = narrowed(instance, solutions)
            solution = settings.watch.optional(partial(best, chosen, variant, objective, settings), None)
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
    """Families of pools that an answer takes: which nodes, acquired in which way."""
    return frozenset(instance.pools[p].family for p in solution.pools)
