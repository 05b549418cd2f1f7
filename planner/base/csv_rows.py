"""Tables in CSV files: rows that know their line for a message, and files that rows are added to, each whole or not at
all.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.base import reading, writing
from planner.base.errors import WrongQuestion

LARGEST = 100_000_000
"""Bytes of a file: some hundred thousand rows, which fit in memory."""
MOST_CELLS = 10_000_000
"""Lines times columns of a table: a row that ends early has all cells that the first line names."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row: its cells without the spaces around them, by column; a cell that is left out is empty."""

    where: str
    """``file:line``, as messages about it begin."""
    cells: Mapping[str, str]

    def text(self, name: str) -> str:
        """A cell, empty where the table has no such column."""
        return self.cells.get(name, "")

    def number(self, name: str, empty: float = 0.0, *, whole: bool = False) -> float:
        """A cell as a number of at least 0; `empty` where nothing stands in it.

        Raises:
            WrongQuestion: it is no such number.
        """
        text = self.text(name)
        try:
            value = float(text) if text else empty
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (whole and value != int(value)):
            kind = "whole" if whole else "positive"
            raise WrongQuestion(f"{self.where}: {name} = {text!r}: must be a {kind} number")
        return value

    def whole(self, name: str, empty: int = 0) -> int:
        """A cell as a count; see :meth:`number`."""
        return int(self.number(name, empty, whole=True))


def read(path: Path, what: str) -> tuple[tuple[str, ...], Iterator[CsvRow]]:
    """The columns that the first line names, and the rows below it, one after another.

    Arguments:
        path: The file.
        what: What such a file is, with its article: "a kernel table".

    Raises:
        WrongQuestion: it cannot be read, is no CSV, or has a row of more cells than columns (``file:line: ...``).
    """
    reader = table(path, what, strict=True)
    return tuple(reader.fieldnames or ()), _rows(path, reader)


def table(path: Path, what: str, *, strict: bool = False) -> csv.DictReader[str]:
    """The rows of a file within bounds, as the standard library reads them, with the first line read.

    Args:
        path: The file.
        what: What such a file is, with its article: "a kernel table".
        strict: Whether a quote in the midst of a cell is an error.

    Raises:
        WrongQuestion: it cannot be read, is larger than any such table, or its first line is no CSV.
    """
    text = reading.text(path, what, LARGEST)
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="", strict=strict)
    try:
        columns = len(reader.fieldnames or ())
    except csv.Error as error:
        raise WrongQuestion(f"{path}:1: {error}") from None
    if (cells := (1 + text.count("\n")) * columns) > MOST_CELLS:
        raise WrongQuestion(f"{path}: {cells:,} cells; {what} has at most {MOST_CELLS:,}")
    return reader


def _rows(path: Path, reader: csv.DictReader[str]) -> Iterator[CsvRow]:
    try:
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if None in cells:
                raise WrongQuestion(f"{where}: more cells than the header names")
            yield CsvRow(where, {name: text.strip() for name, text in cells.items()})
    except csv.Error as error:
        raise WrongQuestion(f"{path}:{reader.reader.line_num}: {error}") from None


def goes_on(path: Path, columns: Sequence[str], what: str, otherwise: str) -> bool:
    """Whether a file of these columns is there, with rows to go on behind; a last line that was cut off while it was
    written is dropped.

    Raises:
        WrongQuestion: it cannot be read or written, or has other columns, of which `otherwise` says what that means.
    """
    if not path.exists():
        return False
    text = reading.text(path, what, LARGEST)
    first, ended, _ = text.partition("\n")
    header = ",".join(columns)
    if first != header if ended else not header.startswith(first):
        raise WrongQuestion(f"{path}:1: {otherwise}")
    cut = text.rpartition("\n")[2]
    if cut or not ended:
        _cut(path, path.stat().st_size - len(cut.encode()) if ended else 0)
    return text.count("\n") > 1


def _cut(path: Path, size: int) -> None:
    """Drops what is behind so many bytes of a file; those stay where they are, whatever ends this."""
    try:
        os.truncate(path, size)
    except OSError as error:
        raise WrongQuestion(f"{path}: cannot be written: {error.strerror or error}") from None


def write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Writes a table in place of whatever the file held, and its folder where there is none; returns the file.

    Raises:
        WrongQuestion: the file or its folder cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    writing.make_folder(path.parent)
    writing.write(path, text.getvalue(), replace=True)
    return path


def add(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes rows behind those of a file, and the names of the columns before the first.

    Raises:
        WrongQuestion: the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not (path.exists() and path.stat().st_size):
        writer.writerow(columns)
    writer.writerows(rows)
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())
    except OSError as error:
        raise WrongQuestion(f"{path}: cannot be written: {error.strerror or error}") from None
