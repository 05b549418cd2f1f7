"""Seconds in which replicas of an engine complete a batch: waves, the tail of long responses, the cache's limit.

A replica with B sequences keeps at most C of them in flight. While more wait, it works at C; the last C then drain:
after s tokens ``C S(s)`` are left, S being the share of longer responses, and an iteration gets shorter. The longest
response of all replicas sets the end, alone on its replica. Without continuous batching each C of them drain.

With staleness s (batches), s N sequences beyond a batch may be in flight when it closes. The step then waits until no
more than the share ``s / (1 + s)`` of those in flight is left, not for the longest; yet all tokens of N responses are
made in every step, so that it is never shorter than they take at the mean number in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost import decoding
from planner.cost.decoding import Rollout, Served
from planner.cost.figures import Array
from planner.cost.response_lengths import Lengths

MOMENTS = 40
"""Points of a response at which iterations are priced."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What has to be generated in a step."""

    sequences: float
    prompt: float
    """Tokens of a prompt."""
    lengths: Lengths
    samples: float
    """Responses that share a prompt."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What replicas of each layout may hold."""

    tokens: Array
    """Tokens of keys and values."""
    sequences: float
    """Most in flight by the engine's own limit."""
    shares_prompts: bool
    in_batches: bool = False
    """Whether a batch is complete before the next begins."""


def room(served: Served, layout: Rollout, capacity: float, most: float, shares: bool) -> Room:
    """Room for the cache of a replica in so many bytes of each accelerator."""
    left = np.maximum(capacity - decoding.weights(served, layout), 0.0)
    per_token = served.cache_per_token / decoding.cache_ranks(served, layout)
    return Room(tokens=left / per_token * layout.groups, sequences=most * 1.0, shares_prompts=shares)


def in_flight(demand: Demand, space: Room, layout: Rollout) -> Array:
    """Sequences that a replica keeps in flight at most."""
    grid = np.linspace(0.0, demand.lengths.cap, 64)
    alive = demand.lengths.above(grid)
    fullest = float(np.max(alive * (demand.prompt / (demand.samples if space.shares_prompts else 1.0) + grid)))
    return np.minimum(space.tokens / max(fullest, 1.0), space.sequences * layout.groups)


def moments(lengths: Lengths, sequences: float) -> Array:
    """Tokens from 0 to the longest response, close at the start."""
    return lengths.longest(sequences) * np.linspace(0.0, 1.0, MOMENTS + 1) ** 1.5


def seconds(served: Served, layout: Rollout, demand: Demand, space: Room, assigned: Array, stale: float = 0.0) -> Array:
    """Seconds of a step's rollout on replicas of some layouts.

    Args:
        served: Model, accelerator and network.
        layout: Layouts on the last axis.
        demand: The whole step's.
        space: What a replica holds.
        assigned: Sequences of a replica, on the axes before the last.
        stale: Batches that may be in flight beyond the one waited for.

    Returns:
        As `assigned` broadcasts against the layouts; infinite where not one sequence fits.
    """
    lengths = demand.lengths
    most = in_flight(demand, space, layout)
    started = np.minimum(assigned * (1.0 + stale), most)
    edges = moments(lengths, space.sequences if space.in_batches else demand.sequences)
    middle = 0.5 * (edges[1:] + edges[:-1])
    alive = lengths.above(middle)
    steps = np.diff(edges)

    waited = alive > stale / (1.0 + stale) if stale else np.ones_like(alive, dtype=bool)
    live = np.maximum(alive.reshape(-1, *[1] * np.ndim(assigned)) * started, 1.0)
    context = (demand.prompt + middle).reshape(-1, *[1] * np.ndim(assigned))
    iterations = decoding.iteration(served, layout, live, context)
    width = (steps * waited).reshape(-1, *[1] * np.ndim(assigned))
    draining = np.sum(iterations * width, axis=0)

    mean_context = demand.prompt + 0.5 * float(np.mean(lengths.values**2)) / lengths.mean
    busy = np.minimum(assigned * (0.5 + stale), most) if stale else most
    rate = np.maximum(busy, 1.0) / decoding.iteration(served, layout, np.maximum(busy, 1.0), mean_context)
    queued = np.maximum(assigned - started, 0.0) * lengths.mean / rate
    if space.in_batches:
        queued = (np.ceil(assigned / np.maximum(started, 1.0)) - 1.0) * draining
    whole = np.maximum(queued + draining, assigned * lengths.mean / rate if stale else 0.0)
    prompts = assigned * demand.prompt / (demand.samples if space.shares_prompts else 1.0)
    return np.where(most >= 1.0, whole + decoding.prefill(served, layout, prompts), np.inf)
