"""How many bundles of which kind stand on which nodes: an integer program with named constraints.

``batch``: ``sum n_k o_k >= B``, o_k what a bundle of kind k delivers within the step; ``accelerators_p``:
``sum n_k u_kp <= per_node nodes_p``; ``nodes_p``: no more than there are; ``replicas``: ``sum n_k w_k <= most``;
``standing_p``: at least so many of them on every pool. Minimised is ``sum nodes_p weight_p``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.base.solver import Problem, Status, dot
from planner.cost.figures import Array

Integers = NDArray[np.int64]
MOST_BRANCHES = 500
"""Most branches of the integer program; where they are used up, the best found counts. A number, so that answers
repeat."""
MOST_COMPARED = 1500
"""Columns that are compared with each other; beyond, only those of the same use are."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What can be bought: bundles of a kind as columns."""

    usage: Integers
    """Accelerators on every pool, shape (columns, pools)."""
    delivered: Array
    """Sequences within the step."""
    width: Integers
    """Replicas in a bundle."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What there is, and what is wanted."""

    nodes: tuple[float, ...]
    per_node: tuple[int, ...]
    weights: tuple[float, ...]
    """What a node of each pool counts in the objective."""
    batch: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Bundles of every column, nodes of every pool and the objective."""

    counts: Integers
    nodes: Integers
    value: float
    """Infinite where nothing delivers the batch."""
    proven: bool = True
    """Whether that is certain, within the gap of the program."""


def undominated(columns: Columns, *, alike: bool = False) -> NDArray[np.intp]:
    """Columns of which no other delivers as much with no more of anything; with `alike`, none of as many replicas on
    the same pools does.
    """
    alive = np.flatnonzero(columns.delivered > 0)
    if len(alive) > MOST_COMPARED:
        return alive
    need = np.column_stack([columns.usage[alive], columns.width[alive]])
    out = columns.delivered[alive]
    less = np.all(need[:, None, :] <= need[None, :, :], axis=-1) & (out[:, None] >= out[None, :])
    np.fill_diagonal(less, False)
    if alike:
        same = np.column_stack([columns.usage[alive] > 0, columns.width[alive]])
        less &= np.all(same[:, None, :] == same[None, :, :], axis=-1)
    twins = less & less.T
    less &= ~(twins & (np.arange(len(alive))[:, None] > np.arange(len(alive))[None, :]))
    return np.asarray(alive[~np.any(less, axis=0)])


@dataclass(frozen=True, slots=True)
class Families:
    """Kinds that need the same of everything, found once: of each family only the best at a step time matters."""

    order: NDArray[np.intp]
    """Kinds, family by family."""
    starts: NDArray[np.intp]
    """Where each family starts in that order."""
    usage: Integers
    width: Integers
    multiples: tuple[tuple[NDArray[np.intp], NDArray[np.bool_], Array], ...]
    """Families along one direction of use: which, whose use divides whose, and the quotients."""

    def best(self, delivered: Array) -> tuple[Columns, NDArray[np.intp]]:
        """The best kind of every family that no whole number of bundles of another family replaces; and its row.

        `delivered` are the sequences that a bundle does within the step, shape (kinds,).
        """
        sorted_out = delivered[self.order]
        out = np.maximum.reduceat(sorted_out, self.starts)
        family = np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.order))))
        hits = np.flatnonzero(sorted_out == out[family])
        first = np.full(len(self.starts), len(self.order), dtype=np.intp)
        np.minimum.at(first, family[hits], hits)
        keep = out > 0
        for which, divides, quotient in self.multiples:
            beaten = divides & (out[which][:, None] * quotient >= out[which][None, :]) & (out[which][:, None] > 0)
            keep[which] &= ~np.any(beaten, axis=0)
        rows = np.flatnonzero(keep)
        return Columns(self.usage[rows], out[rows], self.width[rows]), self.order[first[rows]]


def families(usage: Integers, width: Integers) -> Families:
    """Kinds grouped by what a bundle needs, and these families by the ratio of their use of pools.

    `usage` are the accelerators of a bundle on every pool, shape (kinds, pools); `width` its replicas, shape (kinds,).
    """
    need = np.column_stack([usage, width])
    order = np.lexsort(need.T)
    new = np.concatenate(([True], np.any(np.diff(need[order], axis=0) != 0, axis=-1)))
    starts = np.flatnonzero(new)
    unique = need[order][starts]
    scale = np.gcd.reduce(unique, axis=1)
    direction = unique // scale[:, None]
    _, label = np.unique(direction, axis=0, return_inverse=True)
    multiples = []
    for index in range(int(label.max()) + 1 if len(label) else 0):
        which = np.flatnonzero(label.ravel() == index)
        if len(which) > 1:
            quotient = scale[which][None, :] / scale[which][:, None]
            multiples.append((which, (quotient > 1) & (quotient == np.round(quotient)), quotient))
    return Families(order, starts, unique[:, :-1], unique[:, -1], tuple(multiples))


def assign(
    columns: Columns, offer: Offer, most: float, *, whole: bool, gap: float = 1e-4, least_per_pool: int = 0
) -> Assigned | None:
    """The least nodes, by weight, that deliver the batch with at most so many replicas; None where it is not known.

    With `whole` false, the linear relaxation: its value is a lower bound. At least `least_per_pool` replicas stand on
    every pool that some column uses.
    """
    rows = undominated(columns, alike=least_per_pool > 0)
    nothing = Assigned(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.inf)
    if not len(rows) or not _could(columns, rows, offer):
        return nothing
    asked = Problem()
    count = asked.integer if whole else asked.continuous
    bundles = [count(f"bundles_{i}") for i in range(len(rows))]
    nodes = [count(f"nodes_{p}", high=n) for p, n in enumerate(offer.nodes)]
    asked.minimise(dot(offer.weights, nodes))
    out, use, width = columns.delivered[rows], columns.usage[rows], columns.width[rows]
    asked.constrain(dot(out, bundles) >= offer.batch, "batch")
    for p, per_node in enumerate(offer.per_node):
        asked.constrain(dot(use[:, p], bundles) <= per_node * nodes[p], f"accelerators_{p}")
    if np.isfinite(most):
        asked.constrain(dot(width, bundles) <= most, "replicas")
    for p in np.flatnonzero(np.any(use > 0, axis=0)).tolist() if least_per_pool else ():
        asked.constrain(dot(width * (use[:, p] > 0), bundles) >= least_per_pool, f"standing_{p}")
    solved = asked.solve(gap=gap, max_nodes=MOST_BRANCHES)
    if solved.status is Status.INFEASIBLE:
        return nothing
    if not solved.status.found:
        return None
    proven = solved.status is Status.OPTIMAL
    counts = np.zeros(len(columns.delivered), dtype=np.int64)
    if not whole:
        return Assigned(counts, np.zeros(len(nodes), dtype=np.int64), solved.objective, proven)
    counts[rows] = np.round([solved.value(x) for x in bundles]).astype(np.int64)
    need = counts @ columns.usage
    used = -(-need // np.asarray(offer.per_node))
    return Assigned(counts, used, float(used @ np.asarray(offer.weights)), proven)


def _could(columns: Columns, rows: NDArray[np.intp], offer: Offer) -> bool:
    """Whether the batch is in reach if every pool were used as well as the best kind uses its own: necessary, quick."""
    have = np.asarray(offer.nodes) * np.asarray(offer.per_node)
    use = columns.usage[rows].astype(float)
    share = np.sum(use / np.where(have > 0, have, 1e-9), axis=-1)
    pools = np.count_nonzero(np.any(use > 0, axis=0))
    return bool(np.max(columns.delivered[rows] / share) * pools >= offer.batch)
