"""From days to a calendar: which copy of each of its pools a job is on, from when to when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from planner.procurement.program.model import ProcureInstance, held_of, month_share
from planner.procurement.program.solution import Piece, ProgramSolution
from planner.procurement.throughput.column import Place
from planner.question.values import DAYS_PER_MONTH

EPS = 1e-7
"""Days: less is nothing."""


@dataclass(frozen=True, slots=True)
class ScheduledStretch:
    """One job on one copy of a pool without a break. A job on several pools has one for each, at the same time."""

    job: int
    pool: int
    copy: int
    start: float
    end: float


def calendar(instance: ProcureInstance, solution: ProgramSolution) -> tuple[ScheduledStretch, ...]:
    """Every stretch of every job, by start. Jobs on hired pools start at once unless a monthly limit spreads them."""
    found: list[ScheduledStretch] = []
    for jobs in _meeting(instance, solution):
        pieces = [piece for piece in solution.pieces if piece.job in jobs]
        if not any(held_of(instance, solution.run[j]) for j in jobs):
            found += _hired(instance, solution, jobs, pieces)
        elif solution.by_month:
            found += _wrapped(instance, pieces)
        else:
            found += _earliest_deadline(instance, solution, jobs) or _wrapped(instance, pieces)
    return tuple(sorted(_joined(found), key=lambda s: (s.start, s.job, s.pool)))


def finish(stretches: Sequence[ScheduledStretch], job: int) -> float:
    """The day on which a job is done."""
    return max(s.end for s in stretches if s.job == job)


def makespan(instance: ProcureInstance, solution: ProgramSolution) -> float:
    """The day on which all is done."""
    return max(s.end for s in calendar(instance, solution))


def most_in_a_month(
    instance: ProcureInstance, solution: ProgramSolution, stretches: Sequence[ScheduledStretch]
) -> float:
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


def _meeting(instance: ProcureInstance, solution: ProgramSolution) -> list[list[int]]:
    """The jobs in groups that share held pools, directly or through others; a job that only hires is its own."""
    groups: list[tuple[frozenset[int], list[int]]] = []
    for j in sorted(solution.run):
        pools = held_of(instance, solution.run[j])
        mine = [group for group in groups if group[0] & pools]
        groups = [group for group in groups if group not in mine]
        groups.append((pools.union(*(g[0] for g in mine)), sorted([j, *(k for g in mine for k in g[1])])))
    return [jobs for _, jobs in groups]


def _ready(instance: ProcureInstance, solution: ProgramSolution, j: int) -> float:
    """The day from which a job and all of its pools are there."""
    return max(instance.jobs[j].release_day, *(instance.pools[p].start_day for p in solution.run[j]))


def _on_each(j: int, place: Place, copies: dict[int, int], start: float, end: float) -> Iterator[ScheduledStretch]:
    """A stretch on every pool of a place; of what is hired each job has its own, the first."""
    return (ScheduledStretch(j, p, copies.get(p, 0), start, end) for p in place)


def _hired(
    instance: ProcureInstance, solution: ProgramSolution, jobs: Sequence[int], pieces: Sequence[Piece]
) -> list[ScheduledStretch]:
    if pieces:
        return [s for x in pieces for s in _on_each(x.job, x.place, {}, x.start, x.start + x.days)]
    starts = {j: _ready(instance, solution, j) for j in jobs}
    return [s for j in jobs for s in _on_each(j, solution.run[j], {}, starts[j], starts[j] + solution.work[j])]


# ---- whoever is due first --------------------------------------------------------------------------------------------


def _due(instance: ProcureInstance, solution: ProgramSolution, j: int) -> float:
    day = min(instance.jobs[j].deadline_day, *(instance.pools[p].last_day for p in solution.run[j]))
    return day if solution.latest is None else min(day, solution.latest)


def _earliest_deadline(
    instance: ProcureInstance, solution: ProgramSolution, jobs: Sequence[int]
) -> list[ScheduledStretch]:
    """Whoever is due first runs first, from the first possible day, on all of its pools; nothing where someone would be
    late.

    On one copy of one pool this is best (Horn 1974); on several it mostly works, and :func:`_wrapped` always does.
    """
    left = {j: solution.work[j] for j in jobs}
    ready = {j: _ready(instance, solution, j) for j in jobs}
    held = {j: held_of(instance, solution.run[j]) for j in jobs}
    copies = {p: solution.hold[p] for j in jobs for p in held[j]}
    order = sorted(jobs, key=lambda j: (_due(instance, solution, j), -instance.jobs[j].priority, j))
    found: list[ScheduledStretch] = []
    places: dict[tuple[int, int], int] = {}
    now = min(ready.values())
    while any(days > EPS for days in left.values()):
        running = _first([j for j in order if left[j] > EPS and ready[j] <= now + EPS], held, copies)
        later = [day for j, day in ready.items() if day > now + EPS and left[j] > EPS]
        if not running:
            now = min(later)
            continue
        until = min([now + left[j] for j in running] + later)
        places = {key: copy for p in copies for key, copy in _placed(p, running, held, places, copies[p]).items()}
        for j in running:
            found += _on_each(j, solution.run[j], {p: places[j, p] for p in held[j]}, now, until)
            left[j] -= until - now
        now = until
    late = any(s.end > _due(instance, solution, s.job) * (1 + 1e-9) + EPS for s in found)
    return [] if late and (len(copies) > 1 or max(copies.values()) > 1) else found


def _first(order: Sequence[int], held: dict[int, frozenset[int]], copies: dict[int, int]) -> list[int]:
    """Of the jobs in their order those for which there are copies of all pools left."""
    free, running = dict(copies), []
    for j in order:
        if all(free[p] > 0 for p in held[j]):
            running.append(j)
            free |= {p: free[p] - 1 for p in held[j]}
    return running


def _placed(p: int, running: Sequence[int], held: dict[int, frozenset[int]], before: dict[tuple[int, int], int],
            copies: int) -> dict[tuple[int, int], int]:  # fmt: skip
    """A copy of a pool for each job on it, the one that it had where possible."""
    on_it = [(j, p) for j in running if p in held[j]]
    kept = {key: before[key] for key in on_it if key in before}
    free = [c for c in range(copies) if c not in kept.values()]
    return kept | dict(zip([key for key in on_it if key not in kept], free, strict=False))


# ---- as the program laid it out --------------------------------------------------------------------------------------


@dataclass
class _Lane:
    """The copies of a pool in one span, one after another: what of them is taken, and how far they are filled."""

    start: float
    end: float
    copy: int = 0
    taken: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    def fill(self, days: float) -> list[tuple[int, float, float]]:
        """Takes so many days, a copy after another, at times that do not overlap; (copy, start, end) of each part."""
        parts: list[tuple[int, float, float]] = []
        while days > EPS:
            free = _free(self.start, self.end, [*self.taken.get(self.copy, ()), *((a, b) for _, a, b in parts)])
            for start, end in free:
                if days > EPS:
                    parts.append((self.copy, start, min(end, start + days)))
                    self.taken.setdefault(self.copy, []).append(parts[-1][1:])
                    days -= parts[-1][2] - start
            if days > EPS:
                self.copy += 1
        return parts


def _free(start: float, end: float, taken: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times of a span that are not taken."""
    marks = [(start, start), *sorted(taken), (end, end)]
    reached, found = start, []
    for (_, before), (after, _) in pairwise(marks):
        reached = max(reached, before)
        if after - reached > EPS:
            found.append((reached, after))
    return found


