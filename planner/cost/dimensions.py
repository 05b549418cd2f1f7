"""Collectives over a network of up to four dimensions, innermost first: rings, switches, full meshes and tori.

A message climbs: dimension by dimension it is scattered, so that the next one moves an n-th of it, and gathered on the
way back (Themis, LIBRA). Of S bytes over n_d ranks an all-reduce moves ``2 S_d (n_d - 1) / n_d``, with
``S_{d+1} = S_d / n_d``. Cut into c chunks, dimensions work at once: ``t = sum A_d + (sum x_d + (c - 1) max x_d) / c``,
with x bytes over bandwidth and A the latency of a dimension's steps. One chunk is one dimension after the other, many
are the slowest alone. A group on part of a ring or a mesh is taken to reach all of its ranks' bandwidth, through ranks
that are not in it, as LIBRA and ASTRA-sim's analytical back end take it. Nothing to move takes no time.
"""

from __future__ import annotations

import numpy as np

from planner.cost.figures import Dimensions, Figure, NetworkDimension

SWITCH_HOPS = 2.0
"""A message passes a switch's link in and its link out."""


Spans = tuple[Figure, ...]
"""Ranks of a group along each dimension."""


def spans(network: Dimensions, n: Figure, stride: Figure) -> Spans:
    """Ranks along each dimension of n ranks `stride` apart, P_d the product of the sizes below:
    ``clip(P_{d+1} / stride, 1, n) / clip(P_d / stride, 1, n)``.
    """
    members = []
    below = 1.0
    for dimension in network.along:
        inner = np.clip(below / stride, 1.0, n)
        below = below * dimension.size
        members.append(np.clip(below / stride, 1.0, n) / inner)
    # What lies beyond the last dimension is still there: a group never loses ranks.
    members[-1] = members[-1] * n / np.clip(below / stride, 1.0, n)
    return tuple(members)


def part(whole: Spans, n: Figure) -> tuple[Spans, Spans]:
    """The innermost n ranks of a group, and the ranks that are left across them."""
    within = []
    left = n
    for span in whole:
        taken = np.clip(left, 1.0, span)
        within.append(taken)
        left = left / taken
    return tuple(within), tuple(span / taken for span, taken in zip(whole, within, strict=True))


def steps(d: NetworkDimension, n: Figure) -> Figure:
    """Hops, one after the other, of scattering or gathering over n ranks: ring ``n - 1``, switch ``2 log2 n``
    (halving), full mesh 1 (direct), torus ``2 (sqrt n - 1)`` (its sides in turn).
    """
    if d.topology == "ring":
        return n - 1.0
    if d.topology == "switch":
        return SWITCH_HOPS * np.log2(n)
    return 1.0 * (n > 1) if d.topology == "fully-connected" else 2.0 * (np.sqrt(n) - 1.0)


def _time(network: Dimensions, seconds: list[Figure], latency: list[Figure]) -> Figure:
    """``sum A_d + (sum x_d + (c - 1) max x_d) / c``."""
    total = seconds[0]
    longest = seconds[0]
    late = latency[0]
    for x, a in zip(seconds[1:], latency[1:], strict=True):
        total = total + x
        longest = np.maximum(longest, x)
        late = late + a
    return late + (total + (network.chunks - 1.0) * longest) / network.chunks


def _climbing(network: Dimensions, size: Figure, group: Spans, ways: float) -> Figure:
    seconds = []
    latency = []
    some = np.greater(size, 0.0)
    for dimension, n in zip(network.along, group, strict=True):
        seconds.append(ways * size * (n - 1.0) / n / dimension.rate)
        latency.append(some * ways * steps(dimension, n) * dimension.latency)
        size = size / n
    return _time(network, seconds, latency)


def all_reduce(network: Dimensions, size: Figure, group: Spans) -> Figure:
    """Seconds to add `size` bytes of every rank up on all: ``2 S_d (n_d - 1) / n_d`` bytes along each dimension."""
    return _climbing(network, size, group, 2.0)


def gather(network: Dimensions, size: Figure, group: Spans) -> Figure:
    """Seconds to gather `size` bytes from all ranks, or scatter them: ``S_d (n_d - 1) / n_d`` along each dimension."""
    return _climbing(network, size, group, 1.0)


def carried(d: NetworkDimension, n: Figure, *, shared: bool = True) -> Figure:
    """What a rank's links carry in an all-to-all over n ranks, over its send buffer: ``(n - 1) / n``, its own messages.

    Links of a ring and of a torus carry others' messages too, by the shortest ways: ``floor(n^2 / 4) / n`` and
    ``2 floor(n / 4) / sqrt(n)``. Not `shared`: every message has its way to itself, as the closed formulas take it.
    """
    sent_share = (n - 1.0) / n
    if not shared or d.topology not in ("ring", "torus"):
        return sent_share
    passed = np.floor(n * n / 4.0) / n if d.topology == "ring" else 2.0 * np.floor(n / 4.0) / np.sqrt(n)
    return np.maximum(sent_share, passed)


def all_to_all(network: Dimensions, size: Figure, group: Spans, *, shared: bool = True) -> Figure:
    """Seconds of an all-to-all of a send buffer of `size` bytes: ``S c_d / B_d`` along every dimension.

    ``c_d``: what links carry of it (:func:`carried`), `shared` in what plans are charged.
    """
    seconds = []
    latency = []
    for dimension, n in zip(network.along, group, strict=True):
        seconds.append(size * carried(dimension, n, shared=shared) / dimension.rate)
        latency.append(np.greater(size, 0.0) * steps(dimension, n) * dimension.latency)
    return _time(network, seconds, latency)


def send(network: Dimensions, size: Figure, group: Spans) -> Figure:
    """Seconds of a transfer to the next rank of a group: ``hops latency + S / B`` on the slowest dimension it spans."""
    slowest_s: Figure = 0.0
    for dimension, n in zip(network.along, group, strict=True):
        hops = SWITCH_HOPS if dimension.topology == "switch" else 1.0
        slowest_s = np.maximum(
            slowest_s, (n > 1) * (np.greater(size, 0.0) * hops * dimension.latency + size / dimension.rate)
        )
    return slowest_s
