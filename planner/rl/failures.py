"""What failures do to a run of post-training: interruptions of training, and replicas that are lost beside it."""

from __future__ import annotations

import math

import numpy as np

from planner.cost import goodput, rl_step
from planner.cost.money import DAY_S
from planner.figures import cost_inputs
from planner.rl.candidates import Timed, Training
from planner.rl.problem import PostTraining, RLStep
from planner.rl.program import PlacementPoint, RoleChoice
from planner.schema.rl import RLFailures, RolloutSide


def without_one(point: PlacementPoint, choice: RoleChoice, window: float) -> float | None:
    """Seconds of a rollout while a replica of the widest layout is away, the others taking its share each; None where
    it was the only one.
    """
    p, j, _ = max(choice.replicas, key=lambda side: float(point.offered[side[0]].layout.accelerators[side[1]]))
    done = sum(count * float(point.offered[place].taken_in(window)[n]) for place, n, count in choice.replicas)
    left = done - float(point.offered[p].taken_in(window)[j])
    if left <= 1e-9 * done:
        return None
    seconds = []
    for place, n, count in choice.replicas:
        offered = point.offered[place]
        if count > (place == p and n == j):
            share = float(offered.taken_in(window)[n]) * point.sequences / left
            seconds.append(float(np.interp(share, offered.assigned, offered.seconds[n])))
    return max(seconds)


def failures(asked: PostTraining, trained: Training, timed: Timed) -> RLFailures:
    """What failures do to a run: those of trainers interrupt it, those of replicas apart slow the steps until they are
    back, and what a replica had in flight is generated again.
    """
    trains = trained.trainer.accelerators
    apart = 0 if timed.placement == "colocated" else sum(side.accelerators for side in timed.rollout)
    host = asked.machines[trained.pool].cluster.accelerator.host_bandwidth or cost_inputs.HOST_BANDWIDTH
    good = goodput.goodput(trains, trained.states, host)
    run_s = asked.work.steps * (asked.steps_times(timed.staleness) or 1.0) * timed.step
    wall_s = run_s / float(good.fraction) if float(good.fraction) > 0 else math.inf
    interruptions = wall_s / float(good.mtbf)
    if not apart:
        return RLFailures(interruptions=interruptions, days=wall_s / DAY_S, replica_losses=0.0, step_without_s=None)

    def step_of(generation: float) -> float:
        moved = timed.sync + asked.excess.other
        of = rl_step.step(timed.placement, generation, trained.seconds, moved, asked.work.updates, timed.staleness)
        return max(float(of), timed.step)

    losses = wall_s * apart / goodput.ACCELERATOR_MTBF_S
    without_s = None if timed.left is None else step_of(timed.left)
    away_s = goodput.RESTART_S * (1.0 if without_s is None else without_s / timed.step - 1.0)
    lost, done = _in_flight(asked.work, timed.rollout)
    again_s = step_of(timed.generation * (1.0 + lost * done / asked.work.demand.sequences)) - timed.step
    return RLFailures(
        interruptions=interruptions,
        days=(wall_s + losses * (away_s + again_s)) / DAY_S,
        replica_losses=losses,
        step_without_s=without_s,
        responses_lost=lost,
        again_s=again_s,
    )


def _in_flight(work: RLStep, rollout: tuple[RolloutSide, ...]) -> tuple[float, float]:
    """Responses that the widest replica has in flight, at most, and how much of each is done at a moment by chance, in
    mean lengths: a long response is in flight for longer, so it is ``E[L^2] / (2 E[L]^2)``.
    """
    widest = max(rollout, key=lambda side: side.accelerators / side.replicas)
    lengths = work.demand.lengths.values
    return widest.in_flight, float(np.mean(lengths**2) / (2.0 * np.mean(lengths) ** 2))
