"""Tables that other tools print: nccl-tests, OSU micro-benchmarks, the communication logger of DeepSpeed and MCR-DL.

Their sizes become those of nccl-tests (the whole vector). What a tool does not say (back end, ranks) is asked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.base import csv_rows, reading
from planner.base.errors import WrongQuestion
from planner.comm.tables import measured_times
from planner.comm.tables.measured_times import CollectiveMethod, TableRow, TimesTable

MOST_ROUNDS = 50
"""Latencies of a logger that are kept, of one call."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the caller states because the file does not."""

    backend: str | None = None
    algorithm: str = ""
    protocol: str = ""
    op: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def imported(path: Path, source: str, options: ImportOptions) -> TimesTable:
    """The rows of a file in one of the formats :data:`READERS`; `options` complete what it does not say.

    Raises:
        WrongQuestion: not what it is said to be, nothing in it, or something that it does not say was not given.
    """
    if source == "csv":
        return _overridden(measured_times.read(path), options)
    body = reading.text(path, measured_times.WHAT, csv_rows.LARGEST)
    rows = tuple(READERS[source](body, str(path), options))
    if not rows:
        raise WrongQuestion(f"{path}: no row of {source} in it; {_LOOKS[source]}")
    for row in rows:
        measured_times.possible(row.ranks, row.nodes, row.bytes, str(path))
    return TimesTable(tuple(replace(row, source=row.source or path.name) for row in rows))


def _overridden(table: TimesTable, options: ImportOptions) -> TimesTable:
    """A CSV says all itself; only what is given replaces it."""
    changes: dict[str, Any] = {
        name: value for name in ("ranks", "nodes") if (value := getattr(options, name)) is not None
    }
    if options.op is not None:
        changes["op"] = measured_times.operation(options.op, "--op")
    rows = (replace(row, **changes) for row in table.rows)
    if options.backend is not None:
        who = CollectiveMethod(options.backend.lower(), options.algorithm.lower(), options.protocol.lower())
        rows = (replace(row, candidate=who) for row in rows)
    changed = tuple(rows)
    for row in changed:
        measured_times.possible(row.ranks, row.nodes, row.bytes, "--ranks, --nodes")
    return TimesTable(changed)


def _candidate(options: ImportOptions, default: str, where: str) -> CollectiveMethod:
    backend = options.backend or default
    if not backend:
        raise WrongQuestion(f"{where}: which back end was this? (--backend mpich)")
    return CollectiveMethod(backend.lower(), options.algorithm.lower(), options.protocol.lower())


def _ranks(options: ImportOptions, stated: int | None, where: str) -> int:
    ranks = options.ranks or stated
    if not ranks:
        raise WrongQuestion(f"{where}: it does not state the number of ranks; give it (--ranks 8)")
    return ranks


def _seconds(text: str, scale: float, where: str) -> float:
    try:
        value = float(text) * scale
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise WrongQuestion(f"{where}: {text!r} is not a time")
    return value


# ---- nccl-tests ------------------------------------------------------------------------------------------------------


def _nccl_tests(body: str, where: str, options: ImportOptions) -> Iterator[TableRow]:
    """``size count type redop root time algbw busbw #wrong ...``: out-of-place times in microseconds."""
    named = re.search(r"Collective test starting:\s*(\w+?)(?:_perf)?\s*$", body, re.MULTILINE)
    op = options.op or (named[1] if named else None)
    places = re.findall(r"^#\s+Rank\s+\d+.*?\bon\s+(\S+)", body, re.MULTILINE)
    for number, line in enumerate(body.splitlines(), 1):
        cells = line.split()
        if len(cells) < 9 or not cells[0].isdecimal() or not cells[1].isdecimal():
            continue
        at = f"{where}:{number}"
        if not op:
            raise WrongQuestion(f"{where}: it does not state the operation; give it (--op all-reduce)")
        if cells[8] not in ("0", "0e+00", "N/A"):
            raise WrongQuestion(f"{at}: {cells[8]} wrong results; such a row is not usable")
        if not int(cells[0]):
            continue
        ranks = _ranks(options, len(places) or None, where)
        nodes = options.nodes or len(set(places)) or 1
        seconds = _seconds(cells[5], 1e-6, at)
        yield TableRow(
            _candidate(options, "nccl", where),
            measured_times.operation(op, at),
            ranks,
            int(cells[0]),
            seconds,
            0,
            nodes,
        )


