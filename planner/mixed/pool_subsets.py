"""Plans over every set of the pools of a question: which sets are searched, and what each is searched with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

from planner.axes.values import Recompute
from planner.base import stopping
from planner.base.errors import ClusterwrightError, NoAnswer
from planner.base.units import format_percent, format_seconds
from planner.catalog import Catalog
from planner.cost.goodput import RESTART_S
from planner.mixed import answer, launchable, pipelines, prepared_pools, search
from planner.mixed.answer import step_value, value_of
from planner.mixed.batch_shares import MixedPlan
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request, preemptions, restart
from planner.schema.plan import Plan, SearchSection
from planner.space.pins import Bound, Pins

EVERY_SET = 8
"""Up to so many pools every set of them is searched by itself, so that one more pool never makes the answer worse;
beyond, every set of up to three is, and then all at once."""
MANY = 1024
"""Accelerators of all pools beyond which a set of pools that may be better by less than the gap is left aside."""

Alone = tuple[float, Plan, SearchSection]
"""The best plan of one pool with its objective, and how it was searched."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan with its objective for all tokens."""

    value: float
    plan: Plan
    made: tuple[prepared_pools.PreparedPools, MixedPlan] | None = None
    """What it was written from; None of the search of one pool."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The plans of one search, and how it went."""

    plans: tuple[FoundPlan, ...]
    gap: float
    """How much less a step's objective could be, at most, than the best that was found (relative)."""
    kinds: int
    errors: tuple[tuple[frozenset[str], ClusterwrightError], ...]
    """Sets of pools (their names) without a plan, and why."""
    done: tuple[frozenset[str], ...]
    """Sets of pools that were searched."""


def steps_decide(request: Request, pools: Sequence[JobPool]) -> bool:
    """Whether the shorter step makes the shorter run, to within a few parts in a hundred: goodput differs little from
    one set of pools to another, unless owners take nodes back or restarts take longer than usual.
    """
    return all(preemptions(request, pool) == 0.0 and restart(request, pool) <= RESTART_S for pool in pools)


def any_pipelines(catalog: Catalog, request: Request, pools: Pools, batch: int, alone: Sequence[Alone],
                  advance: object) -> Searched:  # fmt: skip
    """Mixed plans for one batch, of every set of pools by itself.

    A set is searched below what its own subsets reach, so that what it finds depends on nothing else. A set that is
    shown to reach no more than the best known is left aside, unless a larger one that may reach more needs it; of
    many accelerators also one that may be better by less than the gap.
    """
    many = sum(p.cluster.accelerators for p in pools.all) > MANY
    slack = search.GAP if many else 0.0
    by_steps = steps_decide(request, pools.all)
    note = stopping.note_of(advance)
    sets = _PoolSubsetSearch(PreparedCache(catalog, request, pools, batch), alone, note, by_steps)
    left = float("inf")
    for part in pool_sets(pools.all):
        if stopping.asked():  # nothing is known of the sets that are left
            left = 0.0
            break
        best = sets.best()
        sets.tell(part, best, 0.0)
        if sets.cannot_beat(part, best * (1.0 - slack)):
            left = min(left, best * (1.0 - slack))
        else:
            sets.search(part)
        if callable(advance):
            advance(1)
    bound = min([left, *sets.bounds.values()])
    best = min(sets.reached.values(), default=float("inf"))
    gap = max(1.0 - bound / best, 0.0) if math.isfinite(best) else float(bound == 0.0)
    return Searched(tuple(sets.plans), gap, sets.kept.kinds, tuple(sets.errors.items()), tuple(sets.done))


def how_many(request: Request, pools: Sequence[JobPool]) -> int:
    """Sets of pools that are looked at for one batch."""
    most = pipelines.MOST_POOLS if request.launchable else EVERY_SET if len(pools) <= EVERY_SET else 3
    small = sum(math.comb(len(pools), size) for size in range(1, most + 1))
    return small + (not request.launchable and most < len(pools))


