"""What can be bought, rented or used: frozen records, one a kind of catalog file.

Figures are nominal: what a datasheet or a price list says. What software reaches of them is another kind of datum with
another source, and stands in :mod:`planner.schema.efficiency`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from planner.schema.notebook import OneLine
from planner.schema.quantities import (
    STRICT,
    Bandwidth,
    Bytes,
    Compute,
    Count,
    Fraction,
    GramsPerKwh,
    Seconds,
    Usd,
    UsdPerKwh,
    Watts,
)

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
FusedDispatcher = Literal["deepep", "hybridep"]
"""Dispatchers of tokens to experts whose kernels send copies for one scale-up domain over the NIC once."""
Topology = Literal["switch", "mesh", "torus", "pairs", "pcie", "none"]
"""How accelerators of one scale-up domain are wired: any-to-any switch, mesh of thin links, torus, bridged pairs."""
Scope = Literal["accelerator", "node", "pool"]
"""Who shares one unit of expanded memory: nobody, the accelerators of a node, all of the cluster."""
Access = Literal["serial", "concurrent"]
NotNegative = Annotated[float, Field(ge=0)]
OVERLAPPED_SHARDS = "ep_overlap with zero"
"""In a runtime's `since`: experts' exchanges overlap under ZeRO 2 and 3, too."""
_MONTH = r"^20\d\d\.(0[1-9]|1[0-2])$"
SplitSchedule = Literal["zero-bubble", "interleaved-zero-bubble", "zbv", "dualpipe-v"]
"""Schedules of a pipeline that compute weight gradients apart from input gradients."""
SPLIT_SCHEDULES: tuple[SplitSchedule, ...] = get_args(SplitSchedule)
PriceBasis = Literal["purchase", "on-demand", "spot", "reserved-1y", "reserved-3y"]


class Entry(OneLine):
    """What every catalog entry carries: id, name, where its figures were read, and which of them nobody could read."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    id: str
    name: str
    source: str
    """Where the figures were read."""
    date: str = ""
    """When that source was read, or its revision (ISO date or year)."""
    assumed: dict[str, str] = field(default_factory=dict, hash=False)
    """Field -> why this figure is carried although no opened source gives it; printed when a plan depends on it."""
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """The scale-up link of an accelerator (NVLink, Infinity Fabric, ICI, PCIe)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    topology: Topology
    bandwidth: Bandwidth | None = None
    """Bytes per second that one accelerator sends while it receives as much: one direction, all its links together."""
    pair_bandwidth: Bandwidth | None = None
    """One direction between two accelerators where that is less than `bandwidth` (meshes, cubes)."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """One price with everything that makes it mean something."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    basis: PriceBasis
    usd: Usd
    """US dollars for the whole entry: to buy one, or to rent one for an hour."""
    date: str
    source: str
    region: str = ""
    low: Usd | None = None
    high: Usd | None = None
    assumed: str = ""
    """Why the price is carried although no opened source gives it; empty when it was read."""


class Accelerator(Entry):
    """One accelerator as the program sees it: the unit that holds one rank."""

    vendor: str
    generation: str
    """Architecture, for falling back to a relative where nothing was measured: volta, ampere, hopper, cdna3 ..."""
    year: int
    peak: dict[Dtype, Compute]
    """Dense peak per data type, without structured sparsity."""
    memory: Bytes
    memory_bandwidth: Bandwidth
    reachable: Fraction | None = None
    """Share of the dense peak that matrix products reach, stated for a part that nothing was measured on; None: as
    fitted."""
    l2: Bytes | None = None
    """On-chip buffer that kernels tile for: the last cache, or a scratchpad."""
    compute_units: Count | None = None
    tdp: Watts | None = None
    scaleup: Link
    host_bandwidth: Bandwidth | None = None
    """To the host's memory, one direction (PCIe or C2C)."""
    dispatchers: tuple[FusedDispatcher, ...] = ()
    """Dispatchers of tokens to experts that have kernels for it and send copies for one scale-up domain once."""
    adds_in_switch: Annotated[bool, Field(strict=True)] = False
    """Whether the switch of its scale-up domain adds in all-reduces (NVLink SHARP, which NCCL calls NVLS)."""
    expanded_memory: Bytes | None = None
    """A second, slower memory that kernels read and write (attached by CXL, say): bytes of one unit; None: none."""
    expanded_bandwidth: Bandwidth | None = None
    """Bytes per second of one unit, one direction: all that share it together."""
    expanded_latency: Seconds = 0.0
    """Latency of one request."""
    expanded_scope: Scope = "accelerator"
    """Who shares a unit, each with an equal part of its bytes and bandwidth."""
    expanded_access: Access = "serial"
    """Whether one kernel reads both memories one after the other, or both at once."""
    announced: Annotated[bool, Field(strict=True)] = False
    """Announced, and not yet to be had: its figures may change."""
    prices: tuple[Price, ...] = ()


