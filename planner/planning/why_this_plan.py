"""Why the best plan is best: what limits it, what more of anything would bring, and why others lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner import cost
from planner.axes import LAYOUT_AXES, PlanAxis
from planner.axes.table import CP, EP, MICRO, OFFLOAD, PLACEMENT, PP, RECOMPUTE, SCHEDULE, SEQUENCE_PARALLEL, TP, ZERO
from planner.axes.values import schedule_name
from planner.base.errors import WrongQuestion
from planner.base.units import format_bytes, format_percent, format_seconds
from planner.catalog import Catalog
from planner.cost.figures import Grid
from planner.planning import comparison, order
from planner.question.request import Request
from planner.question.search_problem import Prepared, prepare, problem
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan import Plan, PlanDifference, Reasons
from planner.schema.plan_prediction import called
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate, SearchResult
from planner.space.cost_grid import single_grid
from planner.space.pins import Pins

MORE = 0.1
"""How much more of a resource a gain is quoted for."""

_RESOURCES = {
    "matrix FLOP/s": ("device", ("matrix_rate", "matrix_rate_16", "attention_rate")),
    "memory bandwidth": ("device", ("memory_rate",)),
    "scale-up bandwidth": ("network", ("scaleup", "scaleup_reduce", "pair")),
    "NIC bandwidth": ("network", ("nic",)),
    "expanded bandwidth": ("expanded", ("rate",)),
}


def scaled(grid: Grid, resource: str, factor: float) -> Grid:
    """The grid with `factor` times as much of one resource."""
    part, names = _RESOURCES[resource]
    record = getattr(grid, part)
    return replace(grid, **{part: replace(record, **{name: getattr(record, name) * factor for name in names})})


def gains(prepared: Prepared, best: Candidate, least: float) -> dict[str, float]:
    """Relative change of a plan's step time with 10 % more of each resource; of memory, by searching the base space
    again for better than its least value.
    """
    grid = single_grid(prepared.figures, best.layout, best.options)
    there = [name for name, (part, _) in _RESOURCES.items() if getattr(grid, part) is not None]
    found = {name: float(cost.evaluate(scaled(grid, name, 1 + MORE)).time) / best.time - 1.0 for name in there}
    if (network := grid.network.dimensions) is not None:
        for i, each in enumerate(network.along):
            faster = (*network.along[:i], replace(each, rate=each.rate * (1 + MORE)), *network.along[i + 1 :])
            wider = replace(grid, network=replace(grid.network, dimensions=replace(network, along=faster)))
            found[f"dimension {i + 1} bandwidth"] = float(cost.evaluate(wider).time) / best.time - 1.0
    own = prepared.request.cluster.accelerator.memory
    roomier = Bounded(below=least).search(problem(prepared, 1, capacity=own * (1 + MORE))).best
    if roomier or best.memory <= prepared.within(own * (1 + MORE)):
        found["memory"] = min(roomier[0].value / least - 1.0, 0.0) if roomier else 0.0
    return dict(sorted(found.items(), key=lambda item: item[1]))


def reasons(
    prepared: Prepared,
    found: SearchResult,
    plans: tuple[Plan, ...],
    differences: Sequence[PlanDifference] = (),
    least: float | None = None,
) -> Reasons:
    """What binds the first plan, what more would bring, and how the others differ from it; `least` is the best value of
    the base space, where `found` holds better ones.
    """
    chosen, *others = plans
    gained = gains(prepared, found.best[0], min(each.value for each in found.best) if least is None else least)
    why_not = _why_not(prepared.request.objective, chosen, others, differences)
    return Reasons(binds=_binds(chosen, gained), gains=gained, why_not=why_not)


def _binds(best: Plan, gained: dict[str, float]) -> tuple[str, ...]:
    lines = []
    held = best.prediction.memory
    limit = next(k.limit for k in best.constraints if k.name == "memory")
    free = limit - held.total_bytes
    where = f"memory of stage {held.stage + 1}" if best.parallelism.pp > 1 else "memory"
    if free < 0.05 * limit or gained.get("memory", 0.0) < -0.005:
        lines.append(f"{where} ({format_bytes(abs(free))} {'free' if free >= 0 else 'over'})")
    lines += [
        f"{c.name}" for c in best.constraints if c.binding and c.name in ("expanded memory", "deadline", "budget")
    ]
    parts = best.prediction.breakdown
    largest = max(parts, key=lambda name: parts[name])
    lines.append(f"{called(largest)} ({format_percent(parts[largest] / best.predicted_s, 0)} of the step)")
    return tuple(lines)


def remedies(catalog: Catalog, request: Request, best: Candidate) -> tuple[str, ...]:
    """Each single axis that, left free, lets a pinned configuration fit: its value and what it does to the step
    time.
    """
    lines = []
    for axis in (RECOMPUTE, ZERO, OFFLOAD, PLACEMENT, SCHEDULE, MICRO, SEQUENCE_PARALLEL, CP, PP, TP, EP):
        freed = Pins({name: bound for name, bound in request.pins.bounds.items() if name != axis.name})
        try:
            prepared = prepare(catalog, replace(request, pins=freed))
        except WrongQuestion:
            continue
        found = Bounded().search(problem(prepared, 1)).best
        if found:
            change = format_percent(found[0].time / best.time - 1.0)
            lines.append(
                f"{axis.name}={_value(found[0], axis)} would fit ({'' if change.startswith('-') else '+'}{change} time)"
            )
    return tuple(lines)


def _value(candidate: Candidate, axis: PlanAxis[Any]) -> str:
    layout = candidate.layout
    if axis is SCHEDULE:
        return schedule_name(candidate.options[SCHEDULE], layout["pp"], layout["vpp"])
    return str(layout[axis.name]) if axis in LAYOUT_AXES else axis.spell(candidate.options[axis])


def _why_not(
    objective: str, chosen: Plan, others: Sequence[Plan], differences: Sequence[PlanDifference]
) -> tuple[str, ...]:
    """For each other plan: how much worse and how sure that is, and on as many nodes the cause that grew most, of a
    faster one the cause that shrank most.
    """
    by_rank = {difference.rank: difference for difference in differences}
    lines = []
    for other in others:
        words, ratio = _compared(objective, chosen, other)
        change = comparison.in_words(comparison.scaled(by_rank[other.rank], ratio), *words)
        line = f"#{other.rank} {_difference(chosen, other)}: {change}"
        if other.cluster.accelerators == chosen.cluster.accelerators:
            line += _grown(chosen, other) if ratio >= 1.0 else _shrunk(chosen, other)
        lines.append(line)
    return tuple(lines)


def _compared(objective: str, best: Plan, other: Plan) -> tuple[tuple[str, str], float]:
    """What to call more and less of what plans differ in, and how many times as much the other takes."""
    if objective != "time" and best.money.usd_total is not None and other.money.usd_total is not None:
        # All nodes are of one kind: energy goes with money.
        words = ("more energy", "less energy") if objective == "energy" else ("dearer", "cheaper")
        return words, other.money.usd_total / best.money.usd_total
    return ("slower", "faster"), other.money.days / best.money.days


def _more(best: Plan, other: Plan) -> dict[str, float]:
    """Seconds by which each cause takes more than in the best plan, per step of the best plan's batch."""
    mine, theirs = best.prediction.breakdown, other.prediction.breakdown
    scale = best.batch.global_ / other.batch.global_
    return {name: theirs.get(name, 0.0) * scale - mine.get(name, 0.0) for name in sorted(mine.keys() | theirs.keys())}


