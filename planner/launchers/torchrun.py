"""torchrun: a script of one's own on every accelerator, with the plan beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.launchers import plan_facts, profiles, start
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, LaunchProgram, Loss, Values
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


SCRIPT = EnvironmentSetting("script", "training script, started on every accelerator")
PORT = EnvironmentSetting("master-port", "port on node 0", "29500")
EXPORTER = Exporter(
    name="torchrun",
    title="torchrun with a script of your own",
    version="torch 2.13.0",
    role="trainer",
    expresses={"pools": "any"},
    settings=(SCRIPT, PORT, profiles.EXTRA),
    emit=emit,
    loses=loses,
    level="ran-cpu",
    validated_by="training on CPU (torch 2.13.0, gloo) from exported plans, losses equal to one process within 1e-5",
)