class Node(Entry):
    """A server, a rack that acts as one scale-up domain, or a cloud instance."""

    kind: Literal["server", "rack", "workstation", "cloud"]
    provider: str
    accelerator: str
    """Id of the accelerator."""
    accelerators: Count
    scaleup: Link | None = None
    """Where the box wires its accelerators otherwise than the accelerator's own entry says."""
    nics: Annotated[int, Field(ge=0)] = 0
    """Network ports for training traffic."""
    nic_bandwidth: Bandwidth | None = None
    """Per port and direction."""
    fabric: str | None = None
    """Id of the fabric that the node is usually wired with."""
    host_memory: Bytes | None = None
    local_storage: Bytes | None = None
    max_power: Watts | None = None
    rented_as: str | None = None
    """Id of the cloud instance whose hourly price stands in for this box where an hour of it has to be priced."""
    prices: tuple[Price, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One dimension of a network that is described dimension by dimension."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    topology: Literal["ring", "switch", "fully-connected", "torus"]
    size: Count | None = None
    """Accelerators along it; None, on the outermost: all that are left."""
    bandwidth: Bandwidth
    """Bytes per second that one accelerator sends while it receives as much, all its links of this dimension."""
    latency: Seconds = 0.0
    """Latency of one hop."""


class Fabric(Entry):
    """The network between nodes; or, where it has dimensions, the whole network down to the accelerators."""

    kind: Literal["infiniband", "roce", "efa", "slingshot", "ici", "ethernet", "tcp"]
    nic_bandwidth: Bandwidth
    """Per port and direction."""
    latency: Seconds
    """From accelerator to accelerator over one leaf, as a collective's step sees it."""
    topology: Literal["rail-optimised", "rail-only", "fat-tree", "dragonfly", "torus"]
    leaf_nodes: Count
    """Nodes below one leaf (or rail group); beyond it traffic crosses the spine."""
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """Bandwidth into a leaf over bandwidth out of it; 1 is non-blocking."""
    dimension1: Dimension | None = None
    """Innermost of up to four dimensions, which stand in place of scale-up links, NICs, leaves and spine."""
    dimension2: Dimension | None = None
    dimension3: Dimension | None = None
    dimension4: Dimension | None = None
    chunks: Count = 4
    """Pieces that a collective over dimensions is cut into: with 1, they work one after the other."""

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimensions that are described, innermost first."""
        every = (self.dimension1, self.dimension2, self.dimension3, self.dimension4)
        return tuple(dimension for dimension in every if dimension is not None)


class Region(Entry):
    """A place: what its electricity costs and emits."""

    electricity: UsdPerKwh
    carbon: GramsPerKwh
    pue: Annotated[float, Field(ge=1)] = 1.25
    """Power usage effectiveness: facility power over IT power."""


def dated(release: str) -> float | None:
    """A release as a year: the middle of the month that its name says, or of the year; None if it says neither."""
    named = re.match(r"(\d{4})(?:\.(\d\d))?$", release)
    if named is None:
        return None
    return float(named[1]) + ((float(named[2]) - 0.5) / 12 if named[2] else 0.5)


@dataclass(frozen=True)
class RuntimeDefault:
    """What a runtime does where nothing is said, from a date on."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    value: int | float | str | bool
    """Value of an axis as a pin writes it, or of a field of the runtime; ``all`` of `micro`: no accumulation;
    ``causal`` of `model_flops`: of a causal attention half counts."""
    source: str
    """Repository, commit and line that say so."""
    since: Annotated[str, Field(pattern=_MONTH)] | None = None
    """Year and month from when on; none: always."""
    on: tuple[str, ...] = ()
    """Generations of accelerators that it does so on; none: all."""
    also: tuple[int | float | str | bool, ...] = ()
    """What else its own sources start: recipes that differ from each other, or from what a flag is by itself."""


class Runtime(Entry):
    """A training framework: what it supports, fuses and overlaps. What a runtime cannot express is not searched."""

    vendors: tuple[str, ...] = ("NVIDIA", "AMD")
    """Makers of the accelerators that it runs on."""
    called: tuple[str, ...] = ()
    """Words by which tables of measured runs name it, in lower case; the longest that a row contains decides."""
    between: tuple[str, ...] = ()
    """Runtimes (``name`` or ``name@release``) whose traits one that nobody has named may have: how far apart they
    predict a plan widens its interval."""
    measured_as: str = ""
    """The runtime whose fitted efficiencies hold for it where it has none of its own: the same kernels."""
    releases: Annotated[tuple[str, ...], Field(min_length=1)]
    """Dated releases, oldest first; the newest is the default."""
    axes: dict[str, tuple[int | str | bool, ...] | Literal["any"]]
    """Axis -> the values it can express, or "any"; an axis that is missing is fixed at its neutral value."""
    since: dict[str, Annotated[str, Field(pattern=_MONTH)]] = field(default_factory=dict)
    """Year and month since when it can express an axis, a value of it (``cp``, ``recompute=selective``),
    ``recompute_modules``, ``places_head``, ``fp32_sums_below_zero``, ``muon``, or ``ep_overlap`` under ZeRO 2 and 3
    (:data:`OVERLAPPED_SHARDS`): earlier releases cannot."""
    defaults: dict[str, tuple[RuntimeDefault, ...]] = field(default_factory=dict, hash=False)
    """Axis, or field of this record -> what a run is taken to have done that does not say it, oldest first."""
    schedules: dict[SplitSchedule, Annotated[str, Field(pattern=_MONTH)]] = field(default_factory=dict)
    """Schedules that compute weight gradients apart, each with the year and month since when it has it."""
    uneven_stages: bool
    """Whether pipeline stages may hold different numbers of layers."""
    offload_needs_zero: tuple[Literal[0, 1, 2, 3], ...] = ()
    """ZeRO stages that offloading the optimizer goes with; empty: all that it has."""
    frozen_bases: tuple[Literal["nf4", "int8", "fp8"], ...] = ()
    """Quantisations of frozen matrices that it trains adapters on."""
    muon_zero: tuple[Literal[0, 1], ...] = ()
    """ZeRO stages that it trains with Muon under, in bf16 over 32 bit; empty: it has no Muon."""
    overlapped_experts_zero: tuple[Literal[0, 1, 2, 3], ...] = (0, 1)
    """ZeRO stages under which experts' exchanges overlap, where they can (axis ``ep_overlap``)."""
    tunes: tuple[Literal["dora", "freeze", "dpo", "reward"], ...] = ()
    """What it has of fine-tuning: adapters with magnitudes, the last blocks alone, tasks on pairs."""
    zero_scope: tuple[Literal["full", "node"], ...] = ("full",)
    """Ranks that share one sharded copy: all data-parallel ranks, or those of one node (hybrid sharding)."""
    parameter_bytes: NotNegative
    """Bytes held per parameter for compute and, where the runtime keeps it, its own full-precision working copy."""
    gathers_working_copy: bool = False
    """Sharded fp32 parameters are the master copy itself and a 16-bit copy of one layer at a time is gathered from them
    (FSDP); `parameter_bytes` is then 0: the optimizer's `master_bytes` are the parameters."""
    gradient_bytes: NotNegative
    """Bytes held per parameter for gradients (4: accumulated in fp32)."""
    gradient_wire_bytes: NotNegative
    """Bytes per parameter that a gradient reduction moves."""
    fp32_sums_below_zero: Literal[0, 1, 2, 3] = 0
    """ZeRO stages below this train bf16 under an optimizer that sums gradients in fp32 beside those held, reduces the
    sums and updates from them without copies, unless its states are offloaded; 0: none."""
    parameter_wire_bytes: NotNegative = 2.0
    """Bytes per parameter that a parameter gather moves."""
    hosted_weight_bytes: NotNegative = 4.0
    """Bytes per trained parameter of weights that live in host memory (FSDP: its shards in fp32)."""
    fused_attention: bool = True
    """Flash-style attention: scores are never stored."""
    fused_attention_since: str = ""
    """First release with fused attention, where earlier ones in `releases` lack it."""
    fused_attention_not_on: tuple[str, ...] = ()
    """Generations of accelerators for which it has no such kernel: scores are stored, and ranks share no sequence."""
    fused_cross_entropy: bool = True
    """Logits are turned into the loss without an fp32 copy of their own."""
    fused_loss_since: str = ""
    """First release that compiles the loss into as few copies, where `fused_cross_entropy` is false."""
    logit_bytes: NotNegative = 0.0
    """Most bytes that a logit takes while the loss and its gradient are computed; 0: 6 if fused, else 10."""
    logit_bytes_split: NotNegative = 0.0
    """Most bytes that a logit takes where tensor-parallel ranks share the vocabulary; 0: as `logit_bytes`."""
    loss_traffic: NotNegative = 0.0
    """Bytes of a logit that the loss's kernels read and write, both passes; 0: 32 if fused, 8 if compiled whole, else
    52."""
    chunked_loss: bool = False
    """Logits are made and turned into the loss a few tokens at a time: never all of them at once."""
    shards_hidden: bool = False
    """Hidden states are shared by tensor-parallel ranks always, by width where not by sequence."""
    gathers_matrices: bool = False
    """Sharded weights are gathered matrix by matrix, not layer by layer (a compiler places the gathers)."""
    keeps_cast_inputs: bool = False
    """Inputs of 8-bit matrix products are kept for the backward pass as they were cast, one byte each."""
    bucket_bytes: NotNegative = 0.0
    """Bytes of gradients, as backward passes make them, that are gathered before they are reduced beside the pass, each
    bucket by a call of its own; 0: one call for all."""
    bucket_parameters: NotNegative = 0.0
    """Parameters whose gradients it gathers before it reduces them, and whose shards it gathers by one call, where
    communication overlaps (Megatron); 0: by `bucket_bytes`."""
    bucket_parameters_per_rank: NotNegative = 0.0
    """The least of that for every rank that shares them."""
    reduces_whole: bool = False
    """With sharded states (ZeRO 1) gradients are all-reduced, and parameters gathered after the update, beside nothing.
    Reductions run beside the pass in buckets of `bucket_parameters`; without that, one runs after it."""
    broadcasts_shards: bool = False
    """Parameters are gathered by a broadcast of each rank's shard, one after the other (ZeRO 1)."""
    update_bytes: NotNegative = 0.0
    """Bytes per parameter of a rank's optimizer shard that flat copies of gradients take during the update."""
    gather_launches: NotNegative = 0.0
    """Launches of the host a layer and rank when gathered parameters are put together tensor by tensor, rank by rank,
    after the update, while nothing else runs."""
    copies_gathered: bool = False
    """Gathered parameters (ZeRO 3) are copied out of one buffer into tensors between the kernels of a pass."""
    copies_gradients: bool = False
    """Gradients are copied into one buffer, as wide as they are reduced, between those kernels (ZeRO 2 and 3)."""
    selective_recompute: tuple[Literal["scores", "activation", "norms", "linear-half", "kernel-output"], ...] = (
        "scores",
    )
    """What selective recomputation drops and computes again."""
    recompute_modules: tuple[Literal["layernorm", "moe_act", "mla_up_proj", "mlp", "moe"], ...] = ()
    """Modules of a layer that it recomputes by name."""
    kernels_per_layer: NotNegative = 40.0
    """Kernel launches of one layer's forward pass: the floor that the CPU sets."""
    splits_uncompiled: bool = False
    """Schedules that compute weight gradients apart run kernels that are not compiled (``NAME+eager`` of the fitted
    efficiencies), and none that a compiler fuses into the loss."""
    dropout: bool = False
    """Models without a gated MLP are trained with dropout unless told otherwise (GPT-2 and 3 as first published)."""
    micro_batch_per_device: bool = False
    """Its micro-batch counts sequences of one device, whatever the devices share (MaxText)."""
    balances_head: bool = False
    """Stages are cut by cost with the head counted: the last one holds fewer layers."""
    places_head: bool = False
    """Stages can hold any number of layers: the last one gives up as many for the head as shortens the slowest."""
    lists_layers: bool = False
    """Stages can hold any number of layers, and where these are of one kind are as even as they go."""

    @property
    def known_as(self) -> tuple[str, ...]:
        """Names under which its efficiencies may stand, its own first."""
        return (self.id, self.measured_as) if self.measured_as else (self.id,)

    def default(self, what: str, date: str, generation: str = "") -> RuntimeDefault | None:
        """What a release of that date does about an axis where nothing is said; None where its sources do not say.

        A year counts to its end.
        """
        then = dated(date if "." in date else f"{date}.12")
        known = [d for d in self.defaults.get(what, ()) if not d.since or then is None or (dated(d.since) or 0) <= then]
        known = [d for d in known if not d.on or generation in d.on]
        return known[-1] if known else None

    def lacks(self, release: str) -> tuple[str, ...]:
        """What of `since` a release is too old for."""
        then = dated(release)
        since = {**self.since, **{f"schedule={name}": date for name, date in self.schedules.items()}}
        return () if then is None else tuple(what for what, date in since.items() if (dated(date) or 0.0) > then)

    def at(self, release: str) -> Runtime:
        """The runtime as of a release: axes and values that came later are missing."""
        if not (late := self.lacks(release)):
            return self
        axes = {
            axis: values if values == "any" else tuple(v for v in values if f"{axis}={v}" not in late)
            for axis, values in self.axes.items()
            if axis not in late
        }
        schedules = {name: date for name, date in self.schedules.items() if f"schedule={name}" not in late}
        scopes = tuple(scope for scope in self.zero_scope if f"zero_scope={scope}" not in late)
        places_head = self.places_head and "places_head" not in late
        modules = () if "recompute_modules" in late else self.recompute_modules
        sums = 0 if "fp32_sums_below_zero" in late else self.fp32_sums_below_zero
        muon = () if "muon" in late else self.muon_zero
        overlapped = tuple(z for z in self.overlapped_experts_zero if z < 2 or OVERLAPPED_SHARDS not in late)
        return replace(
            self,
            axes=axes,
            schedules=schedules,
            zero_scope=scopes,
            places_head=places_head,
            recompute_modules=modules,
            fp32_sums_below_zero=sums,
            muon_zero=muon,
            overlapped_experts_zero=overlapped,
        )

    def for_muon(self) -> Runtime:
        """What is left of it under Muon: neither fp16 nor offloaded states, shards over all ranks alone (Megatron-LM
        core_v0.18.0, core/optimizer/__init__.py, training/arguments.py).
        """
        narrowed: dict[str, tuple[int | str | bool, ...]] = {"zero": self.muon_zero, "offload": ("none",)}
        if (known := self.axes.get("precision", "any")) != "any":
            narrowed["precision"] = tuple(precision for precision in known if precision != "fp16")
        return replace(self, axes={**self.axes, **narrowed}, zero_scope=("full",))


class Cluster(OneLine):
    """Nodes of one kind on one fabric. Mixed clusters are several of these."""

    name: str = ""
    """What its owner calls it; empty for one that is only asked about."""
    node: Node
    accelerator: Accelerator
    count: Count
    """Nodes."""
    fabric: Fabric
    region: Region | None = None
    utilisation_of_peak_power: Fraction = 0.75
    """Power drawn while training over the most the node can draw."""

    @property
    def accelerators(self) -> int:
        """Accelerators in the cluster."""
        return self.count * self.node.accelerators

    @property
    def scaleup(self) -> Link:
        """The scale-up link as this node wires it."""
        return self.node.scaleup or self.accelerator.scaleup
