"""A plan, or a set of plans, from its own document again: its question asked anew of today's catalog.

What was asked stands in the document: what the question left open is among its assumptions, limits among its
constraints. What a site measured and how collectives are routed is taken as it is, for :mod:`planner.verify` to check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from planner import planning
from planner.axes import AXES
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.comm import calls_of_several_pools
from planner.cost.goodput import PoolFailures, joint_goodput
from planner.mixed import given
from planner.planning import comparison
from planner.planning.document import price_section
from planner.planning.run import priced
from planner.question import pools as pooling
from planner.question import reading
from planner.question.configuration import configuration
from planner.question.job_pools import JobPool, LinkBetween, Pools
from planner.question.plan_options import PlanOptions
from planner.question.reading import PRICE_BASES
from planner.question.request import Request
from planner.question.several_pools import OF_ALL_GROUPS
from planner.schema.hardware import Cluster, Price
from planner.schema.model_reading import read
from planner.schema.plan import Plan, PlanSet, SearchQuestion
from planner.schema.workload import Method
from planner.space.pins import Pins, parse_pins
from planner.space.rules import RULES

SAME = 1e-9
"""Relative: a rate of interruptions below it is what rounding left."""
BATCHES = "--noise-scale"
"""Flag of the assumption on several batches, of which a plan has one."""


def plan_set(found: PlanSet, catalog: Catalog, where: str, own: Sequence[Cluster] = ()) -> PlanSet:
    """The set as the same search ranks it today, where it states its question; else each of its plans by itself.

    Raises:
        WrongQuestion: it names what the catalog does not have.
        NoAnswer: no plan fits today.
    """
    asked = found.question
    if asked is None or not found.plans:
        again = replace(found, plans=tuple(
            replace(plan(each, catalog, where, own), rank=rank) for rank, each in enumerate(found.plans, 1)
        ))  # fmt: skip
        return replace(again, differences=comparison.differences(again.plans, again.plan_to_run, catalog))
    first = found.plans[0]
    made = planning.plan(catalog, _searched(first, asked, found.search.objective, catalog, where, own))
    return replace(
        made,
        meta=found.meta,
        contingency=found.contingency,
        plans=tuple(with_files(each, first, own) for each in made.plans),
    )


def _searched(first: Plan, asked: SearchQuestion, objective: str, catalog: Catalog, where: str,
              own: Sequence[Cluster]) -> Request:  # fmt: skip
    """The question that a set answers, from its best plan and what its search was free to choose."""
    for name, values in (("nodes", asked.nodes), ("batches", asked.batches)):
        if not values:
            raise WrongQuestion(f"{where}: question.{name} is empty: a search tries one value at least")
    (at,) = _places(first, catalog, where, own)
    options = options_of(first)
    if len(asked.batches) > 1:
        options = replace(options, batch="|".join(map(str, asked.batches)))
    if options.precision is not None:
        options = replace(options, precision=asked.pins.get("precision"))
    return replace(
        _request(first, catalog, options, [replace(at, count=max(asked.nodes))]),
        counts=asked.nodes,
        batches=asked.batches,
        pins=parse_pins(f"{axis}={values}" for axis, values in asked.pins.items()),
        waived=frozenset(asked.waived),
        objective=objective,
        top=asked.top,
        fold=not asked.all,
    )


def _places(plan: Plan, catalog: Catalog, where: str, own: Sequence[Cluster]) -> list[Cluster]:
    """The nodes of every pool in the plan's region."""
    found, region = calls_of_several_pools.places(plan, catalog, where, own), plan.cluster.region
    return [c if region is None or c.region else replace(c, region=catalog.region(region)) for c in found]


