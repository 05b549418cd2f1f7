"""A study on one screen: what to build, what it achieves, where the next dollar goes, what is assumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.api.differences import leaves
from planner.base.units import (
    UNITS,
    format_bytes,
    format_count,
    format_many,
    format_percent,
    format_power,
    format_seconds,
    format_usd,
)
from planner.commands.screen import render, typeset
from planner.commands.screen.hand_over import assumed, hand_over
from planner.report import per_dollar, quantities
from planner.schema.rl import PLACED, layout, replicas
from planner.study.question.study import LARGER_IS_BETTER

if TYPE_CHECKING:
    from planner.schema.study import Axis, DesignPoint, StudyResult

_FRONT = 8
"""Points of a front on the screen."""
_TELLING = 0.05
"""Share of the variance from which the interaction of two axes is reported: below it, it is noise of the trials."""
_REASONS = 4
"""Reasons of points that are not feasible, on the screen."""
_WITHOUT_LEVERS = "plans are without levers (CUDA graphs, kernels, offload, modules recomputed by name)"
"""What `plan` tries beyond its base space, and a point's plans do not."""


def deliver(
    found: StudyResult,
    *,
    study: Path,
    as_json: bool,
    output: Path | None,
    journal: str | None = None,
    verbose: bool = False,
) -> None:
    """Prints the report or the document, and writes the document where asked; verbose: with every assumption."""
    more = (
        f"{journal} holds the trials: --resume --trials {2 * found.search.tried} continues the study" if journal else ""
    )
    points = "every point that was evaluated" if found.search.bounded_away else "every point"
    what = f"{points}, the plans of the best, and all sweeps" if found.sensitivity else f"{points} and the best's plans"
    written = f"{output} holds {what}" if output else f"-o answer.json saves {what}"
    joined = found.search.of_shards and not found.search.exact
    merged = f"clusterwright design merge {study} shard-*.json merges the documents of all shards" if joined else ""
    after = "; ".join(part for part in (more, written, merged) if part)
    hand_over(found, partial(show, verbose=verbose), as_json=as_json, output=output, after=after)


def show(found: StudyResult, *, verbose: bool = False) -> None:
    """The whole report."""
    _headline(found)
    render.text()
    if len(found.question.objectives) > 1:
        _front(found)
    else:
        _ranking(found)
    render.text()
    _workloads(found)
    render.text()
    if found.sensitivity:
        _sensitivity(found)
        render.text()
        _per_dollar(found)
        _million(found)
    _search(found)
    assumed(found.assumptions, verbose)


def _units(found: StudyResult) -> dict[str, str]:
    """Axis -> the unit that its first value was asked in, else its dimension."""
    asked = [*leaves(found.asked.study.get("axes", {}))] if found.asked else []
    return {axis.path: next(_units_of(axis, asked), axis.unit) for axis in found.question.axes}


