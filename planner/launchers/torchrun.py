"""torchrun: a script of one's own on every accelerator, with the plan beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import plan_facts, start
from planner.launchers.target import LaunchJob, LaunchProgram, Loss, Values, by_table
from planner.schema.plan import Plan

PLAN = "plan.json"


def emit(plan: Plan, job: LaunchJob, values: Values) -> LaunchJob:
    """``torchrun ... SCRIPT``; the script reads the plan from the file that ``CLUSTERWRIGHT_PLAN`` names."""
    return replace(
        job,
        command=(*start.rendezvous(plan, values), LaunchProgram(values["script"])),
        environment={**job.environment, **plan.env, "CLUSTERWRIGHT_PLAN": PLAN},
        needed=(*job.needed, PLAN),
    )


def loses(plan: Plan) -> Iterator[Loss]:
    """It starts processes: everything else is the script's to read."""
    yield Loss("parallelism, batch, precision, recompute", "left to the script, which finds them in plan.json")
    yield from plan_facts.own_script_losses(plan)


EXPORTER = by_table("torchrun", emit=emit, loses=loses)
