"""Checks of the plans for lost nodes, and of the shares of images in a data-parallel step, from documents alone."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.images import ImagePlan
from planner.schema.plan import ContingencyPlan, Plan, PlanSet
from planner.verify import violations
from planner.verify.finding import TOLERANCE, Inconsistent, Violation, findings, same, unless_same
from planner.verify.well_formed import beyond, numbers

LEAST_BYTES, MOST_BYTES = 2.0, 24.0
"""Bytes of a parameter in a checkpoint: weights in 16 bit alone; with master weights and states in 32 bit, and more."""


def contingency_violations(plan_set: PlanSet) -> list[Violation]:
    """Everything in a set's plans for lost nodes that cannot be; empty where they hold, or where there are none."""
    plans = plan_set.contingency or ()
    wrong = [Violation("contingencies_follow", says) for says in _in_order(plans)]
    for contingency in plans:
        wrong += [Violation("contingencies_follow", says) for says in _goes_on(plan_set.plan_to_run, contingency)]
        wrong += [
            Violation(v.name, f"{contingency.lost_nodes} lost: {v.says}") for v in violations(contingency.plan)
            if v.name != "limits_hold"
        ]  # fmt: skip
    return wrong


def _in_order(plans: tuple[ContingencyPlan, ...]) -> Iterator[str]:
    """One for each number of lost nodes from 1 on."""
    if [contingency.lost_nodes for contingency in plans] != list(range(1, len(plans) + 1)):
        yield "not one plan for each number of lost nodes from 1 on"
    if any(not contingency.plan.cluster.pools for contingency in plans):
        yield "a plan for lost nodes is for no nodes"


def _goes_on(run: Plan, contingency: ContingencyPlan) -> Iterator[str]:
    """Same model, tokens, batch and runtime on nodes that are left; ``reshard = restart + bytes / (nodes rate)``."""
    plan, lost = contingency.plan, contingency.lost_nodes
    (pool, *_), (left, *_) = run.cluster.pools, plan.cluster.pools
    if left.node != pool.node or not 0 < left.count <= pool.count - lost:
        yield f"{lost} of {pool.count} {pool.node} are lost, and the plan is for {left.count} {left.node}"
    for name in ("shape", "tokens", "optimizer", "sequence", "method"):
        if getattr(plan.workload, name) != getattr(run.workload, name):
            yield f"{lost} lost: {name} is another than before"
    if plan.batch.global_ != run.batch.global_:
        yield f"{lost} lost: the batch is {plan.batch.global_:,}, and was {run.batch.global_:,}"
    if plan.runtime.name != run.runtime.name:
        yield f"{lost} lost: the runtime is {plan.runtime.name}, and was {run.runtime.name}"
    reads = contingency.checkpoint_bytes / (left.count * contingency.read_bytes_per_s)
    if not same(contingency.reshard_s, plan.money.goodput.restart_s + reads):
        yield f"{lost} lost: reshard_s is {contingency.reshard_s:.6g}"
    per_parameter = contingency.checkpoint_bytes / plan.workload.parameters
    if not LEAST_BYTES <= per_parameter <= MOST_BYTES:
        yield f"{lost} lost: a checkpoint of {per_parameter:.3g} bytes a parameter"


def check(plan_set: PlanSet) -> None:
    """Lets a set pass whose plans for lost nodes hold.

    Raises:
        Inconsistent: they do not; the message says all that is wrong.
    """
    if wrong := contingency_violations(plan_set):
        raise Inconsistent(tuple(wrong))


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


IMAGE_CHECKS = (images_add_up, time_adds_up, no_pool_alone_is_faster, memory_is_there)


def check_images(plan: ImagePlan) -> None:
    """Lets shares pass that hold.

    Raises:
        Inconsistent: they do not; the message says all that is wrong.
    """
    first = [*findings([(numbers_are_possible.__name__, numbers_are_possible(plan))])]
    if violations := first or [*findings((rule.__name__, rule(plan)) for rule in IMAGE_CHECKS)]:
        raise Inconsistent(tuple(violations))
