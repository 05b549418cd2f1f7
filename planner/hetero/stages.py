"""What a pipeline stage of so many layers costs on a pool: time, memory and parameters from the one cost model.

A stage of n layers that has d stages from itself to the end is priced as that stage of the even pipeline of d stages
with n layers each: time and memory of a stage depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import compute, elements, measured, memory, pipeline, sharding
from planner.cost.evaluate import passes
from planner.cost.figures import Array, Grid, Layout, Options
from planner.cost.pipeline import StageSplit
from planner.space.axes import Recompute
from planner.space.grid import Figures, measured_at

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
        """Of one stage in all pipelines of the bundle."""
        return self.tp * self.cp * self.width


@dataclass(frozen=True, slots=True)
class Switches:
    """What the runtime can do beside compute."""

    sequence_parallel: bool
    tp_overlap: bool
    dp_overlap: bool
    zero: bool


@dataclass(frozen=True, slots=True)
class Priced:
    """Stages on one pool: ways on the first axis, recomputation policies on the second. Seconds, bytes, parameters."""

    ways: StageConfigs
    policies: tuple[Recompute, ...]
    layer: Array
    """Forward and backward of one layer and micro-batch, shape (ways, policies)."""
    forward: Array
    backward: Array
    """The two shares of it, shape (ways, policies)."""
    leading: Array
    """What the leading dense layers add to a stage that holds them, shape (ways, policies)."""
    least: int
    """Layers that the first stage must hold: the leading dense ones."""
    embedding: Array
    head: Array
    """Both passes of the ends, shape (ways,)."""
    head_backward: Array
    hop: Array
    """Transfers between two stages of this pool, shape (ways,)."""
    hop_bytes: Array
    """Bytes of one such transfer, for a link to another pool."""
    max_layers: Array
    """Most layers that fit, shape (ways, policies, roles, depth); depth d - 1 has d stages to the end."""
    dense: Array
    experts: Array
    """Parameters of one layer on a rank, shape (ways,)."""
    ends: Array
    """Dense parameters that a role adds, shape (ways, roles)."""
    lead_dense: Array
    lead_experts: Array
    """What the leading layers add to the first stage's, shape (ways,)."""
    update: Array
    """Seconds of the optimizer step for one dense parameter, and for one of an expert, shape (ways, 2)."""


def grid(figures: Figures, ways: StageConfigs, switches: Switches, precision: str) -> Grid:
    """One even pipeline stage for every way, as columns."""
    sequence_parallel = (ways.tp > 1) * float(switches.sequence_parallel)
    options = Options(
        recompute_layers=0.0,
        recompute_selective=0.0,
        recompute_modules=0.0,
        recompute_offloaded=0.0,
        sequence_parallel=sequence_parallel,
        tp_overlap=sequence_parallel * float(switches.tp_overlap),
        zero=(ways.width * ways.cp > 1) * float(switches.zero),
        zero_in_node=0.0,
        dp_overlap=float(switches.dp_overlap),
        p2p_overlap=0.0,
        pp_inner=0.0,
        offload=0.0,
    )
    layout = Layout(
        tp=ways.tp,
        pp=np.ones_like(ways.tp),
        vpp=1.0,
        cp=ways.cp,
        ep=ways.ep,
        etp=ways.etp,
        dp=ways.width,
        micro=ways.micro,
        batch=ways.width * ways.micro * ENDLESS,
    )
    return Grid(
        shape=figures.shape,
        device=figures.devices[precision],
        network=figures.network,
        stack=figures.stack,
        layout=layout,
        options=options,
        measured=measured_at(figures, (precision,), layout, figures.devices[precision]),
    )


def priced(
    figures: Figures,
    ways: StageConfigs,
    switches: Switches,
    precision: str,
    policies: Sequence[Recompute],
    depth: int,
    usable: float,
) -> Priced:
    """Prices every way under every policy, for pipelines of up to `depth` stages; peaks may reach `usable` bytes."""
    flat = grid(figures, ways, switches, precision)
    known = passes(flat)
    leading, body = known.layers
    wide = _with_policies(flat, policies)
    times = [pipeline.layer_time(wide, _column(layer)) for layer in (leading, body)]
    shape = (len(ways.tp), len(policies))
    layer = np.broadcast_to(times[1].forward + times[1].backward, shape)
    lead = int(flat.shape.leading_dense)
    extra = np.broadcast_to(times[0].forward + times[0].backward, shape) - layer
    embedding, head = known.ends
    apart = replace(flat.layout, pp=np.full(shape[:1], 2.0), dp=flat.network.accelerators / (2.0 * ways.tp * ways.cp))
    parameters = _parameters(flat, lead)
    return Priced(
        ways,
        tuple(policies),
        layer,
        np.broadcast_to(times[1].forward, shape),
        np.broadcast_to(times[1].backward, shape),
        lead * extra,
        lead,
        np.broadcast_to(embedding.forward + embedding.backward, shape[:1]),
        np.broadcast_to(head.forward + head.backward, shape[:1]),
        np.broadcast_to(head.backward, shape[:1]),
        np.broadcast_to(pipeline.transfer(replace(flat, layout=apart), body), shape[:1]),
        pipeline.transfer_bytes(flat),
        _max_layers(flat, policies, depth, lead, usable),
        *parameters,
        _update(flat),
    )


