"""Whether a measured step is normal: what it took beside its prediction, and what would explain one that is not.

A step is normal inside the 80 % interval of its prediction. A cause is a change whose price is the measured time:
another value on an axis, or a rate of the machines that is lower than predicted. What does not reach the measured time
is not named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from planner import cost
from planner.axes import AXES
from planner.axes.table import IN_ANSWERS
from planner.base.units import format_percent, format_seconds
from planner.catalog import Catalog
from planner.cost.figures import Grid
from planner.planning import many
from planner.planning.why_this_plan import scaled
from planner.question.request import Request
from planner.question.search_problem import prepare, problem
from planner.schema.measured_step import MeasuredPhase, MeasuredStep, Verdict
from planner.schema.plan import Plan
from planner.schema.plan_prediction import called
from planner.search.branch_and_bound import Bounded
from planner.space.cost_grid import single_grid
from planner.space.pins import Pins

CHANGES: Mapping[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "full"),
    "dp_overlap": ("on", "off"),
    "tp_overlap": ("on", "off"),
    "sequence_parallel": ("on", "off"),
    "micro": ("1", "2", "4"),
    "vpp": ("1",),
    "zero": ("0", "1", "2", "3"),
    "offload": ("none", "optimizer"),
    "graphs": AXES["graphs"].choices,
    "attention_kernel": AXES["attention_kernel"].choices,
}
"""Axis -> values by which what runs most often differs from what was meant."""
LOOKED_AT: Mapping[str, str] = {
    "matrix FLOP/s": "clocks and power limits (nvidia-smi -q -d CLOCK,PERFORMANCE), another job on the machines",
    "memory bandwidth": "element-wise kernels that are not fused or not compiled, an optimizer without fused kernels",
    "scale-up bandwidth": "links inside a node that are down (nvidia-smi nvlink -s), peer access that is off",
    "NIC bandwidth": "NCCL over another network (NCCL_DEBUG=INFO says which), a NIC that is down; comm bench times it",
}
"""Resource -> where to look when it is slower than predicted."""
MOST = 20.0
"""Factor by which a rate may be lower, at most: a rate below a twentieth is broken, not slow."""
FASTER = 1.25
"""Factor by which a rate may be higher, at most: predictions take 75 to 80 % of the peak, and more of other figures."""
ROUNDS = 20
"""Halvings of a factor on a log scale."""
UNSEEN = 0.45
"""Half-width (log) that held 80 % of dense runs of labs and releases that nothing was fitted to (docs/accuracy.md)."""
TWICE = 2.0
"""Times a prediction from which a factor is said in place of a share."""
NAMED = 3
"""Causes of one kind that are named: those nearest to what was measured."""


def phase(name: str, measured_s: float, predicted_s: float, low_s: float, high_s: float) -> MeasuredPhase:
    """A measured phase beside its prediction and the interval of that, without causes."""
    verdict: Verdict = "slow" if measured_s > high_s else "fast" if measured_s < low_s else "as predicted"
    return MeasuredPhase(
        phase=name,
        measured_s=measured_s,
        predicted_s=predicted_s,
        low_s=low_s,
        high_s=high_s,
        verdict=verdict,
        causes=(),
    )


def in_words(whole: MeasuredPhase, like: float) -> str:
    """``the step is slow by 18 %: 14.0 s, 11.9 s predicted (80 %: 10.9 s to 13.0 s)``, all in the unit of `like`."""
    times = whole.measured_s / whole.predicted_s
    seconds = (whole.measured_s, whole.predicted_s, whole.low_s, whole.high_s)
    measured, predicted, low, high = (format_seconds(value, like) for value in seconds)
    took = f"{measured}, {predicted} predicted (80 %: {low} to {high})"
    if whole.verdict == "slow":
        by = f"is slow by {format_percent(times - 1.0)}"
        return f"the step {f'takes {times:.1f} times its prediction' if times >= TWICE else by}: {took}"
    if whole.verdict == "fast":
        return f"the step is faster than predicted by {format_percent(1.0 - times)}: {took}"
    return f"the step is normal: {took}"


def unit_of(step_s: float) -> float:
    """A duration in the unit in which a step is said: seconds whatever its size, or less."""
    return min(step_s, 1.0)


def compared(catalog: Catalog, request: Request, plan: Plan, measured_s: float, source: str) -> MeasuredStep:
    """A measured step beside a plan's.

    Args:
        catalog: The catalog of the question.
        request: The question of the plan; over several pools its rates are not looked at one by one.
        plan: The one configuration that was stated.
        measured_s: Seconds of a step.
        source: What they were read from.
    """
    predicted = plan.prediction
    interval = predicted.intervals["step_time_s"]
    whole = phase("step", measured_s, predicted.step_time_s, interval.low, interval.high)
    if whole.verdict != "as predicted":
        whole = replace(whole, causes=(*_causes(catalog, request, plan, whole),))
    mfu = format_percent(predicted.mfu * predicted.step_time_s / measured_s)
    verdict = f"{in_words(whole, unit_of(predicted.step_time_s))}, {mfu} MFU"
    return MeasuredStep(source=source, phases=(whole,), unread=(), verdict=verdict)


def _causes(catalog: Catalog, request: Request, plan: Plan, whole: MeasuredPhase) -> Iterator[str]:
    """What would explain a step that is slow or fast, most telling first."""
    is_slow = whole.verdict == "slow"
    off = abs(math.log(whole.measured_s / whole.predicted_s))
    if off <= UNSEEN and not plan.prediction.own_runs:
        yield "the prediction: steps of labs that nothing was fitted to were as far off (docs/accuracy.md); learn it"
    if not plan.parallelism.groups:
        yield from _changes(catalog, request, plan, whole)
        yield from _rates(catalog, request, whole)
    parts = sorted(plan.prediction.breakdown.items(), key=lambda part: -part[1])[:NAMED]
    listed = ", ".join(f"{called(name)} {format_percent(part_s / plan.predicted_s, 0)}" for name, part_s in parts)
    yield f"most of the predicted step is {listed}"
    if is_slow:
        yield "no prediction holds data loading, checkpoints or evaluation inside a step, or a node that holds all up"
    else:
        tokens = f"{plan.batch.global_:,} sequences of {plan.workload.sequence:,} tokens"
        yield f"fewer tokens than stated: is a step {tokens}?"


def _changes(catalog: Catalog, request: Request, plan: Plan, whole: MeasuredPhase) -> Iterator[str]:
    """Values on single axes under which the step would be normal and half as far off at most, nearest first."""
    stated = {axis.name: axis.spell(axis.value(axis.of(plan))) for axis in IN_ANSWERS if axis.is_mentioned(plan)}
    changed = [(axis, value) for axis, values in CHANGES.items() for value in values if stated.get(axis) != value]
    # Without sequence parallelism nothing of tensor parallelism overlaps.
    alone = {("sequence_parallel", "off"): {"tp_overlap": "off"}}
    settings = [[f"{n}={v}" for n, v in {**stated, **dict([one]), **alone.get(one, {})}.items()] for one in changed]
    evaluated = many.evaluate(catalog, replace(request, pins=Pins()), settings)
    unit = unit_of(whole.predicted_s)
    near: list[tuple[float, str]] = []
    for (axis, value), other in zip(changed, evaluated, strict=True):
        if not other.fits or other.step_time_s is None or other.step_time_low_s is None:
            continue
        high_s = other.step_time_high_s or other.step_time_s
        apart = abs(math.log(other.step_time_s / whole.measured_s))
        is_nearer = apart < abs(math.log(whole.predicted_s / whole.measured_s)) / 2.0
        if is_nearer and other.step_time_low_s <= whole.measured_s <= high_s:
            why = f"{axis}={value} would explain it, with {format_seconds(other.step_time_s, unit)}: {AXES[axis].help}"
            near.append((apart, why))
    yield from (why for _, why in sorted(near)[:NAMED])


def _most(grid: Grid, resource: str) -> float:
    """Factor by which a rate may be higher than predicted: products as far as the peak of their precision."""
    device = grid.device
    peak = float(np.max(device.peak)) / float(np.max(device.matrix_rate)) if resource == "matrix FLOP/s" else FASTER
    return max(min(peak, FASTER), 1.0)


def _rates(catalog: Catalog, request: Request, whole: MeasuredPhase) -> Iterator[str]:
    """Rates of the machines at which a step takes as long as measured, nearest to the predicted one first."""
    prepared = prepare(catalog, request)
    (best,) = Bounded().search(replace(problem(prepared, 1, capacity=math.inf), fold=True)).best[:1]
    grid = single_grid(prepared.figures, best.layout, best.options)
    times = whole.measured_s / whole.predicted_s

    def step_s(resource: str, factor: float) -> float:
        return float(cost.evaluate(scaled(grid, resource, factor)).time) / best.time

    near: list[tuple[float, str]] = []
    for resource, look in LOOKED_AT.items():
        least, most = (1.0 / MOST, 1.0) if times > 1.0 else (1.0, _most(grid, resource))
        if (step_s(resource, least) < times) if times > 1.0 else (step_s(resource, most) > times):
            continue
        for _ in range(ROUNDS):
            middle = math.sqrt(least * most)
            if step_s(resource, middle) >= times:
                least = middle
            else:
                most = middle
        where = f": {look}" if times > 1.0 else ""
        line = f"{resource} at {format_percent(least, 0)} of what is predicted takes as long{where}"
        near.append((abs(math.log(least)), line))
    yield from (line for _, line in sorted(near)[:NAMED])
