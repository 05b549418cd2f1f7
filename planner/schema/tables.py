"""Documents as tables and in a line: what notebooks show. SI units, named behind each column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from planner.base.units import (
    format_bytes,
    format_count,
    format_percent,
    format_power,
    format_risk,
    format_seconds,
    format_usd,
)

if TYPE_CHECKING:
    from planner.schema.images import ImagePlan
    from planner.schema.listings import FittingTraining
    from planner.schema.plan import FrontPoint, Plan
    from planner.schema.procurement import Alternative
    from planner.schema.record import Document
    from planner.schema.study import StudyResult, Trial

SUFFIX = {
    "bytes": "bytes",
    "bandwidth": "bytes_per_s",
    "compute": "flops_per_s",
    "time": "s",
    "power": "w",
    "money": "usd",
    "price per hour": "usd_per_hour",
    "energy price": "usd_per_kwh",
    "carbon intensity": "g_per_kwh",
}
"""What stands behind a column, by the dimension or the unit of its values."""


def counted(count: int, what: str, best: Sequence[Document]) -> str:
    """``5 plans; the best: ...``."""
    first = "".join(f"; the best: {each.title()}" for each in best)
    return f"{count:,} {what}{'' if count == 1 else 's'}{first}"


def plan_title(plan: Plan) -> str:
    """``llama3-8b on 2 x dgx-h100: TP1 PP1 CP1 DP16, 9.61 s a step, 60.2 GiB``."""
    cut, found = plan.parallelism, plan.prediction
    degrees = " ".join(f"{axis.upper()}{getattr(cut, axis)}" for axis in ("tp", "pp", "cp", "dp"))
    held = format_bytes(found.memory.total_bytes)
    if found.memory.total_bytes > found.memory.capacity_bytes:
        held += f", does not fit into {format_bytes(found.memory.capacity_bytes)}"
    return f"{plan.workload.model} on {_machines(plan)}: {degrees}, {format_seconds(found.step_time_s)} a step, {held}"


def _machines(plan: Plan) -> str:
    return " + ".join(f"{pool.count} x {pool.node}" for pool in plan.cluster.pools)


def _changed(plan: Plan) -> Iterator[str]:
    """``memory_bandwidth 4,020 GB/s``: figures of accelerators that are not the catalog's."""
    for pool in plan.cluster.pools:
        yield from (f"{each.figure} {each.text(each.used)}" for each in pool.changed or ())


CAUSES = (
    *("matrix", "attention", "vector", "launch", "recompute", "embedding", "tower", "logits"),
    *("tp", "cp", "ep", "p2p", "dp", "bubble", "optimizer", "jitter", "overhead"),
)
"""Of a step's time, as :mod:`planner.cost.evaluate` names them; a document has those that are above 0."""


def fit_row(each: FittingTraining) -> dict[str, Any]:
    """What fits on what, how long it takes and what it costs."""
    return {
        "model": each.model,
        "parameters": each.parameters,
        "seq_tokens": each.sequence,
        "batch_sequences": each.batch,
        "accelerator": each.accelerator,
        "accelerators": each.accelerators,
        "node": each.node,
        "memory_bytes": each.memory_bytes,
        "memory_capacity_bytes": each.capacity_bytes,
        "oom_chance": each.oom_chance,
        "step_time_s": each.step_time_s,
        "tokens_per_s": each.tokens_per_s,
        "tokens": each.tokens,
        "days": each.hours / 24,
        "usd": each.usd,
        "best": ", ".join(each.best),
    }


def front_row(point: FrontPoint, per_node: int | None) -> dict[str, Any]:
    """A point of the front: the degrees that its label names, the others 1; its nodes of `per_node` accelerators."""
    stated = {axis.lower(): int(count) for axis, count in re.findall(r"\b([A-Z]{2})(\d+)", point.label)}
    return {
        "nodes": point.accelerators // per_node if per_node else None,
        "accelerators": point.accelerators,
        **{axis: stated.get(axis, 1) for axis in ("tp", "pp", "cp", "ep", "dp")},
        "recompute": point.label.partition("recompute ")[2] or "none",
        "step_time_s": point.step_time_s,
        "days": point.days,
        "usd": point.usd_total,
        "memory_bytes": point.memory_bytes,
    }


