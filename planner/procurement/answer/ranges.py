"""How far a total depends on whose price is paid: the same hours at the other current offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.procurement.supply.pools import SupplyPool
from planner.question.node_prices import MarketPrice
from planner.schema.plan import ComparableOffers
from planner.schema.procurement import Line, PriceRange


def offers_of(pool: SupplyPool) -> ComparableOffers | None:
    """What an hour of a rented pool's accelerator is sold for; None where its price is the question's own."""
    return pool.quote.offers if isinstance(pool.quote, MarketPrice) else None


def price_range(pools: Mapping[str, SupplyPool], bill: Sequence[Line], total_usd: float) -> PriceRange | None:
    """The total with every rented node-hour at the cheapest, the median and the dearest offer of its accelerator;
    None where nothing rented is sold by more than one provider.

    Args:
        pools: By id.
        bill: Every line of the answer.
        total_usd: What it comes to.
    """
    low = median = high = total_usd
    used: dict[str, ComparableOffers] = {}
    for line in bill:
        offers = offers_of(pools[line.pool]) if line.kind == "rental" else None
        if offers is not None:
            each = line.count * pools[line.pool].node.accelerators
            low += each * offers.low_usd - line.usd
            median += each * offers.median_usd - line.usd
            high += each * offers.high_usd - line.usd
            used[f"{pools[line.pool].way} {pools[line.pool].node.accelerator}"] = offers
    count = sum(len(offers.providers) for offers in used.values())
    if count <= len(used):
        return None
    oldest = min(offers.oldest for offers in used.values())
    return PriceRange(
        low_usd=round(low, 2), median_usd=round(median, 2), high_usd=round(high, 2), offers=count, oldest=oldest
    )
