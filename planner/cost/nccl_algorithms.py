"""Collectives by algorithm and by protocol: what each would take, so that the fastest can be named.

:func:`times` is the way in. An algorithm is a function of links, bytes and a group, in seconds; a protocol is a way to
use the links: its own latencies, share of their rates, and ramp. `Network` holds what a library reaches when it picks
its protocol well, so the functions of :mod:`planner.cost.collective_times`, which price training steps, are these
algorithms under that envelope.

Sizes count as in that module: the whole vector of an all-reduce, gather, scatter, broadcast or reduce; the send buffer
of an all-to-all; one message of a send. n ranks, i of them in each of k = n / i domains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner.cost import collective_times, dimensions
from planner.cost.collective_times import CollectiveGroup, domain_rate, nic_rate, pipelined
from planner.cost.figures import Array, Dimensions, Figure, Network

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send")
PROTOCOLS = ("LL", "LL128", "Simple")
NCCL_ALGORITHMS = ("ring", "tree", "nvls", "nvls_tree", "collnet_chain", "pat")
"""Algorithms that NCCL has, by the names it gives them; the others need another library, or code of one's own."""

_LATENCIES = {"LL": (1.0, 1.0), "LL128": (14.0 / 6.6, 1.9 / 0.6), "Simple": (8.4 / 6.6, 3.4 / 0.6)}
"""Protocol -> its start and its step in a domain over those of LL: NCCL's constants of a ring on NVLink
(src/graph/tuning.cc, v2.30.7)."""
HOPS = {"LL": 1.0, "LL128": 1.7, "Simple": 2.8}
"""Protocol -> its step between domains over that of LL: NCCL's constants of a tree on a network (the same)."""
_SHARES = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""Protocol -> bytes of data over bytes on the wire, at most: flags take half of LL and 8 of 128 bytes of LL128."""
_SWITCH = (8 + 1) / (2 * (8 - 1))
"""An adding switch's rate over a Network's `scaleup_reduce`, which is that of a ring of 8 ranks that took as long:
``2 (n-1)/n S / B_ring = (n+1)/n S / B_switch``."""
_ADDS = 1.1
"""A reduce rate so much above the gather's shows that the switch adds."""
PAT_SHARE, PAT_RANK = 0.75, 2.8e-6
"""NCCL's constants of PAT: share of the ring's rate, seconds per rank of its linear part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Protocol:
    """How one protocol of a library uses links. SI; every figure a number or an array."""

    name: str
    base: Figure
    """Seconds before the first step."""
    step: Figure
    """Seconds of a step inside a domain."""
    hop: Figure
    """Seconds of a step between domains."""
    rate: Figure
    """B/s per accelerator in a domain of many, of data."""
    few: Figure = 0.0
    """What few ranks lose of that."""
    crowding: Figure = 0.0
    """What more ranks lose on shared links: ``B(i) = rate (1 - few / i) (2 / i)^crowding``."""
    share: Figure = 1.0
    """Data over bytes on the wire, of the NICs and pair links."""
    nic: Figure = 0.0
    """B/s per accelerator on the NICs, of bytes on the wire; 0: the network's."""
    ramp: Figure = 0.0
    """What filling a pipeline costs: c in ``A + x + c sqrt(A x)``."""
    far_ramp: Figure = 0.0
    """Ramp of groups that span domains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveLibrary:
    """A collective library on one kind of system."""

    protocols: Mapping[str, tuple[Protocol, ...]]
    """By operation."""
    switch: Figure = 0.0
    """B/s per accelerator through a scale-up switch that adds (NVLS); 0 where it does not."""
    switch_step: Figure = 0.0
    """Seconds of a step through it."""
    in_network: bool = False
    """Whether the switches between domains add (SHARP): CollNet."""


def generic(network: Network) -> CollectiveLibrary:
    """NCCL's protocols in the proportions of its own constants, scaled to what the network reaches.

    The envelope's latencies are those of LL, which is what small messages take; its rate is Simple's.
    """
    adds = network.scaleup_reduce > _ADDS * network.scaleup

    def protocol(name: str, rate: Figure) -> Protocol:
        base, step = _LATENCIES[name]
        return Protocol(
            name=name,
            base=base * network.base,
            step=step * network.scaleup_latency,
            hop=HOPS[name] * network.nic_latency,
            rate=_SHARES[name] * rate,
            share=_SHARES[name],
            far_ramp=network.pipelining,
        )

    ring = tuple(protocol(name, network.scaleup) for name in PROTOCOLS)
    return CollectiveLibrary(
        protocols=dict.fromkeys(OPERATIONS, ring),
        switch=np.where(adds, _SWITCH * network.scaleup_reduce, 0.0),
        switch_step=25.0 / 0.6 * network.scaleup_latency,
    )


def times(
    network: Network,
    op: str,
    size: Figure,
    g: CollectiveGroup,
    library: CollectiveLibrary | None = None,
    among: Collection[str] | None = None,
) -> dict[tuple[str, str], Array]:
    """Seconds of one operation by every algorithm and protocol that a group allows.

    Arguments:
        network: the links (:func:`planner.figures.cost_inputs.network`); divide them among groups that use them at
            once with :func:`shared`.
        op: one of :data:`OPERATIONS`.
        size: bytes (see the module), any shape.
        g: the ranks (:func:`planner.cost.collective_times.group`), figures that broadcast against `size`.
        library: what a fit found for the system (:func:`planner.figures.cost_inputs.library`); else
            :func:`generic`.
        among: names of the algorithms to price, such as :data:`NCCL_ALGORITHMS`; else all there are.

    Returns:
        ``{(algorithm, protocol): seconds}``, arrays of the common shape, ``inf`` where a group does not allow the
        algorithm; what no element allows is left out. One rank takes no time. A network of dimensions has one
        algorithm, that which steps are priced with.

    Raises:
        KeyError: no such operation; no broadcast or reduce over dimensions.
        ValueError: a group that does not say its ranks along each dimension.
    """
    if network.dimensions is not None:
        return _over_dimensions(network.dimensions, op, size, g, among)
    used = library or generic(network)
    shape = np.broadcast_shapes(*(np.shape(x) for x in (size, g.n, g.inside, g.reach)))
    by_method: dict[tuple[str, str], Array] = {}
    for protocol in used.protocols[op]:
        links = under(network, protocol, g)
        for algorithm in ALGORITHMS[op]:
            if protocol.name in algorithm.protocols and (among is None or algorithm.name in among):
                legal = algorithm.legal(used, g) & np.ones(shape, dtype=bool)
                if legal.any():
                    seconds = algorithm.time(links, used, size, g)
                    by_method[algorithm.name, protocol.name] = np.where(legal, seconds, np.inf)
    return by_method


BY_DIMENSION = "by-dimension"
"""The one algorithm over dimensions: scattered from one to the next, and gathered on the way back."""
_CLIMBING = {
    "all-reduce": dimensions.all_reduce,
    "all-gather": dimensions.gather,
    "reduce-scatter": dimensions.gather,
    "all-to-all": dimensions.all_to_all,
    "send": dimensions.send,
}


def _over_dimensions(
    network: Dimensions, op: str, size: Figure, g: CollectiveGroup, among: Collection[str] | None
) -> dict[tuple[str, str], Array]:
    if g.spans is None:
        raise ValueError("over dimensions a group states ranks along each: collective_times.group(network, n, stride)")
    seconds = np.asarray(_CLIMBING[op](network, size, g.spans))
    return {(BY_DIMENSION, ""): seconds} if among is None or BY_DIMENSION in among else {}


def under(network: Network, protocol: Protocol, g: CollectiveGroup) -> Network:
    """The links as one protocol finds them."""
    several = np.maximum(g.inside, 2.0)
    lost = (1.0 - protocol.few / several) * (2.0 / several) ** protocol.crowding
    rate = protocol.rate * np.where(g.inside > 1, lost, 1.0)
    return replace(
        network,
        base=protocol.base,
        scaleup_latency=protocol.step,
        nic_latency=protocol.hop,
        scaleup=rate,
        scaleup_reduce=rate,
        pair=network.pair * protocol.share,
        nic=np.where(protocol.nic > 0, protocol.nic, network.nic) * protocol.share,
        pipelining=np.where(g.n > g.inside, protocol.far_ramp, protocol.ramp),
    )


def shared(network: Network, domain: Figure = 1.0, nic: Figure = 1.0) -> Network:
    """The links as each of several groups finds them that use them at the same time: rates divided by their number."""
    return replace(
        network,
        scaleup=network.scaleup / domain,
        scaleup_reduce=network.scaleup_reduce / domain,
        pair=network.pair / domain,
        nic=network.nic / nic,
    )


def least(network: Network, op: str, size: Figure, g: CollectiveGroup, in_switch: bool = False) -> Figure:
    """Seconds that no algorithm undercuts: what every rank, domain and leaf must send over the links it has.

    Gather or scatter: ``S max((n-1)/n / (B + B_nic), (k-1)/k / (i B_nic), (m-1)/m / (i j B_spine))``; all-reduce twice
    that, or ``S max(1 / (B + B_nic), 1 / (i B_nic))`` where a switch adds; all-to-all ``S max((n-1)/n / (B + B_nic),
    (n-i)/n / B_nic, (n-ij)/n / B_spine)``; broadcast and reduce ``S / n / (B + B_nic)``, as each rank relays a part.
    """
    k = g.n / g.inside
    i, j, m = _levels(network, g)
    spine = network.nic * network.spine
    inside = domain_rate(network, g, np.maximum(network.scaleup, network.scaleup_reduce))
    links = inside + np.where(k > 1, network.nic, 0.0)
    if op == "send":
        wire = 1.0 / np.maximum(np.maximum(network.pair, network.scaleup), network.nic)
    elif op == "all-to-all":
        wire = np.maximum((g.n - 1.0) / g.n / links, np.where(k > 1, (g.n - i) / g.n / network.nic, 0.0))
        wire = np.maximum(wire, np.where(m > 1, (g.n - i * j) / g.n / spine, 0.0))
    elif op in ("broadcast", "reduce"):
        wire = 1.0 / g.n / links
    elif in_switch:
        wire = np.maximum(1.0 / links, np.where(k > 1, 1.0 / (i * network.nic), 0.0))
    else:
        wire = np.maximum((g.n - 1.0) / g.n / links, np.where(k > 1, (k - 1.0) / k / (i * network.nic), 0.0))
        wire = np.maximum(wire, np.where(m > 1, (m - 1.0) / m / (i * j * spine), 0.0))
        wire = wire * (2.0 if op == "all-reduce" else 1.0)
    return np.where(g.n > 1, wire * size, 0.0)


def busiest(traffic: Array) -> Array:
    """The size that prices an uneven all-to-all: ``S = max over ranks of max(sent, received)``.

    `traffic` has the shape (..., n, n): bytes from row to column; what stays on a rank does not count. The diagonal's
    share is given back, ``n / (n - 1)``, as an even exchange counts its whole send buffer.
    """
    n = traffic.shape[-1]
    off = traffic * (1.0 - np.eye(n))
    most = np.maximum(off.sum(axis=-1), off.sum(axis=-2)).max(axis=-1)
    return np.asarray(most * n / max(n - 1, 1))


def _levels(network: Network, g: CollectiveGroup) -> tuple[Figure, Figure, Figure]:
    """Ranks in a domain, domains below a leaf, leaves: ``n = i j m``."""
    k = g.n / g.inside
    below = np.clip(np.floor(network.leaf * g.n / np.maximum(g.reach, 1.0) / g.inside), 1.0, k)
    return g.inside, below, k / below


def _log2(count: Figure) -> Figure:
    """Rounds that reach `count` ranks by doubling."""
    return np.ceil(np.log2(np.maximum(count, 1.0)) - 1e-9)


def _tree_latency(network: Network, g: CollectiveGroup) -> Figure:
    """A chain in each domain, a tree across: ``(i - 1) a_domain + log2(k) a_nic``."""
    return (g.inside - 1.0) * network.scaleup_latency + _log2(g.n / g.inside) * network.nic_latency


def double_tree(network: Network, size: Figure, g: CollectiveGroup, passes: float) -> Figure:
    """Two complementary binary trees across domains, chains inside.

    ``A = base + p ((i-1) a_domain + log2(k) a_nic)``

    All-reduce (p = 2): ``x = S max(2 (i-1)/i / B, min(k - 1, 2) / (i B_nic))``: of two domains each
    sends S / 2 up and S / 2 down; of more, one that has two children sends 2 S. Broadcast, reduce (p = 1): every rank
    relays the whole, ``x = S max(1 / B, 1 / (i B_nic))``.
    """
    k = g.n / g.inside
    inside = domain_rate(network, g, network.scaleup)
    nic = g.inside * nic_rate(network, g)
    both = passes > 1
    near = np.where(g.inside > 1, (2.0 * (g.inside - 1.0) / g.inside if both else 1.0) / inside, 0.0)
    far = np.where(k > 1, (np.minimum(k - 1.0, 2.0) if both else 1.0) / nic, 0.0)
    latency = network.base + passes * _tree_latency(network, g)
    return pipelined(network, latency, size * np.maximum(near, far), g.n)


def ring_relay(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """Broadcast or reduce along a ring.

    ``A = base + (n - k) a_domain + (k-1) a_nic``, ``x = S / min(B, i B_nic)``
    """
    k = g.n / g.inside
    inside = domain_rate(network, g, network.scaleup)
    rate = np.where(k > 1, np.minimum(inside, g.inside * nic_rate(network, g)), inside)
    latency = network.base + (g.n - k) * network.scaleup_latency + (k - 1.0) * network.nic_latency
    return pipelined(network, latency, size / rate, g.n)


def halving_doubling(network: Network, size: Figure, g: CollectiveGroup, passes: float) -> Figure:
    """Recursive halving, then doubling, nearest ranks first: ``A = base + p (log2(i) a_domain + log2(k) a_nic)``.

    ``x = p ((i-1)/i S / B + (k-1)/k S / (i B_nic))``. Ranks beyond a power of two send to a partner first and receive
    from it last: one more step and S more bytes each way.
    """
    k = g.n / g.inside
    inside = domain_rate(network, g, network.scaleup)
    nic = nic_rate(network, g)
    steps = _log2(g.inside) * network.scaleup_latency + _log2(k) * network.nic_latency
    wire = (g.inside - 1.0) / g.inside * size / inside + np.where(k > 1, (k - 1.0) / k * size / g.inside / nic, 0.0)
    odd: Figure = np.exp2(_log2(g.n)) > g.n + 0.5
    fold = np.where(odd, np.where(k > 1, network.nic_latency, network.scaleup_latency), 0.0)
    extra = np.where(odd, size / np.where(k > 1, nic, inside), 0.0)
    return pipelined(network, network.base + passes * (steps + fold), passes * (wire + extra), g.n)


def rings_2d(network: Network, size: Figure, g: CollectiveGroup, passes: float) -> Figure:
    """Rings inside domains, then rings across them on a share each, one after the other.

    ``A = base + p ((i-1) a_domain + (k-1) a_nic)``, ``x = p ((i-1)/i S / B + (k-1)/k S / (i B_nic))``.
    """
    k = g.n / g.inside
    inside = domain_rate(network, g, network.scaleup)
    wire = (g.inside - 1.0) / g.inside * size / inside + np.where(
        k > 1, (k - 1.0) / k * size / g.inside / nic_rate(network, g), 0.0
    )
    latency = network.base + passes * ((g.inside - 1.0) * network.scaleup_latency + (k - 1.0) * network.nic_latency)
    return pipelined(network, latency, passes * wire, g.n)


def hierarchical(network: Network, size: Figure, g: CollectiveGroup, passes: float) -> Figure:
    """Scatter in the domain, below each leaf, then across leaves, and back, chunks overlapping: the slowest counts.

    ``A = base + p ((i-1) a_domain + log2(j) a_nic + log2(m) a_nic)``, ``x = p max((i-1)/i S / B, (k-1)/k S / (i B_nic),
    (m-1)/m S / (i j B_spine))`` for i ranks in a domain, j domains below a leaf, m leaves. A port carries both of the
    outer phases; only what leaves a leaf meets the spine's oversubscription.
    """
    i, j, m = _levels(network, g)
    inside = domain_rate(network, g, network.scaleup)
    wire = np.maximum(
        (i - 1.0) / i / inside,
        np.where(j * m > 1, (j * m - 1.0) / (j * m) / (i * network.nic), 0.0),
    )
    wire = np.maximum(wire, (m - 1.0) / m / (i * j * network.nic * network.spine))
    hops = (_log2(j) + _log2(m)) * network.nic_latency
    latency = network.base + passes * ((i - 1.0) * network.scaleup_latency + hops)
    return pipelined(network, latency, passes * wire * size, g.n)


def in_switch(network: Network, library: CollectiveLibrary, size: Figure, g: CollectiveGroup) -> Figure:
    """The scale-up switch adds and multicasts (NVLS): ``A = base + a_switch``, ``x = (n+1)/n S / B_switch``.

    Each rank is read once for the sums of all, and sends its own n-th of the result. Across domains (NVLS tree): a
    tree of the domains beside it, ``2 log2(k) a_nic`` and ``min(k - 1, 2) S / (i B_nic)``.
    """
    k = g.n / g.inside
    rate: Figure = np.where(library.switch > 0, library.switch, np.nan)
    wire = (g.inside + 1.0) / g.inside / rate
    far = np.where(k > 1, np.minimum(k - 1.0, 2.0) / (g.inside * nic_rate(network, g)), 0.0)
    latency = network.base + library.switch_step + 2.0 * _log2(k) * network.nic_latency
    return pipelined(network, latency, size * np.maximum(wire, far), g.n)


def in_network(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """The fabric's switches add (CollNet, SHARP): ``A = base + 2 (i-1) a_domain + 2 a_nic``, each NIC sends S / i.

    ``x = S max(2 (i-1)/i / B, 1 / (i B_nic))``: half of what a ring sends.
    """
    inside = domain_rate(network, g, network.scaleup)
    latency = network.base + 2.0 * ((g.inside - 1.0) * network.scaleup_latency + network.nic_latency)
    wire = np.maximum(2.0 * (g.inside - 1.0) / g.inside / inside, 1.0 / (g.inside * nic_rate(network, g)))
    return pipelined(network, latency, size * wire, g.n)


def pat(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """Parallel aggregated trees, one rank a domain: ``A = base + log2(n) a_nic / 3.5 + 2.8 us n``.

    ``x = (n-1)/n S / (0.75 B_nic)``.
    """
    latency = network.base + _log2(g.n) * network.nic_latency / 3.5 + PAT_RANK * g.n
    return pipelined(network, latency, (g.n - 1.0) / g.n * size / (PAT_SHARE * nic_rate(network, g)), g.n)


def hierarchical_exchange(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """All-to-all in the domain, then along rails, messages i times as large: ``A = base + log2(i) a + log2(k) a_nic``.

    ``x = (i-1)/i S / B + (k-1)/k S / B_nic``.
    """
    k = g.n / g.inside
    inside = domain_rate(network, g, network.scaleup)
    wire = (g.inside - 1.0) / g.inside * size / inside + np.where(
        k > 1, (k - 1.0) / k * size / nic_rate(network, g), 0.0
    )
    steps = _log2(g.inside) * network.scaleup_latency + _log2(k) * network.nic_latency
    return pipelined(network, network.base + steps, wire, g.n)


def direct_two_phase(network: Network, size: Figure, g: CollectiveGroup, reduction: Figure = 0.0) -> Figure:
    """Every rank writes its pieces to their owners, which add and write the sums to all (GDRAA).

    ``A = base + 2 a_sync`` whatever n is; ``x = 2 max((i-1)/n S / B, (n-i)/n S / B_nic) + reduction S``, with
    `reduction` the seconds that adding takes per byte. It needs a fabric that takes many senders to one port.
    """
    far = g.n > g.inside
    inside = domain_rate(network, g, network.scaleup)
    near = (g.inside - 1.0) / g.n / inside
    away = np.where(far, (g.n - g.inside) / g.n / nic_rate(network, g), 0.0)
    sync: Figure = np.where(far, network.nic_latency, network.scaleup_latency)
    wire = (2.0 * np.maximum(near, away) + reduction) * size
    return pipelined(network, network.base + 2.0 * sync, wire, g.n)


def parameter_server(network: Network, size: Figure, g: CollectiveGroup, servers: Figure = 1.0) -> Figure:
    """Gradients to p servers and weights back: ``A = base + 2 a``, ``x = max(2 n S / (p B), 2 S / B)``.

    Every rank is a worker; servers stand beside them with one port each.
    """
    far = g.n > g.inside
    rate = np.where(far, nic_rate(network, g), domain_rate(network, g, network.scaleup))
    step: Figure = np.where(far, network.nic_latency, network.scaleup_latency)
    wire = 2.0 * np.maximum(g.n / servers, 1.0) * size / rate
    return pipelined(network, network.base + 2.0 * step, wire, g.n)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an operation."""

    name: str
    time: Callable[[Network, CollectiveLibrary, Figure, CollectiveGroup], Figure]
    """Seconds over links as a protocol finds them."""
    legal: Callable[[CollectiveLibrary, CollectiveGroup], Figure] = lambda library, g: True
    protocols: tuple[str, ...] = PROTOCOLS


