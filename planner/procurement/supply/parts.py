"""What a cluster needs beside its nodes, read from the catalog's ``parts`` folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, FileProblem
from planner.catalog.checked_records import build
from planner.catalog.files import read_entries
from planner.catalog.store import format_problems
from planner.schema.hardware import Entry
from planner.schema.quantities import Bandwidth, Count, Usd, Watts


@dataclass(frozen=True, kw_only=True, repr=False)
class BillPart(Entry):
    """A switch, a link with its optics, a machine for input and output, or storage."""

    usd: Usd
    power: Watts
    rate: Bandwidth = 0.0
    """Bandwidth of one port, or the bandwidth that one machine can move."""
    radix: Count | None = None
    """Ports of a switch."""


def parts(catalog: Catalog) -> dict[str, BillPart]:
    """Every part by id; those of a stronger catalog folder replace weaker ones.

    Raises:
        WrongQuestion: a file is wrong; the message names file, line and key.
    """
    all_parts: dict[str, BillPart] = {}
    for layer in catalog.layers:
        all_parts |= _parts_of(layer.folder)
    return all_parts


@cache
def _parts_of(folder: Path) -> dict[str, BillPart]:
    problems: list[FileProblem] = []
    entries = read_entries(folder, "parts", "", problems)
    read = {name: build(BillPart, name, entry, problems) for name, entry in entries.items()}
    if problems:
        raise WrongQuestion(format_problems(problems))
    return {name: part for name, part in read.items() if part is not None}
