"""Which accelerators train and which roll out, apart: an integer program for each point of placement and staleness.

For a step of tau seconds every replica completes a known number q of sequences
(:meth:`~planner.rl.candidates.ReplicaOptions.taken_in`), so that what remains is linear. Variables:
z_i, 1 if the training i is chosen; x_ij, replicas of layout j beside it.

    minimise   sum_i usd_i z_i + sum_ij usd_j a_j x_ij
    chosen     sum_i z_i = 1
    pool_ip    sum_{j in p} a_j x_ij <= R_ip z_i        R_ip: accelerators of pool p that training i leaves
    batch      sum_ij q_ij(tau) x_ij >= N

with q_ij of the seconds that training i leaves rollout within tau. The shortest tau is found by bisection between the
shortest that the relaxation without whole replicas allows, and the best of plain splits: one layout a pool. Trainings
that are longer than tau alone have no z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.base.solver import Linear, Problem, total
from planner.cost import rl_step
from planner.cost.figures import Array
from planner.rl.candidates import ReplicaOptions, Training, WeightsMoved
from planner.schema.choices import Placement

PRECISION = 5e-3
"""Relative width to which the shortest step is bisected."""
POINTS = 4
"""Longer steps at which the cheapest accelerators are looked for, over :data:`LONGEST` times the shortest."""
LONGEST = 4.0


@dataclass(frozen=True, kw_only=True)
class PlacementPoint:
    """One placement and staleness, with what may train and roll out."""

    placement: Placement
    staleness: float
    updates: int
    sequences: float
    trainings: Sequence[Training]
    offered: Sequence[ReplicaOptions]
    """One for each pool."""
    sizes: Sequence[int]
    """Accelerators of each pool."""
    left: int | None
    """Accelerators of all pools that roll out, where the question says so."""
    usd: Sequence[float]
    """US dollars of an accelerator and second, by pool; ones where no price is known."""
    weights: Sequence[WeightsMoved]
    """By training."""
    other_s: float
    """Seconds that a step takes beside its phases."""

    def waits_s(self, training: int) -> float:
        """Seconds beside a training and its rollout."""
        return self.weights[training].seconds + self.other_s

    def window(self, training: int, step: float) -> float:
        """Seconds that a step of `step` seconds leaves for the rollout beside a training; nothing where it is longer
        itself.
        """
        seconds = self.trainings[training].seconds
        room = step - self.waits_s(training)
        if room < seconds * (1.0 - 1e-12):
            return 0.0
        if self.placement == "in-step":
            return room - seconds / self.updates
        if self.placement == "one-step-off":
            return room
        return _within(room, seconds, self.staleness)

    def room(self, training: int) -> list[int]:
        """Accelerators of each pool that a training leaves."""
        chosen = self.trainings[training]
        used = [chosen.trainer.accelerators * (pool == chosen.pool) for pool in range(len(self.sizes))]
        return [size - taken for size, taken in zip(self.sizes, used, strict=True)]


def _within(room: float, training: float, staleness: float) -> float:
    """The longest rollout whose step, by the mean of the longer of two, is within `room`."""
    low = 0.0
    high = room
    for _ in range(16):
        middle = 0.5 * (low + high)
        fits = float(rl_step.step("async", middle, training, 0.0, 1, staleness)) <= room
        low, high = (middle, high) if fits else (low, middle)
    return low


@dataclass(frozen=True)
class RoleChoice:
    """A training and replicas of layouts beside it."""

    step: float
    training: int
    replicas: tuple[tuple[int, int, int], ...]
    """(Pool, layout, count)."""
    usd: float
    """US dollars of the step, as far as prices are known."""


@dataclass(frozen=True)
class Solved:
    """The fastest and the cheapest choice of a point, and how sure that is."""

    fastest: RoleChoice
    cheapest: RoleChoice
    gap: float
    """By which a faster one could beat the fastest, at most."""
    programs: int


def solve(point: PlacementPoint) -> Solved | None:
    """The best choices; None where no training leaves room for a replica that completes the batch."""
    bounds = [_shortest(point, i, lambda i, step: _relaxed(point, i, step)) for i in range(len(point.trainings))]
    plain = [_shortest(point, i, lambda i, step: _one_layout(point, i, step)) for i in range(len(point.trainings))]
    low = min(bounds, default=np.inf)
    high = min(plain, default=np.inf)
    if not np.isfinite(high):
        return None
    best = None
    programs = 0
    while high > low * (1.0 + PRECISION):
        middle = float(np.sqrt(low * high))
        choice = _cheapest(point, middle)
        programs += 1
        if choice is None:
            low = middle
        else:
            best = choice
            high = middle
    if best is None:
        best = _cheapest(point, high * (1.0 + 1e-9))
        programs += 1
        assert best is not None, "a plain split that the program does not find"
    cheapest = best
    for step in best.step * np.geomspace(1.0, LONGEST, POINTS)[1:]:
        choice = _cheapest(point, float(step))
        programs += 1
        if choice is not None and choice.usd < cheapest.usd:
            cheapest = choice
    return Solved(best, cheapest, high / low - 1.0, programs)


def _shortest(point: PlacementPoint, training: int, sequences: Callable[[int, float], float]) -> float:
    """Seconds of the shortest step in which so many sequences are completed; infinite where no step is long enough."""
    floor = point.trainings[training].seconds + point.waits_s(training)
    low = floor
    high = 64.0 * floor + 1e5
    if sequences(training, high) < point.sequences:
        return np.inf
    if sequences(training, low * (1.0 + 1e-9)) >= point.sequences:
        return low * (1.0 + 1e-9)
    for _ in range(24):
        middle = float(np.sqrt(low * high))
        enough = sequences(training, middle) >= point.sequences
        low, high = (low, middle) if enough else (middle, high)
    return high


def _rates(point: PlacementPoint, training: int, step: float) -> list[tuple[Array, Array]]:
    """Sequences and accelerators of a replica of each layout, by pool."""
    window = point.window(training, step)
    return [(options.taken_in(window), options.layout.accelerators) for options in point.offered]


def _relaxed(point: PlacementPoint, training: int, step: float) -> float:
    """Sequences that parts of replicas complete on what a training leaves, at most."""
    most = 0.0
    for room, (done, width) in zip(point.room(training), _rates(point, training, step), strict=True):
        fits = width <= room
        most += room * float(np.max(done[fits] / width[fits], initial=0.0))
    return most


def _one_layout(point: PlacementPoint, training: int, step: float) -> float:
    """Sequences that whole replicas of the best one layout of each pool complete."""
    most = 0.0
    left = point.left
    for room, (done, width) in zip(point.room(training), _rates(point, training, step), strict=True):
        room = room if left is None else min(room, left)
        counts = np.floor(room / width)
        made = counts * done
        if len(made):
            most += float(np.max(made))
            left = None if left is None else left - int(counts[int(np.argmax(made))] * width[int(np.argmax(made))])
    return most


def _cheapest(point: PlacementPoint, step: float) -> RoleChoice | None:
    """The cheapest accelerators that complete the batch within a step, by the integer program; None if none do."""
    problem = Problem()
    chosen: list[Linear] = []
    costs: list[Linear] = []
    batch: list[Linear] = []
    columns: dict[tuple[int, int, int], Linear] = {}
    for i, training in enumerate(point.trainings):
        if point.window(i, step) <= 0.0:
            continue
        z = problem.integer(f"z_{i}", high=1)
        chosen.append(z)
        costs.append(training.trainer.accelerators * point.usd[training.pool] * z)
        everything: list[Linear] = []
        for p, (room, (done, width)) in enumerate(
            zip(point.room(i), _rates(point, i, step), strict=True)
        ):  # fmt: skip
            used: list[Linear] = []
            for j in np.flatnonzero((done >= 1.0) & (width <= room)):
                x = problem.integer(f"x_{i}_{p}_{j}", high=int(room // width[j]))
                columns[i, p, int(j)] = x
                used.append(float(width[j]) * x)
                batch.append(float(done[j]) * x)
                costs.append(float(width[j]) * point.usd[p] * x)
            if used:
                problem.constrain(total(used) - float(room) * z <= 0, f"pool_{i}_{p}")
            everything += used
        if point.left is not None and everything:
            problem.constrain(total(everything) - float(point.left) * z <= 0, f"split_{i}")
    if not batch:
        return None
    problem.constrain(total(chosen) == 1, "chosen")
    problem.constrain(total(batch) >= point.sequences, "batch")
    problem.minimise(total(costs))
    outcome = problem.solve(gap=1e-6)
    if not outcome.status.found:
        return None
    counts = {key: round(outcome.value(x)) for key, x in columns.items()}
    replicas = tuple((p, j, count) for (_, p, j), count in counts.items() if count)
    chosen_training = next(i for (i, _, _), count in counts.items() if count)
    return RoleChoice(step, chosen_training, replicas, float(outcome.objective or 0.0) * step)


def in_whole_nodes(point: PlacementPoint, choice: RoleChoice, per_node: Sequence[int]) -> RoleChoice:
    """The choice with replicas of one layout a pool on whole nodes, where these complete as much: what trainers can
    launch, on accelerators that would stand idle beside it. A pool where they complete less stays as it is.
    """
    window = point.window(choice.training, choice.step)
    room = point.room(choice.training)
    replicas = list(choice.replicas)
    for pool in sorted({p for p, _, _ in choice.replicas}):
        taken = point.offered[pool].taken_in(window)
        width = point.offered[pool].layout.accelerators
        mixed = [(p, j, count) for p, j, count in choice.replicas if p == pool]
        others = [side for side in replicas if side[0] != pool]
        used = sum(int(width[j]) * count for _, j, count in mixed)
        most = min(room[pool], -(-used // per_node[pool]) * per_node[pool])
        if point.left is not None:
            most = min(most, point.left - sum(int(point.offered[p].layout.accelerators[j]) * c for p, j, c in others))
        counts = np.floor(most / width)
        made = counts * taken
        best = int(np.argmax(made))
        done = sum(float(taken[j]) * count for _, j, count in mixed)
        if made[best] >= done * (1.0 - 1e-9):
            replicas = [*others, (pool, best, int(counts[best]))]
    return RoleChoice(choice.step, choice.training, tuple(replicas), choice.usd)
