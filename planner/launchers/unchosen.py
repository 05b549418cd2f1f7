"""What README says of the training that neither the plan nor the caller chose: rates, and how many checkpoints stay.

A launcher's table has both, as its program takes them unless told: ``usual`` names rates, ``retention`` the arguments
that delete checkpoints and what they keep, where the program deletes none by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.units import format_bytes
from planner.launchers import plan_facts
from planner.launchers.target import EnvironmentSetting, Exporter, LaunchJob, Values
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan

STATE_BYTES = 14
"""Bytes of a parameter in a checkpoint to continue from: 16-bit weights, fp32 master weights and Adam's two moments."""
MANY = 20
"""Checkpoints from which on README counts them."""
KEPT = 10
"""How many the advice keeps."""


def rates(
    exporter: Exporter, offered: Mapping[str, EnvironmentSetting], values: Values, files: Mapping[str, str]
) -> str:
    """What changes the training and neither the plan nor the caller chose, where a file holds its default."""
    rate = offered["lr"].default if exporter.role == "trainer" and "lr" in offered else None
    if rate is None or values["lr"] != rate or not any(rate in f or str(float(rate)) in f for f in files.values()):
        return ""
    usual = launcher_table(exporter.name).head.get("usual")
    schedule = (
        f"{usual}: {exporter.name}'s own (extra-args say others)" if usual else "warm-up, decay, betas: the script's"
    )
    return f"; the learning rate is {rate} unless --set lr= says another; {schedule}"


def checkpoints(exporter: Exporter, plan: Plan, job: LaunchJob) -> str:
    """How many checkpoints a program keeps, how large they are, and how to keep fewer; empty where they are few."""
    arguments, kept = launcher_table(exporter.name).head.get("retention", ("", ""))
    every = plan_facts.steps_between_checkpoints(plan)
    count = plan_facts.steps(plan) // every
    if not arguments or arguments.split()[0] in job.argv or count < MANY:
        return ""
    trained = plan.workload.parameters if plan.workload.method["kind"] in ("pretrain", "finetune") else 0
    sizes = f" of {format_bytes(STATE_BYTES * trained)}, {format_bytes(count * STATE_BYTES * trained)} in all,"
    fewer = arguments.format(every=-(-count // KEPT) * every, kept=KEPT)
    return (
        f"; about {count:,} checkpoints{sizes if trained else ''} and none is deleted "
        f"(--set extra-args='{fewer}' keeps {kept.format(kept=KEPT)})"
    )
