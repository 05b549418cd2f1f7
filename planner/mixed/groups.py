"""Groups of pipelines of a mixed plan as its document states them, and the seconds of its step by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from planner.cost import pipeline
from planner.cost.evaluate import passes
from planner.cost.figures import Grid
from planner.cost.stage_memory import PARTS, Memory
from planner.mixed import batch_shares, layer_split, pipelines, stages
from planner.mixed.batch_shares import BundleGroup, MixedPlan
from planner.mixed.layer_split import LayerSplit, StageCosts
from planner.mixed.pipelines import Chain
from planner.mixed.prepared_pools import PreparedPools
from planner.mixed.stages import StageConfigs
from planner.planning.document import FullestStage
from planner.planning.document.conditions import stage_memory_section
from planner.schema import plan as schema


class FoundPipeline(NamedTuple):
    """One kind of pipeline as the search priced it."""

    chain: Chain
    rows: list[int]
    """For each of the chain's pools the row of its table that says how a stage is run."""
    split: LayerSplit
    """Layers and policies of this one pipeline: shapes (1, stages)."""
    costs: StageCosts


def found_pipeline(prepared: PreparedPools, kind: int) -> FoundPipeline:
    """The pipeline of a kind (its row among the templates), priced again."""
    kinds = prepared.setting.kinds
    chain = prepared.chains[int(kinds.chain[kind])]
    rows = [int(kinds.configs[kind, place]) for place in range(len(chain))]
    costs = pipelines.chain_costs(chain, [np.array([row]) for row in rows], prepared.tables, prepared.links)
    known = prepared.splits
    split = known[kind] if known else layer_split.split_layers(costs, int(prepared.figures[0].shape.layers))
    return FoundPipeline(chain, rows, split, costs)


def group_section(prepared: PreparedPools, group: BundleGroup, place: dict[int, int]) -> schema.Group:
    """The plan's record of a group and its stages; `place` maps a pool of the question to its index in the plan."""
    kinds = prepared.setting.kinds
    width = int(kinds.width[group.kind])
    return schema.Group(
        copies=group.copies,
        width=width,
        micro=int(kinds.samples[group.kind]) // width,
        micro_batches=group.micro_batches,
        sequences=group.sequences,
        time_s=group.time,
        stages=_stage_sections(prepared, group.kind, place),
    )


def _stage_sections(prepared: PreparedPools, kind: int, place: dict[int, int]) -> tuple[schema.GroupStage, ...]:
    chain, rows, split, costs = found_pipeline(prepared, kind)
    times = layer_split.dealt_times(costs, split.layers, split.policy)
    policy = split.policy
    sections = []
    for i, (at, pool, role, depth) in enumerate(pipelines.places(chain)):
        table = prepared.tables[pool]
        row = rows[at]
        layers = int(split.layers[0, i])
        held = memory_of_placed_stage(prepared, PlacedStage(pool, row, int(policy[0, i]), layers, role, depth))
        sections.append(
            schema.GroupStage(
                pool=place[pool],
                layers=layers,
                tp=int(table.configs.tp[row]),
                cp=int(table.configs.cp[row]),
                ep=int(table.configs.ep[row]),
                recompute=table.policies[int(policy[0, i])].name,
                time_s=float(times[0, i]) * scalar(prepared.setting.stack.whole_step),
                memory_bytes=float(held.total),
                held=stage_memory_section(held),
            )
        )
    return tuple(sections)


def stage_grid(prepared: PreparedPools, pool: int, row: int, policy: int) -> Grid:
    """A configuration of a stage on a pool (a row of its table) under one of its policies, as a grid of one column."""
    grid = stages.stage_columns(
        prepared.figures[pool], one_config(prepared, pool, row), prepared.options, prepared.precision
    )
    return stages.with_policy(grid, prepared.tables[pool].policies[policy])


def one_config(prepared: PreparedPools, pool: int, row: int) -> StageConfigs:
    """Row `row` of a pool's configurations of a stage, as columns of length 1."""
    configs = prepared.tables[pool].configs
    return StageConfigs(
        *(getattr(configs, name)[row : row + 1] for name in ("tp", "cp", "ep", "etp", "micro", "width"))
    )


class PlacedStage(NamedTuple):
    """A stage of a pipeline: where it stands, how it is run, and what it holds."""

    pool: int
    row: int
    """Row of the pool's table: how the stage is run."""
    policy: int
    """Policy of recomputation, among those of the table."""
    layers: int
    role: str
    """One of :data:`planner.mixed.stages.ROLES`."""
    depth: int
    """Stages from this one to the last, itself included."""


