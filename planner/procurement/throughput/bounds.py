"""What a job takes at least on a pool, before any plan is searched: its matrix products at the best rate of the part.

No plan beats it: the cost model runs no product faster than the catalog's share of peak, and counts more work than the
products with weights. So what costs more than the whole budget even then, or is late even then, needs no search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from planner.catalog import Catalog
from planner.cost.money import DAY_S
from planner.figures.efficiency import Efficiencies
from planner.models.parameters import parameters
from planner.models.workload import find_model
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.schema.hardware import Accelerator
from planner.schema.workload import Model

PRODUCTS = {"lora": 4.0}
"""FLOPs a weight and token: forward and both gradients are 6; without those of frozen weights 4."""
CERTAIN = 0.9
"""Share of the weights that is certainly in products: biases and norms, which are in no product, are fewer than a tenth
in every architecture known."""
SIXTEEN_BIT = ("bf16", "fp16", "tf32", "fp32")
MARGIN = 1.1
"""Above the share of peak that large products reach: no release and no shape is taken to beat it by more."""
LARGEST_STEP = 0.25
"""Largest share of a limit by which its shadow price moves it at most: a step that is no small one says little."""


@dataclass(frozen=True)
class Reach:
    """Which jobs on which pools may matter, by what they take at least."""

    usd: float = math.inf
    """US dollars of everything, where the job may be done in time."""
    late_usd: float = math.inf
    """The budget where even the best rate is too slow; and the budget under which a share of the work counts."""
    share: float = math.inf
    """Share of all work: where so much may be done for `late_usd` in time, too."""


EVERYTHING = Reach()


@dataclass(frozen=True)
class LowerBounds:
    """What each job takes at least on each pool, as ``[j][p]``."""

    held_usd: list[float]
    """To hold each pool."""
    work_usd: list[list[float]]
    """To use it for the job, and for the work of every other job what uses least for that."""
    days: list[list[float]]
    room: list[list[float]]
    """Days that the job may take at most, with the step by which a deadline's shadow price moves it."""

    def usd(self, j: int, p: int) -> float:
        """US dollars of everything, at least, if job j runs on pool p."""
        return self.held_usd[p] + self.work_usd[j][p]

    def in_time(self, j: int, p: int) -> bool:
        """Whether the best rate would do."""
        return self.days[j][p] <= self.room[j][p]

    def within(self, reach: Reach, j: int, p: int) -> bool:
        """Whether job j on pool p may matter."""
        if self.usd(j, p) <= (reach.usd if self.in_time(j, p) else reach.late_usd):
            return True
        return reach.share < math.inf and self._share(j, p, reach.late_usd) >= reach.share

    def _share(self, j: int, p: int, budget: float) -> float:
        """Largest share of all work that can be done for so much money and in time."""
        left = budget - self.held_usd[p]
        work = self.work_usd[j][p]
        days = self.days[j][p]
        if left < 0:
            return 0.0
        return min(left / work if work else math.inf, self.room[j][p] / days if days else math.inf)

    @property
    def dearest_usd(self) -> float:
        """US dollars, at least, of the dearest place where any job may be done in time."""
        return max(self._prices(), default=0.0)

    @property
    def cheapest_usd(self) -> float:
        """US dollars, at least, of the cheapest such place."""
        return min(self._prices(), default=0.0)

    def _prices(self) -> Iterator[float]:
        for j, row in enumerate(self.work_usd):
            yield from (self.usd(j, p) for p in range(len(row)) if self.in_time(j, p))


def least(catalog: Catalog, jobs: Sequence[Job], pools: Sequence[SupplyPool]) -> LowerBounds:
    """What every job takes on every pool at the best rate of its accelerators."""
    parts = {pool.cluster.accelerator.id: pool.cluster.accelerator for pool in pools}
    rates = {(name, plain): _rate(catalog, part, plain) for name, part in parts.items() for plain in (True, False)}
    days = [[_days(job, pool, rates) for pool in pools] for job in jobs]
    works = [[d * pool.day_usd for d, pool in zip(row, pools, strict=True)] for row in days]
    cheapest = [min(row, default=0.0) for row in works]
    return LowerBounds(
        held_usd=[pool.capital + (pool.held_usd if pool.term_days else 0.0) for pool in pools],
        work_usd=[
            [usd + sum(cheapest) - cheapest_usd for usd in row]
            for row, cheapest_usd in zip(works, cheapest, strict=True)
        ],
        days=days,
        room=[[_room(job, pool) for pool in pools] for job in jobs],
    )


def _room(job: Job, pool: SupplyPool) -> float:
    return job.deadline_day * (1.0 + LARGEST_STEP) - max(job.release_day, pool.start_day)


def _days(job: Job, pool: SupplyPool, rates: Mapping[tuple[str, bool], float]) -> float:
    """Days of a job at the best rate of all accelerators of a pool."""
    flops = PRODUCTS.get(job.asked.method, 6.0) * CERTAIN * _weights(job.model) * job.tokens
    fastest = rates[pool.cluster.accelerator.id, job.asked.precision is None]
    return flops / (pool.cluster.accelerators * fastest) / DAY_S


def _rate(catalog: Catalog, part: Accelerator, plain: bool) -> float:
    """FLOP/s that no product exceeds; in 16 bit where no precision is asked for. Measured layer times of a catalog of
    one's own may reach the peak itself.
    """
    if len(catalog.layers) > 1:
        return max(part.peak.values())
    shares = Efficiencies.of(catalog).accelerator(part).matrix
    most = max(shares.values())
    rates = {name: peak * min(1.0, MARGIN * shares.get(name, most)) for name, peak in part.peak.items()}
    return max([rate for name, rate in rates.items() if not plain or name in SIXTEEN_BIT] or rates.values())


@lru_cache(maxsize=256)
def _weights(model: str | Model) -> float:
    """Weights that every token is multiplied with; none of models whose blocks see different tokens."""
    p = parameters(find_model(model))
    if p.cross_layers:
        return 0.0
    mixture = p.moe_layers * (p.experts_per_token * p.expert + p.shared_expert_per_layer)
    attention = p.layers * p.attention_per_layer - p.indexless_layers * p.index_per_layer
    return float(attention + p.dense_layers * p.dense_mlp_per_layer + mixture)
