"""Everything that could be acquired, and what is owned: which sizes, come by how, where, at what price."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from planner import catalog as catalogs
from planner.base.errors import WrongQuestion
from planner.base.units import format_many
from planner.catalog import Catalog
from planner.catalog.ages import is_stale
from planner.cost import money
from planner.procurement.question.portfolio import WAYS, NodeOption, Owned, Portfolio, Way
from planner.procurement.supply import prices
from planner.procurement.supply.buying import WiredOffer, bought, racks_filled, wirings_of
from planner.procurement.supply.pools import SupplyPool, carbon_per_day, energy_per_day, node_power, offers, pue
from planner.procurement.supply.prices import parts
from planner.question.values import DAYS_PER_MONTH
from planner.schema.hardware import Cluster, Node, Price

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Sizes that are tried where the question names none."""
FINER = tuple(sorted({round(a + (b - a) * part / 4) for a, b in pairwise(LADDER) for part in range(5)}))
"""Where the most tokens are sought, sizes in between: the whole budget buys more of those."""
MOST_ACCELERATORS = 4096
"""In one cluster, where the question names no other bound."""
MORE = 4
"""Times as many nodes as can be had: what that would bring is looked at."""


def pools(catalog: Catalog, asked: Portfolio) -> list[SupplyPool]:
    """Everything that may be acquired, and what is owned.

    Raises:
        WrongQuestion: a candidate has no price, none of its sizes can be had, or all prices are too old.
    """
    all_pools = [pool for owned in asked.owned for pool in _owned(catalog, asked, owned)]
    for offer, candidate in zip(offers(asked.candidates), asked.candidates, strict=True):
        for way in candidate.ways:
            all_pools += (replace(pool, offer=offer) for pool in _offered(catalog, asked, candidate, way))
    if not all_pools and asked.max_price_age_days is not None:
        days = f"{asked.max_price_age_days:,.0f} days"
        raise WrongQuestion(
            f"max_price_age: no candidate has a price of the {days} before {asked.as_of}; "
            "allow older ones, or import newer ones (clusterwright catalog stale lists what is old)"
        )
    return _with_unique_ids(all_pools)


def _with_unique_ids(pools_found: list[SupplyPool]) -> list[SupplyPool]:
    """The pools, those of one name with what they differ in behind it (or a number where that is nothing)."""
    groups: dict[str, list[SupplyPool]] = {}
    for pool in pools_found:
        groups.setdefault(pool.id, []).append(pool)
    names: dict[str, int] = {}
    named = []
    for pool in pools_found:
        alike = [_details(other) for other in groups[pool.id]]
        mine = _details(pool)
        differing = [text for n, text in enumerate(mine) if text and len({other[n] for other in alike}) > 1]
        name = " ".join([pool.id, *differing])
        names[name] = names.get(name, 0) + 1
        named.append(replace(pool, id=name if names[name] == 1 else f"{name} #{names[name]}"))
    return named


def _details(pool: SupplyPool) -> tuple[str, ...]:
    """What pools of one name may differ in."""
    region = pool.cluster.region
    return (
        f"in {region.id}" if region else "",
        f"with {pool.node.nics} NICs",
        f"on {pool.cluster.fabric.id}",
        f"from day {pool.start_day:g}",
        f"at {pool.quote.usd:,.2f} USD" if pool.quote else "",
    )


