"""Catalog folders as text: reads TOML and CSV, keeps file and line of everything, and collects what is wrong.

Files are data. Nothing in them is executed, and nothing larger than `MAX_BYTES` is read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from planner.base import reading
from planner.base.errors import WrongQuestion, did_you_mean

FOLDERS = (
    "accelerators",
    "nodes",
    "fabrics",
    "regions",
    "runtimes",
    "accelerator_efficiencies",
    "runtime_efficiencies",
    "collective_efficiencies",
    "fabric_efficiencies",
)
"""Kinds of entries; a catalog folder holds a folder of TOML files for each, and `prices` with CSV files."""
ONE = {kind: kind.removesuffix("s") if kind[-3:] != "ies" else f"{kind[:-3]}y" for kind in FOLDERS}
"""Kind -> what one entry of it is called."""
OTHER_FILES = ("kernels.csv",)
"""Files that may stand beside them: the measured kernels that an overlay was fitted to."""
PRICED = {"accelerator": "accelerators", "node": "nodes"}
PRICE_COLUMNS = ("kind", "id", "basis", "usd", "region", "date", "source", "low", "high", "assumed")
MAX_BYTES = 10_000_000
HINTED = 100
"""Problems told with the nearest names: a name is compared with all, and a folder may hold thousands of both."""

Path_ = tuple[str | int, ...]
"""Where in a TOML document: table names, keys and list positions."""
_HEADER = re.compile(r"\s*(\[\[?)\s*(.*?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|=|$)?""")


class FileProblem(NamedTuple):
    """One thing that is wrong in a file."""

    file: str
    """Empty where a flag is to blame, which then is the key."""
    line: int
    """1 is the first; 0 where the file as a whole is meant."""
    key: str
    """Dotted: the entry's id, then the field."""
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(filter(None, (place, self.key, self.reason)))


@dataclass(frozen=True)
class TomlDocument:
    """A TOML file with its text, so that a key can be traced to its line."""

    path: Path
    text: str
    data: dict[str, Any]
    table: Path_ = ()
    """Where in the text `data` stands."""

    def line(self, where: Path_) -> int:
        """The line (from 1) of the deepest part of `where` that stands on a line of its own; 0 if none does."""
        where = (*self.table, *where)
        parts = (where[:length] for length in range(len(where), 0, -1))
        return next((self._lines[part] for part in parts if part in self._lines), 0)

    @cached_property
    def _lines(self) -> dict[Path_, int]:
        """The first line of every path."""
        return {place: number for number, place in reversed(self._places)}

    @cached_property
    def _places(self) -> list[tuple[int, Path_]]:
        """Line number and path of every table header and every key at the start of a line."""
        places: list[tuple[int, Path_]] = []
        table: Path_ = ()
        counts: dict[Path_, int] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            header = _HEADER.fullmatch(line)
            if header:
                table = tuple(_keys(header[2]))
                if header[1] == "[[":
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, counts[table])
                places.append((number, table))
            elif "=" in line:
                places.append((number, (*table, *_keys(line.split("=", 1)[0]))))
        return places


@dataclass
class FileRecord:
    """One entry as it was read, before its fields are checked."""

    fields: dict[str, Any]
    document: TomlDocument
    table: Path_
    origin: str
    price_lines: list[tuple[str, int]] = field(default_factory=list)
    """File and line of each of ``fields["prices"]``."""
    broken: bool = False
    """Whether something about it is wrong already, so that what follows from that need not be said as well."""

    def place(self, where: Sequence[str | int]) -> tuple[str, int]:
        """File and line of a field of this entry."""
        if len(where) > 1 and where[0] == "prices" and isinstance(where[1], int) and where[1] < len(self.price_lines):
            return self.price_lines[where[1]]
        return str(self.document.path), self.document.line((*self.table, *where))


class PriceRow(NamedTuple):
    """A line of a price list."""

    kind: str
    id: str
    fields: dict[str, str]
    file: str
    line: int


def read_document(path: Path, problems: list[FileProblem]) -> TomlDocument | None:
    """Read one TOML file; None, with a problem noted, if that cannot be done."""
    text = _read_text(path, problems)
    if text is None:
        return None
    try:
        return TomlDocument(path, text, reading.toml(text))
    except reading.MalformedToml as error:
        problems.append(FileProblem(str(path), error.line or 0, "", f"not valid TOML: {error.reason}"))
    return None


