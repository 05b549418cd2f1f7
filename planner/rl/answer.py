"""Choices of layouts as plans of the document: phases, memory, dollars, what waits for what, and an interval."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from planner.axes.table import OPTION_AXES, PRECISION, RECOMPUTE, ZERO
from planner.cost import decoding, rl_step
from planner.cost.decoding import Served
from planner.cost.money import DAY_S
from planner.models.parameters import parameters
from planner.rl import candidates, problem, training
from planner.rl.candidates import ReplicaOptions, Timed, Training
from planner.rl.failures import failures, without_one
from planner.rl.problem import PostTraining, RLStep
from planner.rl.program import PlacementPoint, RoleChoice
from planner.schema.rl import RLPhases, RLPlan, RLWork, RolloutSide, TrainerSide


def described(work: RLStep) -> RLWork:
    """The step's work as the document says it."""
    demand = work.demand
    return RLWork(
        task=work.task,
        model=work.model.id,
        parameters=parameters(work.model).total,
        prompts=round(demand.sequences / demand.samples),
        samples=round(demand.samples),
        prompt_tokens=demand.prompt,
        response_mean=demand.lengths.mean,
        response_cap=demand.lengths.cap,
        updates=work.updates,
        reference=work.reference,
        critic=work.critic.id if work.critic else None,
        reward=work.reward.id if work.reward else None,
        tokens=work.tokens,
        steps=work.steps,
    )


def colocated_plan(asked: PostTraining, trained: Training, served: Served) -> RLPlan | None:
    """The fastest colocated step on a pool: of all layouts of replicas, with the trainer's states in host memory while
    responses are generated or resident; None where no replica fits.
    """
    work = asked.work
    machines = asked.machines[trained.pool]
    layout = problem.replica_layouts(work.model, machines.cluster, asked.replica)
    best: Timed | None = None
    for offloads in (True, False) if asked.offloads is None else (asked.offloads,):
        resident = 0.0 if offloads else trained.states
        share = work.engine.memory_share_colocated if offloads else work.engine.memory_share
        offered = candidates.replicas(asked, trained.pool, served, layout, (share, resident), 0.0)
        counts, assigned, seconds = offered.over(machines.accelerators, work.demand.sequences)
        j = int(np.argmin(seconds))
        if not np.isfinite(seconds[j]):
            continue
        size = (machines.accelerators, machines.accelerators)
        sync = candidates.synchronised(work, trained, served, served, size, False).seconds
        if not offloads:
            sync -= 2.0 * trained.states / float(served.device.host_bandwidth)
        step = (
            float(rl_step.step("colocated", seconds[j], trained.seconds, sync, work.updates, 0.0)) + asked.excess.other
        )
        if best is None or step < best.step:
            sides = (_side(asked, offered, j, int(counts[j]), float(assigned[j]), float(seconds[j])),)
            best = Timed(placement="colocated", staleness=0.0, generation=float(seconds[j]), sync=sync, step=step,
                         rollout=sides, offloads=offloads, weights=None)  # fmt: skip
    return None if best is None else _plan(asked, trained, best)


def plan_apart(asked: PostTraining, point: PlacementPoint, choice: RoleChoice) -> RLPlan:
    """A choice of the integer program as a plan."""
    trained = point.trainings[choice.training]
    window = point.window(choice.training, choice.step)
    sides = []
    done = sum(count * point.offered[p].taken_in(window)[j] for p, j, count in choice.replicas)
    for p, j, count in choice.replicas:
        offered = point.offered[p]
        assigned = float(offered.taken_in(window)[j]) * point.sequences / done
        seconds = float(np.interp(assigned, offered.assigned, offered.seconds[j]))
        side = _side(asked, offered, j, count, assigned, seconds)
        ahead = point.staleness if point.placement == "async" else 0.0
        started = min(float(offered.in_flight[j]), assigned * (1.0 + ahead))
        sides.append(replace(side, in_flight=started))
    generation = max(
        float(np.interp(side.sequences, point.offered[p].assigned, point.offered[p].seconds[j]))
        for side, (p, j, _) in zip(sides, choice.replicas, strict=True)
    )
    sync = point.weights[choice.training].seconds
    step = rl_step.step(
        point.placement, generation, trained.seconds, sync + asked.excess.other, point.updates, point.staleness
    )
    timed = Timed(
        placement=point.placement,
        staleness=point.staleness,
        generation=generation,
        sync=sync,
        step=float(step),
        rollout=tuple(sides),
        offloads=False,
        weights=point.weights[choice.training].way,
        left=without_one(point, choice, window),
    )
    return _plan(asked, trained, timed)


