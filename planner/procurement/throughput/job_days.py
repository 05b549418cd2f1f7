"""How long each job takes on each pool: the exact plan search, asked once for what many pools share.

What a pool costs and where it stands do not change its speed, so one search answers for every price, region and copy;
and one search answers for every size of a cluster and every network between its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from planner.base.processes import Workers
from planner.catalog import Catalog
from planner.cost import money
from planner.cost.goodput import wall_time
from planner.planning import answer
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.bounds import EVERYTHING, LowerBounds, Reach, least
from planner.procurement.throughput.column import Column, Key, machine, wiring, work
from planner.procurement.throughput.kept_plans import KeptPlans, PlanTask, Size, SizeAnswers
from planner.procurement.throughput.searches import answers_of, request_of, searched
from planner.question.request import Request, goodput_of
from planner.question.search_problem import prepare
from planner.schema.hardware import Cluster
from planner.schema.plan import Plan
from planner.schema.rl import RLPlan
from planner.search.problem import Candidate

if TYPE_CHECKING:
    from planner.procurement.throughput.several_pools import Mixtures

MANY = 128
"""Searches from which on it pays to begin other processes: each takes 0.7 CPU s to begin, a search less than 0.1."""
MOST_PROCESSES = 8


class _Speed(NamedTuple):
    """A key that equal speeds share: numbers of the job's work, and of the machine without price, place and wiring."""

    job: int
    machine: int


@dataclass
class _Machine:
    """What is asked of one machine: the sizes and the wirings in which it may be had."""

    fabrics: dict[Key, Cluster]
    """Wiring -> a cluster that has it."""
    wanted: set[Size]


