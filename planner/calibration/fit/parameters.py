"""The parameters that calibration may move: few, named, physical, each with how far physics lets it go.

Their priors are the entries of ``hardware_catalog/priors``, set from kernel and collective measurements and from the
frameworks' own sources. A parameter multiplies one figure of one or several entries. Kept are those that make labs
left out better predicted: what kernels of a generation reach. Overlaps, launches and fusions of a framework are its
traits; fitted to the one lab that runs it they say nothing of the next (see docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.calibration.fit.least_squares import Parameter

BOARDS = {
    "ampere": ("A30", "A40", "A100-PCIE-80GB", "RTX-A6000", "RTX-A5000", "RTX-A4000"),
    "hopper": ("H100-SXM5-96GB", "H100-PCIE-80GB"),
    "blackwell": ("GB200", "GB300", "B300-SXM-288GB"),
    "cdna4": (),
}
"""Generations that whole steps were measured on, and boards with entries of their own that move with them."""

_OF_A_GENERATION = (
    ("matrix.bf16", 0.06, 1.0),
    ("matrix.fp16", 0.06, 1.0),
    ("attention", 0.15, 0.75),
    ("memory", 0.12, 1.0),
)
"""Figure, standard deviation of its log, largest value. Kernel tables of one part differ by 5 to 15 %."""
_LOW_PRECISION = (
    ("hopper", "fp8", 0.15),
    ("blackwell", "fp8", 0.15),
    ("blackwell", "mxfp8", 0.15),
    ("blackwell", "nvfp4", 0.2),
    ("cdna4", "fp8", 0.15),
)
"""Rates of 8-bit and 4-bit products, of which fewer kernels were measured."""


def parameters() -> tuple[Parameter, ...]:
    """All of them, in a fixed order."""
    return tuple(_of_generations())


def _of_generations() -> Iterator[Parameter]:
    for generation, boards in BOARDS.items():
        for field, sd, most in _OF_A_GENERATION:
            yield Parameter(f"{generation}.{field}", "accelerators", (generation, *boards), field, sd, most)
    for generation, precision, sd in _LOW_PRECISION:
        field = f"matrix.{precision}"
        entries = (generation, *BOARDS[generation])
        yield Parameter(f"{generation}.{field}", "accelerators", entries, field, sd, 1.0)
