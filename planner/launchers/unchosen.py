"""What README says of the training that neither the plan nor the caller chose: rates, and how many checkpoints stay."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.units import format_bytes
from planner.launchers import plan_facts
from planner.launchers.target import EnvironmentSetting, LaunchJob, Values
from planner.schema.plan import Plan

STATE_BYTES = 14
"""Bytes of a parameter in a checkpoint to continue from: 16-bit weights, fp32 master weights and Adam's two moments."""
MANY = 20
"""Checkpoints from which on README counts them."""
KEPT = 10
"""How many the advice keeps."""
RETAIN = "--save-retain-interval"


def rates(offered: Mapping[str, EnvironmentSetting], values: Values, files: Mapping[str, str]) -> str:
    """What changes the training and neither the plan nor the caller chose, where a file holds its default."""
    rate = offered["lr"].default if "lr" in offered else None
    if rate is None or values["lr"] != rate or not any(rate in f or str(float(rate)) in f for f in files.values()):
        return ""
    program = "warm-up, decay, betas, initialisation: the launcher's"
    return f"; the learning rate is {rate} unless --set lr= says another; {program}"


def checkpoints(plan: Plan, job: LaunchJob) -> str:
    """How many checkpoints Megatron-LM keeps, how large they are, and how to keep fewer; empty where they are few.

    It deletes none unless told (core_v0.16.1, training/checkpointing.py:751), and what is kept has to be a multiple of
    what is saved (training/arguments.py:842).
    """
    every = plan_facts.steps_between_checkpoints(plan)
    count = plan_facts.steps(plan) // every
    if "--save-interval" not in job.argv or RETAIN in job.argv or count < MANY:
        return ""
    size = STATE_BYTES * plan.workload.parameters
    return (
        f"; about {count:,} checkpoints of {format_bytes(size)}, {format_bytes(count * size)} in all, and none is "
        f"deleted (--set extra-args='{RETAIN} {-(-count // KEPT) * every}' keeps {KEPT} and the last)"
    )
