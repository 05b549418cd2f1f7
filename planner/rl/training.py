"""The trainer's part of a step: updates and forward passes, by the exact search of one pool.

Sequences are packed, so that a micro-batch holds the tokens of several; attention keeps to each. The forward passes of
old log-probabilities and of a reference are priced as the reference model of a preference task is: beside the update,
in the update's own layout. A rank that has the longest sequence of an optimizer step works at least as long as on
that: ``max(1, longest / (tokens / dp))``. Memory must hold it, too, in one micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from planner import cost
from planner.axes.options import OptionValues
from planner.axes.table import RANK_ORDER
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.catalog import Catalog
from planner.cost import stage_memory
from planner.cost.evaluate import terms
from planner.cost.generation import Demand
from planner.models import text_lengths
from planner.models.context import attended, in_texts
from planner.question.configuration import one_configuration
from planner.question.given import texts
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.question.search_problem import Prepared, prepare, problem
from planner.schema.hardware import Cluster
from planner.schema.workload import Model
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate
from planner.space.cost_grid import Figures, single_grid

SHORTLIST = 12
"""Best layouts by packed time, among which is the best whose longest sequence fits and delays least."""
Tried = Literal["fitting", "any", "stated"]
"""Layouts that fit; those that do not, too, as where a run has shown that they do; or the one that pins state, whatever
it takes, with what they leave open neutral."""
LAYOUT_AXES = ("tp", "cp", "pp", "vpp", "ep", "dp", "micro")


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A model trained on some accelerators: the best layout, and what it takes of every step of the algorithm."""

    accelerators: int
    layout: Mapping[str, int]
    options: OptionValues
    update_s: float
    """All optimizer steps of a step of the algorithm."""
    forward_s: float
    """One forward pass of all its sequences."""
    memory: float
    """Bytes on the fullest accelerator."""
    states: float
    """Weights, gradients and optimizer states in it: what is moved to host memory between phases."""
    capacity: float
    room: float
    """Bytes of it that training may fill."""
    proven: bool
    """Whether no other layout of the space is faster."""
    candidates: int
    runtime: str


def packed(demand: Demand, updates: int, accelerators: int) -> tuple[int, int]:
    """Packed sequences of an optimizer step, and tokens of each: as many as go round over any data-parallel degree."""
    sequences = demand.sequences / updates
    tokens = sequences * (demand.prompt + demand.lengths.mean)
    count = accelerators * 2 ** max(0, math.floor(math.log2(max(sequences / accelerators, 1.0))))
    if count > sequences:
        count = 2 ** max(0, math.floor(math.log2(sequences)))
    return count, max(1, round(tokens / count))


class TrainerPasses(NamedTuple):
    """What a trainer does in a step."""

    demand: Demand
    updates: int
    """Optimizer steps."""
    forwards: int
    """Forward passes of all sequences beside the updates."""
    other_bytes: float = 0.0
    """Bytes of an accelerator that another model's states keep meanwhile."""


