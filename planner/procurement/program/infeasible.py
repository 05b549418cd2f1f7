"""Why a procurement has no answer: a smallest set of limits that conflict, and how far each would have to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.procurement.program.instance import (
    FAR,
    ProcureInstance,
    ProcureVariant,
    Settings,
    limits,
)
from planner.procurement.program.solve import solve

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
    """The smallest set of conflicting limits that deleting them one by one leaves."""
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
        return None if earliest is None else max(earliest.finish(n) for n in jobs)

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


def _work_that_fits(instance: ProcureInstance, settings: Settings) -> float:
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        trial = solve(instance, ProcureVariant(minimise="", scale=middle), settings)
        low, high = (low, middle) if trial is None else (middle, high)
    return low
