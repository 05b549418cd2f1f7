"""The plan to run, above all else: its configuration as it is typed, what to expect of it, and how sure that is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from planner.axes.table import DISPATCHER, IN_ANSWERS, LEVERS, OFFLOAD, RECOMPUTE, ZERO_SCOPE
from planner.base.stopping import STOPPED
from planner.base.units import format_count, format_many, format_percent, format_risk, format_usd
from planner.planning import order
from planner.question.given_groups import spelled_group
from planner.report import quantities
from planner.report.quantities import days, seconds
from planner.schema.plan import Interval, NearestRun, Plan, PlanSet, PriceUsed, SearchQuestion, SearchSection, UsualRun
from planner.schema.plan_machines import node_counts, pool_names

CONFIDENCE = {1.2: "high", 1.5: "fair", 2.0: "low", math.inf: "very low"}
"""Ratio of the two ends of the 80 % interval up to which each word stands, fitted to nothing. Within a fifth, plans of
one cluster can be told apart; within a half, a budget can be set; within two, most generations of accelerators."""

ROOM = 65
"""Columns behind a label on a terminal of 80."""
NO_GPUS = ("TPU", "Trainium", "Gaudi", "Dojo")
"""How accelerators are called that are no GPUs."""
IN_SHORT = ("Cost", "Nearest run")
"""Labels of which a terminal has one line: prices stand below the table, how near a run is in ``explain``."""
Lines = Iterator[tuple[str, list[str]]]
"""A label, and what is said under it."""


def lines(plan_set: PlanSet) -> Lines:
    """Configuration, time, money, memory and confidence of the plan to run."""
    plan = plan_set.plan_to_run
    if plan_set.recommended is None:
        searched = plan_set.asked is not None and not plan_set.asked.settings
        label = "Recommended" if searched else "Configuration"
        yield label, [f"{_alone(plan_set)}{configuration(plan)}"]
    else:
        behind = f"#{plan.rank}: " if plan is not plan_set.plans[0] else ""
        yield "Recommended", [f"{behind}{_varied(plan_set, plan)}{configuration(plan)}"]
    if needed := packages(plan):
        yield "Needs", [", ".join(needed)]
    yield from expected(plan, plan_set.reasons.binds, plan_set.usual, by_energy=plan_set.search.objective == "energy")


def at_an_edge(plan_set: PlanSet) -> str:
    """That the plan to run is at the end of a range that was asked for; empty where it is at none."""
    ends = ", ".join(edges(plan_set.question, plan_set.plan_to_run)) if plan_set.question else ""
    return f"{ends}: beyond what was tried may be better still" if ends else ""


def quicker_than_least(plan_set: PlanSet) -> str:
    """Why the plan to run is on more nodes than the one of least cost or energy; empty where it is that one."""
    run, objective = plan_set.plan_to_run, plan_set.search.objective
    if objective == "time" or len(plan_set.front) < 2:
        return ""
    least = min(plan_set.front, key=lambda point: point.accelerators * point.days)
    if least.accelerators >= run.cluster.accelerators:
        return ""
    nodes = least.accelerators // run.cluster.pools[0].accelerators_per_node
    cost = "" if least.usd_total is None or objective == "energy" else f"{format_usd(least.usd_total)}, "
    cheapest = f"{nodes:,} node{'s' * (nodes > 1)}: {cost}{days(least.days, run.money.days)}"
    best = "the most tokens per dollar" if objective == "tokens-per-dollar" else f"the least {objective}"
    return f"the quickest of the counts within {format_percent(order.TIED, 0)} of {best} ({cheapest})"


def stopped(search: SearchSection) -> str:
    """That the search was stopped, and how much better another plan may be; empty where it was not stopped."""
    if not search.method.endswith(STOPPED):
        return ""
    left = f"another may be up to {format_percent(search.gap)} better" if search.gap else "levers were not all tried"
    left = left if search.gap < 1.0 else "what is left has no bound"
    return f"stopped: the best so far of {search.candidates:,} candidates by {search.objective}, not proven: {left}"


def packages(plan: Plan) -> list[str]:
    """Software that a plan needs besides its runtime."""
    needed = (axis.packages.get(axis.spell(axis.value(axis.of(plan)))) for axis in LEVERS)
    return [package for package in needed if package]


def levers(plan: Plan) -> str:
    """What a plan takes beyond the base space, as ``clusterwright estimate`` takes it; empty where it takes nothing."""
    named = [axis for axis in LEVERS if axis.is_mentioned(plan) and (axis, axis.of(plan)) != (ZERO_SCOPE, "node")]
    beyond = [axis for axis in named if axis not in (DISPATCHER, OFFLOAD, RECOMPUTE)]
    modules = [RECOMPUTE] if plan.recompute.policy.startswith("selective:") else []
    part = [OFFLOAD] if OFFLOAD in named and (beyond or order.seldom_measured(plan)) else []
    listed = (axis for axis in LEVERS if axis in (*beyond, *modules, *part))
    return " ".join(f"{axis.name}={axis.spell(axis.value(axis.of(plan)))}" for axis in listed)


def of_plan(plan: Plan) -> Lines:
    """What stands above all else of a plan by itself."""
    yield "Configuration", [configuration(plan)]
    yield from expected(plan)


def expected(plan: Plan, binds: Sequence[str] = (), usual: UsualRun | None = None, *, by_energy: bool = False) -> Lines:
    """What to expect of a plan: time, money, memory, what limits it where that is known, and how sure that is."""
    yield "Speed", _speed(plan)
    if usual is not None:
        yield "Gain", [_gain(usual)]
    cost = _money(plan)
    yield "Cost", cost[:1] if by_energy else cost
    if by_energy:
        yield "Energy", [_energy(plan)]
    yield _fits(plan), [_memory(plan)]
    if binds:
        yield "Bottleneck", ["; ".join(binds)]
    near = [] if plan.measured else [*(plan.nearest_runs or ())[:1]]
    yield "Confidence", [_confidence(plan)]
    if near:
        yield "Nearest run", [measured_elsewhere(near[0]), near[0].how_near]
    doubtful = [f"{a.what}: {a.why} ({a.flag})" for a in plan.assumptions if a.flag == "--fabric"]
    if warned := [*doubtful, *filter(None, [order.stalls(plan)])]:
        yield "Warning", warned


def _alone(plan_set: PlanSet) -> str:
    """Which pool the plan to run uses, where other plans of the set use others, too."""
    several = len({node_counts(plan.cluster) for plan in plan_set.plans}) > 1
    pools = plan_set.plan_to_run.cluster.pools
    return f"on {pools[0].node} alone: " if several and len(pools) == 1 else ""


def edges(asked: SearchQuestion, plan: Plan) -> Iterator[str]:
    """Where a plan has the least (unless it is 1, of which there is no less) or the most of a range that was asked for:
    nodes, batch, a pinned axis.
    """
    ranges: dict[str, tuple[int, list[float]]] = {
        "nodes": (plan.cluster.pools[0].count, [*map(float, asked.nodes)]),
        "batch": (_batch(plan), [*map(float, asked.batches)]),
    }
    degrees = {**vars(plan.parallelism), "micro": plan.batch.micro}
    for axis, pin in asked.pins.items():
        ends = pin.replace("..", "|").split("|")
        if len(ends) > 1 and all(re.fullmatch(r"\d*", end) for end in ends):
            ranges[axis] = (degrees[axis], [float(end) if end else math.nan for end in ends])
    for axis, (value, tried) in ranges.items():
        if len(tried) > 1 and value != 1 and value in (tried[0], tried[-1]):
            yield f"{axis} {value:,} ({'least' if value == tried[0] else 'most'})"


def _varied(found: PlanSet, plan: Plan) -> str:
    """What the question left open beside the configuration: of several counts, batches or precisions the plan's."""
    counts = {point.accelerators for point in found.front} | {each.cluster.accelerators for each in found.plans}
    batches, precisions = ({get(each) for each in found.plans} for get in (_batch, lambda p: p.precision))
    nodes = sum(pool.count for pool in plan.cluster.pools)
    several = {
        f"{nodes:,} node{'' if nodes == 1 else 's'}": len(counts) > 1,
        f"batch {_batch(plan):,}": len(batches) > 1,
        plan.precision: len(precisions) > 1,
    }
    listed = ", ".join(name for name, open_ in several.items() if open_)
    return f"{listed}, " if listed else ""


