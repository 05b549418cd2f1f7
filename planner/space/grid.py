"""Open grids: legal layouts on the last axis, options on rectangular axes before it, in classes without invalid
corners.

Whether a layout has tensor-, data- or pipeline-parallel ranks decides which options exist for it; within such a class
every option goes with every row, so a class is a full rectangle: nothing to mask, and the candidates are exactly
counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.cost import experts, layer_times
from planner.cost.figures import (
    Device,
    Expansion,
    Figure,
    Grid,
    Layout,
    MeasuredLayers,
    Network,
    Shape,
    Stack,
    Times,
    mapped,
)
from planner.cost.figures import Options as OptionFigures
from planner.cost.nearness import Label
from planner.figures.matrix_formats import can_train_in
from planner.figures.own_runs import NearRuns
from planner.models import context
from planner.models.blocks import feeding
from planner.schema.hardware import Cluster, Runtime
from planner.schema.plan import ZeroScope, ZeroStage
from planner.schema.precisions import PRECISIONS
from planner.schema.workload import Model, Workload
from planner.space import dispatchers, offloading, split_schedules
from planner.space.axes import (
    ALONE,
    FOLDED,
    FULL,
    MODULES,
    NO_RECOMPUTE,
    NOWHERE,
    ONE_F_ONE_B,
    PLACED,
    RANK_ORDERS,
    SELECTIVE,
    SPLIT_SCHEDULES,
    WHOLE_MIXTURE,
    MemoryPlacement,
    OptionAxes,
    Recompute,
    Sharding,
    TensorMode,
    recompute,
)
from planner.space.layouts import Rows
from planner.space.pins import Pins
from planner.space.rules import context_shares, exchanges_overlap

Value = TypeVar("Value", bound=np.generic)
ZERO_STAGES: tuple[ZeroStage, ...] = (0, 1, 2, 3)
WIRED = "wired"
"""A row's machine, where `Figures` holds several networks (or networks and devices) as columns."""
OPTION_DIMENSIONS = (
    "precision",
    "recompute",
    "tensor",
    "sharding",
    "p2p_overlap",
    "pp_inner",
    "offload",
    "placement",
    "ep_overlap",
    "cp_algorithm",
    "offload_overlap",
    "activation_offload",
    "graphs",
    "schedule",
    "dispatcher",
)


@dataclass(frozen=True, slots=True)
class GridAxes:
    """The values of every option axis in one class, in order of preference: the first of equals wins."""

    precision: tuple[str, ...]
    recompute: tuple[Recompute, ...]
    tensor: tuple[TensorMode, ...]
    sharding: tuple[Sharding, ...]
    p2p_overlap: tuple[bool, ...]
    pp_inner: tuple[bool, ...]
    offload: tuple[float, ...]
    placement: tuple[MemoryPlacement, ...] = (NOWHERE,)
    ep_overlap: tuple[bool, ...] = (False,)
    """One value a block: with it, other layouts and options exist."""
    cp_algorithm: tuple[str, ...] = (ALONE,)
    offload_overlap: tuple[bool, ...] = (False,)
    activation_offload: tuple[tuple[str, ...], ...] = ((),)
    graphs: tuple[int, ...] = (0,)
    schedule: tuple[str, ...] = (ONE_F_ONE_B,)
    """Of these, too, one value a block."""
    dispatcher: tuple[str, ...] = (ALONE,)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each axis has."""
        return tuple(len(getattr(self, name)) for name in OPTION_DIMENSIONS)

    def at(self, index: Sequence[int]) -> OptionAxes:
        """The option tuple at one multi-index."""
        return OptionAxes(**{name: getattr(self, name)[i] for name, i in zip(OPTION_DIMENSIONS, index, strict=True)})


@dataclass(frozen=True, slots=True)
class Block:
    """One class: rows that share which options exist, and those options."""

    rows: Rows
    axes: GridAxes
    family: NDArray[np.intp]
    """One number a row, equal for rows that differ in micro-batch and interleaving only, across all blocks."""

    @property
    def height(self) -> int:
        """How many layouts (rows) it has."""
        return len(self.rows["tp"])

    @property
    def width(self) -> int:
        """How many combinations of options each row has."""
        return int(np.prod(self.axes.shape))

    @property
    def size(self) -> int:
        """Candidates: rows times options."""
        return self.height * self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a full array over the block, rows last."""
        return (*self.axes.shape, self.height)