def plan(plan: Plan, catalog: Catalog, where: str = "plan", own: Sequence[Cluster] = ()) -> Plan:
    """The plan as this catalog and this program make it.

    Args:
        plan: A verified plan.
        catalog: Where its nodes, fabrics and runtime are looked up.
        where: What messages call the plan.
        own: Clusters of the user's own files that it was made from.

    Raises:
        WrongQuestion: it names what the catalog does not have.
    """
    at, options = _places(plan, catalog, where, own), options_of(plan)
    request = _request(plan, catalog, options, at)
    if not plan.parallelism.groups:
        return _with_the_rest(priced(catalog, request, plan.rank, plan.measured), plan, own)
    shared = parse_pins(f"{name}={AXES[name].of(plan)}" for name in OF_ALL_GROUPS if not AXES[name].option)
    request = replace(request, pins=Pins({**request.pins.bounds, **shared.bounds}))
    (made,) = given.estimate(catalog, request, _pools(plan, catalog, options, at), plan.parallelism.groups).plans
    return _with_the_rest(replace(made, rank=plan.rank), plan, own)


def options_of(plan: Plan) -> PlanOptions:
    """What was asked, beside the model and the cluster: what stands among the assumptions was left open."""
    w, left = plan.workload, {each.flag for each in plan.assumptions}
    prices = plan.money.prices or ((plan.money.price,) if plan.money.price else ())
    runtime = plan.runtime.name if plan.runtime.older else f"{plan.runtime.name}@{plan.runtime.release}"
    limits = {each.name: each.limit for each in plan.constraints}
    always = tuple(rule.name for rule in RULES if rule.waivable and not rule.recorded)
    lora = {"rank": w.method["rank"], "targets": tuple(w.method["targets"])} if w.method["kind"] == "lora" else {}
    return PlanOptions(
        batch=None if "--batch" in left else plan.batch.global_,
        seq=None if "--seq" in left else w.sequence,
        mtp_layers=w.mtp_layers or 0,
        imbalance=w.imbalance,
        task=w.task or "sft",
        lengths=w.texts,
        tokens=None if "--tokens" in left else w.tokens,
        method=Method(**{**w.method, "targets": tuple(w.method["targets"])}).name,
        optimizer=w.optimizer["id"],
        runtime=None if "--runtime" in left else runtime,
        precision=None if "--precision" in left else plan.precision,
        region=None if "--region" in left else plan.cluster.region,
        waive=(*always, *(plan.waived or ())),
        deadline=limits.get("deadline"),
        max_cost=limits.get("budget"),
        basis=next((basis for price in prices for basis in PRICE_BASES if basis == price.basis), PRICE_BASES[0]),
        oom_risk=plan.prediction.memory.oom_risk or "5 %",
        **lora,
    )


def _request(plan: Plan, catalog: Catalog, options: PlanOptions, at: Sequence[Cluster]) -> Request:
    """The question about this one configuration."""
    model = read(plan.workload.shape)
    _, wanted = reading.request(model, replace(at[0], count=1), options, known=catalog)
    price, sold_as = _price(plan, 0, catalog, options, at[0])
    good, pool = plan.money.goodput, plan.cluster.pools[0]
    stands = [(each.what, each.why, each.flag) for each in plan.assumptions if each.flag in ("--cluster", "tp_overlap")]
    return replace(
        wanted,
        cluster=at[0],
        counts=(pool.count,),
        pins=wanted.pins if plan.parallelism.groups else configuration(wanted, parse_pins(_pinned(plan))),
        weighs_own_runs=plan.prediction.own_runs is not None,
        price=price,
        sold_as=sold_as,
        restart_s=good.restart_s,
        preemptions_per_node_s=pool.preemptions_per_node_s or 0.0 if plan.parallelism.groups else _preemptions(plan),
        inputs=reading.input_hashes(catalog, model, ()),
        assumptions=(*wanted.assumptions, *stands),
    )


def _pinned(plan: Plan) -> list[str]:
    """Every axis of a plan on one pool that no option of its own says, as pins."""
    return [f"{name}={axis.of(plan)}" for name, axis in AXES.items() if not axis.option]


