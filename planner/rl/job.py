"""A post-training as one job among others: the fastest step on a cluster, whatever the cluster costs."""

from __future__ import annotations

from planner.catalog import Catalog
from planner.question.given import texts
from planner.question.job_pools import JobPool
from planner.question.plan_options import PlanOptions
from planner.question.rl_options import RLTraining, training_options
from planner.rl import constants, problem, run
from planner.rl.problem import Machines, PostTraining, RLStep
from planner.schema.hardware import Cluster
from planner.schema.rl import RLPlan
from planner.schema.workload import Model


def work(model: Model, asked: RLTraining) -> RLStep:
    """What a step does.

    Raises:
        WrongQuestion: a value or a combination that cannot be.
    """
    return problem.work(model, asked.task, asked)


def fastest(known: Catalog, model: Model, asked: RLTraining, cluster: Cluster) -> RLPlan:
    """The placement with the shortest step on all of a cluster, or on a part of it.

    Raises:
        WrongQuestion: a layout or a precision that cannot be.
        NoAnswer: nothing fits.
    """
    machines = [Machines(pool=JobPool(name=cluster.node.id, cluster=cluster), usd_per_s=None)]
    options: PlanOptions = training_options(asked)
    question = PostTraining(
        known=known,
        work=work(model, asked),
        machines=machines,
        training=options,
        replica=problem.pinned_replica(texts(asked.rollout)),
        split=problem.stated_split(asked.split, machines),
        offloads=None if asked.states is None else asked.states == "host",
        tried=problem.staleness(asked.placement, asked.staleness),
        objective="time",
        inputs={},
        excess=constants.fitted(),
    )
    return run.plan(question).plans[0]
