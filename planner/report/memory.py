"""Memory by stage and kind."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.units import format_bytes
from planner.report import charts
from planner.report.blocks import Chart, Section, TextTable
from planner.schema.plan import Plan
from planner.verify.finding import Claim
from planner.verify.memory import shares, states
from planner.verify.model import read

GIB = 2.0**30
KINDS = ("parameters", "gradients", "optimizer", "activations", "buffers", "resident")


def section(plan: Plan) -> Section:
    """Bytes on an accelerator of every stage, next to what it has."""
    chart = _of_groups(plan) if plan.parallelism.groups else _of_stages(plan)
    return Section("Memory", (chart,))


def _of_stages(plan: Plan) -> Chart:
    held = [_stage(plan, index) for index in range(len(plan.parallelism.stages))]
    m = plan.prediction.memory
    names = [f"stage {index}{' (fullest)' * (index == m.stage and len(held) > 1)}" for index in range(len(held))]
    how = (
        "States of every stage follow from the sharding; activations of stages other than the fullest are in "
        "proportion to layers and micro-batches in flight."
        if len(held) > 1
        else "On each accelerator."
    )
    return _chart(names, KINDS, held, m.capacity_bytes, how)


def _stage(plan: Plan, stage: int) -> list[float]:
    """Bytes of each kind on one accelerator of a stage."""
    claim, m = Claim(plan, read(plan.workload.shape)), plan.prediction.memory
    live = [m.activations_bytes, m.buffers_bytes, m.resident_bytes]
    if stage == m.stage:
        return [m.parameters_bytes, m.gradients_bytes, m.optimizer_bytes, *live]
    away = shares(claim)
    kinds = ("weights", "weights", "optimizer")
    kept = [whole * (1.0 - away[kind]) for whole, kind in zip(states(claim, stage), kinds, strict=True)]
    return [*kept, live[0] * _in_flight(plan, stage) / _in_flight(plan, m.stage), *live[1:]]


def _in_flight(plan: Plan, stage: int) -> float:
    """Layers times micro-batches whose activations a stage keeps: ``min(pp - i, m)`` under 1F1B, and interleaved
    ``(2 (pp - i - 1) + (vpp - 1) pp + 1) / vpp`` (Korthikanti et al. 2022, arXiv 2205.05198).
    """
    p, ahead = plan.parallelism, plan.parallelism.pp - stage - 1
    count = float(ahead + 1) if p.vpp == 1 else (2 * ahead + (p.vpp - 1) * p.pp + 1) / p.vpp
    return max(p.stages[stage].layers, 1) * min(count, float(max(plan.batch.accumulation, 1)))


def _of_groups(plan: Plan) -> Chart:
    stages = [
        (g, i, stage) for g, group in enumerate(plan.parallelism.groups, 1) for i, stage in enumerate(group.stages)
    ]
    names = [f"group {g}, stage {i}: {plan.cluster.pools[stage.pool].accelerator}" for g, i, stage in stages]
    held = [[stage.memory_bytes] for _, _, stage in stages]
    capacities = {plan.cluster.pools[stage.pool].accelerator_memory_bytes for _, _, stage in stages}
    has = ", ".join(format_bytes(each) for each in sorted(capacities))
    limit = min(capacities) if len(capacities) == 1 else None
    return _chart(names, ("in use",), held, limit, f"On each accelerator; their own memory: {has}.")


def _chart(
    names: Sequence[str], kinds: Sequence[str], held: Sequence[Sequence[float]], limit: float | None, how: str
) -> Chart:
    values = [
        {"row": name, "part": kind, "value": size / GIB, "text": format_bytes(size)}
        for name, each in zip(names, held, strict=True)
        for kind, size in zip(kinds, each, strict=True)
        if size
    ]
    rows = [(n, *map(format_bytes, each), format_bytes(sum(each))) for n, each in zip(names, held, strict=True)]
    title = "Memory of an accelerator, by stage and kind"
    over = "" if limit is None else f" The dashed line is its capacity, {format_bytes(limit)}."
    spec = charts.bars(values, "GiB", kinds, limit=None if limit is None else limit / GIB)
    return Chart(title, how + over, spec, TextTable(title, ("stage", *kinds, "total"), rows))
