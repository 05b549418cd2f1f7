"""A plan with the communication rules that a table leads to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner import binding
from planner.catalog import Catalog
from planner.comm import modelled as by_model
from planner.comm import table as tables
from planner.comm.choosing import Asked, Chosen, choose, pin
from planner.comm.listing import grid_of, listed, place_of
from planner.cost.calls import Call
from planner.errors import WrongQuestion
from planner.schema.hardware import Cluster
from planner.schema.plan import CommunicationChoice, Plan


def free(plan: Plan, sms: int | None) -> Mapping[str, float]:
    """What further back ends may take: the memory that the plan's limit leaves, and SMs where a limit is given."""
    memory = next((k.slack for k in plan.constraints if k.name == "memory"), 0.0)
    return {"memory": max(memory, 0.0)} | ({} if sms is None else {"sms": float(sms)})


def modelled(plan: Plan, catalog: Catalog, where: str, own: Cluster | None = None) -> tuple[Chosen, Plan]:
    """The same without a table: NCCL's fastest algorithm and protocol by the model, and no gain claimed.

    Raises:
        WrongQuestion: as :func:`with_rules`, and where the accelerators do not speak NCCL.
    """
    calls = _calls(plan, catalog, where, own)
    place = place_of(plan, catalog, where, own)
    part = place.accelerator
    if part.vendor.lower() != "nvidia":
        raise WrongQuestion(
            f"{where}: the model knows NCCL's algorithms only, not those on {part.id}; --table FILE.csv"
        )
    network = grid_of(plan, catalog, where, own).network
    if network.dimensions is not None:
        raise WrongQuestion(
            f"{where}: the model compares algorithms on nodes and NICs, not on dimensions; --table FILE.csv"
        )
    library = binding.library(place, catalog.collective_efficiencies, catalog.fabric_efficiencies)
    chosen = pin(calls, lambda call: by_model.times(network, library, call))
    return chosen, _told(plan, chosen, Asked(most=1), "modelled", "")


def decided(plan: Plan, catalog: Catalog, where: str, own: Cluster | None = None) -> Plan:
    """The plan itself where it has rules; else with those of the model, where the model knows its library."""
    if plan.communication:
        return plan
    try:
        return modelled(plan, catalog, where, own)[1]
    except WrongQuestion:
        return plan


def _calls(plan: Plan, catalog: Catalog, where: str, own: Cluster | None = None) -> tuple[Call, ...]:
    calls = listed(plan, catalog, where, own)
    if not calls:
        raise WrongQuestion(f"{where}: this plan makes no collective calls; there is nothing to choose")
    return calls


def with_rules(
    plan: Plan, catalog: Catalog, file: Path, asked: Asked, where: str, own: Cluster | None = None
) -> tuple[Chosen, Plan]:
    """What was chosen, and the plan with it. The plan's prediction stays as it was.

    Raises:
        WrongQuestion: a plan without collectives or of another catalog, or a table that lacks what the plan calls.
        NoAnswer: no choice keeps the limits.
    """
    found = tables.read(file)
    chosen = choose(_calls(plan, catalog, where, own), found, asked, str(file))
    return chosen, _told(plan, chosen, asked, file.name, hashlib.sha256(file.read_bytes()).hexdigest()[:16])


def _told(plan: Plan, chosen: Chosen, asked: Asked, table: str, digest: str) -> Plan:
    told = CommunicationChoice(
        table=table,
        sha256=digest,
        base=chosen.base,
        live=chosen.live,
        most=asked.most,
        margin=asked.margin,
        gap=chosen.gap,
        saved_s=chosen.saved_s,
        step_time_s=plan.prediction.step_time_s - chosen.saved_s,
        calls=chosen.calls,
    )
    return replace(plan, communication=chosen.rules, communication_choice=told)
