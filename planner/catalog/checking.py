"""Every problem of a catalog folder, each with file, line and key; an entry's fields made a checked record.

Pydantic finds what is wrong in the fields of an entry, whose types have the bounds (:mod:`planner.schema.hardware`);
here it is said in words. Whatever reads the catalog goes the same way, so that a wrong file is refused wherever it is
used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from planner.base import typed
from planner.base.errors import WrongQuestion
from planner.base.resources import data
from planner.catalog.files import FOLDERS, FileProblem, FileRecord, hint, misplaced
from planner.catalog.merge_layers import CatalogLayer, merged
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


def format_problems(problems: list[FileProblem], limit: int | None = _SHOWN) -> str:
    """Several problems as one message, the first `limit` of them in full."""
    lines = [str(problem) for problem in sorted(set(problems))]
    more = [f"and {len(lines) - limit} more (clusterwright catalog check DIR)"] if limit and len(lines) > limit else []
    return "\n".join(lines[:limit] + more)


def build(kind: type[T], name: str, record: FileRecord, problems: list[FileProblem]) -> T | None:
    """The checked record of one entry; None, with every problem of it noted, if something is wrong."""
    if record.broken:
        return None
    if impossible := [*_beyond_types(record.fields), *_assumed_of_nothing(kind, record.fields, problems)]:
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
    """Notes references of an entry to ids not in `known` (kind -> ids)."""
    for key, target in REFERENCES.get(kind, {}).items():
        value = record.fields.get(key)
        if isinstance(value, str) and value not in known[target]:
            reason = f'= "{value}": no such {target[:-1]}{hint(value, known[target], problems)}'
            problems.append(_problem(name, record, (key,), reason))


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


def _assumed_of_nothing(
    kind: type[Entry], given: Mapping[str, Any], problems: Sequence[FileProblem]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Keys of `assumed` that name no field."""
    names = [field.name for field in fields(kind)]
    for key in _table(given.get("assumed")):
        if key.split(".")[0] not in names:
            yield ("assumed", key), f"names no field{hint(key, names, problems)}"


def _message(finding: typed.Finding) -> str:
    return f"{finding.assigned}; every such entry has it" if finding.reason == "missing" else finding.assigned


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
