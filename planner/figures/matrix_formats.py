"""Which precisions an accelerator multiplies in, and how fast by its data sheet."""

from __future__ import annotations

from planner.schema.hardware import Accelerator, Dtype
from planner.schema.workload import FP8_RECIPES

_PEAK_OF: dict[str, Dtype] = {
    "bf16": "bf16",
    "fp16": "fp16",
    **dict.fromkeys(FP8_RECIPES, "fp8"),
    "mxfp8": "fp8",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
    "tf32": "tf32",
    "fp32": "fp32",
}

_SCALED_BLOCKS = {
    "fp8-blockwise": ("hopper", "blackwell"),
    "mxfp8": ("blackwell", "cdna4"),
    "mxfp4": ("cdna4",),
    "nvfp4": ("blackwell",),
}
"""Recipe -> generations that multiply such blocks (TransformerEngine d0067d0d, pytorch/quantization.py 162-180; of
CDNA 4, ROCm's, whose matrix units scale blocks of 32, not of 16); where blocks are of 128, Blackwell takes smaller ones
for them (common/recipe, Float8BlockScaling). What nobody trains in where the hardware could is left out."""


def can_train_in(accelerator: Accelerator, precision: str) -> bool:
    """Whether the accelerator has a matrix rate for the precision, and products of its scaled blocks."""
    if precision in _SCALED_BLOCKS and accelerator.generation not in _SCALED_BLOCKS[precision]:
        return False
    return _PEAK_OF.get(precision) in accelerator.peak


def peak_of(accelerator: Accelerator, precision: str) -> float:
    """Nominal dense FLOP/s in a precision; KeyError where the accelerator has none (ask :func:`can_train_in` first)."""
    return float(accelerator.peak[_PEAK_OF[precision]])
