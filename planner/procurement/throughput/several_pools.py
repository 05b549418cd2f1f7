"""Unlike pools that work on one job together, where the portfolio asks for them: which, what joins them, how fast.

Each such group is a search over several pools (:mod:`planner.mixed`) of some seconds, so only those are made that a
``[[mixed]]`` table names, each once for all regions, prices and ways to come by the same machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.cost import money
from planner.mixed import run
from planner.planning import document
from planner.procurement.question.portfolio import Job, MixedPools, Portfolio
from planner.procurement.supply.pools import SupplyPool, offers
from planner.procurement.throughput.column import Column, Key, Place, machine, wiring, work
from planner.question import pools as pooled
from planner.question.job_pools import JobPool as Part
from planner.question.job_pools import LinkBetween, Pools, default_link
from planner.question.several_pools import request_over
from planner.schema.plan import Plan

MOST_SEARCHES = 64
"""For all jobs; each takes seconds."""
LEFT_OUT = "excluded: "
"""How a plan over several pools says what it does not use, and why."""
FEW = (1, 2, 4)
"""Nodes of a candidate that are tried beside what is owned, where nothing says how many."""


@dataclass(frozen=True)
class JointPools:
    """Pools that a table names, in some of their sizes."""

    place: Place
    asked: MixedPools


@dataclass(frozen=True)
class _Found:
    """The plan of a search that more than one of the pools take part in."""

    plan: Plan
    gap: float
    used: tuple[int, ...]
    """Places among the pools that were offered."""


class Mixtures:
    """Plans over several pools found so far; each search is made once, when it is first needed."""

    def __init__(self, catalog: Catalog, asked: Portfolio, pools: Sequence[SupplyPool]) -> None:
        self._catalog, self._asked, self._pools = catalog, asked, pools
        self._found: dict[Key, _Found | str] = {}
        self._plans: dict[tuple[int, frozenset[int]], tuple[Place, Plan]] = {}
        self._tasks = [
            (j, together)
            for together in places(asked, pools)
            for j, job in enumerate(asked.jobs)
            if _meant(together, job)
        ]
        if self.wanted > MOST_SEARCHES:
            raise WrongQuestion(
                f"[[mixed]]: {self.wanted} searches of some seconds each, at most {MOST_SEARCHES} are made; name the "
                "workloads that are to run so, or the counts that are to be tried"
            )

    @property
    def wanted(self) -> int:
        """Searches that all columns take, less those made."""
        return len({self._key(j, together) for j, together in self._tasks} - self._found.keys())

    @property
    def gap(self) -> float:
        """How much shorter a step of any of the plans could be, at most (relative)."""
        return max((mixture.gap for mixture in self._found.values() if isinstance(mixture, _Found)), default=0.0)

    def columns(self, advance: Callable[[int], None] | None = None) -> list[Column]:
        """Every job on every set of pools of which its best plan uses several; fewer where it leaves some out. Of plans
        on the same pools (by several tables, over other links) the fastest.
        """
        for j, together in self._tasks:
            key = self._key(j, together)
            if key not in self._found:
                self._found[key] = self._searched(self._asked.jobs[j], together)
                if advance:
                    advance(1)
            mixture = self._found[key]
            if isinstance(mixture, _Found):
                place = tuple(together.place[n] for n in mixture.used)
                plan = self._for(mixture.plan, self._asked.jobs[j].tokens, place)
                known = self._plans.get((j, frozenset(place)))
                if known is None or plan.money.days < known[1].money.days:
                    self._plans[j, frozenset(place)] = place, plan
        return [self._column(j, place, plan) for (j, _), (place, plan) in self._plans.items()]

    def _column(self, j: int, place: Place, plan: Plan) -> Column:
        days = plan.money.days
        return Column(j, place[0], days, self._asked.jobs[j].tokens / (days * money.DAY_S), place[1:])

    def left_out(self) -> list[tuple[str, MixedPools, str]]:
        """Workloads and tables that came to nothing, in none of their sizes, and why (in the first of these)."""
        why: dict[tuple[str, tuple[str, ...]], tuple[str, MixedPools, str]] = {}
        worked = set()
        for j, together in self._tasks:
            name, mixture = self._asked.jobs[j].name.partition("#")[0], self._found.get(self._key(j, together))
            if isinstance(mixture, str):
                why.setdefault((name, together.asked.pools), (name, together.asked, mixture))
            else:
                worked.add((name, together.asked.pools))
        return [message for key, message in why.items() if key not in worked]

    def plan(self, column: Column, tokens: float) -> Plan:
        """The training plan behind a column for so many tokens."""
        place, plan = self._plans[column.job, frozenset(column.place)]
        return self._for(plan, tokens, place)

    def _key(self, j: int, together: JointPools) -> Key:
        """What the speed of a job on several pools depends on."""
        pools = [self._pools[p] for p in together.place]
        boards = tuple((machine(pool), wiring(pool), pool.cluster.count) for pool in pools)
        how = (
            together.asked.pipelines,
            together.asked.link_bytes_per_s,
            together.asked.link_latency_s,
            *zones(self._asked, pools),
        )
        return (work(self._asked.jobs[j]), boards, how)

    def _searched(self, job: Job, together: JointPools) -> _Found | str:
        """A plan over several of the pools, or why there is none."""
        pools = [self._pools[p] for p in together.place]
        parts = _parts(self._asked, pools, together.asked)
        try:
            wanted = request_over(self._catalog, job.model, [pool.cluster for pool in pools], replace(job.asked, top=1))
            launchable = together.asked.pipelines == "identical"
            best = run.plan(self._catalog, replace(wanted, top=1, launchable=launchable), parts)
        except (WrongQuestion, NoAnswer) as error:  # what each pool does alone is answered for itself
            return str(error).splitlines()[0]
        (plan, *_) = best.plans
        used = _used(plan, parts.all)
        if len(used) > 1:
            return _Found(plan, best.search.gap, used)
        texts = (text.removeprefix(LEFT_OUT) for text in best.reasons.why_not if text.startswith(LEFT_OUT))
        without = [f"{nodes} ({why})" for nodes, _, why in (text.partition(": ") for text in texts)]
        return f"its best plan excludes {' and '.join(without) or 'all but one of them'}"

    def _for(self, plan: Plan, tokens: float, place: Place) -> Plan:
        """The plan for so many tokens, and for how the pools fail."""
        pools = [self._pools[p] for p in place]
        restarts, preemptions = zip(*((pool.restart_s, pool.preemptions_per_node_s) for pool in pools), strict=True)
        return document.for_another_run(plan, tokens, restarts, preemptions)


def _used(plan: Plan, parts: Sequence[Part]) -> tuple[int, ...]:
    """Which of the pools that were offered those of the plan are."""
    used: list[int] = []
    for pool in plan.cluster.pools:
        rest = [n for n in range(len(parts)) if n not in used]
        alike = [n for n in rest if (parts[n].cluster.node.id, parts[n].zone) == (pool.node, pool.zone)]
        used.append(next(n for n in alike if pool.offered in (None, parts[n].count)))
    return tuple(used)


def _meant(together: JointPools, job: Job) -> bool:
    if job.post_training is not None:
        return False
    return not together.asked.workloads or job.name.partition("#")[0] in together.asked.workloads


def _parts(asked: Portfolio, pools: Sequence[SupplyPool], table: MixedPools) -> Pools:
    """The pools as the search over several takes them, with what joins them."""
    named = list(zip([pool.cluster for pool in pools], zones(asked, pools), strict=True))
    parts = tuple(
        Part(name=name, cluster=cluster, zone=zone)
        for name, (cluster, zone) in zip(pooled.names(named), named, strict=True)
    )
    given = {}
    for a, b in combinations(parts, 2):
        pair = frozenset((a.name, b.name))
        if table.link_bytes_per_s is not None and table.link_latency_s is not None:
            given[pair] = LinkBetween(table.link_bytes_per_s, table.link_latency_s, "as given ([[mixed]] link)")
        elif (a.cluster.node.id, a.zone) == (b.cluster.node.id, b.zone):
            given[pair] = default_link(a, b)  # else they would be taken for one cluster
    return Pools(parts, given)


def zones(asked: Portfolio, pools: Sequence[SupplyPool]) -> list[str]:
    """Where each pool stands: machines of one's own together in each region, those of others each by themselves."""
    pool_zones = []
    hired = sum(pool.way not in ("own", "buy") for pool in pools)
    for n, pool in enumerate(pools):
        region = pool.cluster.region.id if pool.cluster.region else ""
        if pool.way in ("own", "buy"):
            pool_zones.append("" if region == asked.regions[0] else region)
        else:
            pool_zones.append("rented" if hired == 1 else f"rented-{n + 1}")
    return pool_zones


