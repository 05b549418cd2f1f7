"""Whether the choice of pools depends on software that the question leaves open: the question asked under other traits.

Which pools to mix depends on how fast they are relative to each other and on what joins them: on the format of gradient
reductions, on how well kernels are fused (slow memory-bound kernels bring old accelerators nearer to new ones), and on
the rate between pools. Where the question states none of them, each is tried at another plausible value. Bounds decide
first, without a search, whether another value could change the choice (:func:`unbeaten`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from planner.base import stopping
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.base.progress import advancing
from planner.catalog import Catalog
from planner.cost import money
from planner.mixed import releases, run, search
from planner.mixed.answer import value_of
from planner.mixed.pool_subsets import MANY, Alone, FoundPlan, PreparedCache, best_on, pool_sets, steps_decide
from planner.question.given import Progress
from planner.question.job_pools import JobPool, LinkBetween, Pools, default_link, ports
from planner.question.request import Request
from planner.question.search_problem import resolve_efficiency
from planner.schema.plan import OtherSoftware, Plan, PlanSet
from planner.space.blocks import precisions

LEAST = 0.01
"""Difference of the objective from which on a choice counts as another: the search's own gap."""


def unbeaten(catalog: Catalog, request: Request, offered: Pools, first: FoundPlan, alone: Sequence[Alone]) -> bool:
    """Whether no other pools are better by :data:`LEAST` than those of a plan, under another question's software.

    Its own pools reach what the plan itself does, priced again, or the best plan of the one pool that it stands on. No
    other set of pools is better than its relaxation without failures, nor than the best plan of one pool.

    Args:
        catalog: Records and measurements.
        request: The other question.
        offered: Its pools and links.
        first: The plan, found under the first question.
        alone: The best plan of every pool by itself under the other question.

    Returns:
        False where these bounds leave it open.
    """
    if request.objective == "energy" or not steps_decide(request, offered.all):
        return False
    enough = _enough(catalog, request, offered, first, alone)
    if enough is None or any(value < enough for value, plan, _ in alone if where(plan) != where(first.plan)):
        return False
    others = [
        part for part in pool_sets(offered.all) if {(p.cluster.node.id, p.zone) for p in part} != where(first.plan)
    ]
    kept = [PreparedCache(catalog, request, offered, batch) for batch in request.batches]
    return all(_beyond(cache, part, _of_a_step(request, enough, cache.batch)) for cache in kept for part in others)


def where(plan: Plan) -> set[tuple[str, str]]:
    """The pools that a plan uses: node and zone of each."""
    return {(pool.node, pool.zone or "") for pool in plan.cluster.pools}


def _enough(
    catalog: Catalog, request: Request, offered: Pools, first: FoundPlan, alone: Sequence[Alone]
) -> float | None:
    """An objective from which on other pools are no better choice: over several pools the search ends within a gap of
    the best, and what it finds may lie that much above the plan priced again.
    """
    if first.made is None:
        values = [value for value, plan, _ in alone if where(plan) == where(first.plan)]
        return min(values) / (1.0 + LEAST) if values else None
    prepared, mixed_plan = first.made
    longer = releases.under(catalog, prepared, mixed_plan, request, offered) / mixed_plan.time
    return first.value * longer * (1.0 + LEAST) if _keeps_limits(request, first.plan, longer) else None


def _keeps_limits(request: Request, plan: Plan, longer: float) -> bool:
    """Whether a plan whose steps take that many times as long keeps the deadline and the budget."""
    days = plan.money.days * longer
    dollars = (plan.money.usd_total or 0.0) * longer
    in_time = request.deadline_s is None or days * money.DAY_S <= request.deadline_s
    return in_time and (request.max_cost_usd is None or dollars <= request.max_cost_usd)


def _of_a_step(request: Request, value: float, batch: int) -> float:
    """An objective in the search's terms: a step's seconds, or seconds times the dollars an hour of all nodes."""
    unit_s = money.DAY_S if request.objective == "time" else money.HOUR_S
    return value * unit_s / float(money.steps(request.workload.tokens, batch, request.workload.sequence))


def _beyond(kept: PreparedCache, part: Sequence[JobPool], value: float) -> bool:
    """Whether nothing on all of these pools is below a value; what cannot work together is not."""
    try:
        prepared, exact = kept.prepared(part)
    except ClusterwrightError:
        return True
    return search.beyond(prepared.setting, value, exact)


FUSED, EAGER = 1.1, 1.8
"""Element-wise traffic over that of fused kernels: of frameworks that fuse, and of those that do not (the catalog's
FSDP2 and nanotron)."""
BETWEEN = 1.4
"""Traffic from which on a framework's own kernels count as not fused."""
SIXTEEN_BIT, WIDE = 2.0, 4.0
"""Bytes of a gradient on the wire."""
LINK = 0.5
"""Share of an assumed link that is left where others use it too or its hosts do not reach it."""

EVERY = 10_000
"""Plans listed: all that the search has."""

Pair = frozenset[str]
"""Names of two pools."""
Supposed = tuple[str, Request, Pools]
"""What is otherwise, in words, and the question with it."""