def _on(runtime: Runtime, pins: Pins, axis: str, values: Sequence[bool]) -> list[bool]:
    """Switch values that the runtime has and the pin allows."""
    known = runtime.axes.get(axis, (False,))
    return [v for v in values if (known == "any" or v in known) and pins.allow(axis, v)]


LOST_BY_DELAYED = {"layernorm", "moe_act"}
"""Modules that delayed scaling excludes (Megatron-LM core_v0.16.1, transformer_config.py, lines 1241-1247)."""


def modules_of(model: Model) -> tuple[str, ...]:
    """Modules that the layers of a model have and that can be recomputed by themselves.

    Norms alone: those that no matrix product is fused with, before latents and before experts (Megatron-LM
    core_v0.16.1, core/models/gpt/gpt_layer_specs.py: elsewhere they are part of the product behind them).
    """
    experts, latents = model.moe is not None, model.latent is not None
    dense = feeding(model, "mlp") > 0
    there = {"layernorm": experts or latents, "moe_act": experts, "mla_up_proj": latents, "mlp": dense, "moe": experts}
    return tuple(module for module in MODULES if there[module])


def _policies(workload: Workload, runtime: Runtime, kinds: tuple[str, ...], pins: Pins) -> tuple[Recompute, ...]:
    known = runtime.axes.get("recompute", ("none",))
    plain = [p for p in (NO_RECOMPUTE, SELECTIVE, FULL) if known == "any" or p.name in known]
    if known == "any" or "block" in known:
        plain[-1:-1] = [recompute("block:0.25"), recompute("block:0.5"), recompute("block:0.75")]
    pinned = pins.bounds.get("recompute")
    if pinned is not None:
        asked = [recompute(name) for name in pinned.values if known == "any" or name.partition(":")[0] in known]
        able = set(modules_of(workload.model)) & set(runtime.recompute_modules)
        if "fp8-delayed" in kinds:
            able -= LOST_BY_DELAYED
        return tuple(policy for policy in asked if able.issuperset(policy.modules))
    return tuple(plain)


def precisions(cluster: Cluster, runtime: Runtime, pins: Pins) -> tuple[str, ...]:
    """Precisions that the accelerator and the runtime have and the pin allows; 16 bit alone unless pinned otherwise.

    fp8 changes numerics as well as speed, so it is offered, not assumed: a pin ``precision=fp8`` (or ``--precision``)
    asks for it.
    """
    known = runtime.axes.get("precision", ("bf16",))
    possible = [p for p in PRECISIONS if can_train_in(cluster.accelerator, p) and (known == "any" or p in known)]
    if "precision" in pins:
        return tuple(p for p in possible if pins.allow("precision", p))
    return tuple(possible[:1])