def best(
    known: Catalog, model: Model, cluster: Cluster, passes: TrainerPasses, asked: PlanOptions, tried: Tried
) -> Trainer | None:
    """The best layout of a trainer on all of a cluster; None where none is legal or fits.

    Args:
        known: The catalog.
        model: What is trained.
        cluster: The accelerators of the role.
        passes: What is done with the sequences of a step.
        asked: Runtime, precision, pins, optimizer and risk.
        tried: Which layouts are.

    Raises:
        WrongQuestion: a stated layout is not legal.
    """
    demand, updates, forwards, other_bytes = passes
    count, tokens = packed(demand, updates, cluster.accelerators)
    pin = texts(asked.pin)
    if not any("rank" in text for text in pin):
        pin = (*pin, f"{RANK_ORDER.name}={RANK_ORDER.neutral}")  # that of verl and NeMo-RL, which set no other
    asked = replace(asked, pin=pin)
    plain = replace(asked, batch=count, seq=tokens, tokens=float(count * tokens), task="sft", top=1)
    try:
        _, wanted = request(model, cluster, plain, known=known)
        wanted = replace(wanted, older="")
        if tried == "stated":
            wanted = replace(wanted, pins=one_configuration(wanted, texts(asked.pin)))
        prepared = prepare(known, wanted)
    except ClusterwrightError:
        if tried == "stated":
            raise
        return None
    figures = _of_responses(prepared.figures, model, demand, float(forwards))
    prepared = replace(prepared, figures=figures)
    limited = tried == "fitting"
    left = prepared.usable - other_bytes if limited else math.inf
    result = Bounded().search(problem(prepared, SHORTLIST, capacity=left if other_bytes or not limited else None))
    choice = _first_fitting(prepared, model, result.best, TrainerPasses(demand, updates, forwards), left)
    if choice is None and tried == "stated":
        raise WrongQuestion(f"{' '.join(texts(asked.pin))}: no layout of {cluster.accelerators:,} accelerators is so")
    if choice is None:
        return None
    candidate, memory, delay = choice
    without = replace(prepared.figures, shape=replace(prepared.figures.shape, reference=0.0))
    grid = single_grid(without, candidate.layout, candidate.options)
    update = float(cost.evaluate(grid).time)
    forward = (candidate.time - update) / forwards if forwards else 0.0
    stages = terms(grid).memories
    states = max(float(stage.parameters + stage.gradients + stage.optimizer) for stage in stages)
    listed = len(result.best) == SHORTLIST
    bound = result.best[-1].time if listed else math.inf
    return Trainer(
        accelerators=cluster.accelerators,
        layout={axis: candidate.layout[axis] for axis in LAYOUT_AXES},
        options=candidate.options,
        update_s=update * updates * delay,
        forward_s=forward * updates * delay,
        memory=memory,
        states=states,
        capacity=cluster.accelerator.memory,
        room=prepared.usable,
        proven=result.proven and candidate.time * delay <= bound,
        candidates=result.candidates,
        runtime=f"{wanted.runtime.id}@{wanted.release}",
    )


def _of_responses(figures: Figures, model: Model, demand: Demand, forwards: float) -> Figures:
    """The figures of packed responses, each of which attention keeps to, with forward passes beside."""
    texts = [demand.prompt + float(length) for length in demand.lengths.values[::40]]
    shape = replace(
        figures.shape,
        attended=in_texts(model, texts),
        text=text_lengths.around_token(texts),
        attended_full=text_lengths.around_token(texts),
        reference=forwards,
    )
    return replace(figures, shape=shape)


def _first_fitting(
    prepared: Prepared, model: Model, listed: Sequence[Candidate], passes: TrainerPasses, room: float
) -> tuple[Candidate, float, float] | None:
    """The candidate with the shortest step, delays counted, whose longest sequence fits into so many bytes; its memory
    and its delay.
    """
    demand, updates, _, _ = passes
    whole = demand.prompt + demand.lengths.cap
    shape = prepared.figures.shape
    long = replace(shape, sequence=whole, attended=attended(model, whole), text=whole, attended_full=whole)
    figures = replace(prepared.figures, shape=long)
    choice: tuple[Candidate, float, float] | None = None
    for candidate in listed:
        if choice is not None and candidate.time >= choice[0].time * choice[2]:
            break  # the list is in the order of times without delays
        delay = _delay(demand, updates, candidate.layout["dp"])
        if choice is not None and candidate.time * delay >= choice[0].time * choice[2]:
            continue
        memory = max(candidate.memory, _held(figures, candidate, whole, float(shape.sequence)))
        if memory <= room:
            choice = (candidate, memory, delay)
    return choice


def _delay(demand: Demand, updates: int, ranks: int) -> float:
    """How much longer the rank with the longest sequence takes than one with an even share."""
    sequences = demand.sequences / updates
    longest = demand.prompt + demand.lengths.longest(sequences)
    share = sequences * (demand.prompt + demand.lengths.mean) / ranks
    return max(1.0, longest / share)


def _held(figures: Figures, candidate: Candidate, whole: float, packed_tokens: float) -> float:
    """Bytes with the longest sequence in a micro-batch of its own; what is packed may hold more."""
    if candidate.layout["micro"] * packed_tokens >= whole:
        return candidate.memory
    layout: dict[str, Any] = {**candidate.layout, "micro": 1}
    grid = single_grid(figures, layout, candidate.options)
    return float(np.max(stage_memory.largest(stage_memory.stages(grid, terms(grid).stages.split))))