def _price(plan: Plan, place: int, catalog: Catalog, options: PlanOptions, at: Cluster) -> tuple[Price | None, str]:
    """What a node of a pool costs today, asked as it was: a price of one's own; or that of the catalog's which is the
    document's (the usual one, a vendor's, the entry's own, as offers take it), else the usual one.
    """
    used = plan.money.prices[place] if plan.money.prices else plan.money.price
    if used is None:
        return None, ""
    if used.source == "--price":
        return reading.node_price(catalog, at.node, replace(options, price=used.usd_per_hour / at.node.accelerators))
    possible = [reading.node_price(catalog, at.node, options)]
    if (sold := catalog.nodes.get(used.node)) is not None:
        possible += [(price, sold.id) for price in sold.prices if price.basis == used.basis]
        with contextlib.suppress(WrongQuestion):
            possible.append(reading.node_price(catalog, at.node, replace(options, vendor=sold.provider)))
    named = [JobPool(name="", cluster=at, price=price, sold_as=sold_as) for price, sold_as in possible]
    return next((p for p, pool in zip(possible, named, strict=True) if price_section(pool) == used), possible[0])


def _preemptions(plan: Plan) -> float:
    """How often the owner takes a node of a plan's only pool back, per second: what accelerators' failures leave of the
    interruptions.
    """
    (pool, *_), good = plan.cluster.pools, plan.money.goodput
    failing = 1.0 / float(
        joint_goodput([PoolFailures(float(plan.cluster.accelerators), 0.0, good.restart_s)], 1.0).mtbf
    )
    beyond = 1.0 / good.mtbf_s - failing
    return beyond / pool.count if beyond > SAME * failing else 0.0


# ---- several pools ---------------------------------------------------------------------------------------------------


def _pools(plan: Plan, catalog: Catalog, options: PlanOptions, at: Sequence[Cluster]) -> Pools:
    """The plan's pools as the question named them, and the links that it gave."""
    stand = plan.cluster.pools
    prices = [_price(plan, i, catalog, options, each) for i, each in enumerate(at)]
    made = pooling.pools([(c, p.zone) for c, p in zip(at, stand, strict=True)], prices, ())
    every = tuple(
        replace(each, preemptions_per_node_s=p.preemptions_per_node_s, restart_s=p.restart_s)
        for each, p in zip(made.all, stand, strict=True)
    )
    given = {
        frozenset(every[i].name for i in link.pools): LinkBetween(link.bytes_per_s, link.latency_s, link.basis)
        for link in plan.cluster.links
        if "--link" in link.basis
    }
    return Pools(every, given)


# ---- what a document has from elsewhere ------------------------------------------------------------------------------


def with_files(made: Plan, plan: Plan, own: Sequence[Cluster] = ()) -> Plan:
    """With the hashes of clusters' files that the document has, and the name of a cluster of the user's own.

    A record that is given in place of a file has another hash.
    """
    generator = made.generator.with_files(plan.generator, "cluster")
    name = plan.cluster.name if own else made.cluster.name
    return replace(made, generator=generator, cluster=replace(made.cluster, name=name))


def _with_the_rest(made: Plan, plan: Plan, own: Sequence[Cluster]) -> Plan:
    """What no question decides as the document has it: routed collectives, measurements, pools beside those in use."""
    pools = zip(made.cluster.pools, plan.cluster.pools, strict=True)
    kept = [
        replace(new, zone=old.zone, offered=old.offered, preemptions_per_node_s=old.preemptions_per_node_s,
                restart_s=old.restart_s)
        for new, old in pools
    ]  # fmt: skip
    offered = {each.name: each for each in plan.constraints}["accelerators"]
    limits = [offered if each.name == "accelerators" else each for each in made.constraints]
    listed = list(made.assumptions)
    for at, each in enumerate(plan.assumptions):
        if each.flag == BATCHES:
            listed.insert(at, each)
    return replace(
        with_files(made, plan, own),
        cluster=replace(with_files(made, plan, own).cluster, pools=tuple(kept)),
        constraints=tuple(limits),
        assumptions=tuple(listed),
        communication=plan.communication,
        communication_choice=plan.communication_choice,
        env=plan.env,
    )
