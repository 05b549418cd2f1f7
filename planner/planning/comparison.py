"""Two plans side by side: where they differ, what the second gains, and how sure the difference is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from planner.axes.table import CP, DEGREES, EP, IN_ANSWERS, MICRO, PP, RECOMPUTE, SCHEDULE, TP
from planner.base.units import format_percent
from planner.catalog import Catalog, load
from planner.figures import conformal_intervals, plan_differences
from planner.schema.plan import ChangedFigure, Group, Interval, Plan, PlanDifference, PlanSet
from planner.schema.reports import Comparison

TOKENS = "tokens to train on"
ROUNDING = 1e-9
"""Relative difference of two figures of one plan that were rounded otherwise."""
LARGE = 0.02
"""Error from which on tenths of a per cent are not written."""
Terms = Mapping[str, conformal_intervals.Width]
"""Terms of intervals by name."""

GROUPED = (TP, PP, CP, EP, MICRO, RECOMPUTE)
"""Axes that each group of pipelines of a plan over several pools has for itself."""
COMPARED = sorted(
    (axis for axis in IN_ANSWERS if axis.label),
    key=lambda axis: 0 if axis in DEGREES else 1 if axis is SCHEDULE else 2,
)
"""Degrees, the schedule that follows from them, and the rest."""
_COUNTED = ("pipelines", "sequences")
"""Shares of a whole."""


def compare(first: Plan, second: Plan) -> Comparison:
    """What the second plan gains over the first.

    Rates are compared in tokens per second, so that plans with different batches compare. Time and price are those of
    the first's tokens: where the second trains on others, its own in proportion.
    """
    questions = tuple(_questions(first, second))
    share = token_share(first, second)
    paid = (first.money.usd_total, second.money.usd_total)
    tokens = second.prediction.tokens_per_s / first.prediction.tokens_per_s
    interval = _interval(tokens, *half_width(first, second, conformal_intervals.read(load())))
    return Comparison(
        questions=questions,
        differing=tuple((axis, a, b) for axis, a, b in _axes(first, second) if a != b),
        step=second.prediction.step_time_s / first.prediction.step_time_s,
        days=second.money.days * share - first.money.days,
        usd=None if paid[0] is None or paid[1] is None else paid[1] * share - paid[0],
        tokens=tokens,
        interval=interval,
        distinguishable=not interval.low <= 1.0 <= interval.high,
        plans=(first, second),
    )


def token_share(first: Plan, second: Plan) -> float:
    """Tokens of the first plan over those of the second; 1 where they differ by less than a step."""
    return first.workload.tokens / second.workload.tokens if TOKENS in _questions(first, second) else 1.0


def differences(plans: Sequence[Plan], chosen: Plan, catalog: Catalog) -> tuple[PlanDifference, ...] | None:
    """How much more time each other plan of a set takes than the chosen one for all tokens, and how sure that is; None
    where there is no other.
    """
    known = conformal_intervals.read(catalog)
    return tuple(_difference(chosen, plan, known) for plan in plans if plan.rank != chosen.rank) or None


def stated(found: PlanSet) -> tuple[PlanDifference, ...]:
    """The differences of a set, by the built-in catalog where its document is older than they are."""
    return found.differences or differences(found.plans, found.plan_to_run, load()) or ()


def _difference(chosen: Plan, other: Plan, known: Terms) -> PlanDifference:
    time = other.money.days / chosen.money.days
    interval = _interval(time, *half_width(chosen, other, known))
    return PlanDifference(
        rank=other.rank,
        time=time,
        interval=interval,
        distinguishable=not interval.low <= 1.0 <= interval.high,
    )


def _interval(ratio: float, half: float, basis: str) -> Interval:
    return Interval(low=ratio * math.exp(-half), high=ratio * math.exp(half), basis=basis)


def half_width(first: Plan, second: Plan, known: Terms) -> tuple[float, str]:
    """Half-width of the 80 % interval of the log ratio of two plans' times, and what it rests on.

    What two plans of one model on one kind of accelerator under one runtime share cancels
    (:mod:`planner.figures.plan_differences`). Other plans, and those that were measured, err independently.
    """
    independent = math.hypot(_half(first), _half(second))
    if _same(first, second):
        return 0.0, "one plan"
    if _shared(first) != _shared(second) or first.measured or second.measured:
        return independent, "80 %: both intervals, independent"
    apart = plan_differences.distance(first.prediction.breakdown, second.prediction.breakdown)
    half = plan_differences.half_width(known, apart)
    if half is None or 0.0 < independent < half:
        return independent, "80 %: both intervals, independent"
    pairs = known[plan_differences.APART].runs
    return half, f"80 %: {format_percent(apart)} of their steps differs in cause; from {pairs:,} pairs of measured runs"


def _half(plan: Plan) -> float:
    """Half-width of a plan's own interval, log; 0 where it states none."""
    interval = plan.prediction.intervals.get("step_time_s")
    return 0.0 if interval is None else math.log(interval.high / interval.low) / 2.0


