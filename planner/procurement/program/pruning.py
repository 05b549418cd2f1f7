"""Columns that no answer needs: beaten by others in everything that any limit or objective counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import le

from planner.procurement.program.instance import ProcureInstance, kept_free
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column
from planner.question.values import DAYS_PER_MONTH

Days = Mapping[int, float]
"""Job -> days that it takes on a pool."""


def undominated(instance: ProcureInstance, *, across: bool = False) -> list[Column]:
    """The columns without those of dominated pools; a pool that may also work beside others keeps all of its own.

    Pools compare within a family (the same nodes come by in the same way), so that an alternative of another kind is
    never lost; or `across` nodes within a way, where only the best is wanted. One is dominated if others can be had in
    its place (:meth:`_Supply.suffices`) that take no more of what the question counts, are there as long, and do every
    job that it does in no more time, for no more money.
    """
    families: dict[tuple[str, int], dict[int, dict[int, float]]] = {}
    joined = {p for c in instance.columns if c.other_pools for p in c.place}
    columns = list(_as_long_as_needed(instance))
    for c in columns:
        if c.other_pools:
            continue
        pool = instance.pools[c.pool]
        # Each job hires for itself: there the comparison is job by job.
        key = (pool.way if across else pool.family, c.job if pool.hired else -1)
        families.setdefault(key, {}).setdefault(c.pool, {})[c.job] = c.days
    supply = _Supply(instance)
    kept = {(key[1], p) for key, days in families.items() for p in _front(instance, supply, days)}
    return [c for c in columns if c.pool in joined or (-1, c.pool) in kept or (c.job, c.pool) in kept]


def _as_long_as_needed(instance: ProcureInstance) -> Iterator[Column]:
    """The columns without those of purchases that are sold months after all that they could do is done.

    From the first job on a copy works but while it waits for a release, so that it needs no longer than all its jobs
    and the days between their releases take. Not so where jobs work longer than they need, or money comes by the month.
    """
    asked = instance.asked
    months = instance.asked.limits.monthly is not None
    if asked.resale is None or months or asked.objective in ("tokens", "tokens-per-dollar"):
        yield from instance.columns
        return
    joined = {p for c in instance.columns if c.other_pools for p in c.place}
    mine: dict[int, list[Column]] = {}
    for c in instance.columns:
        mine.setdefault(c.pool, []).append(c)
    needed = {p: _needed(instance, days) for p, days in mine.items() if p not in joined}
    for c in instance.columns:
        pool = instance.pools[c.pool]
        if pool.sold_usd is None or pool.term_days < needed.get(c.pool, math.inf) + DAYS_PER_MONTH:
            yield c


def _needed(instance: ProcureInstance, columns: Sequence[Column]) -> float:
    """Days that one copy needs for all of these jobs at most, pauses and the loss of nodes included."""
    jobs = [instance.jobs[c.job] for c in columns]
    releases = [job.release_day for job in jobs]
    pauses = sum(job.restart_days for job in jobs if job.interruptible) * len(jobs)
    free = max(kept_free(instance, c.job, c.place) for c in columns)
    return max(releases) - min(releases) + sum(c.days for c in columns) + pauses + free


def _front(instance: ProcureInstance, supply: _Supply, days: Mapping[int, Days]) -> list[int]:
    """Pools of `days` that no others make needless; whatever dominates a pool comes before it."""
    pools = instance.pools
    ordered = sorted(
        days, key=lambda p: (pools[p].fixed_charge + pools[p].held_usd, -len(days[p]), sum(days[p].values()), p)
    )
    jobs = sorted({j for day in days.values() for j in day})
    front: list[int] = []
    rivals: list[tuple[int, tuple[float, ...]]] = []
    for p in ordered:
        figures = (*_held(instance, pools[p]), *_work(instance, jobs, p, days[p]))
        if not supply.suffices([r for r, theirs in rivals if all(map(le, theirs, figures))], p):
            front.append(p)
            if p not in supply.scarce:
                rivals.append((p, figures))
    return front


def _held(instance: ProcureInstance, pool: SupplyPool) -> Iterator[float]:
    """What having a pool takes of what counts; the less, the better."""
    given = instance.asked.limits
    yield from (pool.fixed_charge, pool.month_usd, pool.held_usd, pool.start_day, -pool.end_day, -pool.copies)
    if given.budget is not None or given.capital is not None:
        yield pool.capital
    if given.monthly is not None:
        yield pool.day_usd  # in one piece: less in all may be more in a month
    for name in ("power", "racks", "switch_ports"):
        if getattr(given, name) is not None:
            yield float(getattr(pool, name))


def _work(instance: ProcureInstance, jobs: Sequence[int], p: int, days: Days) -> Iterator[float]:
    """Every job's days, dollars, days with the loss of nodes, and kilograms where they count; dollars and kilograms
    also if it were paused as often as there are jobs.
    """
    pool = instance.pools[p]
    asked = instance.asked
    emits = asked.limits.carbon is not None or asked.objective == "carbon"
    for j in jobs:
        day = days.get(j, math.inf)
        job = instance.jobs[j]
        late = kept_free(instance, j, (p,)) if instance.survivals else 0.0
        yield from (day, day + late)
        for busy in (day, day + len(instance.jobs) * job.restart_days) if job.interruptible else (day,):
            yield _of(busy, pool.day_usd)
            if emits:
                yield _of(busy, pool.day_kg)


def _of(days: float, a_day: float) -> float:
    return days * a_day if math.isfinite(days) else math.inf


@dataclass(frozen=True)
class _Supply:
    """How often what is offered can be had."""

    instance: ProcureInstance

    @cached_property
    def scarce(self) -> set[int]:
        """Pools of which fewer can be had than there are jobs: what they dominate may be needed beside them."""
        jobs = len(self.instance.jobs)
        return {p for p, q in enumerate(self.instance.pools) if q.way != "own" and q.copies < jobs}

    @cached_property
    def copies(self) -> int:
        """That any answer takes, at most: every job one of each of its pools."""
        most: dict[int, int] = {}
        for c in self.instance.columns:
            most[c.job] = max(most.get(c.job, 1), len(c.place))
        return sum(most.values())

    @cached_property
    def largest(self) -> dict[str, int]:
        """Offer -> nodes of its largest pool, whether so many can be had or not."""
        largest: dict[str, int] = {}
        for q in self.instance.pools:
            largest[q.offer] = max(largest.get(q.offer, 0), q.nodes)
        return largest

    def suffices(self, rivals: Sequence[int], p: int) -> bool:
        """Whether one of these can always be had in the place of every copy of a pool.

        One with no limit on its nodes can, and a smaller one of the same offer. Of other offers those copies that an
        answer takes beside these may use up all but what is missing; so together they must be more than can be used
        up, even without one of them, whose own limit may be what is sought.
        """
        pool = self.instance.pools[p]
        others = [self.instance.pools[r] for r in rivals]
        if any(q.at_most is None or (q.offer == pool.offer and q.nodes <= pool.nodes) for q in others):
            return True
        if pool.way == "own":  # nodes of another offer may be switched on for it beside these
            return False
        mine = 1 if pool.hired else min(pool.copies, self.copies)
        if pool.at_most is not None:
            mine = min(mine, max(1, pool.at_most // pool.nodes))
        return all(self._left(rivals, copies) > self.copies - copies for copies in range(1, mine + 1))

    def _left(self, rivals: Sequence[int], copies: int) -> int:
        """Copies of anything that it takes at least until so many copies of no rival can be had."""
        until: dict[str, int] = {}
        for q in (self.instance.pools[r] for r in rivals):
            room = (q.at_most or 0) - copies * q.nodes
            if room >= 0:
                until[q.offer] = max(until.get(q.offer, 0), math.ceil((room + 1) / self.largest[q.offer]))
        return sum(until.values()) - max(until.values(), default=0)