def memory_of_placed_stage(prepared: PreparedPools, stage: PlacedStage) -> Memory:
    """Bytes on an accelerator of one stage, part by part, each a scalar."""
    grid = stage_grid(prepared, stage.pool, stage.row, stage.policy)
    held = stages.memory_of_stage(grid, np.array([float(stage.layers)]), np.array([float(stage.depth)]), stage.role)
    parts: dict[str, Any] = {name: scalar(getattr(held, name)) for name in PARTS}
    return replace(held, **parts)


def fullest_stage(prepared: PreparedPools, mixed_plan: MixedPlan, place: dict[int, int]) -> FullestStage:
    """The stage, among all groups, that uses the largest share of its accelerator's memory."""
    every = []
    for group in mixed_plan.groups:
        chain, rows, split, _ = found_pipeline(prepared, group.kind)
        for i, (at, pool, role, depth) in enumerate(pipelines.places(chain)):
            policy, layers = int(split.policy[0, i]), int(split.layers[0, i])
            held = memory_of_placed_stage(prepared, PlacedStage(pool, rows[at], policy, layers, role, depth))
            share = float(held.total) / prepared.pools.all[pool].cluster.accelerator.memory
            every.append((share, FullestStage(stage=i, pool=place[pool], held=held)))
    return max(every, key=lambda entry: entry[0])[1]


def scalar(value: object) -> float:
    """The one number of an array of one element, or of a number."""
    return float(np.ravel(np.asarray(value, dtype=float))[0])


def sequences_per_pool(groups: Sequence[schema.Group], pools: int) -> tuple[int, ...]:
    """Sequences of the global batch by pool, whole numbers: a pipeline over several pools shares its own by layers."""
    shares = np.zeros(pools)
    for group in groups:
        layers = sum(s.layers for s in group.stages)
        for stage in group.stages:
            shares[stage.pool] += group.sequences * stage.layers / layers
    whole = np.floor(shares + 1e-9).astype(int)
    missing = sum(g.sequences for g in groups) - int(whole.sum())
    for index in np.argsort(-(shares - whole), kind="stable")[:missing]:
        whole[index] += 1
    return tuple(int(n) for n in whole)


def recompute_section(groups: Sequence[schema.Group]) -> schema.RecomputeSection:
    """The plan's recomputation: the most that any stage does, as each stage carries its own."""
    names = {s.recompute for g in groups for s in g.stages}
    name = "full" if "full" in names else "selective" if "selective" in names else "none"
    return schema.RecomputeSection(policy=name, layers_fraction=float(name == "full"), selective=name == "selective")


def breakdown(prepared: PreparedPools, mixed_plan: MixedPlan) -> dict[str, float]:
    """Seconds of a step by cause, of the slowest stage of the slowest group, a site's factor in each; the values add up
    to the step time.
    """
    group = max(mixed_plan.groups, key=lambda g: g.time)
    setting = prepared.setting
    kind = prepared.setting.kinds.taken(np.array([group.kind]))
    parts = _slowest_stage(prepared, group.kind, float(group.micro_batches))
    used = [p for p, count in enumerate(mixed_plan.nodes) if count]
    parts["dp"] = mixed_plan.exposed / batch_shares.straggler_factor_on(setting, setting.network_of(used))
    parts = {name: scalar(setting.stack.whole_step) * seconds for name, seconds in parts.items()}
    parts["optimizer"] = float(kind.update[0])
    parts["overhead"] = float(setting.stack.step_overhead)
    parts["jitter"] = max(mixed_plan.time - sum(parts.values()), 0.0)
    return {name: seconds for name, seconds in parts.items() if seconds != 0.0}


def _slowest_stage(prepared: PreparedPools, kind: int, micro_batches: float) -> dict[str, float]:
    """What the slowest stage of a kind's pipelines computes and sends in a step, and how long it waits for others."""
    chain, rows, split, costs = found_pipeline(prepared, kind)
    times = layer_split.dealt_times(costs, split.layers, split.policy)
    policy = split.policy
    i = int(np.argmax(times[0]))
    at, pool, role, _ = pipelines.places(chain)[i]
    grid = stage_grid(prepared, pool, rows[at], int(policy[0, i]))
    table = prepared.tables[pool]
    row = rows[at]
    leading, body = passes(grid).layers
    layers = int(split.layers[0, i])
    first = role in ("alone", "first")
    last = role in ("alone", "last")
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
