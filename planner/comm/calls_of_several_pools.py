"""The calls of a plan over several pools: its document and a catalog back to what :mod:`planner.mixed` priced it with.

Every group of alike pipelines has its own calls, on every pool that its stages stand on. A rank of a stage makes those
of its layers and of its transfers; replicas reduce within a pool, or across the links between pools where these hold
the same layers. What paces the step (the slowest stage of the slowest group, and the slowest reduction) adds up to the
terms of the plan's breakdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes.options import OptionValues, option_values
from planner.axes.values import FULL, NO_RECOMPUTE, SELECTIVE
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, cluster
from planner.cost import calls, collective_times, data_parallel, pipeline
from planner.cost.calls import Call
from planner.cost.evaluate import passes
from planner.cost.figures import Array, Grid, Layout, Network, Options
from planner.mixed import batch_shares, given, layer_split, pipelines, stages
from planner.mixed.batch_shares import BundleSetting, Placement
from planner.mixed.integer_program import Offer
from planner.mixed.pipelines import Chain, PipelineTemplates
from planner.mixed.prepared_pools import joint_stack
from planner.mixed.stages import Priced, StageConfigs
from planner.question import job_pools as pools
from planner.question.job_pools import JobPool, LinkBetween, Pools, part_of
from planner.schema.hardware import Cluster
from planner.schema.plan import Group, Plan
from planner.space.cost_grid import Figures

SAME = 1e-6
"""Relative: what a plan's own times may differ by before they count as another catalog's."""
LINK = "link"
"""Where calls run that pass from one pool to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCall(Call):
    """A call of a plan over several pools."""

    pipelines: int
    """Group of alike pipelines, from 0."""
    stage: int
    """Stage of these pipelines, from 0; the stage of the most parameters for reductions, whose size is its own."""
    leads: bool
    """Whether it stands for its like: its stage is the slowest of its pipelines on its pool, or it passes a link."""
    paces: bool
    """Whether the step waits for it: the others run beside."""


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A mixed plan with all that it was priced with."""

    plan: Plan
    pools: Pools
    figures: tuple[Figures, ...]
    tables: tuple[Priced, ...]
    """Priced stages of every pool: one way for each group."""
    links: dict[tuple[int, int], Network]
    chains: tuple[Chain, ...]
    options: OptionValues
    setting: BundleSetting
    """Its kinds are the plan's groups."""

    @property
    def together(self) -> Placement:
        """Pools, nodes and replicas of all groups together."""
        return batch_shares.together(self.setting, self.setting.kinds, copies(self.plan))


def copies(plan: Plan) -> NDArray[np.int64]:
    """Bundles of every group, shape (groups,)."""
    return np.array([g.copies for g in plan.parallelism.groups], dtype=np.int64)


def several(plan: Plan) -> bool:
    """Whether a plan is over several pools, or was searched as one."""
    return bool(plan.parallelism.groups) or len(plan.cluster.pools) > 1


# ---- a document back to figures --------------------------------------------------------------------------------------


def places(plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()) -> tuple[Cluster, ...]:
    """The nodes of every pool, all that were offered: the catalog's, or those of a file of the same node.

    Raises:
        WrongQuestion: a node or fabric that neither the catalog nor a file has.
    """
    files = {one.node.id: one for one in clusters}
    for name in files:
        if name not in {pool.node for pool in plan.cluster.pools}:
            raise WrongQuestion(f"{where}: no pool of it has the node {name!r} of --cluster {files[name].name}")
    pool_places = []
    for at, pool in enumerate(plan.cluster.pools):
        count = pool.offered or pool.count
        fabric = pool.network or (plan.cluster.fabric.id if at == 0 else None)
        if pool.node in files:
            pool_places.append(replace(files[pool.node], count=count))
            continue
        missing = [f"node {pool.node!r}"] if pool.node not in catalog.nodes else []
        missing += [f"fabric {fabric!r}"] if fabric is not None and fabric not in catalog.fabrics else []
        if missing:
            raise WrongQuestion(
                f"{where}: the {missing[0]} of pool {at + 1} is not in the catalog; give the cluster's file that the "
                "plan was made from (--cluster FILE.toml), or the catalog that has it (--catalog DIR)"
            )
        usual = cluster(catalog, pool.node, count, fabric, plan.cluster.region)
        pool_places.append(replace(usual, node=part_of(usual.node, pool.accelerators_per_node)))
    return tuple(pool_places)


