"""Seconds of a mixed plan's step by cause."""

from __future__ import annotations

import numpy as np

from planner.cost import pipeline
from planner.cost.evaluate import passes
from planner.mixed import batch_shares, layer_split, pipelines
from planner.mixed.batch_shares import MixedPlan
from planner.mixed.groups import found_pipeline, scalar, stage_grid
from planner.mixed.problem import PreparedPools


def breakdown(prepared: PreparedPools, found: MixedPlan) -> dict[str, float]:
    """Seconds of a step by cause, of the slowest stage of the slowest group, a site's factor in each; the values add up
    to the step time.
    """
    group = max(found.groups, key=lambda g: g.time)
    setting, kind = prepared.setting, prepared.setting.kinds.taken(np.array([group.kind]))
    parts = _slowest_stage(prepared, group.kind, float(group.micro_batches))
    used = [p for p, count in enumerate(found.nodes) if count]
    parts["dp"] = found.exposed / batch_shares.straggler_factor_on(setting, setting.network_of(used))
    parts = {name: scalar(setting.stack.whole_step) * seconds for name, seconds in parts.items()}
    parts["optimizer"] = float(kind.update[0])
    parts["overhead"] = float(setting.stack.step_overhead)
    parts["jitter"] = max(found.time - sum(parts.values()), 0.0)
    return {name: seconds for name, seconds in parts.items() if seconds != 0.0}


def _slowest_stage(prepared: PreparedPools, kind: int, micro_batches: float) -> dict[str, float]:
    """What the slowest stage of a kind's pipelines computes and sends in a step, and how long it waits for others."""
    chain, rows, split, costs = found_pipeline(prepared, kind)
    times, policy = layer_split.dealt_times(costs, split.layers, split.policy), split.policy
    i = int(np.argmax(times[0]))
    at, pool, role, _ = pipelines.places(chain)[i]
    grid, table, row = stage_grid(prepared, pool, rows[at], int(policy[0, i])), prepared.tables[pool], rows[at]
    leading, body = passes(grid).layers
    layers, first, last = int(split.layers[0, i]), role in ("alone", "first"), role in ("alone", "last")
    lead = min(table.least, layers) if first else 0
    parts: dict[str, float] = {}
    for name, part in body.parts.items():
        other = leading.parts[name]
        seconds = (layers - lead) * scalar(part.forward + part.backward) + lead * scalar(other.forward + other.backward)
        parts[name] = micro_batches * seconds
    again = [scalar(pipeline.layer_time(grid, layer).again) for layer in (leading, body)]
    parts["recompute"] = micro_batches * (lead * again[0] + (layers - lead) * again[1])
    parts["embedding"] = micro_batches * (float(table.embedding[row] - table.tower[row]) if first else 0.0)
    if first and table.tower[row]:
        parts["tower"] = micro_batches * float(table.tower[row])
    parts["logits"] = micro_batches * (float(table.head[row]) if last else 0.0)
    waited = max(micro_batches * float(times[0, i]) - sum(parts.values()), 0.0)
    parts["p2p"] = waited if len(times[0]) > 1 else 0.0
    parts["bubble"] = float(np.sum(times[0]) - np.max(times[0]))
    return parts
