"""The named constraints and money: what limits a plan, what is left of it, and what it costs."""

from __future__ import annotations

import math
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


LIMIT_CHECKS: tuple[Check, ...] = (constraints_are_known, slack_is_what_is_left, values_are_the_plans)


HIGHEST_PUE = 3.0
"""Facility power over IT power; no data centre reports more."""
ACCELERATOR_HOURS_PER_FAILURE = 51_000.0
"""Hours of one accelerator between failures: 419 unexpected interruptions of 16,384 in 54 days (Llama 3 405B, 2024,
table 5), rounded."""


def steps_see_all_tokens(c: Claim) -> Iterator[str]:
    """``steps = tokens / (batch sequence)``."""
    yield from unless_same("steps", c.plan.money.steps, c.plan.workload.tokens / c.step_tokens)


def days_follow_from_steps(c: Claim) -> Iterator[str]:
    """``days = steps step_time / goodput / 86400``."""
    money = c.plan.money
    seconds = money.steps * c.plan.prediction.step_time_s / money.goodput.fraction
    yield from unless_same("days", money.days, seconds / 86400.0)


def checkpoints_are_spaced_best(c: Claim) -> Iterator[str]:
    """``interval = sqrt(2 C M)``, C what a checkpoint blocks and M the mean time between interruptions (Young 1974)."""
    g = c.plan.money.goodput
    best = math.sqrt(2.0 * g.checkpoint_blocks_s * g.mtbf_s)
    yield from unless_same("checkpoint_interval_s", g.checkpoint_interval_s, best)


def goodput_follows_from_failures(c: Claim) -> Iterator[str]:
    """``1 - C / interval - (interval / 2 + restart) / M``, above 0 and at most 1."""
    g = c.plan.money.goodput
    lost = g.checkpoint_blocks_s / g.checkpoint_interval_s
    lost += (g.checkpoint_interval_s / 2.0 + g.restart_s) / g.mtbf_s
    yield from unless_same("goodput.fraction", g.fraction, 1.0 - lost)
    if not 0 < g.fraction <= 1:
        yield f"goodput.fraction is {g.fraction:g}"


def interruptions_follow_from_pools(c: Claim) -> Iterator[str]:
    """``1 / M = sum over pools of accelerators / 51,000 h + nodes preemptions``, and a restart takes the mean of the
    pools' own, each as often as its pool interrupts.

    A plan on one pool says neither; nor did plans of before 2026-12. Then nothing fails less often than accelerators
    do.
    """
    g = c.plan.money.goodput
    pools = c.plan.cluster.pools
    failing = [p.count * p.accelerators_per_node / (ACCELERATOR_HOURS_PER_FAILURE * 3600.0) for p in pools]
    rates = [rate + p.count * (p.preemptions_per_node_s or 0.0) for rate, p in zip(failing, pools, strict=True)]
    if any(p.preemptions_per_node_s is not None for p in pools):
        yield from unless_same("1 / mtbf_s", 1.0 / g.mtbf_s, sum(rates))
    elif g.mtbf_s * sum(failing) > 1 + TOLERANCE:
        yield f"mtbf_s is {g.mtbf_s:.6g}; accelerators alone interrupt every {1.0 / sum(failing):.6g} s"
    restarts = [p.restart_s for p in pools if p.restart_s is not None]
    if restarts and len(restarts) < len(pools):
        yield "some pools say how long a restart takes, and others do not"
    elif restarts:
        lost = sum(rate * restart for rate, restart in zip(rates, restarts, strict=True))
        yield from unless_same("restart_s / mtbf_s", g.restart_s * sum(rates), lost)


def dollars_follow_from_days(c: Claim) -> Iterator[str]:
    """``usd_per_hour = nodes price``, ``usd_total = usd_per_hour 24 days``, ``tokens_per_usd = tokens / usd_total``."""
    money = c.plan.money
    stated = (money.usd_per_hour, money.usd_total, money.price)
    if money.usd_per_hour is None or money.usd_total is None or money.price is None:
        if any(figure is not None for figure in (*stated, money.tokens_per_usd)):
            yield "some amounts are known without the others"
        return
    nodes = sum(pool.count for pool in c.plan.cluster.pools)
    yield from unless_same("usd_per_hour", money.usd_per_hour, nodes * money.price.usd_per_hour)
    yield from unless_same("usd_total", money.usd_total, money.usd_per_hour * 24.0 * money.days)
    if money.tokens_per_usd is not None:
        bought = money.tokens_per_usd * money.usd_total
        yield from unless_same("tokens_per_usd x usd_total", bought, c.plan.workload.tokens)
    elif money.usd_total > 0:
        yield "tokens_per_usd is missing"


def offers_are_in_order(c: Claim) -> Iterator[str]:
    """``0 < low <= median <= high`` of what an hour is sold for, by one provider or more."""
    offers = c.plan.money.price.offers if c.plan.money.price else None
    if offers and not (offers.providers and 0.0 < offers.low_usd <= offers.median_usd <= offers.high_usd):
        ends = f"{offers.low_usd:g}, {offers.median_usd:g} and {offers.high_usd:g}"
        yield f"offers of {len(offers.providers)} providers: {ends} are not in order"


def energy_follows_from_power(c: Claim) -> Iterator[str]:
    """``energy = power days 86400``; dollars and carbon are known where energy is."""
    energy = c.plan.energy
    figures = (energy.power_w, energy.energy_j, energy.usd, energy.carbon_kg)
    if energy.power_w is None or energy.energy_j is None:
        if any(figure is not None for figure in figures):
            yield "some amounts are known without the others"
        return
    yield from unless_same("energy_j", energy.energy_j, energy.power_w * c.run_seconds)
    if None in figures:
        yield "energy is known, and its dollars or carbon are not"


def power_is_in_reach(c: Claim) -> Iterator[str]:
    """``power <= sum(nodes max_power) PUE`` at the highest PUE there is."""
    power = c.plan.energy.power_w
    if power is None:
        return
    known = [pool.count * pool.max_power_w for pool in c.plan.cluster.pools if pool.max_power_w is not None]
    if len(known) < len(c.plan.cluster.pools):
        yield "power is known, but the maximum power of a node is not"
    elif power > HIGHEST_PUE * sum(known) * (1 + TOLERANCE):
        yield f"{power:.6g} W; all nodes together draw at most {sum(known):.6g} W"


CHECKS: tuple[Check, ...] = (
    steps_see_all_tokens,
    days_follow_from_steps,
    checkpoints_are_spaced_best,
    goodput_follows_from_failures,
    interruptions_follow_from_pools,
    dollars_follow_from_days,
    offers_are_in_order,
    energy_follows_from_power,
    power_is_in_reach,
)
