"""The nearest measured step of RL post-training in words."""

from __future__ import annotations

from planner.base.units import format_seconds
from planner.schema.rl import PLACED
from planner.schema.rl_nearest import RLNearestStep


def evidence(step: RLNearestStep) -> list[str]:
    """The nearest measured step in words: what it was and took, and in what the plan is another."""
    count = step.trains if step.placement == "colocated" else f"{step.trains} + {step.rolls_out}"
    what = f"{step.source} {step.id}: {step.model} on {count} x {step.accelerator}, {PLACED[step.placement]}"
    predicted = f"{format_seconds(step.predicted_s)} predicted ({_error(step)}, by figures fitted with it)"
    took = f"{format_seconds(step.measured_s)} measured, {predicted}"
    unknown = "" if step.response_mean else "; mean length assumed"
    differs = f"differs: {', '.join(step.differs)}" if step.differs else "in nothing that is compared"
    return [f"{what}, {step.engine}, {step.trainer}", f"{took}{unknown}", differs]


def in_short(step: RLNearestStep) -> str:
    """The nearest measured step on one line."""
    count = step.trains if step.placement == "colocated" else f"{step.trains} + {step.rolls_out}"
    what = f"{step.source}, {count} x {step.accelerator.partition('-SXM')[0]}, {step.model}"
    ours = f"we say {format_seconds(step.predicted_s)} ({_error(step)}; it is one of those fitted to)"
    return f"{what}: {format_seconds(step.measured_s)}, {ours}"


def _error(step: RLNearestStep) -> str:
    return f"{100.0 * (step.predicted_s / step.measured_s - 1.0):+.0f} %"
