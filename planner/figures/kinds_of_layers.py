"""The kinds of a model's layers, and the matrices that Muon makes orthogonal, as figures of the cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from planner.cost import data_parallel, flops
from planner.cost.figures import Figure, Pattern, Shape
from planner.models import blocks, compressed, recurrent
from planner.models.parameters import attention_matrices, parameters
from planner.schema.hardware import Runtime
from planner.schema.workload import Model, Workload

OF_A_KIND = (
    *("moe_share", "attention_share", "recurrent_share", "mixing_share", "idle_share"),
    *("kv_heads", "qk_dim", "v_dim", "attended", "reused_keys", "index_products", "index_width", "entries_kept"),
    *("attention_parameters", "attention_orthogonal"),
)
"""Figures that layers of one kind have for themselves; of the model they are means."""


def pattern(
    workload: Workload, whole: Shape, figures: Callable[[Workload, Runtime | None], Shape], anywhere: bool
) -> Pattern:
    """The kinds of its layers in order, modules of multi-token prediction like the last (Megatron-LM core_v0.16.1,
    core/models/gpt/gpt_layer_specs.py, get_gpt_mtp_block_spec).

    Args:
        workload: Its model's blocks differ.
        whole: The model's figures.
        figures: What makes the figures of a workload.
        anywhere: Whether the runtime can cut stages between any two layers.
    """
    named = blocks.kinds(workload.model, workload.sequence)
    modules = workload.mtp_layers
    distinct = list(dict.fromkeys(named))
    kinds = tuple(_of_kind(workload, kind, whole, figures) for kind in distinct)
    return Pattern(
        kinds=kinds,
        order=tuple(distinct.index(kind) for kind in [*named, *named[-1:] * modules]),
        work=tuple(_more(kind, 2.0) - _more(kind, 1.0) for kind in kinds) if anywhere else (),
        head=float(flops.token_work(whole).head),
        last=max(modules, 1),
    )


def _more(kind: Shape, layers: float) -> float:
    """Multiply-adds of a token in so many layers."""
    work = flops.token_work(replace(kind, layers=layers))
    return float(work.products + work.scores + work.states)


def _of_kind(
    workload: Workload, kind: blocks.Kind, whole: Shape, figures: Callable[[Workload, Runtime | None], Shape]
) -> Shape:
    """The figures of a model as if all its layers were of one kind."""
    model = blocks.of_kind(workload.model, kind)
    whole_shape = figures(replace(workload, model=model), None)
    kind_fields = {name: getattr(whole_shape, name) for name in OF_A_KIND} | {"leading_dense": 0.0}
    if model.indexer and not kind[2]:
        index = parameters(model).index_per_layer
        kind_fields |= {"index_products": 0.0, "index_width": 0.0}
        kind_fields["attention_parameters"] = whole_shape.attention_parameters - index
    return replace(whole, **kind_fields)


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
        return sum(data_parallel.orthogonal_flops(*sides, optimizer.iterations) for sides in matrices)

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
    """As they are kept: queries, keys and values of one width are one tensor."""
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