def places(asked: Portfolio, pools: Sequence[SupplyPool]) -> list[JointPools]:
    """What every ``[[mixed]]`` table offers: its pools in each of the sizes that are tried together.

    Raises:
        WrongQuestion: a table asks for a size that cannot be had.
    """
    return [JointPools(place, table) for table in asked.mixed for place in _places(asked, pools, table)]


def _places(asked: Portfolio, pools: Sequence[SupplyPool], table: MixedPools) -> Iterator[Place]:
    had = [_by_size(pools, offer) for offer in table.pools]
    for offer, sizes, tried in zip(table.pools, had, zip(*table.counts, strict=True), strict=False):
        for count in set(tried) - sizes.keys():
            raise WrongQuestion(
                f"[[mixed]] pools {' + '.join(table.pools)}: counts: no cluster of {count} of {offer} is available; "
                f"there are those of {', '.join(str(n) for n in sorted(sizes)) or 'none'}"
            )
    usual = [_sizes(asked, offer, sizes) for offer, sizes in zip(table.pools, had, strict=True)]
    for counts in table.counts or product(*usual):
        yield from product(*(sizes[count] for sizes, count in zip(had, counts, strict=True)))


def _by_size(pools: Sequence[SupplyPool], offer: str) -> dict[int, list[int]]:
    by_size: dict[int, list[int]] = {}
    for p, pool in enumerate(pools):
        if pool.offer == offer and pool.available:
            by_size.setdefault(pool.cluster.count, []).append(p)
    return by_size


def _sizes(asked: Portfolio, offer: str, had: dict[int, list[int]]) -> list[int]:
    """All and half of what is owned; of a candidate the counts that it names, or one, half and all of what can be had,
    or a few.
    """
    owned = {f"own {own_nodes.node}": own_nodes.count for own_nodes in asked.owned}
    candidate = dict(zip(offers(asked.candidates), asked.candidates, strict=True)).get(offer)
    tried: tuple[int, ...] = FEW
    if offer in owned:
        tried = (owned[offer] // 2, owned[offer])
    elif candidate is not None and candidate.counts:
        tried = candidate.counts
    elif candidate is not None and candidate.at_most:
        tried = (1, candidate.at_most // 2, candidate.at_most)
    return [count for count in sorted(set(tried), reverse=True) if count in had]
