"""Plans whose pipelines are all of one kind: those that a launcher starts, which numbers ranks node after node.

Every stage is cut alike (tensor, context and expert parallel; recomputation, by the question's pin), bundles fill whole
nodes and micro-batches are whole: ``B = copies micro width M``. So few plans are left that all of them are priced.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.figures import Array
from planner.mixed import batch_shares
from planner.mixed.batch_shares import BundleSetting, MixedPlan
from planner.mixed.prepared_pools import PreparedPools

Rows = NDArray[np.intp]
AXES = ("tp", "cp", "ep")
"""Degrees that all stages of a pipeline share."""


def best(prepared: PreparedPools, pools: tuple[int, ...]) -> MixedPlan | None:
    """The best plan that uses exactly these pools; None where there is none within the limits."""
    setting = prepared.setting
    candidates = []
    rows = _cut_alike(prepared, pools)
    for copies in _divisors(setting.offer.batch):
        fit = rows[_whole(setting, rows, copies)]
        if len(fit):
            values = _values(setting, fit, pools, copies)
            first = int(np.argmin(values))
            candidates.append((float(values[first]), copies, fit[first]))
    value, copies, row = min(candidates, default=(np.inf, 0, 0))
    return batch_shares.shortest_step(setting, np.array([row]), np.array([copies])) if np.isfinite(value) else None


def _cut_alike(prepared: PreparedPools, pools: tuple[int, ...]) -> Rows:
    """Kinds that stand on exactly these pools, in any order, with the same degrees on each."""
    kinds = prepared.setting.kinds
    rows_alike = []
    for index, chain in enumerate(prepared.chains):
        if {pool for pool, _ in chain} != set(pools):
            continue
        rows = np.flatnonzero(kinds.chain == index)
        configs = [(prepared.tables[pool].configs, kinds.configs[rows, place]) for place, (pool, _) in enumerate(chain)]
        degrees = np.array([[getattr(table, axis)[row] for axis in AXES] for table, row in configs])
        rows_alike.append(rows[np.all(degrees == degrees[0], axis=(0, 1))])
    return np.concatenate(rows_alike) if rows_alike else np.zeros(0, dtype=np.intp)


def _whole(setting: BundleSetting, rows: Rows, copies: int) -> NDArray[np.bool_]:
    """Whether so many bundles fill nodes that there are, and divide the batch: ``copies usage_p = per_node_p nodes_p``,
    ``B mod (copies micro width) = 0``.
    """
    nodes, rest = np.divmod(copies * setting.kinds.usage[rows], np.asarray(setting.offer.per_node))
    whole = (rest == 0) & (nodes <= np.asarray(setting.offer.nodes))
    return np.asarray(np.all(whole, axis=-1) & (setting.offer.batch % (copies * setting.kinds.samples[rows]) == 0))


def _values(setting: BundleSetting, rows: Rows, pools: tuple[int, ...], copies: int) -> Array:
    """The objective that so many bundles of each kind reach; infinite where they break the limits."""
    kinds = setting.kinds.taken(rows)
    offer = setting.offer
    replicas = np.asarray(copies * kinds.width, dtype=float)
    shown = batch_shares.reductions(setting, kinds, pools, replicas, 1.0, spans_pools=False)
    straggler_factor = batch_shares.straggler_factor_on(setting, setting.network_of(pools))
    steps = offer.batch / (copies * kinds.samples)
    times = batch_shares.kind_time(setting, kinds, straggler_factor, steps, shown)
    rated = times * (copies * kinds.usage / np.asarray(offer.per_node) @ np.asarray(offer.weights))
    kept = (times <= setting.longest) & (rated <= setting.most)
    return np.where(kept, rated if setting.by_rate else times, np.inf)


def _divisors(batch: int) -> list[int]:
    return [n for n in range(1, batch + 1) if batch % n == 0]
