"""From a question about several pools to ranked, verified plans."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations

from planner import planning, verify
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.base.units import format_percent
from planner.catalog import Catalog
from planner.hetero import answer, launchable, pipelines, problem, search
from planner.question.joined import JobPool, Pools, merged
from planner.question.request import Request
from planner.schema.plan import Plan, PlanSet, Reasons, SearchSection
from planner.space.axes import Bound, Pins, Recompute

EVERY_SET = 8
"""Up to so many pools every set of them is searched by itself, so that one more pool never makes the answer worse;
beyond, every set of up to three is, and then all at once."""


METHODS = (
    "branch and bound over integer programs; each pool alone by lower bound",
    "all plans of identical pipelines; each pool alone by lower bound",
)
"""How plans are found: of any kinds, or of one only."""
MANY = 1024
"""Accelerators of all pools beyond which a set of pools that may be better by less than the gap is left aside."""

Alone = tuple[float, Plan, SearchSection]
"""The best plan of one pool with its objective, and how it was searched."""
Refused = list[tuple[str, ClusterwrightError]]
"""Pools without a plan, and why."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The plans of one search with their objectives, and how it went."""

    plans: tuple[tuple[float, Plan], ...]
    gap: float
    """How much less a step's objective could be, at most, than the best that was found (relative)."""
    kinds: int
    errors: tuple[tuple[frozenset[str], ClusterwrightError], ...]
    """Sets of pools (their names) without a plan, and why."""
    done: tuple[frozenset[str], ...]
    """Sets of pools that were searched."""


