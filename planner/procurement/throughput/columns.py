"""How long each job takes on each pool: the exact plan search, asked once for what many pools share.

What a pool costs and where it stands do not change its speed, so one search answers for every price, region and copy;
and one search answers for every size of a cluster and every network between its nodes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.processes import without_main
from planner.catalog import Catalog
from planner.cost import money
from planner.performance import binding
from planner.planning import answer
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.bounds import least_usd
from planner.procurement.throughput.column import Column, Key, machine, wiring, work
from planner.question.reading import request
from planner.question.request import Request, goodput_of
from planner.question.search_problem import prepare, problem
from planner.schema.hardware import Cluster
from planner.schema.plan import Plan
from planner.search.each import best_of_each
from planner.search.problem import Candidate

if TYPE_CHECKING:
    from planner.procurement.throughput.several_pools import Mixtures


MANY = 32
"""Searches from which on it pays to begin other processes."""
MOST_PROCESSES = 8


class _Speed(NamedTuple):
    """A key that equal speeds share: the job's work, and the machine without price, place and wiring."""

    job: Key
    machine: Key


@dataclass
class _Machine:
    """What is asked of one machine: the sizes and the wirings in which it may be had."""

    fabrics: dict[Key, Cluster]
    """Wiring -> a cluster that has it."""
    wanted: set[tuple[Key, int]]
    """The wirings and the counts that go together."""


class _Task(NamedTuple):
    """One search."""

    job: Job
    pool: SupplyPool
    machine: _Machine


class Throughputs:
    """Plans found so far; each search is made once, when it is first needed."""

    def __init__(
        self, catalog: Catalog, jobs: Sequence[Job], pools: Sequence[SupplyPool], mixtures: Mixtures | None = None
    ) -> None:
        self._catalog, self._mixtures = catalog, mixtures
        self._jobs, self._pools = jobs, pools
        self._work = [work(job) for job in jobs]
        self._found: dict[_Speed, dict[tuple[Key, int], Candidate]] = {}
        self._why: dict[_Speed, str] = {}
        self._seconds: dict[Key, float | None] = {}
        self._requests: dict[Key, Request] = {}
        self._machines: dict[Key, _Machine] = {}
        self._keys = [(machine(pool), wiring(pool)) for pool in pools]
        for pool, (board, wired) in zip(pools, self._keys, strict=True):
            known = self._machines.setdefault(board, _Machine({}, set()))
            known.fabrics.setdefault(wired, pool.cluster)
            known.wanted.add((wired, pool.cluster.count))

    def columns(
        self,
        advance: Callable[[int], None] | None = None,
        processes: int | None = None,
        dearest_usd: float = math.inf,
    ) -> list[Column]:
        """Every (job, pool) that trains and keeps the job's least throughput.

        Arguments:
            advance: told of every search that is done; there are :meth:`wanted` of them.
            processes: that search side by side; by default as many as there are cores, and one for a small question.
            dearest_usd: machines on which a job costs more in every size, even at their peak, are not searched.
        """
        self._search(advance, processes, dearest_usd)
        found = [
            self.column(j, p)
            for p in range(len(self._pools))
            for j in range(len(self._jobs))
            if _Speed(self._work[j], self._keys[p][0]) in self._found
        ]
        if self._mixtures:
            found += self._mixtures.columns(advance)
        return [c for c in found if c is not None and c.tokens_per_s >= self._jobs[c.job].min_tokens_per_s]

    def wanted(self, dearest_usd: float = math.inf) -> int:
        """Searches that all columns take, less those made."""
        return len(self._open(dearest_usd)) + (self._mixtures.wanted if self._mixtures else 0)

    def _open(self, dearest_usd: float) -> dict[_Speed, _Task]:
        tasks: dict[_Speed, _Task] = {}
        for p, pool in enumerate(self._pools):
            for j, (job, mine) in enumerate(zip(self._jobs, self._work, strict=True)):
                key = _Speed(mine, self._keys[p][0])
                if key not in self._found and key not in tasks and self.least_usd[j][p] <= dearest_usd:
                    tasks[key] = _Task(job, pool, self._machines[key.machine])
        return tasks

    @cached_property
    def least_usd(self) -> list[list[float]]:
        """US dollars that everything costs at least if job j runs on pool p, as ``[j][p]``."""
        return least_usd(self._catalog, self._jobs, self._pools)

    def _search(self, advance: Callable[[int], None] | None, processes: int | None, dearest_usd: float) -> None:
        tasks = self._open(dearest_usd)
        side_by_side = processes or (min(os.cpu_count() or 1, MOST_PROCESSES) if len(tasks) >= MANY else 1)
        with _answers(self._catalog, list(tasks.values()), side_by_side) as answers:
            for key, (found, why) in zip(tasks, answers, strict=True):
                self._found[key] = found
                if why:
                    self._why[key] = why
                if advance:
                    advance(1)

    def column(self, j: int, p: int) -> Column | None:
        """One job on one pool; None where it does not fit."""
        pool = self._pools[p]
        key = (j, *self._keys[p], pool.cluster.count, pool.restart_s, pool.preemptions_per_node_s)
        if key not in self._seconds:
            self._seconds[key] = self._takes(self._jobs[j], j, p)
        seconds = self._seconds[key]
        return None if seconds is None else Column(j, p, seconds / money.DAY_S, self._jobs[j].tokens / seconds)

    def _takes(self, job: Job, j: int, p: int) -> float | None:
        """Seconds of a job on a pool, failures and checkpoints included."""
        pool, candidate = self._pools[p], self._candidate(j, p)
        if candidate is None:
            return None
        wanted = self._request(job, pool)
        good = goodput_of(wanted, pool.cluster.count).fraction
        if float(good) <= 0:
            return None
        steps = money.steps(job.tokens, candidate.layout["batch"], wanted.workload.sequence)
        return float(money.wall_time(candidate.time, steps, good))

    @property
    def searches(self) -> int:
        """Searches made so far."""
        return len(self._found)

    def why_not(self, job: Job) -> list[str]:
        """What the searches that found nothing for a job said, each once."""
        return list(dict.fromkeys(why for key, why in self._why.items() if key.job == work(job)))

    def plan(self, column: Column) -> Plan:
        """The training plan behind a column, as ``clusterwright plan`` would write it for that cluster."""
        if column.other_pools and self._mixtures:
            return self._mixtures.plan(column)
        job, pool = self._jobs[column.job], self._pools[column.pool]
        candidate = self._candidate(column.job, column.pool)
        assert candidate is not None
        wanted = replace(
            self._request(job, pool),
            cluster=pool.cluster,
            counts=(pool.cluster.count,),
            price=pool.quote if pool.hired else None,
            sold_as=pool.sold_as,
        )
        wanted = replace(wanted, workload=replace(wanted.workload, tokens=job.tokens))
        return answer.plan(prepare(self._catalog, wanted), candidate, 1)

    def _candidate(self, j: int, p: int) -> Candidate | None:
        job, pool = self._jobs[j], self._pools[p]
        board, wired = self._keys[p]
        key = _Speed(self._work[j], board)
        if key not in self._found:
            self._found[key], why = _searched(self._catalog, _Task(job, pool, self._machines[board]))
            if why:
                self._why[key] = why
        return self._found[key].get((wired, pool.cluster.count))

    def _request(self, job: Job, pool: SupplyPool) -> Request:
        key = (work(job), pool.node.id)
        if key not in self._requests:
            self._requests[key] = _request(self._catalog, job, pool)
        return replace(
            self._requests[key],
            cluster=pool.cluster,
            restart_s=pool.restart_s,
            preemptions_per_node_s=pool.preemptions_per_node_s,
        )


