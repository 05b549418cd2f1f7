"""What a cluster needs beside its nodes, read from the catalog's ``parts`` folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from planner.base import units
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.catalog.files import FileProblem, read_document

_FIELDS = {"rate": "bandwidth", "usd": "money", "power": "power"}
_PLAIN = ("name", "radix", "source", "date", "assumed")


@dataclass(frozen=True, kw_only=True)
class BillPart:
    """A switch, a link with its optics, a machine for input and output, or storage."""

    id: str
    name: str
    usd: float
    power: float
    """Watts."""
    rate: float = 0.0
    """Bytes per second of one port, or that one machine can move."""
    radix: int = 0
    source: str
    date: str
    assumed: dict[str, str] = field(default_factory=dict)


def parts(catalog: Catalog) -> dict[str, BillPart]:
    """Every part by id; those of a stronger catalog folder replace weaker ones.

    Raises:
        WrongQuestion: a file is wrong; the message names file, line and key.
    """
    found: dict[str, BillPart] = {}
    for layer in catalog.layers:
        found |= _parts_of(layer.folder)
    return found


@cache
def _parts_of(folder: Path) -> dict[str, BillPart]:
    problems: list[FileProblem] = []
    found = {}
    for path in sorted((folder / "parts").glob("*.toml")):
        document = read_document(path, problems)
        for name, fields in (document.data if document else {}).items():
            try:
                found[name] = BillPart(id=name, **_fields_of(fields))
            except (units.UnitError, TypeError, ValueError) as error:
                line = document.line((name,)) if document else 0
                problems.append(FileProblem(str(path), line, name, str(error).replace("BillPart.__init__() ", "")))
    if problems:
        raise WrongQuestion("\n".join(str(problem) for problem in problems))
    return found


def _fields_of(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise ValueError("expected a table with fields below it")
    for key in fields:
        if key not in _FIELDS and key not in _PLAIN:
            raise ValueError(f"{key}: unknown key; there are {', '.join((*_FIELDS, *_PLAIN))}")
    read = {key: units.parse(fields[key], kind) for key, kind in _FIELDS.items() if key in fields}
    if any(value < 0 for value in read.values()):
        raise ValueError("nothing about a part is negative")
    return {**fields, **read}
