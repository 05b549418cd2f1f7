"""The base of documents: what they refuse, how they become JSON, and what Python callers see of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, overload

from pydantic import ConfigDict, Field

from planner.schema import notebook
from planner.schema.digest import sealed
from planner.schema.notebook import OneLine

if TYPE_CHECKING:
    import pandas as pd


Part = TypeVar("Part")
Value = TypeVar("Value")
Sparse = Annotated[Value | None, Field(exclude_if=lambda value: value is None)]
"""A field that documents leave out where it has no value."""
_STRICT = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)


class Record(OneLine):
    """Base of everything in a document: unknown keys are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT


class Document(Record):
    """What a Python function returns: a record that is also a table."""

    shown: ClassVar[Sequence[str]] = ()
    """Columns of its table in a notebook; empty: all."""

    def rows(self) -> list[dict[str, Any]]:
        """Its table, column -> value: SI units, named behind the column."""
        raise NotImplementedError

    def title(self) -> str:
        """It in a line."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """Its table as a tidy frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_json(self) -> str:
        """Its JSON text, as ``-o FILE`` writes it and ``load`` reads it."""
        return as_json(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title()}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.title())}</p>{notebook.as_html(self.rows(), self.shown)}"


class Parts(tuple[Part, ...]):
    """Some parts of an answer, or records of the catalog: a tuple that is also a table."""

    table: list[dict[str, Any]]

    def __new__(cls, parts: Iterable[Part], table: list[dict[str, Any]]) -> Self:
        """A row of the table for each part."""
        made = super().__new__(cls, parts)
        made.table = table
        return made

    def __reduce__(self) -> tuple[type, tuple[tuple[Part, ...], list[dict[str, Any]]]]:
        """For pickles: what it is made of."""
        return type(self), (tuple(self), self.table)

    def to_frame(self) -> pd.DataFrame:
        """A tidy frame: a row for each part, SI units named behind the columns."""
        import pandas as pd

        return pd.DataFrame(self.table)

    def _repr_html_(self) -> str:
        return notebook.as_html(self.table)


class Answer(Document, Generic[Part]):
    """A document with parts, best first: ``answer[0]``, ``len(answer)``, ``for part in answer``."""

    def parts(self) -> Sequence[Part]:
        """What there is to choose from."""
        raise NotImplementedError

    def rows_of(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """A row for each of these parts."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """A row for each part."""
        return self.rows_of(self.parts())

    def __len__(self) -> int:
        return len(self.parts())

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts())

    @overload
    def __getitem__(self, place: int) -> Part: ...
    @overload
    def __getitem__(self, place: slice) -> Parts[Part]: ...
    def __getitem__(self, place: int | slice) -> Part | Parts[Part]:
        if isinstance(place, slice):
            return Parts(some := self.parts()[place], self.rows_of(some))
        return self.parts()[place]


class Report(Answer[dict[str, Any]]):
    """What was found where no record stands for it: a document as JSON types, and its table."""

    document: dict[str, Any]
    """As ``--json`` prints it."""
    summary: str
    """It in a line."""
    table: tuple[dict[str, Any], ...]

    def parts(self) -> Sequence[dict[str, Any]]:
        """The rows of the table."""
        return self.table

    def rows_of(self, parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows themselves."""
        return list(parts)

    def title(self) -> str:
        """The summary."""
        return self.summary

    def to_json(self) -> str:
        """The document's JSON text, with its digest."""
        return json.dumps(sealed(self.document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _plain(record: Any) -> dict[str, Any]:
    """A record as JSON types."""
    dumped: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return dumped


def _build_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_adapter: Callable[[Any], Any] = cache(_build_adapter)
"""Pydantic's reader and writer of a record, built once: building takes longer than using."""


def dump(document: Record) -> dict[str, Any]:
    """A document as JSON types, keys in the order of the records."""
    dumped: dict[str, Any] = _adapter(type(document)).dump_python(document, mode="json", by_alias=True)
    return dumped


def stamped(document: Record) -> dict[str, Any]:
    """A document as JSON types with the digest of its content, by which readers see that it was edited."""
    return sealed(dump(document))


def as_json(document: Record) -> str:
    """The document's JSON text, with its digest."""
    return json.dumps(stamped(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