# ---- OSU micro-benchmarks --------------------------------------------------------------------------------------------

_OSU_TITLE = re.compile(r"^#\s*OSU\s+(?:MPI|NCCL|RCCL)?(?:-\w+)?\s*(.+?)\s+Latency", re.MULTILINE | re.IGNORECASE)
_PER_RANK = ("all-gather", "all-to-all")
"""Operations whose size OSU gives for one rank's share."""


def _osu(body: str, where: str, options: ImportOptions) -> Iterator[TableRow]:
    """``size latency(us) ...``; of a gather and an all-to-all the size is one rank's share: ``bytes = ranks size``."""
    title = _OSU_TITLE.search(body)
    name = title[1].lower().replace("non-blocking", "").split()[0] if title and title[1].strip() else ""
    name = "send-recv" if title and not name.startswith(("all", "bcast", "broadcast", "reduce")) else name
    for number, line in enumerate(body.splitlines(), 1):
        cells = line.split()
        if len(cells) < 2 or not cells[0].isdecimal() or not int(cells[0]):
            continue
        at = f"{where}:{number}"
        if not (options.op or name):
            raise WrongQuestion(f"{where}: it does not state the operation; give it (--op all-reduce)")
        op = measured_times.operation(options.op or name, at)
        ranks = _ranks(options, 2 if op == "send-recv" else None, where)
        size = int(cells[0]) * (ranks if op in _PER_RANK else 1)
        yield TableRow(
            _candidate(options, "", where), op, ranks, size, _seconds(cells[1], 1e-6, at), 0, options.nodes or 1
        )


# ---- comms logger ----------------------------------------------------------------------------------------------------


def _logger(body: str, where: str, options: ImportOptions) -> Iterator[TableRow]:
    """``{op: {bytes: [count, [latencies in ms], ...]}}``; of gathers and scatters the bytes are one rank's share."""
    try:
        log = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"{where}: not JSON: {error}") from None
    log = log.get("comms_dict", log) if isinstance(log, dict) else None
    if not isinstance(log, Mapping):
        raise WrongQuestion(f"{where}: {_LOOKS['comms-logger']}")
    ranks = _ranks(options, None, where)
    who = _candidate(options, "", where)
    for name, sizes in log.items():
        op = measured_times.operation(str(name), where)
        if not isinstance(sizes, Mapping):
            raise WrongQuestion(f"{where}: {name}: {_LOOKS['comms-logger']}")
        for size, record in sizes.items():
            at = f"{where}: {name} {size}"
            if not str(size).isdecimal() or not (isinstance(record, list) and len(record) > 1):
                raise WrongQuestion(f"{at}: {_LOOKS['comms-logger']}")
            latencies = record[1] if isinstance(record[1], list) else [record[1]]
            whole = int(size) * (ranks if op in ("all-gather", "reduce-scatter") else 1)
            for index, latency in enumerate(latencies[:MOST_ROUNDS] if whole else ()):
                yield TableRow(who, op, ranks, whole, _seconds(str(latency), 1e-3, at), index, options.nodes or 1)


Reader = Callable[[str, str, ImportOptions], Iterator[TableRow]]
READERS: dict[str, Reader] = {"nccl-tests": _nccl_tests, "osu": _osu, "comms-logger": _logger}
SOURCES = (*READERS, "csv")
_LOOKS = {
    "nccl-tests": "its rows are: size count type redop root time algbw busbw #wrong ...",
    "osu": "its rows are: size latency(us)",
    "comms-logger": 'it is {"all_reduce": {"1048576": [count, [latencies in ms], ...]}}',
}
