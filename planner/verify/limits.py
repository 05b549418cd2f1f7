"""The named constraints: what they limit, what is left, and whether it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from planner.verify.finding import TOLERANCE, Check, Claim, unless_same
from planner.verify.memory import usable

NEAR = {
    **dict.fromkeys(("memory", "expanded memory", "host memory"), 0.05),
    "accelerators": 0.0,
    **dict.fromkeys(("deadline", "budget"), 0.02),
}
"""Constraint -> share of its limit below which what is left counts as nothing: it binds."""
UNITS = dict.fromkeys(NEAR, "B") | {"accelerators": "", "deadline": "s", "budget": "USD"}
REQUIRED = ("memory", "accelerators")


def constraints_are_known(c: Claim) -> Iterator[str]:
    """Each name once, all of them names that are checked here with their unit, and none missing."""
    counted = Counter(constraint.name for constraint in c.plan.constraints)
    host = c.plan.prediction.memory.host
    needed = (*REQUIRED, "host memory") if host and host.capacity_bytes is not None else REQUIRED
    yield from (f"{name} appears {n} times" for name, n in counted.items() if n > 1)
    yield from (f"{name} is missing" for name in needed if name not in counted)
    for constraint in c.plan.constraints:
        if constraint.name not in NEAR:
            yield f"no check knows {constraint.name}"
        elif constraint.unit != UNITS[constraint.name]:
            yield f"{constraint.name} in {constraint.unit!r}; its unit is {UNITS[constraint.name]!r}"


def slack_is_what_is_left(c: Claim) -> Iterator[str]:
    """``slack = limit - value``; it binds if that is at most its share of the limit."""
    for k in c.plan.constraints:
        scale = max(abs(k.limit), abs(k.value))
        if abs(k.slack - (k.limit - k.value)) > TOLERANCE * scale:
            yield f"{k.name}: slack is {k.slack:.12g}, {k.limit - k.value:.12g} is left"
        if k.binding != (k.slack <= NEAR.get(k.name, 0.0) * k.limit):
            yield f"{k.name}: binding is {k.binding} with {k.slack:.6g} left of {k.limit:.6g}"


def values_are_the_plans(c: Claim) -> Iterator[str]:
    """A constraint's value is the figure that the plan states elsewhere; memory's limit is what its risk leaves."""
    memory = c.plan.prediction.memory
    values = {
        "memory": memory.total_bytes,
        "expanded memory": memory.expanded.total_bytes if memory.expanded else None,
        "host memory": memory.host.total_bytes if memory.host else None,
        "accelerators": float(c.plan.cluster.accelerators),
        "deadline": c.run_seconds,
        "budget": c.plan.money.usd_total,
    }
    for constraint in c.plan.constraints:
        value = values.get(constraint.name)
        if value is not None:
            yield from unless_same(f"the value of {constraint.name}", constraint.value, value)
        elif constraint.name in values:
            yield f"{constraint.name} limits what the plan does not know"
        if constraint.name == "memory":
            yield from unless_same("the limit of memory", constraint.limit, usable(c, memory.capacity_bytes))
        if constraint.name == "host memory" and memory.host:
            yield from unless_same("the limit of host memory", constraint.limit, memory.host.capacity_bytes or 0.0)
        if constraint.name == "expanded memory" and memory.expanded:
            left = usable(c, memory.expanded.capacity_bytes)
            yield from unless_same("the limit of expanded memory", constraint.limit, left)


def limits_hold(c: Claim) -> Iterator[str]:
    """``value <= limit`` for every constraint, and the memory needed fits into the memory there is."""
    for k in c.plan.constraints:
        if k.value > k.limit * (1 + TOLERANCE):
            yield f"{k.name}: {k.value:.6g} {k.unit} is over the limit of {k.limit:.6g} {k.unit}"
    memory = c.plan.prediction.memory
    if memory.total_bytes > memory.capacity_bytes * (1 + TOLERANCE):
        yield f"{memory.total_bytes:.6g} B do not fit into {memory.capacity_bytes:.6g} B"


CHECKS: tuple[Check, ...] = (constraints_are_known, slack_is_what_is_left, values_are_the_plans)
