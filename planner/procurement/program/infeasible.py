"""Why there is no answer: a smallest set of limits that conflict, by name, and how far each would have to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.procurement.program.instance import FAR, ProcureInstance, ProcureVariant, limits
from planner.procurement.program.solution import ProgramSolution
from planner.procurement.program.solve import Settings, solve

HALVINGS = 14
"""Of a bisection: the amount of work that fits is known to 1 in 16,000."""


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot hold together; without any one of them there is an answer."""

    limits: tuple[str, ...]
    relaxed: dict[str, float]
    """Limit -> what it would have to be, the others as they are; missing where that is not enough."""
    work: float
    """Share of every job's work that fits under all limits."""


def conflict(instance: ProcureInstance, settings: Settings) -> Conflict:
    """The smallest set that deleting limits one by one leaves."""
    kept = smallest(instance, [limit.name for limit in limits(instance.asked, instance.pools)], settings)
    relaxed = {name: value for name in kept if (value := _least(instance, name, settings)) is not None}
    return Conflict(tuple(kept), relaxed, _work_that_fits(instance, settings))


def smallest(instance: ProcureInstance, names: Sequence[str], settings: Settings) -> list[str]:
    """Deletion filter: a limit whose absence leaves the rest infeasible is not needed for the conflict."""
    kept = list(names)
    for name in names:
        without = frozenset(names) - frozenset(kept) | {name}
        if _feasible(instance, ProcureVariant(dropped=without), settings) is None:
            kept.remove(name)
    return kept


def _feasible(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    return solve(instance, variant, settings)


def _least(instance: ProcureInstance, name: str, settings: Settings) -> float | None:
    """The least (or earliest) value of a limit under which the others can hold."""
    off = ProcureVariant(dropped=frozenset({name}))
    if name == "horizon" or name.startswith("deadline:"):
        return _earliest(instance, off, name, settings)
    found = solve(instance, replace(off, minimise=name), settings)
    return None if found is None else found.use[name]


def _earliest(instance: ProcureInstance, off: ProcureVariant, name: str, settings: Settings) -> float | None:
    """The day on which a job could be done, by bisection on its deadline."""
    found = solve(instance, off, settings)
    if found is None:
        return None
    jobs = [n for n, job in enumerate(instance.jobs) if name in ("horizon", f"deadline:{job.name}")]
    low, high = min(instance.jobs[n].deadline_day for n in jobs), _done(found, jobs)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        trial = solve(instance, ProcureVariant(moved={name: middle}), settings)
        low, high = (middle, high) if trial is None else (low, min(middle, _done(trial, jobs)))
    return min(high, FAR)


def _done(found: ProgramSolution, jobs: Sequence[int]) -> float:
    return max(found.finish(n) for n in jobs)


def _work_that_fits(instance: ProcureInstance, settings: Settings) -> float:
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        trial = solve(instance, ProcureVariant(scale=middle), settings)
        low, high = (low, middle) if trial is None else (middle, high)
    return low
