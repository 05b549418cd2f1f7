"""Which rule of a plan a call falls under."""

from __future__ import annotations

from collections.abc import Sequence

from planner.schema.plan import CommunicationRule


def rule_of(
    rules: Sequence[CommunicationRule], op: str, group: str, ranks: int, size: float, pools: Sequence[int] = ()
) -> CommunicationRule | None:
    """The first rule for an operation of a group on these pools whose range of sizes includes `size` bytes; or None."""
    for rule in rules:
        same = rule.op == op and rule.group in (group, "*") and rule.ranks in (None, ranks)
        same = same and rule.pools in (None, tuple(pools))
        if same and rule.bytes_min <= size <= rule.bytes_max:
            return rule
    return None


def spelt(backend: str, algorithm: str, protocol: str) -> str:
    """``nccl ring/ll128``; ``mpich`` where the library chooses by itself."""
    how = "/".join(word for word in (algorithm, protocol) if word)
    return f"{backend} {how}" if how else backend