def _shared(plan: Plan) -> tuple[object, ...]:
    """What two plans must share for errors of their predictions to cancel."""
    accelerators = {pool.accelerator for pool in plan.cluster.pools}
    return plan.workload.model, plan.workload.method["kind"], plan.workload.task, plan.runtime.name, accelerators


def _same(first: Plan, second: Plan) -> bool:
    """Whether both are one plan with one prediction."""
    stated = [(plan.axes, plan.cluster, plan.workload, plan.runtime, plan.prediction) for plan in (first, second)]
    return stated[0] == stated[1]


def faster(found: Comparison) -> str:
    """How much faster the second plan trains, by tokens a second, or that the two are not distinguishable."""
    known = conformal_intervals.read(load())
    interval = found.interval or _interval(found.tokens, *half_width(*found.plans, known))
    return in_words(interval, "faster", "slower")


def scaled(difference: PlanDifference, ratio: float) -> Interval:
    """The interval of a ratio of money or energy, which grow with time."""
    interval = difference.interval
    factor = ratio / difference.time
    return replace(interval, low=factor * interval.low, high=factor * interval.high)


def in_short(interval: Interval) -> str:
    """``+28.0 %``, or ``-1.9 ± 9 %`` where the difference is within its error (80 %)."""
    more = 100.0 * (math.sqrt(interval.low * interval.high) - 1.0)
    if not interval.low <= 1.0 <= interval.high:
        return f"{more:+.1f} %"
    half = math.sqrt(interval.high / interval.low) - 1.0
    return f"{more:+.1f} ± {format_percent(half, 0 if half >= LARGE else 1)}"


def in_words(interval: Interval, more: str, less: str) -> str:
    """``28.0 % slower (80 %: 15.0 to 42.0 %)``, or that the difference is within its error.

    Args:
        interval: The 80 % interval of how many times as much a second plan takes, on a log scale about that.
        more: What it is called where it takes more.
        less: What it is called where it takes less.
    """
    ratio = math.sqrt(interval.low * interval.high)
    if interval.low == interval.high and abs(ratio - 1.0) < ROUNDING:
        return "the same"
    if interval.low <= 1.0 <= interval.high:
        return f"not distinguishable ({in_short(interval)})"
    ends = sorted(abs(end - 1.0) for end in (interval.low, interval.high))
    span = f"{100 * ends[0]:.1f} to {format_percent(ends[1])}"
    return f"{format_percent(abs(ratio - 1.0))} {more if ratio > 1.0 else less} (80 %: {span})"


def _questions(first: Plan, second: Plan) -> Iterator[str]:
    a, b = first.workload, second.workload
    pairs = (
        ("models", a.parameters, b.parameters),
        ("multi-token prediction modules", a.mtp_layers, b.mtp_layers),
        ("imbalances of tokens over experts", a.imbalance, b.imbalance),
        ("lengths of sequences", a.sequence, b.sequence),
        ("lengths of texts", a.texts, b.texts),
        (TOKENS, abs(a.tokens - b.tokens) > first.batch.global_ * a.sequence, False),
        ("methods", a.method, b.method),
        ("tasks", a.task, b.task),
        ("optimizers", a.optimizer, b.optimizer),
        ("global batches", first.batch.global_, second.batch.global_),
        ("clusters", _machines(first), _machines(second)),
        ("networks", _network(first), _network(second)),
    )
    yield from (what for what, one, other in pairs if one != other)


