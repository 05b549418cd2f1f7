"""Questions about several pools, or accelerators without nodes, to one typed request and its pools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.axes.table import IN_ANSWERS
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.models import workload
from planner.question import pools
from planner.question.configuration import not_options
from planner.question.given import Named, counted, listed, texts
from planner.question.job_pools import Pools
from planner.question.plan_options import PlanOptions
from planner.question.reading import catalog_of, input_hashes, node_price, placed, region_of, request, rewired
from planner.question.request import Request
from planner.question.runtimes import runtime_of
from planner.schema.hardware import Cluster, Price
from planner.schema.workload import Model
from planner.space.pins import Pins, parse_pins
from planner.space.rules import RULES

OF_ALL_GROUPS = tuple(
    axis.name for axis in sorted(IN_ANSWERS, key=lambda axis: bool(axis.option)) if axis.of_groups
)  # fmt: skip
"""Axes that all groups of pipelines of a plan share."""


def as_one_pool(cluster: Named | Sequence[Named], asked: PlanOptions) -> tuple[Named | Sequence[Named], PlanOptions]:
    """A question with accelerators of one kind, in nodes of one kind, as one about that cluster; others unchanged.

    Raises:
        WrongQuestion: a name that no accelerator has, or a count that is none.
    """
    accelerators = counted(asked.accelerators)
    if accelerators is None or asked.link or listed(cluster):
        return cluster, asked
    found = pools.of_accelerators(catalog_of(asked), accelerators, asked.fabric, asked.region)
    return (found[0], replace(asked, accelerators=None)) if len(found) == 1 else (cluster, asked)


def pooled_request(
    model: str | Model, named: Named | Sequence[Named], asked: PlanOptions
) -> tuple[Catalog, Request, Pools]:
    """The catalog, the request and the pools that a question about several pools means.

    Raises:
        WrongQuestion: a name, a count, a link or a price that cannot be.
    """
    for flag in _of_one_kind(asked):
        raise WrongQuestion(f"{flag}: with nodes of one kind only, not over several pools")
    known = catalog_of(asked)
    bases = pool_bases(known, listed(named), asked)
    paid = pool_prices(known, bases, asked)
    wanted = request_over(known, model, [base for base, _ in bases], asked)
    wanted = replace(
        wanted,
        price=paid[0][0],
        sold_as=paid[0][1],
        inputs=input_hashes(known, wanted.workload.model, listed(named)),
        assumptions=(
            *wanted.assumptions,
            *stand_ins(known, asked, bases),
            *(each for base, _ in bases for each in rewired(known, asked, base)),
        ),
    )
    return known, wanted, pools.pools(bases, paid, texts(asked.link))


def _of_one_kind(asked: PlanOptions) -> Iterator[str]:
    """What is asked that plans over several pools do not know."""
    yield from (f"--waive {rule.name}" for rule in RULES if rule.recorded and rule.name in texts(asked.waive))
    if asked.task != "sft":
        yield f"--task {asked.task}"
    if asked.lengths is not None:
        yield "--lengths"
    if workload.optimizer(asked.optimizer).iterations:
        yield f"--optimizer {asked.optimizer}"


def request_over(known: Catalog, model: str | Model, clusters: Sequence[Cluster], asked: PlanOptions) -> Request:
    """The request about several clusters at once, without a price.

    Raises:
        WrongQuestion: no runtime runs on all of them.
    """
    first = clusters[0]
    _, wanted = request(model, replace(first, count=1), replace(asked, price=None, fabric=None), known=known)
    for each in clusters:
        runtime_of(known, asked.runtime or wanted.runtime.id, each.accelerator, wanted.workload)
    inputs = input_hashes(known, wanted.workload.model, ())
    return replace(wanted, cluster=first, counts=(first.count,), price=None, sold_as="", inputs=inputs)


def grouped_request(
    model: str | Model, named: Named | Sequence[Named], settings: Sequence[str], asked: PlanOptions
) -> tuple[Catalog, Request, Pools]:
    """As :func:`pooled_request`, for groups of pipelines as given and what all of them share (``zero=1``); pools that
    are alike are one.

    Raises:
        WrongQuestion: a setting that groups state by themselves, or several batches.
    """
    known, wanted, offered = pooled_request(model, named, asked)
    pins = not_options(parse_pins(settings))
    if own := [axis for axis in pins.bounds if axis not in OF_ALL_GROUPS]:
        axis = f"{own[0]}={pins.bounds[own[0]]}"
        raise WrongQuestion(f"{axis}: groups state their own degrees; for all of them: {', '.join(OF_ALL_GROUPS)}")
    if len(wanted.batches) != 1:
        raise WrongQuestion("--batch: estimate takes one layout a call; plan tries several values")
    joined = pools.renamed(offered.merged().all)
    bounds = {**wanted.pins.bounds, **pins.bounds}
    return known, replace(wanted, pins=Pins(bounds)), replace(offered, all=joined)


def pool_bases(known: Catalog, named: Sequence[Named], asked: PlanOptions) -> list[tuple[Cluster, str]]:
    """The clusters that pools are made of, and their zones.

    Raises:
        WrongQuestion: a name or a count that cannot be, or no pool has any nodes.
    """
    region = region_of(known, asked)
    bases: list[tuple[Cluster, str]] = []
    for text in named:
        plain, zone = pools.zoned(text)
        if isinstance(plain, str) and re.fullmatch(r"[^:]+:0", plain):
            known.node(plain.partition(":")[0])
            continue
        base, counts = placed(known, plain, asked)
        if len(counts) != 1:
            raise WrongQuestion(f"--cluster {text}: one count for each of several pools; what is not used is reported")
        bases.append((base, zone))
    if (accelerators := counted(asked.accelerators)) is not None:
        found = pools.of_accelerators(known, accelerators, asked.fabric, region)
        bases += [(each, "") for each in found]
    if not bases:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    return bases


def pool_prices(
    known: Catalog, bases: Sequence[tuple[Cluster, str]], asked: PlanOptions
) -> list[tuple[Price | None, str]]:
    """What a node of each pool costs per hour, the price that is stated for it first, and what that is sold as.

    Raises:
        WrongQuestion: a price of no such pool, or one that cannot be.
    """
    names = pools.names(bases)
    stated = pools.prices(asked.price, names) if asked.price is not None else {}
    return [
        node_price(known, base.node, replace(asked, price=stated.get(name, stated.get(""))))
        for name, (base, _) in zip(names, bases, strict=True)
    ]


def stand_ins(
    known: Catalog, asked: PlanOptions, bases: Sequence[tuple[Cluster, str]]
) -> tuple[tuple[str, str, str], ...]:
    """Which accelerators and nodes stand for those that were named without nodes."""
    if asked.accelerators is None:
        return ()

    def stands(c: Cluster) -> str:
        whole = known.node(c.node.id).accelerators
        part = f"{c.node.accelerators} of the {whole} of a" if c.node.accelerators < whole else f"{c.count:,} x"
        return f"{c.accelerators:,} x {c.accelerator.id} in {part} {c.node.id}"

    return tuple((stands(c), "the usual node", "--cluster") for c, _ in bases)
