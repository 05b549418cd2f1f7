"""The matrices that Muon makes orthogonal (:mod:`planner.cost.muon`), as figures of the cost model."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cost import muon
from planner.cost.figures import Figure
from planner.models import blocks, compressed, recurrent
from planner.models.parameters import attention_matrices
from planner.schema.workload import Model, Workload

Sides = tuple[int, int]


def orthogonal_figures(workload: Workload) -> dict[str, Figure]:
    """FLOPs of a layer's matrices by where they are (attention and recurrence as the mean over layers), and the largest
    tensors, of which none is cut; nothing for other optimizers.

    Queries, keys and values are one tensor and three matrices (muon_split_qkv); gate and up are one of either.
    """
    model, optimizer = workload.model, workload.optimizer
    if not optimizer.iterations:
        return {}

    def of(matrices: Iterable[Sides]) -> float:
        return sum(muon.orthogonal_flops(*sides, optimizer.iterations) for sides in matrices)

    moe = model.moe
    mixing = _mixing(model)
    mlp = _mlp(model, model.hidden, model.ffn) if blocks.feeding(model, "mlp") else []
    shared = _mlp(model, model.hidden, moe.shared_ffn) if moe and moe.shared_ffn else []
    expert = _mlp(model, moe.latent or model.hidden, moe.ffn) if moe else []
    dense = [*_tensors(model), *mlp, *shared]
    return {
        "orthogonal": 1.0,
        "attention_orthogonal": sum(count * of([sides]) for count, sides in mixing) / len(blocks.blocks(model)),
        "mlp_orthogonal": of(mlp),
        "shared_orthogonal": of(shared),
        "expert_orthogonal": of(expert),
        "largest_matrix": float(max((rows * columns for rows, columns in dense), default=0)),
        "largest_orthogonal": max(
            (of([sides]) for sides in [*(sides for _, sides in mixing), *mlp, *shared]), default=0.0
        ),
        "largest_expert_matrix": float(max((rows * columns for rows, columns in expert), default=0)),
        "largest_expert_orthogonal": max((of([sides]) for sides in expert), default=0.0),
        "outside_state_bytes": optimizer.outside_state_bytes - optimizer.state_bytes,
        "outside_step_bytes": optimizer.outside_step_bytes - optimizer.step_bytes,
    }


def _mlp(model: Model, hidden: int, ffn: int) -> list[Sides]:
    return [(hidden, (1 + model.gated) * ffn), (ffn, hidden)]


def _mixing(model: Model) -> list[tuple[int, Sides]]:
    """How many blocks have each matrix of attention or recurrence."""
    whole = blocks.attending_to_all(model)
    matrices = [(blocks.attending(model) - whole, (i, o)) for _, i, o in attention_matrices(model)]
    if model.full is not None:
        matrices += [(whole, (i, o)) for _, i, o in attention_matrices(model, whole=True)]
    if model.compressed is not None:
        csa, hca = compressed.entries(model, model.compressed)
        matrices += [(blocks.named(model, "csa"), sides) for sides in csa]
        matrices += [(blocks.named(model, "hca"), sides) for sides in hca]
    if (recurrence := recurrent.block(model)) is not None:
        matrices += [
            (blocks.recurring(model), sides)
            for sides in ((model.hidden, recurrence.first), (recurrence.inner, model.hidden))
        ]
    return [(count, sides) for count, sides in matrices if count]


def _tensors(model: Model) -> list[Sides]:
    """Weight tensors as they are kept: queries, keys and values of one width are one tensor."""
    tensors: list[Sides] = []
    for kind in {True: [False, True], False: [False]}[model.full is not None]:
        if not (blocks.attending(model) - (0 if kind else blocks.attending_to_all(model))):
            continue
        *first, last = [(rows, columns) for _, rows, columns in attention_matrices(model, whole=kind)]
        joined = [(model.hidden, sum(columns for _, columns in first))]
        tensors += [last, *(first if model.latent or model.compressed else joined)]
    if (recurrence := recurrent.block(model)) is not None:
        tensors += [(model.hidden, recurrence.first), (recurrence.inner, model.hidden)]
    return tensors
