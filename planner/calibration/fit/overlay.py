"""Fitted efficiencies as catalog files: entries with where they come from, over whatever they were fitted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.figures.efficiency import Efficiencies
from planner.models import files

FOLDERS = {"accelerators": "accelerator_efficiencies", "runtimes": "runtime_efficiencies"}
_DIGITS = 5
"""Significant digits of a fitted figure: more would claim more than a fit knows."""


def write_overlay(folder: Path, fitted: Efficiencies, source: str, date: str, name: str = "fitted.toml") -> list[Path]:
    """Writes ``accelerator_efficiencies/NAME`` and ``runtime_efficiencies/NAME`` below a folder,
    each if there is something to write.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    written = []
    for kind, sub in FOLDERS.items():
        entries: Mapping[str, Any] = getattr(fitted, kind)
        if not entries:
            continue
        path = folder / sub / name
        writing.make_folder(path.parent)
        header = f"# Fitted by `clusterwright calibrate`: {source}, {date}. Do not edit; fit again.\n"
        tables = [files.dump(_sourced(record, source, date)) for record in entries.values()]
        writing.write(path, "\n".join([header, *tables]), replace=True)
        written.append(path)
    return written


def check_free(folder: Path, name: str) -> None:
    """Makes sure that an overlay file of that name would neither repeat entries of a folder nor be hidden by them.

    Raises:
        WrongQuestion: the folder holds fitted entries in other files.
    """
    others = [path for sub in FOLDERS.values() for path in sorted((folder / sub).glob("*.toml")) if path.name != name]
    if others:
        raise WrongQuestion(
            f"{others[0]}: holds another fit, which {name} would repeat or be hidden by; name another folder with -o"
        )


def _sourced(record: Any, source: str, date: str) -> Any:
    """The entry with its figures rounded, and where they come from."""
    figures = {item.name: rounded(getattr(record, item.name)) for item in fields(record)}
    return replace(record, **figures | {"source": f"{source}; prior: {record.source}", "date": date})


def rounded(value: Any) -> Any:
    """A figure, or a table of them, to the digits that a fit knows; anything else as it is."""
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
