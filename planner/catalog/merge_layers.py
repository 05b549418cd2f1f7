"""Catalog layers merged into entries, and their problems: all of a folder, each with file, line and key.

A later layer replaces an earlier one, ``extends`` is filled in, prices are joined. Pydantic then finds what is wrong in
the fields of an entry, whose types have the bounds (:mod:`planner.schema.hardware`); here it is said in words.
Whatever reads the catalog goes the same way, so that a wrong file is refused wherever it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from planner.base import typed
from planner.base.errors import WrongQuestion, did_you_mean
from planner.base.resources import data
from planner.catalog.files import FOLDERS, FileProblem, FileRecord, misplaced, read_entries, read_prices
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Entry, Fabric, Node, Region, Runtime

TYPES: dict[str, type[Entry]] = {
    "accelerators": Accelerator,
    "nodes": Node,
    "fabrics": Fabric,
    "regions": Region,
    "runtimes": Runtime,
    "accelerator_efficiencies": AcceleratorEfficiency,
    "runtime_efficiencies": RuntimeEfficiency,
    "collective_efficiencies": CollectiveEfficiency,
    "fabric_efficiencies": FabricEfficiency,
}
"""Folder of the catalog -> the record that its entries become."""
REFERENCES = {"nodes": {"accelerator": "accelerators", "fabric": "fabrics", "rented_as": "nodes"}}
"""Fields that hold the id of another entry."""
T = TypeVar("T", bound=Entry)
BUILT_IN = "built-in"
_SHOWN = 10
"""Problems that one error message lists; `catalog check` lists all."""
MERGED = ("defaults",)
"""Tables that an entry shares with the one that it extends, key by key; its own win."""
HINTED = 100
"""Problems told with the nearest names: a name is compared with all, and a folder may hold thousands of both."""


@dataclass(frozen=True)
class CatalogLayer:
    """One catalog folder, and what to call it."""

    origin: str
    folder: Path


def problems(folder: Path) -> list[FileProblem]:
    """Every problem of a catalog folder at once, in order of file and line.

    Raises:
        WrongQuestion: there is no such folder.
    """
    if not folder.is_dir():
        raise WrongQuestion(f"{folder}: no such catalog folder")
    base = CatalogLayer(BUILT_IN, data("hardware_catalog"))
    layer = CatalogLayer("checked", folder)
    layers = (layer,) if folder.resolve() == base.folder.resolve() else (base, layer)
    misplaced_files = misplaced(folder)
    records = {kind: merged(layers, kind, misplaced_files) for kind in FOLDERS}
    for kind in FOLDERS:
        for name, record in records[kind].items():
            build(TYPES[kind], name, record, misplaced_files)
            dangling(kind, name, record, records, misplaced_files)
    # An entry of the base may carry a price of this folder, and the other way round: the file decides.
    return sorted(
        {problem for problem in misplaced_files if folder == Path(problem.file) or folder in Path(problem.file).parents}
    )


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


def format_problems(problems: list[FileProblem], limit: int | None = _SHOWN) -> str:
    """Several problems as one message, the first `limit` of them in full."""
    lines = [str(problem) for problem in sorted(set(problems))]
    more = [f"and {len(lines) - limit} more (clusterwright catalog check DIR)"] if limit and len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


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


def build(kind: type[T], name: str, record: FileRecord, problems: list[FileProblem]) -> T | None:
    """The checked record of one entry; None, with every problem of it noted, if something is wrong."""
    if record.broken:
        return None
    if impossible := list(_beyond_types(record.fields)):
        problems.extend(_problem(name, record, key, reason) for key, reason in impossible)
        return None
    try:
        return typed.record(kind, {**record.fields, "id": name})
    except typed.Misfit as misfit:
        problems.extend(_problem(name, record, finding.where, _message(finding)) for finding in misfit.found)
    return None


def dangling(
    kind: str,
    name: str,
    record: FileRecord,
    known: Mapping[str, Mapping[str, object]],
    problems: list[FileProblem],
) -> None:
    """Notes references of an entry to ids not in `known` (kind -> ids), and `assumed` keys that name no field."""
    for key, target in REFERENCES.get(kind, {}).items():
        value = record.fields.get(key)
        if isinstance(value, str) and value not in known[target]:
            reason = f'= "{value}": no such {target[:-1]}{hint(value, known[target], problems)}'
            problems.append(_problem(name, record, (key,), reason))
    names = [field.name for field in fields(TYPES[kind])]
    for key in _table(record.fields.get("assumed")):
        if key.split(".")[0] not in names:
            problems.append(_problem(name, record, ("assumed", key), f"names no field{hint(key, names, problems)}"))


def hint(name: str, choices: Iterable[str], problems: Sequence[FileProblem]) -> str:
    """The names nearest to one that there is not; nothing if there are :data:`HINTED` problems already."""
    return did_you_mean(name, list(choices)) if len(problems) < HINTED else ""


def _problem(name: str, record: FileRecord, key: Sequence[str | int], reason: str) -> FileProblem:
    file, line = record.place(key)
    dotted = ".".join(str(part) for part in (name, *key))
    # "key = value: reason" reads as one assignment; anything else follows a colon.
    if reason.startswith("= "):
        value, _, rest = reason.partition(": ")
        return FileProblem(file, line, f"{dotted} {value}", rest)
    return FileProblem(file, line, dotted, reason)


def _beyond_types(given: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What no field type refuses: an `id` beside the table's own name, true for a number, numbers that are none."""
    if "id" in given:
        yield ("id",), "the table's header is the id; remove this key"
    for key, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield (key,), f"= {value}: must be a finite number"
        if isinstance(value, bool) and key in ("year", "accelerators", "nics", "leaf_nodes", "compute_units"):
            yield (key,), f"= {str(value).lower()}: must be a whole number"


def _message(finding: typed.Finding) -> str:
    return f"{finding.assigned}; every such entry has it" if finding.reason == "missing" else finding.assigned


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
