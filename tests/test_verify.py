"""Plans hold, and a plan of which one figure is changed does not."""

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import document
from planner.errors import WrongQuestion
from planner.parameters import lora_parameters, parameters
from planner.schema.plan import Plan
from planner.schema.workload import Method
from planner.verify import CHECKS, Inconsistent, check, model, violations
from planner.workload import library
from tests.plans import QUESTIONS, plans

VERIFY = Path(__file__).resolve().parent.parent / "planner" / "verify"


def best(name: str) -> Plan:
    return plans(name).plans[0]


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_the_planner_makes_holds(name: str) -> None:
    for plan in plans(name).plans:
        assert violations(plan) == []


def test_a_plan_still_holds_when_read_back() -> None:
    check(_parsed(document.dump(best("dense"))))


# ---- one leaf changed ------------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Any, ...]] = {
    "workload.method.kind": ("pretrain", "finetune", "lora"),
    "workload.shape.family": ("decoder", "encoder", "encoder-decoder", "vision"),
    "workload.shape.norm": ("rms", "layer"),
    "workload.shape.qk_norm": ("none", "head", "full"),
    "cluster.fabric.kind": ("infiniband", "roce", "efa", "slingshot", "ici", "ethernet", "tcp"),
    "parallelism.rank_order": ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"),
    "parallelism.schedule": ("none", "1f1b", "interleaved-1f1b"),
    "parallelism.zero_stage": (0, 1, 2, 3),
    "parallelism.zero_scope": ("full", "node"),
    "precision": ("bf16", "fp16", "fp8", "mxfp8", "fp32"),
    "recompute.policy": ("none", "selective", "full", "block:0.5", "block:half"),
    "constraints.*.name": ("memory", "accelerators", "deadline", "budget", "power"),
    "constraints.*.unit": ("", "B", "s", "USD"),
}
"""Enumerations: path -> values; every other one is tried."""

INPUTS = {
    "generator.seed",
    "rank",
    # Sizes that a question overrides, or that only matter to other methods, optimizers and attention.
    "workload.optimizer.step_bytes",
    "workload.shape.batch",
    "workload.shape.sequence",
    "workload.shape.tokens",
    "workload.shape.causal",
    "workload.shape.dropout",
    "workload.shape.family",
    # Hardware that only decides how long something takes, which is not derived again.
    "cluster.fabric.kind",
    "cluster.fabric.latency_s",
    "cluster.fabric.leaf_nodes",
    "cluster.fabric.nic_bytes_per_s",
    "cluster.fabric.oversubscription",
    "cluster.pools.*.max_power_w",
    "cluster.pools.*.nic_bytes_per_s",
    "cluster.pools.*.nics_per_node",
    "cluster.pools.*.scaleup_bytes_per_s",
    "runtime.bytes_per_parameter.gradient_wire",
    "runtime.bytes_per_parameter.parameter_wire",
    # A region's price and carbon of electricity are not in the plan.
    "energy.carbon_kg",
    "energy.usd",
}
"""Leaves of which some change goes unseen in every plan: nothing that a plan carries follows from them alone."""


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def general(path: tuple[str | int, ...]) -> str:
    return ".".join("*" if isinstance(key, int) else key for key in path)


def changed(path: tuple[str | int, ...], value: Any) -> list[Any]:
    """Other values for a leaf: the other choices, the other truth, a percent more, one more, the negative."""
    if (choices := CHOICES.get(general(path))) is not None:
        return [choice for choice in choices if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, -value] if value else [1, -1]
    if isinstance(value, float):
        return [value * 1.01, -value] if value else [1.0, -1.0]
    return []


def survivors(plan: Plan) -> set[str]:
    """Leaves of which some change is not caught."""
    dumped = document.dump(plan)
    return {general(path) for path, value in leaves(dumped) if any(_passes(dumped, path, x) for x in changed(path, value))}


def _passes(dumped: dict[str, Any], path: tuple[str | int, ...], value: Any) -> bool:
    wrong = copy.deepcopy(dumped)
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    try:
        return not violations(_parsed(wrong))
    except WrongQuestion:
        return False


def _parsed(dumped: dict[str, Any]) -> Plan:
    parsed = document.parse(dumped, "test")
    assert isinstance(parsed, Plan)
    return parsed


@pytest.mark.parametrize("name", ["dense", "mixture", "lora", "fsdp", "tied-stages", "vision"])
def test_every_derived_figure_is_checked(name: str) -> None:
    found = survivors(best(name))
    print(sorted(found - INPUTS), sorted(INPUTS - found))
    assert found == INPUTS
