"""Checks of the shares of images in a data-parallel step, from their document alone."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.images import ImagePlan
from planner.verify.finding import TOLERANCE, Inconsistent, findings, unless_same
from planner.verify.well_formed import beyond, numbers


def numbers_are_possible(plan: ImagePlan) -> Iterator[str]:
    """Every figure is a number, and none is negative; what others are divided by is above 0."""
    yield from (f"{path} is {number:g}" for path, number in numbers(plan) if beyond(number) or number < 0)
    for pool in plan.pools:
        if not (pool.accelerators > 0 and pool.capacity_bytes > 0):
            yield f"pool {pool.name}: {pool.accelerators} accelerators with {pool.capacity_bytes:g} bytes"
    if plan.step_time_s <= 0:
        yield f"step_time_s is {plan.step_time_s:g}"


def images_add_up(plan: ImagePlan) -> Iterator[str]:
    """The pools' images are the batch, and each of a pool's accelerators has its even share, rounded down or up."""
    if (total := sum(pool.images for pool in plan.pools)) != plan.batch:
        yield f"the pools have {total:,} images, the batch {plan.batch:,}"
    for pool in plan.pools:
        fewest = pool.images // pool.accelerators
        most = -(-pool.images // pool.accelerators)
        if (pool.fewest, pool.most) != (fewest, most):
            yield f"pool {pool.name}: {pool.fewest}..{pool.most} a GPU; its {pool.images} images are {fewest}..{most}"


def time_adds_up(plan: ImagePlan) -> Iterator[str]:
    """The causes add up to the step, and the rate is the batch over it."""
    yield from unless_same("step_time_s", plan.step_time_s, sum(plan.breakdown.values()))
    yield from unless_same("images_per_s", plan.images_per_s, plan.batch / plan.step_time_s)


def no_pool_alone_is_faster(plan: ImagePlan) -> Iterator[str]:
    """The best pool by itself takes no less time, and is known where its time is."""
    seconds = plan.best_pool_step_s
    if (seconds is None) != (plan.best_pool is None):
        yield f"the best pool is {plan.best_pool}, and takes {seconds} s"
    if seconds is not None and seconds < plan.step_time_s * (1 - TOLERANCE):
        yield f"{plan.best_pool} alone takes {seconds:g} s, the plan {plan.step_time_s:g} s"


def memory_is_there(plan: ImagePlan) -> Iterator[str]:
    """No accelerator holds more than it can."""
    for pool in plan.pools:
        if pool.memory_bytes > pool.capacity_bytes * (1 + TOLERANCE):
            yield f"pool {pool.name}: {pool.memory_bytes:.6g} B do not fit into {pool.capacity_bytes:.6g} B"


def question_is_answered(plan: ImagePlan) -> Iterator[str]:
    """Batch and precision are those asked for, and pools are those asked about, each taking part or left out."""
    asked = plan.question
    if asked is None:
        return
    yield from (
        f"{name} is {stated}, {wanted} was asked for"
        for name, stated, wanted in (("batch", plan.batch, asked.batch), ("precision", plan.precision, asked.precision))
        if wanted is not None and stated != wanted
    )
    names = [pool.name for pool in plan.pools]
    if plan.best_pool is not None and plan.best_pool not in (*names, *plan.left_out):
        yield f"the best pool, {plan.best_pool}, is none of {', '.join([*names, *plan.left_out])}"
    if len({*names}) != len(names) or {*names} & {*plan.left_out}:
        yield "a pool is named twice"
    if plan.even_step_s is not None and plan.even_step_s < plan.step_time_s * (1 - TOLERANCE):
        yield f"even shares take {plan.even_step_s:g} s, the plan {plan.step_time_s:g} s"
    for pool in plan.pools:
        if pool.accelerators < pool.count:
            yield f"pool {pool.name}: {pool.accelerators} accelerators on {pool.count} nodes"


IMAGE_CHECKS = (question_is_answered, images_add_up, time_adds_up, no_pool_alone_is_faster, memory_is_there)


def check_images(plan: ImagePlan) -> None:
    """Lets shares pass that hold.

    Raises:
        Inconsistent: they do not; the message says all that is wrong.
    """
    first = [*findings([(numbers_are_possible.__name__, numbers_are_possible(plan))])]
    if violations := first or [*findings((rule.__name__, rule(plan)) for rule in IMAGE_CHECKS)]:
        raise Inconsistent(tuple(violations))
