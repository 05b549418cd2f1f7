"""Seconds of a step by placement of the roles, from the seconds of its phases. Broadcasts.

* colocated: the phases follow one another on all accelerators, with resharding and offloading between them.
* apart, in step: trainers wait for a batch, and rollout waits for new weights. Optimizer steps after the first start as
  soon as their share of the sequences is there, so that one of u updates is left when the last response ends.
* one step off: trainers work on the batch before the one that is generated: the longer of both, then weights.
* asynchronous with staleness s: rates alone count once s hides what batches differ by; below one batch, trainers wait
  for the part of the tail that s does not hide, which :mod:`planner.cost.generation` has in its seconds already.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from planner.cost.figures import Figure
from planner.schema.choices import Placement

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
NAMES = {
    "colocated": "colocated",
    "in-step": "apart, in step",
    "one-step-off": "apart, one step off",
    "async": "apart, asynchronous",
}
"""As an answer says them."""
SPREAD = 0.1
"""Standard deviation of a batch's seconds over their mean, of thousands of responses with a tail up to a cap."""


def step(
    placement: Placement, generation: Figure, training: Figure, sync: Figure, updates: int, staleness: float
) -> Figure:
    """Seconds of a step.

    Args:
        placement: Where the roles are.
        generation: Seconds of the rollout; with staleness, of the part that a step waits for.
        training: Seconds of log-probabilities, reference and updates.
        sync: Seconds in which weights are moved (and states, if colocated).
        updates: Optimizer steps of a step.
        staleness: Batches that may be in flight beyond the one trained on.
    """
    if placement == "colocated":
        return generation + training + sync
    if placement == "in-step":
        return np.maximum(generation + training / updates, training) + sync
    if placement == "one-step-off":
        return np.maximum(generation, training) + sync
    return _longer_of_two(generation, training, staleness) + sync


def _longer_of_two(generation: Figure, training: Figure, staleness: float) -> Figure:
    """Mean of the longer of two phases that vary by :data:`SPREAD`, averaged over the batches in flight (Clark's
    formula for two normal variables): their maximum, and a little more where they are alike.
    """
    spread = SPREAD * np.hypot(generation, training) / np.sqrt(1.0 + max(staleness, 0.0))
    apart = np.abs(generation - training) / np.maximum(spread, 1e-12)
    density = np.exp(-0.5 * np.minimum(apart, 30.0) ** 2) / np.sqrt(2.0 * np.pi)
    beyond = density - apart * (1.0 - _normal(apart))
    return np.maximum(generation, training) + spread * np.maximum(beyond, 0.0)


def _normal(value: Figure) -> Figure:
    """The standard normal distribution's share below a value of at least 0 (Abramowitz and Stegun 26.2.17)."""
    t = 1.0 / (1.0 + 0.2316419 * value)
    terms = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
    tail = sum(factor * t ** (n + 1) for n, factor in enumerate(terms))
    return 1.0 - np.exp(-0.5 * np.minimum(value, 30.0) ** 2) / np.sqrt(2.0 * np.pi) * tail
