"""From a candidate to the plan that leaves the program, and from a file back to a plan."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from planner import cost
from planner.base.version import __version__
from planner.cost import hierarchy, money, pipeline, risk, sharding
from planner.cost import memory as cost_memory
from planner.cost.figures import Grid
from planner.models.parameters import parameters
from planner.performance import binding
from planner.question.prepared import Prepared
from planner.question.request import Request, goodput_of
from planner.schema import plan as schema
from planner.schema.hardware import Accelerator, Cluster, Fabric
from planner.schema.record import _plain, _pruned
from planner.search.problem import Candidate
from planner.space.grid import single_grid
from planner.space.rules import RuleSetting, broken

NO_PART_OF_IT = ("host_memory", "local_storage", "l2", "tokens", "batch", "sequence")
"""Assumed fields that no prediction reads, or that the question's own assumptions already name."""


def plan(prepared: Prepared, candidate: Candidate, rank: int) -> schema.Plan:
    """Everything that is known of one candidate."""
    request, options, layout = prepared.request, candidate.options, candidate.layout
    grid = single_grid(prepared.figures, layout, options)
    run = _money(request, candidate)
    prediction = _prediction(prepared, grid, candidate)
    return schema.Plan(
        rank=rank,
        generator=schema.Generator(version=__version__, seed=0, inputs=_inputs(prepared, options.precision)),
        workload=workload_section(request),
        cluster=_cluster(request.cluster, layout["nodes"]),
        runtime=runtime_section(request, candidate.options.precision),
        parallelism=_parallelism(prepared, grid, candidate),
        batch=schema.Batch(
            global_=layout["batch"],
            micro=layout["micro"],
            accumulation=layout["batch"] // (layout["dp"] * layout["micro"]),
            per_pool=(layout["batch"],),
        ),
        precision=options.precision,
        recompute=schema.RecomputeSection(
            policy=options.recompute.name,
            layers_fraction=options.recompute.layers,
            selective=bool(options.recompute.selective),
        ),
        offload={"optimizer": options.offload},
        placement=None if grid.expanded is None else asdict(options.placement),
        overlap=schema.Overlap(tp=options.tensor.overlap, dp=options.sharding.overlap, p2p=options.p2p_overlap),
        communication=(),
        env={},
        prediction=prediction,
        money=run,
        energy=_energy(request, layout["nodes"], run.days * money.DAY_S),
        constraints=_constraints(prepared, candidate, prediction.memory, run),
        assumptions=_assumptions(prepared),
        waived=broken(layout, RuleSetting(request.workload, request.cluster, request.runtime)) or None,
    )


def _inputs(prepared: Prepared, precision: str) -> dict[str, str]:
    """What the plan depends on, hashed: a profile of layer times under its file's name."""
    found = dict(prepared.request.inputs or {})
    profile = prepared.profiles.get(precision)
    return found if profile is None else found | {f"profile {profile.source}": profile.sha256}


def workload_section(request: Request) -> schema.WorkloadSection:
    """What is trained."""
    w, model = request.workload, request.workload.model
    counted = parameters(model)
    return schema.WorkloadSection(
        model=model.id,
        name=model.name,
        parameters=counted.total,
        active_parameters=counted.active,
        sequence=w.sequence,
        tokens=w.tokens,
        method={"kind": w.method.kind, "rank": w.method.rank, "targets": list(w.method.targets)},
        optimizer={
            "id": w.optimizer.id,
            "state_bytes": w.optimizer.state_bytes,
            "master_bytes": w.optimizer.master_bytes,
            "step_bytes": w.optimizer.step_bytes,
        },
        shape=_pruned(_plain(model)),
        mtp_layers=w.mtp_layers or None,
    )


def pool_section(cluster: Cluster, count: int) -> schema.Pool:
    """`count` nodes of a cluster."""
    node, accelerator, link = cluster.node, cluster.accelerator, cluster.scaleup
    return schema.Pool(
        node=node.id,
        count=count,
        accelerator=accelerator.id,
        accelerators_per_node=node.accelerators,
        accelerator_memory_bytes=accelerator.memory,
        peak_flops={str(dtype): rate for dtype, rate in accelerator.peak.items()},
        scaleup_bytes_per_s=link.bandwidth,
        nics_per_node=node.nics,
        nic_bytes_per_s=node.nic_bandwidth,
        max_power_w=node.max_power,
        expanded=_expanded_pool(accelerator),
    )


def _expanded_pool(a: Accelerator) -> schema.ExpandedPool | None:
    if a.expanded_memory is None or a.expanded_bandwidth is None:
        return None
    return schema.ExpandedPool(
        bytes=a.expanded_memory,
        bytes_per_s=a.expanded_bandwidth,
        latency_s=a.expanded_latency,
        scope=a.expanded_scope,
        access=a.expanded_access,
    )


def _dimensions(fabric: Fabric, accelerators: int) -> tuple[schema.DimensionSection, ...] | None:
    found, left = [], accelerators
    for each in fabric.dimensions:
        size = each.size or max(left, 1)
        left //= size
        found.append(
            schema.DimensionSection(
                topology=each.topology, size=size, bytes_per_s=each.bandwidth, latency_s=each.latency
            )
        )
    return tuple(found) or None


def fabric_section(fabric: Fabric, accelerators: int = 1) -> schema.FabricSection:
    """The network between nodes of so many accelerators."""
    return schema.FabricSection(
        id=fabric.id,
        kind=fabric.kind,
        nic_bytes_per_s=fabric.nic_bandwidth,
        latency_s=fabric.latency,
        topology=fabric.topology,
        leaf_nodes=fabric.leaf_nodes,
        oversubscription=fabric.oversubscription,
        dimensions=_dimensions(fabric, accelerators),
    )


def _cluster(cluster: Cluster, count: int) -> schema.ClusterSection:
    node = cluster.node
    return schema.ClusterSection(
        name=cluster.name or f"{node.id}:{count}",
        accelerators=count * node.accelerators,
        pools=(pool_section(cluster, count),),
        fabric=fabric_section(cluster.fabric, cluster.accelerators),
        region=cluster.region.id if cluster.region else None,
    )


def runtime_section(request: Request, precision: str) -> schema.RuntimeSection:
    """The training framework, with what it keeps and sends in a precision (:mod:`planner.cost.elements`)."""
    runtime, narrowest = request.runtime, binding.element(precision)
    held = runtime.parameter_bytes and max(runtime.parameter_bytes, narrowest)
    frozen_in_8_bit = request.workload.method.kind == "lora" and precision in binding.LOW_PRECISION
    return schema.RuntimeSection(
        name=runtime.id,
        release=request.release,
        bytes_per_parameter={
            "parameters": held / 2.0 if frozen_in_8_bit else held,
            "gradients": max(runtime.gradient_bytes, narrowest),
            "gradient_wire": max(runtime.gradient_wire_bytes, narrowest),
            "parameter_wire": max(runtime.parameter_wire_bytes, narrowest),
            "gathers_working_copy": float(runtime.gathers_working_copy),
            "update": runtime.update_bytes,
        },
    )


def _parallelism(prepared: Prepared, grid: Grid, candidate: Candidate) -> schema.Parallelism:
    layout, options = candidate.layout, candidate.options
    zero = options.sharding.zero
    shards = int(sharding.replicas(grid).dense_shards) if zero else 1
    layers = pipeline.stage_layers(int(prepared.figures.shape.layers), layout["pp"], layout["vpp"])
    schedule: schema.Schedule = "none" if layout["pp"] == 1 else ("1f1b" if layout["vpp"] == 1 else "interleaved-1f1b")
    return schema.Parallelism(
        tp=layout["tp"],
        pp=layout["pp"],
        vpp=layout["vpp"],
        cp=layout["cp"],
        ep=layout["ep"],
        etp=layout["etp"],
        dp=layout["dp"],
        dp_shard=shards,
        rank_order=options.rank_order,
        schedule=schedule,
        sequence_parallel=options.tensor.sequence_parallel,
        zero_stage=zero,
        zero_scope=options.sharding.scope,
        stages=tuple(schema.Stage(pool=0, layers=n, tp=layout["tp"], dp=layout["dp"]) for n in layers),
    )


