"""What the search over several pools found, as a plan's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner import cost
from planner.axes.options import OptionValues, sections
from planner.axes.table import ZERO
from planner.cost.figures import Layout
from planner.mixed import releases, stages
from planner.mixed.batch_shares import MixedPlan
from planner.mixed.groups import (
    breakdown,
    fullest_stage,
    group_section,
    one_config,
    recompute_section,
    scalar,
    sequences_per_pool,
)
from planner.mixed.prepared_pools import PreparedPools
from planner.planning import document
from planner.planning.document import PoolInUse, Solution
from planner.question.job_pools import Pools
from planner.question.request import Request, goodput_over
from planner.schema import plan as schema
from planner.schema.plan_machines import nodes_used


def plan(prepared: PreparedPools, mixed_plan: MixedPlan, rank: int) -> schema.Plan:
    """Everything that is known of a mixed plan, as the plan of that rank (from 1)."""
    return document.write(solution(prepared, mixed_plan), rank)


def kept(prepared: PreparedPools, mixed_plan: MixedPlan) -> schema.Plan | None:
    """The plan before verification; None where the job gets nowhere between two interruptions, or loses so much to
    them that it misses its deadline or its budget (the search knows them with the goodput of all nodes).
    """
    one = solution(prepared, mixed_plan)
    if float(document.goodput_of(one).fraction) <= 0:
        return None
    doc = document.write(one, 1)
    missed = any(c.slack < -1e-9 * c.limit for c in doc.constraints if c.name in ("deadline", "budget"))
    return None if missed else doc


def value_of(request: Request, plan: schema.Plan) -> float:
    """The objective that a plan reaches: seconds, dollars or joules for all tokens."""
    if request.objective == "time":
        return plan.money.days
    if request.objective == "energy":
        return plan.energy.energy_j if plan.energy.energy_j is not None else float("inf")
    return plan.money.usd_total if plan.money.usd_total is not None else float("inf")


def step_value(request: Request, plan: schema.Plan) -> float:
    """The search's objective (a step's seconds, or times nodes and weight) that a plan of one pool reaches."""
    step = plan.prediction.step_time_s
    pool = plan.cluster.pools[0]
    if request.objective == "time":
        return step
    weight = pool.count * (pool.max_power_w or 0.0) if request.objective == "energy" else plan.money.usd_per_hour
    return step * weight if weight else float("inf")


def solution(prepared: PreparedPools, mixed_plan: MixedPlan) -> Solution:
    """A mixed plan as :func:`planner.planning.document.write` takes it."""
    batch = prepared.setting.offer.batch
    used = _pools_in_order(prepared, mixed_plan)
    place = {pool: i for i, pool in enumerate(used)}
    groups = tuple(group_section(prepared, group, place) for group in mixed_plan.groups)
    degrees = _degrees(groups)
    shards = _shards(groups)
    options = _used_options(prepared.options, degrees, shards)
    recomputed = sorted({stage.recompute for group in groups for stage in group.stages})
    held = sections(degrees, options)
    configuration = schema.Configuration(
        parallelism=_parallelism(held["parallelism"], shards if options[ZERO] else 1, groups),
        batch=schema.Batch(
            global_=batch,
            micro=max(g.micro for g in groups),
            accumulation=max(g.micro_batches for g in groups),
            per_pool=sequences_per_pool(groups, len(used)),
        ),
        precision=prepared.precision,
        recompute=recompute_section(groups),
        offload={"optimizer": False},
        overlap=schema.Overlap(**held["overlap"]),
    )
    return Solution(
        request=prepared.request,
        question=prepared.pools,
        pools=tuple(_pool(prepared, pool, mixed_plan.nodes[pool]) for pool in used),
        configuration=configuration,
        step_time=mixed_plan.time,
        breakdown=breakdown(prepared, mixed_plan),
        model_flops=_model_flops(prepared, batch),
        fullest=fullest_stage(prepared, mixed_plan, place),
        time_spread=releases.time_spread(prepared, mixed_plan),
        memory_spread=prepared.memory_spread,
        older=releases.older(prepared, mixed_plan, degrees, options, recomputed),
    )


def _pools_in_order(prepared: PreparedPools, mixed_plan: MixedPlan) -> list[int]:
    """The pools in use as they are numbered: along the pipelines where these are all of one kind, as launchers number
    their ranks; else as they were given.
    """
    kinds = {group.kind for group in mixed_plan.groups}
    if len(kinds) == 1:
        chain = prepared.chains[int(prepared.setting.kinds.chain[kinds.pop()])]
        return list(dict.fromkeys(pool for pool, _ in chain))
    return [i for i, n in enumerate(mixed_plan.nodes) if n]


def _pool(prepared: PreparedPools, pool: int, nodes: int) -> PoolInUse:
    return PoolInUse(
        pool=prepared.pools.all[pool],
        nodes=nodes,
        peak=float(prepared.figures[pool].devices[prepared.precision].peak),
        profile=prepared.profiles[pool],
        layer_times=prepared.layer_times[pool],
        efficiency_notes=prepared.reached[pool].notes,
    )


def _degrees(groups: Sequence[schema.Group]) -> dict[str, int]:
    """The largest degrees of any stage; dp counts all pipelines."""
    every = [stage for group in groups for stage in group.stages]
    largest = {axis: max(getattr(stage, axis) for stage in every) for axis in ("tp", "cp", "ep")}
    pipelines = sum(group.copies * group.width for group in groups)
    return {**largest, "pp": max(len(group.stages) for group in groups), "vpp": 1, "etp": 1, "dp": pipelines}


def _shards(groups: Sequence[schema.Group]) -> int:
    """Ranks that can share optimizer states: context-parallel ones as well as pipelines side by side."""
    return max(group.width * stage.cp for group in groups for stage in group.stages)


def _used_options(options: OptionValues, degrees: Mapping[str, int], shards: int) -> OptionValues:
    """The options that all groups have in common, those that no degree uses left neutral."""
    ranks = stages.ranks_of_options(tp=degrees["tp"], cp=degrees["cp"], shards=shards)
    return options.replaced(**{axis.name: axis.neutral for axis, together in ranks.items() if together == 1})


def _parallelism(axes: Mapping[str, Any], shards: int, groups: Sequence[schema.Group]) -> schema.Parallelism:
    """Stages are those of the group with most of the batch."""
    main = max(groups, key=lambda g: g.sequences)
    return schema.Parallelism(
        **axes,
        dp_shard=shards,
        stages=tuple(
            schema.Stage(pool=s.pool, layers=s.layers, tp=s.tp, dp=main.copies * main.width) for s in main.stages
        ),
        groups=tuple(groups),
    )


def _model_flops(prepared: PreparedPools, batch: int) -> float:
    """FLOPs of a step of so many sequences; they depend on the model alone, not on how it is cut."""
    grid = stages.stage_columns(prepared.figures[0], one_config(prepared, 0, 0), prepared.options, prepared.precision)
    layout = {name: scalar(getattr(grid.layout, name)) for name in Layout.__dataclass_fields__}
    return float(cost.model_flops(stages.with_layout(grid, Layout(**{**layout, "batch": float(batch)}))))


def nothing(request: Request, pools: Pools, refused: Sequence[str]) -> str:
    """That no pools, together or alone, have a plan: why each alone has none (`refused`), and what would help."""
    names = " + ".join(f"{p.name}:{p.count}" for p in pools.all)
    limits = request.deadline_s is not None or request.max_cost_usd is not None
    idle = float(goodput_over(request, [(p, float(p.count)) for p in pools.all]).fraction) <= 0
    why = "keeps the limits" if limits else "makes progress between interruptions" if idle else "fits into memory"
    lines = [f"No plan on {names} {why}, neither over several pools nor on one.", *refused]
    if limits:
        lines.append("What would do: a later deadline (--deadline) or a larger budget (--max-cost).")
    return "\n".join(lines)


def beyond_launchers(plan: schema.Plan, less: float) -> schema.BeyondLaunchers:
    """A plan that no launcher starts, and how much `less` of the objective it takes (a fraction)."""
    return schema.BeyondLaunchers(uses=nodes_used(plan.cluster), step_time_s=plan.prediction.step_time_s, less=less)