def _machines(plan: Plan) -> tuple[object, ...]:
    """What stands in the cluster, by its figures: a changed node keeps its name."""
    return tuple(
        (
            *(pool.node, pool.count, pool.accelerator, pool.accelerators_per_node, pool.accelerator_memory_bytes),
            *(pool.scaleup_bytes_per_s, pool.nics_per_node, pool.nic_bytes_per_s, *sorted(pool.peak_flops.items())),
            pool.changed,
        )
        for pool in plan.cluster.pools
    )


def _network(plan: Plan) -> tuple[object, ...]:
    """What passes between nodes, and between pools."""
    fabric = plan.cluster.fabric
    links = sorted((link.pools, link.bytes_per_s, link.latency_s) for link in plan.cluster.links)
    return fabric.id, fabric.nic_bytes_per_s, fabric.topology, fabric.oversubscription, tuple(links)


def _axes(first: Plan, second: Plan) -> Iterator[tuple[str, str, str]]:
    for one, other in zip(_named(first), _named(second), strict=True):
        yield one[0], one[1], other[1]
    yield from _figures(first, second)


def _figures(first: Plan, second: Plan) -> Iterator[tuple[str, str, str]]:
    """Every figure that an accelerator of either plan has otherwise than the catalog; ``-`` where it is in one only."""
    values = [_changed(first), _changed(second)]
    for named in dict.fromkeys((*values[0], *values[1])):
        change = next(each[named] for each in values if named in each)
        texts = [
            each[named].text(each[named].used) if named in each else
            change.text(change.catalog) if named[0] in {pool.accelerator for pool in plan.cluster.pools} else "-"
            for each, plan in zip(values, (first, second), strict=True)
        ]  # fmt: skip
        yield " ".join(named), texts[0], texts[1]


def _changed(plan: Plan) -> dict[tuple[str, str], ChangedFigure]:
    """(Accelerator, figure) -> what of it is not the catalog's."""
    return {(pool.accelerator, each.figure): each for pool in plan.cluster.pools for each in pool.changed or ()}


def _named(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "runtime", f"{plan.runtime.name} {plan.runtime.release}"
    rows: dict[str, str] = {}
    for axis in COMPARED:
        by_group = _of_groups(plan, axis.name) if axis in GROUPED else ""
        rows[axis.label] = rows.get(axis.label, "") + (by_group or axis.fragment(axis.of(plan)))
    yield from rows.items()
    yield "layers of stages", _of_groups(plan, "layers") or ", ".join(str(s.layers) for s in plan.parallelism.stages)
    yield "pools of stages", _of_groups(plan, "pool") or "-"
    yield "pipelines", _of_groups(plan, "pipelines") or "-"
    yield "sequences", _of_groups(plan, "sequences") or "-"


def _of_groups(plan: Plan, axis: str) -> str:
    """What each group of alike pipelines has, told once where all have the same; empty where a plan has no groups."""
    texts = [_of_group(group, axis) for group in plan.parallelism.groups]
    return texts[0] if len(set(texts)) == 1 and axis not in _COUNTED else "; ".join(texts)


def _of_group(group: Group, axis: str) -> str:
    if axis in ("micro", "sequences"):
        return f"{getattr(group, axis):,}"
    if axis == "pipelines":
        return str(group.copies * group.width)
    if axis == "pp":
        return str(len(group.stages))
    values = [stage.pool + 1 if axis == "pool" else getattr(stage, axis) for stage in group.stages]
    runs = [(len(list(same)), value) for value, same in groupby(values)]
    if len(runs) == 1 and axis != "layers":
        return str(values[0])
    return ", ".join(f"{many} x {value}" if many > 1 else str(value) for many, value in runs)
