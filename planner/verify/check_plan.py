"""Which checks run on a plan, in which order: on one of a single pool, and on one whose pipelines are unlike."""

from __future__ import annotations

from planner.schema.model_reading import read
from planner.schema.plan import Plan
from planner.verify import communication, groups, kernels, memory, money, offloading, prediction, ranks, well_formed
from planner.verify.finding import Check, Claim, Inconsistent, Violation, findings

CHECKS: tuple[Check, ...] = (
    *ranks.CHECKS,
    *kernels.CHECKS,
    *memory.CHECKS,
    *offloading.CHECKS,
    *prediction.CHECKS,
    *kernels.SCHEDULE_CHECKS,
    *prediction.OWN_RUNS_CHECKS,
    *money.CHECKS,
    *money.LIMIT_CHECKS,
    *communication.CHECKS,
    money.limits_hold,
)
"""All checks on what a plan says, in the order in which they run once the document's own are passed."""
POSSIBLE = groups.groups_are_possible
"""What must hold of groups before anything is derived from them."""
UNLIKE_CHECKS: tuple[Check, ...] = (
    *groups.CHECKS,
    *kernels.CHECKS,
    memory.parameters_are_counted,
    memory.memory_adds_up,
    memory.risk_is_one,
    memory.memory_interval_is_even,
    memory.chance_follows_from_interval,
    *(check for check in prediction.CHECKS if check is not prediction.causes_have_a_reason),
    *prediction.OWN_RUNS_CHECKS,
    *(check for check in money.CHECKS if check is not money.dollars_follow_from_days),
    *money.LIMIT_CHECKS,
    *communication.CHECKS,
    money.limits_hold,
)
"""Checks of a plan whose pipelines differ (over several pools)."""


def least_step_time(plan: Plan) -> float:
    """Seconds that a step takes at least: its matrix products at the peak rate, as a bound on measurements."""
    claim = Claim(plan, read(plan.workload.shape))
    peak = prediction.peak_rate(claim)
    return prediction.least_flops(claim, scores=False) / peak if peak else 0.0


def violations(plan: Plan) -> list[Violation]:
    """Everything in a plan that cannot be, in the order of the checks; empty for a plan that holds.

    If the document itself is malformed (numbers that are none, a shape that is no model, groups on pools that there are
    not), only that is told.
    """
    broken = [*findings((check.__name__, check(plan)) for check in well_formed.CHECKS)]
    if broken:
        return broken
    claim = Claim(plan, read(plan.workload.shape))
    if plan.parallelism.groups and (broken := [*findings([(POSSIBLE.__name__, POSSIBLE(claim))])]):
        return broken
    checks = UNLIKE_CHECKS if plan.parallelism.groups else CHECKS
    return [*findings((check.__name__, check(claim)) for check in checks)]


def check(plan: Plan, *, may_exceed_limits: bool = False) -> None:
    """Lets a plan pass that holds.

    Args:
        plan: The plan.
        may_exceed_limits: For an estimate of what a person asked for, which may not fit: everything else must hold.

    Raises:
        Inconsistent: it does not hold; the message says all that is wrong.
    """
    exceeded = (money.limits_hold, groups.memory_fits_stage_by_stage)
    ignored = {check.__name__ for check in exceeded} if may_exceed_limits else set()
    broken = tuple(violation for violation in violations(plan) if violation.name not in ignored)
    if broken:
        raise Inconsistent(broken)
