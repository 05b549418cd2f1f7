"""How a program is tightened: cuts from the order of jobs, and columns closed by their reduced costs.

Cuts state what a choice of columns cannot be, and what it must pay for pauses. Reduced-cost fixing (Nemhauser and
Wolsey 1988, II.5) keeps large programs small: an answer that uses a column costs at least the linear relaxation plus
the column's reduced cost, so a first answer closes every column for which that is more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from planner.procurement.program.calendar import Choice, Collision, first_days
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, ProgramSolution, Settings, better
from planner.procurement.program.integer_program import ProcureProgram, build
from planner.procurement.program.job_order import EPS
from planner.procurement.throughput.column import Place
from planner.solver import Linear, Outcome, Status, total


def forbid(program: ProcureProgram, instance: ProcureInstance, choice: Choice, collision: Collision, n: str) -> None:
    """``order[n]``: ``sum_j (1 - run[j,q]) + sum_x more[x] >= 1``: a job elsewhere (of identical ones, one fewer
    there), or more of what they share; where only the first day of their pool is to blame, it is no later unless one of
    these holds.
    """
    other = _elsewhere(program, choice, collision.jobs) + total(_more(program, choice, collision, n))
    if collision.late is None:
        program.problem.constrain(other >= 1, f"order_{n}")
        return
    for p in sorted({p for j in collision.jobs for p in choice.run[j] if p in program.late}):
        copies = choice.hold[p]
        widest = instance.asked.horizon_days * instance.pools[p].copies
        program.problem.constrain(program.late[p] <= copies * collision.late + widest * other, f"order_{n}_{p}")


def charge(
    program: ProcureProgram, instance: ProcureInstance, choice: Choice, jobs: Sequence[int], usd: float, n: str
) -> None:
    """``pauses[n]``: ``sum_j restart rate pause[j,q] >= lost (1 - sum_j (1 - run[j,q]) - sum_x more[x])``."""
    names = tuple(
        resource.name for resource in program.shared if any((j, choice.run[j]) in resource.units for j in jobs)
    )
    other = _elsewhere(program, choice, jobs) + total(_more(program, choice, Collision(tuple(jobs), names, True), n))
    paid = [
        instance.jobs[key[0]].restart_days * sum(instance.pools[p].day_usd for p in key[1]) * program.pause[key]
        for key in keys(program, choice, jobs)
        if key in program.pause
    ]
    program.problem.constrain(total(paid) >= usd * (1 - other), f"pauses_{n}")


def on_first_days(program: ProcureProgram, p: int, days: Sequence[float], copies: int) -> None:
    """``late[p] = sum_d (d - d') later[p,d]``, d' the day before d: copies begin on one of these days after delivery,
    all on the same: ``later[p,d] = hold[p] from[p,d]``.
    """
    problem = program.problem
    hold = program.hold[p]
    terms = []
    before = 0.0
    for n, day in enumerate(days):
        later, begins = problem.continuous(f"later_{p}_{n}"), problem.binary(f"from_{p}_{n}")
        problem.constrain(later <= hold, f"later_held_{p}_{n}")
        problem.constrain(later <= copies * begins, f"later_if_{p}_{n}")
        problem.constrain(later >= hold - copies * (1 - begins), f"later_all_{p}_{n}")
        if n:
            problem.constrain(begins <= Linear({f"from_{p}_{n - 1}": 1.0}), f"later_order_{p}_{n}")
        terms.append((day - before) * later)
        before = day
    problem.constrain(program.late[p] == total(terms), f"first_days_{p}")


def begin_on_first_days(
    program: ProcureProgram, instance: ProcureInstance, days_late: Mapping[int, float], dates: set[int]
) -> bool:
    """Whether a purchase got a constraint on the days on which it may begin."""
    changed = False
    for p, late in days_late.items():
        pool = instance.pools[p]
        days = [day - pool.start_day for day in first_days(instance, pool)]
        if pool.term_days or p in dates or any(abs(day - late) <= EPS for day in days):
            continue
        dates.add(p)
        on_first_days(program, p, sorted(day for day in days if day > 0), pool.copies)
        changed = True
    return changed


def _elsewhere(program: ProcureProgram, choice: Choice, jobs: Sequence[int]) -> Linear:
    return total(1 - program.at_least(key, count) for key, count in keys(program, choice, jobs).items())


def keys(program: ProcureProgram, choice: Choice, jobs: Iterable[int]) -> Counter[tuple[int, Place]]:
    """What stands for these jobs where they run, and for how many of them."""
    return Counter((program.first(j), choice.run[j]) for j in jobs)


def _more(program: ProcureProgram, choice: Choice, collision: Collision, n: str) -> Iterator[Linear]:
    """1 if there is more of what the jobs share: another copy, fewer nodes held of what is hired, more to be had."""
    for resource in program.shared:
        if resource.name not in collision.resources:
            continue
        for p, adds in resource.holds.items():
            if p in program.hold:
                yield from _other(
                    program, program.hold[p], choice.hold.get(p, 0), adds > 0, f"{resource.label}_{p}_{n}"
                )
        if resource.name in program.most:
            had = round(choice.most[resource.name])
            yield from _other(program, program.most[resource.name], had, True, f"{resource.label}_{n}")


def _other(program: ProcureProgram, of: Linear, now: int, up: bool, name: str) -> Iterator[Linear]:
    """A variable that is 1 only if another is above (or below) what it is now."""
    if not up and now == 0:
        return
    changed = program.problem.binary(f"more_{name}")
    if up:
        program.problem.constrain(of >= (now + 1) * changed, f"more_if_{name}")
    else:
        (column,) = (program.problem.columns[x] for x in of.coefficients)
        most = column.high if column.high is not None else now
        program.problem.constrain(of <= most - (most - now + 1) * changed, f"more_if_{name}")
    yield changed


MANY = 1000
"""Columns from which on it pays to ask first which of them may matter."""
PARTED_ROUNDS = 8
"""Rounds of a large program with interruptible jobs, which ask on which days purchases may begin."""
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
    program = build(instance, variant)
    reached = outcome.bound
    dates = set[int]()
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
    late_pools = {p: (instance.pools[p].family, instance.pools[p].nodes) for p in program.late}
    return {p: kinds[kind] for p, kind in late_pools.items() if kind in kinds} | dict(late)


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
