"""The file that a W&B run keeps (``run-ID.wandb``), read with W&B's own records where that is installed.

Its frame is that of LevelDB's log (google/leveldb doc/log_format.md): blocks, and records in one or several pieces,
each behind a checksum, a length and a kind. W&B (core/internal/transactionlog) counts the checksum as zlib does.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion

MAGIC = b":W&B"
BLOCK = 32_768
_OPENING = 7
"""Bytes of the file's own header: what it is, a number, a version."""
_HEAD = struct.Struct("<IHB")
WHOLE, BEGINS, GOES_ON, ENDS = 1, 2, 3, 4
LONGEST = 1 << 26
"""Bytes of one record: what is longer is no step."""


@dataclass(slots=True)
class WandbRun:
    """What is read of a run: scalars as (tag, step, value), settings, its accelerator."""

    scalars: list[tuple[str, int, float]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    damaged_at: int | None = None
    """The byte behind which nothing could be read."""


def read(path: Path) -> WandbRun:
    """A run's file, as far as it goes.

    Raises:
        WrongQuestion: it is none, cannot be read, or W&B is not installed.
    """
    try:
        with path.open("rb") as file:
            first = file.read(len(MAGIC))
    except OSError as error:
        raise WrongQuestion(f"{path}: {error.strerror or error}") from None
    if first != MAGIC:
        raise WrongQuestion(f"{path}: not W&B's records: they begin with {MAGIC.decode()}")
    try:
        record: Any = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    except ImportError:
        raise WrongQuestion(
            f"{path}: W&B's records, and no reader of them: pip install wandb, or name the console that it keeps: "
            "files/output.log next to it"
        ) from None
    found = WandbRun()
    for at, data in records(path):
        try:
            _noted(found, record.FromString(data) if data is not None else None)
        except Exception:  # protobuf's own; a record that is none says nothing, as one with a wrong checksum
            found.damaged_at = at
            break
    return found


def records(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Place and bytes of each record; None at the first that is damaged or cut short, which ends it."""
    whole, begun = bytearray(), 0
    with path.open("rb") as file:
        at = file.seek(_OPENING)
        while head := _head(file.read(min(_HEAD.size, BLOCK - at % BLOCK))):
            check, length, kind = head
            data = file.read(length)
            if kind in (WHOLE, BEGINS):
                whole, begun = bytearray(), at
            whole += data
            if len(data) < length or zlib.crc32(data, zlib.crc32(bytes([kind]))) != check or len(whole) > LONGEST:
                yield begun, None
                return
            if kind in (WHOLE, ENDS):
                yield begun, bytes(whole)
            at = file.tell()
            if BLOCK - at % BLOCK < _HEAD.size:
                at = file.seek(at + BLOCK - at % BLOCK)  # no head fits: the block's end is left empty


def _head(data: bytes) -> tuple[int, int, int] | None:
    """Checksum, length and kind of a piece; None at the end."""
    return _HEAD.unpack(data) if len(data) == _HEAD.size else None


def _noted(found: WandbRun, record: Any) -> None:
    if record is None:
        raise ValueError
    for config in (record.run.config, record.config):
        found.settings |= {"/".join(each.nested_key) or each.key: _value(each) for each in config.update}
    found.device = record.environment.gpu_type or found.device
    values = {"/".join(each.nested_key) or each.key: _value(each) for each in record.history.item}
    step = record.history.step.num or values.get("_step")
    for tag, value in values.items():
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value):
            found.scalars.append((tag, step, float(value)))


def _value(item: Any) -> Any:
    """What the JSON of an item says; None where that is none."""
    try:
        return json.loads(item.value_json)
    except (ValueError, RecursionError):
        return None