def _batch(plan: Plan) -> int:
    return plan.batch.global_


def configuration(plan: Plan) -> str:
    """The plan as ``clusterwright estimate`` takes it; axes at the value that it takes by itself are left out."""
    groups, names = plan.parallelism.groups, pool_names(plan.cluster)
    mentioned = [axis for axis in IN_ANSWERS if axis.is_mentioned(plan) and (axis.of_groups or not groups)]
    texts = [f"{axis.name}={axis.spell(axis.value(axis.of(plan)))}" for axis in mentioned]
    return " ".join([*(spelled_group(group, names) for group in groups), *texts])


def _speed(plan: Plan) -> list[str]:
    """A step and its rates. MFU counts attention in full, as if nothing were masked, and nothing recomputed."""
    found, each = plan.prediction, 1.0 / plan.cluster.accelerators
    interval = found.intervals.get("step_time_s")
    span = f" (80 %: {from_to(interval)})" if interval else ""
    chip = "chip" if plan.cluster.pools[0].accelerator.startswith(NO_GPUS) else "GPU"
    flops = found.model_flops / found.step_time_s * each / 1e12
    return [
        f"{seconds(found.step_time_s)} a step{span}, {format_count(found.tokens_per_s)} tokens/s",
        f"{format_count(found.tokens_per_s * each)} tokens/s/{chip}, {flops:,.0f} TFLOP/s/{chip}, "
        f"{format_percent(found.mfu)} MFU (full attention)",
    ]


def _gain(usual: UsualRun) -> str:
    """How many times as fast as what is usually run."""
    if usual.gain is None:
        return "a default FSDP run does not fit on this cluster"
    ratio = math.sqrt(usual.gain.low * usual.gain.high)
    span = f" (80 %: {usual.gain.low:.2g} to {usual.gain.high:.2g})"
    return f"{ratio:.2g}x a default FSDP run on this cluster{span}"


def from_to(interval: Interval) -> str:
    """Both ends of an interval of seconds, their unit once where it is one."""
    (low, unit), (high, other) = (seconds(end).split() for end in (interval.low, interval.high))
    return f"{low} to {high} {other}" if unit == other else f"{low} {unit} to {high} {other}"


def _money(plan: Plan) -> list[str]:
    """What the run costs, at which price, and what it would cost at those of others."""
    money, price = plan.money, plan.money.price
    took = f"{days(money.days)} for {format_count(plan.workload.tokens)} tokens"
    if money.usd_total is None or price is None:
        return [f"{took}; no catalog price (--price, --basis)"]
    return [f"{format_usd(money.usd_total)}{_offered(plan, price)}, {took}", *prices(plan)]


def prices(plan: Plan) -> list[str]:
    """An hour of each node that a plan uses."""
    return [_priced(each, plan) for each in quantities.of_money(plan.money)]


def _priced(price: PriceUsed, plan: Plan) -> str:
    """An hour of a node: the price and its date; who states it is evidence."""
    if price.source == quantities.GIVEN:
        hour = format_usd(price.usd_per_hour)
        held = next(pool.accelerators_per_node for pool in plan.cluster.pools if pool.node == price.node)
        each = format_usd(price.usd_per_hour / held)
        return f"{price.node} at {hour}/h: {each} per accelerator-hour, as given (--price)"
    hour = quantities.dated(price)
    changed_by = f"{hour} (--price, --basis, --vendor)"
    return changed_by if len(changed_by) <= ROOM else hour


