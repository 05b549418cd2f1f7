"""The bubble of schedules that compute weight gradients apart, from the passes that a plan states."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan_prediction import SplitPasses
from planner.verify.finding import TOLERANCE, Check, Claim, unless_same

OUTSIDE = ("bubble", "dp", "optimizer", "jitter", "overhead")
"""Causes that take time outside the slowest rank's passes."""


def passes_are_of_the_step(c: Claim) -> Iterator[str]:
    """``M (F + I + W)`` of the slowest rank is the step without its bubble and what surrounds passes, weight gradients
    are of its matrix products and its head, and no other rank takes longer; of such schedules alone.
    """
    p = c.plan.parallelism
    stated = c.plan.prediction.passes
    causes = c.plan.prediction.breakdown
    if (stated is None) != (p.schedule not in SPLIT_SCHEDULES):
        yield f"passes are {'not ' * (stated is None)}stated, and the schedule is {p.schedule}"
    if stated is None:
        return
    steps = c.micro_batches
    slowest = sum(stated.slowest_s)
    inside = sum(seconds for cause, seconds in causes.items() if cause not in OUTSIDE)
    yield from unless_same("what the slowest rank's passes take", steps * slowest, inside)
    if not all(math.isfinite(x) and x >= 0 for x in (*stated.slowest_s, *stated.others_s)):
        yield f"passes of {stated.slowest_s} and {stated.others_s} s"
    if steps * stated.slowest_s[2] > (causes.get("matrix", 0.0) + causes.get("logits", 0.0)) * (1 + TOLERANCE):
        yield f"weight gradients take {stated.slowest_s[2]:.6g} s of a micro-batch, more than all matrix products"
    if sum(stated.others_s) > slowest * (1 + TOLERANCE):
        yield f"other ranks take {sum(stated.others_s):.6g} s a micro-batch, the slowest {slowest:.6g}"


def bubble_follows_from_passes(c: Claim) -> Iterator[str]:
    """What the slowest rank waits (Qi et al. 2023, arXiv 2401.10241; DualPipeV; planner/cost/schedules.py)."""
    p = c.plan.parallelism
    stated = c.plan.prediction.passes
    if stated is None or p.schedule not in SPLIT_SCHEDULES:
        return
    idle_s = idle(p.schedule, p.pp, p.vpp, c.micro_batches, stated)
    yield from unless_same("bubble", c.plan.prediction.breakdown.get("bubble", 0.0), idle_s)


def idle(schedule: str, pp: int, vpp: int, steps: float, passes: SplitPasses) -> float:
    """Seconds that the slowest rank waits in a step."""
    (_, slow_i, slow_w), (f, i, w) = passes.slowest_s, passes.others_s
    others = pp - 1
    ahead = max(sum(passes.slowest_s) - (f + i + w), 0.0)
    if schedule == "zbv":
        fills = others * max(i - w, i / 2, f / 2) - (steps - 1) * ahead
        back = others * (i - slow_i / 2) - pp * slow_w / 2
        round_its_end = pp * (i - slow_i) / 2 + (pp - 0.5) * w - (pp + 1) * slow_w / 2
        return max(fills, back, round_its_end, 0.0)
    if schedule == "dualpipe-v":
        pairs = max(others * (f + (i - w) / 2), others * f, others * (i + (f - w) / 2) - f / 2)
        return max(pairs - 1.25 * pp * ahead, 0.0)
    lacking = pp * max(slow_w - w, 0.0)
    return max(others * max(f + i - w, i) - lacking, others * f) / vpp


CHECKS: tuple[Check, ...] = (passes_are_of_the_step, bubble_follows_from_passes)
