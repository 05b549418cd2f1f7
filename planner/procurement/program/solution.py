"""The answer of a program as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from planner.procurement.throughput.column import Place

ROUNDING = 1e-12


@dataclass(frozen=True)
class Piece:
    """Days of a job on its pools in one span."""

    job: int
    place: Place
    start: float
    end: float
    days: float


@dataclass(frozen=True)
class ProgramSolution:
    """What is held, which job runs where, and what that comes to."""

    hold: dict[int, int]
    run: dict[int, Place]
    """Job -> the pools that it runs on, at once."""
    work: dict[int, float]
    """Job -> days that it runs."""
    pieces: tuple[Piece, ...]
    """By span, where the program had to say; empty for jobs on hired pools that may start at once."""
    value: float
    bound: float
    """No answer is better than this."""
    use: dict[str, float]
    cost: float
    tokens: float
    """In millions."""
    by_month: bool = False
    """Whether the pieces say when each month's work is done, as a monthly limit needs it."""
    latest: float | None = None
    """The variant's own last day."""

    @property
    def pools(self) -> list[int]:
        """Every pool that is held or works, in order."""
        return sorted({*self.hold, *(p for place in self.run.values() for p in place)})

    def jobs_on(self, pool: int) -> int:
        """How many jobs run on a pool, alone or with others."""
        return sum(pool in place for place in self.run.values())

    @property
    def gap(self) -> float:
        """``|value - bound| / |value|``; what only rounding makes is none."""
        gap = abs(self.value - self.bound) / max(abs(self.value), 1e-9)
        return gap if gap > ROUNDING else 0.0
