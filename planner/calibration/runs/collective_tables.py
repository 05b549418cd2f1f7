"""Tables of timed collectives: a CSV file to rows that can be predicted and fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from planner.base import csv_rows
from planner.base.errors import WrongQuestion, meant
from planner.catalog import Catalog
from planner.cost.nccl_algorithms import OPERATIONS
from planner.schema.hardware import Accelerator, Link, Topology

_ALIASES = {"sendrecv": "send", "send_recv": "send", "send-recv": "send"}
_PLAIN = {op.replace("-", ""): op for op in OPERATIONS}
_COLUMNS = {"op": ("op", "operation"), "gpus": ("gpus", "ranks"), "message_bytes": ("message_bytes", "bytes", "size")}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedCollectives:
    """One row: an operation of some ranks and bytes, and the seconds it took."""

    accelerator: Accelerator
    """For a part that is in no catalog: a stand-in with its link."""
    op: str
    ranks: float
    size: float
    """Bytes, as nccl-tests counts them."""
    seconds: float
    nodes: float = 1.0
    node: str = ""
    fabric: str = ""
    """Ids in the catalog, where several nodes took part and what they are is known."""
    source: str = ""
    hardware: str = ""
    backend: str = ""
    notes: str = ""


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """The rows of a file that can be used, and how many cannot by reason."""

    rows: tuple[TimedCollectives, ...]
    left_out: Mapping[str, int]


def read(path: Path, catalog: Catalog, accelerator: str | None = None) -> CollectiveTable:
    """The rows of a CSV of timed collectives.

    Columns: ``op``, ``gpus`` (or ``ranks``), ``message_bytes`` (or ``size``), ``time_us`` or ``seconds``; optional:
    ``accelerator``, ``nodes``, ``node``, ``fabric`` (ids in the catalog), ``topology`` and ``link_GBps`` of a part that
    is in none, ``source``, ``hardware``, ``backend``, ``notes``.

    Arguments:
        path: the file.
        catalog: where accelerators are.
        accelerator: what was timed, for a file without that column.

    Raises:
        WrongQuestion: a file that cannot be read, lacks columns, or holds a value that is no time, count or size.
    """
    header, lines = csv_rows.read(path, "a table of collectives")
    column = {}
    for name, choices in _COLUMNS.items():
        column[name] = next((each for each in choices if each in header), "")
        if not column[name]:
            raise WrongQuestion(
                f"{path}: no column {' or '.join(choices)} in its header ({', '.join(header) or 'none'})"
            )
    if not {"time_us", "seconds"} & set(header):
        raise WrongQuestion(f"{path}: no column time_us or seconds in its header ({', '.join(header)})")
    own = catalog.accelerator(accelerator) if accelerator else None
    rows: list[TimedCollectives] = []
    left: dict[str, int] = {}
    for where, row in ((line.where, line.cells) for line in lines):
        part = _part(row, catalog, own, where)
        reason = _unusable(row, part, where)
        if reason or part is None:
            left[reason] = left.get(reason, 0) + 1
            continue
        rows.append(_timed(row, column, part, where))
    return CollectiveTable(tuple(rows), left)


def _part(row: Mapping[str, str], catalog: Catalog, own: Accelerator | None, where: str) -> Accelerator | None:
    named = (row.get("accelerator") or "").strip()
    if named in catalog.accelerators:
        return catalog.accelerators[named]
    topology, name = row.get("topology") or "", row.get("hardware") or "unnamed"
    if topology and row.get("link_GBps"):
        if topology not in get_args(Topology):
            raise WrongQuestion(f"{where}: topology = {topology!r}: there are {', '.join(get_args(Topology))}")
        bandwidth = _number(row["link_GBps"], where, "link_GBps") * 1e9
        link = Link(name=name, topology=topology, bandwidth=bandwidth)  # type: ignore[arg-type] # one of them
        stand_in = next(iter(catalog.accelerators.values()))
        return replace(stand_in, id=name, generation=name, scaleup=link)
    return own


def _unusable(row: Mapping[str, str], part: Accelerator | None, where: str) -> str:
    notes = (row.get("notes") or "").lower()
    if "suspect" in notes or "inconsistent" in notes:
        return "marked suspect"
    if "problem case" in notes:
        return "reported as a fault"
    if "expected" in notes or "target" in (row.get("backend") or ""):
        return "a target, not a measurement"
    if part is None:
        return "no accelerator of the catalog"
    if _number(row.get("nodes") or "1", where, "nodes") > 1 and not row.get("node"):
        return "several nodes of an unknown kind"
    if (row.get("backend") or "").startswith("custom_allreduce"):
        return "kernels of inference engines, not a collective library"
    return ""


def _timed(row: Mapping[str, str], column: Mapping[str, str], part: Accelerator, where: str) -> TimedCollectives:
    op = operation(row[column["op"]] or "", where)
    time = row.get("time_us")
    seconds = _number(time, where, "time_us") * 1e-6 if time else _number(row.get("seconds"), where, "seconds")
    return TimedCollectives(
        accelerator=part,
        op=op,
        ranks=_number(row[column["gpus"]], where, column["gpus"]),
        size=_number(row[column["message_bytes"]], where, column["message_bytes"]),
        seconds=seconds,
        nodes=_number(row.get("nodes") or "1", where, "nodes"),
        **{name: row.get(name) or "" for name in ("node", "fabric", "source", "hardware", "backend", "notes")},
    )


def operation(text: str, where: str) -> str:
    """One of :data:`OPERATIONS`, however it is joined: ``all_reduce``, ``AllReduce``, ``all-reduce``.

    Raises:
        WrongQuestion: no such operation; the nearest.
    """
    plain = text.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    found = _PLAIN.get(plain) or _ALIASES.get(plain)
    if found is None:
        hint = meant(text, OPERATIONS, f"there are {', '.join(OPERATIONS)}")
        raise WrongQuestion(f"{where}: op = {text!r}: no such operation; {hint}")
    return found


def _number(text: str | None, where: str, name: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise WrongQuestion(f"{where}: {name} = {text!r}: must be a number above 0")
    return value
