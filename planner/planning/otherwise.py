"""A plan otherwise: under other software, with its texts in other batches, and on fewer nodes.

Both are the plan itself with as many texts a step: its layout and its micro-batch, whose memory must hold the longest
texts anyhow, with more micro-batches of fewer tokens.

Fewer nodes than are left may be faster: a batch divides among some numbers of replicas and not among others. All from
half the nodes on are tried, since half of them run with half the replicas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner import cost
from planner.axes import AXES, OPTION_AXES, PlanAxis
from planner.axes.options import OptionValues
from planner.axes.table import CP_ALGORITHM, DISPATCHER, PRECISION, sent
from planner.axes.values import ALONE
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.cost import experts
from planner.models import context
from planner.models import texts as lengths
from planner.models.context import in_texts
from planner.models.parameters import parameters
from planner.planning import answer
from planner.planning.document import Spread
from planner.question.request import Request
from planner.question.search_problem import Prepared, prepare, problem
from planner.schema.plan import ContingencyPlan, OlderRelease, Plan, TextBatches
from planner.search.best_per_size import best_of_each
from planner.search.problem import Candidate
from planner.space.grid import Figures, single_grid

WITHIN = 1.28
"""Standard deviations of a normal variable that 80 % lie within, on either side."""


def older(prepared: Prepared, candidate: Candidate) -> OlderRelease | None:
    """What the request's older release makes of a candidate; None where the question states its release."""
    request = prepared.request
    if prepared.older is None:
        return None
    late = request.runtime.lacks(request.older)
    muon = ("muon",) if request.workload.optimizer.iterations else ()
    plain = context.algorithms(request.workload)[:1]
    lacks = tuple(what for what in (*used(chosen(candidate.layout, candidate.options), plain), *muon) if what in late)
    return OlderRelease(
        release=request.older, step_time_s=None if lacks else _time(prepared.older, candidate), lacks=lacks
    )


def time_spread(prepared: Prepared, candidate: Candidate) -> Spread:
    """The interval of a candidate's step time; under a runtime that stands for several, how far apart these predict it
    (standard deviation of the logarithm) adds to the variance.
    """
    half, why = prepared.sure[candidate.options[PRECISION]]
    if not prepared.plausible:
        return Spread(half, why)
    return apart(prepared.request, Spread(half, why), [_time(figures, candidate) for figures in prepared.plausible])


def apart(request: Request, known: Spread, times: Sequence[float]) -> Spread:
    """An interval widened by how far apart the runtimes that the request's stands for predict the step, seconds."""
    wider = WITHIN * float(np.std(np.log(times)))
    reason = f"any of {', '.join(request.runtime.between)} ({min(times):.3g} to {max(times):.3g} s)"
    return Spread(math.hypot(known.half_width, wider), f"{known.runs}, {reason}")


Chosen = Mapping[PlanAxis[Any], Sequence[Any]]
"""Axis -> the values that parts of a plan have."""


def chosen(layout: Mapping[str, int], options: OptionValues) -> Chosen:
    """What a plan has whose parts are all alike."""
    values = {AXES[name]: [value] for name, value in layout.items()}
    return {**values, **{axis: [options[axis]] for axis in OPTION_AXES}}


def used(chosen: Chosen, plain: Sequence[str] = ()) -> Iterator[str]:
    """What of a runtime's axes a plan uses, as `since` names it: first what other plans leave out, then values of what
    every plan has.

    Args:
        chosen: Values of its parts.
        plain: Ways to share a sequence that every release has which can train the model.
    """
    for axis in sorted(chosen, key=lambda axis: (any(axis.since(axis.neutral)), axis.option)):
        for value in chosen[axis]:
            yield from axis.since(axis.neutral if axis is CP_ALGORITHM and value in plain else value)


def _time(figures: Figures, candidate: Candidate) -> float:
    """Seconds per step of a candidate by other figures, which say themselves whether copies of tokens are sent once."""
    once = sent(candidate.options[DISPATCHER]) == experts.ONCE_PER_DOMAIN
    options = candidate.options.replaced(dispatcher=ALONE) if once else candidate.options
    return float(cost.evaluate(single_grid(figures, candidate.layout, options)).time)


