"""Profiles as others write them: rows of a documented CSV, or a JSON file an accelerator as Sailor's.

The JSON is ``{micro-batch: {tensor-parallel degree: {layer: [forward_s, backward_s, update_s]}}}``, layer 0 the
embedding and the last one the head; it names neither model nor accelerator.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion, malformed, nearest
from planner.models import files

REQUIRED = ("model", "accelerator", "tp", "micro_batch", "layer_first", "layer_last", "forward_s", "backward_s")
OPTIONAL = ("update_s", "precision", "sequence", "sequence_parallel", "tp_communication", "source")
MOST_LAYERS = 10_000
MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Times of one layer, or of each of a run of identical ones."""

    where: str
    """File and line, or file and keys."""
    model: str
    accelerator: str
    precision: str
    """Empty where the file does not say."""
    sequence: str
    """Empty where the file does not say."""
    sequence_parallel: bool
    communication: bool
    tp: int
    micro: int
    first: int
    last: int
    forward: float
    backward: float
    update: float | None


def read(path: Path) -> list[ProfileRow]:
    """Every row of a profile file, by its contents CSV or JSON; those of a JSON name no model.

    Raises:
        WrongQuestion: unreadable, neither of the two, a column is missing or a value is not what it should be.
    """
    text = files.read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return list(_from_json(path, text))
    return list(_from_csv(path, text))


def _from_csv(path: Path, text: str) -> Iterator[ProfileRow]:
    reader = csv.DictReader(io.StringIO(text))
    columns = tuple(reader.fieldnames or ())
    if missing := [name for name in REQUIRED if name not in columns]:
        strange = [name for name in columns if name not in (*REQUIRED, *OPTIONAL)]
        near = [
            f"{name}: did you mean {nearest_names[0]}?" for name in strange if (nearest_names := nearest(name, missing))
        ]
        hint = f" ({'; '.join(near)})" if near else ""
        raise WrongQuestion(f"{path}:1: no profile: no column {', '.join(missing)}{hint}; see docs/profiles.md")
    if unknown := [name for name in columns if name not in (*REQUIRED, *OPTIONAL)]:
        raise WrongQuestion(
            f"{path}:1: unknown column {unknown[0]!r:.40}; columns are {', '.join((*REQUIRED, *OPTIONAL))}"
        )
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise WrongQuestion(f"{where}: more or fewer cells than the header")
            yield _csv_row(where, row)
    except csv.Error as error:
        raise WrongQuestion(f"{path}:{reader.line_num}: {error}") from None


def _csv_row(where: str, row: Mapping[str, str]) -> ProfileRow:
    return ProfileRow(
        where,
        row["model"].strip(),
        row["accelerator"].strip(),
        (row.get("precision") or "").strip(),
        (row.get("sequence") or "").strip(),
        _flag(where, "sequence_parallel", row.get("sequence_parallel") or "0"),
        _flag(where, "tp_communication", row.get("tp_communication") or "1"),
        _whole(where, "tp", row["tp"], 1),
        _whole(where, "micro_batch", row["micro_batch"], 1),
        _whole(where, "layer_first", row["layer_first"], 0),
        _whole(where, "layer_last", row["layer_last"], 0),
        _seconds(where, "forward_s", row["forward_s"]),
        _seconds(where, "backward_s", row["backward_s"]),
        _seconds(where, "update_s", row["update_s"]) if row.get("update_s") else None,
    )


def _from_json(path: Path, text: str) -> Iterator[ProfileRow]:
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _once(path, pairs))
    except json.JSONDecodeError as error:
        raise WrongQuestion(f"{path}:{error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise WrongQuestion(f"{path}: {malformed(error)}") from None
    shape = "{micro-batch: {tp: {layer: [forward_s, backward_s, update_s]}}}"
    for micro, by_tp in _pairs(path, data, "", shape):
        for tp, layers in _pairs(path, by_tp, micro, shape):
            for layer, times in _pairs(path, layers, f"{micro}.{tp}", shape):
                where = f"{path}: {micro}.{tp}.{layer}"[:200]
                if not isinstance(times, list) or len(times) not in (2, 3):
                    raise WrongQuestion(f"{where}: no profile: expected {shape}")
                number = _whole(where, "layer", layer, 0)
                forward, backward = (_seconds(where, "time", seconds) for seconds in times[:2])
                update = _seconds(where, "update", times[2]) if len(times) == 3 else None
                degrees = (_whole(where, "tp", tp, 1), _whole(where, "micro-batch", micro, 1))
                yield ProfileRow(
                    where, "", "", "", "", False, True, *degrees, number, number, forward, backward, update
                )


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise WrongQuestion(f"{path}: {twice!r:.40} appears twice in one object")
    return table


def _pairs(path: Path, value: object, where: str, shape: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict) or not value:
        raise WrongQuestion(f"{path}{f': {where}' if where else ''}: no profile: expected {shape}")
    yield from value.items()


def _whole(where: str, name: str, text: object, least: int) -> int:
    try:
        value = int(str(text))
    except ValueError:
        raise WrongQuestion(f"{where}: {name} = {str(text)!r:.40}: must be a whole number") from None
    most = MOST_LAYERS if name.startswith("layer") else MOST_ROWS
    if not least <= value <= most:
        raise WrongQuestion(f"{where}: {name} = {value}: must be from {least} to {most:,}")
    return value


def _seconds(where: str, name: str, text: object) -> float:
    try:
        value = float(text) if isinstance(text, str | int | float) and not isinstance(text, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise WrongQuestion(f"{where}: {name} = {str(text)!r:.40}: must be a number of seconds")
    if value < 0:
        raise WrongQuestion(f"{where}: {name} = {value:g}: must be at least 0")
    return value


def _flag(where: str, name: str, text: str) -> bool:
    if text.strip() not in ("0", "1"):
        raise WrongQuestion(f"{where}: {name} = {text!r:.40}: must be 0 or 1")
    return text.strip() == "1"
