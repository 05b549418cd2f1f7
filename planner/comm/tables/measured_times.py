"""Measured times of collectives as rows of a CSV: one a round, so that an interrupted measurement goes on, and so that
what was chosen on some rounds can be tried on the others.

``docs/communication.md`` describes the columns. Only ``backend, op, ranks, bytes, seconds`` are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from planner.base import csv_rows
from planner.base.csv_rows import CsvRow
from planner.base.errors import WrongQuestion, nearest
from planner.calibration.measuring.timing import TRIMMED, trimmed_mean
from planner.cost.calls import OPERATIONS

COLUMNS = (
    *("backend", "algorithm", "protocol", "op", "ranks", "nodes", "bytes", "round", "seconds", "source", "date"),
)
NEEDED = ("backend", "op", "ranks", "bytes", "seconds")
WHAT = "a table of collectives"
MOST_RANKS = 10_000_000
MOST_BYTES = 2**50
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""97.5 % quantile of Student's t for 1, 2, ... degrees of freedom; beyond, 2."""


@dataclass(frozen=True, slots=True, order=True)
class CollectiveMethod:
    """What a call may use: a back end, with its algorithm and protocol where they can be chosen."""

    backend: str
    algorithm: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """The time of one call in one round."""

    candidate: CollectiveMethod
    op: str
    ranks: int
    bytes: int
    """As nccl-tests counts: the whole vector; the send buffer of an all-to-all."""
    seconds: float
    round: int = 0
    nodes: int = 1
    source: str = ""
    date: str = ""


@dataclass(frozen=True)
class TableCell:
    """All rounds of one call by one candidate."""

    rounds: Mapping[int, float]
    """Round -> seconds."""

    @cached_property
    def seconds(self) -> float:
        """Mean without the lowest and highest fifth of the rounds."""
        return trimmed_mean(list(self.rounds.values()))

    @cached_property
    def spread(self) -> float | None:
        """Half of the 95 % interval of the mean, relative to it; None of a single round.

        ``t s_w / ((1 - 2 g) sqrt(n))``, with s_w the standard deviation after the outer values are pulled in to the
        kept ones and g the share trimmed (Tukey and McLaughlin 1963).
        """
        values = sorted(self.rounds.values())
        n = len(values)
        cut = int(TRIMMED * len(values))
        if n < 2:
            return None
        pulled = [min(max(value, values[cut]), values[n - 1 - cut]) for value in values]
        mean = sum(pulled) / n
        deviation = math.sqrt(sum((value - mean) ** 2 for value in pulled) / (n - 1))
        kept = n - 2 * cut
        return student(kept - 1) * deviation / ((1.0 - 2.0 * cut / n) * math.sqrt(n)) / self.seconds


def student(degrees: int) -> float:
    """97.5 % quantile of Student's t."""
    return _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 2.0


