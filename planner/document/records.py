"""Records to JSON, and the schema that they follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from planner.schema import plan as schema


def _plain(record: Any) -> dict[str, Any]:
    """A record as JSON types."""
    dumped: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json")
    return dumped


def _build_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_adapter: Callable[[Any], Any] = cache(_build_adapter)
"""Pydantic's reader and writer of a record, built once: building takes longer than using."""


def dump(document: schema.Record) -> dict[str, Any]:
    """A document as JSON types, keys in the order of the records."""
    dumped: dict[str, Any] = _adapter(type(document)).dump_python(document, mode="json", by_alias=True)
    return _pruned(dumped)


ABSENT = (
    "expanded",
    "placement",
    "dimensions",
    "communication_choice",
    "waived",
    "norm_epsilon",
    "rotary",
    "mtp_layers",
    "network",
    "pools",
)
"""Keys that documents leave out where they have no value: of what few have."""


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return _pruned(value)
    return [_without_absent(item) for item in value] if isinstance(value, list) else value


def _pruned(table: dict[str, Any]) -> dict[str, Any]:
    return {k: _without_absent(v) for k, v in table.items() if v is not None or k not in ABSENT}


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of a document's kind: every key is there in what is written, and no other."""
    described: dict[str, Any] = _adapter(kind).json_schema(by_alias=True, mode="serialization")
    for record in [described, *described.get("$defs", {}).values()]:
        # What a document written before a field existed lacks has no value; all else must be there.
        record["required"] = [key for key, told in record["properties"].items() if told.get("default", "") is not None]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def as_json(document: schema.Record) -> str:
    """The document's JSON text."""
    return json.dumps(dump(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
