"""What frameworks print about a step: one pattern a format, each with the source file that prints it.

Named groups say what a number is: ``ms``, ``s`` (a step), ``steps`` (in a second), ``tokens`` (of one accelerator in a
second), ``sequences`` (of all accelerators in a second), ``step``, ``batch`` (sequences), ``mib``, ``gib``, ``gb`` (a
peak of memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from planner.site.logs.records import LoggedStep, Per

_N = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?(?![.,]?\d)"
"""A number as Python formats it: a point for decimals, commas for thousands at most. Where a locale has put a comma for
the decimals, none is there."""
_SHORT = rf"{_N}[KMG]?"
"""A number that nanotron shortens to three digits."""
_FACTORS = {"K": 1e3, "M": 1e6, "G": 1e9}
MEMORY = {"mib": 2.0**20, "gib": 2.0**30, "gb": 1e9}
"""Group -> bytes of its unit."""
STEP = ("step", "step_of_bar", "step_of_pipe")
"""Groups that number a step."""
Kind = Literal["reserved", "allocated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """How one framework reports its steps."""

    name: str
    runtime: str
    """Id of the runtime that prints so; empty where several do."""
    hint: str
    """Text that a line must hold before the pattern is tried."""
    step: re.Pattern[str]
    head: re.Pattern[str] | None = None
    """The line before that says the step, where they are two."""
    memory: re.Pattern[str] | None = None
    """A line of its own with the peak of memory."""
    memory_kind: Kind = "reserved"
    """The one of the allocator's counters that is printed."""


FORMATS = (
    # NVIDIA/Megatron-LM megatron/training/training.py, training_log; Megatron-Bridge and Primus print the same line.
    # Memory: megatron/training/utils.py, report_memory (units of 2^20 bytes).
    LogFormat(
        name="Megatron-LM",
        runtime="megatron-core",
        hint="elapsed time per iteration (ms)",
        step=re.compile(
            rf"\biteration\s+(?P<step>\d+)/\s*(?:\d+|infinity) \|.*?elapsed time per iteration \(ms\): (?P<ms>{_N})"
            r"(?:.*?global batch size:\s*(?P<batch>\d+))?"
        ),
        memory=re.compile(rf"iterations\) memory \(MB\).*?max reserved: (?P<mib>{_N})"),
    ),
    # NVIDIA/NeMo nemo/lightning/pytorch/callbacks/progress_printer.py; the bar of 1.x: nemo/utils/exp_manager.py.
    LogFormat(
        name="NeMo",
        runtime="nemo",
        hint="train_step_timing in s",
        step=re.compile(
            r"(?:Training epoch \d+, iteration (?P<step>\d+)/\d+ \|(?:.*?global_batch_size: (?P<batch>\d+))?"
            r"|global_step=(?P<step_of_bar>\d+))"
            rf".*?train_step_timing in s[:=] ?(?P<s>{_N})"
        ),
    ),
    # pytorch/torchtitan torchtitan/components/metrics.py, MetricsProcessor.log: tokens of one device in a second.
    LogFormat(
        name="torchtitan",
        runtime="fsdp2",
        hint="ps: ",  # tps, or wps until 2025
        step=re.compile(
            rf"(?<!validate )\bstep:\s*(?P<step>\d+)\s.*?memory:\s*(?P<gib>{_N})GiB"
            rf".*?\b[tw]ps: (?P<tokens>{_N})"
        ),
    ),
    # huggingface/nanotron src/nanotron/trainer.py, train_step_logs; logging/base.py, human_format (three digits).
    LogFormat(
        name="nanotron",
        runtime="nanotron",
        hint="elapsed_time_per_iteration_ms",
        step=re.compile(
            rf"iteration: (?P<step>\d+) / \d+ \|.*?elapsed_time_per_iteration_ms: (?P<ms>{_SHORT})"
            rf"(?:.*?cuda_max_memory_reserved: (?P<b>{_SHORT}))?"
        ),
    ),
    # AI-Hypercomputer/maxtext MaxText/metric_logger.py, log_metrics.
    LogFormat(
        name="MaxText",
        runtime="maxtext",
        hint="completed step: ",
        step=re.compile(rf"completed step: (?P<step>\d+), seconds: (?P<s>{_N})"),
    ),
    # mosaicml/composer composer/loggers/console_logger.py; callbacks/speed_monitor.py (means over a window),
    # callbacks/memory_monitor.py (units of 10^9 bytes).
    LogFormat(
        name="Composer",
        runtime="fsdp",
        hint="throughput/samples_per_sec",
        head=re.compile(r"\[batch=(?P<step>\d+)/\d+\]"),
        step=re.compile(rf"Train throughput/samples_per_sec: (?P<sequences>{_N})"),
        memory=re.compile(rf"Train memory/peak_reserved_mem: (?P<gb>{_N})"),
    ),
    # deepspeedai/DeepSpeed deepspeed/utils/timer.py, ThroughputTimer.stop (GB are 2^30 bytes); runtime/pipe/engine.py.
    LogFormat(
        name="DeepSpeed",
        runtime="deepspeed",
        hint="amples",
        step=re.compile(
            rf"(?:global_step=|\b\d+/)(?P<step>\d+), RunningAvgSamplesPerSec={_N}, "
            rf"CurrSamplesPerSec=(?P<sequences>{_N})(?:.*?MaxMemAllocated=(?P<gib>{_N})GB)?"
            rf"|\bsteps: (?P<step_of_pipe>\d+) loss: .*?iter time \(s\): (?P<s>{_N}) samples/sec"
        ),
        memory_kind="allocated",
    ),
    # huggingface/transformers src/transformers/trainer_callback.py, ProgressCallback; tqdm's own format of a bar.
    LogFormat(
        name="Hugging Face Trainer",
        runtime="",
        hint="<",
        step=re.compile(
            rf"\| (?P<step>\d+)/(?P<total>\d+) \[[\d:]+<[\d:?]+,\s+(?:(?P<s>{_N})s/it|(?P<steps>{_N})it/s)"
        ),
    ),
    # mlcommons/logging mlperf_logging/mllog; NVIDIA's submissions to MLPerf Training log samples of a second so.
    LogFormat(
        name="MLPerf",
        runtime="",
        hint=":::MLLOG",
        step=re.compile(
            r'"key": "tracked_stats", "value": \{'
            rf'(?:[^}}]*"train_step_time": (?P<s>{_N})|[^}}]*"throughput": (?P<sequences>{_N}))'
            r'.*?"(?:step|samples_count)": (?P<step>\d+)'
        ),
    ),
)
"""In the order in which they are believed where a log holds several (Megatron-DeepSpeed prints two)."""

