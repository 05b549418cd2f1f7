"""Parts of the search space in which reductions cost nearly the same: pools in use, replicas, neighbours in a domain.

What a gradient reduction takes depends on the pools that hold the same layers, on the number of replicas, and on how
many of them share a domain. Within a subproblem all three are bounded, so that the reduction is, from below and from
above; a subproblem splits until both are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array, Network
from planner.mixed import batch_shares, integer_program
from planner.mixed.batch_shares import BundleSetting
from planner.mixed.integer_program import Assigned, Columns, Families
from planner.mixed.pipelines import PipelineTemplates

GAP = 5e-3
"""Relative gap at which an integer program on the least nodes stops."""
MOST_TRIED = 8
"""Numbers of neighbours that are tried one by one for the least reduction; beyond, one bound holds for all."""


@dataclass(frozen=True)
class TemplatesOnPools:
    """Kinds that stand on some pools only; what is found of them once is kept."""

    setting: BundleSetting
    pools: tuple[int, ...]
    rows: NDArray[np.intp]
    """Rows of these kinds among the setting's templates."""
    spans_pools: bool
    """Whether gradients pass the links between the pools, because some layers are held on several of them."""

    @cached_property
    def kinds(self) -> PipelineTemplates:
        """The templates of these kinds."""
        return self.setting.kinds.taken(self.rows)

    @cached_property
    def families(self) -> Families:
        """The kinds, grouped by the accelerators and replicas that a bundle of them needs."""
        return integer_program.families(self.kinds.usage, self.kinds.width)

    @cached_property
    def network(self) -> Network:
        """The network that collectives over all of these pools use."""
        return self.setting.network_of(self.pools)

    @cached_property
    def straggler_factor(self) -> float:
        """Factor of waiting for the slowest rank."""
        return batch_shares.straggler_factor_on(self.setting, self.network)

    def reductions(self, replicas: int, replicas_per_domain: float) -> Array:
        """Seconds of exposed gradient reductions, shape (kinds,), with up to `replicas_per_domain` in a domain."""
        return batch_shares.reductions(
            self.setting, self.kinds, self.pools, float(replicas), replicas_per_domain, spans_pools=self.spans_pools
        )

    def by_seam(self) -> list[TemplatesOnPools]:
        """A subproblem in parts: within each, all kinds hold every layer on the same pool."""
        seams = self.kinds.seam
        return [replace(self, rows=self.rows[seams == seam]) for seam in np.unique(seams)]