def _grown(best: Plan, other: Plan) -> str:
    """The cause that takes most more time than in the best plan."""
    grown = _more(best, other)
    cause = max(grown, key=lambda name: grown[name])
    return f"; {called(cause)} +{format_seconds(grown[cause])} a step" if grown[cause] > 0 else ""


def _shrunk(best: Plan, other: Plan) -> str:
    """The cause that takes most less time than in the best plan, and that the faster plan is more complex."""
    shrunk = _more(best, other)
    cause = min(shrunk, key=lambda name: shrunk[name])
    simpler = ", and more that can go wrong" if order.kinds(other) > order.kinds(best) else ""
    return f"; {called(cause)} -{format_seconds(-shrunk[cause])} a step{simpler}" if shrunk[cause] < 0 else simpler


_NAMED = {
    **{degree: degree.upper() for degree in ("tp", "pp", "vpp", "cp", "ep", "etp")},
    "micro": "micro-batch ",
    **{axis: f"{axis} " for axis in ("batch", "nodes", "recompute", "schedule")},
    "precision": "",
}
"""Axes by which a plan is told from the best one -> what stands before its value."""


def _difference(best: Plan, other: Plan) -> str:
    """What is different about the other plan."""
    mine = best.axes
    theirs = other.axes
    axes = [axis for axis in _NAMED if mine[axis] != theirs[axis]]
    if not {mine["schedule"], theirs["schedule"]} & {*SPLIT_SCHEDULES} and "schedule" in axes:
        axes.remove("schedule")  # Whether 1F1B is interleaved follows from the degrees.
    lines = [f"{_NAMED[axis]}{theirs[axis]}" for axis in axes]
    return " ".join(lines) or "other switches"
