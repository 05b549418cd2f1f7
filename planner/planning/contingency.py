"""What a job continues with when nodes are lost: the best plan on what is left, and how long it takes to begin.

Fewer nodes than are left may be faster: a batch divides among some numbers of replicas and not among others. All counts
from half the nodes on are tried, since half of them run with half the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.models.parameters import parameters
from planner.planning import answer
from planner.question.request import Request
from planner.question.search_problem import prepare, problem
from planner.schema.plan import ContingencyPlan, Plan
from planner.search.best_per_size import best_of_each
from planner.search.problem import Candidate

MOST_LOST = 16
"""Lost nodes for which a plan is kept: more at once are not a fault of nodes."""
READ_BYTES_PER_S = 2e12 / 2048
"""Bytes of a checkpoint that a node reads in a second: Llama 3's storage sustained 2 TB/s for 16,384 GPUs (arXiv
2407.21783, 3.3.1)."""


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
    plans = []
    for lost in range(1, most + 1):
        left = {count: candidate for count, candidate in best.items() if count <= nodes - lost}
        if not left:
            raise NoAnswer(f"--contingency {most}: no plan fits on {nodes - lost} of {nodes} nodes or fewer")
        count, candidate = min(left.items(), key=lambda item: (item[1].value, -item[0]))
        plans.append(_contingency(catalog, _on_nodes_left(wanted, [count]), candidate, lost))
    return tuple(plans)


def _best_of_each(catalog: Catalog, wanted: Request, counts: Sequence[int]) -> Mapping[int, Candidate]:
    """Node count -> its best candidate, by one search for all; by one a count where a domain grows with its hosts."""
    fabric = wanted.cluster.fabric
    grows = fabric.kind == "ici" or bool(fabric.dimensions)
    best: dict[int, Candidate] = {}
    for some in [[count] for count in counts] if grows else [counts]:
        try:
            prepared = prepare(catalog, _on_nodes_left(wanted, some))
        except ClusterwrightError:  # no layout is legal there
            continue
        best |= {count: candidate for (_, count), candidate in best_of_each(problem(prepared, 1)).items()}
    return best


def _on_nodes_left(request: Request, counts: Sequence[int]) -> Request:
    return replace(request, counts=tuple(counts), cluster=replace(request.cluster, count=max(counts)))


def _contingency(catalog: Catalog, request: Request, candidate: Candidate, lost: int) -> ContingencyPlan:
    plan = answer.plan(prepare(catalog, request), candidate, 1)
    optimizer = request.workload.optimizer
    parameter_bytes = 2.0 + optimizer.state_bytes + optimizer.master_bytes
    checkpoint = parameters(request.workload.model).total * parameter_bytes
    return ContingencyPlan(
        lost_nodes=lost,
        checkpoint_bytes=checkpoint,
        read_bytes_per_s=READ_BYTES_PER_S,
        reshard_s=request.restart_s + checkpoint / (plan.cluster.pools[0].count * READ_BYTES_PER_S),
        plan=plan,
    )
