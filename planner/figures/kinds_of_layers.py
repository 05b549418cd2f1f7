"""The kinds of a model's layers, as figures of the cost model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.cost import flops
from planner.cost.figures import Pattern, Shape
from planner.models import blocks
from planner.models.parameters import parameters
from planner.schema.hardware import Runtime
from planner.schema.workload import Workload

OF_A_KIND = (
    *("moe_share", "attention_share", "recurrent_share", "mixing_share", "idle_share"),
    *("kv_heads", "qk_dim", "v_dim", "attended", "windowed", "reused_keys"),
    *("index_products", "index_width", "entries_kept", "attention_parameters", "attention_orthogonal"),
)
"""Figures that layers of one kind have for themselves; of the model they are means."""


def pattern(
    workload: Workload, whole: Shape, figures: Callable[[Workload, Runtime | None], Shape], anywhere: bool
) -> Pattern:
    """The kinds of a model's layers in order; modules of multi-token prediction are like the last (Megatron-LM
    core_v0.16.1, core/models/gpt/gpt_layer_specs.py, get_gpt_mtp_block_spec).

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