_SIMPLE = ("Simple",)


def _spans(library: CollectiveLibrary, g: CollectiveGroup) -> Figure:
    return g.n > g.inside


def _switch_inside(library: CollectiveLibrary, g: CollectiveGroup) -> Figure:
    return (library.switch > 0) & (g.inside >= g.n) & (g.n > 1)


def _switch_across(library: CollectiveLibrary, g: CollectiveGroup) -> Figure:
    return (library.switch > 0) & (g.inside > 1) & (g.n > g.inside)


def _adding_fabric(library: CollectiveLibrary, g: CollectiveGroup) -> Figure:
    return (g.n > g.inside) & library.in_network


def _one_a_domain(library: CollectiveLibrary, g: CollectiveGroup) -> Figure:
    return (g.inside <= 1) & (g.n > 1)


def _split(passes: float) -> tuple[Algorithm, ...]:
    """What scatters and gathers, once or both."""
    return (
        Algorithm("halving_doubling", lambda net, lib, size, g: halving_doubling(net, size, g, passes)),
        Algorithm("rings_2d", lambda net, lib, size, g: rings_2d(net, size, g, passes), _spans),
        Algorithm("hierarchical", lambda net, lib, size, g: hierarchical(net, size, g, passes), _spans),
    )


_GATHER = (
    Algorithm("ring", lambda net, lib, size, g: collective_times.gather(net, size, g)),
    *_split(1.0),
    Algorithm("pat", lambda net, lib, size, g: pat(net, size, g), _one_a_domain, _SIMPLE),
)
_RELAY = (
    Algorithm("ring", lambda net, lib, size, g: ring_relay(net, size, g)),
    Algorithm("tree", lambda net, lib, size, g: double_tree(net, size, g, 1.0)),
)
ALGORITHMS: Mapping[str, tuple[Algorithm, ...]] = {
    "all-reduce": (
        Algorithm("ring", lambda net, lib, size, g: collective_times.ring_all_reduce(net, size, g)),
        Algorithm("tree", lambda net, lib, size, g: double_tree(net, size, g, 2.0)),
        *_split(2.0),
        Algorithm("nvls", in_switch, _switch_inside, _SIMPLE),
        Algorithm("nvls_tree", in_switch, _switch_across, _SIMPLE),
        Algorithm("collnet_chain", lambda net, lib, size, g: in_network(net, size, g), _adding_fabric, _SIMPLE),
        Algorithm("direct_two_phase", lambda net, lib, size, g: direct_two_phase(net, size, g), protocols=_SIMPLE),
        Algorithm("parameter_server", lambda net, lib, size, g: parameter_server(net, size, g), protocols=_SIMPLE),
    ),
    "all-gather": _GATHER,
    "reduce-scatter": _GATHER,
    "all-to-all": (
        Algorithm("direct", lambda net, lib, size, g: collective_times.all_to_all(net, size, g)),
        Algorithm("hierarchical", lambda net, lib, size, g: hierarchical_exchange(net, size, g), _spans),
    ),
    "broadcast": _RELAY,
    "reduce": _RELAY,
    "send": (Algorithm("direct", lambda net, lib, size, g: collective_times.send(net, size, g.reach / g.n, g.n)),),
}
"""Operation -> the ways to do it."""