def plan(catalog: Catalog, request: Request, offered: Pools, progress: planning.Progress | None = None) -> PlanSet:
    """Searches which of the pools to use and how, against each pool alone, and returns the best plans, verified.

    Pools without nodes are as if absent, pools that are alike are one; where one is left, this is
    :func:`planner.planning.plan`.

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    pools = Pools(merged(offered.all, {name for pair in offered.given for name in pair}), offered.given)
    if not pools.all:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    if len(pools.all) == 1:
        return planning.plan(catalog, _on_one(request, pools.all[0], whole=True), progress)
    started, cpu = time.perf_counter(), time.process_time()
    alone, errors = _alone(catalog, request, pools.all)
    refused = [f"{name} alone: {str(error).splitlines()[0]}" for name, error in errors]
    with progress("search", 0.0) if progress else nullcontext() as advance:
        over = _launchable if request.launchable else _over
        searched = [over(catalog, request, pools, batch, alone, advance) for batch in request.batches]
    found = [(value, each) for value, each, _ in alone]
    found += [entry for s in searched for entry in s.plans if _adds(entry, found[: len(alone)])]
    if not found:
        wrong = [error for s in searched for _, error in s.errors]
        if wrong and all(isinstance(error, WrongQuestion) for error in (*wrong, *(e for _, e in errors))):
            raise WrongQuestion("\n".join([str(wrong[0]), *refused]))
        raise NoAnswer(_nothing(request, pools, refused))
    ranked = sorted(found, key=lambda entry: entry[0])[: request.top]
    plans = tuple(replace(each, rank=rank) for rank, (_, each) in enumerate(ranked, 1))
    for each in plans:
        verify.check(each)
    gap = max(s.gap for s in searched)
    kinds, single = sum(s.kinds for s in searched), [each for _, _, each in alone]
    return PlanSet(
        search=SearchSection(
            candidates=kinds + sum(each.candidates for each in single),
            feasible=kinds + sum(each.feasible for each in single),
            costed=kinds + sum(each.costed for each in single),
            proven_optimal=gap == 0.0,
            method=METHODS[request.launchable],
            objective=request.objective,
            near_duplicates=1,
            gap=gap,
        ),
        plans=plans,
        reasons=_reasons(request, pools, plans, refused, searched),
        front=(),
        meta={
            "wall_s": round(time.perf_counter() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "host": platform.machine(),
        },
    )


def _on_one(request: Request, pool: JobPool, *, whole: bool) -> Request:
    """The same question on one pool: all of it, or (where fewer nodes may be better) doublings up to it."""
    count = pool.count
    counts = (count,) if whole else tuple(sorted({2**i for i in range(count.bit_length()) if 2**i <= count} | {count}))
    return replace(request, cluster=pool.cluster, counts=counts, price=pool.price, sold_as=pool.sold_as)


def _adds(entry: tuple[float, Plan], alone: Sequence[tuple[float, Plan]]) -> bool:
    """Whether a plan is over several pools, or better than what the search of its one pool found."""
    value, each = entry
    pools = each.cluster.pools
    same = [known for known, plan in alone if plan.cluster.pools[0].node == pools[0].node]
    return len(pools) > 1 or value < min(same, default=float("inf")) * (1.0 - 1e-9)


def value_of(request: Request, each: Plan) -> float:
    """The objective that a plan reaches: seconds, dollars or joules for all tokens."""
    if request.objective == "time":
        return each.money.days
    if request.objective == "energy":
        return each.energy.energy_j if each.energy.energy_j is not None else float("inf")
    return each.money.usd_total if each.money.usd_total is not None else float("inf")


def _alone(catalog: Catalog, request: Request, each: Sequence[JobPool]) -> tuple[list[Alone], Refused]:
    """The best plan of every pool by itself, from the search of one cluster; and why others have none."""
    found: list[Alone] = []
    refused: Refused = []
    limited = request.deadline_s is not None or request.max_cost_usd is not None
    known: list[tuple[Request, Plan, SearchSection]] = []
    for pool in each:
        asked = _on_one(request, pool, whole=request.objective == "time" and not limited)
        same = next(((plan, how) for other, plan, how in known if other == asked), None)
        try:
            best, how = same or planning.best(catalog, asked)
        except ClusterwrightError as error:
            refused.append((pool.name, error))
            continue
        known.append((asked, best, how))
        found.append((value_of(request, best), _in_zone(best, pool), how))
    return found, refused


def _in_zone(each: Plan, pool: JobPool) -> Plan:
    """A plan of one pool that says in which zone it stands."""
    (stands,) = each.cluster.pools
    return replace(each, cluster=replace(each.cluster, pools=(replace(stands, zone=pool.zone),)))


def _over(catalog: Catalog, request: Request, pools: Pools, batch: int, alone: Sequence[Alone],
          advance: object) -> Searched:  # fmt: skip
    """Mixed plans for one batch, of every set of pools by itself.

    A set is searched below what its own subsets reach, so that what it finds depends on nothing else. A set that is
    shown to reach no more than the best known is left aside, unless a larger one that may reach more needs it; of
    many accelerators also one that may be better by less than the gap.
    """
    many = sum(p.cluster.accelerators for p in pools.all) > MANY
    slack = search.GAP if many else 0.0
    sets = _PoolSubsetSearch(_PreparedCache(catalog, request, pools, batch), alone, _steps(advance))
    left = float("inf")
    for part in _sets(pools.all):
        best = min([*sets.reached.values(), *(_of_step(request, plan) for _, plan, _ in alone)], default=float("inf"))
        if sets.cannot_beat(part, best * (1.0 - slack)):
            left = min(left, best * (1.0 - slack))
            continue
        sets.search(part)
    bound = min([left, *sets.bounds.values()])
    best = min(sets.reached.values(), default=float("inf"))
    gap = max(1.0 - bound / best, 0.0) if math.isfinite(best) else 0.0
    return Searched(tuple(sets.plans), gap, sets.kept.kinds, tuple(sets.errors.items()), tuple(sets.done))


def _launchable(catalog: Catalog, request: Request, pools: Pools, batch: int, alone: Sequence[Alone],
           advance: object) -> Searched:  # fmt: skip
    """The same with pipelines of one kind: all of them are priced, on every set of pools that one can span and on any
    of their nodes, once with each policy of recomputation, which all stages then share.
    """
    kept = [_PreparedCache(catalog, request, pools, batch, policies=(each,)) for each in problem.able_policies(request)]
    plans: list[tuple[float, Plan]] = []
    errors: dict[frozenset[str], ClusterwrightError] = {}
    done: list[frozenset[str]] = []
    for part in (p for n in range(1, pipelines.MOST_POOLS + 1) for p in combinations(pools.all, n)):
        names, found = frozenset(p.name for p in part), []
        for each in kept:
            try:
                prepared, _ = each.prepared(part)
            except ClusterwrightError as error:
                errors[names] = error
                continue
            mixed = launchable.best(prepared, tuple(prepared.pools.all.index(p) for p in part))
            found += [(mixed.value, prepared, mixed)] if mixed is not None else []
            if step := _steps(advance):
                step(1)
        for _, prepared, mixed in sorted(found, key=lambda entry: entry[0])[:1]:
            doc = answer.plan(prepared, mixed, 1)
            plans.append((value_of(request, doc), doc))
        if found:
            done.append(names)
        else:
            errors.setdefault(names, NoAnswer(_no_kind(part)))
    return Searched(tuple(plans), 0.0, sum(each.kinds for each in kept), tuple(errors.items()), tuple(done))


def _no_kind(part: Sequence[JobPool]) -> str:
    names = " and ".join(pool.name for pool in part)
    return f"no pipelines of one kind fill nodes of {names} within the limits, and launchers start no others"


@dataclass
class _PoolSubsetSearch:
    """Sets of pools that are searched one by one: what each reached, and a bound on it."""

    kept: _PreparedCache
    alone: Sequence[Alone]
    advance: search.Advance | None
    plans: list[tuple[float, Plan]] = field(default_factory=list)
    reached: dict[frozenset[str], float] = field(default_factory=dict)
    bounds: dict[frozenset[str], float] = field(default_factory=dict)
    errors: dict[frozenset[str], ClusterwrightError] = field(default_factory=dict)
    done: list[frozenset[str]] = field(default_factory=list)
    relaxed: dict[frozenset[str], float] = field(default_factory=dict)
    """What relaxations have shown that no plan of a set is better than."""

    def cannot_beat(self, part: Sequence[JobPool], best: float) -> bool:
        """Whether no plan over these pools is better than the best known, as its relaxation shows."""
        names = frozenset(p.name for p in part)
        if names in self.errors or names in self.reached:
            return False
        if best <= self.relaxed.get(names, -math.inf):
            return True
        try:
            prepared, every = self.kept.prepared(part)
        except ClusterwrightError:
            return False
        if not search.beyond(prepared.setting, best, every):
            return False
        self.relaxed[names] = best
        return True

    def within(self, part: Sequence[JobPool]) -> float:
        """The best that is known to be reached on some of these pools, but not on all of them."""
        names = frozenset(p.name for p in part)
        found = [value for known, value in self.reached.items() if known < names]
        found += [_of_step(self.kept.request, plan) for _, plan, _ in self.alone
                  if _stands_on(plan, part, self.kept.batch)]  # fmt: skip
        return min(found, default=math.inf)

    def search(self, part: Sequence[JobPool]) -> None:
        """Searches a set, after all of its subsets but those that cannot be better than what others of them reach."""
        names = frozenset(p.name for p in part)
        if names in self.reached or names in self.errors:
            return
        if len(part) <= EVERY_SET:
            for size in range(1, len(part)):
                for fewer in combinations(part, size):
                    if not self.cannot_beat(fewer, self.within(part)):
                        self.search(fewer)
        try:
            prepared, every = self.kept.prepared(part)
        except ClusterwrightError as error:
            self.errors[names] = error
            return
        self.done.append(names)
        known = self.within(part)
        found = search.search(prepared.setting, known, advance=self.advance, sets=every)
        # A plan that a smaller set beats is not the best of this one: the search stopped before it was found.
        better = [mixed for mixed in found.best if mixed.value < known]
        written = [answer.plan(prepared, mixed, 1) for mixed in better]
        self.plans += [(value_of(self.kept.request, doc), doc) for doc in written]
        self.reached[names] = min([known, *(mixed.value for mixed in found.best)])
        self.bounds[names] = found.bound


def _sets(each: Sequence[JobPool]) -> list[tuple[JobPool, ...]]:
    """The sets of pools that are searched by themselves, small ones first; where there are too many, all at last."""
    largest = len(each) if len(each) <= EVERY_SET else 3
    found = [part for size in range(1, largest + 1) for part in combinations(each, size)]
    return found if largest == len(each) else [*found, tuple(each)]


@dataclass
class _PreparedCache:
    """What sets of pools are searched with. Sets that try coarse values only share it, by precision."""

    catalog: Catalog
    request: Request
    pools: Pools
    batch: int
    kinds: int = 0
    coarse: dict[str, problem.PreparedPools | None] = field(default_factory=dict)
    own: dict[tuple[str, ...], problem.PreparedPools] = field(default_factory=dict)
    policies: tuple[Recompute, ...] = ()
    """Of recomputation; none: all that can be."""

    def prepared(self, part: Sequence[JobPool]) -> tuple[problem.PreparedPools, list[tuple[int, ...]] | None]:
        """A question over some of the pools, and which of its pools these are; None for every set of them.

        Raises:
            ClusterwrightError: these pools cannot work together as asked, or nothing fits.
        """
        shared = None if problem.fine(part) else self._shared(problem.common_precision(self.request, part))
        if shared is None or any(p not in shared.pools.all for p in part):
            names = tuple(p.name for p in part)
            if names not in self.own:
                only = Pools(tuple(part), self.pools.given)
                self.own[names] = self._prepare(self.request, only)
                self.kinds += len(self.own[names].setting.kinds)
            shared = self.own[names]
        # What is offered beside these pools changes nothing for them, and so not how often they are interrupted.
        longest, most = problem.limits(self.request, part, self.batch)
        shared = replace(shared, setting=replace(shared.setting, longest=longest, most=most))
        if len(part) > EVERY_SET:
            return shared, None
        return shared, [tuple(shared.pools.all.index(p) for p in part)]

    def _shared(self, precision: str) -> problem.PreparedPools | None:
        """The question over all pools that have a precision; None where they cannot be asked together."""
        if precision not in self.coarse:
            pins = Pins({**self.request.pins.bounds, "precision": Bound((precision,))})
            asked, able = replace(self.request, pins=pins), []
            for pool in self.pools.all:
                try:
                    problem.common_precision(asked, [pool])
                    able.append(pool)
                except ClusterwrightError:
                    continue
            try:
                found = self._prepare(asked, Pools(tuple(able), self.pools.given), few=False)
                self.kinds += len(found.setting.kinds)
                self.coarse[precision] = found
            except ClusterwrightError:
                self.coarse[precision] = None
        return self.coarse[precision]

    def _prepare(self, request: Request, offered: Pools, *, few: bool | None = None) -> problem.PreparedPools:
        return problem.prepare(self.catalog, request, offered, self.batch, few=few, policies=self.policies)


def _stands_on(plan: Plan, part: Sequence[JobPool], batch: int) -> bool:
    """Whether a plan of one pool, of the same batch, is on one of these."""
    stands = plan.cluster.pools[0]
    return plan.batch.global_ == batch and any((stands.node, stands.zone) == (p.cluster.node.id, p.zone) for p in part)


def _of_step(request: Request, plan: Plan) -> float:
    """The search's objective (a step's seconds, or times nodes and weight) that a plan of one pool reaches."""
    step, pool = plan.prediction.step_time_s, plan.cluster.pools[0]
    if request.objective == "time":
        return step
    weight = pool.count * (pool.max_power_w or 0.0) if request.objective == "energy" else plan.money.usd_per_hour
    return step * weight if weight else float("inf")


def _steps(advance: object) -> search.Advance | None:
    return advance if callable(advance) else None


def _nothing(request: Request, pools: Pools, refused: Sequence[str]) -> str:
    names = " + ".join(f"{p.name}:{p.count}" for p in pools.all)
    limits = request.deadline_s is not None or request.max_cost_usd is not None
    why = "keeps the limits" if limits else "fits into memory"
    told = [f"No plan on {names} {why}, neither over several pools nor on one.", *refused]
    if limits:
        told.append("What would do: a later deadline (--deadline) or a larger budget (--max-cost).")
    return "\n".join(told)


def _reasons(request: Request, pools: Pools, plans: Sequence[Plan], refused: Sequence[str],
             searched: Sequence[Searched]) -> Reasons:  # fmt: skip
    best = plans[0]
    told = [f"{name} of the step" for name in _largest(best)]
    memory = best.prediction.memory
    free = 1.0 - memory.total_bytes / memory.capacity_bytes
    if free < 0.05:
        told.insert(0, f"memory of stage {memory.stage + 1} ({format_percent(free)} free)")
    left = [_left_out(best, pool, _apart(pool, searched)) for pool in pools.all]
    why_not = [text for text in left if text]
    for other in plans[1:]:
        slower = value_of(request, other) / value_of(request, best) - 1.0
        words = {"time": "slower", "energy": "more energy"}.get(request.objective, "dearer")
        unlike = f" (in {other.precision}, #1 in {best.precision})" if other.precision != best.precision else ""
        why_not.append(f"#{other.rank} {_where(other)}: {format_percent(slower)} {words}{unlike}")
    return Reasons(binds=tuple(told), gains={}, why_not=(*why_not, *refused))


def _largest(best: Plan) -> list[str]:
    parts = best.prediction.breakdown
    name = max(parts, key=lambda each: parts[each])
    return [f"{name} {format_percent(parts[name] / best.prediction.step_time_s, 0)}"]


def _where(each: Plan) -> str:
    """The pools that a plan uses, by node and count."""
    return " + ".join(f"{p.count:,} x {p.node}{'@' + p.zone if p.zone else ''}" for p in each.cluster.pools)


def _apart(pool: JobPool, searched: Sequence[Searched]) -> str:
    """Why no set of several pools with this one could be searched; empty where one was."""
    if any(len(names) > 1 and pool.name in names for s in searched for names in s.done):
        return ""
    refused = [error for s in searched for names, error in s.errors if len(names) > 1 and pool.name in names]
    return str(refused[0]).splitlines()[0] if refused else ""


def _left_out(best: Plan, pool: JobPool, apart: str) -> str:
    """What the best plan leaves of a pool, in words; empty where it uses all of it."""
    node = pool.cluster.node.id
    named = f"{node}@{pool.zone}" if pool.zone else node
    used = sum(p.count for p in best.cluster.pools if p.node == node and p.zone == pool.zone)
    if used >= pool.count:
        return ""
    many = "all" if not used else f"{pool.count - used:,} of"
    why = (not used and apart) or "they do not improve the best plan found"
    return f"excluded: {many} {pool.count:,} x {named}: {why}"