def _units_of(axis: Axis, asked: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Units of the leaves of the file's table of axes that are values of this axis; its name may be shortened there."""
    names = (f"{axis.path}.", f"{axis.path.rpartition('.')[2]}.")
    units = (str(value).lstrip("0123456789.,_e ") for path, value in asked if path.startswith(names))
    return (unit for unit in units if unit in UNITS.get(axis.unit, {}))


def _short(path: str, paths: list[str]) -> str:
    """The shortest name of an axis that no other axis shares."""
    last = path.rpartition(".")[2] if not path.endswith(".bandwidth") else path.split(".", 1)[1].replace(".", "_")
    last = path.split(".", 1)[1] if path.startswith("accelerator.peak.") else last
    clash = [p for p in paths if p != path and p.rpartition(".")[2] == last]
    return (path if clash else last).replace("_", " ").replace(".", " ")


def _named(point: DesignPoint, found: StudyResult) -> str:
    units, paths = _units(found), list(point.axes)
    return ", ".join(
        f"{_short(path, paths)} {quantities.axis(value, units[path])}" for path, value in point.axes.items()
    )


def _headline(found: StudyResult) -> None:
    first, best = found.question.objectives[0], found.best[0]
    values = ", ".join(quantities.objective(name, value) for name, value in best.objectives.items())
    hourly = "" if best.usd_per_hour is None else f" at {format_usd(best.usd_per_hour)}/h"
    paid = hourly if best.capital_usd is None else f" for {format_usd(best.capital_usd)}"
    base = found.question.base
    size = best.plan[0].cluster.accelerators if best.plan else best.steps()[0].on_accelerators()
    render.text(
        f"{found.question.name}: {values}{paid}, {size:,} accelerators "
        f"({base['node']}, varied along {len(best.axes)} axes)"
    )
    what = "the best" if len(found.question.objectives) == 1 else f"the best in {first}"
    if warning := per_dollar.unpriced(found):
        render.labelled("Warning", warning)
    render.labelled("Build", _named(best, found))
    render.labelled("", f"{what} of {_among(found)}; the best plans at every point are exact")
    paths = [axis.path for axis in found.question.axes]
    if edges := per_dollar.edges(found, {path: _short(path, paths) for path in paths}):
        render.labelled("", edges)


def _among(found: StudyResult) -> str:
    """The points of which the best is the best."""
    s = found.search
    if not s.exact:
        return f"{s.tried:,} points tried of {s.outer_points:,} ({s.method})"
    how = "enumerated exactly" if s.evaluated is None else "proven by bounds"
    others = " (the others: of those evaluated)" if s.evaluated is not None and len(found.best) > 1 else ""
    return f"all {s.outer_points:,} points, {how}{others}"


def _ranking(found: StudyResult) -> None:
    units = _units(found)
    paths = [axis.path for axis in found.question.axes]
    rows = [
        [
            n,
            *(quantities.objective(name, value) for name, value in point.objectives.items()),
            None if point.capital_usd is None else format_usd(point.capital_usd),
            None if point.power_w is None else format_power(point.power_w),
            *(quantities.axis(point.axes[path], units[path]) for path in paths),
        ]
        for n, point in enumerate(found.best, 1)
    ]
    headers = ["#", *found.question.objectives, "capital", "power", *(_short(path, paths) for path in paths)]
    priority = ["power", *([] if found.best[0].capital_usd is not None else ["capital"])]
    render.table(headers, rows, align="r" * len(headers), priority=priority)


def _front(found: StudyResult) -> None:
    units = _units(found)
    paths = [axis.path for axis in found.question.axes]
    shown = _thin(list(found.pareto), _FRONT)
    rows = [
        [
            *(quantities.objective(name, value) for name, value in point.objectives.items()),
            None if point.power_w is None else format_power(point.power_w),
            *(quantities.axis(point.axes[path], units[path]) for path in paths),
            quantities.degrees(point.plan[0].parallelism) if point.plan else PLACED[point.steps()[0].placement],
        ]
        for point in shown
    ]
    headers = [*found.question.objectives, "power", *(_short(path, paths) for path in paths), "plan"]
    align = "r" * (len(headers) - 1) + "l"
    render.table(headers, rows, align=align, priority=["plan", "power"])
    volume = format_percent(found.hypervolume or 0.0)
    left = f", {len(shown)} shown" if len(shown) < len(found.pareto) else ""
    render.labelled(
        "Pareto front", f"{len(found.pareto)} non-dominated points{left}; hypervolume {volume} of their bounding box"
    )


def _thin(points: list[Any], most: int) -> list[Any]:
    return points if len(points) <= most else [points[round(n * (len(points) - 1) / (most - 1))] for n in range(most)]


def _workloads(found: StudyResult) -> None:
    best = found.best[0]
    rows = [
        [
            plan.workload.name,
            f"{job['weight']:g}",
            format_seconds(plan.prediction.step_time_s),
            format_count(plan.prediction.tokens_per_s),
            format_percent(plan.prediction.mfu),
            format_bytes(plan.prediction.memory.total_bytes),
            quantities.degrees(plan.parallelism),
            plan.recompute.policy,
        ]
        for plan, job in zip(best.plan, (job for job in found.question.workloads if "step" not in job), strict=True)
    ]
    stepped = [job for job in found.question.workloads if "step" in job]
    for step, job in zip(best.steps(), stepped, strict=True):
        named = f"{job['step']['task']} of {job['model']}"
        memory = format_bytes(step.trainer.memory_bytes)
        took = (format_seconds(step.step_s), format_count(step.tokens_per_s), "-", memory)
        plan_text = f"{PLACED[step.placement]}: {layout(step)}; rollout {replicas(step)}"
        rows.append([named, f"{job['weight']:g}", *took, plan_text, "-"])
    headers = ["workload", "weight", "step", "tokens/s", "MFU", "memory", "plan", "recompute"]
    render.table(headers, rows, align="lrrrrrll", priority=["recompute", "weight", "memory"])


def _sensitivity(found: StudyResult) -> None:
    first = found.question.objectives[0]
    paths = [each.axis for each in found.sensitivity]
    ordered = sorted(found.sensitivity, key=lambda each: -abs(each.elasticity or 0.0))
    rows = [
        [
            _short(each.axis, paths),
            "-" if each.elasticity is None else f"{each.elasticity:+.2f} %",
            typeset.spark([swept.objectives.get(first) for swept in each.sweep]),
            _ends(each, found),
            f"{format_percent(found.importance[each.axis], 0)}" if each.axis in found.importance else None,
        ]
        for each in ordered
    ]
    headers = ["+1 % of", first, "over its range", "from .. to", "importance"]
    render.table(headers, rows, align="lrlll", priority=["from .. to"])


def _ends(each: Any, found: StudyResult) -> str:
    unit = _units(found)[each.axis]
    return f"{quantities.axis(each.sweep[0].value, unit)} .. {quantities.axis(each.sweep[-1].value, unit)}"


def _per_dollar(answer: StudyResult) -> None:
    """Which figure the next dollar goes into, from the base up and at the best point."""
    paths = [axis.path for axis in answer.question.axes]
    listed = [*per_dollar.tables(answer, {path: _short(path, paths) for path in paths}, _units(answer))]
    for headers, rows in listed:
        render.table(headers, rows, align="llrrrrl", priority=["one figure more"])
        render.text()
    if any(row[-1] for table in listed for row in table.rows):
        render.text(f"  {per_dollar.PAYS}")
        render.text()


def _million(found: StudyResult) -> None:
    """What a million more brings on one axis; nothing where it improves nothing."""
    units, paths = _units(found), [each.axis for each in found.sensitivity]
    first = found.question.objectives[0]
    sign = -1.0 if first in LARGER_IS_BETTER else 1.0
    gains = [
        f"{_short(each.axis, paths)} to {quantities.axis(each.value, units[each.axis])}: "
        f"{first} {each.changes[first]:+.2%}"
        for each in found.next_million
        if sign * each.changes[first] < 0
    ]
    render.labelled("Next $1M", *(["; ".join(gains[:4])] if gains else []))


def _search(found: StudyResult) -> None:
    s = found.search
    took = quantities.took(found.meta, "wall_s")
    if s.exact and s.evaluated is not None:
        by = "" if s.method == "bounded" else f"{s.tried:,} trials by {s.method}; "
        how = f"{by}{s.outer_points:,} points, {s.evaluated:,} evaluated, all others bounded away"
        how += f": {_proven(found)}{took}"
    elif s.exact:
        how = f"all {s.outer_points:,} points enumerated, {s.feasible:,} feasible: {_proven(found)}{took}"
    elif s.of_shards:
        named = ", ".join(map(str, s.shards))
        how = f"shard {named} of {s.of_shards}: {s.tried:,} of {s.outer_points:,} points, {s.feasible:,} feasible{took}"
    else:
        how = f"{s.tried:,} trials by {s.method} (seed {s.seed}) in {s.outer_points:,} points"
        how += f", {s.feasible:,} feasible{took}"
    render.labelled("Search", how, *_unproven(found), _WITHOUT_LEVERS)
    render.labelled("Not feasible", *_infeasible(found))
    if found.importance:
        render.labelled("Importance", f"{found.importance_method}{_interaction(found)}")


def _infeasible(answer: StudyResult) -> Iterator[str]:
    """Why points are not feasible, the commonest reason first: what stands in the way, or the limit that is broken."""
    reasons = Counter(
        trial.why or next((name for name, share in trial.violations.items() if share > 0), "no plan")
        for trial in answer.trials
        if not trial.feasible
    )
    for reason, count in reasons.most_common(_REASONS):
        yield f"{format_many(count, 'point')}: {reason}"
    if len(reasons) > _REASONS:
        yield f"{len(reasons) - _REASONS:,} further reasons stand at their points (why, in JSON)"


def _proven(found: StudyResult) -> str:
    what = "this is the optimum" if len(found.question.objectives) == 1 else "this is the whole front"
    return f"{what} where figures cost nothing" if per_dollar.unpriced(found) else what


def _unproven(found: StudyResult) -> Iterator[str]:
    """How far the best may be from the optimum, and what would tell."""
    s = found.search
    if s.exact or s.of_shards:
        return
    if s.regret_at_most is not None:
        closer = "more --time, no --trials: closer"
        yield f"the optimum is at most {format_percent(s.regret_at_most)} better, by bounds ({closer})"
    if s.enumeration_s is not None:
        yield f"an enumeration would take about {format_seconds(s.enumeration_s)} of a core (--time)"


def _interaction(found: StudyResult) -> str:
    """The strongest interaction of two axes, if it reaches the threshold."""
    if not found.interactions or found.interactions[0].share < _TELLING:
        return ""
    first, paths = found.interactions[0], list(found.importance)
    names = " and ".join(_short(path, paths) for path in first.axes)
    return f"; {names} interact: {format_percent(first.share, 0)} more"
