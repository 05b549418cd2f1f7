"""NCCL's example tuner plugin: ``nccl_tuner.csv`` from the plan's communication rules, and what loads it.

The plugin rejects nothing: what it does not know it turns into something else, and what NCCL cannot do it leaves
without a word. Every row is checked here. ``NCCL_ALGO`` and ``NCCL_PROTO`` hold NCCL to what the rules use where the
plugin is not loaded; they know operations, not sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

from planner.base.units import format_seconds
from planner.comm.tables import nccl_methods
from planner.comm.tables.nccl_methods import ABLE, ALGORITHMS, COLLECTIVES, PROTOCOLS, SIMPLE_ONLY
from planner.launchers import plan_facts
from planner.launchers.target import LaunchJob, Loss, Values, by_table
from planner.schema.plan import CommunicationRule, Plan

NAME = "nccl_tuner.csv"
ALWAYS = {"ring", "tree"}
"""Algorithms that need no switch or NIC that adds."""
_FUNCTIONS = {"allgather": "AllGather", "reducescatter": "ReduceScatter", "allreduce": "AllReduce"}
_SPELT = {"collnet_direct": "CollNetDirect", "collnet_chain": "CollNetChain", "nvls_tree": "NVLSTree"}
"""Names in ``NCCL_ALGO`` that are not those of the plugin's table in other letters."""


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """The table, ``NCCL_TUNER_*``, and what holds NCCL to the rules without them."""
    rows = list(dict.fromkeys(row(rule) for rule in tuned(plan)))
    return replace(
        job,
        files={**job.files, NAME: "\n".join(rows) + "\n"},
        needed=(*job.needed, NAME),
        environment={
            **job.environment,
            "NCCL_TUNER_PLUGIN": values["tuner-plugin"],
            "NCCL_TUNER_CONFIG_FILE": NAME,
            **environment(plan),
        },
    )


def tuned(plan: Plan) -> list[CommunicationRule]:
    """Rules for NCCL that say how and that the table can tell apart; the others leave the choice to it."""
    unlike = by_pool(plan)
    ours = [rule for rule in plan.communication if rule.backend == "nccl" and (rule.algorithm or rule.protocol)]
    return [rule for rule in ours if (rule.op, rule.ranks) not in unlike]


def by_pool(plan: Plan) -> set[tuple[str, int | None]]:
    """Operations and group sizes whose rules differ by pool: one table serves all nodes, and it knows no pools."""
    found: dict[tuple[str, int | None], dict[object, set[object]]] = {}
    for rule in plan.communication:
        how = (rule.bytes_min, rule.bytes_max, rule.backend, rule.algorithm, rule.protocol)
        found.setdefault((rule.op, rule.ranks), {}).setdefault(rule.pools, set()).add(how)
    return {kind for kind, pools in found.items() if len({frozenset(hows) for hows in pools.values()}) > 1}


def row(rule: CommunicationRule) -> str:
    """``collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks``; -1: any, or NCCL's own."""
    low, high = int(rule.bytes_min), int(rule.bytes_max)
    ranks = -1 if rule.ranks is None else rule.ranks
    return f"{collective(rule)},{low},{high},{rule.algorithm.lower()},{rule.protocol.lower()},-1,-1,{ranks}"


def collective(rule: CommunicationRule) -> str:
    """The plugin's name of a rule's operation."""
    return nccl_methods.collective(rule.op)


def environment(plan: Plan) -> dict[str, str]:
    """``NCCL_ALGO`` and ``NCCL_PROTO`` for the operations all of whose rules say how.

    An algorithm that needs special switches has the ring beside it: held to what it cannot do, NCCL stops. An operation
    with a rule for LL128 is left out of ``NCCL_PROTO``: named there, NCCL uses it where it is not safe, too.
    """
    found: dict[str, list[str]] = {"NCCL_ALGO": [], "NCCL_PROTO": []}
    ours = [rule for rule in plan.communication if rule.backend == "nccl"]
    for op in dict.fromkeys(collective(rule) for rule in tuned(plan)):
        rules = [rule for rule in ours if collective(rule) == op]
        if not all(rule.algorithm and rule.protocol for rule in rules):
            continue
        algorithms = dict.fromkeys(rule.algorithm.lower() for rule in rules)
        if not ALWAYS & algorithms.keys():
            algorithms["ring"] = None
        function = _FUNCTIONS.get(op, op.capitalize())
        found["NCCL_ALGO"].append(f"{function}:{','.join(_SPELT.get(name, name) for name in algorithms)}")
        protocols = dict.fromkeys(rule.protocol.lower() for rule in rules)
        if "ll128" not in protocols:
            found["NCCL_PROTO"].append(f"{function}:{','.join(protocols)}")
    return {name: ";".join(parts) for name, parts in found.items() if parts}


