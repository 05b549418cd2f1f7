"""Two plans side by side: where they differ, what the second gains, and whether a prediction can tell them apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from planner.axes.table import CP, DEGREES, EP, IN_ANSWERS, MICRO, PP, RECOMPUTE, SCHEDULE, TP
from planner.schema.plan import ChangedFigure, Group, Plan
from planner.schema.reports import Comparison

TOKENS = "tokens to train on"

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

    Rates are compared in tokens per second, so that plans with different batches compare: ``r = t2 / t1``. An interval
    of step times t, as rates: ``[r t / high, r t / low]``; two that overlap cannot be told apart. Time and price are
    those of the first's tokens: where the second trains on others, its own in proportion.
    """
    a, b = _rates(first), _rates(second)
    questions = tuple(_questions(first, second))
    share = first.workload.tokens / second.workload.tokens if TOKENS in questions else 1.0
    paid = (first.money.usd_total, second.money.usd_total)
    return Comparison(
        questions=questions,
        differing=tuple((axis, a, b) for axis, a, b in _axes(first, second) if a != b),
        step=second.prediction.step_time_s / first.prediction.step_time_s,
        days=second.money.days * share - first.money.days,
        usd=None if paid[0] is None or paid[1] is None else paid[1] * share - paid[0],
        tokens=second.prediction.tokens_per_s / first.prediction.tokens_per_s,
        distinguishable=a[1] < b[0] or b[1] < a[0],
        plans=(first, second),
    )


def _rates(plan: Plan) -> tuple[float, float]:
    """The 80 % interval of tokens per second; the prediction alone where a plan states none."""
    rate, time = plan.prediction.tokens_per_s, plan.prediction.step_time_s
    interval = plan.prediction.intervals.get("step_time_s")
    return (rate, rate) if interval is None else (rate * time / interval.high, rate * time / interval.low)


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
