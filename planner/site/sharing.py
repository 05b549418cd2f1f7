"""A site's rows for others: figures and public words, nothing of who ran them, on which machines, or when."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from planner.base.units import format_many
from planner.calibration.runs.reading import REQUIRED
from planner.catalog import Catalog
from planner.site import cell_rules
from planner.site.journal import COLUMNS, OWN, Row

NEEDED = tuple(column for column in REQUIRED if column not in ("id", "source", "model"))
"""Columns without which a row says nothing to anybody."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Rows as the text of a CSV, and what of the journal is not in them."""

    text: str
    rows: int
    notes: tuple[str, ...]


def shared(rows: Sequence[Row], catalog: Catalog) -> Shared:
    """The rows with ids that are numbered, and with no cell that says more than figures and public words.

    Arguments:
        rows: Of the journal.
        catalog: The built-in one: what a site calls its own hardware is a name.
    """
    plain = [_plain(row, catalog) for row in rows]
    kept = [row for row in plain if all(row.get(column) for column in NEEDED)]
    file = io.StringIO()
    table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(row | {"id": f"shared-{number}", "source": "shared"} for number, row in enumerate(kept, 1))
    return Shared(file.getvalue(), len(kept), tuple(_notes(rows, plain, len(kept))))


def _plain(row: Row, catalog: Catalog) -> dict[str, str]:
    found = {column: text for column, text in row.items() if text and cell_rules.public(column, text, catalog)}
    return {"model": f"{found.get('layers', '')}x{found.get('hidden', '')}", **found}


def _notes(rows: Sequence[Row], plain: Sequence[Row], kept: int) -> list[str]:
    """Which columns lost a cell that was no figure and no public word, and how many rows are of nothing public."""
    pairs = list(zip(rows, plain, strict=True))
    lost = [
        each for each in COLUMNS if each not in OWN and any(row.get(each, "") != to.get(each, "") for row, to in pairs)
    ]
    notes = [f"cells with words of your own are left out, of {', '.join(lost)}"] if lost else []
    if fewer := len(rows) - kept:
        notes.append(
            f"{format_many(fewer, 'row')} left out: not one of the built-in accelerators, or without its counts"
        )
    return notes
