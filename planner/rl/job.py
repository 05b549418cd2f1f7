"""A post-training as one job among others: the fastest step on a cluster, whatever the cluster costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.question.given import texts
from planner.question.job_pools import JobPool
from planner.question.plan_options import PlanOptions
from planner.question.rl_options import RLTraining, training_options
from planner.rl import constants, problem, run
from planner.rl.learned import LikeJob, SiteSteps
from planner.rl.problem import Machines, PostTraining, RLStep
from planner.schema.choices import Placement
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
    known: Catalog,
    asked: RLTraining,
    step: RLStep,
    machines: Sequence[Machines],
    training: PlanOptions,
    learned: SiteSteps | None = None,
    **more: Any,
) -> PostTraining:
    """The question of a step on machines; `more` are fields of :class:`PostTraining` that it does not say.

    Raises:
        WrongQuestion: a layout, a split or a staleness that cannot be.
    """
    law, tried = law_and_placements(asked)
    excess = constants.fitted()
    if learned is not None:
        like = LikeJob(step.model.id, step.demand.lengths.cap)
        excess = replace(excess, other=excess.other * learned.times("other", "", "", like))
    return PostTraining(
        known=known,
        work=step,
        machines=machines,
        training=training,
        replica=problem.pinned_replica(texts(asked.rollout)),
        split=problem.stated_split(asked.split, machines),
        offloads=None if asked.states is None else asked.states == "host",
        tried=tried,
        excess=excess,
        learned=learned,
        law=law,
        **more,
    )


def law_and_placements(asked: RLTraining) -> tuple[list[tuple[float, float]], Mapping[Placement, tuple[float, ...]]]:
    """The law of learning that a question states, and the placements that are tried with their staleness.

    Raises:
        WrongQuestion: a law, or a staleness that cannot be, or what a colocated step has not.
    """
    if asked.placement == "colocated" and asked.split:
        both = f"--split {asked.split} --placement colocated"
        raise WrongQuestion(f"{both}: all accelerators of it train and roll out; leave out one of the two")
    if asked.placement == "colocated" and asked.weights:
        both = f"--weights {asked.weights} --placement colocated"
        raise WrongQuestion(f"{both}: weights change in place there; leave out one of the two")
    law = problem.stated_law(asked.steps_at)
    return law, problem.staleness(asked.placement, asked.staleness, law[-1][0] if law else math.inf)


def fastest(known: Catalog, model: Model, asked: RLTraining, cluster: Cluster, learned: SiteSteps | None) -> RLPlan:
    """The placement with the shortest step on all of a cluster, or on a part of it; where a law of learning is stated,
    with the shortest run.

    Raises:
        WrongQuestion: a layout or a precision that cannot be.
        NoAnswer: nothing fits.
    """
    machines = [Machines(pool=JobPool(name=cluster.node.id, cluster=cluster), usd_per_s=None)]
    training: PlanOptions = training_options(asked)
    question = posed(known, asked, work(model, asked), machines, training, learned, objective="time", inputs={})
    return run.plan(question).plans[0]


def left_open(asked: RLTraining, work: RLStep) -> tuple[tuple[str, str, str], ...]:
    """What the question did not say and this program chose."""
    lengths = f"{work.demand.lengths.mean:,.0f} tokens a response"
    spread = "log-normal, cut at the cap"
    open_ones = (
        (not work.demand.lengths.measured, f"{lengths}, {spread}",
         "a mean and a cap do not say the spread; a file of lengths does", "--response"),
        (asked.samples is None, f"{work.demand.samples:.0f} responses to a prompt", "as usual of it", "--samples"),
        (asked.runtime is None, "the default training framework", "its newest release", "--runtime"),
        (asked.engine == "vllm", f"{work.engine.name} generates", "the usual engine", "--engine"),
        (asked.reward is None, "a verifier scores responses", "it takes no accelerator", "--reward"),
        (asked.rollout_precision is None, "bf16 rollout", "8-bit weights change what is sampled; ask for them",
         "--rollout-precision"),
        (True, f"host times and memory shares of {work.engine.name}",
         "no engine was timed; what measured steps take beyond them is fitted", "--engine"),
        (asked.steps_at is None, "the same learning at any staleness", "no published law says what staleness costs",
         "--steps-at"),
    )  # fmt: skip
    return tuple((what, why, flag) for is_open, what, why, flag in open_ones if is_open)