def read_entries(folder: Path, kind: str, origin: str, problems: list[FileProblem]) -> dict[str, FileRecord]:
    """Every entry of one kind in one catalog folder, by id."""
    entries: dict[str, FileRecord] = {}
    for path in sorted((folder / kind).glob("*.toml")):
        document = read_document(path, problems)
        if document is None:
            continue
        for name, fields in document.data.items():
            record = FileRecord({}, document, (name,), origin if origin == "built-in" else str(path))
            if not isinstance(fields, dict):
                problems.append(
                    FileProblem(*record.place(()), name, f"expected a table, [{name}] with fields below it")
                )
            elif name in entries:
                first = entries[name].place(())
                problems.append(FileProblem(*record.place(()), name, f"defined twice; first in {first[0]}:{first[1]}"))
            else:
                record.fields = dict(fields)
                record.price_lines = [record.place(("prices", n)) for n in range(len(_inline_prices(fields)))]
                entries[name] = record
    return entries


def read_prices(folder: Path, problems: list[FileProblem]) -> Iterator[PriceRow]:
    """The rows of every price list of one catalog folder whose header and kind are right."""
    for path in sorted((folder / "prices").glob("*.csv")):
        text = _read_text(path, problems)
        if text is None:
            continue
        reader = csv.DictReader(text.splitlines(), restkey="")
        if _header_is_right(reader.fieldnames or (), str(path), problems):
            for row in reader:
                yield from _price_row(row, str(path), reader.line_num, problems)


def misplaced(folder: Path) -> list[FileProblem]:
    """Files and folders of a catalog folder that nothing would ever read."""
    known = (*FOLDERS, "prices", "priors", "intervals", "own_runs", "nearest_runs", "profiles", "parts")
    problems = []
    for path in _visible(folder):
        if path.name in OTHER_FILES and path.is_file():
            continue
        if path.name not in known:
            hint = did_you_mean(path.stem, known, most=1).replace("?", "/?")
            reason = f"not part of a catalog: it has folders {', '.join(known)}{hint}"
            problems.append(FileProblem(str(path), 0, "", reason))
        elif not path.is_dir():
            problems.append(FileProblem(str(path), 0, "", "must be a folder"))
        elif path.name == "priors":
            problems.extend(misplaced(path))
        else:
            suffix = ".csv" if path.name in ("prices", "intervals", "own_runs", "nearest_runs", "profiles") else ".toml"
            wrong = [child for child in _visible(path) if child.suffix != suffix]
            problems.extend(
                FileProblem(str(child), 0, "", f"not read: {path.name}/ holds {suffix} files") for child in wrong
            )
    return problems


def _visible(folder: Path) -> list[Path]:
    """What a folder holds, but for prose and hidden files."""
    names = sorted(folder.iterdir())
    return [path for path in names if not path.name.startswith(".") and path.suffix not in (".md", ".txt")]


# ---- text ------------------------------------------------------------------------------------------------------------


def _read_text(path: Path, problems: list[FileProblem]) -> str | None:
    try:
        return reading.text(path, "a catalog file", MAX_BYTES)
    except WrongQuestion as error:
        problems.append(FileProblem(str(path), 0, "", str(error).removeprefix(f"{path}: ")))
    return None


def _keys(text: str) -> list[str]:
    """``a."b.c".d`` -> ``["a", "b.c", "d"]``."""
    return [match[1] or match[2] or match[3] or "" for match in _KEY.finditer(text)]


def _inline_prices(fields: dict[str, Any]) -> list[Any]:
    prices = fields.get("prices")
    return prices if isinstance(prices, list) else []


def _header_is_right(columns: Sequence[str], file: str, problems: list[FileProblem]) -> bool:
    wrong = []
    for column in columns:
        if column not in PRICE_COLUMNS:
            hint = did_you_mean(column, PRICE_COLUMNS, most=1)
            wrong.append(FileProblem(file, 1, column, f"unknown column{hint}"))
    for column in ("kind", "id", "basis", "usd", "date", "source"):
        if column not in columns:
            wrong.append(FileProblem(file, 1, column, "missing column"))
    problems.extend(wrong)
    return not wrong


def _price_row(row: dict[str, Any], file: str, line: int, problems: list[FileProblem]) -> Iterator[PriceRow]:
    kind = row.pop("kind") or ""
    name = row.pop("id") or ""
    if "" in row or None in row.values():
        problems.append(FileProblem(file, line, name, "the row has more or fewer cells than the header"))
    elif kind not in PRICED:
        problems.append(FileProblem(file, line, name, f"kind = {kind!r}: must be {' or '.join(PRICED)}"))
    else:
        # A price list states its currency in the header; elsewhere the unit stands with the figure.
        money = {key: f"{value} USD" for key, value in row.items() if key in ("usd", "low", "high") and value}
        fields = {key: value for key, value in row.items() if value} | money
        yield PriceRow(PRICED[kind], name, fields, file, line)


def hint(name: str, choices: Iterable[str], problems: Sequence[FileProblem]) -> str:
    """The names nearest to one that there is not; nothing if there are :data:`HINTED` problems already."""
    return did_you_mean(name, list(choices)) if len(problems) < HINTED else ""
