"""What a published run ran on: the usual node of its accelerator, with the ports and the network of its row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, whole
from planner.catalog import Catalog
from planner.schema.hardware import Cluster, Fabric, Node

NETWORKS = (
    (r"tcpxo", "gcp-tcpxo"),
    (r"tcpx", "gcp-tcpx"),
    (r"\befa\b", "efa"),
    (r"\broce", "roce"),
    (r"slingshot", "slingshot"),
    (r"infiniband|\bib\b|omni-?path", "infiniband"),
)
"""What a row calls its network -> a fabric, or a kind of fabrics. (Omni-Path is an InfiniBand of its port's rate: no
timing of its own collectives is known here.)"""


def cluster_of(row: Mapping[str, str], catalog: Catalog, accelerator: str, n: int, inferred: list[str]) -> Cluster:
    """The usual node of that accelerator, with the accelerators, ports and network that the row states.

    Arguments:
        row: a published run.
        catalog: of nodes and fabrics.
        accelerator: its id in the catalog.
        n: how many took part.
        inferred: what is taken of the usual node is added to it.

    Raises:
        Unpredictable: no node of the catalog has that accelerator.
    """
    part = catalog.accelerator(accelerator)
    name = names.NODES.get(accelerator)
    if name is None:
        name = next((key for key, node in catalog.nodes.items() if node.accelerator == accelerator), None)
    if name is None:
        raise Unpredictable(f"no node with {accelerator} in the catalog")
    node = catalog.node(name)
    network = row.get("inter_node_network") or ""
    per_node = whole(row, "accelerators_per_node") or node.accelerators
    if node.kind == "rack":
        per_node = next((d for d in (72, 64) if n % d == 0), min(n, 72)) if n > 72 else n
    elif per_node != node.accelerators and node.nics:
        node = replace(node, nics=max(1, node.nics * per_node // node.accelerators))
    if node.kind != "rack":
        ports = _ports(network, per_node, node.nics)
        if ports is not None:
            node = replace(node, nics=ports[0], nic_bandwidth=ports[1] * 1e9 / 8)
        elif n > per_node:
            unread = f"inter_node_network {network!r:.60} was not read, " if network else ""
            inferred.append(f"{unread}ports: those of a usual {name}")
    fabric = _fabric(catalog, node, network)
    if fabric.kind == "ici":
        fabric = replace(fabric, leaf_nodes=_slice(row, fabric.leaf_nodes * node.accelerators, n) // per_node)
    count = max(1, -(-n // per_node))
    return Cluster(node=replace(node, accelerators=per_node), accelerator=part, count=count, fabric=fabric)


def _ports(network: str, per_node: int, usual: int) -> tuple[int, float] | None:
    """How many ports a node has and Gbit/s of each: ``8x400 Gb``, ``400 Gb/s per GPU``, ``1600 Gb/s per node``."""
    if "Storage" in network or "Management" in network:  # several networks, of which this is not the first
        return None
    text = network.replace(",", "")
    ports = re.search(r"([1-9]\d*) ?x ?([1-9]\d*) ?Gb", text)
    if ports:
        return int(ports[1]), float(ports[2])
    rate = re.search(r"([1-9]\d*) ?Gb(?:it)?/s per (GPU|node)", text)
    if rate is None:
        return None
    many = per_node if rate[2] == "GPU" else usual or 1
    return many, float(rate[1]) / (1 if rate[2] == "GPU" else many)


def _fabric(catalog: Catalog, node: Node, network: str) -> Fabric:
    """That which the row names: of its kind the nearest port rate; of two like ones that of a node with the same
    accelerator.
    """
    usual = catalog.fabric(node.fabric or "infiniband-ndr")
    called = next((means for pattern, means in NETWORKS if re.search(pattern, network, re.IGNORECASE)), usual.kind)
    if called == usual.kind or node.kind == "rack":
        return usual
    if called in catalog.fabrics:
        return catalog.fabric(called)
    rate = node.nic_bandwidth or usual.nic_bandwidth
    alike = {each.fabric for each in catalog.nodes.values() if each.accelerator == node.accelerator}
    kind = [fabric for fabric in catalog.fabrics.values() if fabric.kind == called]
    return min(kind, key=lambda fabric: (abs(fabric.nic_bandwidth - rate), fabric.id not in alike))


def _slice(row: Mapping[str, str], pod: int, n: int) -> int:
    """Chips of one TPU slice, a scale-up domain: what parameters are sharded over within it, times tp; else the pod."""
    stated = re.search(r"within slice \((\d+)\)", row.get("sharding") or "")
    inside = int(stated[1]) * (whole(row, "tp") or 1) if stated else pod
    return inside if n % inside == 0 else min(pod, n)
