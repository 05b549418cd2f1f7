"""From days to a calendar: which copy of a pool each job is on, from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.procure.model import Instance, month_share
from planner.procure.portfolio import DAYS_PER_MONTH
from planner.procure.solution import Piece, Solution

EPS = 1e-7
"""Days: less is nothing."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One job on one copy of a pool without a break."""

    job: int
    pool: int
    copy: int
    start: float
    end: float


def calendar(instance: Instance, solution: Solution) -> tuple[Stretch, ...]:
    """Every stretch of every job, by start. Jobs on hired pools start at once unless a monthly limit spreads them."""
    found: list[Stretch] = []
    for p in sorted(set(solution.run.values())):
        jobs = [j for j, q in solution.run.items() if q == p]
        pieces = [piece for piece in solution.pieces if piece.pool == p]
        if instance.pools[p].hired:
            found += _hired(instance, solution, p, jobs, pieces)
        elif solution.by_month:
            found += _wrapped(pieces)
        else:
            found += _earliest_deadline(instance, solution, p, jobs) or _wrapped(pieces)
    return tuple(sorted(_joined(found), key=lambda s: (s.start, s.job)))


def finish(stretches: Sequence[Stretch], job: int) -> float:
    """The day on which a job is done."""
    return max(s.end for s in stretches if s.job == job)


def makespan(instance: Instance, solution: Solution) -> float:
    """The day on which all is done."""
    return max(s.end for s in calendar(instance, solution))


def most_in_a_month(instance: Instance, solution: Solution, stretches: Sequence[Stretch]) -> float:
    """US dollars spent in the dearest month, without capital."""
    last = max(
        [s.end for s in stretches] + [instance.pools[p].start_day + instance.pools[p].held_days for p in solution.hold]
    )
    most = 0.0
    for n in range(int(last / DAYS_PER_MONTH) + 1):
        a, b = n * DAYS_PER_MONTH, (n + 1) * DAYS_PER_MONTH
        held = sum(
            month_share(instance.pools[p], n) * instance.pools[p].month_usd * x for p, x in solution.hold.items()
        )
        used = sum(max(0.0, min(b, s.end) - max(a, s.start)) * instance.pools[s.pool].day_usd for s in stretches)
        most = max(most, held + used)
    return most


def _hired(
    instance: Instance, solution: Solution, p: int, jobs: Sequence[int], pieces: Sequence[Piece]
) -> list[Stretch]:
    if pieces:
        return [Stretch(x.job, p, 0, x.start, x.start + x.days) for x in pieces]
    pool = instance.pools[p]
    starts = {j: max(instance.jobs[j].release_day, pool.start_day) for j in jobs}
    return [Stretch(j, p, 0, starts[j], starts[j] + solution.work[j]) for j in jobs]


def _due(instance: Instance, solution: Solution, j: int, p: int) -> float:
    day = min(instance.jobs[j].deadline_day, instance.pools[p].last_day)
    return day if solution.latest is None else min(day, solution.latest)


def _earliest_deadline(instance: Instance, solution: Solution, p: int, jobs: Sequence[int]) -> list[Stretch]:
    """Whoever is due first runs first, from the first possible day; nothing where someone would be late.

    On one copy this is best (Horn 1974); on several it mostly works, and :func:`_wrapped` always does.
    """
    pool, copies = instance.pools[p], solution.hold[p]
    left = {j: solution.work[j] for j in jobs}
    ready = {j: max(instance.jobs[j].release_day, pool.start_day) for j in jobs}
    order = sorted(jobs, key=lambda j: (_due(instance, solution, j, p), -instance.jobs[j].priority, j))
    found: list[Stretch] = []
    places: dict[int, int] = {}
    now = min(ready.values())
    while any(days > EPS for days in left.values()):
        running = [j for j in order if left[j] > EPS and ready[j] <= now + EPS][:copies]
        later = [day for j, day in ready.items() if day > now + EPS and left[j] > EPS]
        if not running:
            now = min(later)
            continue
        until = min([now + left[j] for j in running] + later)
        places = _placed(running, places, copies)
        for j in running:
            found.append(Stretch(j, p, places[j], now, until))
            left[j] -= until - now
        now = until
    late = any(s.end > _due(instance, solution, s.job, p) * (1 + 1e-9) + EPS for s in found)
    return [] if late and copies > 1 else found


def _placed(running: Sequence[int], before: dict[int, int], copies: int) -> dict[int, int]:
    """A copy for each job, the one that it had where possible."""
    kept = {j: before[j] for j in running if j in before}
    free = [c for c in range(copies) if c not in kept.values()]
    return kept | dict(zip([j for j in running if j not in kept], free, strict=False))


def _wrapped(pieces: Sequence[Piece]) -> list[Stretch]:
    """McNaughton's rule: fill one copy of a span after another, and let who is cut go on at the next one's start."""
    found = []
    for start, end in sorted({(x.start, x.end) for x in pieces}):
        copy, now = 0, start
        for piece in (x for x in pieces if x.start == start):
            left = piece.days
            while left > EPS:
                step = min(left, end - now)
                found.append(Stretch(piece.job, piece.pool, copy, now, now + step))
                left, now = left - step, now + step
                if end - now <= EPS:
                    copy, now = copy + 1, start
    return found


def _joined(found: Sequence[Stretch]) -> list[Stretch]:
    """Stretches that follow one another without a break, as one."""
    joined: list[Stretch] = []
    for s in sorted(found, key=lambda s: (s.job, s.pool, s.copy, s.start)):
        last = joined[-1] if joined else None
        if last and (last.job, last.pool, last.copy) == (s.job, s.pool, s.copy) and abs(last.end - s.start) <= EPS:
            joined[-1] = Stretch(s.job, s.pool, s.copy, last.start, s.end)
        else:
            joined.append(s)
    return joined