def refuses(plan: Plan) -> Iterator[str]:
    """Tokens that the plugin would turn into others, rows that NCCL would ignore, and sizes that no row covers."""
    yield from plan_facts.runs_on(plan, "nvidia")
    rules = tuned(plan)
    if not rules:
        yield "the plan has no communication rules for NCCL (clusterwright comm choose)"
    for rule in rules:
        op, algorithm, protocol = collective(rule), rule.algorithm.lower(), rule.protocol.lower()
        if op not in COLLECTIVES:
            yield f"{rule.op!r} would be read as allreduce; the plugin knows {', '.join(COLLECTIVES)}"
        if algorithm not in ALGORITHMS:
            yield f"algorithm {rule.algorithm!r} would be read as ring; known: {', '.join(ALGORITHMS)}"
        elif algorithm not in ABLE.get(op, ALGORITHMS):
            yield f"NCCL has no {algorithm} for {op} and would ignore the row; it has {', '.join(ABLE[op])}"
        if protocol not in PROTOCOLS:
            yield f"protocol {rule.protocol!r} would be read as simple; known: {', '.join(PROTOCOLS)}"
        elif algorithm in SIMPLE_ONLY and protocol != "simple":
            yield f"NCCL has no {protocol} for {algorithm} and would ignore the row; it has simple"
        if rule.ranks is not None and algorithm == "nvls_tree" and rule.ranks <= _domain(plan):
            yield f"NCCL has no nvls_tree inside one node and would ignore the row of {rule.ranks} ranks"
    yield from _gaps(rules)


def _domain(plan: Plan) -> int:
    """Accelerators of a node, rack or not, where all pools have as many; else 0."""
    counts = {pool.accelerators_per_node for pool in plan.cluster.pools}
    return counts.pop() if len(counts) == 1 else 0


def _gaps(rules: list[CommunicationRule]) -> Iterator[str]:
    """The first row that matches wins, so rows of one operation and group size have to follow each other without a
    hole.
    """
    for op, ranks in dict.fromkeys((collective(rule), rule.ranks) for rule in rules):
        mine = [rule for rule in rules if (collective(rule), rule.ranks) == (op, ranks)]
        spans = {(int(rule.bytes_min), int(rule.bytes_max), rule.algorithm, rule.protocol) for rule in mine}
        what = op if ranks is None else f"{op} of {ranks} ranks"
        for (_, end, *_), (begin, *_) in pairwise(sorted(spans)):
            if begin > end + 1:
                yield f"no row for {what} between {end:,} and {begin:,} bytes"
            if begin <= end:
                yield f"rows for {what} overlap from {begin:,} to {end:,} bytes: the plugin cannot distinguish groups"
    for one, other in combinations(rules, 2):
        if collective(one) == collective(other) and (one.ranks is None) != (other.ranks is None):
            yield f"rows for {collective(one)} of any ranks and of some: the first that matches would win"
            return


def loses(plan: Plan) -> Iterator[Loss]:
    """Rules for other back ends with what they would have saved, and groups of one size."""
    others = sorted({rule.backend for rule in plan.communication if rule.backend != "nccl"})
    if others:
        yield Loss("communication", f"rules for {', '.join(others)} are not in the table{_cost(plan)}")
    sizes: dict[tuple[str, int | None], set[str]] = {}
    for rule in tuned(plan):
        sizes.setdefault((collective(rule), rule.ranks), set()).add(rule.group)
    if any(len(groups) > 1 for groups in sizes.values()):
        yield Loss("communication.group", "the table knows sizes, not groups; groups of one size share their rows")
    unlike = sorted({op for op, _ in by_pool(plan)})
    if unlike:
        what = (
            f"rules for {', '.join(unlike)} differ by pool; one table serves all nodes, so NCCL chooses these by itself"
        )
        yield Loss("communication.pools", what)
    left_to_nccl = sorted(
        {rule.op for rule in plan.communication if rule.backend == "nccl"} - {r.op for r in tuned(plan)} - set(unlike)
    )
    if left_to_nccl and tuned(plan):
        yield Loss("communication.op", f"NCCL chooses for {', '.join(left_to_nccl)} by itself, as the plan leaves it")
    yield from plan_facts.other_runtime(plan, (plan.runtime.name,))


def _cost(plan: Plan) -> str:
    """What the step loses by it, as far as the plan says."""
    chosen = plan.communication_choice
    if chosen is None:
        return ""
    if chosen.base != "nccl":
        return f"; the plan's times are those of {chosen.base}, with NCCL alone they are not known"
    lost = sum(call.saved_s for call in chosen.calls if not call.choice.startswith("nccl"))
    return f": {format_seconds(lost)} a step more" if lost > 0 else ""


EXPORTER = by_table("nccl-tuner", emit=emit, refuses=refuses, loses=loses)
