"""What a pipeline stage of so many layers costs on a pool: time, memory and parameters from the one cost model.

A stage of n layers that has d stages from itself to the end is priced as that stage of the even pipeline of d stages
with n layers each: time and memory of a stage depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.axes import OPTION_AXES, PlanAxis
from planner.axes.options import OptionValues
from planner.axes.table import CP_ALGORITHM, SEQUENCE_PARALLEL, TP_OVERLAP, ZERO
from planner.axes.values import Recompute
from planner.cost import data_parallel, elements, layer_times, pipeline, stage_memory, tower, transformer
from planner.cost.evaluate import passes
from planner.cost.figures import Array, Grid, Layout, Options
from planner.cost.pipeline import StageSplit
from planner.space.cost_grid import Figures, measured_at

SHARED = (*(axis for axis in OPTION_AXES if axis.of_groups), CP_ALGORITHM)
"""Axes on which all groups of pipelines of a plan have one value."""
ROLES = ("alone", "first", "middle", "last")
ENDLESS = float(1 << 20)
"""Micro-batches of a step that is priced before their number is known: more than any pipeline is deep."""


@dataclass(frozen=True, slots=True)
class StageConfigs:
    """Ways to run a stage on one pool, as columns of equal length."""

    tp: Array
    cp: Array
    ep: Array
    etp: Array
    micro: Array
    """Sequences of a micro-batch."""
    width: Array
    """Pipelines side by side that share optimizer states (ZeRO 1) and experts."""

    @property
    def accelerators(self) -> Array:
        """Accelerators of one stage in all pipelines of the bundle, ``tp cp width``."""
        return self.tp * self.cp * self.width


@dataclass(frozen=True, slots=True)
class Priced:
    """Stages on one pool, shape (configurations, recomputation policies). Seconds, bytes, parameters."""

    configs: StageConfigs
    policies: tuple[Recompute, ...]
    layer: Array
    """Forward and backward of one layer and micro-batch, shape (configurations, policies)."""
    forward: Array
    backward: Array
    """The two shares of it, shape (configurations, policies)."""
    leading: Array
    """What the leading dense layers add to a stage that holds them, shape (configurations, policies)."""
    least: int
    """Layers that the first stage must hold: the leading dense ones."""
    embedding: Array
    tower: Array
    """Seconds of a frozen tower's forward pass, which are part of `embedding`."""
    head: Array
    """Both passes of the ends, shape (configurations,)."""
    head_backward: Array
    hop: Array
    """Transfers between two stages of this pool, shape (configurations,)."""
    hop_bytes: Array
    """Bytes of one such transfer, for a link to another pool."""
    max_layers: Array
    """Most layers that fit, shape (configurations, policies, roles, depth); depth d - 1 has d stages to the end."""
    dense: Array
    experts: Array
    """Parameters of one layer on a rank, shape (configurations,)."""
    ends: Array
    """Dense parameters that a role adds, shape (configurations, roles)."""
    lead_dense: Array
    lead_experts: Array
    """What the leading layers add to the first stage's, shape (configurations,)."""
    update: Array
    """Seconds of the optimizer step for one dense parameter, and for one of an expert, shape (configurations, 2)."""


def ranks_of_options(tp: Any, cp: Any, shards: Any) -> dict[PlanAxis[Any], Any]:
    """Axis -> how many ranks its option is for, which is neutral on one of them; options of other axes are for any.

    Args:
        tp: Tensor-parallel ranks.
        cp: Context-parallel ranks.
        shards: Ranks that share optimizer states: context-parallel ones as well as pipelines side by side.
    """
    return {SEQUENCE_PARALLEL: tp, TP_OVERLAP: tp, CP_ALGORITHM: cp, ZERO: shards}


def option_figures(options: OptionValues, tp: Array, cp: Array, width: Array) -> dict[str, Any]:
    """Figures of options that groups share, as far as degrees use them.

    Args:
        options: Values on all axes.
        tp: Tensor-parallel ranks, of any shape.
        cp: Context-parallel ranks, same shape.
        width: Pipelines side by side, same shape.
    """
    ranks = ranks_of_options(tp=tp, cp=cp, shards=width * cp)
    return {
        name: figure * (ranks[axis] > 1 if axis in ranks else 1.0)
        for axis in SHARED
        for name, figure in axis.figures(options[axis]).items()
        if figure
    }


