"""The price of a node, to buy it or for an hour of it: one rule for every command.

A node that is listed has its newest price. One that nobody lists by the hour has the median of the current offers of
its accelerator, one of each provider; one that nobody lists for sale, the price of its accelerators and of a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.catalog.ages import is_stale
from planner.schema.hardware import Node, Price
from planner.schema.plan import ComparableOffers

BOX_OVER_CARDS = 1.64
"""Price of a server over that of its accelerators (Epoch AI, cost code: A100 1.66, V100 1.69, P100 1.54)."""


@dataclass(frozen=True, kw_only=True)
class MarketPrice(Price):
    """A price with those that it can be compared to."""

    offers: ComparableOffers


@dataclass(frozen=True, kw_only=True)
class AgedPrice(Price):
    """A price that no source gives for the last year, and that no current offers can be compared to."""

    spread: tuple[float, float]
    """What today's may be of it, at least and at most (:func:`spread_of_offers`)."""


@dataclass(frozen=True, slots=True)
class HourlyOffer:
    """The cheapest current price of a provider for an hour of an accelerator."""

    node: Node
    price: Price

    @property
    def usd(self) -> float:
        """Of one accelerator."""
        return float(self.price.usd) / self.node.accelerators


def hourly_price(known: Catalog, node: Node, basis: str) -> tuple[Price | None, str]:
    """US dollars for an hour of a node, and what is sold for that; None where nobody sells its accelerator so.

    The node's own newest price, else the median of current offers of its accelerator; where no offer is current, the
    price of the cloud instance that stands in for it.
    """
    offers = current_offers(known, node.accelerator, basis)
    instance = known.nodes.get(node.rented_as or "")
    for entry in (node,) if offers or instance is None else (node, instance):
        if entry.accelerators == node.accelerators and (own := newest(entry.prices, basis)):
            return compared(own, offers), entry.id
    return (compared(median_price(node, basis, offers), offers), node.id) if offers else (None, "")


def purchase_price(known: Catalog, node: Node) -> Price | None:
    """US dollars to buy a node: its own newest price, else that of its cards and a box; None where neither is known."""
    own = newest(node.prices, "purchase")
    card = newest(known.accelerator(node.accelerator).prices, "purchase")
    if own is not None or card is None or node.kind == "cloud":
        return own
    why = f"{node.accelerators} cards at {card.usd:,.0f} USD, times {BOX_OVER_CARDS} for the box (Epoch's ratio)"
    usd = round(node.accelerators * card.usd * BOX_OVER_CARDS, 2)
    return Price(basis="purchase", usd=usd, date=card.date, source=card.source, assumed=why)


def newest(prices: Sequence[Price], basis: str) -> Price | None:
    """The newest price of a kind; None where there is none."""
    return max((price for price in prices if price.basis == basis), key=lambda price: price.date, default=None)


def current_offers(known: Catalog, accelerator: str, basis: str) -> dict[str, HourlyOffer]:
    """Provider -> its cheapest price that is at most a year older than the newest of any node."""
    listed = [(node, price) for node in known.nodes.values() for price in node.prices if price.basis == basis]
    latest = max((price.date for node in known.nodes.values() for price in node.prices), default="")
    day = "-".join([*latest.split("-"), "01", "01"][:3])
    found: dict[str, HourlyOffer] = {}
    for node, price in listed:
        offer = HourlyOffer(node, price)
        if node.accelerator == accelerator and not is_stale(price.date, day):
            found[node.provider] = min(found.get(node.provider, offer), offer, key=lambda each: each.usd)
    return found


@lru_cache(maxsize=4)
def spread_of_offers(known: Catalog) -> tuple[float, float]:
    """The cheapest and the dearest current offer of any accelerator that several providers sell, over the median of
    its offers.
    """
    sold = {(node.accelerator, price.basis) for node in known.nodes.values() for price in node.prices}
    low = high = 1.0
    for accelerator, basis in sorted(sold):
        usd = [offer.usd for offer in current_offers(known, accelerator, basis).values()]
        if basis != "purchase" and len(usd) > 1:
            low = min(low, min(usd) / median(usd))
            high = max(high, max(usd) / median(usd))
    return low, high


def compared(price: Price, offers: dict[str, HourlyOffer]) -> Price:
    """The price, with the spread of the offers where there are any."""
    if not offers:
        return price
    each = sorted(offer.usd for offer in offers.values())
    spread = ComparableOffers(
        providers=tuple(sorted(offers)),
        low_usd=each[0],
        median_usd=median(each),
        high_usd=each[-1],
        oldest=min(offer.price.date for offer in offers.values()),
    )
    return MarketPrice(
        basis=price.basis, usd=price.usd, region=price.region, date=price.date, source=price.source,
        assumed=price.assumed, offers=spread,
    )  # fmt: skip


def median_price(node: Node, basis: str, offers: dict[str, HourlyOffer]) -> Price:
    """Of a node-hour, at the median of the offers of its accelerator; as old as the offer in the middle, or the older
    of those two.
    """
    ranked = sorted(offers.values(), key=lambda offer: offer.usd)
    middle = ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]
    return Price(
        basis=basis,  # type: ignore[arg-type]
        usd=round(median(offer.usd for offer in middle) * node.accelerators, 2),
        date=min(offer.price.date for offer in middle),
        source=f"median of current offers: {', '.join(sorted(offers))}",
    )


def of_vendor(vendor: str, node: Node, basis: str, offers: dict[str, HourlyOffer]) -> tuple[Price, str]:
    """The price of a node-hour at one provider, and what is sold.

    Raises:
        WrongQuestion: it has no current price for that accelerator; the message names those that have.
    """
    for provider, offer in offers.items():
        if provider.lower() == vendor.lower():
            usd = round(offer.usd * node.accelerators, 2)
            price = Price(basis=offer.price.basis, usd=usd, region=offer.price.region, date=offer.price.date,
                          source=offer.price.source, assumed=offer.price.assumed)  # fmt: skip
            return price, offer.node.id
    have = f"there are {', '.join(sorted(offers))}" if offers else "nobody has; give --price"
    raise WrongQuestion(f"--vendor {vendor}: no current {basis} price of {node.accelerator}; {have}")
