"""Prices of nodes in a procurement, and the parts that a bill is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, FileProblem
from planner.catalog.ages import age_days
from planner.catalog.checking import build, format_problems
from planner.catalog.files import read_entries
from planner.procurement.question.portfolio import WAYS, NodeOption, Way
from planner.question import node_prices
from planner.question.node_prices import AgedPrice, MarketPrice, newest
from planner.schema.hardware import Entry, Price, PriceBasis
from planner.schema.quantities import Bandwidth, Count, Usd, Watts

OLD_RATE_DAYS = 31
"""An exchange rate older than this is flagged."""
TERM_DAYS = {"reserved-1y": 365.25, "reserved-3y": 3 * 365.25}


def basis_of(way: Way) -> PriceBasis:
    """The kind of price that a way of coming by nodes is paid at."""
    return "purchase" if way == "buy" else way


def quote(catalog: Catalog, candidate: NodeOption, way: Way, factor: float = 1.0) -> tuple[Price | None, str]:
    """The price of one node, to buy it or for an hour of it, and what is sold for that; None where nobody sells it."""
    given = candidate.price
    basis = basis_of(way)
    if given is not None:
        return Price(basis=basis, usd=given.usd, date=given.date, source=given.source), candidate.node
    node = catalog.node(candidate.node)
    if way == "buy":
        listed = node_prices.purchase_price(catalog, node)
        sold_as = node.id
    else:
        listed, sold_as = node_prices.hourly_price(catalog, node, basis)
    return (None if listed is None else replace(listed, usd=listed.usd * factor)), sold_as


def aged(catalog: Catalog, price: Price) -> Price:
    """A price of no current source with what today's may be of it, unless several providers' offers say that."""
    if isinstance(price, MarketPrice) and len(price.offers.providers) > 1:
        return price
    stated = {field.name: getattr(price, field.name) for field in fields(Price)}
    return AgedPrice(**stated, spread=node_prices.spread_of_offers(catalog))


OLDEST_DAYS = 3 * 365.25
"""Purchase prices older than this are of machines that are no longer sold."""
USUAL: tuple[Way, ...] = ("buy", "on-demand", "spot")


def everything(
    catalog: Catalog, as_of: str, ways: tuple[Way, ...] = USUAL, named: Collection[str] = ()
) -> tuple[NodeOption, ...]:
    """All nodes with a price, each in every way that has one.

    A node that nobody lists by the hour is rented at the median of the offers of its accelerator: beside those offers
    it is none of its own, so it is a candidate only where the question names it.
    """
    options = []
    for node in catalog.nodes.values():
        candidate = NodeOption(node=node.id, ways=())
        for way in (w for w in WAYS if w in ways):
            if way != "buy" and node.id not in named and newest(node.prices, basis_of(way)) is None:
                continue
            priced, _ = quote(catalog, candidate, way)
            age = None if priced is None else age_days(priced.date, as_of)
            if age is not None and (way != "buy" or age <= OLDEST_DAYS or node.kind == "workstation"):
                options.append(NodeOption(node=node.id, ways=(way,)))
    return tuple(options)


class BillPart(Entry):
    """A switch, a link with its optics, a machine for input and output, or storage."""

    usd: Usd
    power: Watts
    rate: Bandwidth = 0.0
    """Bandwidth of one port, or the bandwidth that one machine can move."""
    radix: Count | None = None
    """Ports of a switch."""


def parts(catalog: Catalog) -> dict[str, BillPart]:
    """Every part by id; those of a stronger catalog folder replace weaker ones.

    Raises:
        WrongQuestion: a file is wrong; the message names file, line and key.
    """
    all_parts: dict[str, BillPart] = {}
    for layer in catalog.layers:
        all_parts |= _parts_of(layer.folder)
    return all_parts


@cache
def _parts_of(folder: Path) -> dict[str, BillPart]:
    problems: list[FileProblem] = []
    entries = read_entries(folder, "parts", "", problems)
    read = {name: build(BillPart, name, entry, problems) for name, entry in entries.items()}
    if problems:
        raise WrongQuestion(format_problems(problems))
    return {name: part for name, part in read.items() if part is not None}
