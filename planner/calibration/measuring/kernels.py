"""Which kernels are timed: the products, attention shapes, memory traffic and collectives that plans are made of; and
how high a level of training steps they allow.

Kernels alone run at clocks that a step's load does not hold, or as another library writes them: tables of one part
differ by a third. They show reliably what shapes cost, and that no step does better than the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.calibration.measuring.kernel_times import (
    BACKWARD,
    COLLECTIVES,
    ELEMENT,
    FORWARD,
    LAUNCH,
    MATRIX,
    MEMORY,
    Kernel,
    MeasurementRow,
)
from planner.figures import matrix_formats
from planner.models.workload import library
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator
from planner.schema.workload import Model

MODELS = ("mpt-1b", "llama3-8b", "llama2-13b", "llama3-70b")
"""Hidden sizes 2048, 4096, 5120 and 8192: plain and gated MLPs, with and without grouped keys and values."""
SMALL = MODELS[:2]
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384)
HEADS, HEAD_DIM = (32, 8), 128
"""Query and key heads of the attention kernel on one rank, and the size of a head."""
ATTENTION_TOKENS = 16384
"""Tokens of one attention kernel: its batch times its sequence."""
TRIADS = (2**28, 2**29, 2**30, 2**31)
"""Bytes that a memory kernel moves; well beyond any cache."""
MESSAGES = tuple(2**power for power in range(14, 30, 3))
"""Bytes of a collective: 16 KiB to 512 MiB."""


def kernels(dtypes: Sequence[str], devices: int = 1, *, tiny: bool = False) -> list[Kernel]:
    """Everything to time on a machine, each once.

    Arguments:
        dtypes: precisions of matrix products, the one to train in first.
        devices: accelerators that collectives may span.
        tiny: a few kernels of a size that only shows that they run.
    """
    wide = next((name for name in dtypes if name in ("bf16", "fp16")), dtypes[0])
    wanted = [
        Kernel(kind=LAUNCH, dtype=wide),
        *_triads(wide, tiny),
        *(_tiny_products(dtypes) if tiny else _products(dtypes)),
        *_attention(wide, tiny),
        *_collectives(wide, devices, tiny),
    ]
    return list(dict.fromkeys(wanted))


def _products(dtypes: Sequence[str]) -> Iterator[Kernel]:
    """The precision trained in gets every shape, the others fewer: their ramps are shared, their peak is what matters.

    8-bit products exist in one layout only (both operands with the inner dimension contiguous).
    """
    for index, dtype in enumerate(dtypes):
        first = index == 0
        narrow = dtype == "fp8"
        whole = dtype in ("fp32", "tf32") and index > 0
        for name in SMALL if whole else MODELS:
            for tp in (1, 2, 8) if first else (1, 8) if narrow else (1,):
                for tokens in (2048, 8192) if first else (2048,) if whole else (8192,):
                    for kernel in layer(library()[name], tp, tokens, dtype):
                        yield kernel if not narrow else _in_one_layout(kernel)


def layer(model: Model, tp: int, tokens: int, dtype: str) -> Iterator[Kernel]:
    """The products of one layer's forward and backward pass on one tensor-parallel rank.

    Query/key/value, output, up (with gate) and down projections: forward ``(t, n, k)``, input gradient ``(t, k, n)``,
    weight gradient ``(k, n, t)``, as :func:`planner.cost.products.trained_product` prices them.
    """
    queries = model.heads * model.head_dim // tp
    kv = max(model.kv_heads // tp, 1) * model.head_dim
    inner = model.ffn // tp
    for n, k in (
        (queries + 2 * kv, model.hidden),
        (model.hidden, queries),
        ((1 + model.gated) * inner, model.hidden),
        (model.hidden, inner),
    ):
        yield Kernel(kind=MATRIX, dtype=dtype, layout="TN", m=tokens, n=n, k=k)
        yield Kernel(kind=MATRIX, dtype=dtype, layout="NN", m=tokens, n=k, k=n)
        yield Kernel(kind=MATRIX, dtype=dtype, layout="NT", m=k, n=n, k=tokens)


def _in_one_layout(kernel: Kernel) -> Kernel:
    return Kernel(kind=MATRIX, dtype=kernel.dtype, layout="TN", m=kernel.m, n=kernel.n, k=kernel.k)


def _tiny_products(dtypes: Sequence[str]) -> Iterator[Kernel]:
    for dtype in dtypes:
        for layout in ("TN",) if dtype == "fp8" else ("TN", "NN", "NT"):
            for m, n, k in ((64, 128, 64), (128, 128, 256)):
                yield Kernel(kind=MATRIX, dtype=dtype, layout=layout, m=m, n=n, k=k)


def _attention(dtype: str, tiny: bool) -> Iterator[Kernel]:
    tokens, width = (256, 16) if tiny else (ATTENTION_TOKENS, HEAD_DIM)
    for kind in (FORWARD, BACKWARD):
        for heads in (2,) if tiny else HEADS:
            for sequence in (128, 256) if tiny else SEQUENCES:
                batch = tokens // sequence
                yield Kernel(kind=kind, dtype=dtype, batch=batch, heads=heads, head_dim=width, sequence=sequence)


def _triads(dtype: str, tiny: bool) -> Iterator[Kernel]:
    """``a = b + x c``: three arrays, each moved once."""
    for size in (2**20, 2**22) if tiny else TRIADS:
        yield Kernel(kind=MEMORY, dtype=dtype, size=size // (3 * ELEMENT[dtype]) * 3 * ELEMENT[dtype])


def _collectives(dtype: str, devices: int, tiny: bool) -> Iterator[Kernel]:
    """Groups of 2, 4, 8 ... and all devices; sizes that every group divides."""
    groups = sorted({2**power for power in range(1, devices.bit_length()) if 2**power <= devices} | {devices} - {1})
    for ranks in groups:
        for kind in COLLECTIVES:
            for size in (2**12, 2**16) if tiny else MESSAGES:
                whole = ranks * ELEMENT[dtype]
                yield Kernel(kind=kind, dtype=dtype, size=-(-size // whole) * whole, ranks=ranks)


BEYOND = 1.02
"""Over the nominal peak, before a rate is not believed: clocks of single parts run a little higher."""
LARGE = 4096
"""Least dimension of products that show what a part reaches at best."""


def check_rates(rows: Sequence[MeasurementRow], part: Accelerator) -> None:
    """Makes sure that no product ran faster than the part's nominal peak.

    Raises:
        WrongQuestion: one did: it is of another part or precision, or of sparse operands.
    """
    for row in rows:
        if row.kernel.kind != MATRIX:
            continue
        peak = matrix_formats.peak_of(part, row.kernel.dtype)
        rate = row.kernel.flops / row.seconds
        if rate > BEYOND * peak:
            raise WrongQuestion(
                f"{row.kernel} at {rate / 1e12:,.0f} TFLOP/s is beyond the {peak / 1e12:,.0f} TFLOP/s that "
                f"{part.id} can do in {row.kernel.dtype}: another accelerator (--accelerator), another precision, "
                "or sparse operands"
            )


def with_prior_levels(
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
        attention_backward_half=prior.attention_backward_half,
        memory=prior.memory,
    )


def _large(row: MeasurementRow) -> bool:
    kernel = row.kernel
    return kernel.kind == MATRIX and min(kernel.m, kernel.n, kernel.k) >= LARGE
