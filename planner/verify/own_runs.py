"""What a site's own runs shift a prediction by."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.plan import OwnRun, OwnRunsSection
from planner.verify.finding import Check, Claim, unless_same

LABELS = {"model", "generation", "precision", "recompute"}
COUNTS = {"accelerators", "tp", "pp", "cp", "ep", "micro"}
"""What plans differ in, as far as their errors do."""
SOLVED = 1e-6
"""Relative: how exactly weights solve their equations."""


def own_runs_are_near(c: Claim) -> Iterator[str]:
    """``near_factor = exp(near^2 sum w_i exp(-d_i))``; passes without own runs, times both factors, take as long."""
    section = c.plan.prediction.own_runs
    if section is None:
        return
    if section.other.keys() != LABELS or section.doubled.keys() != COUNTS:
        yield f"own_runs states distances of {', '.join([*section.other, *section.doubled])}"
        return
    plan_run = _stands(c, section)
    if section.model != plan_run.model:
        yield f"own_runs.model is {section.model}, and the plan's block {plan_run.model}"
    shift = section.near**2 * sum(run.weight * _closeness(section, plan_run, run) for run in section.runs)
    yield from unless_same("own_runs.near_factor", section.near_factor, math.exp(shift))
    parts = c.plan.prediction.breakdown
    fixed = parts.get("optimizer", 0.0) + parts.get("overhead", 0.0)
    passes = (section.without_s - fixed) * section.shared_factor * section.near_factor
    yield from unless_same("the step with own runs", c.plan.predicted_s, passes + fixed)


def own_runs_are_weighed(c: Claim) -> Iterator[str]:
    """``sum_j (site^2 + near^2 exp(-d_ij)) w_j + scatter_i^2 w_i = residual_i``."""
    section = c.plan.prediction.own_runs
    if section is None or section.other.keys() != LABELS or section.doubled.keys() != COUNTS:
        return
    for number, run in enumerate(section.runs):
        derived = sum(
            other.weight * (section.site**2 + section.near**2 * _closeness(section, run, other))
            for other in section.runs
        )
        derived += run.scatter**2 * run.weight
        if not math.isclose(derived, run.residual, rel_tol=SOLVED, abs_tol=SOLVED**2):
            yield f"own_runs.runs.{number}: its residual is {run.residual:g}, and {derived:g} follows from the weights"


def _stands(c: Claim, section: OwnRunsSection) -> OwnRun:
    """Where the plan stands among the runs."""
    p = c.plan.parallelism
    shape = c.model
    return OwnRun(
        model=f"{shape.hidden}x{shape.ffn}x{shape.heads}" + (f"x{shape.moe.experts}" if shape.moe else ""),
        generation=section.generation,
        precision=c.plan.precision,
        recompute=c.plan.recompute.policy,
        accelerators=c.plan.cluster.accelerators,
        tp=p.tp,
        pp=p.pp,
        cp=p.cp,
        ep=p.ep,
        micro=c.plan.batch.micro,
        residual=0.0,
        scatter=0.0,
        weight=0.0,
    )


def _closeness(section: OwnRunsSection, one: OwnRun, other: OwnRun) -> float:
    """``exp(-d)``, ``d = sum_k other_k [a_k != b_k] + sum_k doubled_k |log2(a_k / b_k)|``: 1 (the same) to 0."""
    far = sum(distance for name, distance in section.other.items() if getattr(one, name) != getattr(other, name))
    far += sum(
        distance * abs(math.log2(getattr(one, n) / getattr(other, n))) for n, distance in section.doubled.items()
    )
    return math.exp(-far)


CHECKS: tuple[Check, ...] = (own_runs_are_near, own_runs_are_weighed)
