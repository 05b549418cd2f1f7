"""A plan with the communication rules that a table leads to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.catalog import Catalog
from planner.comm import calls_of_several_pools
from planner.comm.back_end_choice import ChooseOptions, Chosen, choose, pin
from planner.comm.calls_of_one_pool import grid_of, known_of, listed, place_of
from planner.comm.calls_of_several_pools import KnownPlan, PoolCall
from planner.comm.tables import measured_times as tables
from planner.comm.tables import nccl_methods as by_model
from planner.comm.tables.measured_times import CollectiveMethod
from planner.comm.tables.timing import PoolTables, Time, placed
from planner.cost.calls import Call
from planner.figures import cost_inputs
from planner.schema.hardware import Cluster
from planner.schema.plan import CommunicationChoice, Plan
from planner.schema.plan_machines import pool_names


def free(plan: Plan, sms: int | None) -> Mapping[str, float]:
    """What further back ends may take of an accelerator: the bytes that the memory limit leaves, and `sms` if given."""
    memory = next((k.slack for k in plan.constraints if k.name == "memory"), 0.0)
    return {"memory": max(memory, 0.0)} | ({} if sms is None else {"sms": float(sms)})


def modelled(plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()) -> tuple[Chosen, Plan]:
    """As :func:`with_rules` without a table: NCCL's fastest algorithm and protocol by the model; no gain is claimed.

    Raises:
        WrongQuestion: as :func:`with_rules`, and where the accelerators do not speak NCCL.
    """
    calls = _calls(plan, catalog, where, clusters)
    if calls_of_several_pools.several(plan):
        return _modelled_across(plan, catalog, where, clusters, calls)
    place = place_of(plan, catalog, where, clusters)
    part = place.accelerator
    if part.vendor.lower() != "nvidia":
        raise WrongQuestion(
            f"{where}: the model knows NCCL's algorithms only, not those on {part.id}; --table FILE.csv"
        )
    network = grid_of(plan, catalog, where, clusters).network
    if network.dimensions is not None:
        raise WrongQuestion(
            f"{where}: the model compares algorithms on nodes and NICs, not on dimensions; --table FILE.csv"
        )
    library = cost_inputs.library(place, catalog.collective_efficiencies, catalog.fabric_efficiencies)
    chosen = pin(calls, lambda call: by_model.times(network, library, call))
    return chosen, _with_choice(plan, chosen, ChooseOptions(most=1), "modelled", "")


def decided(plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()) -> Plan:
    """The plan itself where it has rules; else with those of the model, where the model knows its library."""
    if plan.communication:
        return plan
    try:
        return modelled(plan, catalog, where, clusters)[1]
    except WrongQuestion:
        return plan


def _calls(plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster] = ()) -> tuple[Call, ...]:
    calls = listed(plan, catalog, where, clusters)
    if not calls:
        raise WrongQuestion(f"{where}: this plan makes no collective calls; there is nothing to choose")
    return calls


def with_rules(
    plan: Plan,
    catalog: Catalog,
    files: Sequence[str],
    asked: ChooseOptions,
    where: str,
    clusters: Sequence[Cluster] = (),
) -> tuple[Chosen, Plan]:
    """What was chosen by tables, and the plan with it. The plan's prediction stays as it was.

    Of a plan over several pools there may be a table of each: `files` are then ``POOL=FILE`` and ``POOL/POOL=FILE``.

    Raises:
        WrongQuestion: a plan without collectives or of another catalog, or a table that lacks what the plan calls.
        NoAnswer: no choice keeps the limits.
    """
    if calls_of_several_pools.several(plan):
        return _measured_across(plan, catalog, files, asked, where, clusters)
    if len(files) > 1 or ("=" in files[0] and not Path(files[0]).exists()):
        raise WrongQuestion(f"--table {files[-1]}: a plan on nodes of one kind has one table; write --table FILE")
    file = Path(files[0])
    table = tables.read(file)
    chosen = choose(_calls(plan, catalog, where, clusters), table, asked, str(file))
    return chosen, _with_choice(plan, chosen, asked, file.name, _digest([file]))


def again(plan: Plan, catalog: Catalog, files: Sequence[str], where: str, clusters: Sequence[Cluster] = ()) -> Plan:
    """A plan with rules as the model has them today, or the tables that they were chosen by; without those they stay.

    Raises:
        WrongQuestion: as :func:`with_rules`, or tables for rules that no table led to.
        NoAnswer: as :func:`with_rules`.
    """
    choice = plan.communication_choice
    if files and (choice is None or choice.modelled):
        raise WrongQuestion(f"--table {files[0]}: {where} was not chosen by a table; leave it out")
    if choice is None or not (files or choice.modelled):
        return plan
    if choice.modelled:
        return modelled(plan, catalog, where, clusters)[1]
    sms = None if choice.sms is None else int(choice.sms)
    asked = ChooseOptions(most=choice.most, margin=choice.margin, free=free(plan, sms))
    asked = replace(asked, switch_s=asked.switch_s if choice.switch_s is None else choice.switch_s,
                    launcher=choice.launcher or asked.launcher)  # fmt: skip
    made = with_rules(plan, catalog, files, asked, where, clusters)[1]
    assert made.communication_choice is not None
    # A table is the same by its content, whatever it is called now.
    return replace(made, communication_choice=replace(made.communication_choice, table=choice.table))


def _digest(files: Sequence[Path]) -> str:
    return short_hash(b"".join(file.read_bytes() for file in files))


# ---- several pools ---------------------------------------------------------------------------------------------------


def _leading(calls: Sequence[Call]) -> list[PoolCall]:
    return [call for call in calls if isinstance(call, PoolCall) and call.leads]


def _modelled_across(
    plan: Plan, catalog: Catalog, where: str, clusters: Sequence[Cluster], calls: Sequence[Call]
) -> tuple[Chosen, Plan]:
    known = known_of(plan, catalog, where, clusters)
    every = [pool.cluster for pool in known.pools.all]
    other = next((c.accelerator.id for c in every if c.accelerator.vendor.lower() != "nvidia"), None)
    if other is not None:
        raise WrongQuestion(f"{where}: the model knows NCCL's algorithms only, not those on {other}; --table FILE.csv")
    libraries = [cost_inputs.library(c, catalog.collective_efficiencies, catalog.fabric_efficiencies) for c in every]

    def look_up(call: Call) -> Mapping[CollectiveMethod, Time]:
        assert isinstance(call, PoolCall)
        # Between pools the library of the slower NICs, as the links themselves are priced.
        slower = min(call.pools, key=lambda i: float(known.figures[i].network.nic))
        return by_model.times(calls_of_several_pools.network(known, call), libraries[slower], call)

    leading = _leading(calls)
    chosen = pin(leading, look_up)
    pairs = zip(chosen.calls, leading, strict=True)
    chosen = replace(chosen, calls=tuple(replace(one, pools=call.pools) for one, call in pairs))
    return chosen, _with_choice(plan, chosen, ChooseOptions(most=1), "modelled", "")


def _measured_across(
    plan: Plan, catalog: Catalog, files: Sequence[str], asked: ChooseOptions, where: str, clusters: Sequence[Cluster]
) -> tuple[Chosen, Plan]:
    calls, known = _calls(plan, catalog, where, clusters), known_of(plan, catalog, where, clusters)
    measured, paths = _pool_tables(plan, known, files)
    pool_calls = [c for c in calls if isinstance(c, PoolCall)]
    leading = _leading(calls)
    asks = leading if measured.differ else [replace(call, pools=()) for call in leading]
    name = " ".join(files)
    chosen = choose(asks, measured, asked, name)
    saved = _saved(known, pool_calls, leading, chosen)
    if saved <= 0 and any(call.choice != chosen.calls[0].choice for call in chosen.calls):
        # What is gained beside the slowest pipelines is none of the step: every call stays.
        chosen = replace(choose(asks, measured, replace(asked, margin=math.inf), name), off_critical_path=True)
        saved = 0.0
    saving = tuple(
        replace(one, pools=call.pools, saved_s=one.saved_s if call.paces else 0.0)
        for one, call in zip(chosen.calls, leading, strict=True)
    )
    chosen = replace(chosen, calls=saving, saved_s=min(saved, sum(one.saved_s for one in saving)))
    return chosen, _with_choice(plan, chosen, asked, " ".join(path.name for path in paths), _digest(paths))


def _pool_tables(plan: Plan, known: KnownPlan, files: Sequence[str]) -> tuple[PoolTables, list[Path]]:
    """The tables that were named."""
    names = pool_names(plan.cluster)
    held = {}
    paths = []
    for text in files:
        at, file = placed(text, names)
        if at in held:
            raise WrongQuestion(f"--table {text}: there is one for the same already")
        held[at] = tables.read(Path(file))
        paths.append(Path(file))
    lacking = [i for i in range(len(names)) if () not in held and (i,) not in held]
    if lacking:
        raise WrongQuestion(
            f"no table for {names[lacking[0]]}; give one (--table {lacking[0] + 1}=FILE), or one for all (--table FILE)"
        )
    return PoolTables(held, tuple(p.cluster.accelerator.vendor for p in known.pools.all)), paths


def _saved(known: KnownPlan, calls: Sequence[PoolCall], leading: Sequence[PoolCall], chosen: Chosen) -> float:
    """Seconds of the step: by the slowest pipelines, whichever these are then, switches paid."""
    ratios = {_key(call): one.alone_s / one.base_s for one, call in zip(chosen.calls, leading, strict=True)}
    faster = calls_of_several_pools.stretched(known, calls, lambda call: ratios[_key(call)])
    switches = max(sum(one.saved_s for one in chosen.calls) - chosen.saved_s, 0.0)
    return known.plan.prediction.step_time_s - faster - switches


def _key(call: PoolCall) -> tuple[object, ...]:
    return call.op, call.ranks, call.bytes, call.pools


def _with_choice(plan: Plan, chosen: Chosen, asked: ChooseOptions, table: str, digest: str) -> Plan:
    choice = CommunicationChoice(
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
    if digest:
        choice = replace(choice, switch_s=asked.switch_s, launcher=asked.launcher, sms=asked.free.get("sms"))
    return replace(plan, communication=chosen.rules, communication_choice=choice)
