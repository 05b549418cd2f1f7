"""What the order of jobs says to the program: what it chose and cannot be, and what it must pay for pauses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.procurement.program.calendar import Choice, Collision, first_days
from planner.procurement.program.instance import ProcureInstance
from planner.procurement.program.integer_program import ProcureProgram
from planner.procurement.program.job_order import EPS
from planner.procurement.throughput.column import Place
from planner.solver import Linear, total


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
        copies, widest = choice.hold[p], instance.asked.horizon_days * instance.pools[p].copies
        program.problem.constrain(program.late[p] <= copies * collision.late + widest * other, f"order_{n}_{p}")


def charge(
    program: ProcureProgram, instance: ProcureInstance, choice: Choice, jobs: Sequence[int], usd: float, n: str
) -> None:
    """``pauses[n]``: ``sum_j restart rate pause[j,q] >= lost (1 - sum_j (1 - run[j,q]) - sum_x more[x])``."""
    names = tuple(each.name for each in program.shared if any((j, choice.run[j]) in each.units for j in jobs))
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
    problem, hold, terms, before = program.problem, program.hold[p], [], 0.0
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
    for each in program.shared:
        if each.name not in collision.resources:
            continue
        for p, adds in each.holds.items():
            if p in program.hold:
                yield from _other(program, program.hold[p], choice.hold.get(p, 0), adds > 0, f"{each.label}_{p}_{n}")
        if each.name in program.most:
            had = round(choice.most[each.name])
            yield from _other(program, program.most[each.name], had, True, f"{each.label}_{n}")


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
