"""What jobs share while they run: copies of a cluster that is held, nodes of an offer that is scarce, nodes owned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.procurement.program.instance import ProcureInstance, ProcureVariant, limits, window
from planner.procurement.throughput.column import Place

MOST_INTERVALS = 40
"""Most intervals of a resource for which the program asks whether work has room; the sequence asks for every day."""

Key = tuple[int, Place]
"""A job and the pools it would work on."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """So much of something at any time, and what of it each job takes."""

    name: str
    """``pool:P``, ``copies:P``, ``quantity:OFFER`` or ``own:NODE``."""
    label: str
    """The name in those of constraints."""
    units: Mapping[Key, float]
    capacity: float = 0.0
    holds: Mapping[int, float] = field(default_factory=dict)
    """Pool -> what each copy held adds; nodes of an offer that are held are none to hire (negative)."""
    sought: bool = False
    """Whether the program says how much of it there is, up to the capacity."""
    intervals: Sequence[tuple[float, float]] = ()
    """Days between which the program counts work."""

    @property
    def scarce(self) -> bool:
        """Whether all jobs at once could want more."""
        wanted: dict[int, float] = {}
        for (j, _), units in self.units.items():
            wanted[j] = max(wanted.get(j, 0.0), units)
        return self.sought or bool(self.holds) or sum(wanted.values()) > self.capacity


def resources(instance: ProcureInstance, variant: ProcureVariant, keys: Iterable[Key]) -> list[Resource]:
    """Everything scarce that the jobs in these places share."""
    known = list(keys)
    return [
        _with_intervals(instance, variant, resource)
        for resource in (
            *_of_pools(instance, known),
            *_of_offers(instance, variant, known),
            *_owned(instance, variant, known),
        )
        if resource.scarce
    ]


def _of_pools(instance: ProcureInstance, keys: Sequence[Key]) -> Iterator[Resource]:
    """Copies of what is held, and of what is hired where fewer can be had than there are jobs."""
    for p in sorted({p for _, place in keys for p in place}):
        pool = instance.pools[p]
        units = {key: 1.0 for key in keys if p in key[1]}
        if pool.held:
            yield Resource(name=f"pool:{p}", label=f"pool_{p}", units=units, holds={p: 1.0})
        elif pool.hired:
            yield Resource(name=f"copies:{p}", label=f"copies_{p}", units=units, capacity=float(pool.copies))


def _of_offers(instance: ProcureInstance, variant: ProcureVariant, keys: Sequence[Key]) -> Iterator[Resource]:
    """Nodes of an offer that can be had at a time; those held count all the time."""
    pools = instance.pools
    for n, limit in enumerate(limits(instance.asked, pools)):
        kind, _, offer = limit.name.partition(":")
        sought = variant.minimise == limit.name
        if kind != "quantity" or (limit.name in variant.dropped and not sought):
            continue
        mine = {p for _, place in keys for p in place if pools[p].offer == offer}
        yield Resource(
            name=limit.name,
            label=f"offer_{n}",
            units=_nodes(instance, keys, {p for p in mine if pools[p].hired}),
            capacity=math.inf if limit.name in variant.dropped else variant.moved.get(limit.name, limit.value),
            holds={p: -float(pools[p].nodes) for p in sorted(mine) if pools[p].held},
            sought=sought,
        )


def _owned(instance: ProcureInstance, variant: ProcureVariant, keys: Sequence[Key]) -> Iterator[Resource]:
    """Nodes that are there already, divided anew whenever a job ends; how many work at a time, where power is short."""
    short = instance.asked.limits.power is not None and ("power" not in variant.dropped or variant.minimise == "power")
    for n, owned in enumerate(instance.asked.owned):
        mine = {p for p, q in enumerate(instance.pools) if q.way == "own" and q.node.id == owned.node}
        if units := _nodes(instance, keys, mine):
            yield Resource(
                name=f"own:{owned.node}", label=f"own_{n}", units=units, capacity=float(owned.count), sought=short
            )


def _nodes(instance: ProcureInstance, keys: Sequence[Key], pools: set[int]) -> dict[Key, float]:
    """The nodes of these pools that each job takes, for those that take any."""
    taken = {key: float(sum(instance.pools[p].nodes for p in key[1] if p in pools)) for key in keys}
    return {key: nodes for key, nodes in taken.items() if nodes}


def _with_intervals(instance: ProcureInstance, variant: ProcureVariant, resource: Resource) -> Resource:
    """The resource with its intervals: from any first day to any last day of jobs, or where those are too many only
    between first and last days that belong together.
    """
    windows = {window(instance, *key, variant) for key in resource.units}
    firsts, lasts = sorted({a for a, _ in windows}), sorted({b for _, b in windows})
    intervals = {(a, b) for a in firsts for b in lasts if b > a}
    if len(intervals) > MOST_INTERVALS:
        intervals = windows | {(firsts[0], b) for b in lasts} | {(a, lasts[-1]) for a in firsts}
    return replace(resource, intervals=sorted((a, b) for a, b in intervals if b > a))
