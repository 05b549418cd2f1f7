"""Muon: the momentum of a whole matrix is made orthogonal by Newton-Schulz iterations; all else is updated by AdamW.

As Megatron-LM core_v0.18.0 does it (core/optimizer/emerging_optimizers.py, layer_wise_optimizer.py) with
NVIDIA-NeMo/Emerging-Optimizers fd772926 (orthogonalized_optimizers/muon_utils.py): tensor-parallel ranks gather a
matrix's momentum in fp32 and each iterates on all of it; ZeRO 1 shares matrices out whole, so that every shard of the
buffers of weights and gradients is as large as a matrix at least.
"""

from __future__ import annotations

import numpy as np

from planner.cost import collective_times
from planner.cost.elements import FP32
from planner.cost.figures import Figure, Grid, by_kind
from planner.cost.pipeline import StageLayers

OF_ATTENTION, OF_MLP = 4.0, 2.0
"""Matrices that are gathered: queries, keys, values and output; both products of an MLP, gate and up being one."""


def orthogonal_flops(rows: float, columns: float, iterations: int) -> float:
    """FLOPs of one matrix, m its shorter side and n its longer: ``iterations (4 m^2 n + 2 m^3)``, an iteration being
    ``A = X X^T``, ``B = b A + c A A`` and ``a X + B X`` (muon_utils.py, newton_schulz_step).
    """
    m = min(rows, columns)
    n = max(rows, columns)
    return iterations * (4.0 * m * m * n + 2.0 * m**3)


def whole_matrices(grid: Grid, dense: Figure, experts: Figure, shards: tuple[Figure, Figure]) -> tuple[Figure, Figure]:
    """Parameters of blocks as buffers hold them under ZeRO: ``max(held, shards largest)`` of the dense ones and of the
    experts', as no matrix is cut. Shards are taken as even otherwise.
    """
    s = grid.shape
    layout = grid.layout
    sharded = grid.options.zero >= 1

    def padded(held: Figure, largest: Figure, ranks: Figure) -> Figure:
        return np.where(sharded & (held > 0), np.maximum(held, ranks * largest), held)

    return (
        padded(dense, s.largest_matrix / layout.tp, shards[0]),
        padded(experts, s.largest_expert_matrix / layout.etp, shards[1]),
    )


def orthogonal_seconds(grid: Grid, stage: StageLayers, shards: tuple[Figure, Figure]) -> Figure:
    """Seconds of the iterations on a stage's busiest rank, with what they gather: every tensor-parallel rank does all
    of a matrix, at the 16-bit rate (muon_fp32_matmul_prec `medium`); a rank has a whole matrix at least.
    """
    s = grid.shape
    layout = grid.layout
    sharded = grid.options.zero >= 1
    of_dense, of_experts = (np.where(sharded, ranks, 1.0) for ranks in shards)
    if stage.kinds:
        by_kinds = [_of_blocks(kind, n, 0.0) for kind, n in zip(by_kind(grid), stage.kinds, strict=True)]
        dense, held, moe, idle = (sum(parts) for parts in zip(*by_kinds, strict=True))
    else:
        dense, held, moe, idle = _of_blocks(grid, stage.layers, stage.leading)
    experts = moe * s.experts / layout.ep * s.expert_orthogonal
    products = _mine(dense, of_dense, s.largest_orthogonal) + _mine(experts, of_experts, s.largest_expert_orthogonal)
    spread = moe * s.experts / layout.ep * s.expert_parameters
    matrices = stage.layers * OF_ATTENTION + (stage.layers - idle) * OF_MLP
    gathers = _gathered(grid, _mine(held, of_dense, s.largest_matrix), layout.tp, matrices / of_dense)
    gathers = gathers + _gathered(
        grid,
        _mine(spread, of_experts, s.largest_expert_matrix),
        layout.etp,
        moe * s.experts / layout.ep * OF_MLP / of_experts,
    )
    return s.orthogonal * (products / grid.device.matrix_rate_16 + gathers)


def _of_blocks(grid: Grid, layers: Figure, leading: Figure) -> tuple[Figure, Figure, Figure, Figure]:
    """FLOPs and parameters outside experts, blocks with a mixture, and without an MLP."""
    s = grid.shape
    body = layers - leading
    moe = body * s.moe_share
    idle = body * s.idle_share
    dense = layers * s.attention_orthogonal + (layers - moe - idle) * s.mlp_orthogonal + moe * s.shared_orthogonal
    held = layers * s.attention_parameters + (layers - moe - idle) * s.mlp_parameters + moe * s.shared_parameters
    return dense, held, moe, idle


def _mine(whole: Figure, ranks: Figure, least: Figure) -> Figure:
    """Share of the rank with most: an even share, or one matrix."""
    return np.where(whole > 0, np.maximum(whole / ranks, least), 0.0)


def _gathered(grid: Grid, parameters: Figure, ranks: Figure, calls: Figure) -> Figure:
    """Seconds to gather momenta in fp32 over tensor-parallel ranks, one call for each matrix."""
    times = np.maximum(calls, 1.0)
    g = collective_times.group(grid.network, ranks, 1.0)
    return times * collective_times.gather(grid.network, FP32 * parameters / times, g)
