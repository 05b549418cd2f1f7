"""What may train and what may roll out, priced: trainers by the exact search, replicas by sequences of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.cost import decoding, generation, weight_sync
from planner.cost.decoding import Rollout, Served
from planner.cost.figures import Array
from planner.cost.generation import Room
from planner.models.parameters import parameters
from planner.rl import training
from planner.rl.constants import MeasuredExcess
from planner.rl.problem import PostTraining, RLStep
from planner.rl.training import Trainer, TrainerPasses, Tried
from planner.schema.choices import Placement, WeightsWay
from planner.schema.rl import RolloutSide
from planner.schema.workload import Model

POINTS = 28
"""Numbers of sequences a replica for which a rollout is priced; between them seconds are linear."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Who trains, and the seconds that all models of the algorithm take there."""

    pool: int
    """Place of the pool in the question."""
    trainer: Trainer
    critic: Trainer | None
    log_probabilities_s: float
    reference_s: float
    critic_s: float
    reward_s: float
    update_s: float

    @property
    def seconds(self) -> float:
        """Seconds of all phases of training; they follow one another on the same accelerators."""
        return self.log_probabilities_s + self.reference_s + self.critic_s + self.reward_s + self.update_s

    @property
    def states(self) -> float:
        """Bytes on an accelerator that can be moved to host memory."""
        return self.trainer.states + (self.critic.states if self.critic else 0.0)


def trained(asked: PostTraining, place: int, size: int, tried: Tried = "fitting") -> Training | None:
    """Training on so many accelerators of a pool; None where no layout of those tried is legal and fits.

    Raises:
        WrongQuestion: a stated layout is not legal.
    """
    work = asked.work
    cluster = asked.machines[place].part(size)

    def of(model: Model, forwards: int, other_bytes: float = 0.0) -> Trainer | None:
        passes = TrainerPasses(work.demand, work.updates, forwards, other_bytes)
        return training.best(asked.known, model, cluster, passes, asked.training, tried)

    def critic_of(policy: Trainer, other_bytes: float) -> Trainer | None:
        assert work.critic is not None
        return policy if work.critic == work.model else of(work.critic, 1, other_bytes)

    policy = of(work.model, work.forwards)
    if policy is None:
        return None
    critic = None
    if work.critic is not None:
        critic = critic_of(policy, 0.0)
        if tried == "fitting" and critic is not None and not both_fit(policy, critic):
            policy = of(work.model, work.forwards, critic.states)
            critic = None if policy is None else critic_of(policy, policy.states)
        if policy is None or critic is None or (tried == "fitting" and not both_fit(policy, critic)):
            return None
    stretch = stretched(work.model, asked.excess) * asked.measured_over("training", place, policy.runtime)
    forward = stretch * policy.forward_s
    reward_s = 0.0
    if work.reward is not None:
        share = parameters(work.reward).active / parameters(work.model).active
        reward_s = forward * share
    return Training(
        pool=place,
        trainer=policy,
        critic=critic,
        log_probabilities_s=forward,
        reference_s=forward * work.reference,
        critic_s=stretch * (critic.update_s + critic.forward_s) if critic else 0.0,
        reward_s=reward_s,
        update_s=stretch * policy.update_s,
    )


def both_fit(policy: Trainer, critic: Trainer) -> bool:
    """Whether each can train while the other's states stay on the same accelerators."""
    return max(policy.memory + critic.states, critic.memory + policy.states) <= policy.room


def stretched(model: Model, fit: MeasuredExcess) -> float:
    """Measured seconds of training over those of packed pre-training."""
    return fit.training_experts if model.moe else fit.training


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions:
    """Layouts of replicas on one pool, with the seconds of a rollout over sequences a replica."""

    pool: int
    served: Served
    layout: Rollout
    room: Room
    in_flight: Array
    capacity: float
    """Bytes of an accelerator that weights and cache may fill."""
    assigned: Array
    """Sequences of a replica, ascending; ..."""
    seconds: Array
    """... of a rollout with so many, by layout: shape (layouts, points), never falling."""

    def taken_in(self, limit: float) -> Array:
        """Sequences that a replica of each layout completes within so many seconds; less than one: none."""
        known = np.isfinite(self.seconds[:, 0])
        done = [
            float(np.interp(limit, row, self.assigned, left=0.0)) if ok else 0.0
            for row, ok in zip(self.seconds, known, strict=True)
        ]
        return np.array(done)

    def over(self, accelerators: int, sequences: float) -> tuple[Array, Array, Array]:
        """Replicas of each layout on so many accelerators, sequences of each, and seconds of all; infinite: none."""
        counts = np.floor(accelerators / self.layout.accelerators)
        assigned = sequences / np.maximum(counts, 1.0)
        pairs = zip(assigned, self.seconds, strict=True)
        seconds = np.array([np.interp(share, self.assigned, row) for share, row in pairs], dtype=float)
        return counts, assigned, np.where(np.isfinite(self.seconds[:, 0]) & (counts >= 1), seconds, np.inf)


