"""Other questions of one program: other answers, shadow prices of limits (what more of each brings), and conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.procurement.answer.document import UNITS
from planner.procurement.program.instance import (
    FAR,
    Limit,
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
    limits,
    moved,
)
from planner.procurement.program.solve import best, solve
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


HALVINGS = 7
"""Halvings of a bisection: the share of the work that fits is known to 1 in 128, and told in whole percents."""
DOUBLINGS = 5
"""Doublings of the horizon until there is an answer: some thirty times as long is no remedy."""


@dataclass(frozen=True)
class Conflict:
    """Limits that cannot hold together; without any one of them there is an answer."""

    limits: tuple[str, ...]
    relaxed: dict[str, float]
    """Limit -> what it would have to be, the others as they are; missing where that is not enough."""
    work: float
    """Share of every job's work that fits under all limits."""
    nowhere: tuple[str, ...] = ()
    """Where no limit is to blame: jobs that fit nowhere, even alone."""


def conflict(instance: ProcureInstance, settings: Settings) -> Conflict:
    """The smallest set that deleting limits one by one leaves."""
    names = [limit.name for limit in limits(instance.asked, instance.pools)]
    kept = smallest(instance, names, settings)
    nowhere = () if kept else tuple(_nowhere(reaching(instance, FAR), settings))
    if not kept and not nowhere:  # what is bought is there until the horizon: time is missing all the same
        kept = [name for name in names if name == "horizon" or name.startswith("deadline:")]
    relaxed = {name: value for name in kept if (value := _least(instance, name, settings)) is not None}
    return Conflict(tuple(kept), relaxed, _work_that_fits(instance, settings), nowhere)


def smallest(instance: ProcureInstance, names: Sequence[str], settings: Settings) -> list[str]:
    """Deletion filter: a limit whose absence leaves the rest infeasible is not needed for the conflict."""
    kept = list(names)
    for name in names:
        without = frozenset(names) - frozenset(kept) | {name}
        if solve(instance, ProcureVariant(minimise="", dropped=without), settings) is None:
            kept.remove(name)
    return kept


def _nowhere(instance: ProcureInstance, settings: Settings) -> list[str]:
    """Jobs that nothing which can be had does in any time."""
    names = frozenset(limit.name for limit in limits(instance.asked, instance.pools))
    nowhere = []
    for j, job in enumerate(instance.jobs):
        columns = [replace(c, job=0) for c in instance.columns if c.job == j]
        alone = replace(instance, asked=replace(instance.asked, jobs=(job,)), columns=columns)
        if not columns or solve(alone, ProcureVariant(minimise="", dropped=names), settings) is None:
            nowhere.append(job.name)
    return nowhere


def _least(instance: ProcureInstance, name: str, settings: Settings) -> float | None:
    """The least (or earliest) value of a limit under which the others can hold."""
    if name == "horizon" or name.startswith("deadline:"):
        return _earliest(instance, name, settings)
    least = solve(instance, ProcureVariant(minimise=name, dropped=frozenset({name})), settings)
    if least is None:
        return None
    return _in_pieces_of_months(instance, least.use[name], settings) if name == "monthly" else least.use[name]


def _in_pieces_of_months(instance: ProcureInstance, least: float, settings: Settings) -> float | None:
    """A month's money with which jobs also find an order, by bisection: the least is that of work spread at will."""

    def does(usd: float) -> bool:
        return solve(instance, ProcureVariant(minimise="", moved={"monthly": usd}), settings) is not None

    low = high = least
    for _ in range(DOUBLINGS):
        if does(high):
            break
        low = high
        high = 2 * high
    else:
        return None
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return high


def _earliest(instance: ProcureInstance, name: str, settings: Settings) -> float | None:
    """The day on which a job could be done, by bisection on its deadline (or on the horizon, which reaches as far)."""
    jobs = [n for n, job in enumerate(instance.jobs) if name in ("horizon", f"deadline:{job.name}")]

    def by(day: float) -> float | None:
        earliest = solve(reaching(instance, day), ProcureVariant(minimise="", moved={name: day}), settings)
        return None if earliest is None else _done(earliest, jobs)

    low = high = min(instance.jobs[n].deadline_day for n in jobs)
    done = None
    for _ in range(DOUBLINGS):
        low = high
        high = min(2 * high, FAR)
        if (done := by(high)) is not None:
            break
    if done is None:
        return None
    high = done
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        done = by(middle)
        low, high = (middle, high) if done is None else (low, min(middle, done))
    return high


def reaching(instance: ProcureInstance, day: float) -> ProcureInstance:
    """The instance with a horizon that reaches to a day: what is bought is there, and paid for, as long."""
    later = day - instance.asked.horizon_days
    if later <= 0:
        return instance
    pools = [
        replace(q, held_days=q.held_days + later, fixed_charge=q.fixed_charge + later * q.day_charge)
        if q.way == "buy" and not q.term_days
        else q
        for q in instance.pools
    ]
    return replace(instance, pools=pools, asked=replace(instance.asked, horizon_days=day))


def _done(solution: ProgramSolution, jobs: Sequence[int]) -> float:
    return max(solution.finish(n) for n in jobs)


def _work_that_fits(instance: ProcureInstance, settings: Settings) -> float:
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        trial = solve(instance, ProcureVariant(minimise="", scale=middle), settings)
        low, high = (low, middle) if trial is None else (middle, high)
    return low