def stage_columns(figures: Figures, configs: StageConfigs, options: OptionValues, precision: str) -> Grid:
    """One even pipeline stage for every configuration, as the columns of a grid.

    Args:
        figures: Model, accelerator and network of the pool, in SI.
        configs: Degrees, micro-batch and width, each of shape (configurations,).
        options: What all groups have in common where their degrees use it.
        precision: Of the products.
    """
    layout = Layout(
        tp=configs.tp,
        pp=np.ones_like(configs.tp),
        vpp=1.0,
        cp=configs.cp,
        ep=configs.ep,
        etp=configs.etp,
        dp=configs.width,
        micro=configs.micro,
        batch=configs.width * configs.micro * ENDLESS,
    )
    return Grid(
        shape=figures.shape,
        device=figures.devices[precision],
        network=figures.network,
        stack=figures.stack,
        layout=layout,
        options=Options(**option_figures(options, tp=configs.tp, cp=configs.cp, width=configs.width)),
        measured=measured_at(figures, (precision,), layout, figures.devices[precision]),
    )


def priced(
    figures: Figures,
    configs: StageConfigs,
    options: OptionValues,
    precision: str,
    policies: Sequence[Recompute],
    depth: int,
    usable: float,
) -> Priced:
    """Prices every way under every policy, for pipelines of up to `depth` stages; peaks may reach `usable` bytes."""
    flat = stage_columns(figures, configs, options, precision)
    known = passes(flat)
    leading, body = known.layers
    wide = _with_policies(flat, policies)
    times = [pipeline.layer_time(wide, _column(layer)) for layer in (leading, body)]
    shape = (len(configs.tp), len(policies))
    layer = np.broadcast_to(times[1].forward + times[1].backward, shape)
    lead = int(flat.shape.leading_dense)
    extra = np.broadcast_to(times[0].forward + times[0].backward, shape) - layer
    embedding, head = known.ends
    apart = replace(
        flat.layout, pp=np.full(shape[:1], 2.0), dp=flat.network.accelerators / (2.0 * configs.tp * configs.cp)
    )
    parameters = _parameters(flat, lead)
    return Priced(
        configs,
        tuple(policies),
        layer,
        np.broadcast_to(times[1].forward, shape),
        np.broadcast_to(times[1].backward, shape),
        lead * extra,
        lead,
        np.broadcast_to(embedding.forward + embedding.backward, shape[:1]),
        np.broadcast_to(tower.seconds(flat).forward if flat.shape.tower_parameters else 0.0, shape[:1]),
        np.broadcast_to(head.forward + head.backward, shape[:1]),
        np.broadcast_to(head.backward, shape[:1]),
        np.broadcast_to(pipeline.transfer(replace(flat, layout=apart), body.forward + body.backward), shape[:1]),
        pipeline.transfer_bytes(flat),
        _max_layers(flat, policies, depth, lead, usable),
        *parameters,
        _update(flat),
    )


def _with_policies(grid: Grid, policies: Sequence[Recompute]) -> Grid:
    """Ways on the first axis, policies on a second one."""
    columns = {n: np.reshape(getattr(grid.layout, n), (-1, 1)) for n in ("tp", "pp", "cp", "ep", "etp", "dp", "micro")}
    layout = replace(grid.layout, **columns, batch=np.reshape(grid.layout.batch, (-1, 1)))
    figures = {n: getattr(grid.options, n) for n in Options.__dataclass_fields__}
    options = Options(**{n: np.reshape(x, (-1, 1)) if isinstance(x, np.ndarray) else x for n, x in figures.items()})
    shares = {
        "recompute_layers": np.array([[p.layers for p in policies]]),
        "recompute_selective": np.array([[p.selective for p in policies]]),
    }
    return replace(grid, layout=layout, options=replace(options, **shares))


def _column(layer: transformer.Layer) -> transformer.Layer:
    forward, backward, selective, unread = (
        np.reshape(x, (-1, 1)) for x in (layer.forward, layer.backward, layer.selective, layer.unread)
    )
    return transformer.Layer(forward, backward, selective, {}, unread=unread)


