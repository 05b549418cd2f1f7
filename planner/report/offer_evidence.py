"""What an offer rests on, as the terminal and the page say it: prices that are old or assumed, what the answer is
without them, what others ask, and how many accelerators work at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from planner.report import quantities
from planner.schema.procurement import Alternative, PoolBought, Procurement

Money = Callable[[float], str]
HIRED = ("on-demand", "spot")
"""Ways in which a pool has a copy for each of its jobs, and no more of them than work at a time."""


def accelerators(found: Procurement, best: Alternative) -> int:
    """In all; of what jobs hire as many as ever work at a time, and no more of what is owned than there is."""
    counted = sum(at_a_time(best, pool) for pool in best.pools)
    for node, count in found.question.owned.items():
        mine = [pool for pool in best.pools if pool.way == "own" and pool.node == node]
        taken = sum(pool.count * pool.copies for pool in mine)
        if taken > count:
            counted -= (taken - count) * mine[0].accelerators // (mine[0].count * mine[0].copies)
    return counted


def at_a_time(best: Alternative, pool: PoolBought) -> int:
    """Accelerators of a pool: of what jobs hire those of the clusters that work at once, at most."""
    if pool.way not in HIRED:
        return pool.accelerators
    times = [(s.start_day, s.end_day) for job in best.workloads for s in job.schedule if s.pool == pool.id]
    clusters = max((sum(start <= day < end - 1e-6 for start, end in times) for day, _ in times), default=0)
    return pool.accelerators // max(pool.copies, 1) * clusters


def rests_on(best: Alternative, as_money: Money) -> Iterator[str]:
    """What no current source states, and the total at other prices where prices are among it."""
    if not best.rests_on:
        return
    spread = best.cost.range
    at_others = ""
    if spread is not None and any("prices" in what for what in best.rests_on):
        at_others = f"; prices: {as_money(spread.low_usd)} to {as_money(spread.high_usd)} in all"
    yield f"{'; '.join(best.rests_on)}{at_others}"


def fresh(found: Procurement, as_money: Money) -> Iterator[str]:
    """The answer without prices that are older than a year or assumed."""
    if found.fresh is not None:
        answer = ", ".join(filter(None, (found.fresh.what, value(found, found.fresh.value, as_money))))
        yield f"at prices of the last year alone: {answer or 'no answer'} (--fresh 365d)"


def price_range(best: Alternative, as_money: Money) -> Iterator[str]:
    """What the same hours cost at other current offers."""
    spread = best.cost.range
    if spread is None:
        return
    parts = []
    if spread.offers:
        parts.append(
            f"at other current offers of what is rented (median {as_money(spread.median_usd)}, {spread.offers} "
            f"offers, the oldest of {spread.oldest})"
        )
    if any(pool.price_spread for pool in best.pools):
        parts.append("with old prices as far from today's as one accelerator's current offers are from their median")
    yield f"{as_money(spread.low_usd)} to {as_money(spread.high_usd)} in all {', '.join(parts)}"


def value(found: Procurement, amount: float | None, as_money: Money) -> str:
    """A value of the objective with its unit; empty where there is none."""
    if amount is None:
        return ""
    return as_money(amount) if found.optimality.unit == "USD" else quantities.amount(amount, found.optimality.unit)
