"""What a step is predicted to take, as a section of a plan's document: time, utilisation and memory."""

from __future__ import annotations

import math

from planner.cost import memory_risk, utilisation
from planner.cost.held_memory import Memory
from planner.planning.document.solution import FullestStage, Solution
from planner.schema import plan as schema


def prediction_section(found: Solution) -> schema.Prediction:
    """Step time with its causes, tokens a second, MFU over the dense peak of all accelerators in use, and memory."""
    peak = sum(each.peak * each.accelerators for each in found.pools)
    memory = memory_section(found)
    return schema.Prediction(
        step_time_s=found.step_time,
        breakdown=dict(found.breakdown),
        tokens_per_s=found.configuration.batch.global_ * found.request.workload.sequence / found.step_time,
        mfu=utilisation(found.model_flops, found.step_time, peak),
        model_flops=found.model_flops,
        memory=memory,
        intervals={
            "step_time_s": _step_interval(found),
            "memory_bytes": _memory_interval(found, memory.total_bytes),
        },
        own_runs=found.own_runs,
        text_batches=found.text_batches,
        passes=found.passes,
    )


def _step_interval(found: Solution) -> schema.Interval:
    spread, known = found.time_spread, "predictions of runs of labs left out of the fit"
    if found.heterogeneous:
        known = "the widest of the pools', no mixed run among them"
    if found.measured is not None:
        known = "what the site has measured"
    modelled = any(each.profile is not None for each in found.pools)
    return schema.Interval(
        low=found.step_time * math.exp(-spread.half_width),
        high=found.step_time * math.exp(spread.half_width),
        basis=f"80 %: {spread.runs}; from {known}{'; layer times modelled' if modelled else ''}",
    )


def _memory_interval(found: Solution, total: float) -> schema.Interval:
    spread = found.memory_spread
    factor = math.exp(spread.half_width)
    basis = f"80 %: residuals of {spread.runs} runs whose peak was measured, each held out of the fit"
    return schema.Interval(low=total / factor, high=total * factor, basis=basis)


def memory_section(found: Solution) -> schema.MemorySection:
    """Bytes on an accelerator of the fullest stage, part by part, and the chance that they are too many."""
    fullest = found.fullest
    held, total = fullest.held, float(fullest.held.total)
    capacity = found.pools[fullest.pool].pool.cluster.accelerator.memory
    return schema.MemorySection(
        total_bytes=total,
        capacity_bytes=capacity,
        stage=fullest.stage,
        oom_risk=found.request.oom_risk,
        oom_chance=memory_risk.chance(total, capacity, found.memory_spread.half_width),
        parameters_bytes=float(held.parameters),
        gradients_bytes=float(held.gradients),
        optimizer_bytes=float(held.optimizer),
        activations_bytes=float(held.activations),
        graph_inputs_bytes=fullest.graph_inputs,
        buffers_bytes=float(held.buffers + held.copies),
        resident_bytes=float(held.resident),
        expanded=_expanded_section(fullest),
        host=fullest.host,
        by_stage=tuple(map(stage_memory, found.by_stage)) or None,
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
