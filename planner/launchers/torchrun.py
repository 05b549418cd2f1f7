"""torchrun: the command and ``start.sh``, which every node runs; and the target for a script of one's own.

Trainers build on the first two; the target starts the script on every accelerator, with the plan beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from planner.base.errors import WrongQuestion
from planner.launchers import checks, plan_facts, quoting
from planner.launchers.plan_facts import nodes, per_node
from planner.launchers.target import ON_EVERY_NODE, LaunchJob, LaunchProgram, Loss, Shell, Values, by_table
from planner.schema.plan import Plan

NAME = "start.sh"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def rendezvous(plan: Plan, values: Values) -> tuple[str, ...]:
    """``torchrun`` with what it needs to join all nodes; nodes of unlike size say theirs in ``NPROC_PER_NODE``."""
    each = per_node(plan)
    return (
        "torchrun",
        "--nnodes",
        str(nodes(plan)),
        "--nproc-per-node",
        Shell("$NPROC_PER_NODE") if each is None else str(each),
        "--node-rank",
        Shell("$NODE_RANK"),
        "--master-addr",
        Shell("$MASTER_ADDR"),
        "--master-port",
        values["master-port"],
    )


def script(plan: Plan, job: LaunchJob, header: str) -> str:
    """The text of ``start.sh``.

    Raises:
        WrongQuestion: the plan's environment has a name that no shell takes.
    """
    for name in job.environment:
        if not _VARIABLE.fullmatch(name):
            raise WrongQuestion(f"env {quoting.line(name)!r}: not a name of an environment variable")
    asks = [f': "${{NODE_RANK:?this node, from 0 to {nodes(plan) - 1}}}"', ': "${MASTER_ADDR:?address of node 0}"']
    if nodes(plan) == 1:
        asks = [': "${NODE_RANK:=0}"', ': "${MASTER_ADDR:=localhost}"']
    if per_node(plan) is None:
        asks.append(': "${NPROC_PER_NODE:?accelerators of this node}"')
    lines = [
        "#!/usr/bin/env bash",
        quoting.comments(header).rstrip(),
        'cd "$(dirname "$0")" || exit',
        "set -euo pipefail",
        *asks,
        *quoting.exports(job.environment),
        *job.site.before,
        *job.first,
        "",
        f"exec {quoting.command(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def started(plan: Plan, job: LaunchJob) -> str:
    """How a person starts a job: what is set by hand on several nodes, one node sets by itself."""
    return f"bash {NAME}" if job.start == ON_EVERY_NODE and nodes(plan) == 1 else job.start


def self_contained(job: LaunchJob) -> str:
    """A script that first writes the files it needs: for schedulers that carry a command but no folder."""
    written = [f"printf %s {quoting.word(job.files[name])} > {quoting.word(name)}" for name in job.needed]
    _, _, body = job.files[NAME].partition("\nset -euo pipefail\n")
    return "\n".join(["set -euo pipefail", *written, body.rstrip()]) + "\n"


PLAN = "plan.json"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``torchrun ... SCRIPT``; the script reads the plan from the file that ``CLUSTERWRIGHT_PLAN`` names."""
    return replace(
        job,
        command=(*rendezvous(plan, values), LaunchProgram(values["script"])),
        environment={**job.environment, **plan.env, "CLUSTERWRIGHT_PLAN": PLAN},
        needed=(*job.needed, PLAN),
    )


def loses(plan: Plan) -> Iterator[Loss]:
    """It starts processes: everything else is the script's to read."""
    yield Loss("parallelism, batch, precision, recompute", "left to the script, which finds them in plan.json")
    yield checks.unchecked(plan, "your script has to")
    yield from plan_facts.own_script_losses(plan)


EXPORTER = by_table("torchrun", emit=emit, loses=loses)
