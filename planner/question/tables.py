"""Tables of a question file (TOML) to values; what is wrong is collected, so that one message tells it all, each with
file, line and key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from planner.base import units
from planner.base.errors import ClusterwrightError, WrongQuestion, nearest
from planner.catalog.files import Document, FileProblem, read_document

T = TypeVar("T")
Where = tuple[str | int, ...]


def opened(path: Path) -> Document:
    """A question file as TOML.

    Raises:
        WrongQuestion: it cannot be read, or is no TOML.
    """
    problems: list[FileProblem] = []
    document = read_document(path, problems)
    if document is None:
        raise WrongQuestion("\n".join(str(problem) for problem in problems))
    return document


@dataclass(kw_only=True)
class Tables:
    """Reads values out of tables and collects what is wrong with them."""

    document: Document
    problems: list[FileProblem] = field(default_factory=list)

    def wrong(self, where: Where, reason: str) -> None:
        """Notes a problem at a key."""
        key = ".".join(str(part) for part in where)
        self.problems.append(FileProblem(str(self.document.path), self.document.line(where), key, reason))

    def keys(self, table: Any, known: Iterable[str], where: Where) -> dict[str, Any]:
        """The table, its unknown keys told."""
        if not isinstance(table, dict):
            self.wrong(where, "expected a table")
            return {}
        for key in table:
            if key not in known:
                near = nearest(key, known)
                self.wrong((*where, key), f"unknown key{f'; did you mean {near[0]}?' if near else ''}")
        return table

    def value(self, table: dict[str, Any], key: str, where: Where, read: Callable[[Any], T]) -> T | None:
        """One value as `read` understands it; None if it is missing or wrong."""
        if key not in table:
            return None
        try:
            return read(table[key])
        except (units.UnitError, ClusterwrightError, ValueError, TypeError) as error:
            self.wrong((*where, key), str(error))
            return None

    def done(self) -> None:
        """Ends the reading.

        Raises:
            WrongQuestion: every problem that was noted, in the order of the file.
        """
        if self.problems:
            raise WrongQuestion("\n".join(str(problem) for problem in sorted(set(self.problems))))


def positive(value: object) -> float:
    """A number above 0, without a unit."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise ValueError(f"{value!r}: must be a number above 0")
    return float(value)


def one_of(choices: tuple[Any, ...]) -> Callable[[object], Any]:
    """A reader that takes one of the choices and names the nearest for anything else."""

    def read(value: object) -> Any:
        if value not in choices:
            near = nearest(str(value), choices)
            hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(choices)}"
            raise ValueError(f"{value!r}: {hint}")
        return value

    return read
