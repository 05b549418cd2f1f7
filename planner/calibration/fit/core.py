"""Which published runs calibration looks at, and which are left out, with the reason of each."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from planner.calibration.fit.frame import Frame
from planner.calibration.runs.run import Run

OUTLIERS = frozenset(
    [f"dgxc-benchmarking-{number}" for number in range(230, 235)]
    + [f"megatron-bridge-{number}" for number in (194, 227, 228, 231, 258, 259, 264)]
)
"""Releases known to be slow with mixtures."""
NOT_TIMED = ("mlperf",)
"""Sources whose step times are derived from logs with unknown plans."""
COMPOSED = ("vtrain",)
"""Sources composed from per-layer profiles: many near-identical rows, worth one small source."""
ELSEWHERE = ("maxtext-tpu",)
"""Sources on accelerators that nothing is fitted for: they stay a test of what happens without data."""


def core(frame: Frame) -> NDArray[np.intp]:
    """Indices of grade A pre-training runs with a step time, the newest release of each configuration.

    Left out: outliers, MLPerf logs, composed rows, accelerators without a fit.
    """
    newest: dict[Hashable, int] = {}
    for index, run in enumerate(frame.runs):
        if not _counts(run):
            continue
        key = _configuration(run) if run.source == "megatron-bridge" else index
        if key not in newest or frame.runs[newest[key]].release < run.release:
            newest[key] = index
    return np.array(sorted(newest.values()), dtype=np.intp)


def composed(frame: Frame, every: int = 36) -> NDArray[np.intp]:
    """One in so many of the composed rows: enough for the launch pace that only they show."""
    rows = [i for i, run in enumerate(frame.runs) if run.source.startswith(COMPOSED) and run.measured]
    return np.array(rows[::every], dtype=np.intp)


def _counts(run: Run) -> bool:
    return (
        run.family in ("dense", "moe")
        and run.grade == "A"
        and run.task == "pretrain"
        and run.measured is not None
        and run.id not in OUTLIERS
        and not run.source.startswith(NOT_TIMED + COMPOSED + ELSEWHERE)
    )


def _configuration(run: Run) -> Hashable:
    first = run.variants[0]
    degrees = tuple(first.layout[name] for name in ("tp", "pp", "cp", "ep", "micro", "batch"))
    assert run.workload is not None
    return (run.model, run.accelerator, run.accelerators, first.options.precision, degrees, run.workload.sequence)
