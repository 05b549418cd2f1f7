"""A step of post-training as stated, priced without a search: what ``estimate`` answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from planner.base.errors import NoAnswer, WrongQuestion
from planner.cost.decoding import Served
from planner.rl import candidates
from planner.rl.answer import colocated_plan, plan_apart
from planner.rl.candidates import Training
from planner.rl.problem import PostTraining
from planner.rl.program import PlacementPoint, RoleChoice
from planner.rl.run import document, layouts_of, nothing_fits, served_on_pools, synchronised
from planner.schema.choices import Placement
from planner.schema.rl import RLPlan, RLPlanSet, RLSearch

LONG_S = 1e9
"""Seconds in which any replica completes any batch."""


def stated(asked: PostTraining) -> RLPlanSet:
    """One step as stated: its placement, its split, the trainer that pins state and replicas of one layout; what of the
    trainer is left open is neutral. It is priced whether it fits or not.

    Raises:
        WrongQuestion: a layout, a split or a precision that cannot be.
        NoAnswer: no replica holds the weights and a response.
    """
    return with_training(asked, training(asked))


def training(asked: PostTraining) -> Training:
    """The training of a stated step.

    Raises:
        WrongQuestion: a layout that cannot be.
    """
    train, _ = _split(asked)
    trained = candidates.trained(asked, 0, train, "stated")
    assert trained is not None, "a stated layout is priced or refused"
    return trained


def _split(asked: PostTraining) -> tuple[int, int]:
    """Accelerators that train and that roll out; colocated all of them do both."""
    (placement,) = asked.tried
    several = len(asked.machines) > 1
    sizes = [machine.accelerators for machine in asked.machines]
    if placement == "colocated" and (several or asked.split):
        raise WrongQuestion("--placement colocated: one --cluster, and no --split: all of it trains and rolls out")
    if placement != "colocated" and not several and asked.split is None:
        raise WrongQuestion(f"--placement {placement}: say --split TRAIN:ROLLOUT, or a second --cluster that rolls out")
    train, rollout = asked.split or (sizes[0], sizes[-1])
    if several and (train > sizes[0] or rollout > sizes[1]):
        raise WrongQuestion(f"--split {train}:{rollout}: the first cluster has {sizes[0]:,}, the second {sizes[1]:,}")
    return train, rollout


def with_training(asked: PostTraining, trained: Training) -> RLPlanSet:
    """A stated step whose training is priced already.

    Raises:
        NoAnswer: no replica holds the weights and a response.
    """
    served = served_on_pools(asked)
    ((placement, stalenesses),) = asked.tried.items()
    if placement == "colocated":
        plan = colocated_plan(asked, trained, served[0])
    else:
        _, rollout = _split(asked)
        rollers = len(asked.machines) - 1
        plan = _stated_apart(asked, served, trained, (rollers, rollout), (placement, stalenesses[-1]))
    if plan is None:
        raise NoAnswer(nothing_fits(asked))
    policy = trained.trainer
    alone = policy.memory <= policy.room
    fits = alone if trained.critic is None else candidates.both_fit(policy, trained.critic)
    search = RLSearch(trainers=trained.trainer.candidates, replicas=1, splits=1, programs=0, proven=False, gap=0.0)
    return replace(document(asked, [plan], search), fits=fits)


def _stated_apart(
    asked: PostTraining,
    served: Sequence[Served],
    trained: Training,
    rollers: tuple[int, int],
    way: tuple[Placement, float],
) -> RLPlan | None:
    """A step on stated accelerators apart: all replicas that `rollers`, a pool and accelerators of it, have room for;
    None where none holds a response.
    """
    placement, stale = way
    place, accelerators = rollers
    ahead = stale if placement == "async" else 0.0
    layouts = layouts_of(asked)
    offered = [
        candidates.replicas(asked, p, served[p], layout, (asked.work.engine.memory_share, 0.0), ahead)
        for p, layout in enumerate(layouts)
    ]
    count = int(accelerators // layouts[place].accelerators[0])
    if not count or not math.isfinite(offered[place].seconds[0, 0]):
        return None
    point = PlacementPoint(
        placement=placement,
        staleness=stale,
        updates=asked.work.updates,
        sequences=asked.work.demand.sequences,
        trainings=[trained],
        offered=offered,
        sizes=[machine.accelerators for machine in asked.machines],
        left=accelerators,
        usd=[machine.usd_per_s or 0.0 for machine in asked.machines],
        weights=[synchronised(asked, served, trained, trained.trainer.accelerators + accelerators)],
        other_s=asked.excess.other,
    )
    return plan_apart(asked, point, RoleChoice(LONG_S, 0, ((place, 0, count),), 0.0))
