"""Which price holds for a node and a way of coming by it, how old it is, and what was assumed where none is listed."""

from __future__ import annotations

from dataclasses import dataclass

from planner.catalog import Catalog
from planner.procurement.question.portfolio import NodeOption, Way
from planner.schema.hardware import Node, Price

BOX_OVER_CARDS = 1.64
"""Price of a server over that of its accelerators (Epoch AI, cost code: A100 1.66, V100 1.69, P100 1.54)."""
OLD_RATE_DAYS = 31
"""An exchange rate older than this is flagged."""
TERM_DAYS = {"reserved-1y": 365.25, "reserved-3y": 3 * 365.25}


@dataclass(frozen=True, slots=True)
class Quote:
    """A price of one node: to buy it, or for an hour of it."""

    usd: float
    date: str
    source: str
    region: str = ""
    assumed: str = ""


def quote(catalog: Catalog, candidate: NodeOption, way: Way, factor: float = 1.0) -> Quote | None:
    """The price of a node under one way; None where the catalog has none."""
    if candidate.price is not None:
        return Quote(candidate.price.usd, candidate.price.date, candidate.price.source)
    node = catalog.node(candidate.node)
    basis = "purchase" if way == "buy" else way
    listed = _newest(node.prices, basis)
    if listed is None and way == "buy":
        return _from_cards(catalog, node, factor)
    return None if listed is None else _scaled(listed, factor)


def _newest(prices: tuple[Price, ...], basis: str) -> Price | None:
    return max((p for p in prices if p.basis == basis), key=lambda p: p.date, default=None)


def _scaled(price: Price, factor: float) -> Quote:
    return Quote(price.usd * factor, price.date, price.source, price.region, price.assumed)


def _from_cards(catalog: Catalog, node: Node, factor: float) -> Quote | None:
    """A box that is only listed by its accelerators: their price times what a server adds."""
    card = _newest(catalog.accelerator(node.accelerator).prices, "purchase")
    if card is None or node.kind == "cloud":
        return None
    why = f"{node.accelerators} cards at {card.usd:,.0f} USD, times {BOX_OVER_CARDS} for the box (Epoch's ratio)"
    usd = round(node.accelerators * card.usd * BOX_OVER_CARDS * factor, 2)
    return Quote(usd, card.date, card.source, assumed=why)