def _parameters(grid: Grid, lead: int) -> tuple[Array, Array, Array, Array, Array]:
    """Parameters of a layer (dense, experts), of the ends by role, and what leading layers add (dense, experts)."""
    n = len(grid.layout.tp)
    bare = replace(grid, shape=replace(grid.shape, leading_dense=0.0))
    one, two = (_held(bare, 1.0, 2.0, size) for size in (1.0, 2.0))
    dense = np.broadcast_to(two[1].dense - one[1].dense, (n,))
    experts = np.broadcast_to(two[1].experts - one[1].experts, (n,))
    alone = _held(bare, 1.0, 1.0, 1.0)[0].dense - dense
    ends = np.stack([np.broadcast_to(x, (n,)) for x in (alone, one[0].dense - dense, 0.0, one[2].dense - dense)], -1)
    size = float(max(lead, 1))
    with_lead, without = _held(grid, 1.0, 2.0, size)[0], _held(bare, 1.0, 2.0, size)[0]
    added = with_lead.dense - without.dense, with_lead.experts - without.experts
    return dense, experts, ends, np.broadcast_to(added[0], (n,)), np.broadcast_to(added[1], (n,))


def _held(grid: Grid, vpp: float, pp: float, n: float) -> tuple[data_parallel.ShardedState, ...]:
    even = replace(grid, shape=replace(grid.shape, layers=n * pp), layout=replace(grid.layout, pp=pp, vpp=vpp))
    return data_parallel.stage_parameters(even, StageSplit(n, n, n))


def _update(grid: Grid) -> Array:
    """Seconds of the optimizer step for one parameter that every rank holds, and for one of a routed expert."""
    r = data_parallel.replicas(grid)
    s = grid.shape
    on = grid.options.zero >= 1
    step_s = elements.step_bytes(grid) / grid.device.memory_rate * s.trained * layer_times.update_factor(grid)
    shards = [np.where(on, x, 1.0) for x in (r.dense_shards, r.expert_shards)]
    return np.stack([np.broadcast_to(step_s / x, (len(grid.layout.tp),)) for x in shards], -1)


def with_policy(grid: Grid, policy: Recompute) -> Grid:
    """A grid's columns under one recomputation policy."""
    return replace(
        grid, options=replace(grid.options, recompute_layers=policy.layers, recompute_selective=policy.selective)
    )


def with_layout(grid: Grid, layout: Layout) -> Grid:
    """A grid's columns under another layout."""
    return replace(grid, layout=layout)


def memory_of_stage(grid: Grid, layers: Array, depth: Array, role: str) -> stage_memory.Memory:
    """Bytes on an accelerator, shape (configurations,), of a stage with `layers` layers, the `depth`-th from the end.

    `role` is one of :data:`ROLES`.
    """
    index, stages = {
        "alone": (0, 1.0 + 0.0 * depth),
        "first": (0, depth),
        "middle": (1, depth + 1.0),
        "last": (2, 2.0 + 0.0 * depth),
    }[role]
    lead = grid.shape.leading_dense if index == 0 else 0.0
    shape = replace(grid.shape, layers=layers * stages, leading_dense=lead)
    even = replace(grid, shape=shape, layout=replace(grid.layout, pp=stages))
    return stage_memory.stages(even, StageSplit(layers, layers, layers))[index]


def _max_layers(grid: Grid, policies: Sequence[Recompute], depth: int, lead: int, usable: float) -> Array:
    """Most layers within the usable memory: bytes grow by the same for every layer."""
    configs = len(grid.layout.tp)
    count = len(policies)

    def spread(value: object) -> object:
        return np.reshape(value, (-1, 1, 1)) if isinstance(value, np.ndarray) and value.ndim == 1 else value

    layout = Layout(**{n: spread(getattr(grid.layout, n)) for n in Layout.__dataclass_fields__})
    options = Options(**{n: spread(getattr(grid.options, n)) for n in Options.__dataclass_fields__})
    shares = [np.array([getattr(p, n) for p in policies], dtype=float)[:, None] for n in ("layers", "selective")]
    options = replace(options, recompute_layers=shares[0], recompute_selective=shares[1])
    wide = replace(grid, layout=layout, options=options)
    depths = np.arange(1, depth + 1, dtype=float)
    max_layers = np.zeros((configs, count, len(ROLES), depth))
    for index, role in enumerate(ROLES):
        least = float(lead + 1 if role in ("alone", "first") else 1)
        small, large = (memory_of_stage(wide, np.asarray(n), depths, role).total for n in (least, least + 1.0))
        layer_bytes = np.maximum(large - small, 1.0)
        fits = least + np.floor((usable - small) / layer_bytes * (1.0 + 1e-12))
        max_layers[:, :, index, :] = np.broadcast_to(np.where(fits >= 1, fits, 0.0), (configs, count, depth))
    return max_layers
