"""A procurement as plain numbers: the program's instance, how exactly it is solved, and its solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.base.solver import GAP, SolverName
from planner.base.stopping import Watch
from planner.procurement.question.portfolio import Job, Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column, Place, Survival

FAR = 40 * 365.25
"""Days: a deadline that no longer limits anything."""


@dataclass(frozen=True)
class ProcureInstance:
    """A question made computable: jobs, pools and the columns that join them."""

    asked: Portfolio
    pools: Sequence[SupplyPool]
    columns: Sequence[Column]
    standing: Mapping[str, float] = field(default_factory=dict)
    """Limit -> what of it machines owned already take, whether they work or not."""
    survivals: Mapping[tuple[int, Place], Survival] = field(default_factory=dict)
    """Job and place -> what the loss of nodes costs, where the question asks that deadlines hold in spite of one."""
    dated: Mapping[int, int] = field(default_factory=dict)
    """Pool -> the pool that it is from a later day on (:mod:`.on_dates`)."""
    repeats: Mapping[int, int] = field(default_factory=dict)
    """Pool, after all that are offered -> the offered pool of which it is more copies, from another day on
    (:mod:`.several_starts`).
    """

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs."""
        return self.asked.jobs

    @property
    def more_starts(self) -> dict[int, list[int]]:
        """Offered pool -> the pools of which it is more copies, from other days on."""
        more: dict[int, list[int]] = {}
        for q, p in self.repeats.items():
            more.setdefault(p, []).append(q)
        return more

    def as_offered(self, place: Place) -> Place:
        """The offered pools of a place."""
        return tuple(self.repeats.get(p, p) for p in place)


@dataclass(frozen=True, kw_only=True)
class ProcureVariant:
    """The instance turned a little: what is minimised, which limits are off or moved, what is forbidden."""

    minimise: str = "cost"
    """cost, carbon, tokens (which are then maximised), the name of a limit whose use is minimised, or nothing where any
    answer will do.
    """
    per_million_tokens: float = 0.0
    """US dollars that a million tokens are worth: with it, jobs may run on beyond their tokens."""
    dropped: frozenset[str] = frozenset()
    moved: Mapping[str, float] = field(default_factory=dict)
    """Limit -> its value in place of the question's."""
    cut: tuple[frozenset[str], ...] = ()
    """Families of earlier answers: exactly these must not be used again."""
    without: frozenset[str] = frozenset()
    """Ways to come by nodes that are closed."""
    latest: float | None = None
    """Day by which every job must be done."""
    scale: float = 1.0
    """On the work of every job."""
    least_tokens: float = 0.0
    """Millions of tokens that all jobs together must see."""

    @property
    def works_on(self) -> bool:
        """Whether jobs may run on beyond their tokens."""
        return self.per_million_tokens > 0 or self.minimise == "tokens" or self.least_tokens > 0


@dataclass(frozen=True)
class Limit:
    """A named limit as it stands in the program."""

    name: str
    value: float
    unit: str


def limits(asked: Portfolio, pools: Sequence[SupplyPool]) -> list[Limit]:
    """The limits that the question names, in the order in which they are told."""
    given = asked.limits
    units = {"budget": "USD", "capital": "USD", "monthly": "USD", "power": "W", "racks": "", "switch_ports": "",
             "carbon": "kg"}  # fmt: skip
    all_limits = [
        Limit(name, getattr(given, name), unit) for name, unit in units.items() if getattr(given, name) is not None
    ]
    most = {pool.offer: pool.at_most for pool in pools if pool.at_most is not None and pool.way != "own"}
    all_limits += [Limit(f"quantity:{offer}", float(count), "") for offer, count in sorted(most.items())]
    all_limits += [Limit(f"deadline:{job.name}", job.deadline_day, "d") for job in asked.jobs if job.given_deadline]
    return all_limits + (
        [Limit("horizon", asked.horizon_days, "d")] if not all(j.given_deadline for j in asked.jobs) else []
    )


