"""Fitted efficiencies as catalog files: entries with where they come from, over whatever they were fitted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from planner import model_files
from planner.accuracy.frame import Efficiencies

FOLDERS = {"accelerators": "accelerator_efficiencies", "runtimes": "runtime_efficiencies"}
_DIGITS = 5
"""Significant digits of a fitted figure: more would claim more than a fit knows."""


def write_overlay(folder: Path, found: Efficiencies, source: str, date: str, name: str = "fitted.toml") -> list[Path]:
    """Writes ``accelerator_efficiencies/NAME`` and ``runtime_efficiencies/NAME`` below a folder,
    each if there is something to write.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    written = []
    for kind, sub in FOLDERS.items():
        entries: Mapping[str, Any] = getattr(found, kind)
        if not entries:
            continue
        path = folder / sub / name
        model_files.make_folder(path.parent)
        header = f"# Fitted by `clusterwright calibrate`: {source}, {date}. Do not edit; fit again.\n"
        told = [model_files.dump(_sourced(record, source, date)) for record in entries.values()]
        model_files.write(path, "\n".join([header, *told]), replace=True)
        written.append(path)
    return written


def _sourced(record: Any, source: str, date: str) -> Any:
    """The entry with its figures rounded, and where they come from."""
    rounded = {item.name: _rounded(getattr(record, item.name)) for item in fields(record)}
    return replace(record, **rounded | {"source": f"{source}; prior: {record.source}", "date": date})


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
