"""What NCCL can be told to do: its collectives, their algorithms and protocols (v2.30.7), and their modelled times.

Who has measured nothing can still choose. A step takes every call to be the library's best, so the best method takes
the seconds of the call in the plan; how much longer the others take is the model of the algorithms
(:mod:`planner.cost.nccl_algorithms`).
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.comm.tables.measured_times import CollectiveMethod
from planner.comm.tables.timing import Time
from planner.cost import nccl_algorithms
from planner.cost.calls import SEND, Call
from planner.cost.collective_times import CollectiveGroup
from planner.cost.figures import Network
from planner.cost.nccl_algorithms import CollectiveLibrary

COLLECTIVES = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
_SHARED = ("ring", "pat", "nvls", "collnet_direct")
ABLE = {
    "broadcast": ("ring",),
    "reduce": ("ring",),
    "allgather": _SHARED,
    "reducescatter": _SHARED,
    "allreduce": tuple(name for name in ALGORITHMS if name != "pat"),
}
"""Collective -> algorithms that NCCL has for it (src/graph/tuning.cc); what asks for another is ignored."""
SIMPLE_ONLY = ("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""Algorithms that have no LL and no LL128."""


def collective(op: str) -> str:
    """NCCL's name of an operation: ``all-reduce`` and ``all_reduce`` are ``allreduce``."""
    return op.lower().replace("-", "").replace("_", "")


def has(op: str, algorithm: str, protocol: str) -> bool:
    """Whether NCCL has an algorithm with a protocol for an operation."""
    if algorithm not in ABLE.get(collective(op), ()) or protocol not in PROTOCOLS:
        return False
    return protocol == "simple" or algorithm not in SIMPLE_ONLY


NCCL = CollectiveMethod("nccl")


def times(network: Network, library: CollectiveLibrary, call: Call) -> Mapping[CollectiveMethod, Time]:
    """Modelled seconds of a call by every algorithm and protocol that NCCL can be made to use, else by its own choice.

    ``t = alone / count * modelled / least modelled``: the fastest takes the time that the plan's prediction has.
    """
    modelled = _modelled(network, library, call)
    scale = call.alone_s / call.count / min(modelled.values())
    return {who: Time(scale * seconds, 0.0, False) for who, seconds in sorted(modelled.items())}


def _modelled(network: Network, library: CollectiveLibrary, call: Call) -> dict[CollectiveMethod, float]:
    g = CollectiveGroup(float(call.ranks), float(call.inside), call.reach)
    by_method = nccl_algorithms.times(network, "send" if call.op == SEND else call.op, call.bytes, g, library)
    if collective(call.op) not in ABLE:
        return {NCCL: min(float(time) for (how, _), time in by_method.items() if how == "direct")}
    named = {
        CollectiveMethod("nccl", how.lower(), protocol.lower()): float(time)
        for (how, protocol), time in by_method.items()
    }
    return {who: seconds for who, seconds in named.items() if has(call.op, who.algorithm, who.protocol)}
