"""Plans as documents: their sections, and the JSON files that hold them."""

from planner.document.files import chosen, load, load_any, load_document, offered, parse
from planner.document.sections import (
    NO_PART_OF_IT,
    constraint,
    fabric_section,
    front_point,
    memory_section,
    plan,
    pool_section,
    runtime_section,
    workload_section,
)
from planner.schema.pool_names import pool_names
from planner.schema.record import as_json, dump, json_schema

__all__ = [
    "NO_PART_OF_IT",
    "as_json",
    "chosen",
    "constraint",
    "dump",
    "fabric_section",
    "front_point",
    "json_schema",
    "load",
    "load_any",
    "load_document",
    "memory_section",
    "offered",
    "parse",
    "plan",
    "pool_names",
    "pool_section",
    "runtime_section",
    "workload_section",
]
