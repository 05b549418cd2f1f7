"""What is said of a plan on one pool that no launcher of its own runtime writes."""

from __future__ import annotations

from planner.launchers import plan_facts
from planner.launchers.bundle import refusals, sharded_alone, trainers
from planner.launchers.registry import EXPORTERS
from planner.schema.plan import Plan

INSTEAD = ("torchtitan", "hf-trainer", "maxtext")
"""Trainers whose runtime is named in place of another: they write a whole job."""


def without_own_launcher(plan: Plan) -> str:
    """Why no launcher of a plan's runtime writes it, which others do, and for which runtime to plan instead; empty if
    one does, or if the runtime has none and others write the plan.
    """
    whole = plan_facts.complete(plan)
    refused = {e.name: list(refusals(whole, e)) for e in EXPORTERS.values() if e.runtime == plan.runtime.name}
    able, why = trainers(plan)
    if not all(refused.values()) or (able and not refused):
        return ""
    why = "; ".join(next(iter(refused.values()))) if refused else why
    others = f"{', '.join(able)} can start it, at other times than these" if able else "nor does any other as it is"
    writers = trainers(sharded_alone(whole))[0]
    runtimes = [EXPORTERS[name].runtime or name for name in INSTEAD if name in writers]
    cure = f"; --runtime {runtimes[0]} plans for one that writes the model" if runtimes else ""
    return f"no launcher of {plan.runtime.name} writes this plan: {why}; {others}{cure}"
