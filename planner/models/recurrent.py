"""Recurrences in place of attention: parameters, multiply-adds and elements of one block from its equations.

Symbols: H heads of values, P their width, i = H P, G heads (groups) of keys, N their width, k the convolution's tokens,
h the model's width, Q tokens of a chunk, r the rank of time steps. They follow transformers 5.23.0 (models/mamba2,
jamba, qwen3_next, kimi_linear, minimax), state-spaces/mamba (ops/triton/ssd_combined.py) and fla
(ops/gated_delta_rule/chunk.py, layers/rwkv7.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema.workload import Model, Recurrence


@dataclass(frozen=True, slots=True)
class RecurrentBlock:
    """One block's recurrence. Elements and multiply-adds are those of one token, forward."""

    first: int
    """Width of the product before it, all that it makes from `h` taken together."""
    inner: int
    """Width of what it gives: the output product reads that."""
    between: int
    """Multiply-adds of products within (time steps)."""
    recurrence: float
    """Multiply-adds of the recurrence itself, a token at a time."""
    chunked: float
    """Multiply-adds of a token as kernels do them, in chunks."""
    moved: float
    """Elements that convolution, recurrence, gate and norm read and write."""
    kept: int
    """Elements that the backward pass reads again, the block's input left out."""
    small: int
    """Parameters beside the products' weights: convolutions, decays, time steps, norms, biases."""


def products(hidden: int, block: RecurrentBlock) -> int:
    """Multiply-adds with matrices, and their weights: ``h first + between + i h``."""
    return hidden * (block.first + block.inner) + block.between


def parameters(hidden: int, block: RecurrentBlock) -> int:
    """All parameters of one block's recurrence."""
    return products(hidden, block) + block.small


def lacking(model: Model) -> int:
    """Parameters that the first block's has not, of mixing values with its own: ``q (h + i) + i`` at rank q."""
    r = model.recurrence
    return r.value_rank * (model.hidden + r.heads * r.value_dim) + r.heads * r.value_dim if r and r.value_rank else 0


def block(model: Model) -> RecurrentBlock | None:
    """The recurrence of a model; None where it has none."""
    r = model.recurrence
    if r is None:
        return None
    return _KINDS[r.kind](model.hidden, r)


def _norm(r: Recurrence) -> int:
    """On what is given: P, i, or (Jamba: on steps, keys and queries) r + 2 N."""
    inner = r.heads * r.value_dim
    return {"none": 0, "head": r.value_dim, "full": inner, "inner": r.step_rank + 2 * r.key_dim}[r.norm]


def _mamba(h: int, r: Recurrence) -> RecurrentBlock:
    """Selective state space over i channels: ``2 i`` before it, ``i (r + 2 N) + r i`` within; a decay and a skip each.

    A channel's state of N decays, takes in, and is read: 3.5 i N, as Megatron-LM counts (training/training.py,
    mamba_layer_flops: 7 FLOPs). The scan is sequential in the same work.
    """
    inner = r.heads * r.value_dim
    steps = r.step_rank + 2 * r.key_dim
    scan = 3.5 * inner * r.key_dim
    small = inner * (r.convolution + r.convolution_bias + 1 + r.key_dim + 1) + _norm(r)
    return RecurrentBlock(
        first=2 * inner,
        inner=inner,
        between=inner * (steps + r.step_rank),
        recurrence=scan,
        chunked=scan,
        moved=8.0 * inner + 2.0 * steps,
        kept=2 * inner + 2 * inner + steps,
        small=small + r.bias * (2 * inner + h),
    )


def _mamba2(h: int, r: Recurrence) -> RecurrentBlock:
    """Its dual form: ``2 i + 2 G N + H`` before it; a decay, a step and a skip each head.

    In chunks scores of a group, their product with values, and states made and read: ``G Q N + H (Q P + 2 P N)``. The
    joint kernel keeps what it reads and gives, and the output product its input.
    """
    inner = r.heads * r.value_dim
    group = 2 * r.key_heads * r.key_dim
    first = 2 * inner + group + r.heads
    convolved = inner + group
    small = convolved * (r.convolution + r.convolution_bias) + 3 * r.heads + _norm(r)
    return RecurrentBlock(
        first=first,
        inner=inner,
        between=0,
        recurrence=3.5 * inner * r.key_dim,
        chunked=r.key_heads * r.chunk * r.key_dim + inner * (r.chunk + 2.0 * r.key_dim),
        moved=2.0 * convolved + (convolved + inner) + 3.0 * inner + 4.0 * inner * r.key_dim / r.chunk,
        kept=first + 2 * inner,
        small=small + r.bias * (first + h),
    )