def plan_row(plan: Plan) -> dict[str, Any]:
    """How a plan is cut, what is predicted of it and what it costs; its step's parts as ``step_CAUSE_s``."""
    cut, found, money = plan.parallelism, plan.prediction, plan.money
    interval = found.intervals.get("step_time_s")
    return {
        "rank": plan.rank,
        "model": plan.workload.model,
        "machines": _machines(plan),
        "nodes": sum(pool.count for pool in plan.cluster.pools),
        "accelerator": " + ".join(dict.fromkeys(pool.accelerator for pool in plan.cluster.pools)),
        "accelerators": plan.cluster.accelerators,
        "changed": "; ".join(_changed(plan)),
        "precision": plan.precision,
        **{axis: getattr(cut, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")},
        "zero": cut.zero_stage,
        "micro_sequences": plan.batch.micro,
        "batch_sequences": plan.batch.global_,
        "seq_tokens": plan.workload.sequence,
        "recompute": plan.recompute.policy,
        "step_time_s": found.step_time_s,
        "step_time_low_s": interval.low if interval else None,
        "step_time_high_s": interval.high if interval else None,
        "measured_runs": plan.measured.runs if plan.measured else None,
        "tokens_per_s": found.tokens_per_s,
        "mfu": found.mfu,
        "memory_bytes": found.memory.total_bytes,
        "memory_capacity_bytes": found.memory.capacity_bytes,
        "oom_chance": found.memory.oom_chance,
        "days": money.days,
        "tokens": plan.workload.tokens,
        "usd": money.usd_total,
        "energy_j": plan.energy.energy_j,
        "carbon_kg": plan.energy.carbon_kg,
        **{f"step_{cause}_s": s for cause, s in (dict.fromkeys(CAUSES, 0.0) | found.breakdown).items()},
    }


PLAN_SHOWN = (
    *("rank", "machines", "precision", "tp", "pp", "vpp", "cp", "ep", "dp", "micro_sequences", "zero", "recompute"),
    *("step_time_s", "tokens_per_s", "mfu", "memory_bytes", "days", "usd"),
)
"""Columns of a plan in a notebook."""


def alternative_title(found: Alternative) -> str:
    """What it is, and what it costs."""
    return f"{found.what}, {format_usd(found.cost.total_usd)}, done on day {found.done_day:.1f}"


def alternative_row(found: Alternative) -> dict[str, Any]:
    """What an alternative is, costs and takes."""
    cost = found.cost
    return {
        "rank": found.rank,
        "what": found.what,
        "total_usd": cost.total_usd,
        "cash_usd": cost.cash_usd,
        "capital_usd": cost.capital_usd,
        "done_day": found.done_day,
        "power_w": found.power_w,
        "racks": found.racks,
        "carbon_kg": found.carbon_kg,
        "tokens_per_usd": found.tokens_per_usd,
    }


def study_title(found: StudyResult) -> str:
    """How many points were tried, and the best."""
    best = "".join(f"; the best: {point.title()}" for point in found.best[:1])
    return f"{found.question.name}: {found.search.tried:,} points tried, {found.search.feasible:,} feasible{best}"


def axes(values: Mapping[str, float | int | str]) -> str:
    """``accelerator.memory 8.6e+10, node.accelerators 8``."""
    shown = {axis: f"{value:.4g}" if isinstance(value, float) else value for axis, value in values.items()}
    return ", ".join(f"{axis} {value}" for axis, value in shown.items())


def trial_rows(found: StudyResult, trials: Iterable[Trial], measured: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each of these trials: its axes, its objectives and measures; `measured` has the units of these."""
    units = {axis.path: axis.unit for axis in found.question.axes} | dict(measured)
    rows = []
    for trial in trials:
        figures = {_column(name, units): v for name, v in {**trial.axes, **trial.measures, **trial.objectives}.items()}
        rows.append({"number": trial.number, "feasible": trial.feasible, **figures, "why": trial.why})
    return rows


def _column(name: str, units: dict[str, str]) -> str:
    """A name with its unit behind it."""
    unit = units.get(name, "")
    suffix = SUFFIX.get(unit, unit.lower().replace("/", "_per_"))
    return "_".join(filter(None, (name.replace("-", "_"), suffix)))


def images_title(found: ImagePlan) -> str:
    """What is trained on what, and how fast."""
    pools = " + ".join(f"{pool.count} x {pool.node}" for pool in found.pools)
    return f"{found.model} on {pools}: {found.batch:,} images, {format_seconds(found.step_time_s)} a step"


# ---- HTML ------------------------------------------------------------------------------------------------------------

MOST_SHOWN = 20
"""Rows of a table in a notebook; a frame has all."""
_FORMATS: dict[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "per_s": lambda value: f"{format_count(value)}/s",
    "s": format_seconds,
    "usd": format_usd,
    "mfu": format_percent,
    "chance": format_risk,
    "w": format_power,
}
"""How a column's figures are read by people, by how its name ends."""


def as_html(rows: Sequence[Mapping[str, Any]], shown: Sequence[str] = ()) -> str:
    """A table, of the columns that are `shown` (all) those that are not empty."""
    every = shown or list(dict.fromkeys(key for row in rows for key in row))
    columns = [column for column in every if any(row.get(column) not in (None, "") for row in rows)]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = ["".join(f"<td>{escape(_cell(c, row.get(c)))}</td>" for c in columns) for row in rows[:MOST_SHOWN]]
    more = f"<p>{len(rows) - MOST_SHOWN:,} more rows</p>" if len(rows) > MOST_SHOWN else ""
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{more}"


def _cell(column: str, value: object) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    for ending, written in _FORMATS.items():
        if column == ending or column.endswith(f"_{ending}"):
            return written(value)
    return f"{value:,.4g}"
