"""What NCCL can be told to do: collectives, and the algorithms and protocols that it has for them (v2.30.7)."""

from __future__ import annotations

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
