"""A measured step beside a stated configuration in words: is it normal, and what would explain it."""

from __future__ import annotations

from planner.schema.measured_step import MeasuredStep
from planner.schema.plan import PlanSet


def lines(step: MeasuredStep) -> list[tuple[str, list[str]]]:
    """The verdict, what would explain it, and what was measured; a label and what stands under it."""
    several = len(step.phases) > 1
    causes = [[f"{phase.phase}: {cause}" if several else cause for cause in phase.causes] for phase in step.phases]
    listed = [
        ("Normal?", step.verdict.split("; ")),
        *(("Perhaps", some) for some in causes),
        ("Measured", step.source.split("; ")),
        ("Not read", [f"{', '.join(step.unread)}: no phase of a step"] if step.unread else []),
    ]
    return [(label, texts) for label, texts in listed if texts]


def of_set(plan_set: PlanSet) -> list[tuple[str, list[str]]]:
    """The lines of an estimate's measured step; none where nothing was measured."""
    return lines(plan_set.measured) if plan_set.measured else []


def following(plan_set: PlanSet, file: str) -> str:
    """What to do next with a measured step, the answer being kept in `file`; a line for each."""
    assert plan_set.measured is not None
    trace = f"clusterwright explain {file} --trace FILE finds where a step's time goes"
    if plan_set.plans[0].parallelism.groups:
        return trace
    (whole,) = plan_set.measured.phases
    seconds = f"{whole.measured_s:.6f}".rstrip("0").rstrip(".")
    return f"{trace}\nclusterwright learn --step-time {seconds}s --plan {file} --site DIR counts it"
