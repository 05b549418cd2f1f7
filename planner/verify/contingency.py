"""Checks of the plans for lost nodes of a set of plans, from its document alone."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.plan import ContingencyPlan, Plan, PlanSet
from planner.verify import violations
from planner.verify.finding import Inconsistent, Violation, same

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
    """Whether there is one plan for each number of lost nodes from 1 on."""
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