def _side(
    asked: PostTraining, offered: ReplicaOptions, j: int, count: int, assigned: float, seconds: float
) -> RolloutSide:
    """Replicas of one layout."""
    machines = asked.machines[offered.pool]
    layout = offered.layout
    wide = int(layout.accelerators[j])
    weights = float(decoding.weights(offered.served, layout)[j])
    return RolloutSide(
        pool=machines.pool.name,
        accelerator=machines.cluster.accelerator.id,
        accelerators=count * wide,
        per_node=machines.cluster.node.accelerators,
        replicas=count,
        tp=int(layout.tp[j]),
        groups=int(layout.groups[j]),
        precision=asked.work.rollout_precision,
        sequences=assigned,
        in_flight=float(min(offered.in_flight[j], assigned)),
        weight_bytes=weights,
        cache_bytes=max(offered.capacity - weights, 0.0),
        capacity_bytes=machines.cluster.accelerator.memory,
        memory_share=(offered.capacity + asked.work.engine.reserved) / machines.cluster.accelerator.memory,
        tokens_per_s=assigned * asked.work.demand.lengths.mean / max(seconds, 1e-9) / wide,
        eager=asked.work.engine.eager or None,
    )


def _trainer(asked: PostTraining, trained: training.Trainer, pool: int, seconds: float, offloads: bool) -> TrainerSide:
    machines = asked.machines[pool]
    _, packed = training.packed(asked.work.demand, asked.work.updates, trained.accelerators)
    return TrainerSide(
        pool=machines.pool.name,
        accelerator=machines.cluster.accelerator.id,
        accelerators=trained.accelerators,
        per_node=machines.cluster.node.accelerators,
        runtime=trained.runtime,
        precision=trained.options[PRECISION],
        layout=dict(trained.layout),
        zero=trained.options[ZERO],
        recompute=trained.options[RECOMPUTE].name,
        options={
            axis.name: axis.state(trained.options[axis])
            for axis in OPTION_AXES
            if axis not in (PRECISION, RECOMPUTE, ZERO) and trained.options[axis] != axis.neutral
        },
        packed_tokens=packed,
        memory_bytes=trained.memory,
        capacity_bytes=trained.capacity,
        offloads=offloads,
        tokens_per_s=asked.work.tokens / max(seconds, 1e-9) / trained.accelerators,
    )


def _plan(asked: PostTraining, trained: Training, timed: Timed) -> RLPlan:
    work = asked.work
    alone = trained.seconds + timed.generation + timed.sync + asked.excess.other
    half = asked.excess.half_width
    times = asked.steps_times(timed.staleness)
    steps = work.steps * (times or 1.0)
    usd = _usd_per_s(asked, trained, timed)
    return RLPlan(
        rank=1,
        placement=timed.placement,
        staleness=timed.staleness,
        trainer=_trainer(asked, trained.trainer, trained.pool, trained.seconds, timed.offloads),
        critic=_trainer(asked, trained.critic, trained.pool, trained.critic_s, timed.offloads)
        if trained.critic
        else None,
        rollout=timed.rollout,
        phases=RLPhases(
            generation_s=timed.generation,
            log_probabilities_s=trained.log_probabilities_s,
            reference_s=trained.reference_s,
            critic_s=trained.critic_s,
            reward_s=trained.reward_s,
            update_s=trained.update_s,
            sync_s=timed.sync,
            other_s=asked.excess.other,
            hidden_s=alone - timed.step,
        ),
        step_s=timed.step,
        step_low_s=timed.step * math.exp(-half),
        step_high_s=timed.step * math.exp(half),
        waits=_waits(trained, timed),
        tokens_per_s=work.tokens / timed.step,
        usd_per_step=None if usd is None else usd * timed.step,
        usd=None if usd is None else usd * timed.step * steps,
        days=timed.step * steps / DAY_S,
        steps_times=times,
        weights=timed.weights,
        failures=failures(asked, trained, timed),
    )


def _usd_per_s(asked: PostTraining, trained: Training, timed: Timed) -> float | None:
    """US dollars a second of the accelerators in use; None where a price is not known."""
    names = {machine.pool.name: machine.usd_per_s for machine in asked.machines}
    used = [(asked.machines[trained.pool].usd_per_s, trained.trainer.accelerators)]
    if timed.placement != "colocated":
        used += [(names[side.pool], side.accelerators) for side in timed.rollout]
    total = 0.0
    for price, accelerators in used:
        if price is None:
            return None
        total += price * accelerators
    return total


def _waits(trained: Training, timed: Timed) -> str:
    """What waits for what."""
    if timed.placement == "colocated":
        share = 100.0 * timed.generation / timed.step
        return f"training waits for rollout and rollout for training, in turns; rollout is {share:.0f} % of the step"
    longer, other = ("rollout", "trainers") if timed.generation > trained.seconds else ("training", "replicas")
    share = abs(timed.generation - trained.seconds) / max(timed.step, 1e-9)
    if timed.placement == "in-step":
        return f"trainers wait for the last response, replicas for new weights; {longer} is the longer part"
    return f"{longer} sets the pace; {other} wait {100.0 * share:.0f} % of the step"
