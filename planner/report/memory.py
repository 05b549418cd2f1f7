"""Memory by stage and kind."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.units import format_bytes
from planner.report import charts
from planner.report.blocks import Chart, Section, TextTable
from planner.report.quantities import term
from planner.schema.plan import MemorySection, Plan, StageMemory

GIB = 2.0**30
KINDS: tuple[str, ...] = ("parameters", "gradients", "optimizer", "activations", "buffers", "resident")
NAMES = (*map(term, KINDS),)


def section(plan: Plan) -> Section:
    """Bytes on an accelerator of every stage, next to what it has."""
    chart = _of_groups(plan) if plan.parallelism.groups else _of_stages(plan)
    return Section("Memory", (chart,))


def _of_stages(plan: Plan) -> Chart:
    m = plan.prediction.memory
    by_stage: Sequence[MemorySection | StageMemory] = m.by_stage or (m,)
    names = [f"stage {index + 1}{' (fullest)' * (index == m.stage)}" for index in range(len(by_stage))]
    if m.by_stage is None:
        names = ["every stage" if plan.parallelism.pp == 1 else f"stage {m.stage + 1} (fullest)"]
    return _chart(names, NAMES, [*map(_parts, by_stage)], m.capacity_bytes, "On each accelerator.")


def _parts(held: MemorySection | StageMemory) -> list[float]:
    return [getattr(held, f"{kind}_bytes") for kind in KINDS]


def _of_groups(plan: Plan) -> Chart:
    stages = [
        (g, i, stage) for g, group in enumerate(plan.parallelism.groups, 1) for i, stage in enumerate(group.stages, 1)
    ]
    names = [f"group {g}, stage {i}: {plan.cluster.pools[stage.pool].accelerator}" for g, i, stage in stages]
    known = [stage.held for _, _, stage in stages]
    parts = [_parts(held) for held in known if held]
    kinds, held = (
        (NAMES, parts) if len(parts) == len(stages) else (("in use",), [[s.memory_bytes] for _, _, s in stages])
    )
    capacities = {plan.cluster.pools[stage.pool].accelerator_memory_bytes for _, _, stage in stages}
    has = ", ".join(format_bytes(each) for each in sorted(capacities))
    limit = min(capacities) if len(capacities) == 1 else None
    return _chart(names, kinds, held, limit, f"On each accelerator; their own memory: {has}.")


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
