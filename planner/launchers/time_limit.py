"""How long a job of Slurm may be, and how a longer run is split: into jobs that save, end and continue in turn."""

from __future__ import annotations

import math
import re

from planner.base.errors import WrongQuestion
from planner.base.units import UnitError, parse
from planner.launchers.target import Values
from planner.schema.plan import Plan

SETTING = "time-limit"
LONGEST_H = 7 * 24.0
"""Time limit that most partitions allow, hours."""
ENDING_S = 900.0
"""Until a job has started its processes, and written a last checkpoint to the disk, seconds."""


def allowed_h(values: Values) -> float:
    """Hours that one job may take: as set (``24 h``, or ``1-00:00:00`` as Slurm has it), or :data:`LONGEST_H`.

    Raises:
        WrongQuestion: the setting is no time, or too short for a start, a step and a checkpoint.
    """
    text = values[SETTING]
    of_slurm = re.fullmatch(r"(?:(\d+)-)?(\d{1,4}):([0-5]\d):([0-5]\d)", text)
    if of_slurm:
        days, whole_h, minutes, seconds = (int(part or 0) for part in of_slurm.groups())
        text = f"{(days * 24 + whole_h) * 3600 + minutes * 60 + seconds} s"
    try:
        hours = parse(text, "time") / 3600 if text else LONGEST_H
    except UnitError as error:
        raise WrongQuestion(f"--set {SETTING}={text}: {error}") from None
    if not 1 <= hours <= 8766:
        raise WrongQuestion(f"--set {SETTING}={text}: must be from 1 h to a year")
    return hours


def needed_h(plan: Plan) -> int:
    """Hours of the whole run: the predicted ones and a tenth more."""
    return max(math.ceil(plan.money.days * 24 * 1.1), 1)


def job_s(plan: Plan, values: Values) -> int:
    """Time limit of one job, seconds: the whole run's where a job may be as long."""
    return round(min(float(needed_h(plan)), allowed_h(values)) * 3600)


def ending_s(plan: Plan, values: Values) -> int:
    """Seconds before its limit at which a job saves and ends; of a short job half its time at most."""
    steps = 2 * plan.prediction.step_time_s + plan.money.goodput.checkpoint_blocks_s
    return min(math.ceil(ENDING_S + steps), job_s(plan, values) // 2)


def jobs(plan: Plan, values: Values) -> int:
    """Jobs, one after the other, that a run takes: each continues from the checkpoint of the one before it."""
    if needed_h(plan) <= allowed_h(values):
        return 1
    trains_s = job_s(plan, values) - ending_s(plan, values)
    return math.ceil(needed_h(plan) * 3600 / trains_s)


def exit_minutes(plan: Plan, values: Values) -> int | None:
    """Minutes after which a trainer saves and ends by itself; None without a limit."""
    if SETTING not in values:
        return None
    return (job_s(plan, values) - ending_s(plan, values)) // 60
