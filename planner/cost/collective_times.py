"""Time of collectives and transfers over a scale-up domain, NICs and a spine.

Conventions: `size` is the whole vector of an all-reduce or a gather, and the send buffer of an all-to-all, in bytes (as
nccl-tests counts). `n` ranks of which `inside` share a scale-up domain; every rank has its own share of the NICs.
A pipelined collective takes ``t = A + x + c sqrt(A x)``: A the latency of its steps, x bytes over bandwidth, c the
ramp.

Overlap follows one law in every kind of parallelism. Communication of x seconds that a runtime starts beside w seconds
of other work hides ``min(share x, w)``: what of it is sent early enough, and never more than there is work. Its kernels
hold a share of the machine meanwhile (the toll), so hiding is never free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost import dimensions
from planner.cost.dimensions import Spans
from planner.cost.figures import Figure, Network


def hidden(seconds: Figure, window: Figure, share: Figure) -> Figure:
    """Seconds of communication that run beside other work: ``min(share x, w)``.

    Arguments:
        seconds: x, what the communication takes alone.
        window: w, seconds of work that the runtime can put beside it.
        share: of the communication, what is sent early enough to hide; 0 where nothing overlaps.
    """
    return np.minimum(share * seconds, np.maximum(window, 0.0))


def shown(seconds: Figure, window: Figure, share: Figure, toll: Figure) -> Figure:
    """Seconds by which communication makes a pass longer: ``x - (1 - toll) min(share x, w)``.

    Never less when the bytes grow, and never less than the toll of what hides. `toll` is the share of the machine that
    the communication's kernels hold; other arguments as in :func:`hidden`.
    """
    return seconds - (1.0 - toll) * hidden(seconds, window, share)


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """Ranks that talk to each other, and how many of them share a scale-up domain."""

    n: Figure
    inside: Figure
    """Members in one domain (1..n)."""
    reach: Figure
    """Accelerators between the first member and the last, in rank order: what decides whether traffic crosses the
    spine."""
    spans: Spans | None = None
    """Members along each dimension, where the network has dimensions."""


def group(network: Network, n: Figure, stride: Figure) -> CollectiveGroup:
    """Ranks `stride` apart: ``inside = clip(floor(domain / stride), 1, n)``."""
    inside = np.minimum(np.maximum(np.floor(network.domain / stride), 1.0), n)
    spans = None if network.dimensions is None else dimensions.spans(network.dimensions, n, stride)
    return CollectiveGroup(n, inside, n * stride, spans)


def product(inner: CollectiveGroup, outer: CollectiveGroup) -> CollectiveGroup:
    """The group spanned by two dimensions."""
    joined = None
    if inner.spans is not None and outer.spans is not None:
        joined = tuple(a * b for a, b in zip(inner.spans, outer.spans, strict=True))
    return CollectiveGroup(inner.n * outer.n, inner.inside * outer.inside, np.maximum(inner.reach, outer.reach), joined)


def parts(g: CollectiveGroup, shards: Figure) -> tuple[CollectiveGroup, CollectiveGroup]:
    """The innermost `shards` of a group, and what is left across them."""
    within = CollectiveGroup(shards, np.minimum(g.inside, shards), g.reach)
    across = CollectiveGroup(g.n / shards, np.maximum(g.inside / shards, 1.0), g.reach)
    if g.spans is None:
        return within, across
    inner, outer = dimensions.part(g.spans, shards)
    return replace(within, spans=inner), replace(across, spans=outer)


def nic_rate(network: Network, g: CollectiveGroup) -> Figure:
    """B/s per rank on the NICs, less where the group reaches beyond a leaf of an oversubscribed fabric."""
    return network.nic * np.where(g.reach > network.leaf, network.spine, 1.0)


def domain_rate(network: Network, g: CollectiveGroup, rate: Figure) -> Figure:
    """B/s per rank in the domain; on a mesh of pair links only those to the group's other members count.

    Where bridges join neighbours in pairs, two neighbours have the bridge and every larger group has not.
    """
    rate = np.where((network.bridged > 0) & (g.reach <= 2), network.pair, rate)
    return np.where(network.mesh > 0, np.minimum(rate, network.pair * np.maximum(g.inside - 1.0, 1.0)), rate)


def pipelined(network: Network, latency: Figure, wire: Figure, n: Figure) -> Figure:
    """``A + x + c sqrt(A x)``; nothing when the group is one rank or there is nothing to move."""
    return (n > 1) * (wire > 0) * (latency + wire + network.pipelining * np.sqrt(latency * wire))


def _ring_latency(network: Network, g: CollectiveGroup) -> Figure:
    """``base + (n - k) a_domain + (k - 1) a_nic`` over k domains."""
    domains = g.n / g.inside
    return network.base + (g.n - domains) * network.scaleup_latency + (domains - 1.0) * network.nic_latency


def gather(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """All-gather or reduce-scatter of `size` bytes by a ring: ``x = (n-1)/n S / min(B_domain, inside B_nic)``."""
    if network.dimensions is not None and g.spans is not None:
        return dimensions.gather(network.dimensions, size, g.spans)
    inside = domain_rate(network, g, network.scaleup)
    rate = np.where(g.n > g.inside, np.minimum(inside, g.inside * nic_rate(network, g)), inside)
    return pipelined(network, _ring_latency(network, g), (g.n - 1.0) / g.n * size / rate, g.n)


def broadcast(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """`size` bytes of one rank to all by a ring: ``x = S / min(B_domain, inside B_nic)``, steps as a gather's.

    (NVIDIA/nccl@5067397, src/graph/tuning.cc: as many steps as ranks.)
    """
    return gather(network, size * g.n / np.maximum(g.n - 1.0, 1.0), g)


def ring_all_reduce(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """A reduce-scatter and an all-gather, each way round the ring; inside one domain at the rate of the in-switch sum.

    ``A = base + 2 steps``, ``x = 2 (n-1)/n S / min(B_domain, inside B_nic)``.
    """
    inside = _reduce_rate(network, g)
    rate = np.where(g.n > g.inside, np.minimum(inside, g.inside * nic_rate(network, g)), inside)
    latency = 2.0 * _ring_latency(network, g) - network.base
    return pipelined(network, latency, 2.0 * (g.n - 1.0) / g.n * size / rate, g.n)


def chain_tree_all_reduce(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """A chain in each domain, a tree across them, as a step is charged for it.

    ``A = base + 2 ((inside-1) a_domain + log2(k) a_nic)``, ``x = S max(2 (inside-1)/inside / B_domain, min(k - 1, 2) /
    (inside B_nic))``: of two domains each sends S up or down; beyond, its latency is what it saves.
    """
    domains = g.n / g.inside
    inside = _reduce_rate(network, g)
    latency = network.base + 2.0 * (
        (g.inside - 1.0) * network.scaleup_latency + np.log2(np.maximum(domains, 1.0)) * network.nic_latency
    )
    wire = np.maximum(
        2.0 * (g.inside - 1.0) / g.inside / inside,
        np.where(domains > 1, np.minimum(domains - 1.0, 2.0) / (g.inside * nic_rate(network, g)), 0.0),
    )
    return pipelined(network, latency, size * wire, g.n)


def all_reduce(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """All-reduce: ``min(ring, chain and tree)``, the in-switch sum inside one domain."""
    if network.dimensions is not None and g.spans is not None:
        return dimensions.all_reduce(network.dimensions, size, g.spans)
    return np.minimum(ring_all_reduce(network, size, g), chain_tree_all_reduce(network, size, g))


def _reduce_rate(network: Network, g: CollectiveGroup) -> Figure:
    return domain_rate(network, g, np.where(g.n > g.inside, network.scaleup, network.scaleup_reduce))


def all_to_all(network: Network, size: Figure, g: CollectiveGroup) -> Figure:
    """Direct all-to-all: the slower of what stays in the domain and what leaves it, ``(n - inside)/n S / B_nic``."""
    if network.dimensions is not None and g.spans is not None:
        return dimensions.all_to_all(network.dimensions, size, g.spans)
    inside = domain_rate(network, g, network.scaleup)
    domains = g.n / g.inside
    near = (g.inside - 1.0) / g.n * size / inside
    far = np.where(domains > 1, (g.n - g.inside) / g.n * size / nic_rate(network, g), 0.0)
    return pipelined(network, _direct_latency(network, g), np.maximum(near, far), g.n)


def _direct_latency(network: Network, g: CollectiveGroup) -> Figure:
    hop = np.where(g.n > g.inside, network.nic_latency, network.scaleup_latency)
    return network.base + hop * np.log2(np.maximum(g.n, 2.0))


def forwarded(network: Network, near: Figure, far: Figure, g: CollectiveGroup) -> Figure:
    """Seconds of a fused dispatcher whose ranks each move `near` bytes over links while `far` cross the NIC."""
    inside = domain_rate(network, g, network.scaleup) * network.dispatch
    outside = nic_rate(network, g) * network.dispatch_nic
    wire = np.maximum(near / inside, np.where(g.n > g.inside, far / outside, 0.0))
    return pipelined(network, _direct_latency(network, g), wire, g.n)


def send(network: Network, size: Figure, stride: Figure, n: Figure) -> Figure:
    """One transfer to the next of `n` ranks `stride` apart: over the pair link, or the NIC where a hop leaves the
    domain.
    """
    if network.dimensions is not None:
        return dimensions.send(network.dimensions, size, dimensions.spans(network.dimensions, n, stride))
    leaves = stride * n > network.domain
    crosses = stride * n > network.leaf
    inside = np.where((network.bridged > 0) & (stride * n > 2), network.scaleup, network.pair)
    rate = np.where(leaves, network.nic * np.where(crosses, network.spine, 1.0), inside)
    latency = np.where(leaves, network.nic_latency, network.scaleup_latency)
    return (n > 1) * (latency + size / rate)


def throughput_gain(share: Figure, speedup: Figure) -> Figure:
    """Throughput gained where a share c of a step gets r times as fast: ``1/(1 - c + c/r) - 1``."""
    return 1.0 / (1.0 - share + share / speedup) - 1.0


def speedup_needed(share: Figure, wanted: Figure) -> Figure:
    """The speed-up that a gain g takes: ``r = c / (c - g / (1 + g))``; infinite unless c is above ``g / (1 + g)``."""
    room = share - wanted / (1.0 + wanted)
    return np.where(room > 0, share / np.where(room > 0, room, 1.0), np.inf)
