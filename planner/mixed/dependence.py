"""Whether the choice of pools hangs on software that the question leaves open: the same question under other traits.

Which pools to mix depends on how fast they are beside each other and on what joins them: on the format of gradient
reductions, on how well kernels are fused (slow memory-bound kernels bring old accelerators nearer to new ones), and on
the rate between pools. Where the question states none of them, each is tried at another plausible value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations

from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.mixed import run
from planner.mixed.answer import value_of
from planner.mixed.pool_subsets import MANY, FoundPlan, best_on
from planner.mixed.unbeaten import LEAST, unbeaten, where
from planner.planning import Progress
from planner.question.job_pools import LinkBetween, Pools, default_link, merged, ports
from planner.question.request import Request
from planner.question.search_problem import resolve_efficiency
from planner.schema.plan import OtherSoftware, Plan, PlanSet
from planner.space.grid import precisions

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


def plan(catalog: Catalog, request: Request, offered: Pools, progress: Progress | None = None) -> PlanSet:
    """The answer of :func:`planner.mixed.run.plan`, with the other software under which other pools than its first
    plan's would be the better choice.

    Nothing is tried of one pool, nor of many accelerators (:data:`~planner.mixed.pool_subsets.MANY`).

    Raises:
        WrongQuestion: no pool has nodes, or the pools cannot work together as asked.
        NoAnswer: nothing fits, or nothing keeps the limits.
    """
    named = {name for pair in offered.given for name in pair}
    pools, tried = Pools(merged(offered.all, named), offered.given), []
    answered = run.answered(catalog, request, offered, progress)
    found, first = answered.found, answered.first
    if first is None or sum(pool.cluster.accelerators for pool in pools.all) > MANY:
        return found
    cases = list(supposed(catalog, request, pools, mixed=len(first.plan.cluster.pools) > 1))
    with progress("other software", len(cases)) if progress else nullcontext() as advance:
        for case in cases:
            known = answered.singles if case[1] is request else None  # Links between pools are nothing to one of them.
            tried.append(_otherwise(catalog, case, first, known or run.alone(catalog, case[1], pools.all)))
            if advance:
                advance(1)
    return replace(found, reasons=replace(found.reasons, other_software=tuple(each for each in tried if each)))


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
    own = resolve_efficiency(catalog, request, offered.all[0].cluster.accelerator).runtime.vector
    kernels, named = (EAGER, "not fused") if own < BETWEEN else (FUSED, "fused")
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
        found = run.answered(catalog, replace(request, top=EVERY), offered, singles=singles).found
    except (NoAnswer, WrongQuestion):
        return None
    best, stands = found.plans[0], where(first.plan)
    used = tuple(pool for pool in offered.all if (pool.cluster.node.id, pool.zone) in stands)
    own = next((plan for plan in found.plans if where(plan) == stands), None)
    own = own or best_on(catalog, request, offered, used)
    if own is None or (more := value_of(request, own) / value_of(request, best) - 1.0) <= LEAST:
        return None
    return OtherSoftware(
        supposed=text,
        uses=_nodes(best),
        step_time_s=best.prediction.step_time_s,
        own_uses=_nodes(own),
        own_step_time_s=own.prediction.step_time_s,
        own_more=more,
    )


def _nodes(plan: Plan) -> tuple[str, ...]:
    zones = [f"{pool.node}@{pool.zone}" if pool.zone else pool.node for pool in plan.cluster.pools]
    return tuple(f"{pool.count:,} x {name}" for pool, name in zip(plan.cluster.pools, zones, strict=True))
