"""``runs.csv``: the measured runs of a site, in the columns of ``docs/runs.md``; rows are added and never changed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from planner.base import locking, reading
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash

COLUMNS = (
    *("id", "source", "lab", "date", "model", "family", "task", "runtime", "framework", "release"),
    *("accelerator", "num_accelerators", "accelerators_per_node", "inter_node_network"),
    *("seq_len", "global_batch_seqs", "tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch"),
    *("zero_stage", "activation_recompute", "sequence_parallel", "precision"),
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp"),
    *("num_experts", "topk", "moe_ffn_hidden"),
    *("step_time_s", "steps", "step_time_spread", "memory_gb_per_gpu", "memory_kind", "metric"),
    *("grade", "notes"),
)
"""What a row says, in the order of the file; ``step_time_spread`` is the interquartile range over the median."""
HEADER = ",".join(COLUMNS) + "\n"
PRIVATE = ("id", "source", "lab", "date", "notes")
"""Columns that say who ran something, when, or in words of their own."""
OWN = ("id", "source", "lab", "date")
"""Columns that a site fills itself."""
LARGEST = 100_000_000
"""Bytes: some 300,000 rows. What is larger is no journal."""

Row = Mapping[str, str]


def identified(row: Row, site: str) -> dict[str, str]:
    """The row with its id: the same measurement of the same configuration has the same one."""
    identity = "\n".join(f"{column}={row.get(column, '')}" for column in COLUMNS if column not in PRIVATE)
    return {**row, "id": f"{site}-{short_hash(identity.encode(), 10)}"}


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a journal, also of one whose columns a person has extended or put in another order.

    Raises:
        WrongQuestion: it cannot be read, or lacks the columns of an id and a model.
    """
    text = reading.text(path, "a journal of runs", LARGEST)
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    absent = [column for column in ("id", "model") if column not in (reader.fieldnames or ())]
    if absent:
        raise WrongQuestion(f"{path}:1: no column {', '.join(absent)}; the first line names the columns (docs/runs.md)")
    return [{column: text for column, text in row.items() if isinstance(column, str) and text} for row in reader]


def add(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Adds the rows whose id is not there yet, all of them or none; several writers wait for one another.

    Returns:
        The rows that were added.

    Raises:
        WrongQuestion: the journal cannot be read or written.
    """
    try:
        with _locked(path) as file:
            known = {row.get("id") for row in read(path)}
            columns = _header(path)
            fresh = [row for row in rows if row["id"] not in known]
            _append(file, _text(columns, fresh))
            return fresh
    except OSError as error:
        raise WrongQuestion(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    with locking.Lock(path):
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            yield file
        finally:
            os.close(file)


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file), list(COLUMNS))


def _text(columns: Sequence[str], rows: Sequence[Row]) -> str:
    lines = io.StringIO()
    csv.DictWriter(lines, columns, extrasaction="ignore", lineterminator="\n").writerows(rows)
    return lines.getvalue()


def _append(file: int, text: str) -> None:
    """Writes at the end, behind the line end that somebody's editor may have left out; a full disk leaves nothing."""
    end = os.lseek(file, 0, os.SEEK_END)
    if not text:
        return
    if end and os.pread(file, 1, end - 1) != b"\n":
        text = "\n" + text
    data = text.encode()
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise
