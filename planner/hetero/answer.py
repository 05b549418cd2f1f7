"""A mixed plan as the document that leaves the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner import cost, document
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.cost import money, pipeline, risk
from planner.cost.evaluate import passes
from planner.cost.figures import Grid, Layout
from planner.cost.goodput import BASIS, GoodputEstimate, at_best, goodput
from planner.cost.memory import PARTS, Memory
from planner.hetero import bundles, layer_split, pipelines, stages
from planner.hetero.bundles import BundleGroup, MixedPlan
from planner.hetero.problem import PreparedPools
from planner.hetero.stages import StageConfigs
from planner.models.parameters import parameters
from planner.performance import intervals
from planner.question.joined import JobPool
from planner.question.prepared import how_sure
from planner.schema import plan as schema


def plan(catalog: Catalog, prepared: PreparedPools, found: MixedPlan, rank: int) -> schema.Plan:
    """Everything that is known of a mixed plan."""
    request, batch = prepared.request, prepared.setting.offer.batch
    used = _in_order(prepared, found)
    place = {pool: i for i, pool in enumerate(used)}
    groups = tuple(_group(prepared, group, place) for group in found.groups)
    run = _money(prepared, found, used)
    fullest, held = _fullest(prepared, found)
    kinds = prepared.setting.kinds
    switches, split = prepared.switches, bool(np.any(kinds.tp[[g.kind for g in found.groups]] > 1))
    pipelines_in_all = sum(g.copies * g.width for g in groups)
    flops = float(cost.model_flops(_layout_of(prepared, batch)))
    peaks = sum(
        found.nodes[i] * prepared.pools.all[i].per_node * float(prepared.figures[i].devices[prepared.precision].peak)
        for i in used
    )
    main = max(groups, key=lambda g: g.sequences)
    # Context-parallel ranks share optimizer states as well as pipelines side by side do.
    shards = max(g.width * s.cp for g in groups for s in g.stages)
    zero: schema.ZeroStage = 1 if prepared.setting.zero and shards > 1 else 0
    pp = max(len(g.stages) for g in groups)
    return schema.Plan(
        rank=rank,
        generator=schema.Generator(version=__version__, seed=0, inputs=dict(request.inputs or {})),
        workload=document.workload_section(request),
        cluster=_cluster(prepared, found, used),
        runtime=document.runtime_section(request, prepared.precision),
        parallelism=schema.Parallelism(
            tp=max(s.tp for g in groups for s in g.stages),
            pp=pp,
            vpp=1,
            cp=max(s.cp for g in groups for s in g.stages),
            ep=max(s.ep for g in groups for s in g.stages),
            etp=1,
            dp=pipelines_in_all,
            dp_shard=shards if zero else 1,
            rank_order="tp-cp-ep-dp-pp",
            schedule="none" if pp == 1 else "1f1b",
            sequence_parallel=split and switches.sequence_parallel,
            zero_stage=zero,
            zero_scope="full",
            stages=tuple(
                schema.Stage(pool=s.pool, layers=s.layers, tp=s.tp, dp=main.copies * main.width) for s in main.stages
            ),
            groups=groups,
        ),
        batch=schema.Batch(
            global_=batch,
            micro=max(g.micro for g in groups),
            accumulation=max(g.micro_batches for g in groups),
            per_pool=_per_pool(groups, len(used)),
        ),
        precision=prepared.precision,
        recompute=_recompute(groups),
        offload={"optimizer": False},
        overlap=schema.Overlap(
            tp=split and switches.sequence_parallel and switches.tp_overlap,
            dp=prepared.setting.dp_overlap,
            p2p=False,
        ),
        communication=(),
        env={},
        prediction=schema.Prediction(
            step_time_s=found.time,
            breakdown=breakdown(prepared, found),
            tokens_per_s=batch * request.workload.sequence / found.time,
            mfu=flops / found.time / peaks,
            model_flops=flops,
            memory=_memory(prepared, fullest, held),
            intervals={
                "step_time_s": _interval(catalog, prepared, used, found.time),
                "memory_bytes": _memory_interval(prepared, held),
            },
        ),
        money=run,
        energy=_energy(prepared, found, used, run.days * money.DAY_S),
        constraints=_constraints(prepared, found, used, held, fullest, run),
        assumptions=_assumptions(prepared, used),
    )


def of_another_run(plan: schema.Plan, tokens: float, restart_s: float, preemptions_per_s: float) -> schema.Plan:
    """The same plan for another number of tokens, other restarts, and machines that may be taken back: a step takes as
    long, the whole run does not. `plan` itself has no preemptions.
    """
    run, energy, known = plan.money, plan.energy, plan.money.goodput
    mtbf = 1.0 / (1.0 / known.mtbf_s + preemptions_per_s)
    good = at_best(mtbf, known.checkpoint_blocks_s, restart_s)
    steps = money.steps(tokens, plan.batch.global_, plan.workload.sequence)
    days = float(money.wall_time(plan.prediction.step_time_s, steps, good.fraction)) / money.DAY_S
    longer = days / run.days
    total = None if run.usd_per_hour is None else run.usd_per_hour * 24.0 * days

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * longer

    return replace(
        plan,
        workload=replace(plan.workload, tokens=tokens),
        money=replace(
            run,
            days=days,
            steps=steps,
            usd_total=total,
            tokens_per_usd=tokens / total if total else None,
            goodput=replace(
                known,
                fraction=float(good.fraction),
                mtbf_s=float(mtbf),
                checkpoint_interval_s=float(good.interval),
                restart_s=float(good.restart),
            ),
        ),
        energy=replace(
            energy, energy_j=scaled(energy.energy_j), usd=scaled(energy.usd), carbon_kg=scaled(energy.carbon_kg)
        ),
    )


def _in_order(prepared: PreparedPools, found: MixedPlan) -> list[int]:
    """The pools in use as they are numbered: along the pipelines where these are all of one kind, as launchers number
    their ranks; else as they were given.
    """
    kinds = {group.kind for group in found.groups}
    if len(kinds) == 1:
        chain = prepared.chains[int(prepared.setting.kinds.chain[kinds.pop()])]
        return list(dict.fromkeys(pool for pool, _ in chain))
    return [i for i, n in enumerate(found.nodes) if n]


# ---- groups and stages -----------------------------------------------------------------------------------------------


def dealt(
    prepared: PreparedPools, kind: int
) -> tuple[pipelines.Chain, list[int], layer_split.LayerSplit, layer_split.StageCosts]:
    """A kind's chain, the rows of its ways, its deal and its stages: what the search found, taken again."""
    kinds = prepared.setting.kinds
    chain = prepared.chains[int(kinds.chain[kind])]
    rows = [int(kinds.ways[kind, place]) for place in range(len(chain))]
    of = pipelines.unlike(chain, [np.array([row]) for row in rows], prepared.tables, prepared.links)
    return chain, rows, layer_split.split_layers(of, int(prepared.figures[0].shape.layers)), of


def _group(prepared: PreparedPools, group: BundleGroup, place: dict[int, int]) -> schema.Group:
    kinds = prepared.setting.kinds
    chain, rows, deal, of = dealt(prepared, group.kind)
    times, policy = layer_split.stage_times(of, deal.layers)
    found = []
    for i, (at, pool, role, depth) in enumerate(pipelines.places(chain)):
        ways, n = prepared.tables[pool].ways, int(deal.layers[0, i])
        held = stage_memory(prepared, pool, rows[at], int(policy[0, i]), n, role, depth)
        found.append(
            schema.GroupStage(
                pool=place[pool],
                layers=n,
                tp=int(ways.tp[rows[at]]),
                cp=int(ways.cp[rows[at]]),
                ep=int(ways.ep[rows[at]]),
                recompute=prepared.tables[pool].policies[int(policy[0, i])].name,
                time_s=float(times[0, i]),
                memory_bytes=_scalar(held.total),
            )
        )
    width = int(kinds.width[group.kind])
    return schema.Group(
        copies=group.copies,
        width=width,
        micro=int(kinds.samples[group.kind]) // width,
        micro_batches=group.micro_batches,
        sequences=group.sequences,
        time_s=group.time,
        stages=tuple(found),
    )


def _one_way(prepared: PreparedPools, pool: int, row: int, policy: int) -> Grid:
    ways = prepared.tables[pool].ways
    one = StageConfigs(*(getattr(ways, name)[row : row + 1] for name in ("tp", "cp", "ep", "etp", "micro", "width")))
    grid = stages.grid(prepared.figures[pool], one, prepared.switches, prepared.precision)
    return stages.with_policy(grid, prepared.tables[pool].policies[policy])


def stage_memory(
    prepared: PreparedPools, pool: int, row: int, policy: int, layers: int, role: str, depth: int
) -> Memory:
    """Bytes of one stage, part by part."""
    grid = _one_way(prepared, pool, row, policy)
    return stages.stage_memory(grid, np.array([float(layers)]), np.array([float(depth)]), role)


def _fullest(prepared: PreparedPools, found: MixedPlan) -> tuple[tuple[int, int, int], Memory]:
    """(group, stage, pool) of the stage with the least of its memory left, and what it holds."""
    every = []
    for g, group in enumerate(found.groups):
        chain, rows, deal, _ = dealt(prepared, group.kind)
        for i, (at, pool, role, depth) in enumerate(pipelines.places(chain)):
            held = stage_memory(prepared, pool, rows[at], int(deal.policy[0, i]), int(deal.layers[0, i]), role, depth)
            capacity = prepared.pools.all[pool].cluster.accelerator.memory
            every.append((_scalar(held.total) / capacity, (g, i, pool), held))
    _, where, held = max(every, key=lambda entry: entry[0])
    return where, held


def _scalar(value: object) -> float:
    return float(np.ravel(np.asarray(value, dtype=float))[0])


def _memory(prepared: PreparedPools, fullest: tuple[int, int, int], held: Memory) -> schema.MemorySection:
    _, stage, pool = fullest
    parts = {name: _scalar(getattr(held, name)) for name in PARTS}
    parts["buffers"] += parts.pop("copies")
    total, capacity = sum(parts.values()), prepared.pools.all[pool].cluster.accelerator.memory
    return schema.MemorySection(
        total_bytes=total,
        capacity_bytes=capacity,
        stage=stage,
        oom_risk=prepared.request.oom_risk,
        oom_chance=risk.chance(total, capacity, prepared.memory_spread[0]),
        parameters_bytes=parts["parameters"],
        gradients_bytes=parts["gradients"],
        optimizer_bytes=parts["optimizer"],
        activations_bytes=parts["activations"],
        buffers_bytes=parts["buffers"],
        resident_bytes=parts["resident"],
    )


def _memory_interval(prepared: PreparedPools, held: Memory) -> schema.Interval:
    half, runs = prepared.memory_spread
    total = sum(_scalar(getattr(held, name)) for name in PARTS)
    basis = f"80 %: residuals of {runs} runs whose peak was measured, each held out of the fit"
    return schema.Interval(low=total * math.exp(-half), high=total * math.exp(half), basis=basis)


def breakdown(prepared: PreparedPools, found: MixedPlan) -> dict[str, float]:
    """Seconds of a step by cause, of the slowest stage of the slowest group; the values add up to the step time."""
    group = max(found.groups, key=lambda g: g.time)
    chain, rows, deal, of = dealt(prepared, group.kind)
    times, policy = layer_split.stage_times(of, deal.layers)
    i = int(np.argmax(times[0]))
    at, pool, role, _ = pipelines.places(chain)[i]
    grid = _one_way(prepared, pool, rows[at], int(policy[0, i]))
    table, row, n = prepared.tables[pool], rows[at], int(deal.layers[0, i])
    leading, body = passes(grid).layers
    lead = min(table.least, n) if role in ("alone", "first") else 0
    steps = float(group.micro_batches)
    parts: dict[str, float] = {}
    for name, part in body.parts.items():
        other = leading.parts[name]
        mine = (n - lead) * _scalar(part.forward + part.backward) + lead * _scalar(other.forward + other.backward)
        parts[name] = steps * mine
    again = [_scalar(pipeline.layer_time(grid, layer).again) for layer in (leading, body)]
    parts["recompute"] = steps * (lead * again[0] + (n - lead) * again[1])
    parts["embedding"] = steps * (float(table.embedding[row]) if role in ("alone", "first") else 0.0)
    parts["logits"] = steps * (float(table.head[row]) if role in ("alone", "last") else 0.0)
    parts["p2p"] = max(steps * float(times[0, i]) - sum(parts.values()), 0.0) if len(times[0]) > 1 else 0.0
    parts["bubble"] = float(np.sum(times[0]) - np.max(times[0]))
    setting, kind = prepared.setting, prepared.setting.kinds.taken(np.array([group.kind]))
    used = [p for p, count in enumerate(found.nodes) if count]
    stretch = bundles.stretch_of(setting, setting.network_of(used))
    parts["dp"] = found.exposed / stretch
    parts["optimizer"] = float(kind.update[0])
    parts["overhead"] = float(setting.stack.step_overhead)
    left = found.time - sum(parts.values())
    parts["jitter"] = max(left, 0.0)
    return {name: seconds for name, seconds in parts.items() if seconds != 0.0}


def _layout_of(prepared: PreparedPools, batch: int) -> Grid:
    """A grid from which the FLOPs of a step are counted."""
    ways = prepared.tables[0].ways
    one = StageConfigs(*(getattr(ways, name)[:1] for name in ("tp", "cp", "ep", "etp", "micro", "width")))
    grid = stages.grid(prepared.figures[0], one, prepared.switches, prepared.precision)
    layout = {name: _scalar(getattr(grid.layout, name)) for name in Layout.__dataclass_fields__}
    return stages.with_layout(grid, Layout(**{**layout, "batch": float(batch)}))


def _per_pool(groups: Sequence[schema.Group], pools: int) -> tuple[int, ...]:
    """Sequences of the global batch by pool: a pipeline over several pools shares its own by layers; whole numbers."""
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


def _recompute(groups: Sequence[schema.Group]) -> schema.RecomputeSection:
    """What most layers do; every stage says its own."""
    names = {s.recompute for g in groups for s in g.stages}
    name = "full" if "full" in names else "selective" if "selective" in names else "none"
    return schema.RecomputeSection(policy=name, layers_fraction=float(name == "full"), selective=name == "selective")


# ---- the cluster -----------------------------------------------------------------------------------------------------


def _cluster(prepared: PreparedPools, found: MixedPlan, used: Sequence[int]) -> schema.ClusterSection:
    pools = [prepared.pools.all[i] for i in used]
    sections = []
    for i, pool in zip(used, pools, strict=True):
        fields = {**vars(document.pool_section(pool.cluster, found.nodes[i])), "zone": pool.zone}
        fields |= {"offered": pool.count, "network": pool.cluster.fabric.id}
        sections.append(schema.Pool(**fields))
    links = []
    for a in range(len(pools)):
        for b in range(a + 1, len(pools)):
            link = prepared.pools.link(pools[a], pools[b])
            links.append(
                schema.PoolLink(pools=(a, b), bytes_per_s=link.bandwidth, latency_s=link.latency, basis=link.basis)
            )
    first = pools[0].cluster
    return schema.ClusterSection(
        name=" + ".join(f"{p.name}:{found.nodes[i]}" for i, p in zip(used, pools, strict=True)),
        accelerators=sum(found.nodes[i] * p.per_node for i, p in zip(used, pools, strict=True)),
        pools=tuple(sections),
        fabric=document.fabric_section(first.fabric),
        region=first.region.id if first.region else None,
        links=tuple(links),
    )


def _goodput(prepared: PreparedPools, accelerators: int, used: Sequence[int]) -> GoodputEstimate:
    request = prepared.request
    optimizer = request.workload.optimizer
    state = parameters(request.workload.model).total * (2.0 + optimizer.state_bytes + optimizer.master_bytes)
    host = min(float(prepared.figures[i].devices[prepared.precision].host_bandwidth) for i in used)
    return goodput(float(accelerators), state / accelerators, host)


def _price(pool: JobPool) -> schema.PriceUsed | None:
    price = pool.price
    if price is None:
        return None
    return schema.PriceUsed(
        node=pool.sold_as,
        basis=price.basis,
        usd_per_hour=price.usd,
        region=price.region,
        date=price.date,
        source=price.source,
        assumed=price.assumed,
    )


def _money(prepared: PreparedPools, found: MixedPlan, used: Sequence[int]) -> schema.Money:
    request, pools = prepared.request, [prepared.pools.all[i] for i in used]
    accelerators = sum(found.nodes[i] * p.per_node for i, p in zip(used, pools, strict=True))
    good = _goodput(prepared, accelerators, used)
    tokens = request.workload.tokens
    steps = money.steps(tokens, prepared.setting.offer.batch, request.workload.sequence)
    seconds = float(money.wall_time(found.time, steps, good.fraction))
    paid = [_price(p) for p in pools]
    known = [p for p in paid if p is not None]
    hourly = None
    if len(known) == len(paid):
        hourly = float(sum(found.nodes[i] * p.usd_per_hour for i, p in zip(used, known, strict=True)))
    total = None if hourly is None else float(money.rent(seconds, 1.0, hourly))
    return schema.Money(
        days=seconds / money.DAY_S,
        steps=steps,
        usd_per_hour=hourly,
        usd_total=total,
        tokens_per_usd=tokens / total if total else None,
        price=known[0] if hourly is not None else None,
        goodput=schema.Goodput(
            fraction=float(good.fraction),
            mtbf_s=float(good.mtbf),
            checkpoint_interval_s=float(good.interval),
            checkpoint_blocks_s=float(good.blocks),
            restart_s=float(good.restart),
            basis=BASIS,
        ),
        prices=tuple(known) if hourly is not None else (),
    )


def _energy(prepared: PreparedPools, found: MixedPlan, used: Sequence[int], seconds: float) -> schema.Energy:
    pools = [prepared.pools.all[i] for i in used]
    region = pools[0].cluster.region
    missing = [p.name for p in pools if p.cluster.node.max_power is None]
    if missing or region is None:
        told = f"the power of {', '.join(missing)}" if missing else "a region (--region)"
        return schema.Energy(power_w=None, energy_j=None, usd=None, carbon_kg=None, basis=f"not known: {told}")
    watts = sum(
        float(money.power(found.nodes[i], p.cluster.node.max_power, p.cluster.utilisation_of_peak_power, region.pue))
        for i, p in zip(used, pools, strict=True)
    )
    joules = watts * seconds
    return schema.Energy(
        power_w=watts,
        energy_j=joules,
        usd=float(money.electricity(joules, region.electricity)),
        carbon_kg=float(money.carbon(joules, region.carbon)),
        basis=f"{100 * pools[0].cluster.utilisation_of_peak_power:.0f} % of each node's maximum power, "
        f"PUE {region.pue:g}, {region.id}",
    )


def _constraints(
    prepared: PreparedPools,
    found: MixedPlan,
    used: Sequence[int],
    held: Memory,
    fullest: tuple[int, int, int],
    run: schema.Money,
) -> tuple[schema.Constraint, ...]:
    request, pools = prepared.request, prepared.pools.all
    total = sum(_scalar(getattr(held, name)) for name in PARTS)
    capacity = pools[fullest[2]].cluster.accelerator.memory
    usable = risk.usable(capacity, prepared.memory_spread[0], request.oom_risk)
    offered = sum(p.cluster.accelerators for p in pools)
    taken = sum(found.nodes[i] * pools[i].per_node for i in used)
    constraint = document.constraint
    listed = [
        constraint("memory", usable, total, "B", near=0.05),
        constraint("accelerators", offered, taken, "", near=0.0),
    ]
    if request.deadline_s is not None:
        listed.append(constraint("deadline", request.deadline_s, run.days * money.DAY_S, "s", near=0.02))
    if request.max_cost_usd is not None and run.usd_total is not None:
        listed.append(constraint("budget", request.max_cost_usd, run.usd_total, "USD", near=0.02))
    return tuple(listed)


def _interval(catalog: Catalog, prepared: PreparedPools, used: Sequence[int], time: float) -> schema.Interval:
    """The widest of the pools' own intervals: no mixed run is among those that the widths rest on."""
    known = intervals.read(catalog)
    widest = max(how_sure(known, prepared.request, prepared.pools.all[i].cluster.accelerator) for i in used)
    return schema.Interval(
        low=time * math.exp(-widest[0]),
        high=time * math.exp(widest[0]),
        basis=f"80 %: residuals of {widest[1]} runs, the widest of the pools'; no mixed run among them",
    )


def _assumptions(prepared: PreparedPools, used: Sequence[int]) -> tuple[schema.Assumption, ...]:
    request = prepared.request
    found = [schema.Assumption(what=what, why=why, flag=flag) for what, why, flag in request.assumptions]
    pools = [prepared.pools.all[i] for i in used]
    for a in range(len(pools)):
        for b in range(a + 1, len(pools)):
            if frozenset((pools[a].name, pools[b].name)) not in prepared.pools.given:
                link = prepared.pools.link(pools[a], pools[b])
                told = f"{link.bandwidth * 8 / 1e9:g} Gbit/s a node between {pools[a].name} and {pools[b].name}"
                found.append(schema.Assumption(what=told, why=link.basis, flag="--link"))
    seen = set()
    for i, pool in zip(used, pools, strict=True):
        cluster = pool.cluster
        for entry in (cluster.node, cluster.accelerator, cluster.fabric):
            for name, why in entry.assumed.items():
                if name not in document.NO_PART_OF_IT and (entry.id, name) not in seen:
                    seen.add((entry.id, name))
                    found.append(schema.Assumption(what=f"{entry.id}.{name}", why=why, flag="--catalog"))
        for told in prepared.measured[i]:
            found.append(schema.Assumption(what="layer times", why=told, flag="profile import"))
        for why in prepared.reached[i].notes:
            found.append(schema.Assumption(what="efficiency", why=why, flag="calibrate"))
        if pool.price is not None and pool.price.assumed:
            found.append(schema.Assumption(what="price", why=pool.price.assumed, flag="--price"))
    return tuple(dict.fromkeys(found))
