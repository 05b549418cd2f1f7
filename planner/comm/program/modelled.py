"""What calls take by the model, for NCCL's algorithms and protocols: who has measured nothing can still choose.

A step takes every call to be the library's best, so the best one here takes what the call takes there; how much longer
the others take is the model of the algorithms (:mod:`planner.cost.nccl_algorithms`).
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.comm.tables import nccl_choices
from planner.comm.tables.measured_times import CollectiveMethod
from planner.comm.tables.timing import Time
from planner.cost import nccl_algorithms
from planner.cost.calls import SEND, Call
from planner.cost.collective_times import CollectiveGroup
from planner.cost.figures import Network
from planner.cost.nccl_algorithms import CollectiveLibrary

NCCL = CollectiveMethod("nccl")


def times(network: Network, library: CollectiveLibrary, call: Call) -> Mapping[CollectiveMethod, Time]:
    """Modelled seconds of a call by every algorithm and protocol that NCCL can be made to use, else by its own choice.

    ``t = alone / count * modelled / least modelled``: the fastest takes the time that the plan's prediction has.
    """
    found = _modelled(network, library, call)
    each = call.alone_s / call.count / min(found.values())
    return {who: Time(each * seconds, 0.0, False) for who, seconds in sorted(found.items())}


def _modelled(network: Network, library: CollectiveLibrary, call: Call) -> dict[CollectiveMethod, float]:
    g = CollectiveGroup(float(call.ranks), float(call.inside), call.reach)
    found = nccl_algorithms.times(network, "send" if call.op == SEND else call.op, call.bytes, g, library)
    if nccl_choices.collective(call.op) not in nccl_choices.ABLE:
        return {NCCL: min(float(each) for (how, _), each in found.items() if how == "direct")}
    named = {
        CollectiveMethod("nccl", how.lower(), protocol.lower()): float(each) for (how, protocol), each in found.items()
    }
    return {who: seconds for who, seconds in named.items() if nccl_choices.has(call.op, who.algorithm, who.protocol)}
