"""Searches of plans for the columns of the integer program: the best on every size of a machine, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.processes import Workers, spread
from planner.catalog import Catalog
from planner.figures import cost_inputs
from planner.models.workload import find_model
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.kept_plans import PlanTask, Size, SizeAnswers
from planner.question.reading import request
from planner.question.request import Request
from planner.question.rl_options import RLTraining
from planner.question.search_problem import prepare, problem
from planner.rl.job import fastest
from planner.schema.rl import RLPlan
from planner.search.best_per_size import best_of_each
from planner.search.problem import Candidate

SHARE = 4
"""Searches that a process is given at a time."""


def request_of(catalog: Catalog, job: Job, pool: SupplyPool) -> Request:
    """What of a job a search on a pool's machine is asked."""
    return request(job.model, f"{pool.node.id}:1", replace(job.asked, catalog=None), known=catalog)[1]


def searched(catalog: Catalog, task: PlanTask) -> SizeAnswers:
    """The best plan on every size and wiring that is wanted of a machine, by one search; and if there is none, why."""
    job, pool, fabrics, wanted = task
    if job.post_training is not None:
        return _fastest_steps(catalog, task, job.post_training)
    counts = tuple(sorted({count for _, count in wanted}))
    wirings = [wired for wired in fabrics if any(wired == size for size, _ in wanted)]
    try:
        # Failures scale a run and do not change which plan is best.
        asked = replace(request_of(catalog, job, pool), counts=counts, restart_s=0.0)
        prepared = prepare(catalog, replace(asked, cluster=replace(pool.cluster, count=counts[-1])))
    except (WrongQuestion, NoAnswer) as error:
        return {}, f"{pool.node.id}: {error}".splitlines()[0]
    networks = [
        cost_inputs.network(replace(fabrics[wired], count=counts[-1]), prepared.reached.accelerator)
        for wired in wirings
    ]
    pairs = {(wirings.index(wiring), count) for wiring, count in wanted}
    best = best_of_each(problem(prepared, 1), networks, pairs)
    why = "" if best else f"{pool.node.id}: nothing fits into memory"
    return {(wirings[n], count): candidate for (n, count), candidate in best.items()}, why


def answers_of(catalog: Catalog, tasks: Sequence[PlanTask], workers: Workers) -> Iterator[tuple[int, SizeAnswers]]:
    """Each task's place with its search's answer, as they come: made in this process, several or a cluster."""
    starts = range(0, len(tasks), SHARE)
    shares = [tasks[start : start + SHARE] for start in starts]
    for place, answers in spread(_all_searched, catalog, shares, workers):
        yield from enumerate(answers, starts[place])


def _all_searched(catalog: Catalog, tasks: Sequence[PlanTask]) -> list[SizeAnswers]:
    return [searched(catalog, task) for task in tasks]


def _fastest_steps(catalog: Catalog, task: PlanTask, asked: RLTraining) -> SizeAnswers:
    """The fastest step of a post-training on every size and wiring that is wanted; and if there is none, why."""
    steps: dict[Size, Candidate | RLPlan] = {}
    why = ""
    for wired, count in sorted(task.wanted, key=lambda size: size[1]):
        try:
            cluster = replace(task.fabrics[wired], count=count)
            steps[wired, count] = fastest(catalog, find_model(task.job.model), asked, cluster, task.job.learned)
        except (WrongQuestion, NoAnswer) as error:
            why = why or f"{task.pool.node.id}: {error}".splitlines()[0]
    return steps, "" if steps else why
