"""How long and how exactly programs are solved."""

from __future__ import annotations

from dataclasses import dataclass

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