def of_plan(prepared: Prepared, candidate: Candidate) -> TextBatches:
    """Seconds of a step's texts, packed, sorted and padded.

    Sorted: every micro-batch of a step has about one length, the mean over steps being the texts' own. Padded: a
    micro-batch of b texts has the length ``P(b)`` of its longest, mean over all; a step waits for the slowest of dp
    replicas, whose m micro-batches are ``P(b) + (P(b dp) - P(b)) / sqrt(m)`` long: exact for one replica or one
    micro-batch, between as the spread of a sum. Images of a step are as many in all three.
    """
    work, layout = prepared.request.workload, candidate.layout
    full = lengths.filled(work.texts, work.sequence)
    per_step = full * work.sequence / lengths.mean(work.texts) * layout["batch"]
    together = layout["micro"] * layout["dp"]
    count = math.ceil(per_step / together)
    own = lengths.padded(work.texts, layout["micro"])
    slowest = own + (lengths.padded(work.texts, together) - own) / math.sqrt(count)
    weights = lengths.longest_of(work.texts, layout["micro"])

    alike = prepared.figures.shape
    images = alike.images * layout["batch"] / per_step

    def seconds(tokens: float, text: float, attended: float) -> float:
        shape = replace(alike, sequence=tokens, text=text, attended=attended, attended_full=text, images=images)
        grid = single_grid(
            replace(prepared.figures, shape=shape), {**layout, "batch": count * together}, candidate.options
        )
        return float(cost.evaluate(grid).time) * per_step / (count * together)

    return TextBatches(
        filled=full,
        per_step=per_step,
        sorted_s=seconds(lengths.mean(work.texts), float(alike.text), float(alike.attended)),
        padded_s=seconds(slowest, lengths.around_token(work.texts, weights), in_texts(work.model, work.texts, weights)),
    )


MOST_LOST = 16
"""Lost nodes for which a plan is kept: more at once are not a fault of nodes."""
READ_BYTES_PER_S = 2e12 / 2048
"""Of a checkpoint, by each node: what Llama 3's storage sustained for 16,384 GPUs, 2 TB/s (arXiv 2407.21783, 3.3.1)."""


def contingencies(catalog: Catalog, request: Request, plan: Plan, most: int) -> tuple[ContingencyPlan, ...]:
    """The plans for 1 to `most` nodes less than those of a plan, by the request that it answers.

    The batch, the tokens and the runtime stay; limits on time and money do not bind, as the job continues in any case.

    Raises:
        WrongQuestion: not that many nodes can be lost.
        NoAnswer: nothing fits on what is left; the message says from how many lost nodes on.
    """
    nodes = plan.cluster.pools[0].count
    if not 1 <= most <= min(MOST_LOST, nodes - 1):
        had = f"from 1 to {min(MOST_LOST, nodes - 1)} of {nodes} nodes" if nodes > 1 else "one node leaves none"
        raise WrongQuestion(f"--contingency {most}: nodes that may be lost: {had}")
    wanted = replace(request, batches=(plan.batch.global_,), top=1, deadline_s=None, max_cost_usd=None)
    counts = range(min(nodes // 2, nodes - most), nodes)
    best = _best_of_each(catalog, wanted, [count for count in counts if count > 0])
    found = []
    for lost in range(1, most + 1):
        left = {count: each for count, each in best.items() if count <= nodes - lost}
        if not left:
            raise NoAnswer(f"--contingency {most}: no plan fits on {nodes - lost} of {nodes} nodes or fewer")
        count, candidate = min(left.items(), key=lambda item: (item[1].value, -item[0]))
        found.append(_contingency(catalog, _on(wanted, [count]), candidate, lost))
    return tuple(found)


def _best_of_each(catalog: Catalog, wanted: Request, counts: Sequence[int]) -> Mapping[int, Candidate]:
    """Node count -> its best candidate, one search for all; where a domain grows with its hosts, one for each."""
    fabric = wanted.cluster.fabric
    grows = fabric.kind == "ici" or bool(fabric.dimensions)
    found: dict[int, Candidate] = {}
    for some in [[count] for count in counts] if grows else [counts]:
        try:
            prepared = prepare(catalog, _on(wanted, some))
        except ClusterwrightError:  # no layout is legal there
            continue
        found |= {count: each for (_, count), each in best_of_each(problem(prepared, 1)).items()}
    return found


def _on(request: Request, counts: Sequence[int]) -> Request:
    return replace(request, counts=tuple(counts), cluster=replace(request.cluster, count=max(counts)))


def _contingency(catalog: Catalog, request: Request, candidate: Candidate, lost: int) -> ContingencyPlan:
    plan = answer.plan(prepare(catalog, request), candidate, 1)
    optimizer = request.workload.optimizer
    each = 2.0 + optimizer.state_bytes + optimizer.master_bytes
    checkpoint = parameters(request.workload.model).total * each
    return ContingencyPlan(
        lost_nodes=lost,
        checkpoint_bytes=checkpoint,
        read_bytes_per_s=READ_BYTES_PER_S,
        reshard_s=request.restart_s + checkpoint / (plan.cluster.pools[0].count * READ_BYTES_PER_S),
        plan=plan,
    )
