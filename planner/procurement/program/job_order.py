"""Who runs when: jobs one after another at the earliest time at which all that they take is free, in the best order.

A schedule in which no job could start earlier comes about so for some order (Kolisch 1996: the serial scheme generates
all active schedules), so trying the orders, without those that repeat what was tried, finds one if there is any. A job
that may be interrupted is also tried in pieces, around whoever came before it in the order; each pause costs a restart.
Whoever stands in the middle of such a job may have to wait so that two of them stand there at once: so each is also
tried as late as possible. That finds nearly all schedules with pauses, and from three jobs on excludes no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.question.values import DAYS_PER_MONTH

EPS = 1e-7
"""Days: less is nothing."""
MOST_TRIED = 3000
"""Partial schedules, before a search is given up."""
EXACT = 2
"""Jobs, some of which may be paused, of which every schedule has its like among those that are tried: one that runs
within another leaves it as much time wherever it stands.
"""

Times = tuple[tuple[float, float], ...]
"""From when to when, in order."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job in its place: when it may run, how long, and what it takes meanwhile."""

    job: int
    start: float
    due: float
    days: float
    takes: Mapping[str, float]
    """Resource -> units."""
    restart: float | None = None
    """Days lost at each pause; None: it is not paused."""
    usd: float = 0.0
    """A day of it."""
    priority: int = 0

    @property
    def urgency(self) -> tuple[float, int, int]:
        """Whoever has the least goes first."""
        return (self.due, -self.priority, self.job)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the tasks of a search have in common."""

    capacity: Mapping[str, float]
    months: Sequence[float] | None = None
    """US dollars that may be spent in each month; None: any amount."""


@dataclass(frozen=True)
class Found:
    """The best schedule, if any."""

    times: Mapping[int, Times] | None
    """Job -> when it runs."""
    proven: bool
    """Whether nothing is better, or nothing is possible; else there may be a (better) one."""
    lost: float = 0.0
    """US dollars that pauses cost."""


@dataclass
class _Search:
    tasks: Sequence[Task]
    ground: Ground
    tried: set[frozenset[tuple[int, Times]]] = field(default_factory=set)
    best: dict[int, Times] | None = None
    least: float = float("inf")
    exhausted: bool = False

    def go_on(self, placed: dict[int, Times], lost: float) -> None:
        """Every continuation of a partial schedule, the most urgent job first."""
        state = frozenset(placed.items())
        if self.exhausted or state in self.tried or (self.best is not None and lost >= self.least - 1e-9):
            return
        if len(placed) == len(self.tasks):
            self.best, self.least = dict(placed), lost
            return
        self.tried.add(state)
        self.exhausted = len(self.tried) > MOST_TRIED
        options = [option for task in self.tasks if task.job not in placed for option in self._options(task, placed)]
        if {task.job for task, _ in options} | placed.keys() != {task.job for task in self.tasks}:
            return  # someone is late already
        for task, times in options:
            self.go_on({**placed, task.job: times}, lost + _lost(task, times))

    def _options(self, task: Task, placed: Mapping[int, Times]) -> list[tuple[Task, Times]]:
        taken = [(other, placed[other.job]) for other in self.tasks if other.job in placed]
        options = list(ways(task, taken, self.ground))
        if any(other.restart is not None and other is not task and other.job not in placed for other in self.tasks):
            options += as_late(task, taken, self.ground)
        return [(task, times) for times in dict.fromkeys(options)]


def sequenced(tasks: Iterable[Task], ground: Ground) -> Found:
    """The schedule in which all tasks are done in time and pauses cost least."""
    search = _Search(sorted(tasks, key=lambda task: task.urgency), ground)
    search.go_on({}, 0.0)
    pauses = any(task.restart is not None for task in search.tasks) and len(search.tasks) > EXACT
    complete = not search.exhausted and not pauses
    if search.best is None:
        return Found(None, complete)
    return Found(search.best, complete or search.least <= 1e-9, search.least)


def conflicting(tasks: Sequence[Task], ground: Ground) -> list[Task]:
    """A smallest part of the tasks that cannot be put in any order: each of it is needed for that."""
    kept = list(tasks)
    for task in tasks:
        fewer = [other for other in kept if other is not task]
        schedule = sequenced(fewer, ground) if fewer else Found({}, True)
        if schedule.times is None and schedule.proven:
            kept = fewer
    return kept


def ways(task: Task, taken: Sequence[tuple[Task, Times]], ground: Ground) -> Iterator[Times]:
    """In one piece as early as possible, and where that is another end, in pieces, early or few."""
    free = _free(task, taken, ground)
    left = _left(task, taken, ground)
    whole = _in_one_piece(task, free, left)
    if whole is not None:
        yield whole
    if task.restart is not None:
        pieces = _in_pieces(task, free, left)
        if pieces is not None and len(pieces) > 1 and (whole is None or pieces[-1][1] < whole[-1][1] - EPS):
            yield pieces
        fewer = _in_pieces(task, _longest(task, free), left)
        if pieces is not None and fewer is not None and 1 < len(fewer) < len(pieces):
            yield fewer


def as_late(task: Task, taken: Sequence[tuple[Task, Times]], ground: Ground) -> list[Times]:
    """In one piece as late as possible, where money does not count by the month."""
    if ground.months is not None:
        return []
    ends = [end for start, end in _free(task, taken, ground) if end - start >= task.days - EPS]
    return [((end - task.days, end),) for end in ends[-1:]]


def _lost(task: Task, times: Times) -> float:
    """US dollars for restarts; a little of nothing, so that no one is paused in vain."""
    return (len(times) - 1) * ((task.restart or 0.0) * task.usd + 1e-6)


# ---- where there is room ---------------------------------------------------------------------------------------------


def _free(task: Task, taken: Sequence[tuple[Task, Times]], ground: Ground) -> list[tuple[float, float]]:
    """Times between the task's first and last day at which everything it takes is free."""
    busy: list[tuple[float, float]] = []
    for name, units in task.takes.items():
        busy += _full(name, ground.capacity[name] - units, taken)
    reached = task.start
    free = []
    for start, end in sorted(busy):
        if min(start, task.due) - reached > EPS:
            free.append((reached, min(start, task.due)))
        reached = max(reached, end)
    return [*free, (reached, task.due)] if task.due - reached > EPS else free


