"""Fitted efficiencies as catalog files: entries with where they come from, over whatever they were fitted from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.accuracy.frame import Efficiencies
from planner.document import write

FOLDERS = {"accelerators": "accelerator_efficiencies", "runtimes": "runtime_efficiencies"}


def write_overlay(folder: Path, found: Efficiencies, source: str, date: str, name: str = "fitted.toml") -> list[Path]:
    """Writes ``accelerator_efficiencies/NAME`` and ``runtime_efficiencies/NAME`` below a folder.

    Raises:
        WrongQuestion: the folder cannot be written to.
    """
    written = []
    for kind, sub in FOLDERS.items():
        path = folder / sub / name
        path.parent.mkdir(parents=True, exist_ok=True)
        entries: Mapping[str, Any] = getattr(found, kind)
        header = f"# Fitted by `clusterwright calibrate`: {source}, {date}. Do not edit; fit again.\n"
        write(header + "".join(_entry(key, record, source, date) for key, record in entries.items()), path)
        written.append(path)
    return written


def _entry(key: str, record: Any, source: str, date: str) -> str:
    lines = [f"\n[{_quoted(key)}]"]
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name in ("id", "assumed", "notes") or value == field.default:
            continue
        if field.name == "source":
            value = f"{source}; prior: {record.source}"
        lines.append(f"{field.name} = {_toml(date if field.name == 'date' else value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value, always=True)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + " }"
    return f"{float(value):.5g}"


def _quoted(text: str, *, always: bool = False) -> str:
    if not always and text.replace("-", "").replace("_", "").isalnum():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"'
