"""A plan with the communication rules that a table leads to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.catalog import Catalog
from planner.comm import table as tables
from planner.comm.choosing import Asked, Chosen, choose
from planner.comm.listing import listed
from planner.errors import WrongQuestion
from planner.schema.plan import CommunicationChoice, Plan


def free(plan: Plan, sms: int | None) -> Mapping[str, float]:
    """What further back ends may take: the memory that the plan's limit leaves, and SMs where a limit is given."""
    memory = next((k.slack for k in plan.constraints if k.name == "memory"), 0.0)
    return {"memory": max(memory, 0.0)} | ({} if sms is None else {"sms": float(sms)})


def with_rules(plan: Plan, catalog: Catalog, file: Path, asked: Asked, where: str) -> tuple[Chosen, Plan]:
    """What was chosen, and the plan with it. The plan's prediction stays as it was.

    Raises:
        WrongQuestion: a plan without collectives or of another catalog, or a table that lacks what the plan calls.
        NoAnswer: no choice keeps the limits.
    """
    found = tables.read(file)
    calls = listed(plan, catalog, where)
    if not calls:
        raise WrongQuestion(f"{where}: this plan makes no collective calls; there is nothing to choose")
    chosen = choose(calls, found, asked, str(file))
    told = CommunicationChoice(
        table=file.name,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest()[:16],
        base=chosen.base,
        live=chosen.live,
        most=asked.most,
        margin=asked.margin,
        gap=chosen.gap,
        saved_s=chosen.saved_s,
        step_time_s=plan.prediction.step_time_s - chosen.saved_s,
        calls=chosen.calls,
    )
    return chosen, replace(plan, communication=chosen.rules, communication_choice=told)
