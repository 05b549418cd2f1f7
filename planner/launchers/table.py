"""Options of a launcher written by its table (:mod:`planner.schema.launcher_table`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.launchers import plan_facts, time_limit
from planner.schema.launcher_table import JOB, LauncherTable, spelt
from planner.schema.plan import Plan

Facts = Callable[[str], Any]
"""Axis or fact -> its value in a plan; None where the plan has none."""


def facts(known: Mapping[str, Any], shape: Mapping[str, Any]) -> Facts:
    """What is known by name; else a field of the model, named by its path: ``shape.moe.experts``."""

    def value(name: str) -> Any:
        if name in known or not name.startswith("shape."):
            return known.get(name)
        part: Any = shape
        for key in name.split(".")[1:]:
            part = part.get(key) if isinstance(part, Mapping) else None
        return part

    return value


def longest_wait_s(plan: Plan) -> float:
    """Seconds after which a collective of a healthy job has ended: three steps, and what a checkpoint stops.

    Of a pipeline the last stage waits for most of a step; launchers' own limits (10 minutes, 100 s) hold below that.
    """
    return 3 * plan.prediction.step_time_s + plan.money.goodput.checkpoint_blocks_s


def plan_says(plan: Plan, values: Mapping[str, str], decided: Mapping[str, Any]) -> Facts:
    """What every launcher's table may ask of a plan and its job; what a launcher says itself (`decided`) leads."""
    steps = plan_facts.steps(plan)
    replicas, shards = plan_facts.mesh(plan)
    known = {
        **plan_facts.values(plan),
        "accelerators": plan.cluster.accelerators,
        "accumulation": plan.batch.accumulation,
        "lr": float(values.get("lr") or 0),  # no other word passes :func:`bundle.settings`
        "method": plan.workload.method["kind"],
        "mtp_layers": plan.workload.mtp_layers,
        "replicas": replicas,
        "sequence": plan.workload.sequence,
        "shards": shards,
        "steps": steps,
    }
    job = {
        **values,
        "always": True,
        # Megatron-LM writes sharded gradients and weights (fsdp_dtensor) before it goes on (training/checkpointing.py).
        "asynchronous": plan.parallelism.zero_stage < 2,
        "exit_minutes": time_limit.exit_minutes(plan, values),
        "graphs": plan.graphs,
        "limited": time_limit.SETTING in values,
        "optimizer": known["optimizer"],
        "save_interval": plan_facts.steps_between_checkpoints(plan),
        "steps": steps,
        "waits_minutes": max(math.ceil(longest_wait_s(plan) / 60), 10),
        "waits_s": max(math.ceil(longest_wait_s(plan)), 100),
    }
    return facts({**known, **{f"{JOB}{name}": value for name, value in job.items()}, **decided}, plan.workload.shape)


def document(table: LauncherTable, known: Facts) -> dict[str, Any]:
    """Option -> value of all that the facts say, in the table's order."""
    written = {}
    for option in table.options.values():
        value = known(option.says)
        if option.values:
            value = option.values.get(spelt(value))
        if option.format == "or-null" or (value is not None and value != option.unless):
            written[option.name] = value
    return written


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with dots in their names as mappings in mappings."""
    whole: dict[str, Any] = {}
    for name, value in options.items():
        *outer, last = name.split(".")
        inner = whole
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return whole


def settings(table: LauncherTable, known: Facts) -> Iterator[tuple[str, Any]]:
    """``(option, value)`` of a command line; a switch that is on is True, and one that is off left out."""
    return ((name, value) for name, value in document(table, known).items() if value is not False)


def argv(table: LauncherTable, known: Facts) -> Iterator[str]:
    """The words of a command line: ``--name``, and its values behind it."""
    for name, value in settings(table, known):
        yield f"--{name}"
        if value is not True:
            yield from map(str, value if isinstance(value, list | tuple) else (value,))
