"""What calls take by the model, for NCCL's algorithms and protocols: who has measured nothing can still choose."""

from __future__ import annotations

from collections.abc import Mapping

from planner.comm import nccl
from planner.comm.table import Candidate
from planner.comm.timing import Time
from planner.cost import algorithms
from planner.cost.algorithms import Library
from planner.cost.calls import SEND, Call
from planner.cost.collectives import Group
from planner.cost.figures import Network

NCCL = Candidate("nccl")


def times(network: Network, library: Library, call: Call) -> Mapping[Candidate, Time]:
    """One call by every algorithm and protocol that NCCL can be told to use; where it cannot be told, by itself."""
    g = Group(float(call.ranks), float(call.inside), call.reach)
    op = "send" if call.op == SEND else call.op
    if nccl.collective(call.op) not in nccl.ABLE:
        every = algorithms.times(network, op, call.bytes, g, library)
        return {NCCL: Time(min(float(each) for (how, _), each in every.items() if how == "direct"), 0.0, False)}
    found = algorithms.times(network, op, call.bytes, g, library)
    named = {Candidate("nccl", how.lower(), protocol.lower()): float(each) for (how, protocol), each in found.items()}
    return {
        who: Time(seconds, 0.0, False)
        for who, seconds in sorted(named.items())
        if nccl.has(call.op, who.algorithm, who.protocol)
    }
