"""Bytes of an element, and of a parameter, in the precision trained in.

16 bit and below work on elements of two bytes, fp32 and tf32 on four. A runtime's bytes per parameter are those of its
16-bit training. In 32 bit nothing that it keeps or sends is narrower than an element, and the weights that it works
with are the master copy: there is no other, and no 16-bit one to write.
"""

from __future__ import annotations

import numpy as np

from planner.cost.figures import Figure, Grid

NARROW = 2.0
"""Bytes of an element in 16 bit and below."""
FP32 = 4.0
"""Bytes of a number in single precision."""


def wide(grid: Grid) -> Figure:
    """Elements over those of 16 bit, ``e / 2``: 1 or 2."""
    return grid.device.element / NARROW


def _at_least(grid: Grid, size: Figure) -> Figure:
    return np.maximum(size, grid.device.element)


def _alone(grid: Grid) -> Figure:
    """Whether the weights worked with are the only ones."""
    return (grid.device.element > NARROW) & (grid.stack.gathers_working_copy <= 0)


def parameter_bytes(grid: Grid) -> Figure:
    """Bytes of a weight that stays resident for compute; 0 where a working copy is gathered."""
    kept = grid.stack.parameter_bytes
    return np.where(grid.stack.gathers_working_copy > 0, kept, _at_least(grid, kept)) * frozen_share(grid)


def frozen_share(grid: Grid) -> Figure:
    """Share of :func:`parameter_bytes` that frozen weights take: half where products run in 8 bit, which is all that
    they are read for (Transformer Engine's fp8 parameters, `fp8_model_init`).
    """
    return np.where((grid.shape.weight_gradient <= 0) & (grid.device.low_precision > 0), 0.5, 1.0)


def sums_in_fp32(grid: Grid) -> Figure:
    """Whether gradients of bf16 are summed in fp32, next to those held (deepspeed/runtime/bf16_optimizer.py): under low
    ZeRO stages of a runtime that does so, unless the optimizer is offloaded (engine.py, _do_optimizer_sanity_check).
    """
    options = grid.options
    if not np.count_nonzero(grid.stack.fp32_sums_below_zero):
        return 0.0  # without an axis for the stages of ZeRO
    return (options.zero < grid.stack.fp32_sums_below_zero) * grid.device.bf16 * (options.offload <= 0)


def gradient_bytes(grid: Grid) -> Figure:
    """Bytes of a gradient as it is kept, with its sum."""
    return _at_least(grid, grid.stack.gradient_bytes) + FP32 * sums_in_fp32(grid)


def gradient_wire(grid: Grid) -> Figure:
    """Bytes of a gradient as it is reduced."""
    return np.where(sums_in_fp32(grid) > 0, FP32, _at_least(grid, grid.stack.gradient_wire))


def update_bytes(grid: Grid) -> Figure:
    """Bytes a parameter of a rank's shard in copies of gradients that the update makes: 0 where it reads a view of the
    sums.
    """
    return grid.stack.update_bytes * (1.0 - sums_in_fp32(grid))


def parameter_wire(grid: Grid) -> Figure:
    """Bytes of a trained weight as it is gathered."""
    return _at_least(grid, grid.stack.parameter_wire)


def gathered_wire(grid: Grid) -> Figure:
    """Bytes of any weight as it is gathered where all are sharded (ZeRO 3): a quantised one as it is kept."""
    return np.where(grid.shape.quantised > 0, grid.shape.frozen_bytes, parameter_wire(grid))


def hosted_wire(grid: Grid) -> Figure:
    """Bytes of a weight as it is fetched from host memory: trained ones as the runtime keeps them there, frozen ones as
    they are gathered.
    """
    return np.where(grid.shape.frozen_bytes > 0, gathered_wire(grid), _at_least(grid, grid.stack.hosted_weight))


def master_bytes(grid: Grid) -> Figure:
    """Bytes of a weight's fp32 copy in addition to the working copy."""
    return grid.shape.master_bytes * (1.0 - _alone(grid))


def step_bytes(grid: Grid) -> Figure:
    """Memory traffic of one update per trained parameter: in 32 bit without writing a 16-bit copy."""
    return grid.shape.step_bytes - NARROW * _alone(grid)


def logit_bytes(grid: Grid, size: Figure) -> Figure:
    """Bytes of a logit in the loss, of which `size` are known in 16 bit: the logit itself is as wide as an element."""
    return size + (grid.device.element - NARROW)
