"""A second memory beside an accelerator's own, as the cost functions find it (:mod:`planner.cost.expanded_memory`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """A second, slower memory beside an accelerator's own: floats, or arrays that broadcast. SI."""

    memory: Any
    """Bytes of one unit that plans may fill."""
    rate: Any
    """Reachable B/s of one unit."""
    latency: Any
    """Seconds of one request."""
    sharers: Any
    """Accelerators that share one unit; infinite: all of the cluster."""
    concurrent: Any
    """1 if both memories are read at once, 0: one after the other."""
