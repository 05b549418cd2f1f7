"""What of an answer no current source states: none of it decides a rank in silence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.catalog.ages import is_stale
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.acquisition_prices import OLD_RATE_DAYS
from planner.procurement.supply.pools import SupplyPool


def rests_on(asked: Portfolio, used: Sequence[SupplyPool]) -> Iterator[str]:
    """Old prices, assumed prices, assumed preemptions, a resale value and an old exchange rate, of the pools used."""
    quoted = [(pool.node.id, pool.quote) for pool in used if pool.quote is not None]
    old = dict.fromkeys(f"{node} of {q.date or 'no date'}" for node, q in quoted if is_stale(q.date, asked.as_of))
    if old:
        yield f"prices older than a year: {', '.join(old)}"
    assumed = dict.fromkeys(node for node, quote in quoted if quote.assumed)
    if assumed:
        yield f"assumed prices: {', '.join(assumed)}"
    if any(pool.way == "spot" for pool in used):
        yield "an assumed rate of preemptions on spot"
    owner = asked.ownership
    if asked.charge == "amortised" and owner.residual and any(pool.way == "buy" for pool in used):
        yield f"a resale value of {owner.residual:.0%} after {owner.life_years:g} years"
    if any(pool.sold_usd is not None for pool in used):
        yield f"a resale value of {asked.resale:.0%} of what nodes are worth by their age"
    rate = asked.currency
    if rate.code != "USD" and is_stale(rate.date, asked.as_of, OLD_RATE_DAYS):
        yield f"an exchange rate of {rate.date or 'no date'}"