def _with_policies(of: Grid, policies: Sequence[Recompute]) -> Grid:
    """Ways on the first axis, policies on a second one."""
    columns = {n: np.reshape(getattr(of.layout, n), (-1, 1)) for n in ("tp", "pp", "cp", "ep", "etp", "dp", "micro")}
    layout = replace(of.layout, **columns, batch=np.reshape(of.layout.batch, (-1, 1)))
    names = ("sequence_parallel", "tp_overlap", "zero")
    options = replace(of.options, **{n: np.reshape(getattr(of.options, n), (-1, 1)) for n in names})
    shares = {
        "recompute_layers": np.array([[p.layers for p in policies]]),
        "recompute_selective": np.array([[p.selective for p in policies]]),
    }
    return replace(of, layout=layout, options=replace(options, **shares))


def _column(layer: compute.Layer) -> compute.Layer:
    forward, backward, selective = (np.reshape(x, (-1, 1)) for x in (layer.forward, layer.backward, layer.selective))
    return compute.Layer(forward, backward, selective, {})


def _parameters(of: Grid, lead: int) -> tuple[Array, Array, Array, Array, Array]:
    """Parameters of a layer (dense, experts), of the ends by role, and what leading layers add (dense, experts)."""
    n = len(of.layout.tp)
    bare = replace(of, shape=replace(of.shape, leading_dense=0.0))
    one, two = (_held(bare, 1.0, 2.0, size) for size in (1.0, 2.0))
    dense = np.broadcast_to(two[1].dense - one[1].dense, (n,))
    experts = np.broadcast_to(two[1].experts - one[1].experts, (n,))
    alone = _held(bare, 1.0, 1.0, 1.0)[0].dense - dense
    ends = np.stack([np.broadcast_to(x, (n,)) for x in (alone, one[0].dense - dense, 0.0, one[2].dense - dense)], -1)
    size = float(max(lead, 1))
    with_lead, without = _held(of, 1.0, 2.0, size)[0], _held(bare, 1.0, 2.0, size)[0]
    added = with_lead.dense - without.dense, with_lead.experts - without.experts
    return dense, experts, ends, np.broadcast_to(added[0], (n,)), np.broadcast_to(added[1], (n,))


def _held(
    of: Grid, vpp: float, pp: float, n: float
) -> tuple[sharding.ShardedState, sharding.ShardedState, sharding.ShardedState]:
    even = replace(of, shape=replace(of.shape, layers=n * pp), layout=replace(of.layout, pp=pp, vpp=vpp))
    return sharding.stage_parameters(even, StageSplit(n, n, n))


def _update(of: Grid) -> Array:
    """Seconds of the optimizer step for one parameter that every rank holds, and for one of a routed expert."""
    r, s = sharding.replicas(of), of.shape
    on = of.options.zero >= 1
    each = elements.step_bytes(of) / of.device.memory_rate * s.trained * measured.update_factor(of)
    shards = [np.where(on, x, 1.0) for x in (r.dense_shards, r.expert_shards)]
    return np.stack([np.broadcast_to(each / x, (len(of.layout.tp),)) for x in shards], -1)


def with_policy(of: Grid, policy: Recompute) -> Grid:
    """The same ways under one recomputation policy."""
    return replace(
        of, options=replace(of.options, recompute_layers=policy.layers, recompute_selective=policy.selective)
    )


def with_layout(of: Grid, layout: Layout) -> Grid:
    """The same figures under another layout."""
    return replace(of, layout=layout)


def stage_memory(of: Grid, layers: Array, depth: Array, role: str) -> memory.Memory:
    """Bytes of a stage of that role with `layers` layers and `depth` stages from itself to the end."""
    index, stages = {
        "alone": (0, 1.0 + 0.0 * depth),
        "first": (0, depth),
        "middle": (1, depth + 1.0),
        "last": (2, 2.0 + 0.0 * depth),
    }[role]
    even = replace(of, shape=replace(of.shape, layers=layers * stages), layout=replace(of.layout, pp=stages))
    return memory.stages(even, StageSplit(layers, layers, layers))[index]


def _max_layers(of: Grid, policies: Sequence[Recompute], depth: int, lead: int, usable: float) -> Array:
    """Most layers within the usable memory: bytes grow by the same for every layer."""
    ways, count = len(of.layout.tp), len(policies)

    def spread(value: object) -> object:
        return np.reshape(value, (-1, 1, 1)) if isinstance(value, np.ndarray) and value.ndim == 1 else value

    layout = Layout(**{n: spread(getattr(of.layout, n)) for n in Layout.__dataclass_fields__})
    options = Options(**{n: spread(getattr(of.options, n)) for n in Options.__dataclass_fields__})
    shares = [np.array([getattr(p, n) for p in policies], dtype=float)[:, None] for n in ("layers", "selective")]
    options = replace(options, recompute_layers=shares[0], recompute_selective=shares[1])
    wide = replace(of, layout=layout, options=options)
    depths = np.arange(1, depth + 1, dtype=float)
    found = np.zeros((ways, count, len(ROLES), depth))
    for index, role in enumerate(ROLES):
        least = float(lead + 1 if role in ("alone", "first") else 1)
        small, large = (stage_memory(wide, np.asarray(n), depths, role).total for n in (least, least + 1.0))
        each = np.maximum(large - small, 1.0)
        fits = least + np.floor((usable - small) / each * (1.0 + 1e-12))
        found[:, :, index, :] = np.broadcast_to(np.where(fits >= 1, fits, 0.0), (ways, count, depth))
    return found
