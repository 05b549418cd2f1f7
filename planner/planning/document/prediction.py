"""What a step is predicted to take, as a section of a plan's document: time, utilisation and memory."""

from __future__ import annotations

import math

from planner.cost import memory_risk, utilisation
from planner.cost.held_memory import Memory
from planner.planning.document.solution import FullestStage, Solution
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
    stage = stage_memory(fullest.held)
    capacity = solution.pools[fullest.pool].pool.cluster.accelerator.memory
    return schema.MemorySection(
        **vars(stage),
        capacity_bytes=capacity,
        stage=fullest.stage,
        oom_risk=solution.request.oom_risk,
        oom_chance=memory_risk.chance(stage.total_bytes, capacity, solution.memory_spread.half_width),
        graph_inputs_bytes=fullest.graph_inputs,
        expanded=_expanded_section(fullest),
        host=fullest.host,
        by_stage=tuple(map(stage_memory, solution.by_stage)) or None,
    )


def stage_memory(held: Memory) -> schema.StageMemory:
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