def identical_pipelines(catalog: Catalog, request: Request, pools: Pools, batch: int,
                        advance: object) -> Searched:  # fmt: skip
    """Mixed plans for one batch with pipelines of one kind: all of them are priced, on every set of pools that one can
    span and on any of their nodes, once with each policy of recomputation, which all stages then share.
    """
    kept = [PreparedCache(catalog, request, pools, batch, policies=policy) for policy in _policies(request)]
    plans: list[FoundPlan] = []
    errors: dict[frozenset[str], ClusterwrightError] = {}
    done: list[frozenset[str]] = []
    for part in (p for n in range(1, pipelines.MOST_POOLS + 1) for p in combinations(pools.all, n)):
        if stopping.asked():
            break
        names = frozenset(p.name for p in part)
        candidates = []
        for option in kept:
            try:
                prepared, _ = option.prepared(part)
            except ClusterwrightError as error:
                errors[names] = error
                continue
            mixed = launchable.best(prepared, tuple(prepared.pools.all.index(p) for p in part))
            candidates += [(mixed.value, prepared, mixed)] if mixed is not None else []
        if callable(advance):
            advance(1)
        if not candidates:
            errors.setdefault(names, NoAnswer(_no_kind(part)))
            continue
        done.append(names)
        _, prepared, mixed = min(candidates, key=lambda entry: entry[0])
        plans += _written(prepared, [mixed])
    gap = 1.0 if stopping.asked() else 0.0
    return Searched(tuple(plans), gap, sum(option.kinds for option in kept), tuple(errors.items()), tuple(done))


def best_on(catalog: Catalog, request: Request, pools: Pools, part: Sequence[JobPool]) -> Plan | None:
    """The best plan that uses all of some pools, and only these, of several; None where there is none."""
    plans: list[FoundPlan] = []
    for batch in request.batches:
        for policies in _policies(request):
            try:
                prepared, _ = PreparedCache(catalog, request, pools, batch, policies=policies).prepared(part)
            except ClusterwrightError:
                continue
            exact = tuple(prepared.pools.all.index(p) for p in part)
            plans += _written(prepared, _exactly(prepared, exact))
    return min(plans, key=lambda plan: plan.value).plan if plans else None


def _written(prepared: prepared_pools.PreparedPools, mixed_plans: Sequence[MixedPlan]) -> list[FoundPlan]:
    """The documents of plans, but of those that interruptions keep from their end or beyond their limits."""
    docs = [(mixed, answer.kept(prepared, mixed)) for mixed in mixed_plans]
    return [FoundPlan(value_of(prepared.request, doc), doc, (prepared, mixed)) for mixed, doc in docs if doc]


def _policies(request: Request) -> list[tuple[Recompute, ...]]:
    """Policies of recomputation that are searched together: where pipelines are all of one kind, each by itself."""
    return [(able_policy,) for able_policy in prepared_pools.able_policies(request)] if request.launchable else [()]


def _exactly(prepared: prepared_pools.PreparedPools, exact: tuple[int, ...]) -> list[MixedPlan]:
    """The best plan on just these pools, if there is one."""
    if prepared.request.launchable:
        mixed = launchable.best(prepared, exact)
        return [] if mixed is None else [mixed]
    best = search.search(prepared.setting, sets=[exact]).best
    return [mixed for mixed in best if {pool for pool, count in enumerate(mixed.nodes) if count} == set(exact)]


def _no_kind(part: Sequence[JobPool]) -> str:
    names = " and ".join(pool.name for pool in part)
    return f"no pipelines of one kind fill nodes of {names} within the limits, and launchers start no others"


@dataclass
class _PoolSubsetSearch:
    """Sets of pools that are searched one by one: what each reached, and a bound on it."""

    kept: PreparedCache
    alone: Sequence[Alone]
    note: stopping.Note | None
    by_steps: bool
    """Whether what a step takes is enough to leave a set aside (:func:`steps_decide`)."""
    plans: list[FoundPlan] = field(default_factory=list)
    reached: dict[frozenset[str], float] = field(default_factory=dict)
    bounds: dict[frozenset[str], float] = field(default_factory=dict)
    errors: dict[frozenset[str], ClusterwrightError] = field(default_factory=dict)
    done: list[frozenset[str]] = field(default_factory=list)
    relaxed: dict[frozenset[str], float] = field(default_factory=dict)
    """What relaxations have shown that no plan of a set is better than."""

    def cannot_beat(self, part: Sequence[JobPool], best: float) -> bool:
        """Whether no plan over these pools is better than the best known, as its relaxation shows."""
        names = frozenset(p.name for p in part)
        if not self.by_steps or names in self.errors or names in self.reached:
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

    def best(self) -> float:
        """The best that any set, or a pool alone, is known to reach."""
        alone = (step_value(self.kept.request, plan) for _, plan, _ in self.alone)
        return min([*self.reached.values(), *alone], default=math.inf)

    def tell(self, part: Sequence[JobPool], value: float, bound: float) -> None:
        """Show the best of all sets so far, and where there is a bound, how much better one of the set tried may be."""
        if self.note is None or not math.isfinite(best := min(value, self.best())):
            return
        parts = [f"best {format_seconds(best)} a step"] if self.kept.request.objective == "time" else []
        parts += [f"gap {format_percent(max(1.0 - bound / best, 0.0))}"] if bound > 0.0 else []
        self.note(", ".join([*parts, f"trying {' + '.join(pool.name for pool in part)}"]))

    def within(self, part: Sequence[JobPool]) -> float:
        """The best that is known to be reached on some of these pools, but not on all of them."""
        names = frozenset(p.name for p in part)
        if not self.by_steps:
            return math.inf
        values = [value for known, value in self.reached.items() if known < names]
        values += [step_value(self.kept.request, plan) for _, plan, _ in self.alone
                  if _stands_on(plan, part, self.kept.batch)]  # fmt: skip
        return min(values, default=math.inf)

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
        result = search.search(prepared.setting, known, report_bound=partial(self.tell, part), sets=every)
        # A plan that a smaller set beats is not the best of this one: the search stopped before it was found.
        self.plans += _written(prepared, [mixed for mixed in result.best if mixed.value < known])
        self.reached[names] = min([known, *(mixed.value for mixed in result.best)])
        self.bounds[names] = result.bound


