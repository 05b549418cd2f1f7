"""Step times that a run recorded for TensorBoard or W&B, read with their own readers where those are installed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.site.logs import arguments, wandb_file
from planner.site.logs.formats import Kind
from planner.site.logs.records import LoggedRun, LoggedStep, Per

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
        return _runs("TensorBoard", _scalars(path))
    kept = wandb_file.read(path)
    behind = () if kept.damaged_at is None else (f"what follows byte {kept.damaged_at:,} is damaged or cut short",)
    return [
        replace(run, stated=arguments.of_settings(kept.settings), device=kept.device, conflicts=behind)
        for run in _runs("W&B", kept.scalars)
    ]


def _runs(recorder: str, scalars: Iterable[tuple[str, int, float]]) -> list[LoggedRun]:
    names = (name for each in RECORDED for name in (each.tag, each.batch, each.memory) if name)
    values: dict[str, dict[int, float]] = {name: {} for name in names}
    for tag, step, value in scalars:
        if tag in values and math.isfinite(value):
            values[tag][step] = value
    return [_run(each, recorder, values) for each in RECORDED if values[each.tag]][:1]


def _run(kind: Recorded, recorder: str, values: dict[str, dict[int, float]]) -> LoggedRun:
    batches, peaks = values.get(kind.batch, {}), values.get(kind.memory, {}).values()
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
            for each in event.summary.value:
                number = each.simple_value if each.HasField("simple_value") else next(iter(each.tensor.float_val), None)
                if number is not None:
                    yield each.tag, int(event.step), float(number)
    except Exception as error:
        raise WrongQuestion(f"{path}: not read by TensorBoard's reader: {error}") from None