def _delta(h: int, r: Recurrence) -> RecurrentBlock:
    """Gated delta rule: queries, keys ``2 G N``, values and a gate ``2 i``, a step and a decay each head.

    The state is read at the key, corrected, and read at the query: 3 i N. In chunks the products of keys with keys and
    queries, the triangular system's inverse applied to keys and values, and states: ``H (Q (3 N + 2 P) + 3 N P)``.
    Kept are inputs and outputs of the convolution, the inverse, the gate, and inputs of norm and output product.
    """
    inner = r.heads * r.value_dim
    keys = 2 * r.key_heads * r.key_dim
    first = 2 * inner + keys + 2 * r.heads
    convolved = inner + keys
    state = 3.0 * inner * r.key_dim
    small = convolved * (r.convolution + r.convolution_bias) + 2 * r.heads + _norm(r)
    return RecurrentBlock(
        first=first,
        inner=inner,
        between=0,
        recurrence=state,
        chunked=r.heads * r.chunk * (3.0 * r.key_dim + 2.0 * r.value_dim) + state,
        moved=2.0 * convolved + (convolved + inner) + 3.0 * inner + 4.0 * inner * r.key_dim / r.chunk,
        kept=first + convolved + r.heads * r.chunk + 2 * inner,
        small=small + r.bias * (first + h),
    )


def _kda(h: int, r: Recurrence) -> RecurrentBlock:
    """Delta rule with a decay a channel (Kimi Linear): queries, keys and values ``i + 2 G N``, a step a head, and
    through a rank r decays ``G N`` and a gate ``i``; a factor a head and a bias a channel on decays.

    State and chunks are the gated delta rule's; decays and the gate are kept, and read and written once more.
    """
    inner = r.heads * r.value_dim
    keys = r.key_heads * r.key_dim
    convolved = inner + 2 * keys
    first = convolved + 2 * r.step_rank + r.heads
    state = 3.0 * inner * r.key_dim
    return RecurrentBlock(
        first=first,
        inner=inner,
        between=r.step_rank * (keys + inner),
        recurrence=state,
        chunked=r.heads * r.chunk * (3.0 * r.key_dim + 2.0 * r.value_dim) + state,
        moved=2.0 * convolved + (convolved + inner) + 2.0 * keys + 3.0 * inner + 4.0 * inner * r.key_dim / r.chunk,
        kept=first + convolved + keys + r.heads * r.chunk + 3 * inner,
        small=convolved * (r.convolution + r.convolution_bias) + r.heads + keys + _norm(r) + r.bias * (first + h),
    )


def _lightning(h: int, r: Recurrence) -> RecurrentBlock:
    """Linear attention with a fixed decay: queries, keys, values and an output gate; ``H (2 Q P + 2 P N)`` in chunks.

    A state takes in and is read: 2 i N.
    """
    inner = r.heads * r.value_dim
    keys = 2 * r.key_heads * r.key_dim
    first = 2 * inner + keys
    return RecurrentBlock(
        first=first,
        inner=inner,
        between=0,
        recurrence=2.0 * inner * r.key_dim,
        chunked=r.heads * r.chunk * (r.key_dim + r.value_dim) + 2.0 * inner * r.key_dim,
        moved=2.0 * (inner + keys) + (keys + 2.0 * inner) + 3.0 * inner + 4.0 * inner * r.key_dim / r.chunk,
        kept=first + (inner + keys) + 2 * inner,
        small=_norm(r) + r.bias * (first + h),
    )


def _convolution(h: int, r: Recurrence) -> RecurrentBlock:
    """A convolution between two gates: three of i channels before it; i k multiply-adds."""
    inner = r.heads * r.value_dim
    work = float(inner * r.convolution)
    return RecurrentBlock(
        first=3 * inner,
        inner=inner,
        between=0,
        recurrence=work,
        chunked=work,
        moved=8.0 * inner,
        kept=5 * inner,
        small=inner * (r.convolution + r.convolution_bias) + r.bias * (3 * inner + h),
    )


def _rwkv7(h: int, r: Recurrence) -> RecurrentBlock:
    """RWKV-7: receptance, keys and values ``3 i``, and through ranks, r together, decays, removals, a gate and what is
    left of the first block's values; ``r i``. Vectors: six shifts, three biases, three on keys, the norm's two.

    A state decays, is read at what is removed, corrected, takes in and is read: 4 i N. In chunks scores of two kinds of
    keys at two of queries, the system's inverse applied to keys and values, and states: ``H (Q (5 N + 4 P) + 4 N P)``
    (fla, ops/generalized_delta_rule/dplr). Read and written: the shift (7 h; 3 h before the MLP), mixed values (4 i),
    keys normed and scaled (5 i), sigmoids (4 i), the kernel's six and what it gives (7 i), removals (3 i), norm (2 i),
    gate and correction (6 i). Kept: shifted inputs (8 h, the MLP's too), ranks, and eleven of i channels.
    """
    inner = r.heads * r.value_dim
    width = r.key_dim
    return RecurrentBlock(
        first=3 * inner + r.step_rank,
        inner=inner,
        between=r.step_rank * inner,
        recurrence=4.0 * inner * width,
        chunked=r.heads * r.chunk * (5.0 * width + 4.0 * r.value_dim) + 4.0 * inner * width,
        moved=10.0 * h + 31.0 * inner + 4.0 * inner * width / r.chunk,
        kept=8 * h + r.step_rank + 11 * inner,
        small=6 * h + 8 * inner,
    )


_KINDS = {
    "mamba": _mamba,
    "mamba2": _mamba2,
    "delta": _delta,
    "kda": _kda,
    "lightning": _lightning,
    "convolution": _convolution,
    "rwkv7": _rwkv7,
}
