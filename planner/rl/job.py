"""A post-training as one job among others: the fastest step on a cluster, whatever the cluster costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def posed(
    known: Catalog, asked: RLTraining, step: RLStep, machines: Sequence[Machines], training: PlanOptions, **more: Any
) -> PostTraining:
    """The question of a step on machines; `more` are fields of :class:`PostTraining` that it does not say.

    Raises:
        WrongQuestion: a layout, a split or a staleness that cannot be.
    """
    return PostTraining(
        known=known,
        work=step,
        machines=machines,
        training=training,
        replica=problem.pinned_replica(texts(asked.rollout)),
        split=problem.stated_split(asked.split, machines),
        offloads=None if asked.states is None else asked.states == "host",
        tried=problem.staleness(asked.placement, asked.staleness),
        excess=constants.fitted(),
        **more,
    )


def fastest(known: Catalog, model: Model, asked: RLTraining, cluster: Cluster) -> RLPlan:
    """The placement with the shortest step on all of a cluster, or on a part of it.

    Raises:
        WrongQuestion: a layout or a precision that cannot be.
        NoAnswer: nothing fits.
    """
    machines = [Machines(pool=JobPool(name=cluster.node.id, cluster=cluster), usd_per_s=None)]
    training: PlanOptions = training_options(asked)
    question = posed(known, asked, work(model, asked), machines, training, objective="time", inputs={})
    return run.plan(question).plans[0]
