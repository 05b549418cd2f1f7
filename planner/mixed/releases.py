"""A mixed plan under other software, an older release or all that a runtime may stand for: the same pipelines with the
same shares of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.axes.options import OptionValues
from planner.axes.table import PRECISION, RECOMPUTE
from planner.catalog import Catalog
from planner.mixed import batch_shares, layer_split, pipelines, prepared_pools, stages
from planner.mixed.batch_shares import MixedPlan
from planner.mixed.groups import found_pipeline, one_config
from planner.mixed.layer_split import LayerSplit
from planner.mixed.pipelines import PipelineTemplates
from planner.mixed.prepared_pools import PreparedPools
from planner.models import context
from planner.planning import releases
from planner.planning.document import Spread
from planner.question.job_pools import Pools
from planner.question.request import Request
from planner.schema.plan import OlderRelease
from planner.space.cost_grid import Figures


def older(
    prepared: PreparedPools,
    mixed_plan: MixedPlan,
    degrees: Mapping[str, int],
    options: OptionValues,
    policies: Iterable[str],
) -> OlderRelease | None:
    """What the request's older release makes of a plan of these degrees, options and recomputation; None where the
    question states its release.
    """
    request = prepared.request
    if not prepared.older:
        return None
    late = request.runtime.lacks(request.older)
    of_stages: releases.Chosen = {
        RECOMPUTE: [RECOMPUTE.read(policy) for policy in policies],
        PRECISION: [prepared.precision],
    }
    plain = context.algorithms(request.workload)[:1]
    used = releases.used({**releases.chosen(degrees, options), **of_stages}, plain)
    lacks = tuple(what for what in used if what in late)
    return OlderRelease(
        release=request.older, step_time_s=None if lacks else _time(prepared, mixed_plan, prepared.older), lacks=lacks
    )


def time_spread(prepared: PreparedPools, mixed_plan: MixedPlan) -> Spread:
    """The interval of a plan's step time: the widest of the pools in use; under a runtime that stands for several, with
    how far apart these predict it (as :func:`planner.planning.releases.time_spread` does on one pool).
    """
    used = [spread for spread, nodes in zip(prepared.time_spreads, mixed_plan.nodes, strict=True) if nodes]
    widest = max(used, key=lambda spread: spread.half_width)
    if not prepared.plausible:
        return widest
    times = [_time(prepared, mixed_plan, figures) for figures in prepared.plausible]
    return releases.apart(prepared.request, widest, times)


def under(catalog: Catalog, prepared: PreparedPools, mixed_plan: MixedPlan, request: Request, offered: Pools) -> float:
    """Seconds of a step of the same groups by the software and the links of another question about the same pools."""
    other = prepared_pools.otherwise(catalog, prepared, request, offered)
    return _time(other, mixed_plan, other.figures)


def _time(prepared: PreparedPools, mixed_plan: MixedPlan, figures: Sequence[Figures]) -> float:
    """Seconds of a step of the same groups by other figures of every pool."""
    kinds = pipelines.joined([_repriced(prepared, group.kind, figures) for group in mixed_plan.groups])
    setting = replace(prepared.setting, kinds=kinds, stack=prepared_pools.joint_stack(figures))
    on = batch_shares.together(setting, kinds, np.array([group.copies for group in mixed_plan.groups]))
    factor = batch_shares.straggler_factor_on(setting, setting.network_of(on.pools))
    shown = batch_shares.reductions(
        setting, kinds, on.pools, on.replicas, on.replicas_per_domain, spans_pools=on.spans_pools
    )
    steps = np.array([float(group.micro_batches) for group in mixed_plan.groups])
    return float(np.max(batch_shares.kind_time(setting, kinds, factor, steps, shown)))


def _repriced(prepared: PreparedPools, kind: int, figures: Sequence[Figures]) -> PipelineTemplates:
    """A kind of pipelines (its row among the templates) by other figures of every pool: as deep, as cut, as dealt."""
    chain, rows, split, _ = found_pipeline(prepared, kind)
    tables = list(prepared.tables)
    depth = int(split.layers.shape[-1])
    for (pool, _), row in zip(chain, rows, strict=True):
        way = one_config(prepared, pool, row)
        policies = prepared.tables[pool].policies
        tables[pool] = stages.priced(
            figures[pool], way, prepared.options, prepared.precision, policies, depth, math.inf
        )
    first = [np.array([0]) for _ in chain]
    costs = pipelines.chain_costs(chain, first, tables, prepared.links)
    taken = layer_split.dealt_times(costs, split.layers, split.policy)
    again = LayerSplit(split.layers, split.policy, taken.max(-1), taken.sum(-1))
    index = int(prepared.setting.kinds.chain[kind])
    return pipelines.columns(index, chain, first, prepared.setting.kinds.usage[[kind]], tables, again)