@dataclass(frozen=True)
class Subproblem:
    """Some pools, and bounds on the replicas in all and on those of them that share a domain."""

    on: TemplatesOnPools
    fewest: int
    most: int
    low: int = 1
    high: int = 1
    """Replicas in one domain, at least and at most; :func:`planner.mixed.batch_shares.neighbours`."""

    @cached_property
    def least(self) -> Array:
        """Seconds of reductions that nothing hides, at least: with the fewest replicas, however many are neighbours."""
        fewest = max(self.fewest, 2 * self.low if self.on.spans_pools else 1)
        if self.high - self.low >= MOST_TRIED:
            network = loosest(self.on.kinds, self.on.network, self.high)
            return batch_shares.exposed(self.on.setting, self.on.kinds, network, float(fewest))
        return np.asarray(
            np.min(
                [
                    self.on.reductions(fewest, replicas_per_domain)
                    for replicas_per_domain in range(self.low, self.high + 1)
                ],
                axis=0,
            )
        )

    @cached_property
    def largest(self) -> Array:
        """At most: with the most replicas, and the fewest of them in one domain; shape (kinds,)."""
        return self.on.reductions(self.most, float(self.low))

    def columns(self, step: float, exposed: Array) -> tuple[Columns, NDArray[np.intp]]:
        """Sequences ``o = micro width M`` that a bundle of the best kinds does within a step, and those kinds.

        `step` is seconds, `exposed` the seconds of reductions by kind, shape (kinds,).
        """
        kinds = self.on.kinds
        steps = batch_shares.micro_batches(self.on.setting, kinds, self.on.straggler_factor, step, exposed)
        return self.on.families.best(kinds.samples * steps)

    def assigned(self, step: float, exposed: Array, *, whole: bool) -> tuple[Assigned | None, NDArray[np.intp]]:
        """The least nodes that do the batch within `step` seconds, and the row of each column (:meth:`columns`)."""
        columns, rows = self.columns(step, exposed)
        floor = self.low if self.low > 1 else 0
        assigned = integer_program.assign(
            columns, self.on.setting.offer, self.most, whole=whole, gap=GAP, least_per_pool=floor
        )
        return assigned, self.on.rows[rows]

    def split(self) -> list[Subproblem]:
        """Subproblems that together are this one, each with closer bounds; none where reductions are known."""
        if not self.on.spans_pools and len(self.on.pools) > 1 and len(parts := self.on.by_seam()) > 1:
            return [replace(self, on=part) for part in parts]
        if self.low < self.high and self.most > self.fewest and self._neighbours_matter_less():
            return self._by_replicas()
        if self.low < self.high:
            middle = isqrt(self.low * self.high)
            return [replace(self, high=middle), replace(self, low=middle + 1)]
        return self._by_replicas() if self.most > self.fewest else []

    def narrowed(self) -> list[Subproblem]:
        """Copies of this one with at most 1, 2, 4, 8 ... replicas, which together are this one."""
        parts: list[Subproblem] = []
        fewest = self.fewest
        while fewest <= self.most:
            most = max(min(2 * (fewest - 1), self.most), fewest)
            parts.append(replace(self, fewest=fewest, most=most, high=max(min(self.high, most // 2), self.low)))
            fewest = most + 1
        return parts

    def _by_replicas(self) -> list[Subproblem]:
        middle = min(max(isqrt(self.fewest * self.most), self.fewest), self.most - 1)
        few = replace(self, most=middle, high=max(min(self.high, middle // 2), self.low))
        return [few, replace(self, fewest=middle + 1)]

    def _neighbours_matter_less(self) -> bool:
        """Whether bounding the replicas narrows the cost of reductions by more than bounding the neighbours."""
        reduction_s = float(np.median(self.on.reductions(max(self.fewest, 2), float(self.high))))
        alone = float(np.median(self.on.reductions(max(self.fewest, 2), float(self.low))))
        more = float(np.median(self.on.reductions(self.most, float(self.high))))
        return more - reduction_s > alone - reduction_s


def loosest(kinds: PipelineTemplates, network: Network, most: float) -> Network:
    """A bound on :func:`planner.mixed.batch_shares.across` for up to `most` neighbours: no reduction is shorter.

    Every hop leaves the domain, at the rate of as many NICs as could ever share one, ``B_nic min(domain, tp cp most) /
    min(tp, ep etp)``, and with the shorter latency.
    """
    sharing = np.minimum(network.domain, kinds.tp * kinds.cp * max(most, 1.0))
    ports = np.maximum(sharing / np.minimum(kinds.tp, kinds.ep * kinds.etp), 1.0)
    latency = min(network.nic_latency, network.scaleup_latency)
    return replace(network, domain=1, mesh=0.0, nic=network.nic * ports, nic_latency=latency)


def list_subproblems(setting: BundleSetting, sets: list[tuple[int, ...]] | None = None) -> list[Subproblem]:
    """Every set of pools that some kinds stand on (or only those given), large sets first.

    Two pools may share every pipeline so that no gradient passes from one to the other; then each layer is held on one
    of them only. All other plans over several pools reduce across them.
    """
    pools = range(len(setting.offer.nodes))
    used = setting.kinds.usage > 0
    subproblems: list[Subproblem] = []
    for some in sets if sets is not None else [c for n in reversed(pools) for c in combinations(pools, n + 1)]:
        outside = [p for p in pools if p not in some]
        rows = np.flatnonzero(~np.any(used[:, outside], axis=-1))
        if not len(rows) or not np.all(np.any(used[rows][:, list(some)], axis=0)):
            continue
        kinds = setting.kinds.taken(rows)
        have = sum(int(setting.offer.nodes[p]) * setting.offer.per_node[p] for p in some)
        smallest = int(np.min(np.sum(kinds.usage, axis=-1) / kinds.width))
        most = max(min(have // max(smallest, 1), setting.offer.batch), 1)
        inside = rows if len(some) == 1 else rows[np.all(kinds.usage[:, list(some)] > 0, axis=-1)]
        if len(inside) and len(some) <= 2:
            subproblems.append(Subproblem(TemplatesOnPools(setting, some, inside, spans_pools=False), 1, most))
        if len(some) > 1 and most > 1:
            on = TemplatesOnPools(setting, some, rows, spans_pools=True)
            high = max(min(int(np.max(on.network.domain)), most // 2), 1)
            subproblems.append(Subproblem(on, 2, most, 1, high))
    return subproblems