def _prediction(prepared: Prepared, grid: Grid, candidate: Candidate) -> schema.Prediction:
    request, layout = prepared.request, candidate.layout
    parts = {name: float(seconds) for name, seconds in cost.breakdown(grid).items() if seconds != 0.0}
    flops = float(cost.model_flops(grid))
    accelerators = layout["nodes"] * request.cluster.node.accelerators
    peak = float(grid.device.peak) * accelerators
    held = memory_section(prepared, grid, layout["pp"])
    return schema.Prediction(
        step_time_s=candidate.time,
        breakdown=parts,
        tokens_per_s=layout["batch"] * request.workload.sequence / candidate.time,
        mfu=flops / candidate.time / peak,
        model_flops=flops,
        memory=held,
        intervals={
            "step_time_s": schema.Interval(
                low=candidate.time * math.exp(-prepared.half_width),
                high=candidate.time * math.exp(prepared.half_width),
                basis=f"80 %: residuals of {prepared.comparable} runs, with their source held out of the fit"
                + ("; layer times modelled" if candidate.options.precision in prepared.profiles else ""),
            ),
            "memory_bytes": _memory_interval(prepared, held.total_bytes),
        },
    )


def _memory_interval(prepared: Prepared, held: float) -> schema.Interval:
    factor, runs = math.exp(prepared.memory_half_width), prepared.memory_comparable
    basis = f"80 %: residuals of {runs} runs whose peak was measured, each held out of the fit"
    return schema.Interval(low=held / factor, high=held * factor, basis=basis)


def memory_section(prepared: Prepared, grid: Grid, pp: int) -> schema.MemorySection:
    """Memory of the fullest stage, part by part."""
    split = pipeline.split(grid.shape, grid.layout)
    found = cost_memory.stages(grid, split)
    index = int(np.argmax([float(m.total) for m in found]))
    held = found[index]
    return schema.MemorySection(
        total_bytes=float(held.total),
        capacity_bytes=prepared.request.cluster.accelerator.memory,
        stage=(0, int(pipeline.whole_stage(grid.shape, grid.layout, split)), pp - 1)[index],
        parameters_bytes=float(held.parameters),
        gradients_bytes=float(held.gradients),
        optimizer_bytes=float(held.optimizer),
        activations_bytes=float(held.activations),
        buffers_bytes=float(held.buffers + held.copies),
        resident_bytes=float(held.resident),
        oom_risk=prepared.request.oom_risk,
        oom_chance=risk.chance(
            float(held.total), prepared.request.cluster.accelerator.memory, prepared.memory_half_width
        ),
        expanded=_expanded_section(prepared, grid, held),
    )


def _expanded_section(prepared: Prepared, grid: Grid, held: cost_memory.Memory) -> schema.ExpandedSection | None:
    if grid.expanded is None:
        return None
    pool = prepared.request.cluster.accelerator.expanded_memory
    assert pool is not None
    there = held.expanded
    return schema.ExpandedSection(
        total_bytes=float(there.total),
        capacity_bytes=float(pool / hierarchy.sharers(grid)),
        parameters_bytes=float(there.parameters),
        gradients_bytes=float(there.gradients),
        optimizer_bytes=float(there.optimizer),
        activations_bytes=float(there.activations),
    )


def _money(request: Request, candidate: Candidate) -> schema.Money:
    nodes, batch = candidate.layout["nodes"], candidate.layout["batch"]
    good = goodput_of(request, nodes)
    steps = money.steps(request.workload.tokens, batch, request.workload.sequence)
    seconds = float(money.wall_time(candidate.time, steps, good.fraction))
    price, paid = request.price, None
    total = None
    if price is not None:
        total = float(money.rent(seconds, nodes, price.usd))
        paid = schema.PriceUsed(
            node=request.sold_as,
            basis=price.basis,
            usd_per_hour=price.usd,
            region=price.region,
            date=price.date,
            source=price.source,
            assumed=price.assumed,
        )
    return schema.Money(
        days=seconds / money.DAY_S,
        steps=steps,
        usd_per_hour=nodes * price.usd if price else None,
        usd_total=total,
        tokens_per_usd=request.workload.tokens / total if total else None,
        price=paid,
        goodput=schema.Goodput(
            fraction=float(good.fraction),
            mtbf_s=float(good.mtbf),
            checkpoint_interval_s=float(good.interval),
            checkpoint_blocks_s=float(good.blocks),
            restart_s=float(good.restart),
            basis=request.goodput_basis,
        ),
    )


