"""Networks as bills of materials: switches and links by topology, and what they cost and draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from planner.cost.figures import Topology

Wiring = Literal["rail-optimised", "fat-tree", "rail-only", "dragonfly", "torus"]
TORUS_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class Bill:
    """What a network is made of."""

    switches: int
    nic_links: int
    """Between a node's port and its switch (in a torus: between two nodes)."""
    switch_links: int
    """Between switches."""
    oversubscription: float
    """Bandwidth into a leaf over bandwidth out of it, as the cost model reads it."""
    leaf_nodes: int
    """Nodes below one leaf."""


def tiers(endpoints: int, radix: int) -> int:
    """Levels of switches: 1 up to r endpoints, 2 up to r^2 / 2, then 3."""
    return 1 if endpoints <= radix else 2 if endpoints <= radix * radix // 2 else 3


def plane_switches(endpoints: int, radix: int, oversubscription: float = 1.0) -> int:
    """Switches of one plane: ``ceil(n / r)``; ``L + ceil(L r/2 / (o r))`` with ``L = ceil(n / (r/2))``; else
    ``ceil(2 n / r + 3 n / (o r))``, which is ``ceil(5 n / r)`` without oversubscription.

    Equal to every row (64 to 65,536 nodes, 8 planes) of a public bill of materials for H100 clusters of August 2024.
    """
    levels = tiers(endpoints, radix)
    if levels == 1:
        return math.ceil(endpoints / radix)
    if levels == 2:
        leaves = math.ceil(endpoints / (radix // 2))
        return leaves + math.ceil(leaves * (radix // 2) / (oversubscription * radix))
    return math.ceil(2 * endpoints / radix + 3 * endpoints / (oversubscription * radix))


def _uplinks(endpoints: int, radix: int, oversubscription: float) -> int:
    """Links between switches: ``n (tiers - 1) / o``."""
    return math.ceil(endpoints * (tiers(endpoints, radix) - 1) / oversubscription)


def rail_optimised(nodes: int, nics: int, radix: int, oversubscription: float = 1.0) -> Bill:
    """A plane for each port of a node: ``R plane(n)`` switches."""
    return Bill(
        nics * plane_switches(nodes, radix, oversubscription),
        nodes * nics,
        nics * _uplinks(nodes, radix, oversubscription),
        oversubscription,
        radix if nodes <= radix else radix // 2,
    )


def fat_tree(nodes: int, nics: int, radix: int, oversubscription: float = 1.0) -> Bill:
    """All ports in one plane: ``plane(n R)`` switches."""
    ends = nodes * nics
    leaf = max(1, (radix if ends <= radix else radix // 2) // nics)
    return Bill(
        plane_switches(ends, radix, oversubscription),
        ends,
        _uplinks(ends, radix, oversubscription),
        oversubscription,
        leaf,
    )


def rail_only(nodes: int, nics: int, radix: int) -> Bill:
    """Leaves without a spine: ``R ceil(n / r)`` switches. Rails meet only inside nodes (arXiv 2307.12169).

    Raises:
        ValueError: more nodes than a switch has ports; they would not all be connected.
    """
    if nodes > radix:
        raise ValueError(f"rail-only joins at most {radix} nodes")
    return Bill(nics * math.ceil(nodes / radix), nodes * nics, 0, 1.0, radix)


def dragonfly(nodes: int, nics: int, radix: int) -> Bill:
    """Balanced groups, ``a = 2 p = 2 h`` and ``p + h + a - 1 = r``: ``ceil(N / p)`` routers with
    ``(a - 1) / 2 + h / 2`` links each; fewer than a group of them are joined all to all.
    """
    ends = nodes * nics
    p = h = (radix + 1) // 4
    a = 2 * p
    routers = math.ceil(ends / p)
    links = routers * (routers - 1) // 2 if routers <= a else math.ceil(routers * ((a - 1) / 2 + h / 2))
    return Bill(routers, ends, links, 1.0, max(1, p // nics))


def torus(nodes: int, dimensions: int = TORUS_DIMENSIONS) -> Bill:
    """No switches, ``d n`` links; its bisection takes ``k d / 4`` as long as injection, k nodes on a side."""
    side = nodes ** (1.0 / dimensions)
    return Bill(0, dimensions * nodes, 0, max(1.0, side * dimensions / 4.0), 1)


def wired(wiring: Wiring, nodes: int, nics: int, radix: int, oversubscription: float = 1.0) -> Bill:
    """The bill of one topology.

    Raises:
        ValueError: the topology cannot join that many nodes.
    """
    if nodes == 1:
        return Bill(0, 0, 0, oversubscription, 1)  # nothing to join
    if wiring == "rail-optimised":
        return rail_optimised(nodes, nics, radix, oversubscription)
    if wiring == "fat-tree":
        return fat_tree(nodes, nics, radix, oversubscription)
    if wiring == "rail-only":
        return rail_only(nodes, nics, radix)
    return dragonfly(nodes, nics, radix) if wiring == "dragonfly" else torus(nodes)


# ---- LIBRA's abstract model ------------------------------------------------------------------------------------------

Tier = Literal["inter-chiplet", "inter-package", "inter-node", "inter-pod"]
LIBRA: dict[Tier, tuple[float, float, float]] = {
    "inter-chiplet": (2.0, 0.0, 0.0),
    "inter-package": (4.0, 13.0, 0.0),
    "inter-node": (4.0, 13.0, 0.0),
    "inter-pod": (7.8, 18.0, 31.6),
}
"""US dollars per GB/s of a link, a switch port and a NIC (astra-sim/libra 4d_cost_model.yml, 2024-05); 0: none."""
LIBRA_INTER_POD = LIBRA["inter-pod"]


def libra_switch_usd(
    endpoints: float, bytes_per_s: float, rates: tuple[float, float, float] = LIBRA_INTER_POD
) -> float:
    """US dollars of a switched dimension: ``n BW (link + switch + NIC)`` (LIBRA, arXiv 2109.11762)."""
    return endpoints * bytes_per_s / 1e9 * sum(rates)


def dimension_usd(topology: Topology, tier: Tier, size: int, blocks: int, bytes_per_s: float) -> float:
    """US dollars of one dimension of a network: ``blocks`` groups of ``size`` ranks, each sending ``BW``.

    A ring or a torus has links of ``size BW`` in all (2 n of BW / 2), a full mesh as much (n (n - 1) of BW / (n - 1)),
    each at the link's price; a switch a link, a port and a NIC for each rank: ``size BW (link + switch + NIC)``.
    """
    rates = LIBRA[tier] if topology == "switch" else (LIBRA[tier][0], 0.0, 0.0)
    return blocks * libra_switch_usd(size, bytes_per_s, rates) if size > 1 else 0.0
