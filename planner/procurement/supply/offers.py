"""Every node type that the catalog can price: the candidates of a question that names none."""

from __future__ import annotations

from collections.abc import Collection

from planner.catalog import Catalog
from planner.catalog.ages import age_days
from planner.procurement.question.portfolio import WAYS, NodeOption, Way
from planner.procurement.supply.acquisition_prices import basis_of, quote
from planner.question.node_prices import newest

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
    found = []
    for node in catalog.nodes.values():
        candidate = NodeOption(node=node.id, ways=())
        for way in (w for w in WAYS if w in ways):
            if way != "buy" and node.id not in named and newest(node.prices, basis_of(way)) is None:
                continue
            priced, _ = quote(catalog, candidate, way)
            age = None if priced is None else age_days(priced.date, as_of)
            if age is not None and (way != "buy" or age <= OLDEST_DAYS or node.kind == "workstation"):
                found.append(NodeOption(node=node.id, ways=(way,)))
    return tuple(found)
