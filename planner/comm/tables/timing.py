"""What a call takes by a table: between measured sizes and ranks interpolated, beyond them carried on and marked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.comm.tables.measured_times import CollectiveMethod, TableCell, TimesTable


@dataclass(frozen=True, slots=True)
class Time:
    """Of one call."""

    seconds: float
    spread: float
    """Half of the 95 % interval, relative; 0 where a single round says nothing of it."""
    extrapolated: bool


def times(table: TimesTable, op: str, ranks: int, size: float) -> dict[CollectiveMethod, Time]:
    """Seconds of a call of `size` bytes on `ranks` ranks, interpolated, by every candidate measured with it."""
    return {who: _over_ranks(found, ranks, size) for who, found in table.by_operation.get(op, {}).items()}


def _over_ranks(found: Mapping[int, Mapping[int, TableCell]], ranks: int, size: float) -> Time:
    """Between two measured numbers of ranks ``log t`` is linear in ``log n``; beyond, the nearest number's time."""
    known = sorted(found)
    low = max((n for n in known if n <= ranks), default=known[0])
    high = min((n for n in known if n >= ranks), default=known[-1])
    first = _over_sizes(found[low], size)
    if low == high:
        return Time(first.seconds, first.spread, first.extrapolated or low != ranks)
    second = _over_sizes(found[high], size)
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
