"""What a call takes by a table: interpolated between measured sizes and ranks, extrapolated and marked beyond them.

A plan over several pools has one table for all, or a table for each pool and for each link between two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.base.errors import WrongQuestion
from planner.comm.tables.measured_times import CollectiveMethod, TableCell, TimesTable
from planner.cost.calls import Call


@dataclass(frozen=True, slots=True)
class Time:
    """What one call takes."""

    seconds: float
    spread: float
    """Half of the 95 % interval, relative; 0 where a single round says nothing of it."""
    extrapolated: bool


def times(table: TimesTable, op: str, ranks: int, size: float) -> dict[CollectiveMethod, Time]:
    """Seconds of a call of `size` bytes on `ranks` ranks, interpolated, by every candidate measured with it."""
    return {who: _over_ranks(cells, ranks, size) for who, cells in table.by_operation.get(op, {}).items()}


def _over_ranks(cells: Mapping[int, Mapping[int, TableCell]], ranks: int, size: float) -> Time:
    """Between two measured numbers of ranks ``log t`` is linear in ``log n``; beyond, the nearest number's time."""
    known = sorted(cells)
    low = max((n for n in known if n <= ranks), default=known[0])
    high = min((n for n in known if n >= ranks), default=known[-1])
    first = _over_sizes(cells[low], size)
    if low == high:
        return Time(first.seconds, first.spread, first.extrapolated or low != ranks)
    second = _over_sizes(cells[high], size)
    share = math.log(ranks / low) / math.log(high / low)
    return _between(first, second, share)


def _over_sizes(cells: Mapping[int, TableCell], size: float) -> Time:
    """Between measured sizes ``log t`` is linear in ``log S``; below the smallest its time, beyond the largest its
    rate.
    """
    known: Sequence[int] = sorted(cells)
    low = max((s for s in known if s <= size), default=known[0])
    high = min((s for s in known if s >= size), default=known[-1])
    first = _time(cells[low])
    if low == high:
        return Time(first.seconds * max(size / low, 1.0), first.spread, low != size and not _near(low, size))
    return _between(first, _time(cells[high]), math.log(size / low) / math.log(high / low))


def _near(known: float, size: float) -> bool:
    """Within a factor of two: as near as measured sizes usually are to each other."""
    return 0.5 <= size / known <= 2.0


def _time(cell: TableCell) -> Time:
    return Time(cell.seconds, cell.spread or 0.0, False)


def _between(one: Time, other: Time, share: float) -> Time:
    seconds = math.exp((1 - share) * math.log(one.seconds) + share * math.log(other.seconds))
    return Time(seconds, max(one.spread, other.spread), one.extrapolated or other.extrapolated)


TOGETHER = ("nvidia", "amd")
"""Vendors whose own library PyTorch calls nccl: each talks to its like only."""


@dataclass(frozen=True, slots=True)
class PoolTables:
    """What calls take by where they run, and what the accelerators there can do."""

    tables: Mapping[tuple[int, ...], TimesTable]
    """Pools -> what was measured on them; under no pools: anywhere."""
    vendors: tuple[str, ...]
    """Vendor of every pool's accelerators."""

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds that all tables have."""
        shared = set.intersection(*(set(table.rounds) for table in self.tables.values()))
        return tuple(sorted(shared))

    def of_rounds(self, rounds: Iterable[int]) -> PoolTables:
        """Tables with the rows of these rounds only."""
        kept = list(rounds)
        return replace(self, tables={at: table.of_rounds(kept) for at, table in self.tables.items()})

    def look_up(self, call: Call) -> Mapping[CollectiveMethod, Time]:
        """Seconds of a call by each back end that all of its ranks have."""
        times_by_method = self._times(call)
        return {who: time for who, time in times_by_method.items() if self.able(who, call.pools)}

    def able(self, who: CollectiveMethod, pools: Sequence[int]) -> bool:
        """Whether ranks on these pools have a back end, and reach each other by it."""
        vendors = {self.vendors[i].lower() for i in pools or range(len(self.vendors))}
        return who.backend != "nccl" or (len(vendors) == 1 and vendors <= set(TOGETHER))

    def _times(self, call: Call) -> dict[CollectiveMethod, Time]:
        """By the table of these pools, or of any; else by the slowest of each pool's own, which is marked."""
        for key in (call.pools, ()):
            if key in self.tables:
                return times(self.tables[key], call.op, call.ranks, call.bytes)
        by_pool = [times(self.tables[i,], call.op, call.ranks, call.bytes) for i in call.pools]
        shared = set.intersection(*(set(known) for known in by_pool))
        slowest = {who: max((known[who] for known in by_pool), key=lambda t: t.seconds) for who in sorted(shared)}
        return {who: replace(time, extrapolated=True) for who, time in slowest.items()}

    @property
    def differ(self) -> bool:
        """Whether the best may depend on the pool: a table for each pool, or different accelerators."""
        return len(self.tables) > 1 or len(set(self.vendors)) > 1


def placed(text: str, names: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """``table.csv`` (of all pools), ``1=a.csv``, ``dgx-a100=a.csv``, ``1/2=link.csv``: the pools, and the file.

    Raises:
        WrongQuestion: a pool that the plan has not, a link of a pool with itself, or no file.
    """
    named, equals, file = text.partition("=")
    if not equals:
        return (), text
    if not file:
        raise WrongQuestion(f"--table {text}: which file? Write {text}FILE")
    pools = []
    for word in named.split("/"):
        if word.isdecimal() and 1 <= int(word) <= len(names):
            pools.append(int(word) - 1)
        elif word in names:
            pools.append(names.index(word))
        else:
            known = ", ".join(f"{i} ({name})" for i, name in enumerate(names, 1))
            raise WrongQuestion(f"--table {text}: no pool {word!r} in the plan; it has {known}")
    if len(set(pools)) < len(pools):
        raise WrongQuestion(f"--table {text}: a link joins two pools; of one pool alone write {pools[0] + 1}={file}")
    return tuple(sorted(pools)), file
