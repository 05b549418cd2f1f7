"""What a job costs at least on a pool, before any plan is searched: its matrix products at the best rate of the part.

No plan beats it: the cost model runs no product faster than the catalog's share of peak, and counts more work than the
products with weights. So what costs more than the whole budget even then needs no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from planner.catalog import Catalog
from planner.cost.money import DAY_S
from planner.models.parameters import parameters
from planner.models.workload import find_model
from planner.performance.efficiency import Efficiencies
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.schema.hardware import Accelerator
from planner.schema.workload import Model

PRODUCTS = {"lora": 4.0}
"""FLOPs a weight and token: forward and both gradients are 6; without those of frozen weights 4."""
CERTAIN = 0.9
"""Of the weights: biases and norms, which are in no product, are fewer than a tenth in every architecture known."""
SIXTEEN_BIT = ("bf16", "fp16", "tf32", "fp32")
MARGIN = 1.1
"""Above the share of peak that large products reach: no release and no shape is taken to beat it by more."""


def least_usd(catalog: Catalog, jobs: Sequence[Job], pools: Sequence[SupplyPool]) -> list[list[float]]:
    """US dollars, at least, of everything if job j runs on pool p, as ``[j][p]``: its work and what holding the pool
    takes, and the work of every other job where that is cheapest.
    """
    works = [[_days(catalog, job, pool) * pool.day_usd for pool in pools] for job in jobs]
    cheapest = [min(row, default=0.0) for row in works]
    rest = sum(cheapest)
    held = [pool.capital + (pool.held_usd if pool.term_days else 0.0) for pool in pools]
    return [
        [work + had + rest - least for work, had in zip(row, held, strict=True)]
        for row, least in zip(works, cheapest, strict=True)
    ]


def _days(catalog: Catalog, job: Job, pool: SupplyPool) -> float:
    """Days of a job at the best rate of all accelerators of a pool."""
    flops = PRODUCTS.get(job.asked.method, 6.0) * CERTAIN * _weights(job.model) * job.tokens
    fastest = _rate(catalog, pool.cluster.accelerator, job.asked.precision is None)
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
    return float(p.layers * p.attention_per_layer + p.dense_layers * p.dense_mlp_per_layer + mixture)
