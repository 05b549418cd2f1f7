"""The best answer and others that differ in kind: never the same plan with one node less.

First the best without the ways that the answers before it used (without spot, without renting); then, by no-good cuts,
the best with other nodes.
"""

from __future__ import annotations

from planner.procurement.program.instance import ProcureInstance, ProcureVariant
from planner.procurement.program.settings import Settings
from planner.procurement.program.solution import ProgramSolution
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
    found = [first]
    for chosen, narrowed in ((lean, _other_ways), (instance, _other_nodes)):
        while len(found) < top:
            solution = best(chosen, narrowed(instance, found), objective, settings)
            if solution is None:
                break
            found.append(solution)
    return [first, *sorted(found[1:], key=lambda solution: solution.value)]


def _other_ways(instance: ProcureInstance, found: list[ProgramSolution]) -> ProcureVariant:
    ways = {instance.pools[p].way for solution in found for p in solution.pools}
    closed = frozenset(ways - {"own"})
    # Where nothing is closed there is nothing new to find.
    return ProcureVariant(without=closed, cut=tuple(families(instance, solution) for solution in found))


def _other_nodes(instance: ProcureInstance, found: list[ProgramSolution]) -> ProcureVariant:
    return ProcureVariant(cut=tuple(families(instance, solution) for solution in found))


def families(instance: ProcureInstance, solution: ProgramSolution) -> frozenset[str]:
    """How which nodes are come by."""
    return frozenset(instance.pools[p].family for p in solution.pools)
