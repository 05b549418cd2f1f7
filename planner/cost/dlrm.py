"""Step time of a recommender: model-parallel embedding tables, data-parallel MLPs, an all-to-all between them.

Tables are spread evenly over all ranks (by table, column or row), so that a rank serves ``1/n`` of the lookups of the
whole batch; pooled vectors go to the ranks that own the samples by an all-to-all forward, their gradients back by
another. MLPs are replicated and their gradients all-reduced. The input pipeline is not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from planner.cost import collective_times
from planner.cost.expanded_memory import Far
from planner.cost.figures import Device, Figure, Network
from planner.cost.other_families import Software, exposed, stretched
from planner.cost.products import LayerPart, product_time
from planner.schema.workload import Recommender

_KERNELS_PER_LAYER = 6.0
"""Kernels of a dense layer's forward and backward pass: three products, activation, its gradient, bias gradient."""
_KERNELS = 40.0
"""The others: index exchange, gathers, sorting of touched rows, interaction, loss, optimizers, concatenations."""
_STEP_BYTES = 18.0
"""Traffic of the update of a dense parameter: fp32 master and gradient, 16-bit copy, part of a state (SGD, Adagrad)."""
DISTINCT = 0.3
"""Distinct rows of a batch over its lookups: popular rows come from caches, and their
gradients are added up before one update. Assumed."""
INDEX = 8.0
"""Bytes of an index into a table."""
Sharding = Literal["even", "table", "column", "row"]
"""How tables are cut over ranks: as evenly as a planner can, or whole, by columns, by rows."""


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """One dense layer."""

    name: str
    inputs: int
    outputs: int
    first: bool = False
    """Its input needs no gradient."""


def vectors(model: Recommender) -> int:
    """Vectors that a sample brings to the interaction: one a table and the bottom MLP's output."""
    return len(model.tables) + 1


