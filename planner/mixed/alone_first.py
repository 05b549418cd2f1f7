"""Whether machines of one kind alone stand before a plan over several: where nobody can tell their times apart, and
what the others add costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.catalog import Catalog
from planner.mixed.pool_subsets import FoundPlan
from planner.planning import comparison, order
from planner.question.request import Request
from planner.schema.plan import Plan


def in_order(catalog: Catalog, request: Request, ranked: Sequence[FoundPlan]) -> list[FoundPlan]:
    """Plans, best first; by time the best on one pool before one over several that :func:`is_worth_less`."""
    plans = list(ranked)
    alone = next((one for one in plans if len(one.plan.cluster.pools) == 1), None)
    if alone is None or request.objective != "time" or not is_worth_less(plans[0].plan, alone.plan, catalog):
        return plans
    return [alone, *(one for one in plans if one is not alone)]


def is_worth_less(mixed: Plan, alone: Plan, catalog: Catalog) -> bool:
    """Whether a plan over several pools is no faster than one of them alone, as far as predictions tell (80 %), and its
    cost is more by a larger factor than its time is less; by time within :data:`~planner.planning.order.TIED` always.
    """
    if len(mixed.cluster.pools) == 1:
        return False
    (apart,) = (
        comparison.differences((replace(mixed, rank=1), replace(alone, rank=2)), replace(mixed, rank=1), catalog) or ()
    )
    if apart.distinguishable:
        return False
    both = (mixed.money.usd_total, alone.money.usd_total)
    dearer = both[0] / both[1] if both[0] and both[1] else 1.0
    return apart.time <= max(dearer, 1.0 + order.TIED)