def _owned(catalog: Catalog, asked: Portfolio, owned: Owned) -> Iterator[SupplyPool]:
    region = owned.region or asked.regions[0]
    for count in _sizes(asked, catalog.node(owned.node), (), owned.count, 1):
        cluster = catalogs.cluster(catalog, owned.node, count, owned.fabric, region)
        yield SupplyPool(
            id=f"own {count} x {owned.node}",
            way="own",
            cluster=cluster,
            copies=min(owned.count // count, len(asked.jobs)),
            load=asked.ownership.load,
            day_usd=energy_per_day(asked, cluster, 0.0, count),
            day_kg=carbon_per_day(asked, cluster, 0.0, count),
            power=count * node_power(cluster.node, cluster) * pue(cluster),
            at_most=owned.count,
            offer=f"own {owned.node}",
        )


def standing(catalog: Catalog, asked: Portfolio) -> dict[str, float]:
    """Racks and switch ports that machines owned already take: they stand there whether they work or not."""
    taken = {"racks": 0.0, "switch_ports": 0.0}
    for owned in asked.owned:
        cluster = catalogs.cluster(catalog, owned.node, 1, owned.fabric, owned.region or asked.regions[0])
        # One that runs hotter than a rack is cooled has a rack to itself: it is there, and was cooled somehow.
        racks = racks_filled(asked, cluster, owned.count)
        taken["racks"] += float(owned.count) if racks is None else racks
        joined = owned.count > 1 and (owned.fabric or cluster.node.fabric)
        taken["switch_ports"] += cluster.node.nics * owned.count if joined else 0
    return taken


def ladder(asked: Portfolio) -> tuple[int, ...]:
    """Nodes of the clusters that are tried where the question names none."""
    return FINER if asked.objective == "tokens" else LADDER


def _sizes(
    asked: Portfolio, node: Node, counts: tuple[int, ...], at_most: int | None, least: int, beyond: int = 1
) -> list[int]:
    """Sizes to try: those named, or the ladder up to the most (which is tried, too), and up to `beyond` times as many,
    for what more of it would bring.
    """
    most = at_most if at_most is not None else max(1, MOST_ACCELERATORS // node.accelerators)
    named = {at_most, at_most + 1} if at_most and beyond > 1 else {at_most} if at_most else set()
    tried = counts or tuple(sorted({n for n in ladder(asked) if n <= most * beyond} | named))
    sizes = [n for n in tried if least <= n and (n <= most or beyond > 1)]
    return [n for n in sizes if n == 1 or node.fabric is not None]


def _offered(catalog: Catalog, asked: Portfolio, candidate: NodeOption, way: Way) -> Iterator[SupplyPool]:
    quote, sold_as = prices.quote(catalog, candidate, way, asked.price_factor)
    if quote is None:
        raise WrongQuestion(
            f"{candidate.node} has no {prices.basis_of(way)} price in the catalog, "
            f"and its accelerator no current one; give one: "
            f'price = {{ amount = "{"$300k" if way == "buy" else "$40/h"}", date = "{asked.as_of}" }}'
        )
    if _is_too_old(asked, quote):
        return
    if candidate.price is None and (quote.assumed or is_stale(quote.date, asked.as_of)):
        quote = prices.aged(catalog, quote)
    node = catalog.node(candidate.node)
    if candidate.nics is not None:
        node = replace(node, nics=candidate.nics)
    linked = replace(node, fabric=candidate.fabric or node.fabric)
    beyond = MORE if candidate.at_most else 1
    counts = _sizes(asked, linked, candidate.counts, candidate.at_most, candidate.min_order, beyond)
    if not counts or counts[0] > (candidate.at_most or counts[0]):
        raise WrongQuestion(f"{candidate.node}: no size from {candidate.min_order} to {candidate.at_most} is available")
    elsewhere = asked.regions if way == "buy" else (_sold_in(catalog, quote, asked),)
    regions = candidate.regions or elsewhere
    for region in regions:
        for count in counts:
            joined = catalogs.cluster(catalog, candidate.node, count, candidate.fabric, region)
            base = replace(joined, node=replace(joined.node, nics=candidate.nics or joined.node.nics))
            if way != "buy":
                undisturbed = _on_demand(catalog, asked, candidate) if way == "spot" else None
                for pool in _rented(asked, candidate, way, base, quote):
                    yield replace(pool, sold_as=sold_as, on_demand_usd=undisturbed)
                continue
            for wired, bill, label in wirings_of(candidate, base, parts(catalog)):
                yield from bought(catalog, asked, candidate, WiredOffer(wired, bill, label, quote))


def _is_too_old(asked: Portfolio, quote: Price) -> bool:
    """Whether a price is older than the question allows, or has no date or no source."""
    oldest = asked.max_price_age_days
    return oldest is not None and (bool(quote.assumed) or is_stale(quote.date, asked.as_of, oldest))


def too_old(catalog: Catalog, asked: Portfolio) -> str:
    """What is left out for the age of its price: each way, and of how many of its nodes; empty where nothing is."""
    left_out: list[str] = []
    for way in WAYS:
        priced = [prices.quote(catalog, candidate, way)[0] for candidate in asked.candidates if way in candidate.ways]
        aged = sum(quote is not None and _is_too_old(asked, quote) for quote in priced)
        if aged:
            of = "all" if aged == len(priced) else f"{aged:,} of"
            left_out.append(f"{way} ({of} {format_many(len(priced), 'node')})")
    return ", ".join(left_out)


def _on_demand(catalog: Catalog, asked: Portfolio, spot: NodeOption) -> float | None:
    """US dollars for an hour of a node that nobody takes back: the question's own price, else the catalog's."""
    stated = [c for c in asked.candidates if c.node == spot.node and c.price and c.ways == ("on-demand",)]
    candidate = stated[0] if stated else replace(spot, price=None)
    quote, _ = prices.quote(catalog, candidate, "on-demand", asked.price_factor)
    return None if quote is None else quote.usd


def _sold_in(catalog: Catalog, quote: Price, asked: Portfolio) -> str:
    """The first region of a price that the catalog knows, else the portfolio's."""
    for name in (part.strip() for part in quote.region.split(",")):
        if name in catalog.regions:
            return name
    return asked.regions[0]


def _rented(asked: Portfolio, candidate: NodeOption, way: Way, cluster: Cluster, quote: Price) -> Iterator[SupplyPool]:
    """Nodes by the hour (`on-demand`, `spot`), or for a term, and for as many terms as the horizon has room for."""
    count = cluster.count
    a_day = float(money.rent(money.DAY_S, cluster.count, quote.usd))
    pool = SupplyPool(
        id=f"{way} {count} x {cluster.node.id}",
        way=way,
        cluster=cluster,
        copies=min(candidate.copies or len(asked.jobs), len(asked.jobs)),
        quote=quote,
        load=asked.ownership.load,
        start_day=candidate.delivery_day,
        day_kg=carbon_per_day(asked, cluster, 0.0, count),
        at_most=candidate.at_most,
    )
    if way not in prices.TERM_DAYS:
        preempted = asked.reliability.preemptions_per_node_day / money.DAY_S if way == "spot" else 0.0
        yield replace(pool, day_usd=a_day, preemptions_per_node_s=preempted)
        return
    monthly = a_day * DAYS_PER_MONTH
    term = prices.TERM_DAYS[way]
    for n in range(1, math.ceil((asked.horizon_days - candidate.delivery_day) / term - 1e-9) + 1):
        yield replace(
            pool,
            id=pool.id if n == 1 else f"{pool.id} for {n} terms",
            lengths_of=pool.id,
            month_usd=monthly,
            end_day=candidate.delivery_day + n * term,
            held_days=n * term,
            running={"rent": monthly},
        )
