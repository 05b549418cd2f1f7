"""A record with other values at dotted paths: what no program would write, for checks that are to refuse it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def altered(record: Any, changes: dict[str, Any]) -> Any:
    """The record with other values at dotted paths, whatever their types.

    Args:
        record: A dataclass, and in it dataclasses, dicts and tuples.
        changes: Path (``cluster.pools.0.count``) -> value, or a function of the value that was there.
    """
    for path, value in changes.items():
        record = _with(record, path.split("."), value)
    return record


def _with(record: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value(record) if callable(value) else value
    key, rest = path[0], path[1:]
    if isinstance(record, dict):
        return {**record, key: _with(record.get(key), rest, value)}
    if isinstance(record, tuple):
        assert int(key) < len(record), f"{key} of {len(record)}"
        return tuple(_with(each, rest, value) if str(index) == key else each for index, each in enumerate(record))
    return replace(record, **{key: _with(getattr(record, key), rest, value)})
