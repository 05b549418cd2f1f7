"""Levers: values of axes that a runtime has, and that the base space leaves out where no pin names them.

The base space holds what decides most: degrees, ZeRO, recomputation by layers, overlap. A lever adds values to one axis
of it: modules recomputed by name, CUDA graphs, kernels, what lives in host memory. Those of :data:`FASTER` shorten
passes; those of :data:`LEANER` give memory for time, so that no candidate is faster with them than one of the same
layout without, if both fit. :mod:`planner.search.waves` rests on that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from planner.axes import AXES
from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    ATTENTION_KERNEL,
    DISPATCHER,
    GRAPHS,
    LEVERS,
    OFFLOAD,
    OFFLOAD_OVERLAP,
    RECOMPUTE,
    ZERO_SCOPE,
)
from planner.axes.values import ALONE, CORE_ATTENTION, PART, WHOLE, Recompute, modules, offload_name, over_nodes
from planner.schema.hardware import Cluster, Runtime
from planner.schema.workload import Model, Workload
from planner.space import dispatchers, offloading
from planner.space.pins import Bound, Pins

FASTER = (GRAPHS.name, DISPATCHER.name, ATTENTION_KERNEL.name)
LEANER = tuple(axis.name for axis in LEVERS if axis.name not in FASTER)
HOST = (OFFLOAD.name, OFFLOAD_OVERLAP.name, ACTIVATION_OFFLOAD.name)
"""Levers that keep something in host memory: few measured runs say what they cost (five shares of one lab's optimizer
states; layers moved whole, which is another mechanism), so that plans which need them are shown and not recommended."""
SHARES = (0.25, 0.5, 0.75)
"""Shares of the optimizer states in host memory that are tried, beside none and all."""


@dataclass(frozen=True, slots=True)
class Levers:
    """Values on the axes of levers, as pins spell them."""

    base: Mapping[str, tuple[str, ...]]
    """Axis -> values of the base space."""
    added: Mapping[str, tuple[str, ...]]
    """Axis -> what a lever adds to these."""

    def __bool__(self) -> bool:
        return bool(self.added)

    def pins(self, pins: Pins, added: Mapping[str, tuple[str, ...]]) -> Pins:
        """Pins that also hold the levers' axes: to the base space's values and those added."""
        bounds = {axis: Bound((*self.base[axis], *added.get(axis, ()))) for axis in self.added}
        return Pins({**pins.bounds, **bounds})


def offered(
    workload: Workload,
    cluster: Cluster,
    runtime: Runtime,
    pins: Pins,
    kernels: Collection[str],
    counts: Sequence[int],
) -> Levers:
    """The levers that a release of a runtime has on an accelerator for a model.

    Args:
        workload: The model and how it is trained.
        cluster: The machines.
        runtime: As of its release.
        pins: Of the question; what they hold has no lever.
        kernels: Attention kernels for which the accelerator has a figure.
        counts: Of nodes in question.
    """
    known = {axis: offloading.values_of(runtime, axis) for axis in (*FASTER, *LEANER)}
    model = workload.model
    added: dict[str, Sequence[str]] = {
        GRAPHS.name: [name for name in GRAPHS.choices if name != ALONE and name in known[GRAPHS.name]],
        DISPATCHER.name: [
            str(name)
            for name in known[DISPATCHER.name]
            if model.moe and name != ALONE and dispatchers.runs_on(str(name), cluster.accelerator)
        ],
        ATTENTION_KERNEL.name: [
            name
            for name in ATTENTION_KERNEL.choices
            if name in known[ATTENTION_KERNEL.name] and name in kernels
        ],
        OFFLOAD.name: [offload_name(share) for share in SHARES] if PART in known[OFFLOAD.name] else [],
        OFFLOAD_OVERLAP.name: ["on"] if True in known[OFFLOAD_OVERLAP.name] else [],
        ACTIVATION_OFFLOAD.name: list(_moved(model, known[ACTIVATION_OFFLOAD.name])),
        RECOMPUTE.name: list(_recomputed(model, runtime, known[RECOMPUTE.name])),
        ZERO_SCOPE.name: list(scopes_over_nodes(counts)) if "node" in runtime.zero_scope else [],
    }  # fmt: skip
    if model.moe is not None:
        added[GRAPHS.name] = [name for name in added[GRAPHS.name] if name != "full"]
    base = {axis: _base(axis, pins, workload, runtime) for axis in added}
    mine = {
        axis: tuple(values)
        for axis, values in added.items()
        if values and axis not in pins and AXES[axis].spell(AXES[axis].neutral) in base[axis]
    }
    return Levers({axis: base[axis] for axis in mine}, mine)


def _base(axis: str, pins: Pins, workload: Workload, runtime: Runtime) -> tuple[str, ...]:
    if axis == RECOMPUTE.name:
        return tuple(policy.name for policy in offloading.policies(workload, runtime, (), pins))
    if axis == OFFLOAD.name:
        return tuple(offload_name(share) for share in offloading.states(runtime, pins))
    if axis == ZERO_SCOPE.name:
        return runtime.zero_scope
    return (AXES[axis].spell(AXES[axis].neutral),)


def scopes_over_nodes(counts: Sequence[int]) -> Iterator[str]:
    """Counts of nodes that can share a copy where there are several: proper divisors of a count in question."""
    divisors = (nodes for nodes in range(2, max(counts) // 2 + 1) if any(n > nodes and n % nodes == 0 for n in counts))
    yield from map(over_nodes, divisors)


def _recomputed(model: Model, runtime: Runtime, known: Collection[object]) -> Iterator[str]:
    """Policies that name modules."""
    able = [name for name in offloading.modules_of(model) if name in runtime.recompute_modules]
    if "selective" not in known:
        return
    for named in _subsets(able):
        for again in (named, (CORE_ATTENTION, *named)):
            policy: Recompute = modules("+".join(again), again)
            yield policy.name


def _moved(model: Model, known: Collection[object]) -> Iterator[str]:
    """Modules whose inputs can live in host memory, joined; what attention gives goes with what it reads
    (:func:`planner.axes.values.activation_offload`).
    """
    yield from (WHOLE,) if WHOLE in known else ()
    for named in _subsets([name for name in offloading.offloadable(model) if name in known]):
        if "attn_proj" not in named or CORE_ATTENTION in named:
            yield "+".join(named)


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All of them, the smallest first."""
    return chain.from_iterable(combinations(names, count) for count in range(1, len(names) + 1))