def _energy(request: Request, nodes: int, seconds: float) -> schema.Energy:
    cluster, region = request.cluster, request.cluster.region
    if cluster.node.max_power is None or region is None:
        missing = "the node's power" if cluster.node.max_power is None else "a region (--region)"
        return schema.Energy(power_w=None, energy_j=None, usd=None, carbon_kg=None, basis=f"not known: {missing}")
    share = cluster.utilisation_of_peak_power
    watts = float(money.power(nodes, cluster.node.max_power, share, region.pue))
    joules = watts * seconds
    return schema.Energy(
        power_w=watts,
        energy_j=joules,
        usd=float(money.electricity(joules, region.electricity)),
        carbon_kg=float(money.carbon(joules, region.carbon)),
        basis=f"{100 * share:.0f} % of the node's maximum power, PUE {region.pue:g}, {region.id}",
    )


def _constraints(
    prepared: Prepared, candidate: Candidate, held: schema.MemorySection, run: schema.Money
) -> tuple[schema.Constraint, ...]:
    request = prepared.request
    accelerators = candidate.layout["nodes"] * request.cluster.node.accelerators
    found = [
        constraint("memory", prepared.usable, candidate.memory, "B", near=0.05),
        constraint("accelerators", request.cluster.accelerators, accelerators, "", near=0.0),
    ]
    if held.expanded is not None:
        share = prepared.within(held.expanded.capacity_bytes)
        found.append(constraint("expanded memory", share, held.expanded.total_bytes, "B", near=0.05))
    if request.deadline_s is not None:
        found.append(constraint("deadline", request.deadline_s, run.days * money.DAY_S, "s", near=0.02))
    if request.max_cost_usd is not None and run.usd_total is not None:
        found.append(constraint("budget", request.max_cost_usd, run.usd_total, "USD", near=0.02))
    return tuple(found)


def constraint(name: str, limit: float, value: float, unit: str, *, near: float) -> schema.Constraint:
    """A limit counts as binding when less than `near` of it is left."""
    slack = limit - value
    return schema.Constraint(
        name=name, limit=float(limit), value=float(value), slack=float(slack), binding=slack <= near * limit, unit=unit
    )


def _assumptions(prepared: Prepared) -> tuple[schema.Assumption, ...]:
    request = prepared.request
    cluster = request.cluster
    entries = [cluster.node, cluster.accelerator, cluster.fabric, request.runtime, request.workload.model]
    entries += [cluster.region] if cluster.region else []
    found = [schema.Assumption(what=what, why=why, flag=flag) for what, why, flag in request.assumptions]
    for entry in entries:
        found += [
            schema.Assumption(what=f"{entry.id}.{name}", why=why, flag="--catalog")
            for name, why in entry.assumed.items()
            if name not in NO_PART_OF_IT
        ]
    found += [schema.Assumption(what="efficiency", why=why, flag="calibrate") for why in prepared.reached.notes]
    for profile in {each.sha256: each for each in prepared.profiles.values()}.values():
        found.append(schema.Assumption(what="layer times", why=profile.told(), flag="profile import"))
    found += [schema.Assumption(what="layer times", why=why, flag="profile import") for why in prepared.unused]
    if request.price is not None and request.price.assumed:
        found.append(schema.Assumption(what="price", why=request.price.assumed, flag="--price"))
    return tuple(found)


def front_point(prepared: Prepared, candidate: Candidate) -> schema.FrontPoint:
    """One point of the front, short."""
    layout = candidate.layout
    run = _money(prepared.request, candidate)
    degrees = " ".join(f"{axis.upper()}{layout[axis]}" for axis in ("tp", "pp", "cp", "ep", "dp") if layout[axis] > 1)
    policy = candidate.options.recompute.name
    return schema.FrontPoint(
        label=f"{degrees or 'one rank'}{'' if policy == 'none' else f', recompute {policy}'}",
        accelerators=layout["nodes"] * prepared.request.cluster.node.accelerators,
        step_time_s=candidate.time,
        days=run.days,
        usd_total=run.usd_total,
        memory_bytes=candidate.memory,
    )


# ---- documents as JSON -----------------------------------------------------------------------------------------------
