"""What kernels alone say of the level that training steps reach: how high it may be, not how high it is.

Kernels alone run at clocks that a step's load does not hold, or as another library writes them: tables of the same part
differ by a third. What they say for sure is what shapes cost, and that no step does better than the best of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.calibration.measuring.kernel_times import MATRIX, MeasurementRow
from planner.figures import matrix_formats
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator

BEYOND = 1.02
"""Over the nominal peak, before a rate is not believed: clocks of single parts run a little higher."""
LARGE = 4096
"""Least dimension of products that show what a part reaches at best."""


def check(rows: Sequence[MeasurementRow], part: Accelerator) -> None:
    """Makes sure that no product ran faster than the part's nominal peak.

    Raises:
        WrongQuestion: one did: it is of another part or precision, or of sparse operands.
    """
    for row in rows:
        if row.kernel.kind != MATRIX:
            continue
        peak, rate = matrix_formats.peak_of(part, row.kernel.dtype), row.kernel.flops / row.seconds
        if rate > BEYOND * peak:
            raise WrongQuestion(
                f"{row.kernel} at {rate / 1e12:,.0f} TFLOP/s is beyond the {peak / 1e12:,.0f} TFLOP/s that "
                f"{part.id} can do in {row.kernel.dtype}: another accelerator (--accelerator), another precision, "
                "or sparse operands"
            )


def kept(
    entry: AcceleratorEfficiency, prior: AcceleratorEfficiency, rows: Sequence[MeasurementRow], part: Accelerator
) -> AcceleratorEfficiency:
    """A fitted entry with the levels that whole training steps showed: ``min(level, max rate / peak)`` of products in
    each precision, the prior's of attention and memory.

    Arguments:
        entry: as kernels alone fit it.
        prior: as fitted to training steps.
        rows: the kernels.
        part: what they were timed on.
    """
    matrix = dict(entry.matrix)
    for precision, level in prior.matrix.items():
        rates = [r.kernel.flops / r.seconds for r in rows if r.kernel.dtype == precision and _large(r)]
        if rates:
            level = min(level, max(rates) / matrix_formats.peak_of(part, precision) / prior.power_capped)
        matrix[precision] = level
    return replace(
        entry,
        matrix=matrix,
        attention=prior.attention,
        attention_backward=prior.attention_backward,
        memory=prior.memory,
    )


def _large(row: MeasurementRow) -> bool:
    kernel = row.kernel
    return kernel.kind == MATRIX and min(kernel.m, kernel.n, kernel.k) >= LARGE
