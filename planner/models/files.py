"""Model and optimizer files: TOML tables keyed by id, validated into records with every problem named at its line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from planner.base import reading, typed
from planner.base.errors import WrongQuestion
from planner.schema.hardware import Entry

SIZE_LIMIT = 10_000_000
"""Bytes; a larger file is no model description."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HEADER = re.compile(r'^\[(?:"([^"\n]+)"|([A-Za-z0-9_-]+))\][ \t]*(?:#.*)?$', re.MULTILINE)

Record = TypeVar("Record", bound=Entry)


def read_text(path: Path) -> str:
    """The text of a file that a person named.

    Raises:
        WrongQuestion: no such file, no regular one, not readable, larger than 10 MB, or not UTF-8.
    """
    return reading.text(path, "a model file", SIZE_LIMIT)


def tables(path: Path) -> dict[str, Any]:
    """The file's tables by id.

    Raises:
        WrongQuestion: unreadable, or malformed TOML (with its line).
    """
    return _parsed(path, read_text(path))


@lru_cache(maxsize=64)
def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return reading.toml(text)
    except reading.MalformedToml as error:
        line = f":{error.line}" if error.line else ""
        raise WrongQuestion(f"{path}{line}: malformed TOML: {error}") from None


def headers(path: Path) -> list[str]:
    """Ids of a file of the built-in library, read off its table headers: much faster than parsing it."""
    return [match[1] or match[2] for match in _HEADER.finditer(path.read_text(encoding="utf-8"))]


def record(kind: type[Record], path: Path, entry: str) -> Record:
    """Validate one table of a file into a record.

    Raises:
        WrongQuestion: every problem of the entry, one a line: ``file:line: id.field = value: what it must be``.
    """
    table = tables(path).get(entry)
    if not isinstance(table, dict):
        raise WrongQuestion(f"{path}: {entry}: expected a table [{entry}] of fields")
    return validated(kind, table, entry, path)


def validated(kind: type[Record], table: Mapping[str, Any], entry: str, path: Path) -> Record:
    """As :func:`record`, from a table at hand.

    Raises:
        WrongQuestion: as there; an `id` beside the header, or a name that is none.
    """
    if ID.fullmatch(entry) is None:
        raise WrongQuestion(f"{path}: {entry!r} is no id: letters, digits, '.', '_' and '-' only")
    if "id" in table:
        raise WrongQuestion(f"{path}{_line(path, entry, 'id')}: {entry}.id: the header is the id; remove this key")
    try:
        return typed.record(kind, {**table, "id": entry})
    except typed.Misfit as misfit:
        raise WrongQuestion("\n".join(_problem(finding, entry, path) for finding in misfit.found)) from None


def _problem(finding: typed.Finding, entry: str, path: Path) -> str:
    keys = [str(key) for key in finding.where]
    where = f"{path}{_line(path, entry, *keys)}: {'.'.join([entry, *keys])}"
    return f"{where}{' ' if finding.value else ': '}{finding.assigned}"


def _line(path: Path, entry: str, *keys: str) -> str:
    """``:LINE`` of the innermost of the keys that stands in the entry's table, else of its header, else nothing."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    start = re.compile(rf"\[\"?{re.escape(entry)}\"?[\].]")
    line_of: dict[int, int] = {}
    inside = False
    for number, line in enumerate(lines, 1):
        if line.startswith("["):
            inside = start.match(line) is not None
        for depth, key in enumerate(("", *keys) if inside else ()):
            named = rf"\s*\"?{re.escape(key)}\"?\s*[.=]|.*[{{,]\s*{re.escape(key)}\s*="
            if not key or re.match(named, line):
                line_of.setdefault(depth, number)
    return f":{line_of[max(line_of)]}" if line_of else ""


# ---- writing ---------------------------------------------------------------------------------------------------------


def dump(entry: Entry) -> str:
    """The entry as TOML that :func:`record` reads back to an equal one; fields at their defaults are left out."""
    lines = [f"[{_key(entry.id)}]"]
    for item in fields(entry):
        value = getattr(entry, item.name)
        if item.name != "id" and value is not None and value not in ({}, item.default):
            lines.append(f"{item.name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in fields(value) if _is_set(value, item)}
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # JSON's spelling of texts, numbers and booleans is TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_set(owner: object, item: Field[Any]) -> bool:
    return bool(getattr(owner, item.name) != item.default)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