class Throughputs:
    """Plans found so far; each search is made once, when it is first needed.

    Args:
        catalog: Hardware and how fast it is.
        jobs: What is to run.
        pools: On what.
        mixtures: Plans over several pools at once.
        every_size: Whether a machine is searched in all its sizes if in any: losing nodes leaves smaller ones.
        engine: A cluster that searches in place of this machine (:class:`planner.base.processes.Workers`).
    """

    def __init__(
        self,
        catalog: Catalog,
        jobs: Sequence[Job],
        pools: Sequence[SupplyPool],
        mixtures: Mixtures | None = None,
        *,
        every_size: bool = False,
        engine: str | None = None,
    ) -> None:
        self._catalog, self._mixtures, self._every_size, self._engine = catalog, mixtures, every_size, engine
        self._jobs, self._pools = jobs, pools
        self.kept: KeptPlans | None = None
        """What earlier questions searched, where it is to be used."""
        works: dict[Key, int] = {}
        self._work = [works.setdefault(work(job), len(works)) for job in jobs]
        self._found: dict[_Speed, dict[Size, Candidate | RLPlan]] = {}
        self._asked: dict[_Speed, set[Size]] = {}
        self.searches = 0
        """Made so far."""
        self._why: dict[_Speed, str] = {}
        self._seconds: dict[Key, float | None] = {}
        self._requests: dict[Key, Request] = {}
        self._machines: dict[int, _Machine] = {}
        boards: dict[Key, int] = {}
        self._keys = [(boards.setdefault(machine(pool), len(boards)), wiring(pool)) for pool in pools]
        for pool, (board, wired) in zip(pools, self._keys, strict=True):
            known = self._machines.setdefault(board, _Machine({}, set()))
            known.fabrics.setdefault(wired, pool.cluster)
            known.wanted.add((wired, pool.cluster.count))

    def columns(
        self,
        advance: Callable[[int], None] | None = None,
        processes: int | None = None,
        reach: Reach = EVERYTHING,
    ) -> list[Column]:
        """Every (job, pool) that trains and keeps the job's least throughput.

        Arguments:
            advance: told of every search that is done; there are :meth:`wanted` of them.
            processes: that search side by side; by default as many as there are cores, and one for a small question.
            reach: jobs on pools that cannot matter, even at their best rate, are not searched.
        """
        self._search(self._open(reach), advance, processes)
        columns = [
            self.column(j, p) for p in range(len(self._pools)) for j in range(len(self._jobs)) if self._is_known(j, p)
        ]
        if self._mixtures:
            columns += self._mixtures.columns(advance)
        return [c for c in columns if c is not None and c.tokens_per_s >= self._jobs[c.job].min_tokens_per_s]

    def wanted(self, reach: Reach = EVERYTHING) -> int:
        """Searches that all columns take, less those made."""
        return len(self._open(reach)) + (self._mixtures.wanted if self._mixtures else 0)

    def _open(self, reach: Reach) -> dict[_Speed, PlanTask]:
        tasks: dict[_Speed, PlanTask] = {}
        for p, pool in enumerate(self._pools):
            for j, job in enumerate(self._jobs):
                if self._is_known(j, p) or not self.least.within(reach, j, p):
                    continue
                key, size = self._key(j, p)
                known = self._machines[key.machine]
                task = tasks.setdefault(key, PlanTask(job, pool, known.fabrics, set()))
                task.wanted.update(known.wanted if self._every_size else [size])
        return tasks

    def _key(self, j: int, p: int) -> tuple[_Speed, Size]:
        board, wired = self._keys[p]
        return _Speed(self._work[j], board), (wired, self._pools[p].cluster.count)

    def _is_known(self, j: int, p: int) -> bool:
        key, size = self._key(j, p)
        return size in self._asked.get(key, ())

    def at_least(self, j: int, p: int) -> float | None:
        """Days of a job on a pool, at the best rate if no plan was searched; None: it does not train fast enough."""
        if not self._is_known(j, p):
            return self.least.days[j][p]
        column = self.column(j, p)
        return column.days if column and column.tokens_per_s >= self._jobs[j].min_tokens_per_s else None

    def look_closer(self, j: int, p: int) -> bool:
        """Search a job's plans on a pool's machine, in this size, if it is unknown, and all that are late."""
        if self._is_known(j, p):
            return False
        key, size = self._key(j, p)
        same = (q for q in range(len(self._pools)) if self._key(j, q)[0] == key and not self.least.in_time(j, q))
        sizes = {size, *(self._key(j, q)[1] for q in same)}
        fabrics = self._machines[key.machine].fabrics
        self._search({key: PlanTask(self._jobs[j], self._pools[p], fabrics, sizes)}, None, 1)
        return True

    def _keep(self, key: _Speed, task: PlanTask, candidates: dict[Size, Candidate | RLPlan], why: str) -> None:
        self.searches += 1
        self._asked.setdefault(key, set()).update(task.wanted)
        self._found.setdefault(key, {}).update(candidates)
        if why:
            self._why[key] = why

    @cached_property
    def least(self) -> LowerBounds:
        """What jobs take at least on pools."""
        return least(self._catalog, self._jobs, self._pools)

    def _search(
        self, tasks: dict[_Speed, PlanTask], advance: Callable[[int], None] | None, processes: int | None
    ) -> None:
        for key, task in list(tasks.items()) if self.kept else ():
            if self.kept and (known := self.kept.known(task)):
                self._keep(key, tasks.pop(key), *known)
                self.searches -= 1
                if advance:
                    advance(1)
        side_by_side = processes or (min(os.cpu_count() or 1, MOST_PROCESSES) if len(tasks) >= MANY else 1)
        answers: dict[int, SizeAnswers] = {}
        for place, task_answer in answers_of(self._catalog, list(tasks.values()), Workers(side_by_side, self._engine)):
            answers[place] = task_answer
            if advance:
                advance(1)
        for place, (key, task) in enumerate(tasks.items()):
            self._keep(key, task, *answers[place])
            if self.kept:
                self.kept.keep(task, answers[place])
        if self.kept:
            self.kept.write()

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
        pool = self._pools[p]
        candidate = self._candidate(j, p)
        if candidate is None:
            return None
        wanted = self._request(job, pool)
        good = goodput_of(wanted, pool.cluster.count).fraction
        if float(good) <= 0:
            return None
        if isinstance(candidate, RLPlan):
            assert job.post_training is not None
            return float(wall_time(candidate.learning_step_s, job.post_training.steps, good))
        steps = money.steps(job.tokens, candidate.layout["batch"], wanted.workload.sequence)
        return float(wall_time(candidate.time, steps, good))

    def why_not(self, job: Job) -> list[str]:
        """What the searches that found nothing for a job said, each once."""
        mine = self._work[self._jobs.index(job)]
        return list(dict.fromkeys(why for key, why in self._why.items() if key.job == mine))

    def plan(self, column: Column, tokens: float) -> Plan | RLPlan:
        """The plan behind a column for so many tokens, as ``clusterwright plan`` would write it for that cluster; of a
        post-training its fastest placement.
        """
        if column.other_pools and self._mixtures:
            return self._mixtures.plan(column, tokens)
        job, pool = self._jobs[column.job], self._pools[column.pool]
        candidate = self._candidate(column.job, column.pool)
        assert candidate is not None
        if isinstance(candidate, RLPlan):
            return candidate
        wanted = replace(
            self._request(job, pool),
            cluster=pool.cluster,
            counts=(pool.cluster.count,),
            price=pool.quote if pool.hired else None,
            sold_as=pool.sold_as,
        )
        wanted = replace(wanted, workload=replace(wanted.workload, tokens=tokens))
        return answer.plan(prepare(self._catalog, wanted), candidate, 1)

    def _candidate(self, j: int, p: int) -> Candidate | RLPlan | None:
        key, size = self._key(j, p)
        if not self._is_known(j, p):
            task = PlanTask(self._jobs[j], self._pools[p], self._machines[key.machine].fabrics, {size})
            self._keep(key, task, *searched(self._catalog, task))
        return self._found[key].get(size)

    def _request(self, job: Job, pool: SupplyPool) -> Request:
        key = (work(job), pool.node.id)
        if key not in self._requests:
            self._requests[key] = request_of(self._catalog, job, pool)
        return replace(
            self._requests[key],
            cluster=pool.cluster,
            restart_s=pool.restart_s,
            preemptions_per_node_s=pool.preemptions_per_node_s,
        )
