"""What a plan runs on, as records of its document: pools, the network in each, links between them."""

from __future__ import annotations

from typing import Literal, get_args

from planner.schema.hardware import Dtype, FusedDispatcher
from planner.schema.record import Record, Sparse


class ExpandedPool(Record):
    """Memory in addition to the accelerators' own."""

    bytes: float
    """Bytes of one unit."""
    bytes_per_s: float
    latency_s: float
    scope: Literal["accelerator", "node", "pool"]
    """Who shares a unit."""
    access: Literal["serial", "concurrent"]


Value = float | bool | str | None
"""Value of a field of a catalog's record; None: it has none."""
_FLOPS = dict.fromkeys((f".{dtype}" for dtype in get_args(Dtype)), (1e12, "TFLOP/s"))
SHOWN_IN = {"bandwidth": (1e9, "GB/s"), "memory": (2.0**30, "GiB"), "l2": (2.0**20, "MiB"), "tdp": (1.0, "W"), **_FLOPS}
"""Ends of figures' names -> what one of the unit that people read is in SI, and its name."""


class ChangedFigure(Record):
    """A figure of an accelerator that is not what the catalog says of the one of that name."""

    figure: str
    """As the catalog's record has it: ``memory_bandwidth``, ``peak.bf16``. SI units."""
    catalog: Value
    used: Value

    def text(self, value: Value) -> str:
        """One of the two values as people read it: ``4,800 GB/s``."""
        if not isinstance(value, float):
            return "none" if value is None else str(value)
        scale, unit = next((shown for end, shown in SHOWN_IN.items() if self.figure.endswith(end)), (1.0, ""))
        return f"{value / scale:,.6g} {unit}".rstrip()

    def __str__(self) -> str:
        return f"{self.figure} {self.text(self.used)} (catalog: {self.text(self.catalog)})"


class Pool(Record):
    """Nodes of one kind."""

    node: str
    count: int
    accelerator: str
    vendor: str
    """Who makes the accelerator."""
    accelerators_per_node: int
    accelerator_memory_bytes: float
    peak_flops: dict[str, float]
    scaleup_bytes_per_s: float | None
    nics_per_node: int
    nic_bytes_per_s: float | None
    max_power_w: float | None
    zone: str = ""
    """Where it is, as given in the question; pools of one zone share a network."""
    offered: int | None = None
    """Nodes that there were to choose from, where a plan over several pools may leave some out."""
    network: Sparse[str] = None
    """Its own fabric, where a plan is over several pools; not in documents of before 2026-12."""
    changed: Sparse[tuple[ChangedFigure, ...]] = None
    """Figures of the accelerator that are not the catalog's; only in documents where some are."""
    expanded: Sparse[ExpandedPool] = None
    """Only in documents where there is such memory."""
    dispatchers: Sparse[tuple[FusedDispatcher, ...]] = None
    """Fused dispatchers whose kernels the accelerator has; only in plans that name a dispatcher."""
    preemptions_per_node_s: Sparse[float] = None
    """How often the owner takes a node back, per second; only in plans over several pools where one does."""
    restart_s: Sparse[float] = None
    """Until the job continues after an interruption of this pool; only where the pools of a plan differ in it."""


class DimensionSection(Record):
    """One dimension of a network."""

    topology: str
    size: int
    bytes_per_s: float
    """That one accelerator sends, one direction."""
    latency_s: float
    """Seconds of a hop."""


class FabricSection(Record):
    """The network between nodes."""

    id: str
    kind: str
    nic_bytes_per_s: float
    latency_s: float
    topology: str
    leaf_nodes: int
    oversubscription: float
    dimensions: Sparse[tuple[DimensionSection, ...]] = None
    """Innermost first, in place of links, NICs and leaves; only in documents where the network has dimensions."""


class PoolLink(Record):
    """What joins two pools."""

    pools: tuple[int, int]
    bytes_per_s: float
    """Bytes per second of one node, one direction."""
    latency_s: float
    basis: str


class ClusterSection(Record):
    """What it runs on."""

    name: str
    accelerators: int
    pools: tuple[Pool, ...]
    fabric: FabricSection
    """Fabric of the first pool."""
    region: str | None
    links: tuple[PoolLink, ...] = ()
    """Between pools."""


def pool_names(cluster: ClusterSection) -> tuple[str, ...]:
    """Names of a plan's pools: their node, with its zone, numbered where that is still the same."""
    plain = [f"{pool.node}{'@' + pool.zone if pool.zone else ''}" for pool in cluster.pools]
    return tuple(
        name if plain.count(name) == 1 else f"{name}#{plain[: at + 1].count(name)}" for at, name in enumerate(plain)
    )
