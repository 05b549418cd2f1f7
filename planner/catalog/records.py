"""From the fields of a file to checked records: pydantic finds every problem, this says it with file, line and key."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from planner.base.errors import nearest
from planner.catalog.files import FileProblem, FileRecord
from planner.schema.efficiency import AcceleratorEfficiency, CollectiveEfficiency, FabricEfficiency, RuntimeEfficiency
from planner.schema.hardware import Accelerator, Entry, Fabric, Link, Node, Price, Region, Runtime

if TYPE_CHECKING:
    from pydantic import TypeAdapter

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
_PARTS: dict[str, type] = {"scaleup": Link, "prices": Price}


def build(kind: str, name: str, record: FileRecord, problems: list[FileProblem]) -> Entry | None:
    """The checked record of one entry; None, with every problem of it noted, if something is wrong."""
    from pydantic import ValidationError

    if record.broken:
        return None
    found = [_problem(name, record, key, reason) for key, reason in _beyond_types(record.fields)]
    if not found:
        try:
            entry: Entry = _adapter(kind).validate_python({**record.fields, "id": name})
            return entry
        except ValidationError as error:
            for each in error.errors(include_url=False):
                found.append(_problem(name, record, *_explained(kind, each)))
    problems.extend(found)
    return None


def dangling(
    kind: str, name: str, record: FileRecord, known: Mapping[str, Mapping[str, object]]
) -> Iterator[FileProblem]:
    """References of an entry to ids that are not in `known` (kind -> ids), and `assumed` keys that name no field."""
    for key, target in REFERENCES.get(kind, {}).items():
        value = record.fields.get(key)
        if isinstance(value, str) and value not in known[target]:
            reason = f'= "{value}": no such {target[:-1]}{did_you_mean(value, known[target])}'
            yield _problem(name, record, (key,), reason)
    names = [field.name for field in fields(TYPES[kind])]
    for key in _table(record.fields.get("assumed")):
        if key.split(".")[0] not in names:
            reason = f"names no field{did_you_mean(key, names)}"
            yield _problem(name, record, ("assumed", key), reason)


def did_you_mean(name: str, choices: Sequence[str] | Mapping[str, object]) -> str:
    """``; did you mean a, b?`` or nothing."""
    near = nearest(name, choices)
    return f"; did you mean {', '.join(near)}?" if near else ""


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    # Looking for pydantic's plugins reads the metadata of every installed package: 20 ms for nothing.
    with _environment("PYDANTIC_DISABLE_PLUGINS", "__all__"):
        return TypeAdapter(TYPES[kind])


@contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


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


def _explained(kind: str, error: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    """Key and reason of one of pydantic's errors, in the words of a catalog file."""
    where = tuple(error["loc"])
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        owner = next((_PARTS[part] for part in reversed(where[:-1]) if part in _PARTS), TYPES[kind])
        names = [field.name for field in fields(owner) if field.name != "id"]
        return where, f"unknown key{did_you_mean(str(where[-1]), names)}"
    if error["type"] in ("missing", "missing_argument"):
        return where, "missing; every such entry has it"
    return where, f"= {_shown(error['input'])}: {_reason(error)}"


def _reason(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    bounds = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
    if error["type"] in bounds:
        limit = next(iter(context.values()))
        return f"must be {bounds[error['type']]} {limit:g}"
    if error["type"] == "literal_error":
        choices = [part.strip("' ") for part in str(context["expected"]).replace(" or ", ", ").split(",")]
        return f"must be one of {', '.join(choices)}{did_you_mean(str(error['input']), choices)}"
    if error["type"] == "value_error":
        # units.py begins with the text itself, which already stands before the colon.
        return str(context["error"]).removeprefix(f"{error['input']!r}").lstrip(": ")
    return str(error["msg"]).replace("Input should be", "must be")


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