def plan(catalog: Catalog, request: Request, offered: Pools, progress: Progress | None = None,
         starts: run.Starts | None = None) -> PlanSet:  # fmt: skip
    """The answer of :func:`planner.mixed.run.answered`, with the other software under which other pools than its first
    plan's would be the better choice.

    Nothing is tried of one pool, nor of many accelerators (:data:`~planner.mixed.pool_subsets.MANY`), nor where the
    search was asked to end or a pool alone is preferred to a faster plan over several.

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    pools = offered.merged()
    tried = []
    answered = run.answered(catalog, request, offered, progress, starts=starts)
    answer, first = answered.found, answered.first
    if answer.reasons.beyond_launchers:  # what launchers start is compared with what they start
        request = replace(request, launchable=True)
    if first is None or answered.is_simpler or sum(pool.cluster.accelerators for pool in pools.all) > MANY:
        return answer
    cases = list(supposed(catalog, request, pools, mixed=len(first.plan.cluster.pools) > 1))
    with advancing(progress, "other software", len(cases)) as advance:
        for case in cases:
            if stopping.asked():
                break
            known = answered.singles if case[1] is request else None  # Links between pools are nothing to one of them.
            other = _otherwise(catalog, case, first, known or run.alone(catalog, case[1], pools.all))
            tried.append(None if stopping.asked() else other)  # a search that was stopped shows no better choice
            if advance:
                advance(1)
    return replace(answer, reasons=replace(answer.reasons, other_software=tuple(value for value in tried if value)))


def supposed(catalog: Catalog, request: Request, offered: Pools, *, mixed: bool) -> Iterator[Supposed]:
    """The question under other plausible software: traits that its release leaves open, and links that nobody gave,
    slower where the answer is `mixed`, faster where it is not.
    """
    traits = [*_reductions(request, offered), *_kernels(catalog, request, offered)] if request.older else []
    yield from ((text, asked, offered) for text, asked in traits)
    if len(traits) > 1:
        (first, wire), (second, kernels) = traits
        yield f"{first}, {second}", replace(wire, supposed=kernels.supposed), offered
    yield from ((text, request, linked) for text, linked in _links(offered, mixed=mixed))


def _reductions(request: Request, offered: Pools) -> Iterator[tuple[str, Request]]:
    """Gradients reduced in the other of the two usual formats."""
    runtime = request.runtime
    if runtime.gradient_wire_bytes in (SIXTEEN_BIT, WIDE) and _sixteen_bit(request, offered):
        other, named = (SIXTEEN_BIT, "16 bit") if runtime.gradient_wire_bytes == WIDE else (WIDE, "fp32")
        yield f"gradients reduced in {named}", replace(request, runtime=replace(runtime, gradient_wire_bytes=other))


def _kernels(catalog: Catalog, request: Request, offered: Pools) -> Iterator[tuple[str, Request]]:
    """Element-wise kernels that are not fused, or are where the framework's own are not."""
    vector = resolve_efficiency(catalog, request, offered.all[0].cluster.accelerator).runtime.vector
    kernels, named = (EAGER, "not fused") if vector < BETWEEN else (FUSED, "fused")
    yield f"element-wise kernels {named}", replace(request, supposed={"vector": kernels})


def _sixteen_bit(request: Request, offered: Pools) -> bool:
    """Whether the job may train in a format that reduces gradients in 16 bit."""
    return any(set(precisions(pool.cluster, request.runtime, request.pins)) - {"fp32", "tf32"} for pool in offered.all)


def _links(offered: Pools, *, mixed: bool) -> Iterator[tuple[str, Pools]]:
    """Links that nobody gave: at half the assumed rate, or those between zones at their nodes' own."""
    pairs = {frozenset((a.name, b.name)): (a, b) for a, b in combinations(offered.all, 2)}
    assumed = {names: default_link(*pair) for names, pair in pairs.items() if names not in offered.given}
    nodes = {names: min(map(ports, pairs[names])) for names in assumed}
    if assumed and mixed:
        yield _at(offered, assumed, {names: link.bandwidth * LINK for names, link in assumed.items()})
    if not mixed and any(nodes[names] > link.bandwidth for names, link in assumed.items()):
        yield _at(offered, assumed, nodes)


def _at(offered: Pools, assumed: Mapping[Pair, LinkBetween], rates: Mapping[Pair, float]) -> tuple[str, Pools]:
    links = {names: replace(assumed[names], bandwidth=rate, basis="supposed") for names, rate in rates.items()}
    listed = " or ".join(f"{gbit:g}" for gbit in sorted({rate * 8 / 1e9 for rate in rates.values()}))
    return f"{listed} Gbit/s a node between pools", replace(offered, given={**offered.given, **links})


def _otherwise(catalog: Catalog, case: Supposed, first: FoundPlan, singles: run.Singles) -> OtherSoftware | None:
    """The best choice under other software beside the best on the first plan's pools; None where these are the same.

    `singles` are the best plans of every pool by itself, under that software.
    """
    text, request, offered = case
    if unbeaten(catalog, request, offered, first, singles[0]):
        return None
    try:
        plans = run.answered(catalog, replace(request, top=EVERY), offered, singles=singles).found
    except (NoAnswer, WrongQuestion):
        return None
    best = plans.plans[0]
    stands = where(first.plan)
    used = tuple(pool for pool in offered.all if (pool.cluster.node.id, pool.zone) in stands)
    same_pools = next((plan for plan in plans.plans if where(plan) == stands), None)
    same_pools = same_pools or best_on(catalog, request, offered, used)
    if same_pools is None or (more := value_of(request, same_pools) / value_of(request, best) - 1.0) <= LEAST:
        return None
    return OtherSoftware(
        supposed=text,
        uses=_nodes(best),
        step_time_s=best.prediction.step_time_s,
        own_uses=_nodes(same_pools),
        own_step_time_s=same_pools.prediction.step_time_s,
        own_more=more,
    )


def _nodes(plan: Plan) -> tuple[str, ...]:
    zones = [f"{pool.node}@{pool.zone}" if pool.zone else pool.node for pool in plan.cluster.pools]
    return tuple(f"{pool.count:,} x {name}" for pool, name in zip(plan.cluster.pools, zones, strict=True))
