"""The plan's rules as a decision that every rank takes alike: by operation, group size and bytes only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.schema.plan import CommunicationRule

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv")
EITHER_MPI = ("mpi", "mpich", "openmpi")
"""Names of the one MPI library that a process can have loaded."""


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """Calls of one kind, and the back end that they use."""

    op: str
    ranks: int | None
    """Ranks of the group; None: any."""
    least: float
    most: float
    """Bytes of a call, both ends included, as nccl-tests counts them: the whole vector; an all-to-all's send buffer."""
    backend: str
    pools: tuple[int, ...] | None = None
    """That the group's ranks stand on, all of them; None: any."""


def of_plan(path: str | Path, rank: int = 1) -> tuple[RoutingRule, ...]:
    """The communication rules of a plan that ``clusterwright comm choose ... -o FILE`` wrote.

    Raises:
        ValueError: the document is no plan, or has a rule for an operation that is not known.
    """
    document: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if document.get("kind") not in ("plan", "plan-set"):
        raise ValueError(f"{path}: not a plan (kind is {document.get('kind')!r})")
    plan = document["plans"][rank - 1] if document["kind"] == "plan-set" else document
    return tuple(
        RoutingRule(
            *(rule["op"], rule.get("ranks"), rule["bytes_min"], rule["bytes_max"], rule["backend"]),
            tuple(rule["pools"]) if rule.get("pools") else None,
        )
        for rule in plan["communication"]
    )


def pools_of_plan(path: str | Path, rank: int = 1) -> tuple[int, ...]:
    """The index of every rank's pool, ranks numbered pool after pool; empty for a plan on one pool."""
    document: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    plan = document["plans"][rank - 1] if document["kind"] == "plan-set" else document
    pools = plan["cluster"]["pools"]
    held = [i for i, pool in enumerate(pools) for _ in range(pool["count"] * pool["accelerators_per_node"])]
    return tuple(held) if len(pools) > 1 else ()


def checked(rules: Sequence[RoutingRule], backends: Sequence[str]) -> tuple[RoutingRule, ...]:
    """The rules, if they can be followed: known operations, loaded back ends, and one back end for every call.

    Raises:
        ValueError: what is wrong, with the rule.
    """
    for rule in rules:
        if rule.op not in OPERATIONS:
            raise ValueError(f"{rule}: no operation {rule.op!r}; known are {', '.join(OPERATIONS)}")
        if rule.backend not in backends:
            raise ValueError(f"{rule}: no back end {rule.backend!r} here; loaded are {', '.join(backends)}")
        if not 0 <= rule.least <= rule.most:
            raise ValueError(f"{rule}: its sizes are no range")
    for i, one in enumerate(rules):
        for other in rules[i + 1 :]:
            overlap = max(one.least, other.least) <= min(one.most, other.most)
            share_pools = one.pools is None or other.pools is None or set(one.pools) == set(other.pools)
            overlap = overlap and share_pools
            if overlap and one.op == other.op and one.ranks == other.ranks and one.backend != other.backend:
                raise ValueError(f"{one} and {other} hold for the same calls and name different back ends")
    return tuple(rules)


def matched(rules: Sequence[RoutingRule], op: str, ranks: int, size: float, pools: Sequence[int] = ()) -> int | None:
    """Which rule holds for a call: the first, one for the group's pools before one for any, one for its size before one
    for any; None if there is none.
    """
    held = [i for i, rule in enumerate(rules) if rule.op == op and rule.least <= size <= rule.most]
    for candidate in (tuple(sorted(pools)) or None, None):
        for wanted in (ranks, None):
            match = next((i for i in held if (rules[i].ranks, rules[i].pools) == (wanted, candidate)), None)
            if match is not None:
                return match
    return None


def choose(
    rules: Sequence[RoutingRule], op: str, ranks: int, size: float, default: str, pools: Sequence[int] = ()
) -> str:
    """The back end of the rule that holds for a call of `size` bytes on `ranks` ranks; `default` where none does."""
    index = matched(rules, op, ranks, size, pools)
    return default if index is None else rules[index].backend


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