def _request(catalog: Catalog, job: Job, pool: SupplyPool) -> Request:
    return request(job.model, f"{pool.node.id}:1", replace(job.asked, catalog=None), known=catalog)[1]


def _searched(catalog: Catalog, task: _Task) -> tuple[dict[tuple[Key, int], Candidate], str]:
    """The best plan on every size and wiring of a machine, by one search; and where there is none, why."""
    job, pool, known = task
    counts = tuple(sorted({count for _, count in known.wanted}))
    wirings = list(known.fabrics)
    try:
        # Failures scale a run and do not change which plan is best.
        wanted = replace(_request(catalog, job, pool), counts=counts, restart_s=0.0)
        prepared = prepare(catalog, replace(wanted, cluster=replace(pool.cluster, count=counts[-1])))
    except (WrongQuestion, NoAnswer) as error:
        return {}, f"{pool.node.id}: {error}".splitlines()[0]
    networks = [
        binding.network(replace(cluster, count=counts[-1]), prepared.reached.accelerator)
        for cluster in known.fabrics.values()
    ]
    pairs = {(wirings.index(wiring), count) for wiring, count in known.wanted}
    found = best_of_each(problem(prepared, 1), networks, pairs)
    why = "" if found else f"{pool.node.id}: nothing fits into memory"
    return {(wirings[n], count): candidate for (n, count), candidate in found.items()}, why


@contextmanager
def _answers(
    catalog: Catalog, tasks: Sequence[_Task], processes: int
) -> Iterator[Iterator[tuple[dict[tuple[Key, int], Candidate], str]]]:
    """The searches' answers in their order, made in one process or several."""
    if processes <= 1 or len(tasks) <= 1:
        yield (_searched(catalog, task) for task in tasks)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Fresh processes: a fork of one that has threads (a progress bar, a solver) may hang.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, fresh, _begin, (catalog,)) as pool:
        with without_main():
            found = pool.map(_searched_elsewhere, tasks, chunksize=2)
        yield found


_HELD: list[Catalog] = []
"""What a process that only searches was begun with."""


def _begin(catalog: Catalog) -> None:
    _HELD.append(catalog)


def _searched_elsewhere(task: _Task) -> tuple[dict[tuple[Key, int], Candidate], str]:
    return _searched(_HELD[-1], task)
