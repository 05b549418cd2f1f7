"""Groups of pipelines as they are given: their copies, stages and layers stand, and everything else is priced."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from planner import verify
from planner.axes.table import ZERO
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.cost.figures import Network
from planner.mixed import answer, batch_shares, layer_split, pipelines, prepared_pools, stages
from planner.mixed.layer_split import LayerSplit, StageCosts
from planner.mixed.pipelines import Chain, PipelineTemplates
from planner.mixed.prepared_pools import BoundPools, PreparedPools, RuleSetting
from planner.mixed.run import of_given
from planner.mixed.stages import Priced, StageConfigs
from planner.question.given_groups import spelled_group
from planner.question.job_pools import Pools
from planner.question.request import Request
from planner.schema.plan import Group, PlanSet, SearchSection

METHOD = "one configuration as given"


def estimate(catalog: Catalog, request: Request, offered: Pools, groups: Sequence[Group]) -> PlanSet:
    """A plan of these groups, predicted whether it fits or not: a set of one.

    Args:
        catalog: What is known.
        request: The question, of one batch.
        offered: Its pools, at least one; those that no group stands on are left out.
        groups: Copies, width, micro-batch and stages of each; the batch is shared out so that the step is shortest.

    Raises:
        WrongQuestion: a group that cannot be.
        NoAnswer: the job makes no progress between interruptions.
    """
    offered, groups = _in_use(offered, groups)
    prepared = _prepared(catalog, request, offered, groups)
    copies = np.array([g.copies for g in groups], dtype=np.int64)
    mixed_plan = batch_shares.shortest_step(prepared.setting, np.arange(len(groups)), copies)
    if mixed_plan is None or len(mixed_plan.groups) < len(groups):
        idle = {*range(len(groups))} - {g.kind for g in mixed_plan.groups} if mixed_plan else {0}
        raise WrongQuestion(f"{_named(offered, groups[min(idle)])}: gets none of the batch, others do it sooner alone")
    plan = answer.kept(prepared, mixed_plan)
    if plan is None:
        raise NoAnswer("It makes no progress between interruptions: fewer nodes, or nodes that stay, would.")
    try:
        verify.check(plan, may_exceed_limits=True)
    except verify.Inconsistent as error:
        raise WrongQuestion(f"such groups make no plan: {error}") from None
    fits = all(constraint.slack >= 0.0 for constraint in plan.constraints)
    return PlanSet(
        search=SearchSection(
            candidates=1,
            feasible=int(fits),
            costed=1,
            proven_optimal=True,
            method=METHOD,
            objective=request.objective,
            near_duplicates=1,
        ),
        plans=(plan,),
        reasons=of_given(plan),
        front=(),
        meta={"host": platform.machine()},
    )


def _named(offered: Pools, group: Group) -> str:
    return spelled_group(group, [pool.name for pool in offered.all])


def _in_use(offered: Pools, groups: Sequence[Group]) -> tuple[Pools, list[Group]]:
    """The pools that groups stand on, and these by the places of the pools that are left."""
    used = sorted({s.pool for g in groups for s in g.stages})
    moved = [replace(g, stages=tuple(replace(s, pool=used.index(s.pool)) for s in g.stages)) for g in groups]
    return replace(offered, all=tuple(offered.all[i] for i in used)), moved


def _prepared(catalog: Catalog, request: Request, offered: Pools, groups: Sequence[Group]) -> PreparedPools:
    """The question with these groups as its only kinds of pipelines, in their order."""
    bound = prepared_pools.bind(catalog, request, offered)
    for group in groups:
        if wrong := next(_wrong(bound, group), ""):
            raise WrongQuestion(f"{_named(offered, group)}: {wrong}")
    _enough(offered, groups, request.batches[0])
    policies = prepared_pools.able_policies(request)
    depth = max(len(g.stages) for g in groups)
    tables = tuple(
        stages.priced(f, configs(groups, i), bound.options, bound.precision, policies, depth, most)
        for i, (f, most) in enumerate(zip(bound.figures, bound.usable, strict=True))
    )
    by_group = [templates(g, row, tables, bound.links) for row, g in enumerate(groups)]
    kinds = pipelines.joined([kind for kind, _ in by_group])
    splits = tuple(split for _, split in by_group)
    return prepared_pools.prepared(bound, tables, tuple(chain_of(g) for g in groups), kinds, request.batches[0], splits)


def _enough(offered: Pools, groups: Sequence[Group], batch: int) -> None:
    """Raises WrongQuestion where there are not so many accelerators, or sequences."""
    for i, pool in enumerate(offered.all):
        needed = sum(g.copies * g.width * s.tp * s.cp for g in groups for s in g.stages if s.pool == i)
        if needed > pool.cluster.accelerators:
            raise WrongQuestion(
                f"the groups take {needed:,} accelerators of {pool.name}, which has {pool.cluster.accelerators:,}"
            )
    if (pipes := sum(g.copies * g.width for g in groups)) > batch:
        raise WrongQuestion(f"{pipes:,} pipelines and a batch of {batch:,} sequences: some would get none (--batch)")


def _wrong(bound: BoundPools, group: Group) -> Iterator[str]:
    """What cannot be of a group."""
    request = bound.request
    pools = bound.offered.all
    chain = chain_of(group)
    layers = int(bound.figures[0].shape.layers)
    held = sum(s.layers for s in group.stages)
    lead = int(bound.figures[0].shape.leading_dense)
    if len(chain) > pipelines.MOST_POOLS or len({pool for pool, _ in chain}) < len(chain):
        yield f"a pipeline stands on one pool, or on one after the other of {pipelines.MOST_POOLS}"
    if len({(s.pool, s.tp, s.cp, s.ep) for s in group.stages}) > len(chain):
        yield "all stages of a pipeline on one pool have the same tp, cp and ep"
    if held != layers:
        yield f"its stages hold {held:,} layers, {request.workload.model.name} has {layers:,}"
    if group.stages[0].layers < lead:
        yield f"the first stage holds the {lead} leading dense layers"
    if len(group.stages) > 1 and not prepared_pools.may_be_cut(request):
        yield f"{request.runtime.id} cuts {request.workload.model.name} into equal stages only"
    able = [policy.name for policy in prepared_pools.able_policies(request)]
    if lacking := {s.recompute for s in group.stages} - {*able}:
        yield f"{request.runtime.id} recomputes {', '.join(able)}, not {min(lacking)}"
    if group.width > 1 and not (bound.options[ZERO] or request.workload.model.moe):
        yield "width > 1 is of pipelines that share optimizer states (zero=1) or experts"
    for stage in group.stages:
        columns = prepared_pools.columns_of(
            np.array([[stage.tp, stage.cp, stage.ep, group.micro, group.width]]), pools[stage.pool].cluster
        )
        setting = RuleSetting(request.workload, pools[stage.pool].cluster, request.runtime)
        if broken := [r for r in prepared_pools.rules_of_stages(request) if not r.holds(columns, setting).all()]:
            yield f"on {pools[stage.pool].name}: {broken[0].name}: {broken[0].says}"
        if stage.ep > (stage.tp * stage.cp * group.width if request.workload.model.moe else 1):
            yield f"ep={stage.ep} experts' ranks among {stage.tp * stage.cp * group.width} ranks of a stage"
        for axis in ("tp", "cp", "ep"):
            known = request.runtime.axes.get(axis, (1,))
            value = getattr(stage, axis)
            if known != "any" and value not in known:
                yield f"{request.runtime.id} has no {axis}={value}"


# ---- groups as kinds of pipelines ------------------------------------------------------------------------------------


def chain_of(group: Group) -> Chain:
    """Its pools in order, with the stages on each."""
    return tuple((pool, len(list(run))) for pool, run in groupby(s.pool for s in group.stages))


def configs(groups: Sequence[Group], pool: int) -> StageConfigs:
    """How every group runs its stages on a pool; any way where it has none there."""
    rows = []
    for g in groups:
        s = next((s for s in g.stages if s.pool == pool), None)
        rows.append((s.tp, s.cp, s.ep, 1, g.micro, g.width) if s else (1, 1, 1, 1, g.micro, g.width))
    return StageConfigs(*np.array(rows, dtype=float).T)


def costs(chain: Chain, row: int, tables: Sequence[Priced], links: dict[tuple[int, int], Network]) -> StageCosts:
    """What the stages of a group cost, whose row in the tables of its pools this is."""
    return pipelines.chain_costs(chain, [np.array([row])] * len(chain), tables, links)


def dealt(group: Group, known: StageCosts, policies: Sequence[str]) -> LayerSplit:
    """Its layers and policies as they are given, and what a micro-batch then takes."""
    layers = np.array([[s.layers for s in group.stages]], dtype=np.int64)
    policy = np.array([[policies.index(s.recompute) for s in group.stages]])
    times = layer_split.dealt_times(known, layers, policy)
    return LayerSplit(layers, policy, times.max(-1), times.sum(-1))


def templates(
    group: Group, row: int, tables: Sequence[Priced], links: dict[tuple[int, int], Network]
) -> tuple[PipelineTemplates, LayerSplit]:
    """A group as the one kind of pipelines that it is of, and the layers of its stages."""
    chain = chain_of(group)
    split = dealt(group, costs(chain, row, tables, links), [p.name for p in tables[0].policies])
    usage = np.zeros((1, len(tables)), dtype=np.int64)
    for pool, count in chain:
        usage[:, pool] += (count * tables[pool].configs.accelerators[[row]]).astype(np.int64)
    return pipelines.columns(row, chain, [np.array([row])] * len(chain), usage, tables, split), split