def _energy(plan: Plan) -> str:
    """Electricity and carbon of the run, and what both rest on."""
    used = plan.energy
    if used.energy_j is None or used.carbon_kg is None:
        return used.basis
    basis = re.sub("(the|each) node's maximum", "maximum", used.basis)
    return f"{quantities.energy(used.energy_j)}, {used.carbon_kg / 1e3:,.3g} t CO2e: {basis}"


def _offered(plan: Plan, price: PriceUsed) -> str:
    """What the run would cost at the cheapest and the dearest current offer of the same accelerator, in brackets."""
    offers, run, each = price.offers, plan.money, plan.cluster.pools[0].accelerators_per_node
    if offers is None or run.usd_total is None or run.prices or len(offers.providers) < 2:
        return ""
    low, high = (run.usd_total * usd * each / price.usd_per_hour for usd in (offers.low_usd, offers.high_usd))
    return f" ({len(offers.providers)} providers: {format_usd(low)} to {format_usd(high)})"


def _fits(plan: Plan) -> str:
    """The label of what is said of memory: too risky is what fits, but not as surely as is asked for."""
    m = plan.prediction.memory
    if m.total_bytes > m.capacity_bytes:
        return "Does not fit"
    return "Fits" if m.total_bytes <= usable_bytes(plan) else "Too risky"


def usable_bytes(plan: Plan) -> float:
    """Of an accelerator's memory what the accepted OOM risk leaves to a plan."""
    return next((c.limit for c in plan.constraints if c.name == "memory"), plan.prediction.memory.capacity_bytes)


def _memory(plan: Plan) -> str:
    m = plan.prediction.memory
    risk = f", OOM probability {format_risk(m.oom_chance)}" if m.oom_chance is not None else ""
    if _fits(plan) == "Too risky" and m.oom_risk is not None:
        risk += f", above {format_risk(m.oom_risk)} (--oom-risk)"
    peak = peak_bytes(plan)
    if peak != m.total_bytes:
        risk = f" as measured, {m.total_bytes / 2**30:.1f} predicted"
    return f"in {peak / 2**30:.1f} of {m.capacity_bytes / 2**30:.0f} GiB{risk}"


def peak_bytes(plan: Plan) -> float:
    """The largest peak that a run of the plan logged, else the one that is predicted."""
    logged = plan.measured.memory_bytes if plan.measured else None
    return logged or plan.prediction.memory.total_bytes


def _confidence(plan: Plan) -> str:
    interval = plan.prediction.intervals.get("step_time_s")
    if plan.measured is not None:
        off = f"{100 * (plan.measured.predicted_s / plan.measured.step_time_s - 1.0):+.0f} %"
        return f"high: measured here, {format_many(plan.measured.runs, 'run')} (prediction {off})"
    if interval is None:
        return "unknown: no measured run is like this one"
    half = _half(interval)
    word = next(word for ratio, word in CONFIDENCE.items() if interval.high <= ratio * interval.low)
    if word in ("high", "fair") and plan.nearest_runs and plan.nearest_runs[0].how_near.startswith("no run"):
        word = "low"
    reasons = interval.basis.removeprefix("80 %: ").partition("; from ")[0]
    return f"{word}, ±{format_percent(half, 0)}: {reasons}"


def measured_elsewhere(run: NearestRun) -> str:
    """``NVIDIA, 64 x B200, batch 256: 5.90 s, we say 5.60 s (-5 %)``."""
    off = f"{100 * (run.predicted_s / run.measured_s - 1.0):+.0f} %"
    part = run.accelerator.partition("-SXM")[0]
    where = f"{run.lab.partition(' (')[0]}, {run.accelerators:,} x {part}, batch {run.batch:,}"
    return f"{where}: {seconds(run.measured_s)}, we say {seconds(run.predicted_s)} ({off})"


def _half(interval: Interval) -> float:
    """``sqrt(high / low) - 1``."""
    return math.sqrt(interval.high / interval.low) - 1.0
