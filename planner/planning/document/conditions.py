"""Sections of a plan's document: what a step is predicted to take, the limits that it keeps, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

from planner.cost import money, stage_memory, utilisation
from planner.cost.stage_memory import Memory
from planner.planning.document.solution import FullestStage, PoolInUse, Solution
from planner.schema import plan as schema


def prediction_section(solution: Solution) -> schema.Prediction:
    """Step time with its causes, tokens a second, MFU over the dense peak of all accelerators in use, and memory."""
    peak = sum(each.peak * each.accelerators for each in solution.pools)
    memory = memory_section(solution)
    return schema.Prediction(
        step_time_s=solution.step_time,
        breakdown=dict(solution.breakdown),
        tokens_per_s=solution.configuration.batch.global_ * solution.request.workload.sequence / solution.step_time,
        mfu=utilisation(solution.model_flops, solution.step_time, peak),
        model_flops=solution.model_flops,
        memory=memory,
        intervals={
            "step_time_s": _step_interval(solution),
            "memory_bytes": _memory_interval(solution, memory.total_bytes),
        },
        own_runs=solution.own_runs,
        text_batches=solution.text_batches,
        passes=solution.passes,
    )


def _step_interval(solution: Solution) -> schema.Interval:
    spread = solution.time_spread
    known = "predictions of runs of labs left out of the fit"
    if solution.heterogeneous:
        known = "the widest of the pools', no mixed run among them"
    if solution.measured is not None:
        known = "what the site has measured"
    modelled = any(each.profile is not None for each in solution.pools)
    return schema.Interval(
        low=solution.step_time * math.exp(-spread.half_width),
        high=solution.step_time * math.exp(spread.half_width),
        basis=f"80 %: {spread.runs}; from {known}{'; layer times modelled' if modelled else ''}",
    )


def _memory_interval(solution: Solution, total: float) -> schema.Interval:
    spread = solution.memory_spread
    factor = math.exp(spread.half_width)
    basis = f"80 %: residuals of {spread.runs} runs whose peak was measured, each held out of the fit"
    return schema.Interval(low=total / factor, high=total * factor, basis=basis)


def memory_section(solution: Solution) -> schema.MemorySection:
    """Bytes on an accelerator of the fullest stage, part by part, and the chance that they are too many."""
    fullest = solution.fullest
    stage = stage_memory_section(fullest.held)
    capacity = solution.pools[fullest.pool].pool.cluster.accelerator.memory
    return schema.MemorySection(
        **vars(stage),
        capacity_bytes=capacity,
        stage=fullest.stage,
        oom_risk=solution.request.oom_risk,
        oom_chance=stage_memory.chance(stage.total_bytes, capacity, solution.memory_spread.half_width),
        graph_inputs_bytes=fullest.graph_inputs,
        expanded=_expanded_section(fullest),
        host=fullest.host,
        by_stage=tuple(map(stage_memory_section, solution.by_stage)) or None,
    )


def stage_memory_section(held: Memory) -> schema.StageMemory:
    """Bytes on one accelerator of a stage, part by part, as a record."""
    return schema.StageMemory(
        total_bytes=float(held.total),
        parameters_bytes=float(held.parameters),
        gradients_bytes=float(held.gradients),
        optimizer_bytes=float(held.optimizer),
        activations_bytes=float(held.activations),
        buffers_bytes=float(held.buffers + held.copies),
        resident_bytes=float(held.resident),
    )


def _expanded_section(fullest: FullestStage) -> schema.ExpandedSection | None:
    """What lies in expanded memory; None where there is none."""
    if fullest.expanded_capacity is None:
        return None
    there = fullest.held.expanded
    return schema.ExpandedSection(
        total_bytes=float(there.total),
        capacity_bytes=fullest.expanded_capacity,
        parameters_bytes=float(there.parameters),
        gradients_bytes=float(there.gradients),
        optimizer_bytes=float(there.optimizer),
        activations_bytes=float(there.activations),
    )


NO_PART_OF_IT = ("host_memory", "local_storage", "l2", "tokens", "batch", "sequence")
"""Assumed fields that no prediction reads, or that the question's own assumptions already name; the first where
nothing lies in host memory."""
NEAR_MEMORY = 0.05
NEAR_LIMIT = 0.02
"""Share of a limit below which what is left of it counts as nothing: of bytes, which differ from run to run; of a
deadline or a budget. Of accelerators nothing may be left."""


def constraints(solution: Solution, memory: schema.MemorySection, run: schema.Money) -> tuple[schema.Constraint, ...]:
    """Memory and accelerators always; expanded and host memory, deadline and budget where there are any."""
    request = solution.request
    offered = sum(pool.cluster.accelerators for pool in solution.question.all)
    listed = [
        _constraint("memory", _usable(solution, memory.capacity_bytes), memory.total_bytes, "B", near=NEAR_MEMORY),
        _constraint("accelerators", offered, solution.accelerators, "", near=0.0),
    ]
    if (there := memory.expanded) is not None:
        limit = _usable(solution, there.capacity_bytes)
        listed.append(_constraint("expanded memory", limit, there.total_bytes, "B", near=NEAR_MEMORY))
    if (host := memory.host) is not None and host.capacity_bytes is not None:
        listed.append(_constraint("host memory", host.capacity_bytes, host.total_bytes, "B", near=NEAR_MEMORY))
    if request.deadline_s is not None:
        listed.append(_constraint("deadline", request.deadline_s, run.days * money.DAY_S, "s", near=NEAR_LIMIT))
    if request.max_cost_usd is not None and run.usd_total is not None:
        listed.append(_constraint("budget", request.max_cost_usd, run.usd_total, "USD", near=NEAR_LIMIT))
    return tuple(listed)


def _usable(solution: Solution, capacity: float) -> float:
    """Bytes that a predicted peak may reach at the risk asked for."""
    return float(stage_memory.usable(capacity, solution.memory_spread.half_width, solution.request.oom_risk))


def _constraint(name: str, limit: float, value: float, unit: str, *, near: float) -> schema.Constraint:
    """A limit counts as binding when no more than the share `near` of it is left."""
    slack = limit - value
    return schema.Constraint(
        name=name, limit=float(limit), value=float(value), slack=float(slack), binding=slack <= near * limit, unit=unit
    )


def assumptions(solution: Solution) -> tuple[schema.Assumption, ...]:
    """What the question left open, links that nobody gave, and what is not known of each pool; each once."""
    request = solution.request
    # An offer has a region of its own, where the question left that open.
    regions = {f"region {used.pool.cluster.region.id}" for used in solution.pools if used.pool.cluster.region}
    listed = [
        schema.Assumption(what=what, why=why, flag=flag)
        for what, why, flag in request.assumptions
        if flag != "--region" or what in regions
    ]
    listed += _unmeasured(solution)
    listed += _links(solution)
    for each in solution.pools:
        listed += _of_pool(solution, each)
    return tuple(dict.fromkeys(listed))


def _unmeasured(solution: Solution) -> Iterator[schema.Assumption]:
    """Kinds of blocks of which the fits have few runs."""
    model = solution.request.workload.model
    for what, kind in (
        ("recurrence", "a recurrence"),
        ("indexer", "sparse attention"),
        ("compressed", "compressed attention"),
    ):
        if getattr(model, what) is not None:
            why = f"few runs with {kind} are measured: its kernels are priced by equations"
            yield schema.Assumption(what=f"{model.id}.{what}", why=why, flag="calibrate")


def _links(solution: Solution) -> Iterator[schema.Assumption]:
    for one, other in combinations((each.pool for each in solution.pools), 2):
        if frozenset((one.name, other.name)) not in solution.question.given:
            link = solution.question.link(one, other)
            what = f"{link.bandwidth * 8 / 1e9:g} Gbit/s a node between {one.name} and {other.name}"
            yield schema.Assumption(what=what, why=link.basis, flag="--link")


def _of_pool(solution: Solution, used: PoolInUse) -> Iterator[schema.Assumption]:
    """Catalog fields that nobody could read, what is not measured, and an assumed price."""
    request = solution.request
    cluster = used.pool.cluster
    entries = [cluster.node, cluster.accelerator, cluster.fabric, request.runtime, request.workload.model]
    entries += [cluster.region] if cluster.region else []
    hosts = solution.fullest.host is not None
    if hosts and cluster.node.host_memory is None:
        why = "not known: whether what lies in it fits is not checked"
        yield schema.Assumption(what=f"{cluster.node.id}.host_memory", why=why, flag="--catalog")
    for entry in entries:
        for name, why in entry.assumed.items():
            if name not in NO_PART_OF_IT[hosts:]:
                yield schema.Assumption(what=f"{entry.id}.{name}", why=why, flag="--catalog")
    for why in used.efficiency_notes:
        yield schema.Assumption(what="efficiency", why=why, flag="calibrate")
    for why in used.layer_times:
        yield schema.Assumption(what="layer times", why=why, flag="profile import")
    if used.pool.price is not None and used.pool.price.assumed:
        yield schema.Assumption(what="price", why=used.pool.price.assumed, flag="--price")
