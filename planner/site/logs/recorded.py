"""Step times that a run recorded for TensorBoard or W&B, read with their own readers where those are installed.

W&B keeps ``run-ID.wandb``. Its frame is that of LevelDB's log (google/leveldb doc/log_format.md): blocks, and records
in one or several pieces, each behind a checksum, a length and a kind. W&B (core/internal/transactionlog) counts the
checksum as zlib does.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.site.logs import arguments
from planner.site.logs.formats import Kind
from planner.site.logs.records import LoggedRun, LoggedStep, Per

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


def _read_wandb(path: Path) -> WandbRun:
    """A run's file, as far as it goes."""
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
    run = WandbRun()
    for at, data in _in_time(path, records(path)):
        try:
            _noted(run, record.FromString(data) if data is not None else None)
        except Exception:  # protobuf's own; a record that is none says nothing, as one with a wrong checksum
            run.damaged_at = at
            break
    return run


def records(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Place and bytes of each record; None at the first that is damaged or cut short, which ends it."""
    whole = bytearray()
    begun = 0
    with path.open("rb") as file:
        at = file.seek(_OPENING)
        while head := _head(file.read(min(_HEAD.size, BLOCK - at % BLOCK))):
            check, length, kind = head
            data = file.read(length)
            if kind in (WHOLE, BEGINS):
                whole = bytearray()
                begun = at
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


def _noted(run: WandbRun, record: Any) -> None:
    if record is None:
        raise ValueError
    for config in (record.run.config, record.config):
        run.settings |= {"/".join(item.nested_key) or item.key: _value(item) for item in config.update}
    run.device = record.environment.gpu_type or run.device
    values = {"/".join(item.nested_key) or item.key: _value(item) for item in record.history.item}
    step = record.history.step.num or values.get("_step")
    for tag, value in values.items():
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value):
            run.scalars.append((tag, step, float(value)))


def _value(item: Any) -> Any:
    """What the JSON of an item says; None where that is none."""
    try:
        return json.loads(item.value_json)
    except (ValueError, RecursionError):
        return None


EVENTS = ".tfevents."
"""What the name of every event file holds (tensorboard/summary/writer/event_file_writer.py)."""
WANDB = ".wandb"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A scalar that says how long steps took, and those of the batch and of memory that go with it."""

    tag: str
    format: str
    runtime: str
    per: Per
    rate: bool = False
    """Whether it counts per second."""
    unit: float = 1.0
    """Seconds of one, where it is no rate."""
    batch: str = ""
    memory: str = ""
    """Peak in GiB."""
    memory_kind: Kind = "reserved"


RECORDED = (
    # NVIDIA/Megatron-LM megatron/training/training.py, training_log (--log-timers-to-tensorboard).
    Recorded("iteration-time", "Megatron-LM", "megatron-core", "step", batch="batch-size"),
    # NVIDIA/NeMo nemo/lightning/pytorch/callbacks (Lightning's logger takes the same names as its progress printer).
    Recorded("train_step_timing in s", "NeMo", "nemo", "step", batch="global_batch_size"),
    # pytorch/torchtitan torchtitan/components/metrics.py, MetricsProcessor.log.
    Recorded("throughput(tps)", "torchtitan", "fsdp2", "token", rate=True, memory="memory/max_reserved(GiB)"),
    # AI-Hypercomputer/maxtext MaxText/metric_logger.py, record_train_metrics.
    Recorded("perf/step_time_seconds", "MaxText", "maxtext", "step"),
    # huggingface/nanotron src/nanotron/trainer.py, train_step_logs (to W&B).
    Recorded("elapsed_time_per_iteration_ms", "nanotron", "nanotron", "step", unit=1e-3),
    # mosaicml/composer composer/callbacks/speed_monitor.py.
    Recorded("throughput/samples_per_sec", "Composer", "fsdp", "sequence", rate=True),
)


def is_recorded(path: Path) -> bool:
    """Whether a file is named as a recorder names its own."""
    return EVENTS in path.name or path.suffix == WANDB


def read(path: Path) -> list[LoggedRun]:
    """The run of a file of records; nothing where no scalar of it is known.

    Raises:
        WrongQuestion: its reader is not installed, or cannot read it.
    """
    if not path.is_file():
        raise WrongQuestion(f"{path}: no such file")
    if path.suffix != WANDB:
        return _runs("TensorBoard", _in_time(path, _scalars(path)))
    kept = _read_wandb(path)
    behind = () if kept.damaged_at is None else (f"what follows byte {kept.damaged_at:,} is damaged or cut short",)
    return [
        replace(run, stated=arguments.of_settings(kept.settings), device=kept.device, conflicts=behind)
        for run in _runs("W&B", kept.scalars)
    ]


T = TypeVar("T")


def _in_time(path: Path, recorded: Iterable[T]) -> Iterator[T]:
    """What a recorder wrote, as long as the file and the time that it takes keep the bounds of every log."""
    if (size := path.stat().st_size) > reading.BYTES_READ:
        raise WrongQuestion(f"{path}: {size:,} bytes; records of a run have at most {reading.BYTES_READ:,}")
    over = time.process_time() + reading.SECONDS_READ
    for record in recorded:
        if time.process_time() > over:
            raise WrongQuestion(
                f"{path}: reading it takes more than {reading.SECONDS_READ:.0f} s; name the console's log"
            )
        yield record


def _runs(recorder: str, scalars: Iterable[tuple[str, int, float]]) -> list[LoggedRun]:
    names = (name for source in RECORDED for name in (source.tag, source.batch, source.memory) if name)
    values: dict[str, dict[int, float]] = {name: {} for name in names}
    for tag, step, value in scalars:
        if tag in values and math.isfinite(value):
            values[tag][step] = value
    return [_run(source, recorder, values) for source in RECORDED if values[source.tag]][:1]


def _run(kind: Recorded, recorder: str, values: dict[str, dict[int, float]]) -> LoggedRun:
    batches = values.get(kind.batch, {})
    peaks = values.get(kind.memory, {}).values()
    steps = [
        LoggedStep(
            step,
            1.0 / value if kind.rate else value * kind.unit,
            kind.per,
            int(batches[step]) if step in batches else None,
        )
        for step, value in sorted(values[kind.tag].items())
        if value > 0.0
    ]
    return LoggedRun(
        format=f"{kind.format}, as recorded for {recorder}",
        runtime=kind.runtime,
        steps=tuple(steps),
        memory_bytes=max(peaks, default=0.0) * 2.0**30 or None,
        memory_kind=kind.memory_kind if peaks else "",
    )


def _scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of everything that a file records."""
    try:
        reader: Any = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        raise WrongQuestion(
            f"{path}: TensorBoard's records, and no reader of them: pip install tensorboard, or name the console's log"
        ) from None
    try:
        for event in reader.EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = (
                    value.simple_value if value.HasField("simple_value") else next(iter(value.tensor.float_val), None)
                )
                if number is not None:
                    yield value.tag, int(event.step), float(number)
    except Exception as error:
        raise WrongQuestion(f"{path}: not read by TensorBoard's reader: {error}") from None
