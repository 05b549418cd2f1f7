"""Checks of a plan of RL post-training, from its document alone."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.rl import RLPlan, RLPlanSet
from planner.verify.finding import Inconsistent, findings, unless_same
from planner.verify.well_formed import beyond, numbers


def numbers_are_possible(answer: RLPlanSet) -> Iterator[str]:
    """Every figure is a number, and none is negative but for what rounding leaves of a difference."""
    yield from (f"{path} is {number:g}" for path, number in numbers(answer) if beyond(number) or number < -1e-6)
    if not answer.plans:
        yield "it holds no plan"
    for plan in answer.plans:
        if not 0 < plan.step_low_s <= plan.step_s <= plan.step_high_s:
            ends = f"{plan.step_low_s:g} and {plan.step_high_s:g} s"
            yield f"plan {plan.rank}: a step of {plan.step_s:g} s between {ends}"


def phases_add_up(answer: RLPlanSet) -> Iterator[str]:
    """The phases are the step and what of them overlaps; responses of all replicas are those of a step."""
    responses = answer.work.prompts * answer.work.samples
    for plan in answer.plans:
        seconds = sum(value for name, value in vars(plan.phases).items() if name != "hidden_s")
        yield from unless_same(f"plan {plan.rank}: step_s", plan.step_s, seconds - plan.phases.hidden_s)
        made = sum(side.replicas * side.sequences for side in plan.rollout)
        yield from unless_same(f"plan {plan.rank}: responses", made, float(responses))


def failures_cost_time(answer: RLPlanSet) -> Iterator[str]:
    """A run with failures takes no less, and a step without a replica is no shorter."""
    for plan in answer.plans:
        if lost := plan.failures:
            if lost.days < plan.days * (1 - 1e-9):
                yield f"plan {plan.rank}: {lost.days:g} days with failures, {plan.days:g} without"
            if lost.step_without_s is not None and lost.step_without_s < plan.step_s * (1 - 1e-6):
                seconds = f"{lost.step_without_s:g} s without a replica, {plan.step_s:g} s with all"
                yield f"plan {plan.rank}: a step of {seconds}"


def memory_is_there(answer: RLPlanSet) -> Iterator[str]:
    """Neither side holds more than its accelerators, but in a stated job that is said not to fit."""
    for plan in answer.plans:
        for what, held, capacity in _held(plan):
            if held > capacity and answer.fits is not False:
                yield f"plan {plan.rank}: {what} holds {held:g} of {capacity:g} bytes"


def _held(plan: RLPlan) -> Iterator[tuple[str, float, float]]:
    for side in (plan.trainer, *([plan.critic] if plan.critic else [])):
        yield "training", side.memory_bytes, side.capacity_bytes
    for replica in plan.rollout:
        yield "rollout", replica.weight_bytes + replica.cache_bytes, replica.capacity_bytes


def check_post_training(answer: RLPlanSet) -> None:
    """Lets a document pass whose figures agree with each other.

    Raises:
        Inconsistent: they do not.
    """
    rules = (numbers_are_possible, phases_add_up, failures_cost_time, memory_is_there)
    if wrong := tuple(findings((rule.__name__, rule(answer)) for rule in rules)):
        raise Inconsistent(wrong)
