"""Which price holds for a candidate and a way of coming by it: its own, else the one that every command takes."""

from __future__ import annotations

from dataclasses import replace

from planner.catalog import Catalog
from planner.procurement.question.portfolio import NodeOption, Way
from planner.question import node_prices
from planner.schema.hardware import Price, PriceBasis

OLD_RATE_DAYS = 31
"""An exchange rate older than this is flagged."""
TERM_DAYS = {"reserved-1y": 365.25, "reserved-3y": 3 * 365.25}


def basis_of(way: Way) -> PriceBasis:
    """The kind of price that a way of coming by nodes is paid at."""
    return "purchase" if way == "buy" else way


def quote(catalog: Catalog, candidate: NodeOption, way: Way, factor: float = 1.0) -> tuple[Price | None, str]:
    """The price of one node, to buy it or for an hour of it, and what is sold for that; None where nobody sells it."""
    given, basis = candidate.price, basis_of(way)
    if given is not None:
        return Price(basis=basis, usd=given.usd, date=given.date, source=given.source), candidate.node
    node = catalog.node(candidate.node)
    if way == "buy":
        listed, sold_as = node_prices.purchase_price(catalog, node), node.id
    else:
        listed, sold_as = node_prices.hourly_price(catalog, node, basis)
    return (None if listed is None else replace(listed, usd=listed.usd * factor)), sold_as