def known(plan: Plan, at: Sequence[Cluster], figures: Sequence[Figures], able: Collection[str]) -> KnownPlan:
    """A plan's groups as the kinds of pipelines that they are, each with its own stages and deal: on every pool's
    nodes, with their figures, and the recomputation that the runtime is `able` to do.
    """
    p = plan.parallelism
    joined = _pools(plan, at)
    options = option_values(**{axis.name: axis.value(axis.of(plan)) for axis in stages.SHARED})
    used = {s.recompute for g in p.groups for s in g.stages}
    policies = [r for r in (NO_RECOMPUTE, SELECTIVE, FULL) if r.name in used or r.name in able]
    depth = max(len(g.stages) for g in p.groups)
    tables = tuple(
        stages.priced(f, given.configs(p.groups, i), options, plan.precision, policies, depth, c.accelerator.memory)
        for i, (f, c) in enumerate(zip(figures, at, strict=True))
    )
    links = {
        (i, j): pools.link_between(joined, a, b, figures[i].network, figures[j].network)
        for i, a in enumerate(joined.all)
        for j, b in enumerate(joined.all)
        if i != j
    }
    chains = tuple(map(given.chain_of, p.groups))
    kinds = pipelines.joined([given.templates(g, i, tables, links)[0] for i, g in enumerate(p.groups)])
    networks = tuple(f.network for f in figures)

    def network_of(some: Sequence[int]) -> Network:
        subset = [joined.all[i] for i in some]
        return pools.joint(
            joined, subset, [networks[i] for i in some], float(sum(q.cluster.accelerators for q in subset))
        )

    setting = BundleSetting(
        kinds=kinds,
        shape=figures[0].shape,
        device=figures[0].devices[plan.precision],
        stack=joint_stack(figures),
        networks=networks,
        network_of=network_of,
        options=options,
        offer=Offer(
            tuple(c.count for c in at),
            tuple(c.node.accelerators for c in at),
            tuple(1.0 for _ in at),
            plan.batch.global_,
        ),
        by_rate=False,
        longest=math.inf,
        most=math.inf,
    )
    return KnownPlan(plan, joined, tuple(figures), tables, links, chains, options, setting)


def _pools(plan: Plan, at: Sequence[Cluster]) -> Pools:
    """Pools named by their place, joined by the links that the document tells."""
    stand = enumerate(zip(at, plan.cluster.pools, strict=True))
    every = tuple(JobPool(name=str(i), cluster=c, zone=s.zone) for i, (c, s) in stand)
    given = {
        frozenset(str(i) for i in link.pools): LinkBetween(link.bytes_per_s, link.latency_s, link.basis)
        for link in plan.cluster.links
    }
    return Pools(every, given)


def _times(k: KnownPlan, row: int) -> Array:
    """Seconds of a micro-batch on every stage of a group, as the document deals its layers."""
    g = k.plan.parallelism.groups[row]
    names = [p.name for p in k.tables[0].policies]
    costs = given.costs(k.chains[row], row, k.tables, k.links)
    split = given.dealt(g, costs, names)
    return np.asarray(layer_split.dealt_times(costs, split.layers, split.policy)[0])


# ---- calls -----------------------------------------------------------------------------------------------------------


def listed(k: KnownPlan) -> tuple[PoolCall, ...]:
    """Every collective of a step, group by group and in each stage by stage; seconds and bytes of one rank."""
    groups = k.plan.parallelism.groups
    slowest = max(range(len(groups)), key=lambda i: groups[i].time_s)
    pool_calls: list[PoolCall] = []
    for row, g in enumerate(groups):
        times = _times(k, row)
        for i, s in enumerate(g.stages):
            on_pool = [j for j, other in enumerate(g.stages) if other.pool == s.pool]
            leads = i == max(on_pool, key=lambda j: times[j])
            last = int(np.argmax(times))
            paces = row == slowest and i == last
            # Of both ends of a link one stands for it: that which paces, else the one before it.
            before = any(other.pool != s.pool for other in g.stages[i + 1 : i + 2])
            links = paces or (before and not (row == slowest and last == i + 1))
            for call in calls.merged([*_of_layers(k, row, i), *_of_hops(k, row, i)]):
                shown = links if call.where == LINK else leads
                pool_calls.append(_on(call, (s.pool,), row, i, leads=shown, paces=paces))
        pool_calls += _of_replicas(k, row, paces=row == slowest)
    return tuple(pool_calls)


def _on(call: Call, where: tuple[int, ...], row: int, stage: int, *, leads: bool, paces: bool) -> PoolCall:
    fields = {name: getattr(call, name) for name in Call.__dataclass_fields__}
    fields["pools"] = call.pools or where
    return PoolCall(**fields, pipelines=row, stage=stage, leads=leads, paces=paces)


