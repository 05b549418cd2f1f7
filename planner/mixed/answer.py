"""What the search over several pools found, as a plan's document."""

from __future__ import annotations

from collections.abc import Sequence

from planner import cost
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
from planner.mixed.problem import PreparedPools
from planner.models import context
from planner.planning import document
from planner.planning.document import PoolInUse, Solution
from planner.question.request import Request
from planner.schema import plan as schema


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
    configuration = schema.Configuration(
        parallelism=_parallelism(prepared, groups),
        batch=schema.Batch(
            global_=batch,
            micro=max(g.micro for g in groups),
            accumulation=max(g.micro_batches for g in groups),
            per_pool=sequences_per_pool(groups, len(used)),
        ),
        precision=prepared.precision,
        recompute=recompute_section(groups),
        offload={"optimizer": False},
        overlap=_overlap(prepared, groups),
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
        older=releases.older(prepared, mixed_plan, configuration),
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


def _overlap(prepared: PreparedPools, groups: Sequence[schema.Group]) -> schema.Overlap:
    splits_tensors = any(s.tp > 1 for g in groups for s in g.stages)
    switches = prepared.switches
    return schema.Overlap(
        tp=splits_tensors and switches.sequence_parallel and switches.tp_overlap,
        dp=prepared.setting.dp_overlap,
        p2p=False,
    )


def _parallelism(prepared: PreparedPools, groups: Sequence[schema.Group]) -> schema.Parallelism:
    """The largest degrees of any stage; stages are those of the group with most of the batch."""
    every = [stage for group in groups for stage in group.stages]
    main = max(groups, key=lambda g: g.sequences)
    depth = max(len(g.stages) for g in groups)
    # Context-parallel ranks share optimizer states as well as pipelines side by side do.
    shards = max(g.width * s.cp for g in groups for s in g.stages)
    zero: schema.ZeroStage = 1 if prepared.setting.zero and shards > 1 else 0
    return schema.Parallelism(
        tp=max(s.tp for s in every),
        pp=depth,
        vpp=1,
        cp=max(s.cp for s in every),
        ep=max(s.ep for s in every),
        etp=1,
        dp=sum(g.copies * g.width for g in groups),
        dp_shard=shards if zero else 1,
        rank_order="tp-cp-ep-dp-pp",
        schedule="none" if depth == 1 else "1f1b",
        sequence_parallel=prepared.switches.sequence_parallel and any(s.tp > 1 for s in every),
        zero_stage=zero,
        zero_scope="full",
        cp_algorithm=context.algorithms(prepared.request.workload)[0] if any(s.cp > 1 for s in every) else None,
        stages=tuple(
            schema.Stage(pool=s.pool, layers=s.layers, tp=s.tp, dp=main.copies * main.width) for s in main.stages
        ),
        groups=tuple(groups),
    )


def _model_flops(prepared: PreparedPools, batch: int) -> float:
    """FLOPs of a step of so many sequences; they depend on the model alone, not on how it is cut."""
    grid = stages.stage_columns(prepared.figures[0], one_config(prepared, 0, 0), prepared.switches, prepared.precision)
    layout = {name: scalar(getattr(grid.layout, name)) for name in Layout.__dataclass_fields__}
    return float(cost.model_flops(stages.with_layout(grid, Layout(**{**layout, "batch": float(batch)}))))
