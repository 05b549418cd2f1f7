"""NCCL's example tuner plugin: ``nccl_tuner.csv`` from the plan's communication rules, and what loads it.

The plugin rejects nothing: what it does not know it turns into something else. Every token is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from planner.export import facts
from planner.export.target import Exporter, Job, Loss, Setting, Values
from planner.schema.plan import CommunicationRule, Plan

NAME = "nccl_tuner.csv"
COLLECTIVES = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")


def emit(plan: Plan, job: Job, values: Values) -> Job:
    """The table and ``NCCL_TUNER_*``."""
    rows = [row(rule) for rule in tuned(plan)]
    return replace(
        job,
        files={**job.files, NAME: "\n".join(rows) + "\n"},
        needed=(*job.needed, NAME),
        environment={
            **job.environment,
            "NCCL_TUNER_PLUGIN": values["tuner-plugin"],
            "NCCL_TUNER_CONFIG_FILE": NAME,
        },
    )


def tuned(plan: Plan) -> list[CommunicationRule]:
    """Rules for NCCL."""
    return [rule for rule in plan.communication if rule.backend == "nccl"]


def row(rule: CommunicationRule) -> str:
    """``collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks``; -1: any."""
    low, high = int(rule.bytes_min), int(rule.bytes_max)
    return f"{collective(rule)},{low},{high},{rule.algorithm.lower()},{rule.protocol.lower()},-1,-1,-1"


def collective(rule: CommunicationRule) -> str:
    """The plugin's name of an operation: ``all-reduce`` and ``all_reduce`` are ``allreduce``."""
    return rule.op.lower().replace("-", "").replace("_", "")


def refuses(plan: Plan) -> Iterator[str]:
    """Tokens that the plugin would turn into others, and sizes that no row covers."""
    rules = tuned(plan)
    if not rules:
        yield "the plan has no communication rules for NCCL"
    for rule in rules:
        if collective(rule) not in COLLECTIVES:
            yield f"{rule.op!r} would be read as allreduce; the plugin knows {', '.join(COLLECTIVES)}"
        if rule.algorithm.lower() not in ALGORITHMS:
            yield f"algorithm {rule.algorithm!r} would be read as ring; known: {', '.join(ALGORITHMS)}"
        if rule.protocol.lower() not in PROTOCOLS:
            yield f"protocol {rule.protocol!r} would be read as simple; known: {', '.join(PROTOCOLS)}"
    yield from _gaps(rules)


def _gaps(rules: list[CommunicationRule]) -> Iterator[str]:
    """The first row that matches wins, so rows of one operation and group have to follow each other without a hole."""
    for op in dict.fromkeys(collective(rule) for rule in rules):
        rows = sorted((int(rule.bytes_min), int(rule.bytes_max)) for rule in rules if collective(rule) == op)
        for (_, end), (begin, _) in pairwise(rows):
            if begin > end + 1:
                yield f"no row for {op} between {end:,} and {begin:,} bytes"
            if begin < end:
                yield f"rows for {op} overlap from {begin:,} to {end:,} bytes: the plugin cannot tell groups apart"


def loses(plan: Plan) -> Iterator[Loss]:
    """Rules for other back ends, and groups."""
    if len(tuned(plan)) < len(plan.communication):
        yield Loss("communication", "rules for other back ends than nccl are not in the table")
    if len({rule.group for rule in tuned(plan)}) > 1:
        yield Loss("communication.group", "the table knows sizes, not groups")
    yield from facts.other_runtime(plan, (plan.runtime.name,))


EXPORTER = Exporter(
    name="nccl-tuner",
    title="NCCL tuner table (NVIDIA's example plugin)",
    version="nccl 2.30.7",
    role="settings",
    expresses={},
    settings=(Setting("tuner-plugin", "shared object of NCCL's example tuner plugin"),),
    emit=emit,
    refuses=refuses,
    loses=loses,
    level="validated",
    validated_by="NVIDIA's example plugin of NCCL 2.30.7, asked for its choices; NCCL itself never loaded it",
)
