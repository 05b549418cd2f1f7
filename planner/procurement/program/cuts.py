"""How a program is tightened: cuts from the order of jobs, and columns closed by their reduced costs.

Cuts state what a choice of columns cannot be, and what it must pay for pauses. Reduced-cost fixing (Nemhauser and
Wolsey 1988, II.5) keeps large programs small: an answer that uses a column costs at least the linear relaxation plus
the column's reduced cost, so a first answer closes every column for which that is more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from planner.base.solver import Linear, Outcome, total
from planner.procurement.program.calendar import Choice, Collision
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, ProgramSolution, Settings, better
from planner.procurement.program.integer_program import ProcureProgram, build
from planner.procurement.program.job_order import EPS
from planner.procurement.throughput.column import Place


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
    runs = {x for run in program.run.values() for x in run.coefficients}
    parted = program.problem.relaxed(runs).solve(
        gap=settings.gap / 2, time_limit_s=settings.time_limit_s, solver=settings.solver
    )
    reached = max(outcome.bound, parted.bound)
    known = better(known, _on_used(instance, program, parted, answer))
    return instance, known, reached


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
