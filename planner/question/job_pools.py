"""Pools of unlike nodes, the links between them, and what collectives find where several pools join."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from planner.cost.figures import Network
from planner.schema.hardware import Cluster, Node, Price

ZONE_BANDWIDTH = 10e9 / 8
"""B/s for each node between zones where nothing else is said: assumed."""
ZONE_LATENCY = 1e-3
"""Seconds between zones where nothing else is said: assumed."""


@dataclass(frozen=True, kw_only=True)
class JobPool:
    """Nodes of one kind in one zone."""

    name: str
    cluster: Cluster
    """With all nodes that may be used."""
    price: Price | None = None
    """Per node-hour."""
    sold_as: str = ""
    zone: str = ""
    preemptions_per_node_s: float | None = None
    """How often the owner takes a node back, per second; None: as the request says of all pools."""
    restart_s: float | None = None
    """Seconds until a job goes on after an interruption of this pool; None: as the request says of all pools."""

    @property
    def count(self) -> int:
        """Nodes."""
        return self.cluster.count

    @property
    def per_node(self) -> int:
        """Accelerators in a node."""
        return self.cluster.node.accelerators

    @property
    def usd_per_hour(self) -> float | None:
        """Of one node."""
        return None if self.price is None else float(self.price.usd)


@dataclass(frozen=True, slots=True)
class LinkBetween:
    """What joins two pools."""

    bandwidth: float
    """B/s that one node sends to the other pool."""
    latency: float
    """Seconds from accelerator to accelerator."""
    basis: str
    """Where the figures are from, in words."""


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools of a question and the links between them."""

    all: tuple[JobPool, ...]
    given: Mapping[frozenset[str], LinkBetween] = field(default_factory=dict)

    def merged(self) -> Pools:
        """The pools with those made one that differ in nothing, unless a link was given to them."""
        return Pools(merged(self.all, {name for pair in self.given for name in pair}), self.given)

    def link(self, a: JobPool, b: JobPool) -> LinkBetween:
        """The link that was given, or else the default of :func:`default_link`."""
        return self.given.get(frozenset((a.name, b.name))) or default_link(a, b)


def default_link(a: JobPool, b: JobPool) -> LinkBetween:
    """In one zone the slower node's NICs, between zones 10 Gbit/s a node and 1 ms."""
    slower = min(ports(pool) for pool in (a, b))
    latency = max(pool.cluster.fabric.latency for pool in (a, b))
    if a.zone == b.zone:
        return LinkBetween(slower, latency, "the slower of both nodes' NICs")
    return LinkBetween(min(slower, ZONE_BANDWIDTH), max(latency, ZONE_LATENCY), "assumed between zones")


def ports(pool: JobPool) -> float:
    """B/s of all of a node's NICs, one direction."""
    node = pool.cluster.node
    return max(node.nics, 1) * float(node.nic_bandwidth or pool.cluster.fabric.nic_bandwidth)


def part_of(node: Node, accelerators: int) -> Node:
    """A node, or the part of it that holds so many accelerators, with its share of ports, memory, power and price."""
    if accelerators == node.accelerators:
        return node
    share = accelerators / node.accelerators
    return replace(
        node,
        accelerators=accelerators,
        nics=max(1, round(node.nics * share)),
        host_memory=None if node.host_memory is None else node.host_memory * share,
        max_power=None if node.max_power is None else node.max_power * share,
        prices=tuple(replace(price, usd=price.usd * share) for price in node.prices),
    )


def merged(pools: Sequence[JobPool], linked: Collection[str] = ()) -> tuple[JobPool, ...]:
    """Pools without nodes left out, pools that differ in nothing but their count and name made one.

    Pools whose names are `linked` stay apart: a link that was given says more of them than what they are made of.
    """
    found: list[JobPool] = []
    for pool in pools:
        if pool.count < 1:
            continue
        apart = [{pool.name, known.name} & set(linked) for known in found]
        same = next((i for i, known in enumerate(found) if not apart[i] and _alike(known, pool)), None)
        if same is None:
            found.append(pool)
        else:
            known = found[same]
            found[same] = replace(known, cluster=replace(known.cluster, count=known.count + pool.count))
    return tuple(found)


def _alike(a: JobPool, b: JobPool) -> bool:
    return replace(a, name="", cluster=replace(a.cluster, count=1)) == replace(
        b, name="", cluster=replace(b.cluster, count=1)
    )


def joint(pools: Pools, used: Sequence[JobPool], networks: Sequence[Network], accelerators: float) -> Network:
    """What a collective over all of `used` finds: at every level the slowest of them, and the links between them.

    A ring passes every link, so its slowest one sets the pace: ``B = min over pools and links``. The domain is the
    smallest of the pools' own; none holds copies of two pools (:func:`planner.mixed.batch_shares.across`).
    """
    if len(used) == 1:
        return replace(networks[0], accelerators=accelerators)
    links = [link_between(pools, a, b, networks[i], networks[j]) for (i, a), (j, b) in combinations(enumerate(used), 2)]
    every = [*networks, *links]
    return Network(
        accelerators=accelerators,
        domain=min(n.domain for n in networks),
        scaleup=min(n.scaleup for n in networks),
        scaleup_reduce=min(n.scaleup for n in networks),
        pair=min(n.pair for n in networks),
        mesh=max(n.mesh for n in networks),
        bridged=0.0,
        scaleup_latency=max(n.scaleup_latency for n in networks),
        nic=min(n.nic for n in every),
        nic_latency=max(n.nic_latency for n in every),
        spine=min(n.spine for n in networks),
        leaf=min(n.leaf for n in networks),
        base=max(n.base for n in networks),
        pipelining=max(n.pipelining for n in networks),
    )


def link_between(pools: Pools, a: JobPool, b: JobPool, mine: Network, theirs: Network) -> Network:
    """The link between two pools as a network in which every hop leaves its domain.

    What an accelerator gets of it: ``B_link / accelerators of a node``, times the share that software reaches of NICs.
    """
    link = pools.link(a, b)
    reach = min(n.nic / (ports(p) / p.per_node) for p, n in ((a, mine), (b, theirs)))
    slower = mine if mine.nic <= theirs.nic else theirs
    each = min(link.bandwidth / pool.per_node for pool in (a, b)) * reach
    return replace(slower, domain=1, nic=each, nic_latency=link.latency, spine=1.0, dimensions=None)