def deadline(job: Job, variant: ProcureVariant) -> float:
    """The day by which a job must be done under a variant."""
    day = _promised(job, variant)
    return day if variant.latest is None else min(day, variant.latest)


def _promised(job: Job, variant: ProcureVariant) -> float:
    """The last day that the job itself allows, whatever the end of all work: a loss of nodes may not move this day."""
    name = f"deadline:{job.name}" if job.given_deadline else "horizon"
    return FAR if name in variant.dropped else variant.moved.get(name, job.deadline_day)


def window(instance: ProcureInstance, j: int, place: Place, variant: ProcureVariant) -> tuple[float, float]:
    """From when to when a job may run where all of these pools are there; a term may begin at any later day."""
    job = instance.jobs[j]
    pools = [instance.pools[p] for p in place]
    start = max(job.release_day, *(pool.start_day for pool in pools))
    ends = [pool.last_day for pool in pools if not (pool.term_days and moves(instance, pool, variant))]
    kept = min([_promised(job, variant), *ends]) - kept_free(instance, j, place)
    return start, min(kept, deadline(job, variant))


def kept_free(instance: ProcureInstance, j: int, place: Place) -> float:
    """Days before a deadline that a job is done in any case, so that it may lose nodes and keep it."""
    survival = instance.survivals.get((j, place))
    return survival.kept_free if survival else 0.0


def moves(instance: ProcureInstance, pool: SupplyPool, variant: ProcureVariant) -> bool:
    """Whether a pool may start later than on its delivery: not under a monthly limit, whose months count its days."""
    return pool.held and monthly_limit(instance.asked, variant) is None


def alike(instance: ProcureInstance, variant: ProcureVariant) -> dict[int, tuple[int, ...]]:
    """Jobs in groups, by the first of each, that differ in name and priority alone: any may take another's place."""
    days: dict[int, list[tuple[Place, float, float]]] = {j: [] for j in range(len(instance.jobs))}
    for c in instance.columns:
        days[c.job].append((c.place, c.days, kept_free(instance, c.job, c.place)))
    groups: dict[tuple[object, ...], list[int]] = {}
    for j, job in enumerate(instance.jobs):
        asked = (job.release_day, deadline(job, variant), job.given_deadline, job.interruptible, job.restart_days)
        groups.setdefault((*asked, job.tokens, frozenset(days[j])), []).append(j)
    return {jobs[0]: tuple(sorted(jobs, key=lambda j: -instance.jobs[j].priority)) for jobs in groups.values()}


def too_large(instance: ProcureInstance, variant: ProcureVariant, place: Place) -> bool:
    """Whether one of these pools has more nodes than can be had of its offer."""
    for pool in (instance.pools[p] for p in place):
        name = f"quantity:{pool.offer}"
        if pool.way != "own" and pool.at_most is not None and name not in variant.dropped:
            if pool.nodes > variant.moved.get(name, pool.at_most):
                return True
    return False


def monthly_limit(asked: Portfolio, variant: ProcureVariant) -> float | None:
    """What may be spent in a month under a variant; None where that is not limited."""
    if "monthly" in variant.dropped and variant.minimise != "monthly":
        return None
    return variant.moved.get("monthly", asked.limits.monthly) if asked.limits.monthly is not None else None


def moved(variant: ProcureVariant, name: str, value: float) -> ProcureVariant:
    """The variant with one limit moved."""
    return replace(variant, moved={**variant.moved, name: value})


TIME_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long and how exactly to solve, and where."""

    gap: float = GAP
    time_limit_s: float = TIME_LIMIT_S
    solver: SolverName = "highs"
    engine: str | None = None
    """A cluster that searches the plans (:class:`planner.base.processes.Workers`)."""
    cache: Path | None = None
    """Folder of plans that earlier questions searched; None: all are searched."""
    watch: Watch = field(default_factory=Watch)
    """Told of answers and bounds; may end the search with the best so far."""


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