def interaction_width(model: Recommender) -> int:
    """Width of what the top MLP reads: all vectors joined (cross network), or pairwise dots beside the bottom's
    output, ``v (v - 1) / 2 + d``, rounded up to a multiple of 8 as implementations pad it.
    """
    if model.cross_layers:
        return vectors(model) * model.embedding
    dots = vectors(model) * (vectors(model) - 1) // 2 + model.embedding
    return -(-dots // 8) * 8


def dense_layers(model: Recommender) -> tuple[DenseLayer, ...]:
    """Bottom MLP, the factors ``V`` and ``U`` of every cross layer, top MLP."""
    bottom = (model.dense_features, *model.bottom)
    width = interaction_width(model)
    top = (width, *model.top)
    cross = [
        layer
        for i in range(1, model.cross_layers + 1)
        for layer in (
            DenseLayer(f"cross {i} V", width, model.cross_rank),
            DenseLayer(f"cross {i} U", model.cross_rank, width),
        )
    ]
    return (
        *(DenseLayer(f"bottom {i}", a, b, first=i == 1) for i, (a, b) in enumerate(pairwise(bottom), 1)),
        *cross,
        *(DenseLayer(f"top {i}", a, b) for i, (a, b) in enumerate(pairwise(top), 1)),
    )


def dense_parameters(model: Recommender) -> int:
    """Weights and biases of the dense layers; a cross layer has one bias (of the whole width)."""
    weights = sum(layer.inputs * layer.outputs for layer in dense_layers(model))
    mlps = sum(model.bottom) + sum(model.top)
    return weights + mlps + model.cross_layers * interaction_width(model)


def step_flops(model: Recommender, samples: Figure) -> Figure:
    """FLOPs of a step in the dense layers: forward, weight gradient, and input gradient but for the first layer:
    ``2 x 3 x inputs x outputs``.
    """
    return (
        2.0 * samples * sum((2 if layer.first else 3) * layer.inputs * layer.outputs for layer in dense_layers(model))
    )


def embedding_parameters(model: Recommender) -> int:
    """Elements of all tables: ``sum(rows) d``."""
    return sum(model.tables) * model.embedding


def embedding_bytes(model: Recommender) -> int:
    """Bytes of all tables, without optimizer state: ``sum(rows) d e``."""
    return embedding_parameters(model) * model.table_bytes


def dealt(weights: Sequence[float], ranks: int) -> float:
    """Largest share of a rank over the mean where things of some weights are dealt whole, heaviest first, each to the
    rank that has least.
    """
    held = [0.0] * ranks
    for weight in sorted(weights, reverse=True):
        held[held.index(min(held))] += weight
    return max(held) * ranks / sum(weights)


def imbalance(model: Recommender, ranks: int, by: Sharding, weights: Sequence[float]) -> float:
    """Largest share of a rank over the mean, of what has those weights by table: 1 but for whole tables, and for
    columns where a width of d does not divide, ``ceil(d / n) n / d``.
    """
    if by == "table":
        return dealt(weights, ranks)
    return -(-model.embedding // ranks) * ranks / model.embedding if by == "column" else 1.0


def rank_bytes(model: Recommender, ranks: int, by: Sharding = "even") -> float:
    """Bytes of tables and their optimizer state on the fullest rank."""
    mean_bytes = embedding_bytes(model) * (1.0 + model.state_bytes / model.table_bytes) / ranks
    return mean_bytes * imbalance(model, ranks, by, model.tables)


def exchange_bytes(
    model: Recommender, element: Figure, samples: Figure, ranks: Figure = 1, by: Sharding = "even"
) -> Figure:
    """Send buffer of one rank's all-to-all that owns `samples`: ``samples tables d e``; as much forward as backward.

    Cut by rows, a pooled vector is the sum of partial ones from up to ``min(lookups, n)`` ranks: each of them is sent.
    """
    if by == "even":
        return samples * len(model.tables) * model.embedding * element
    sent = sum(min(looked_up, ranks) for looked_up in model.lookups) if by == "row" else len(model.tables)
    return samples * sent * model.embedding * element * imbalance(model, int(ranks), by, [1.0] * len(model.tables))


def index_bytes(model: Recommender, samples: Figure, ranks: Figure, by: Sharding) -> Figure:
    """Send buffer of one rank's exchange of indices: ``8 samples lookups``, to every rank where each has columns of
    all tables. Cut evenly, it is among what kernels take.
    """
    once = INDEX * samples * sum(model.lookups)
    return 0.0 * samples if by == "even" else once * (ranks if by == "column" else 1.0)


def gather_bytes(
    model: Recommender, element: Figure, samples: Figure, ranks: Figure = 1, by: Sharding = "even"
) -> LayerPart:
    """Memory traffic of the busiest rank's tables; the mean rank serves the lookups of `samples` (batch over ranks).

    Forward: distinct rows read (caches serve the other lookups), pooled vectors written. Backward with the sparse
    update: gradients of vectors read; each distinct row and its optimizer state read and written.
    """
    rows = DISTINCT * samples * sum(model.lookups) * model.embedding
    pooled = samples * len(model.tables) * model.embedding * element
    traffic = LayerPart(
        rows * model.table_bytes + pooled, pooled + 2.0 * rows * (model.table_bytes + model.state_bytes)
    )
    return traffic if by == "even" else traffic.scaled(imbalance(model, int(ranks), by, model.lookups))


def dense_by_pass(
    layer: DenseLayer, device: Device, software: Software, samples: Figure
) -> tuple[Figure, Figure, Figure]:
    """Seconds of a dense layer's product and activation forward, of its input gradient and of its weight gradient.

    A weight gradient's inner dimension is the batch: it is split over the units that few output tiles leave idle.
    """
    wide = replace(device, element=software.element)
    split = replace(wide, quantisation=0.0)
    a = float(layer.inputs)
    b = float(layer.outputs)
    around = samples * b * software.element * software.vector / device.memory_rate
    inward = 0.0 * samples if layer.first else product_time(wide, samples, a, b)
    return (
        product_time(wide, samples, b, a) + 2.0 * around,
        inward + 3.0 * around,
        product_time(split, a, b, samples),
    )


def dense(model: Recommender, device: Device, software: Software, samples: Figure) -> LayerPart:
    """Seconds of the dense layers' products and activations on one rank."""
    total = LayerPart(0.0 * samples, 0.0 * samples)
    for layer in dense_layers(model):
        forward, inward, weight = dense_by_pass(layer, device, software, samples)
        total = total + LayerPart(forward, inward + weight)
    return total


def interaction(model: Recommender, device: Device, software: Software, samples: Figure) -> LayerPart:
    """Seconds of joining vectors, bound by memory; fused kernels everywhere.

    Dots: vectors read and dots written; backward twice that. Cross layer ``x0 (U V x + b) + x``: two reads and a
    write of the whole width beside the product's own, backward twice that.
    """
    vector_bytes = samples * vectors(model) * model.embedding * software.element
    joined = vector_bytes + samples * interaction_width(model) * software.element
    forward = joined + 3.0 * model.cross_layers * vector_bytes
    backward = 2.0 * forward
    return LayerPart(forward / device.memory_rate, backward / device.memory_rate)


@dataclass(frozen=True, slots=True)
class TableCut:
    """How the embedding tables are spread."""

    ranks: Figure
    by: Sharding = "even"
    """What a rank holds of the tables."""
    far: Far | None = None
    """What share of the tables (its second operand) lies in expanded memory."""


def step_time(
    model: Recommender, device: Device, network: Network, software: Software, batch: Figure, cut: TableCut
) -> Figure:
    """Seconds a step takes.

    ``(gathers + all-to-alls + dense + interaction + all-reduce that shows) jitter + update + kernels + overhead``. The
    bottom MLP is too short to hide the all-to-all, so none of it is taken to be hidden.
    """
    ranks, by, far = cut.ranks, cut.by, cut.far
    samples = batch / ranks
    group = collective_times.group(network, ranks, 1.0)
    work = dense(model, device, software, samples) + interaction(model, device, software, samples)
    moved = gather_bytes(model, software.element, samples, ranks, by)
    looked_up = moved.forward + moved.backward
    reach = device.memory_rate * software.gather
    far_bytes = 0.0 if far is None else far.second * looked_up
    gathers = looked_up / reach if far is None else far.seconds(reach, looked_up - far_bytes, far_bytes)
    links = replace(network, scaleup=network.scaleup * software.exchange, nic=network.nic * software.exchange)
    sent = exchange_bytes(model, software.element, samples, ranks, by) * software.crossing
    once = collective_times.all_to_all(links, sent, group)
    indices = collective_times.all_to_all(links, index_bytes(model, samples, ranks, by), group)
    parameters = dense_parameters(model)
    reduce = collective_times.all_reduce(network, parameters * software.element, group)
    late = exposed(reduce, software.dp_overlap * work.backward, 1.0 / len(dense_layers(model)))
    kernels = (_KERNELS_PER_LAYER * len(dense_layers(model)) + _KERNELS) * software.kernel
    update = parameters * _STEP_BYTES / device.memory_rate
    busy = work.forward + work.backward + gathers + 2.0 * once + late + indices
    return stretched(network, software, busy + kernels) + update + software.step_overhead + 0.0 * np.asarray(batch)