def _grid(k: KnownPlan, row: int, stage: int) -> Grid:
    """A stage as figures, one scalar each; its layout is that of replicas by themselves."""
    s = k.plan.parallelism.groups[row].stages[stage]
    table = k.tables[s.pool]
    one = StageConfigs(
        *(getattr(table.configs, name)[row : row + 1] for name in ("tp", "cp", "ep", "etp", "micro", "width"))
    )
    grid = stages.stage_columns(k.figures[s.pool], one, k.options, k.plan.precision)
    return _scalars(stages.with_policy(grid, next(p for p in table.policies if p.name == s.recompute)))


def _scalars(grid: Grid) -> Grid:
    """The figures of one row as plain numbers."""

    def plain(name: str, record: object) -> float:
        return float(np.ravel(np.asarray(getattr(record, name), dtype=float))[0])

    return replace(
        grid,
        layout=Layout(**{name: plain(name, grid.layout) for name in Layout.__dataclass_fields__}),
        options=Options(**{name: plain(name, grid.options) for name in Options.__dataclass_fields__}),
        network=replace(grid.network, domain=plain("domain", grid.network)),
    )


def _of_layers(k: KnownPlan, row: int, stage: int) -> Iterator[Call]:
    """Calls of tensor, context and expert ranks."""
    g = k.plan.parallelism.groups[row]
    s = g.stages[stage]
    grid = _grid(k, row, stage)
    leading = min(k.tables[s.pool].least, s.layers) if stage == 0 else 0
    steps = float(g.micro_batches)
    yield from calls.of_layers(grid, passes(grid), [steps * leading, steps * (s.layers - leading)])


def _of_hops(k: KnownPlan, row: int, stage: int) -> Iterator[Call]:
    """Activations and gradients to the stage before and to the next. Within the pool the slower of the two shows; of a
    link before the stage all, of one behind it the gradients (:func:`planner.cost.pipeline.waited`).
    """
    g = k.plan.parallelism.groups[row]
    sides = {i: _hop(k, row, i) for i in (stage - 1, stage) if 0 <= i < len(g.stages) - 1}
    inside = [i for i, call in sides.items() if call.where != LINK]
    slower = max(inside, key=lambda i: sides[i].alone_s, default=-1)
    for i, call in sides.items():
        share = float(i == slower) if call.where != LINK else 1.0 if i < stage else pipeline.LEAVING
        yield replace(call, exposed_s=share * call.alone_s)


def _hop(k: KnownPlan, row: int, before: int) -> Call:
    """All transfers of a step between a stage and the next, both ways."""
    g = k.plan.parallelism.groups[row]
    depth, steps = len(g.stages), float(g.micro_batches)
    one = g.stages[before].pool
    other = g.stages[before + 1].pool
    grid = _grid(k, row, before)
    if one == other:
        apart = replace(grid.layout, pp=2.0, dp=grid.network.accelerators / (2.0 * grid.layout.tp * grid.layout.cp))
        apart_grid = replace(grid, layout=apart)
        stage_calls = next(calls.of_stages(apart_grid, passes(apart_grid).layers))
        alone = stage_calls.alone_s / stage_calls.count * 2.0 * steps
        return replace(stage_calls, ranks=depth, count=2.0 * steps, alone_s=alone, exposed_s=alone)
    size = max(float(k.tables[pool].hop_bytes[row]) for pool in (one, other))
    alone = 2.0 * steps * float(collective_times.send(k.links[one, other], size, 1.0, 2.0))
    both = (min(one, other), max(one, other))
    return Call(calls.SEND, "pp", "p2p", depth, 1, 2.0, LINK, size, 2.0 * steps, alone, alone, both)


def _of_replicas(k: KnownPlan, row: int, *, paces: bool) -> list[PoolCall]:
    """Reductions over replicas: across the pools that hold the same layers, else on each pool by itself."""
    on = k.together
    kind = k.setting.kinds.taken(np.array([row]))
    if on.spans_pools:
        network = batch_shares.across(kind, k.setting.network_of(on.pools), on.replicas_per_domain)
        parts = [(on.pools, tuple(replace(c, where=LINK) for c in _reduced(k, kind, network, on.replicas)))]
    else:
        parts = [(tuple([p]), _reduced(k, kind, k.setting.network_of((p,)), on.replicas)) for p in on.pools]
    slowest = max(range(len(parts)), key=lambda i: sum(call.exposed_s for call in parts[i][1]))
    g = k.plan.parallelism.groups[row]
    replica_calls = []
    for i, (where, several) in enumerate(parts):
        stage = next((j for j, s in enumerate(g.stages) if s.pool in where), 0)
        replica_calls += [_on(call, where, row, stage, leads=True, paces=paces and i == slowest) for call in several]
    return replica_calls


