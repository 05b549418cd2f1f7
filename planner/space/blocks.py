"""Classes of the space: rows that share which options exist, each a full rectangle of layouts and options.

Whether a layout has tensor-, data- or pipeline-parallel ranks decides which options exist for it; within such a class
every option goes with every row: nothing to mask, and the candidates are exactly counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.axes import OPTION_AXES, PlanAxis
from planner.axes.options import OptionGrid, Sharding, TensorMode, option_grid
from planner.axes.table import (
    CP_ALGORITHM,
    DISPATCHER,
    DP_OVERLAP,
    EP_OVERLAP,
    GRAPHS,
    OFFLOAD_OVERLAP,
    P2P_OVERLAP,
    PLACEMENT,
    RANK_ORDER,
    SCHEDULE,
    SEQUENCE_PARALLEL,
    TP_OVERLAP,
    ZERO_SCOPE,
)
from planner.axes.values import ALONE, EVERYWHERE, RANK_ORDERS, WHOLE_MIXTURE
from planner.figures.matrix_formats import can_train_in
from planner.models import context
from planner.schema.hardware import Cluster, Runtime
from planner.schema.plan import RankOrder, ZeroStage
from planner.schema.workload import PRECISIONS, Workload
from planner.space import dispatchers, offloading, shared_copies, split_schedules
from planner.space.enumerate_layouts import Rows
from planner.space.pins import Pins
from planner.space.rules import context_shares, exchanges_overlap

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Block:
    """One class: rows that share which options exist, and those options."""

    rows: Rows
    axes: OptionGrid
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


def _on(runtime: Runtime, pins: Pins, axis: PlanAxis[Value], values: Sequence[Value]) -> list[Value]:
    """Values, of those given, that the runtime has and the pin allows."""
    known = runtime.axes.get(axis.name, (axis.neutral,))
    return [v for v in values if (known == "any" or v in known) and pins.allow(axis.name, v)]


def _on_any_layout(
    workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins, ways: tuple[str, ...]
) -> dict[str, tuple[Any, ...]]:
    """Options that every layout takes that shares sequences in these ways: where states live, and the axes whose rows
    say so, as far as the model has them.
    """
    values = {
        axis.name: tuple(
            value
            for value in _on(runtime, pins, axis, axis.choices if axis.name in pins else (axis.neutral,))
            if axis.takes(value, shared=ways != (ALONE,), dropout=workload.model.dropout)
        )
        for axis in OPTION_AXES
        if axis.any_layout
    }
    return {PLACEMENT.name: offloading.placements(cluster, pins), **values}


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
    if not len(rows["tp"]):
        return
    kinds = precisions(cluster, runtime, pins)
    policies = offloading.policies(workload, runtime, kinds, pins)
    replicated, tensor = rows["dp"] * rows["cp"] > 1, rows["tp"] > 1
    stages = np.where(rows["pp"] == 1, 0, np.where(rows["vpp"] == 1, 1, 2))
    family = _families(rows)
    away = offloading.activations(workload.model, runtime, pins)
    graphs_of = offloading.graphs_of(workload.model, runtime, pins)
    able = exchanges_overlap(rows, workload)
    overlaps = _on(runtime, pins, EP_OVERLAP, (False, True))
    shared = _shared(rows, workload, cluster, runtime, pins)
    filled = (rows["vpp"] == 1) | (rows["batch"] // (rows["dp"] * rows["micro"]) % rows["pp"] == 0)
    plain = [pins.allow(SCHEDULE.name, name) for name in ("none", "1f1b", "interleaved-1f1b")]
    routed = dispatchers.offered_dispatchers(rows, cluster, runtime, pins)
    scopes = shared_copies.scopes(rows, cluster, runtime, pins)
    cuts = product(overlaps, _present(tensor), _present(replicated), _present(stages), shared, routed, scopes)
    for overlap, has_tensor, has_replicas, stage, (ways, sharing), (sent, spread), (scoped, copied) in cuts:
        mask = (tensor == has_tensor) & (replicated == has_replicas) & (stages == stage) & sharing & spread & copied
        if overlap:
            sent = tuple(name for name in sent if name != "allgather")
            mask &= able
        mask &= filled & plain[stage]
        if not mask.any():
            continue
        partial = [p for p in policies if not overlap or not (p.layers or WHOLE_MIXTURE in p.modules)]
        shardings = tuple(_shardings(runtime, scoped, has_replicas, stage > 0))
        if overlap:
            shardings = tuple(one for one in shardings if one.zero in runtime.overlapped_experts_zero)
        passes = offloading.with_graphs(workload.model, partial, away, graphs_of)
        for sharding, kept in offloading.captured(shardings, passes, overlap).items():
            options = option_grid(
                precision=kinds,
                recompute=kept,
                tensor=_tensor_modes(workload, runtime, pins, has_tensor),
                sharding=sharding,
                p2p_overlap=_on(runtime, pins, P2P_OVERLAP, (False, True) if stage == 2 else (False,)),
                rank_order=_orders(runtime, scoped, has_replicas and stage > 0),
                # One value a block: with it, other layouts and options exist. Of schedules, too.
                ep_overlap=(overlap,),
                cp_algorithm=ways,
                dispatcher=sent,
                **_on_any_layout(workload, cluster, runtime, pins, ways),
            )
            if all(options.shape):
                yield Block({name: column[mask] for name, column in rows.items()}, options, family[mask])
    yield from _apart(rows, workload, cluster, runtime, pins)


def _apart(rows: Rows, workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins) -> Iterator[Block]:
    """The classes of schedules that compute weight gradients apart: in 16 or 32 bit, without tensor-parallel overlap,
    which needs compiled kernels or has no such form; data-parallel communication overlaps where it must.
    """
    names = split_schedules.offered(workload, runtime, pins)
    here = () in offloading.activations(workload.model, runtime, pins) and pins.allow(GRAPHS.name, ALONE)
    here &= pins.allow(DISPATCHER.name, ALONE)
    if not names or not here or not pins.allow(EP_OVERLAP.name, False):
        return
    kinds = tuple(name for name in precisions(cluster, runtime, pins) if name in split_schedules.WIDE)
    family, replicated, tensor = _families(rows), rows["dp"] * rows["cp"] > 1, rows["tp"] > 1
    shared = _shared(rows, workload, cluster, runtime, pins)
    apart = bool(_on(runtime, Pins(), DP_OVERLAP, (False,)))
    able = {name: split_schedules.fits(name, rows, workload, runtime) for name in names}
    scopes = shared_copies.scopes(rows, cluster, runtime, pins)
    for name, has_tensor, has_replicas, (ways, sharing), (scoped, copied) in product(
        names, _present(tensor), _present(replicated), shared, scopes
    ):
        mask = (tensor == has_tensor) & (replicated == has_replicas) & sharing & able[name] & copied
        modes = tuple(mode for mode in _tensor_modes(workload, runtime, pins, has_tensor) if not mode.overlap)
        sent = tuple(_on(runtime, pins, P2P_OVERLAP, (False, True) if name != "zero-bubble" else (False,)))
        orders = tuple(_orders(runtime, scoped, has_replicas))
        shardings = _shardings(runtime, scoped, has_replicas, True)
        options = option_grid(
            precision=kinds,
            tensor=modes,
            sharding=tuple(each for each in shardings if not (each.overlap and apart)),
            p2p_overlap=sent,
            rank_order=orders,
            cp_algorithm=ways,
            schedule=(name,),
            **_on_any_layout(workload, cluster, runtime, pins, ways),
        )
        if mask.any() and all(options.shape):
            yield Block({name: column[mask] for name, column in rows.items()}, options, family[mask])


def _present(column: NDArray[Any]) -> list[Any]:
    """The distinct values of a column, in ascending order."""
    return np.unique(column).tolist()  # type: ignore[no-any-return]


def _shared(
    rows: Rows, workload: Workload, cluster: Cluster, runtime: Runtime, pins: Pins
) -> list[tuple[tuple[str, ...], NDArray[np.bool_]]]:
    """Ways to share a sequence, and the rows that have just these. The first of those that kernels allow, where the
    runtime does not choose or no pin names them: no measured run tells them apart.
    """
    able = context.algorithms(workload)
    known = runtime.axes.get(CP_ALGORITHM.name, able[:1]) if CP_ALGORITHM.name in pins else able[:1]
    ways = [way for way in able if (known == "any" or way in known) and pins.allow(CP_ALGORITHM.name, way)]
    has = {way: (rows["cp"] > 1) & context_shares(way, rows, workload, cluster) for way in ways}
    some = shared_copies.with_just(has, len(rows["cp"]))
    return [((ALONE,), rows["cp"] == 1), *some] if pins.allow(CP_ALGORITHM.name, ALONE) else some


def _families(rows: Rows) -> NDArray[np.intp]:
    if len(rows["tp"]) == 1:
        return np.zeros(1, dtype=np.intp)
    key = np.zeros(len(rows["tp"]), dtype=np.int64)
    for axis in ("nodes", "batch", "tp", "pp", "cp", "ep", "etp"):
        _, index = np.unique(rows[axis], return_inverse=True)
        key = key * (int(np.max(index)) + 1) + index
    return np.unique(key, return_inverse=True)[1]


def _tensor_modes(workload: Workload, runtime: Runtime, pins: Pins, has_tensor: bool) -> Iterator[TensorMode]:
    """Overlap needs sequence parallelism; mixtures with tensor parallelism need it too; neither exists at tp = 1."""
    if not has_tensor:
        yield from [TensorMode(False, False)] if pins.allow(SEQUENCE_PARALLEL.name, False) else []
        return
    for sequence_parallel in _on(runtime, pins, SEQUENCE_PARALLEL, (True, False)):
        if workload.model.moe and not sequence_parallel:
            continue
        for overlap in _on(runtime, pins, TP_OVERLAP, (False, True)):
            if sequence_parallel or not overlap:
                yield TensorMode(sequence_parallel, overlap)


def _shardings(runtime: Runtime, pins: Pins, has_replicas: bool, staged: bool) -> Iterator[Sharding]:
    """What data-parallel ranks share, with how much of the optimizer is in host memory. Copies of its states overlap
    where a pin says so.
    """
    copies = (False, True) if OFFLOAD_OVERLAP.name in pins else (False,)
    for share in offloading.states(runtime, pins):
        overlaps = _on(runtime, pins, OFFLOAD_OVERLAP, copies if share else (False,))
        for sharding in _shared_states(runtime, pins, has_replicas, staged, share):
            yield from (sharding._replace(offload=share, offload_overlap=overlap) for overlap in overlaps)


def _shared_states(
    runtime: Runtime, pins: Pins, has_replicas: bool, staged: bool, offload: float
) -> Iterator[Sharding]:
    """ZeRO stages with their scope and overlap. Stages 2 and 3 go with a pipeline only where weights are gathered
    anyway, an offloaded optimizer with those that the runtime offloads.
    """
    known = runtime.axes.get("zero", (0,))
    able = offloading.with_stages(runtime, offload)
    stages: list[ZeroStage] = [z for z in able if (known == "any" or z in known) and pins.allow("zero", z)]
    if not has_replicas:
        # One rank has nobody to overlap with but host memory.
        overlaps = _on(runtime, pins, DP_OVERLAP, (False, True)) if offload > 1 else (False,)
        alone = [Sharding(z, EVERYWHERE, o) for z in stages[:1] for o in overlaps]
        yield from alone if pins.allow(ZERO_SCOPE.name, EVERYWHERE) else []
        return
    for zero in stages:
        if zero >= 2 and staged and not runtime.gathers_working_copy:
            continue
        for scope in (*runtime.zero_scope, *shared_copies.spanning(runtime, pins)) if zero else (EVERYWHERE,):
            if pins.allow(ZERO_SCOPE.name, scope):
                yield from (Sharding(zero, scope, o) for o in _on(runtime, pins, DP_OVERLAP, (False, True)))


def _orders(runtime: Runtime, pins: Pins, matters: bool) -> Iterator[RankOrder]:
    """Stages inside replicas or outside; without both, ranks have their usual order."""
    known = runtime.axes.get(RANK_ORDER.name, RANK_ORDERS[:1])
    # Nodes that share a copy are counted where replicas are neighbours.
    for order in RANK_ORDERS if matters and not shared_copies.spanning(runtime, pins) else RANK_ORDERS[:1]:
        if order in (RANK_ORDERS[:1] if known == "any" else known) and pins.allow(RANK_ORDER.name, order):
            yield order