def replicas(
    asked: PostTraining, place: int, served: Served, layout: Rollout, memory: tuple[float, float], stale: float
) -> ReplicaOptions:
    """All layouts of a pool, priced.

    Args:
        asked: What a step generates, on which engine.
        place: Place of the pool in the question.
        served: The model on the pool's accelerators.
        layout: The layouts.
        memory: Share of the memory that the engine may take, and bytes that something else keeps there.
        stale: Batches that rollout may be ahead.
    """
    work = asked.work
    share, resident = memory
    engine = work.engine
    capacity = max(min(served.device.memory * share, served.device.memory - resident) - engine.reserved, 0.0)
    room = generation.room(served, layout, capacity, engine.sequences, engine.prefix_caching)
    room = replace(room, in_batches=engine.in_batches)
    assigned = np.unique(np.round(np.geomspace(1.0, work.demand.sequences, POINTS)))
    in_flight = generation.in_flight(work.demand, room, layout)
    on_device = replace(served, captured=(np.inf, np.inf))
    kernels = generation.seconds(on_device, layout, work.demand, room, assigned[:, None], stale).T
    excess = asked.excess.generation * asked.measured_over("generation", place, engine.id)
    seconds = excess * kernels
    if np.any(in_flight > decoding.captures(served, layout) * layout.groups):
        launched = generation.seconds(served, layout, work.demand, room, assigned[:, None], stale).T
        # What the host launches late was timed in an engine, Python and all: nothing is fitted upon it.
        seconds += np.subtract(launched, kernels, where=np.isfinite(kernels), out=np.zeros_like(kernels))
    return ReplicaOptions(
        pool=place,
        served=served,
        layout=layout,
        room=room,
        in_flight=in_flight,
        capacity=capacity,
        assigned=assigned,
        seconds=np.maximum.accumulate(seconds, axis=1),
    )


def kept(options: ReplicaOptions) -> ReplicaOptions:
    """The layouts that hold a sequence at all."""
    rows = np.flatnonzero(np.isfinite(options.seconds[:, 0]))
    room = replace(options.room, tokens=options.room.tokens[rows])
    return replace(
        options,
        layout=options.layout.taken(rows),
        room=room,
        in_flight=options.in_flight[rows],
        seconds=options.seconds[rows],
    )


class WeightsMoved(NamedTuple):
    """How weights reach the replicas, and in how many seconds."""

    way: WeightsWay | None
    """None: in place, on the same accelerators."""
    seconds: float


def synchronised(
    work: RLStep, training: Training, trainers: Served, replicas_on: Served, sizes: tuple[int, int], apart: bool
) -> WeightsMoved:
    """The quicker way of weights to the replicas, or the stated one; on the same accelerators by resharding.

    Args:
        work: What is trained.
        training: Who trains.
        trainers: The policy on the trainers' pool.
        replicas_on: The policy on the pool of the replicas that take weights in slowest.
        sizes: Accelerators that train, and that roll out.
        apart: Whether these are others.
    """
    weights = 2.0 * parameters(work.model).total
    if not apart:
        moved = weight_sync.offload(training.states, float(trainers.device.host_bandwidth))
        return WeightsMoved(None, weight_sync.in_place(weights, trainers.shape, trainers.network, sizes[0]) + moved)
    joined = (weights, trainers.shape, trainers.network, replicas_on.network, sizes)
    ways = [
        WeightsMoved("broadcast", weight_sync.between(*joined)),
        WeightsMoved("checkpoint-engine", weight_sync.by_checkpoint_engine(*joined)),
    ]
    return min((way for way in ways if work.weights in (None, way.way)), key=lambda way: way.seconds)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A placement's seconds, and the replicas that generate in them."""

    placement: Placement
    staleness: float
    generation: float
    sync: float
    step: float
    rollout: tuple[RolloutSide, ...]
    offloads: bool
    weights: WeightsWay | None
    left: float | None = None
    """Seconds of a rollout while one replica is away; None: it was the only one."""
