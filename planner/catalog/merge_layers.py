"""Catalog layers merged into entries: a later layer replaces an earlier one, ``extends`` is filled in, prices joined.

What is wrong in an entry is found afterwards (:mod:`planner.catalog.checking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from planner.catalog.files import FileProblem, FileRecord, hint, read_entries, read_prices

MERGED = ("defaults",)
"""Tables that an entry shares with the one that it extends, key by key; its own win."""


@dataclass(frozen=True)
class CatalogLayer:
    """One catalog folder, and what to call it."""

    origin: str
    folder: Path


def merged(layers: tuple[CatalogLayer, ...], kind: str, problems: list[FileProblem]) -> dict[str, FileRecord]:
    """Every entry of one kind as its strongest layer gives it, prices joined, `extends` filled in, fields unchecked."""
    records: dict[str, FileRecord] = {}
    for layer in layers:
        layer_entries = read_entries(layer.folder, kind, layer.origin, problems)
        for name in layer_entries:
            _extend(name, layer_entries, records, problems)
        records |= layer_entries
        _join_prices(layer, kind, records, problems)
    return records


def _extend(
    name: str, entries: Mapping[str, FileRecord], below: Mapping[str, FileRecord], problems: list[FileProblem]
) -> None:
    """Fills an entry that says ``extends = "other"``, after that other and whatever it extends itself."""
    waiting: dict[str, str] = {}
    while name in entries and "extends" in entries[name].fields:
        waiting[name] = str(entries[name].fields.pop("extends"))
        name = waiting[name]
    while waiting:
        name, other = waiting.popitem()
        # An entry may extend the weaker one of its own name, which it replaces.
        base = (entries.get(other) if other != name else None) or below.get(other)
        if base is not None and other not in waiting:
            _inherit(entries[name], base, name)
            continue
        file, line = entries[name].place(("extends",))
        reason = "extends itself" if base else f"no such entry{hint(other, chain(below, entries), problems)}"
        problems.append(FileProblem(file, line, f'{name}.extends = "{other}"', reason))
        entries[name].broken = True


def _inherit(record: FileRecord, base: FileRecord, name: str) -> None:
    """Fills an entry with the fields of the one that it extends; its own win."""
    inherited = {key: value for key, value in base.fields.items() if key != "prices" or "prices" not in record.fields}
    if "prices" not in record.fields:
        record.price_lines = list(base.price_lines)
    for key in MERGED:
        if isinstance(inherited.get(key), dict) and isinstance(record.fields.get(key), dict):
            record.fields[key] = {**inherited[key], **record.fields[key]}
    record.fields = {**inherited, **record.fields}
    stated = record.document.data.get(name, {})
    # What an entry is without has no date.
    since = inherited.get("since")
    if isinstance(since, dict) and "since" not in stated:
        none = {key.removesuffix("_zero") for key, value in stated.items() if value in ([], False, 0)}
        record.fields["since"] = {what: date for what, date in since.items() if what not in none}
    # What an entry states itself is no longer assumed.
    assumed = base.fields.get("assumed")
    if isinstance(assumed, dict) and "assumed" not in stated:
        record.fields["assumed"] = {key: why for key, why in assumed.items() if key.split(".")[0] not in stated}


def _join_prices(layer: CatalogLayer, kind: str, records: dict[str, FileRecord], problems: list[FileProblem]) -> None:
    """Add a folder's price lists to its entries; they replace weaker prices of the same basis."""
    if kind not in ("accelerators", "nodes"):
        return
    fresh: dict[str, list[Any]] = {}
    for row in read_prices(layer.folder, problems):
        if row.kind == kind:
            fresh.setdefault(row.id, []).append(row)
    for name, rows in fresh.items():
        record = records.get(name)
        if record is None:
            reason = f"no such {kind[:-1]}{hint(name, records, problems)}"
            problems.extend(FileProblem(row.file, row.line, name, reason) for row in rows)
            continue
        renewed = {row.fields.get("basis") for row in rows}
        old = record.fields.get("prices", [])
        if not isinstance(old, list):
            continue  # the entry itself will be refused
        kept = [n for n, price in enumerate(old) if not isinstance(price, dict) or price.get("basis") not in renewed]
        record.fields["prices"] = [old[n] for n in kept] + [row.fields for row in rows]
        record.price_lines = [record.price_lines[n] for n in kept] + [(row.file, row.line) for row in rows]
