"""Measured kernels as rows of a CSV file: written one by one, so that an interrupted run goes on where it stopped.

A table made elsewhere is read the same way; of its columns only ``accelerator, dtype, m, n, k`` and ``seconds`` or
``tflops`` are needed, and it holds matrix products if it has no column ``kind``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from planner.base import csv_rows
from planner.base.csv_rows import CsvRow
from planner.base.errors import WrongQuestion, meant
from planner.cost import attention

MATRIX, FORWARD, BACKWARD, MEMORY, LAUNCH = "matrix", "attention-forward", "attention-backward", "memory", "launch"
GATHER, SCATTER, REDUCE, EXCHANGE = "all-gather", "reduce-scatter", "all-reduce", "all-to-all"
COLLECTIVES = (GATHER, SCATTER, REDUCE, EXCHANGE)
KINDS = (MATRIX, FORWARD, BACKWARD, MEMORY, LAUNCH, *COLLECTIVES)
ELEMENT = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4, "tf32": 4}
"""Bytes of an element, by precision."""
LAYOUTS = ("TN", "NN", "NT")
"""Layouts of a product's operands, as BLAS names them: forward, gradient of the input, gradient of the weight."""
WHAT = "a kernel table"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One thing to time. A count that does not apply is 0."""

    kind: str
    dtype: str
    layout: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    """A product (m x k)(k x n)."""
    batch: int = 0
    heads: int = 0
    head_dim: int = 0
    sequence: int = 0
    """Causal attention, as many heads of keys and values as of queries."""
    size: int = 0
    """Bytes: moved by a memory kernel; of the whole vector of a collective, of the send buffer of an all-to-all."""
    ranks: int = 0
    """Accelerators in a collective."""

    @property
    def flops(self) -> float:
        """``2 m n k``; causal attention ``2 B s^2 H d`` forward, more backward (`planner.cost.attention`)."""
        if self.kind == MATRIX:
            return 2.0 * self.m * self.n * self.k
        forward = 2.0 * self.batch * self.sequence**2 * self.heads * self.head_dim
        return forward * {FORWARD: 1.0, BACKWARD: attention.BACKWARD}.get(self.kind, 0.0)

    @property
    def bytes(self) -> float:
        """Operands and result of a product; the size of what is moved."""
        if self.kind == MATRIX:
            return float(ELEMENT[self.dtype] * (self.m * self.k + self.k * self.n + self.m * self.n))
        return float(self.size)

    def __str__(self) -> str:
        """As a progress bar names it."""
        if self.kind == MATRIX:
            return f"{self.dtype} {self.m} x {self.n} x {self.k} {self.layout}".rstrip()
        detail = f" {self.sequence} tokens" if self.sequence else f" {self.size / 1e6:.3g} MB" if self.size else ""
        return self.kind + detail


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementRow:
    """A kernel's time on an accelerator."""

    accelerator: str
    """Id in the catalog; in a table made elsewhere, as it is called there."""
    kernel: Kernel
    seconds: float
    torch: str = ""
    """Version that ran it."""
    date: str = ""


@dataclass(frozen=True, slots=True)
class MeasurementTable:
    """What a file holds."""

    rows: tuple[MeasurementRow, ...]
    left_out: int
    """Rows with an empty cell where a shape or a time belongs: a rate that its source gives without one."""


_COUNTS = tuple(item.name for item in fields(Kernel) if item.name not in ("kind", "dtype", "layout"))
COLUMNS = ("accelerator", "kind", "dtype", "layout", *_COUNTS, "seconds", "flops", "bytes", "torch", "date")
_NEEDED = {MATRIX: ("m", "n", "k"), MEMORY: ("size",), LAUNCH: ()}
_NEEDED |= dict.fromkeys((FORWARD, BACKWARD), ("batch", "heads", "head_dim", "sequence"))
_NEEDED |= dict.fromkeys(COLLECTIVES, ("size", "ranks"))


def read(path: Path) -> MeasurementTable:
    """All rows of a journal or of a table made elsewhere.

    Raises:
        WrongQuestion: no such file, a missing column, or a cell that is none (``file:line: column = value: ...``).
    """
    columns, rows = csv_rows.read(path, WHAT)
    _checked_columns(path, columns)
    times = [_row(row) for row in rows]
    return MeasurementTable(tuple(row for row in times if row), times.count(None))


def _checked_columns(path: Path, columns: Sequence[str]) -> None:
    needed = ["accelerator", "dtype", *(() if "kind" in columns else ("m", "n", "k"))]
    missing = [name for name in needed if name not in columns]
    if "seconds" not in columns and "tflops" not in columns:
        missing.append("seconds (or tflops)")
    if missing:
        raise WrongQuestion(f"{path}:1: no column {', '.join(missing)}; a kernel table has {', '.join(COLUMNS)}")


def _row(row: CsvRow) -> MeasurementRow | None:
    kind = _one_of(row, "kind", KINDS) or MATRIX
    dtype = _one_of(row, "dtype", tuple(ELEMENT))
    layout = _one_of(row, "layout", LAYOUTS)
    if not row.text("accelerator") or not dtype:
        raise WrongQuestion(f"{row.where}: accelerator and dtype must be given")
    counts = {name: row.whole(name) for name in _COUNTS}
    kernel = Kernel(kind=kind, dtype=dtype, layout=layout, **counts)
    seconds, rate = row.number("seconds"), row.number("tflops")
    seconds = seconds or (kernel.flops / (rate * 1e12) if rate else 0.0)
    if not seconds or not all(counts[name] for name in _NEEDED[kind]):
        return None
    context = {name: row.text(name) for name in ("accelerator", "torch", "date")}
    return MeasurementRow(kernel=kernel, seconds=seconds, **context)


def _one_of(row: CsvRow, name: str, known: Sequence[str]) -> str:
    """A cell that is empty or one of some words."""
    text = row.text(name)
    if text and text not in known:
        hint = meant(text, known, f"known are {', '.join(known)}")
        raise WrongQuestion(f"{row.where}: {name} = {text!r}: {hint}")
    return text


class MeasurementJournal:
    """A file that rows are added to."""

    def __init__(self, path: Path) -> None:
        others = "no journal of measured kernels: its columns are others"
        self.path = path
        self.rows = list(read(path).rows) if csv_rows.goes_on(path, COLUMNS, WHAT, others) else []

    def add(self, row: MeasurementRow) -> None:
        """Writes one row, whole, and the header before the first."""
        csv_rows.add(self.path, COLUMNS, [_cells(row)])
        self.rows.append(row)


def _cells(row: MeasurementRow) -> list[str]:
    kernel = row.kernel
    counts = [getattr(kernel, name) for name in _COUNTS]
    numbers = [f"{value:.6g}" if value else "" for value in (row.seconds, kernel.flops, kernel.bytes)]
    named = [row.accelerator, kernel.kind, kernel.dtype, kernel.layout]
    return [*named, *(str(count) if count else "" for count in counts), *numbers, row.torch, row.date]