SUMMARY = re.compile(rf"'train_steps_per_second': '?(?P<rate>{_N})")
"""Hugging Face Trainer's last line: ``trainer_utils.py``, speed_metrics; warm-up and evaluations are in it."""
DEVICES = (
    re.compile(r"\b(?:CUDA|HIP|XPU) capacity: (?P<device>.+?) with [\d.]+GiB memory"),  # torchtitan
    re.compile(r'"accelerators_name": "(?P<device>[^"]+)"'),
)
"""Lines that name the accelerator as its driver does."""
OUT_OF_MEMORY = re.compile(
    r"(?:torch|cuda)\S*OutOfMemoryError|\b(?:CUDA|HIP|XPU|NPU) out of memory"
    r"|RESOURCE_EXHAUSTED: (?:Out of memory|XLA:TPU compile|Attempting to allocate)"
    r"|[Rr]an out of memory in memory space"
)
"""As PyTorch (c10/cuda/CUDACachingAllocator.cpp) and XLA report it."""
DISTURBED = re.compile(
    r"validation loss at|[Ee]valuating\b|\bvalidate step:|Eval metrics/|[Ss]av(?:ing|ed)\b.*?\bcheckpoint"
    r"|eval_(?:start|accuracy)|'eval_loss'"
)
"""Lines of evaluations and checkpoints; the steps around them are slower than the others."""


def number(text: str) -> float:
    """``7,123`` or ``1.2K``."""
    factor = _FACTORS.get(text[-1], 1.0)
    return float(text.rstrip("KMG").replace(",", "")) * factor


def step(match: re.Match[str], at: int | None, batch: int | None, disturbed: bool) -> LoggedStep | None:
    """The step that a match reports; None where its time is none (0 or infinite rates of a first line).

    Arguments:
        match: Of a format's pattern.
        at: The step, where a line before has said it.
        batch: Sequences, where a line before has said them.
        disturbed: Whether an evaluation or a checkpoint was reported since the step before.
    """
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    number_of = next((int(text) for name, text in groups.items() if name in STEP), at)
    per, seconds = _duration(groups)
    if number_of is None or seconds <= 0:
        return None
    stated = int(groups["batch"]) if "batch" in groups else batch
    return LoggedStep(number_of, seconds, per, stated, disturbed)


def _duration(groups: dict[str, str]) -> tuple[Per, float]:
    for name, per in (("tokens", "token"), ("sequences", "sequence")):
        if name in groups:
            rate = number(groups[name])
            return per, 1.0 / rate if rate > 0 else 0.0  # type: ignore[return-value]  # the two names above
    if "steps" in groups:
        return "step", 1.0 / rate if (rate := number(groups["steps"])) else 0.0
    return "step", number(groups["ms"]) / 1e3 if "ms" in groups else number(groups["s"])


def memory(match: re.Match[str]) -> float | None:
    """Bytes of the peak that a match reports."""
    for name, text in match.groupdict().items():
        if text is not None and name in (*MEMORY, "b"):
            return number(text) * MEMORY.get(name, 1.0)
    return None