@dataclass(frozen=True)
class TimesTable:
    """Rows, by call."""

    rows: tuple[TableRow, ...]

    @cached_property
    def cells(self) -> Mapping[tuple[str, int, int], Mapping[CollectiveMethod, TableCell]]:
        """``(op, ranks, bytes)`` -> candidate -> its rounds; a round that stands twice counts as its last row says."""
        cells: dict[tuple[str, int, int], dict[CollectiveMethod, dict[int, float]]] = {}
        for row in self.rows:
            at = cells.setdefault((row.op, row.ranks, row.bytes), {}).setdefault(row.candidate, {})
            at[row.round] = row.seconds
        return {
            key: {who: TableCell(rounds) for who, rounds in by_method.items()}
            for key, by_method in sorted(cells.items())
        }

    @cached_property
    def by_operation(self) -> Mapping[str, Mapping[CollectiveMethod, Mapping[int, Mapping[int, TableCell]]]]:
        """Operation -> candidate -> ranks -> bytes -> its rounds."""
        by_operation: dict[str, dict[CollectiveMethod, dict[int, dict[int, TableCell]]]] = {}
        for (op, ranks, size), by_method in self.cells.items():
            for who, cell in sorted(by_method.items()):
                by_operation.setdefault(op, {}).setdefault(who, {}).setdefault(ranks, {})[size] = cell
        return by_operation

    @cached_property
    def candidates(self) -> tuple[CollectiveMethod, ...]:
        """Every back end (with algorithm and protocol) that was measured, sorted."""
        return tuple(sorted({row.candidate for row in self.rows}))

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds in the table, ascending."""
        return tuple(sorted({row.round for row in self.rows}))

    def of_rounds(self, rounds: Iterable[int]) -> TimesTable:
        """The table with the rows of these rounds only."""
        kept = set(rounds)
        return TimesTable(tuple(row for row in self.rows if row.round in kept))


# ---- files -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> TimesTable:
    """A table from a file.

    Raises:
        WrongQuestion: no such file, a missing column, or a cell that is none (``file:line: column = value: ...``).
    """
    columns, rows = csv_rows.read(path, WHAT)
    if missing := [name for name in NEEDED if name not in columns]:
        raise WrongQuestion(f"{path}:1: no column {', '.join(missing)}; a table has {', '.join(COLUMNS)}")
    rows_read = tuple(map(_row, rows))
    if not rows_read:
        raise WrongQuestion(f"{path}: no rows; measure some (clusterwright comm tune -o {path})")
    return TimesTable(rows_read)


def operation(name: str, where: str) -> str:
    """``all_reduce``, ``AllReduce`` and ``allreduce`` are ``all-reduce``.

    Raises:
        WrongQuestion: no such operation; the nearest.
    """
    known = {op.replace("-", ""): op for op in OPERATIONS}
    aliases = {"allgatherinto": "allgather", "allgatherintotensor": "allgather", "reducescattertensor": "reducescatter"}
    aliases |= {"alltoallsingle": "alltoall", "bcast": "broadcast", "p2p": "sendrecv", "send": "sendrecv"}
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    plain = aliases.get(plain, plain)
    if plain not in known:
        near = nearest(plain, known)
        hint = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(OPERATIONS)}"
        raise WrongQuestion(f"{where}: no operation {name!r}; {hint}")
    return known[plain]


def _row(row: CsvRow) -> TableRow:
    if not row.text("backend"):
        raise WrongQuestion(f"{row.where}: backend is empty")
    seconds, ranks, size = row.number("seconds"), row.whole("ranks"), row.whole("bytes")
    if seconds <= 0 or size < 1:
        raise WrongQuestion(f"{row.where}: bytes and seconds must be above 0")
    nodes = row.whole("nodes", 1)
    possible(ranks, nodes, size, row.where)
    return TableRow(
        CollectiveMethod(*(row.text(name).lower() for name in ("backend", "algorithm", "protocol"))),
        operation(row.text("op"), row.where),
        ranks,
        size,
        seconds,
        row.whole("round"),
        nodes,
        row.text("source"),
        row.text("date"),
    )


def possible(ranks: int, nodes: int, size: int, where: str) -> None:
    """A call that somebody can have measured.

    Raises:
        WrongQuestion: nobody can.
    """
    if not 2 <= ranks <= MOST_RANKS:
        raise WrongQuestion(f"{where}: ranks = {ranks:,}: a call is between 2 and {MOST_RANKS:,}")
    if not 1 <= nodes <= ranks:
        raise WrongQuestion(f"{where}: nodes = {nodes:,}: from 1 to the {ranks:,} ranks")
    if size > MOST_BYTES:
        raise WrongQuestion(f"{where}: bytes = {size:,}: more than {MOST_BYTES:,}, which is no call")


def _cells(row: TableRow) -> tuple[object, ...]:
    how = (row.candidate.backend, row.candidate.algorithm, row.candidate.protocol)
    at = (row.op, row.ranks, row.nodes, row.bytes, row.round)
    return *how, *at, f"{row.seconds:.6g}", row.source, row.date


def further(known: Sequence[TableRow], more: Sequence[TableRow]) -> list[TableRow]:
    """Rows of `more` that are not among the known rows; measured again, they are further rounds."""
    known_rows = {_as_written(row) for row in known}
    last: dict[tuple[object, ...], int] = {}
    for row in known:
        last[_cell(row)] = max(last.get(_cell(row), -1), row.round)
    return [
        replace(row, round=row.round + 1 + last.get(_cell(row), -1))
        for row in more
        if _as_written(row) not in known_rows
    ]


def _as_written(row: TableRow) -> TableRow:
    """As a file gives it back, whenever it was."""
    return replace(row, round=0, date="", seconds=float(f"{row.seconds:.6g}"))


def _cell(row: TableRow) -> tuple[object, ...]:
    return row.candidate, row.op, row.ranks, row.bytes


class TableJournal:
    """A table that rows are added to, each whole or not at all."""

    def __init__(self, path: Path) -> None:
        others = "not written by comm tune: its columns are others; name a new file (-o)"
        self.path = path
        self.rows = list(read(path).rows) if csv_rows.goes_on(path, COLUMNS, WHAT, others) else []

    def add(self, rows: Sequence[TableRow]) -> None:
        """Writes rows, and the header before the first."""
        csv_rows.add(self.path, COLUMNS, map(_cells, rows))
        self.rows += rows
