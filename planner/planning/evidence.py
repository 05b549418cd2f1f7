"""The measured runs that a candidate's plan is nearest to."""

from __future__ import annotations

from planner.axes.table import PRECISION, RECOMPUTE
from planner.figures import nearest_runs, own_runs
from planner.models.parameters import parameters
from planner.question.search_problem import Prepared
from planner.schema.plan import NearestRun
from planner.search.problem import Candidate


def nearest(prepared: Prepared, candidate: Candidate) -> tuple[NearestRun, ...]:
    """Published and own runs, the nearest first; none where nothing was measured."""
    request = prepared.request
    work, layout, part = request.workload, candidate.layout, request.cluster.accelerator
    plan: dict[str, str | float] = {
        "model": own_runs.block(work.model),
        "generation": part.generation,
        "precision": candidate.options[PRECISION],
        "recompute": candidate.options[RECOMPUTE].name,
        "accelerator": part.id,
        "runtime": request.runtime.measured_as or request.runtime.id,
        "kind": "moe" if work.model.moe else "dense",
        "method": work.method.kind,
        "accelerators": float(layout["nodes"] * request.cluster.node.accelerators),
        **{axis: float(layout[axis]) for axis in ("tp", "pp", "cp", "ep", "micro")},
        "parameters": float(parameters(work.model).total),
        "sequence": float(work.sequence),
    }
    return nearest_runs.nearest(prepared.nearby(), plan)
