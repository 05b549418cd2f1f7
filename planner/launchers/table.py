"""Options of a launcher written by its table (:mod:`planner.schema.launcher_table`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.schema.launcher_table import LauncherTable, spelt

Facts = Callable[[str], Any]
"""Axis or fact -> its value in a plan; None where the plan has none."""


def facts(known: Mapping[str, Any], shape: Mapping[str, Any]) -> Facts:
    """What is known by name; else a field of the model, named by its path: ``shape.moe.experts``."""

    def value(name: str) -> Any:
        if name in known or not name.startswith("shape."):
            return known.get(name)
        part: Any = shape
        for key in name.split(".")[1:]:
            part = part.get(key) if isinstance(part, Mapping) else None
        return part

    return value


def settings(table: LauncherTable, known: Facts) -> Iterator[tuple[str, Any]]:
    """``(option, value)`` of all that the facts say, in the table's order; a switch that is on is True."""
    for option in table.options.values():
        value = known(option.says)
        if option.values:
            value = option.values.get(spelt(value))
        if value is None or value is False or value == option.unless:
            continue
        yield option.name, value


def argv(table: LauncherTable, known: Facts) -> Iterator[str]:
    """The words of a command line: ``--name``, and its values behind it."""
    for name, value in settings(table, known):
        yield f"--{name}"
        if value is not True:
            yield from map(str, value if isinstance(value, list | tuple) else (value,))
