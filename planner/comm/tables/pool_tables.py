"""Measured times of a plan over several pools: a table for all, or one for a pool, and one for a link between two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.base.errors import WrongQuestion
from planner.comm.tables.measured_times import CollectiveMethod, TimesTable
from planner.comm.tables.timing import Time, times
from planner.cost.calls import Call

TOGETHER = ("nvidia", "amd")
"""Vendors whose own library PyTorch calls nccl: each talks to its like only."""


@dataclass(frozen=True, slots=True)
class PoolTables:
    """What calls take by where they run, and what the accelerators there can do."""

    tables: Mapping[tuple[int, ...], TimesTable]
    """Pools -> what was measured on them; under no pools: anywhere."""
    vendors: tuple[str, ...]
    """Of every pool's accelerators."""

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds that all tables have."""
        shared = set.intersection(*(set(table.rounds) for table in self.tables.values()))
        return tuple(sorted(shared))

    def of_rounds(self, rounds: Iterable[int]) -> PoolTables:
        """The same tables with the rows of these rounds only."""
        kept = list(rounds)
        return replace(self, tables={at: table.of_rounds(kept) for at, table in self.tables.items()})

    def look_up(self, call: Call) -> Mapping[CollectiveMethod, Time]:
        """Seconds of a call by each back end that all of its ranks have."""
        found = self._times(call)
        return {who: time for who, time in found.items() if self.able(who, call.pools)}

    def able(self, who: CollectiveMethod, pools: Sequence[int]) -> bool:
        """Whether ranks on these pools have a back end, and reach each other by it."""
        there = {self.vendors[i].lower() for i in pools or range(len(self.vendors))}
        return who.backend != "nccl" or (len(there) == 1 and there <= set(TOGETHER))

    def _times(self, call: Call) -> dict[CollectiveMethod, Time]:
        """By the table of these pools, or of any; else by the slowest of each pool's own, which is marked."""
        for key in (call.pools, ()):
            if key in self.tables:
                return times(self.tables[key], call.op, call.ranks, call.bytes)
        each = [times(self.tables[i,], call.op, call.ranks, call.bytes) for i in call.pools]
        shared = set.intersection(*(set(known) for known in each))
        slowest = {who: max((known[who] for known in each), key=lambda t: t.seconds) for who in sorted(shared)}
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
    found = []
    for word in named.split("/"):
        if word.isdecimal() and 1 <= int(word) <= len(names):
            found.append(int(word) - 1)
        elif word in names:
            found.append(names.index(word))
        else:
            known = ", ".join(f"{i} ({name})" for i, name in enumerate(names, 1))
            raise WrongQuestion(f"--table {text}: no pool {word!r} in the plan; it has {known}")
    if len(set(found)) < len(found):
        raise WrongQuestion(f"--table {text}: a link joins two pools; of one pool alone write {found[0] + 1}={file}")
    return tuple(sorted(found)), file