def pool_sets(pools: Sequence[JobPool]) -> list[tuple[JobPool, ...]]:
    """The sets of pools that are searched by themselves, small ones first; where there are too many, all at last."""
    largest = len(pools) if len(pools) <= EVERY_SET else 3
    subsets = [part for size in range(1, largest + 1) for part in combinations(pools, size)]
    return subsets if largest == len(pools) else [*subsets, tuple(pools)]


@dataclass
class PreparedCache:
    """What sets of pools are searched with. Sets that try coarse values only share it, by precision."""

    catalog: Catalog
    request: Request
    pools: Pools
    batch: int
    kinds: int = 0
    coarse: dict[str, prepared_pools.PreparedPools | None] = field(default_factory=dict)
    own: dict[tuple[str, ...], prepared_pools.PreparedPools] = field(default_factory=dict)
    policies: tuple[Recompute, ...] = ()
    """Policies of recomputation; none: all that can be."""

    def prepared(self, part: Sequence[JobPool]) -> tuple[prepared_pools.PreparedPools, list[tuple[int, ...]] | None]:
        """A question over some of the pools, and which of its pools these are; None for every set of them.

        Raises:
            ClusterwrightError: these pools cannot work together as asked, or nothing fits.
        """
        fine = prepared_pools.fine(part)
        shared = None if fine else self._shared(prepared_pools.common_precision(self.request, part))
        if shared is None or any(p not in shared.pools.all for p in part):
            names = tuple(p.name for p in part)
            if names not in self.own:
                self.own[names] = self._prepare(self.request, Pools(tuple(part), self.pools.given))
                self.kinds += len(self.own[names].setting.kinds)
            shared = self.own[names]
        # What is offered beside these pools changes nothing for them, and so not how often they are interrupted.
        longest, most = prepared_pools.limits(self.request, part, self.batch)
        shared = replace(shared, setting=replace(shared.setting, longest=longest, most=most))
        return shared, None if len(part) > EVERY_SET else [tuple(shared.pools.all.index(p) for p in part)]

    def _shared(self, precision: str) -> prepared_pools.PreparedPools | None:
        """The question over all pools that have a precision; None where they cannot be asked together."""
        if precision not in self.coarse:
            pins = Pins({**self.request.pins.bounds, "precision": Bound((precision,))})
            asked = replace(self.request, pins=pins)
            able = []
            for pool in self.pools.all:
                try:
                    prepared_pools.common_precision(asked, [pool])
                    able.append(pool)
                except ClusterwrightError:
                    continue
            try:
                prepared = self._prepare(asked, Pools(tuple(able), self.pools.given), few=False)
                self.kinds += len(prepared.setting.kinds)
                self.coarse[precision] = prepared
            except ClusterwrightError:
                self.coarse[precision] = None
        return self.coarse[precision]

    def _prepare(self, request: Request, offered: Pools, *, few: bool | None = None) -> prepared_pools.PreparedPools:
        shared = launchable.AXES if request.launchable else ()
        return prepared_pools.prepare(
            self.catalog, request, offered, self.batch, few=few, policies=self.policies, shared=shared
        )


def _stands_on(plan: Plan, part: Sequence[JobPool], batch: int) -> bool:
    """Whether a plan of one pool, of the same batch, is on one of these."""
    at = (plan.cluster.pools[0].node, plan.cluster.pools[0].zone)
    return plan.batch.global_ == batch and at in [(p.cluster.node.id, p.zone) for p in part]
