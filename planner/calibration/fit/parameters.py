"""The parameters that calibration may move: few, named, physical, each with how far physics lets it go.

Their priors are the entries of ``hardware_catalog/priors``, set from kernel and collective measurements and from what
frameworks document; a parameter multiplies one figure of one or several entries.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.calibration.fit.least_squares import Parameter

GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
BOARDS = {
    "ampere": ("A30", "A40", "A100-PCIE-80GB"),
    "hopper": ("H100-SXM5-96GB", "H100-PCIE-80GB"),
    "blackwell": ("GB200", "GB300", "B300-SXM-288GB"),
}
"""Boards with entries of their own, which move with their generation."""
ULTRA = ("GB300", "B300-SXM-288GB")
MEGATRON = tuple(
    f"megatron-core{release}" for release in ("", "/blackwell", "@2026", "+tokendrop", "@2025.05", "@2025", "@2024")
)
FSDP2 = ("fsdp2", "fsdp2/hopper", "fsdp2+eager", "fsdp2+rowwise")
FSDP = ("fsdp", "fsdp/hopper")
GROUPED = MEGATRON[:5]
"""Releases that run experts' products grouped, not one by one."""

_OF_A_GENERATION = (
    ("matrix.bf16", 0.06, 1.0),
    ("matrix.fp16", 0.06, 1.0),
    ("attention", 0.15, 0.9),
    ("memory", 0.12, 1.0),
    ("inner_half", 0.2, 1e4),
    ("nic", 0.1, 1.0),
    ("scaleup", 0.1, 1.0),
    ("launch", 0.3, 1e-3),
    ("quantisation", 0.2, 1.0),
)
_LOW_PRECISION = (
    ("hopper", "fp8", 0.15),
    ("blackwell", "fp8", 0.15),
    ("blackwell", "mxfp8", 0.15),
    ("blackwell", "nvfp4", 0.2),
)
_OF_A_RUNTIME = (("vector", 0.2, 3.0), ("attention", 0.2, 2.0), ("dp_overlap", 0.3, 1.0), ("jitter", 0.5, 0.1))


def parameters() -> tuple[Parameter, ...]:
    """All of them, in a fixed order."""
    return (*_accelerators(), *_runtimes(), *_mixtures())


def _accelerators() -> Iterator[Parameter]:
    for generation in GENERATIONS:
        for field, sd, most in _OF_A_GENERATION:
            if not (generation == "volta" and field == "matrix.bf16"):
                entries = (generation, *BOARDS.get(generation, ()))
                yield Parameter(f"{generation}.{field}", "accelerators", entries, field, sd, most)
    for generation, precision, sd in _LOW_PRECISION:
        field = f"matrix.{precision}"
        entries = (generation, *BOARDS[generation])
        yield Parameter(f"{generation}.{field}", "accelerators", entries, field, sd, 1.0)
    blackwell = ("blackwell", *BOARDS["blackwell"])
    yield Parameter("blackwell.drift", "accelerators", blackwell, "drift", 0.5, 1.0)
    yield Parameter("blackwell-ultra.attention", "accelerators", ULTRA, "attention", 0.15, 1.0)
    yield Parameter("GB200.power_capped", "accelerators", ("GB200",), "power_capped", 0.05, 1.2)
    yield Parameter("GB300.power_capped", "accelerators", ("GB300",), "power_capped", 0.05, 1.2)
    yield Parameter("GB200.launch", "accelerators", ("GB200", "GB300"), "launch", 0.3, 1e-3)
    yield Parameter("H100-SXM5-96GB.power_capped", "accelerators", ("H100-SXM5-96GB",), "power_capped", 0.1, 1.0)


def _runtimes() -> Iterator[Parameter]:
    for name, entries in (("megatron-core", MEGATRON), ("fsdp", FSDP), ("fsdp2", FSDP2)):
        for field, sd, most in _OF_A_RUNTIME:
            yield Parameter(f"{name}.{field}", "runtimes", entries, field, sd, most)
    yield Parameter("megatron-core.tp_overlap", "runtimes", MEGATRON, "tp_overlap", 0.2, 1.0)
    yield Parameter("megatron-core.cp_overlap", "runtimes", MEGATRON, "cp_overlap", 0.1, 1.0)
    yield Parameter("megatron-core.low_precision_cast", "runtimes", MEGATRON, "low_precision_cast", 0.4, 10.0)
    yield Parameter("megatron-core@2022.launches", "runtimes", ("megatron-core@2022",), "launches", 0.3, 1e4)
    yield Parameter("fsdp.launches", "runtimes", FSDP, "launches", 0.4, 1e4)
    yield Parameter("fsdp2.low_precision_cast", "runtimes", FSDP2, "low_precision_cast", 0.4, 10.0)
    yield Parameter("fsdp2+rowwise.low_precision_cast", "runtimes", ("fsdp2+rowwise",), "low_precision_cast", 0.4, 20.0)
    yield Parameter("fsdp2+eager.vector", "runtimes", ("fsdp2+eager",), "vector", 0.3, 5.0)
    newer = ("fsdp/hopper", "fsdp2/hopper", "fsdp2+eager", "fsdp2+rowwise")
    yield Parameter("flash-attention-2/hopper", "runtimes", newer, "attention", 0.15, 2.0)
    yield Parameter("fsdp2.selective_recompute", "runtimes", FSDP2, "selective_recompute", 0.3, 1.0)
    yield Parameter("fsdp2.tp_overlap", "runtimes", FSDP2, "tp_overlap", 0.3, 1.0)


def _mixtures() -> Iterator[Parameter]:
    earliest = ("megatron-core@2025", "megatron-core@2024")
    older = ("megatron-core@2025.05",)
    yield Parameter("mixture.ep_overlap", "runtimes", MEGATRON, "ep_overlap", 0.4, 0.95)
    yield Parameter("mixture.grouped_matrix", "runtimes", GROUPED, "grouped_matrix", 0.1, 1.0)
    yield Parameter("mixture.expert_launches", "runtimes", MEGATRON, "expert_launches", 0.25, 1e4)
    yield Parameter("mixture.routed_vector", "runtimes", MEGATRON, "routed_vector", 0.4, 10.0)
    yield Parameter("mixture@2025.grouped_matrix", "runtimes", earliest, "grouped_matrix", 0.2, 1.0)
    yield Parameter("mixture@2025.05.routed_vector", "runtimes", older, "routed_vector", 0.3, 10.0)
    fused = ("megatron-core/blackwell",)
    yield Parameter("mixture/blackwell.expert_launches", "runtimes", fused, "expert_launches", 0.5, 1e4)
    yield Parameter("mixture/blackwell.routed_vector", "runtimes", fused, "routed_vector", 0.3, 10.0)
    yield Parameter("mixture/blackwell.grouped_matrix", "runtimes", fused, "grouped_matrix", 0.2, 1.1)
    yield Parameter(
        "mixture+tokendrop.expert_launches", "runtimes", ("megatron-core+tokendrop",), "expert_launches", 0.5, 1e4
    )
