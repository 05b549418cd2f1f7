"""How long and how exactly programs are solved (:class:`Settings`), and their answer as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.procurement.throughput.column import Place
from planner.solver import GAP, SolverName

TIME_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how exactly to solve, and where."""

    gap: float = GAP
    time_limit_s: float = TIME_LIMIT_S
    solver: SolverName = "highs"
    engine: str | None = None
    """A cluster that searches the plans (:class:`planner.base.processes.Workers`)."""


USUAL = Settings()


ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class ScheduledStretch:
    """One job on one copy of a pool without a break. A job on several pools has one for each, at the same time."""

    job: int
    pool: int
    copy: int
    start: float
    end: float


@dataclass(frozen=True)
class ProgramSolution:
    """What is held, which job runs where and when, and what that comes to."""

    hold: dict[int, int]
    """Pool -> copies that are held, or work at a time where they are owned."""
    run: dict[int, Place]
    """Job -> the pools that it runs on, at once."""
    calendar: tuple[ScheduledStretch, ...]
    """By start."""
    value: float
    bound: float
    """No answer is better than this."""
    use: dict[str, float]
    cost: float
    tokens: float
    """In millions."""
    starts: Mapping[int, float] = field(default_factory=dict)
    """Pool -> the day from which it is held, where that is later than it could be."""

    @property
    def pools(self) -> list[int]:
        """Every pool that is held or works, in order."""
        return sorted({*self.hold, *(p for place in self.run.values() for p in place)})

    @property
    def done(self) -> float:
        """The day on which all is done."""
        return max(s.end for s in self.calendar)

    def finish(self, job: int) -> float:
        """The day on which a job is done."""
        return max(s.end for s in self.calendar if s.job == job)

    def jobs_on(self, pool: int) -> int:
        """How many jobs run on a pool, alone or with others."""
        return sum(pool in place for place in self.run.values())

    @property
    def gap(self) -> float:
        """``|value - bound| / |value|``; what only rounding makes is none."""
        gap = abs(self.value - self.bound) / max(abs(self.value), 1e-9)
        return gap if gap > ROUNDING else 0.0


def better(one: ProgramSolution | None, other: ProgramSolution | None) -> ProgramSolution | None:
    """The one that costs less; None where neither is one."""
    known = [solution for solution in (one, other) if solution is not None]
    return min(known, key=lambda solution: solution.value, default=None)