def blocks(rows: Rows, workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins) -> Iterator[Block]:
    """The classes of the space, largest questions first answered: do experts' exchanges overlap?, tp > 1?, dp cp > 1?,
    pp: none, plain, interleaved; then those with weight gradients apart.
    """
    kinds = precisions(cluster, runtime, pins)
    policies = _policies(workload, runtime, kinds, pins)
    replicated, tensor = rows["dp"] * rows["cp"] > 1, rows["tp"] > 1
    stages = np.where(rows["pp"] == 1, 0, np.where(rows["vpp"] == 1, 1, 2))
    family = _families(rows)
    offloads = offloading.states(runtime, pins)
    away = offloading.activations(workload.model, runtime, pins)
    graphs_of = offloading.graphs_of(workload.model, runtime, pins)
    able = exchanges_overlap(rows, workload)
    overlaps = _on(runtime, pins, "ep_overlap", (False, True))
    shared = _shared(rows, workload, cluster, runtime, pins)
    filled = (rows["vpp"] == 1) | (rows["batch"] // (rows["dp"] * rows["micro"]) % rows["pp"] == 0)
    plain = [pins.allow("schedule", name) for name in ("none", "1f1b", "interleaved-1f1b")]
    routed = dispatchers.offered(rows, cluster, runtime, pins)
    cuts = product(overlaps, (False, True), (False, True), (0, 1, 2), shared, routed)
    for overlap, has_tensor, has_replicas, stage, (ways, sharing), (sent, spread) in cuts:
        mask = (tensor == has_tensor) & (replicated == has_replicas) & (stages == stage) & sharing & spread
        if overlap:
            sent = tuple(name for name in sent if name != "allgather")
            mask &= able
        mask &= filled & plain[stage]
        if not mask.any():
            continue
        partial = [p for p in policies if not overlap or not (p.layers or WHOLE_MIXTURE in p.modules)]
        sharded = _sharded(runtime, pins, has_replicas, stage > 0, offloads)
        captured = offloading.with_graphs(workload.model, partial, away, graphs_of)
        for (shardings, overlapping, offloaded), (graphs, kept, moved) in product(sharded, captured):
            axes = GridAxes(
                kinds,
                kept,
                tuple(_tensor_modes(workload, runtime, pins, has_tensor)),
                offloading.captured(shardings, graphs, overlap),
                tuple(_on(runtime, pins, "p2p_overlap", (False, True) if stage == 2 else (False,))),
                tuple(_orders(runtime, pins, has_replicas and stage > 0)),
                offloaded,
                offloading.placements(cluster, pins),
                (overlap,),
                ways,
                overlapping,
                moved,
                (graphs,),
                dispatcher=sent,
            )
            if all(axes.shape):
                yield Block({name: column[mask] for name, column in rows.items()}, axes, family[mask])
    yield from _apart(rows, workload, cluster, runtime, pins)


def _apart(rows: Rows, workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins) -> Iterator[Block]:
    """The classes of schedules that compute weight gradients apart: in 16 or 32 bit, without tensor-parallel overlap,
    which needs compiled kernels or has no such form; data-parallel communication overlaps where it must.
    """
    names = split_schedules.offered(workload, runtime, pins)
    here = () in offloading.activations(workload.model, runtime, pins) and pins.allow("graphs", ALONE)
    here &= pins.allow("dispatcher", ALONE)
    if not names or not here or not pins.allow("ep_overlap", False):
        return
    kinds = tuple(name for name in precisions(cluster, runtime, pins) if name in split_schedules.WIDE)
    family, replicated, tensor = _families(rows), rows["dp"] * rows["cp"] > 1, rows["tp"] > 1
    shared = _shared(rows, workload, cluster, runtime, pins)
    apart = bool(_on(runtime, Pins(), "dp_overlap", (False,)))
    able = {name: split_schedules.fits(name, rows, workload, runtime) for name in names}
    for name, has_tensor, has_replicas, (ways, sharing) in product(names, (False, True), (False, True), shared):
        mask = (tensor == has_tensor) & (replicated == has_replicas) & sharing & able[name]
        modes = tuple(mode for mode in _tensor_modes(workload, runtime, pins, has_tensor) if not mode.overlap)
        sent = tuple(_on(runtime, pins, "p2p_overlap", (False, True) if name != "zero-bubble" else (False,)))
        orders = tuple(_orders(runtime, pins, has_replicas))
        for shardings, copying, offloaded in _sharded(
            runtime, pins, has_replicas, True, offloading.states(runtime, pins)
        ):
            alone = tuple(each for each in shardings if not (each.overlap and apart))
            placed = offloading.placements(cluster, pins)
            axes = GridAxes(
                precision=kinds,
                recompute=(NO_RECOMPUTE,),
                tensor=modes,
                sharding=alone,
                p2p_overlap=sent,
                pp_inner=orders,
                offload=offloaded,
                placement=placed,
                cp_algorithm=ways,
                offload_overlap=copying,
                schedule=(name,),
            )
            if mask.any() and all(axes.shape):
                yield Block({name: column[mask] for name, column in rows.items()}, axes, family[mask])


def _shared(
    rows: Rows, workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins
) -> list[tuple[tuple[str, ...], NDArray[np.bool_]]]:
    """Ways to share a sequence, and the rows that have just these. The first of those that kernels allow, where the
    runtime does not choose or no pin names them: no measured run tells them apart.
    """
    able = context.algorithms(workload)
    known = runtime.axes.get("cp_algorithm", able[:1]) if "cp_algorithm" in pins else able[:1]
    ways = [way for way in able if (known == "any" or way in known) and pins.allow("cp_algorithm", way)]
    has = {way: (rows["cp"] > 1) & context_shares(way, rows, workload, cluster) for way in ways}
    kinds = sum((mask.astype(np.int64) << bit for bit, mask in enumerate(has.values())), np.zeros_like(rows["cp"]))
    none = [((ALONE,), rows["cp"] == 1)] if pins.allow("cp_algorithm", ALONE) else []
    some = [int(kind) for kind in np.unique(kinds) if kind]
    return none + [(tuple(way for bit, way in enumerate(ways) if kind >> bit & 1), kinds == kind) for kind in some]


def _families(rows: Rows) -> NDArray[np.intp]:
    key = np.zeros(len(rows["tp"]), dtype=np.int64)
    for axis in ("nodes", "batch", "tp", "pp", "cp", "ep", "etp"):
        _, index = np.unique(rows[axis], return_inverse=True)
        key = key * (int(np.max(index)) + 1) + index
    return np.unique(key, return_inverse=True)[1]


def _strings(runtime: Runtime, axis: str, neutral: tuple[str, ...]) -> tuple[object, ...]:
    known = runtime.axes.get(axis, neutral)
    return neutral if known == "any" else tuple(known)


def _tensor_modes(workload: Workload, runtime: Runtime, pins: Pins, has_tensor: bool) -> Iterator[TensorMode]:
    """Overlap needs sequence parallelism; mixtures with tensor parallelism need it too; neither exists at tp = 1."""
    if not has_tensor:
        yield from [TensorMode(False, False)] if pins.allow("sequence_parallel", False) else []
        return
    for sequence_parallel in _on(runtime, pins, "sequence_parallel", (True, False)):
        if workload.model.moe and not sequence_parallel:
            continue
        for overlap in _on(runtime, pins, "tp_overlap", (False, True)):
            if sequence_parallel or not overlap:
                yield TensorMode(sequence_parallel, overlap)


Shardings = tuple[Sharding, ...]


def _sharded(
    runtime: Runtime, pins: Pins, has_replicas: bool, staged: bool, offloads: Sequence[float]
) -> list[tuple[Shardings, tuple[bool, ...], tuple[float, ...]]]:
    """What data-parallel ranks share and whether copies of states overlap, with how much of the optimizer is offloaded:
    apart where they do not go with all. Copies overlap where a pin says so.
    """
    asked = (False, True) if "offload_overlap" in pins else (False,)
    ways = {
        off: (
            tuple(_shardings(runtime, pins, has_replicas, staged, off)),
            tuple(_on(runtime, pins, "offload_overlap", asked if off else (False,))),
        )
        for off in offloads
    }
    return [(*way, tuple(off for off in offloads if ways[off] == way)) for way in dict.fromkeys(ways.values())]


def _shardings(runtime: Runtime, pins: Pins, has_replicas: bool, staged: bool, offload: float) -> Iterator[Sharding]:
    """ZeRO stages with their scope and overlap. Stages 2 and 3 go with a pipeline only where weights are gathered
    anyway, an offloaded optimizer with those that the runtime offloads.
    """
    known = runtime.axes.get("zero", (0,))
    able = runtime.offload_needs_zero if offload and runtime.offload_needs_zero else ZERO_STAGES
    stages: list[ZeroStage] = [z for z in able if (known == "any" or z in known) and pins.allow("zero", z)]
    if not has_replicas:
        least = stages[:1]
        yield from (Sharding(z, "full", False) for z in least if pins.allow("zero_scope", "full"))
        return
    for zero in stages:
        if zero >= 2 and staged and not runtime.gathers_working_copy:
            continue
        scopes: tuple[ZeroScope, ...] = runtime.zero_scope if zero else ("full",)
        for scope in scopes:
            if pins.allow("zero_scope", scope):
                yield from (Sharding(zero, scope, o) for o in _on(runtime, pins, "dp_overlap", (False, True)))


def _orders(runtime: Runtime, pins: Pins, matters: bool) -> Iterator[bool]:
    """Stages inside replicas or outside; without both, ranks have their usual order."""
    known = _strings(runtime, "rank_order", RANK_ORDERS[:1])
    names = [name for name in RANK_ORDERS if name in known and pins.allow("rank_order", name)]
    yield from (RANK_ORDERS.index(name) > 0 for name in names if matters or name == RANK_ORDERS[0])


@dataclass(frozen=True, slots=True)
class Figures:
    """What a grid needs beside layouts and options."""

    shape: Shape
    devices: dict[str, Device]
    """By precision."""
    network: Network
    """Its number of accelerators is replaced by the row's."""
    stack: Stack
    accelerators_per_node: int
    profiles: Mapping[str, layer_times.LayerTable] = field(default_factory=dict)
    """Layer times measured elsewhere, by the precision that they hold for."""
    expanded: Expansion | None = None
    own: NearRuns | None = None
    """A site's runs, where what they were off by shifts plans near them."""
    uncompiled: Stack | None = None
    """The software under a schedule that computes weight gradients apart, where its compiled kernels cannot."""

    def software(self, schedule: str) -> Stack:
        """The software as a schedule lets it run."""
        return self.uncompiled if self.uncompiled is not None and schedule in SPLIT_SCHEDULES else self.stack


def _along(values: Sequence[float], dimension: int) -> NDArray[np.float64]:
    """Values on one option axis, length 1 on the others and on the rows'."""
    return _on_axis(np.array(values, dtype=float), dimension)


def _on_axis(values: NDArray[Value], dimension: int) -> NDArray[Value]:
    shape = [1] * (len(OPTION_DIMENSIONS) + 1)
    shape[dimension] = len(values)
    return values.reshape(shape)


def _near_own_runs(
    figures: Figures, schedule: str, precision: Label, recompute: Label, accelerators: Figure, layout: Layout
) -> Stack:
    """The software, its whole step stretched on every plan by what a site's runs near it were off by."""
    stack = figures.software(schedule)
    if figures.own is None:
        return stack
    factor = figures.own.factor(precision, recompute, accelerators, layout)
    return replace(stack, whole_step=stack.whole_step * factor)


def open_grid(figures: Figures, block: Block) -> Grid:
    """The block as a grid of figures, SI: options on the leading axes, layouts on the last (:attr:`Block.shape`)."""
    axes, rows = block.axes, block.rows
    devices = [figures.devices[name] for name in axes.precision]
    columns = {name: column.astype(float) for name, column in rows.items()}
    nodes = columns.pop("nodes")
    network = figures.network
    if columns.pop(WIRED, None) is not None:
        wired = rows[WIRED]

        def own(figure: Figure) -> Figure:
            return figure[wired] if isinstance(figure, np.ndarray) else figure

        network, devices = mapped(network, own), [mapped(device, own) for device in devices]
    device = devices[0] if len(devices) == 1 else _by_precision(devices)
    (schedule,) = axes.schedule
    layout = Layout(**columns, looped=float(schedule not in FOLDED))
    accelerators = nodes * figures.accelerators_per_node
    precision = _on_axis(np.array(axes.precision), 0)
    policy = _on_axis(np.array([each.name for each in axes.recompute]), 1)
    return Grid(
        shape=figures.shape,
        device=device,
        network=replace(network, accelerators=accelerators),
        stack=_near_own_runs(figures, schedule, precision, policy, accelerators, layout),
        layout=layout,
        measured=measured_at(figures, axes.precision, layout, device),
        options=OptionFigures(
            recompute_layers=_along([p.layers for p in axes.recompute], 1),
            recompute_selective=_along([p.selective for p in axes.recompute], 1),
            recompute_offloaded=_along([p.offloaded for p in axes.recompute], 1),
            function_in_8_bit=_along([p.function_in_8_bit for p in axes.recompute], 1),
            **_recomputed(axes.recompute),
            sequence_parallel=_along([t.sequence_parallel for t in axes.tensor], 2),
            tp_overlap=_along([t.overlap for t in axes.tensor], 2),
            zero=_along([s.zero for s in axes.sharding], 3),
            zero_in_node=_along([s.scope == "node" for s in axes.sharding], 3),
            dp_overlap=_along([s.overlap for s in axes.sharding], 3),
            p2p_overlap=_along(axes.p2p_overlap, 4),
            ep_overlap=_along(axes.ep_overlap, 8),
            **_sharing([sharing(way) for way in axes.cp_algorithm]),
            schedule=SPLIT_SCHEDULES.get(schedule, 0.0),
            pp_inner=_along(axes.pp_inner, 5),
            offload=_along(axes.offload, 6),
            **({"offload_overlap": _along(axes.offload_overlap, 10)} if any(axes.offload_overlap) else {}),
            **_captured(axes.graphs),
            **_dispatched(axes.dispatcher),
            **{name: _along(values, 11) for name, values in offloading.figures(axes.activation_offload).items()},
            **_shares(axes) if figures.expanded is not None else {},
        ),
        expanded=figures.expanded,
    )


def _recomputed(policies: Sequence[Recompute]) -> dict[str, NDArray[np.float64]]:
    """Modules that one of the policies names at least."""
    named = {module for policy in policies for module in policy.modules}
    return {MODULES[module]: _along([module in p.modules for p in policies], 1) for module in sorted(named)}


def _captured(each: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    found = {"graphs": _along(each, 12), "graph_inputs": _along([graphs == 1 for graphs in each], 12)}
    return found if any(each) else {}


def dispatched(name: str) -> float:
    """What copies of tokens a dispatcher sends, as figures hold it."""
    return {ALONE: 0.0, "alltoall": 1.0, "allgather": experts.ALL_GATHERED}.get(name, experts.ONCE_PER_DOMAIN)


def _dispatched(names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    return {"dispatcher": _along([dispatched(name) for name in names], 14)} if names != (ALONE,) else {}


def sharing(way: str) -> dict[str, float]:
    """How context-parallel ranks share a sequence, as figures that are 0 in a ring."""
    names = {"all_gather": "context_gathered", "a2a": "context_exchanged", "a2a+p2p": "context_layered"}
    return {name: float(way == known) for known, name in names.items()}


def _sharing(ways: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    return {name: _along([way[name] for way in ways], 9) for name in ways[0] if any(way[name] for way in ways)}


def _shares(axes: GridAxes) -> dict[str, NDArray[np.float64]]:
    return {f"expanded_{kind}": _along([getattr(p, kind) for p in axes.placement], 7) for kind in PLACED}


def _by_precision(devices: Sequence[Device]) -> Device:
    """Accelerators in several precisions as one: what differs lies along the axis of precisions."""
    found: dict[str, Figure] = {}
    for name in Device.__dataclass_fields__:
        each = [getattr(device, name) for device in devices]
        if any(isinstance(figure, np.ndarray) for figure in each):
            spread = np.stack(np.broadcast_arrays(*each))
            found[name] = spread.reshape(len(each), *[1] * (len(OPTION_DIMENSIONS) - 1), -1)
        else:
            found[name] = each[0] if len(set(each)) == 1 else _along(each, 0)
    return Device(**found)


def measured_at(figures: Figures, precisions: Sequence[str], layout: Layout, device: Device) -> MeasuredLayers | None:
    """What profiles say of the layouts in each precision; None if none does."""
    if not figures.profiles.keys() & set(precisions):
        return None
    known = [figures.profiles.get(name) for name in precisions]
    found = [layer_times.at(table, layout.tp, layout.micro) if table else layer_times.NOTHING for table in known]
    if len(found) == 1:
        return MeasuredLayers(times=found[0], device=device, network=figures.network, stack=figures.stack)
    shape = np.shape(layout.tp)

    def joined(name: str) -> NDArray[np.float64]:
        each = np.stack([np.broadcast_to(getattr(times, name), shape) for times in found])
        return each.reshape(len(found), *[1] * (len(OPTION_DIMENSIONS) - 1), *shape)

    times = Times(**{name: joined(name) for name in Times.__dataclass_fields__})
    return MeasuredLayers(times=times, device=device, network=figures.network, stack=figures.stack)


def single_grid(figures: Figures, layout: dict[str, int], options: OptionAxes) -> Grid:
    """One candidate as a grid of scalars, SI."""
    numbers = {name: float(value) for name, value in layout.items()}
    nodes = numbers.pop("nodes")
    layout_ = Layout(**numbers, looped=float(options.schedule not in FOLDED))
    device = figures.devices[options.precision]
    accelerators = nodes * figures.accelerators_per_node
    return Grid(
        shape=figures.shape,
        device=device,
        network=replace(figures.network, accelerators=accelerators),
        stack=_near_own_runs(
            figures, options.schedule, options.precision, options.recompute.name, accelerators, layout_
        ),
        layout=layout_,
        options=as_figures(options),
        measured=measured_at(figures, (options.precision,), layout_, device),
        expanded=figures.expanded,
    )


def as_figures(options: OptionAxes) -> OptionFigures:
    """One value of every option axis as numbers: shares from 0 to 1, switches 0 or 1."""
    return OptionFigures(
        recompute_layers=options.recompute.layers,
        recompute_selective=options.recompute.selective,
        recompute_offloaded=options.recompute.offloaded,
        function_in_8_bit=options.recompute.function_in_8_bit,
        **{MODULES[module]: 1.0 for module in options.recompute.modules},
        sequence_parallel=float(options.tensor.sequence_parallel),
        tp_overlap=float(options.tensor.overlap),
        zero=float(options.sharding.zero),
        zero_in_node=float(options.sharding.scope == "node"),
        dp_overlap=float(options.sharding.overlap),
        p2p_overlap=float(options.p2p_overlap),
        ep_overlap=float(options.ep_overlap),
        **sharing(options.cp_algorithm),
        schedule=SPLIT_SCHEDULES.get(options.schedule, 0.0),
        pp_inner=float(options.pp_inner),
        offload=float(options.offload),
        offload_overlap=float(options.offload_overlap),
        **{f"offload_{module}": 1.0 for module in options.activation_offload},
        graphs=float(options.graphs),
        dispatcher=dispatched(options.dispatcher),
        graph_inputs=float(options.graphs == 1 and not options.graphs_share),
        **{f"expanded_{kind}": getattr(options.placement, kind) for kind in PLACED},
    )