def _reduced(k: KnownPlan, kind: PipelineTemplates, network: Network, replicas: float) -> tuple[Call, ...]:
    grid, held = batch_shares.replicated(k.setting, kind, network, replicas)
    mine = data_parallel.ShardedState(float(held.dense[0]), float(held.experts[0]))
    passes = (float(kind.forward[0]), float(kind.backward[0]))
    layers = float(kind.layers[0])
    one = _scalars(grid)
    traffic = data_parallel.data_parallel_traffic(one, mine, layers, *passes)
    return calls.merged(calls.of_replicas(one, mine, layers, traffic))


# ---- the plan's own figures ------------------------------------------------------------------------------------------


def times(k: KnownPlan) -> tuple[list[Array], Array]:
    """Seconds of a micro-batch on every stage of every group, and of a step on every group."""
    groups = k.plan.parallelism.groups
    group_times = [_times(k, row) for row in range(len(groups))]
    kinds = k.setting.kinds
    on = k.together
    shown = batch_shares.reductions(
        k.setting, kinds, on.pools, on.replicas, on.replicas_per_domain, spans_pools=on.spans_pools
    )
    straggler_factor = batch_shares.straggler_factor_on(k.setting, k.setting.network_of(on.pools))
    steps = np.array([float(g.micro_batches) for g in groups])
    return group_times, batch_shares.kind_time(k.setting, kinds, straggler_factor, steps, shown)


def stretched(k: KnownPlan, pool_calls: Sequence[PoolCall], ratio: Callable[[PoolCall], float]) -> float:
    """Seconds of a step if every call took `ratio` of its time: the slowest group's, whichever that is then."""
    group_times, _ = times(k)
    groups = k.plan.parallelism.groups
    kinds = k.setting.kinds
    on = k.together
    slowest, total, shown = [], [], []
    for row, (g, old) in enumerate(zip(groups, group_times, strict=True)):
        mine = [call for call in pool_calls if call.pipelines == row]
        new = np.array([t - _gained(g, i, mine, ratio) for i, t in enumerate(old)])
        slowest.append(float(new.max()))
        total.append(float(new.sum()))
        reduced: dict[tuple[int, ...], float] = {}
        for call in mine:
            if call.cause == "dp":
                reduced[call.pools] = reduced.get(call.pools, 0.0) + call.exposed_s * ratio(call)
        shown.append(max(reduced.values(), default=0.0))
    steps = np.array([float(g.micro_batches) for g in groups])
    straggler_factor = batch_shares.straggler_factor_on(k.setting, k.setting.network_of(on.pools))
    kinds = replace(kinds, slowest=np.array(slowest), total=np.array(total))
    return float(np.max(batch_shares.kind_time(k.setting, kinds, straggler_factor, steps, np.array(shown))))


def _gained(g: Group, stage: int, mine: Sequence[PoolCall], ratio: Callable[[PoolCall], float]) -> float:
    """Seconds of a micro-batch that a stage gains; of its transfers within the pool the slower side shows, before and
    then.
    """
    stage_calls = [call for call in mine if call.stage == stage and call.cause != "dp"]
    hops = [call for call in stage_calls if call.cause == "p2p" and call.where != LINK]
    gained = sum(call.exposed_s * (1.0 - ratio(call)) for call in stage_calls if call not in hops)
    # A row of 4 transfers a micro-batch is both sides.
    sides = [call.alone_s / (call.count / (2.0 * g.micro_batches)) * ratio(call) for call in hops]
    return float(gained + sum(call.exposed_s for call in hops) - max(sides, default=0.0)) / g.micro_batches


def network(k: KnownPlan, call: PoolCall) -> Network:
    """The network that a call passes: its pool's, the link between two pools, or the slowest of its replicas' pools."""
    if call.cause != "dp":
        return k.links[call.pools[0], call.pools[1]] if call.where == LINK else k.figures[call.pools[0]].network
    if call.where != LINK:
        return k.setting.network_of(call.pools)
    kind = k.setting.kinds.taken(np.array([call.pipelines]))
    network_across = batch_shares.across(kind, k.setting.network_of(call.pools), k.together.replicas_per_domain)
    return replace(network_across, domain=float(np.ravel(network_across.domain)[0]))
