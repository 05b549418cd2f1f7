"""What machines draw, and what that costs and emits where they stand."""

from __future__ import annotations

from planner.cost import money
from planner.procurement.question.portfolio import Portfolio
from planner.schema.hardware import Cluster, Node, Region

SERVER_POWER = 1.8
"""Power of a server over that of its accelerators where none is stated (Epoch AI, cost code)."""
UNKNOWN_TDP = 400.0
"""Watts of an accelerator that no source gives."""


def node_power(node: Node, cluster: Cluster) -> float:
    """Watts that a node draws at most; where no source says, its accelerators times what a server adds."""
    return node.max_power or node.accelerators * (cluster.accelerator.tdp or UNKNOWN_TDP) * SERVER_POWER


def pue(cluster: Cluster) -> float:
    """Facility power over IT power where a cluster stands."""
    return cluster.region.pue if cluster.region else Region.pue


def joules_per_day(load: float, cluster: Cluster, network_w: float, nodes: int) -> float:
    """Joules at the plug of a day of training: ``(nodes power load + network) PUE 86400``."""
    watts = money.power(nodes, node_power(cluster.node, cluster), load, pue(cluster))
    return float(watts + network_w * pue(cluster)) * money.DAY_S


def energy_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """US dollars of electricity for a day of training."""
    region = cluster.region
    joules = joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.electricity(joules, region.electricity)) if region else 0.0


def carbon_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """Kilograms of CO2 equivalent of a day of training."""
    region = cluster.region
    joules = joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.carbon(joules, region.carbon)) if region else 0.0
