"""Measured kernels as columns, and what the cost model says of them under any efficiencies.

Nothing is computed here that :mod:`planner.cost` has a formula for: kernels are priced by the functions that price
plans. A kernel takes at least the time between two launches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.calibration.measuring.kernel_times import (
    COLLECTIVES,
    EXCHANGE,
    FORWARD,
    LAUNCH,
    MATRIX,
    MEMORY,
    REDUCE,
    MeasurementRow,
)
from planner.cost import attention, collective_times
from planner.cost.figures import Array, Device, Figure, Grid, Layout, Network, Options, Shape, Stack
from planner.cost.products import product_time
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.models import context
from planner.schema.efficiency import AcceleratorEfficiency
from planner.schema.hardware import Accelerator, Cluster, Fabric, Node

Record = TypeVar("Record", Shape, Network, Stack, Layout, Options)


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Seconds of every kernel."""

    time: Array


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one kind, precision and number of ranks."""

    kind: str
    dtype: str
    ranks: int
    rows: NDArray[np.intp]
    columns: dict[str, Array]


class Kernels:
    """Rows of one accelerator, to be predicted by :func:`planner.calibration.fit.least_squares.fit`."""

    def __init__(self, accelerator: Accelerator, rows: Sequence[MeasurementRow]) -> None:
        self.accelerator = accelerator
        self.rows = rows
        self.measured: Array = np.array([row.seconds for row in rows])
        keys = [(row.kernel.kind, row.kernel.dtype, row.kernel.ranks) for row in rows]
        self._groups = [
            _group(key, rows, [i for i, row_keys in enumerate(keys) if row_keys == key]) for key in sorted(set(keys))
        ]

    def predict(self, using: Efficiencies) -> KernelTimes:
        """Every row under the accelerator's entry of some efficiencies."""
        reached = using.accelerator(self.accelerator)
        time = np.empty(len(self.rows))
        for group in self._groups:
            time[group.rows] = _seconds(group, self.accelerator, reached)
        return KernelTimes(time)


def _group(key: tuple[str, str, int], rows: Sequence[MeasurementRow], places: list[int]) -> _Group:
    names = ("m", "n", "k", "batch", "heads", "head_dim", "sequence", "size")
    columns = {name: np.array([getattr(rows[i].kernel, name) for i in places], dtype=float) for name in names}
    return _Group(*key, np.array(places, dtype=np.intp), columns)


def _seconds(group: _Group, accelerator: Accelerator, reached: AcceleratorEfficiency) -> Figure:
    if group.kind in COLLECTIVES:
        return _collective(group, cost_inputs.network(one_node(accelerator, group.ranks), reached))
    device = cost_inputs.device(accelerator, reached, group.dtype)
    known = group.columns
    if group.kind == LAUNCH:
        return device.launch
    if group.kind == MATRIX:
        seconds = product_time(device, known["m"], known["n"], known["k"])
    elif group.kind == MEMORY:
        seconds = known["size"] / device.memory_rate
    else:
        passes = attention.kernel(_attention_grid(device, known))
        seconds = passes.forward if group.kind == FORWARD else passes.backward
    return np.maximum(seconds, device.launch)


def _collective(group: _Group, network: Network) -> Figure:
    members = collective_times.group(network, float(group.ranks), 1.0)
    priced: dict[str, Callable[..., Figure]] = {
        REDUCE: collective_times.all_reduce,
        EXCHANGE: collective_times.all_to_all,
    }
    return priced.get(group.kind, collective_times.gather)(network, group.columns["size"], members)


def one_node(accelerator: Accelerator, ranks: int) -> Cluster:
    """That many accelerators on their scale-up link, and no network: all that collectives inside one machine use."""
    node = Node(
        id="measured", name="this machine", source="", kind="server", provider="", accelerator=accelerator.id,
        accelerators=ranks,
    )  # fmt: skip
    fabric = Fabric(
        id="none", name="none", source="", kind="tcp", nic_bandwidth=1.0, latency=0.0, topology="fat-tree", leaf_nodes=1
    )
    return Cluster(node=node, accelerator=accelerator, count=1, fabric=fabric)


def _attention_grid(device: Device, known: dict[str, Array]) -> Grid:
    """A grid of which only the attention kernel's figures are set: causal, fused, on one rank."""
    shape = _only(
        Shape,
        heads=known["heads"],
        qk_dim=known["head_dim"],
        v_dim=known["head_dim"],
        sequence=known["sequence"],
        attended=context.of_whole_sequence(known["sequence"], causal=True),
        attended_full=known["sequence"],
        text=known["sequence"],
    )
    return Grid(
        shape=shape,
        device=device,
        network=_only(Network),
        stack=_only(Stack, fused_attention=1.0, attention=1.0),
        layout=_only(Layout, tp=1.0, cp=1.0, micro=known["batch"]),
        options=_only(Options),
    )


def _only(record: type[Record], **figures: Any) -> Record:
    """A record with the given figures and 0 everywhere else."""
    needed = [item.name for item in dataclasses.fields(record) if item.default is dataclasses.MISSING]
    return record(**dict.fromkeys(needed, 0.0) | figures)