def _wrapped(instance: ProcureInstance, pieces: Sequence[Piece]) -> list[ScheduledStretch]:
    """McNaughton's rule: fill one copy of a span after another, and let who is cut go on at the next one's start.

    Jobs on several held pools go first, at the same time on the same copy of each; the others fill what is left.
    """
    found: list[ScheduledStretch] = []
    for start, end in sorted({(x.start, x.end) for x in pieces}):
        lanes: dict[int, _Lane] = {}
        common = _Lane(start, end)
        here = [x for x in pieces if x.start == start]
        several = [x for x in here if len(held_of(instance, x.place)) > 1]
        for piece in several:
            for copy, a, b in common.fill(piece.days):
                held = held_of(instance, piece.place)
                found += _on_each(piece.job, piece.place, dict.fromkeys(held, copy), a, b)
                for p in held:
                    lanes.setdefault(p, _Lane(start, end)).taken.setdefault(copy, []).append((a, b))
        for piece in (x for x in here if x not in several):
            (p,) = held_of(instance, piece.place)
            for copy, a, b in lanes.setdefault(p, _Lane(start, end)).fill(piece.days):
                found += _on_each(piece.job, piece.place, {p: copy}, a, b)
    return found


def _joined(found: Sequence[ScheduledStretch]) -> list[ScheduledStretch]:
    """Stretches that follow one another without a break, as one."""
    joined: list[ScheduledStretch] = []
    for s in sorted(found, key=lambda s: (s.job, s.pool, s.copy, s.start)):
        last = joined[-1] if joined else None
        if last and (last.job, last.pool, last.copy) == (s.job, s.pool, s.copy) and abs(last.end - s.start) <= EPS:
            joined[-1] = ScheduledStretch(s.job, s.pool, s.copy, last.start, s.end)
        else:
            joined.append(s)
    return joined