def _full(name: str, most: float, taken: Sequence[tuple[Task, Times]]) -> Iterator[tuple[float, float]]:
    """Times at which more than so much of a resource is taken."""
    changes = sorted(
        change
        for other, times in taken
        if name in other.takes
        for start, end in times
        for change in ((start, other.takes[name]), (end, -other.takes[name]))
    )
    level = 0.0
    since = None if most >= -EPS else float("-inf")
    for n, (day, by) in enumerate(changes):
        level += by
        if n + 1 < len(changes) and changes[n + 1][0] - day <= 0:
            continue
        if level > most + EPS and since is None:
            since = day
        elif level <= most + EPS and since is not None:
            yield since, day
            since = None
    if since is not None:
        yield since, float("inf")


# ---- what months leave -----------------------------------------------------------------------------------------------


def _left(task: Task, taken: Sequence[tuple[Task, Times]], ground: Ground) -> list[float] | None:
    """Days of the task that each month's money still pays for; None where that is not limited."""
    if ground.months is None or task.usd <= 0:
        return None
    left = list(ground.months)
    for other, times in taken:
        for n in range(len(left)):
            left[n] -= other.usd * sum(_overlap(n, a, b) for a, b in times)
    return [max(0.0, usd) / task.usd for usd in left]


def _overlap(month: int, start: float, end: float) -> float:
    return max(0.0, min(end, (month + 1) * DAYS_PER_MONTH) - max(start, month * DAYS_PER_MONTH))


def _in_one_piece(task: Task, free: Sequence[tuple[float, float]], left: list[float] | None) -> Times | None:
    for start, end in free:
        if end - start < task.days - EPS:
            continue
        days = [start]
        if left is not None:
            days += [(n + 1) * DAYS_PER_MONTH - most for n, most in enumerate(left)]
        for day in sorted(day for day in days if start <= day <= end - task.days + EPS):
            if _paid(day, day + task.days, left):
                return ((day, day + task.days),)
    return None


def _paid(start: float, end: float, left: list[float] | None) -> bool:
    return left is None or all(_overlap(n, start, end) <= most + EPS for n, most in enumerate(left))


def _in_pieces(task: Task, free: Sequence[tuple[float, float]], left: list[float] | None) -> Times | None:
    """As much as there is room for, again and again; whoever was paused first restarts."""
    todo = task.days
    restart = task.restart or 0.0
    pieces = list[tuple[float, float]]()
    for start, end in _paid_parts(free, left):
        joined = bool(pieces) and start - pieces[-1][1] <= EPS
        need = todo + (restart if pieces and not joined else 0.0)
        room = min(end - start, need)
        if room <= (restart if pieces and not joined else 0.0) + EPS:
            continue
        piece = (start, start + room)
        pieces = [*pieces[:-1], (pieces[-1][0], piece[1])] if joined else [*pieces, piece]
        todo = need - room
        if todo <= EPS:
            return tuple(pieces)
    return None


def _longest(task: Task, free: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The fewest free times that have room for a task in pieces."""
    longest = sorted(free, key=lambda times: times[0] - times[1])
    for n in range(1, len(longest)):
        room = sum(end - start for start, end in longest[:n]) - (n - 1) * (task.restart or 0.0)
        if room >= task.days - EPS:
            return sorted(longest[:n])
    return list(free)


def _paid_parts(free: Sequence[tuple[float, float]], left: list[float] | None) -> Iterator[tuple[float, float]]:
    """Free times, cut at the ends of months and to what those pay for."""
    if left is None:
        yield from free
        return
    for n, most in enumerate(left):
        for start, end in free:
            start = max(start, n * DAYS_PER_MONTH)
            end = min(end, (n + 1) * DAYS_PER_MONTH)
            room = min(end - start, most)
            if room > EPS:
                yield start, start + room
                most -= room
