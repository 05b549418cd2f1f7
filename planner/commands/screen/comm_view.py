"""How ``clusterwright comm`` puts calls, tables and choices on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.units import format_bytes, format_percent, format_seconds
from planner.commands.screen import render

if TYPE_CHECKING:
    from planner.comm.back_end_choice import Chosen
    from planner.comm.tables.measured_times import CollectiveMethod, TableCell, TimesTable
    from planner.cost.calls import Call
    from planner.schema.plan import Plan


def listing(plan: Plan, calls: Sequence[Call]) -> dict[str, object]:
    """The calls as a document."""
    return {
        "kind": "communication",
        "schema_version": 1,
        "step_time_s": plan.prediction.step_time_s,
        "exposed_s": sums(calls),
        "calls": [{**_call_document(call), **_chosen(plan, call)} for call in calls],
    }


def _call_document(call: Call) -> dict[str, object]:
    """A call's figures; pools only where a plan uses several."""
    figures = asdict(call)
    return figures if call.pools else {name: value for name, value in figures.items() if name != "pools"}


def sums(calls: Sequence[Call]) -> dict[str, float]:
    """Exposed seconds by cause, of what the step waits for."""
    paced = _pacing(calls)
    causes = dict.fromkeys(call.cause for call in paced)
    return {cause: sum(call.exposed_s for call in paced if call.cause == cause) for cause in causes}


def _pacing(calls: Sequence[Call]) -> list[Call]:
    """Those of the stage that sets the pace: all of a plan on one pool."""
    return [call for call in calls if _paces(call)]


def _paces(call: Call) -> bool:
    return bool(getattr(call, "paces", True))


def _chosen(plan: Plan, call: Call) -> dict[str, str]:
    """Choice and runner-up by the plan's rules; empty where it has none."""
    from planner.comm.routing.rules import rule_of, spelt

    rule = rule_of(plan.communication, call.op, call.group, call.ranks, call.bytes, call.pools)
    chosen = plan.communication_choice.calls if plan.communication_choice else ()
    mine = (call.op, call.group, call.ranks, call.bytes, call.pools)
    same = [t for t in chosen if (t.op, t.group, t.ranks, t.bytes, t.pools or ()) == mine]
    return {
        "choice": spelt(rule.backend, rule.algorithm, rule.protocol) if rule else "",
        "runner_up": same[0].runner_up if same else "",
    }


def show_calls(plan: Plan, calls: Sequence[Call], file: Path, cluster: Sequence[Path] = ()) -> None:
    """A table of calls, and what they are of the step."""
    if not calls:
        render.text("This plan uses one accelerator and makes no collective calls.")
        return
    shown = [call for call in calls if getattr(call, "leads", True)]
    rows = [_cells(plan, call) for call in sorted(shown, key=lambda c: (not _paces(c), -c.exposed_s))]
    left = set() if any(call.pools for call in calls) else {"pools", "pipelines", "critical"}
    left |= {"pipelines"} if len(plan.parallelism.groups) < 2 else set()
    left |= {"choice", "runner-up"} if all(row["choice"] == "-" for row in rows) else set()
    heads = [name for name in rows[0] if name not in left]
    render.table(
        heads,
        [[row[name] for name in heads] for row in rows],
        align="".join("r" if name in ("ranks", "bytes", "calls", "alone", "exposed") else "l" for name in heads),
        priority=[name for name in ("term", "runner-up", "over", "ranks", "pipelines", "calls") if name in heads],
    )
    render.text()
    step = plan.prediction.step_time_s
    total = sum(call.exposed_s for call in _pacing(calls))
    parts = ", ".join(f"{cause} {format_seconds(s)}" for cause, s in sums(calls).items() if s > 0)
    render.labelled(
        "Exposed", f"{format_seconds(total)} of {format_seconds(step)} ({format_percent(total / step)}): {parts}"
    )
    alone = sum(call.alone_s for call in _pacing(calls))
    render.labelled("Alone", f"{format_seconds(alone)} if no call overlapped with anything")
    if plan.parallelism.groups:
        _show_pools(plan)
        render.labelled("Shown", 'the slowest stage on each pool; only calls marked "critical" lengthen the step')
    choice = plan.communication_choice
    if choice is not None and choice.modelled:
        render.labelled("Choice", "the algorithms that the model of NCCL predicts to be fastest; not measured")
    if choice is None or choice.modelled:
        render.labelled("Next", f"clusterwright comm choose {file}{_on(cluster)} --table TABLE.csv -o FILE")


def _cells(plan: Plan, call: Call) -> dict[str, str]:
    """A row of the table of calls, by column."""
    chosen = _chosen(plan, call)
    return {
        "call": call.op,
        "group": call.group,
        "pools": "-".join(str(i + 1) for i in call.pools),
        "pipelines": str(getattr(call, "pipelines", 0) + 1),
        "ranks": f"{call.ranks:,}",
        "bytes": format_bytes(call.bytes),
        "calls": f"{call.count:,.0f}" if call.count >= 1 else f"{call.count:.2g}",
        "over": call.where,
        "alone": format_seconds(call.alone_s),
        "exposed": format_seconds(call.exposed_s) if call.exposed_s > 0 else "0 s",
        "critical": "yes" if _paces(call) else "",
        "term": call.cause,
        "choice": chosen["choice"] or "-",
        "runner-up": chosen["runner_up"] or "-",
    }


def _show_pools(plan: Plan) -> None:
    """What the numbers of pools and pipelines mean."""
    from planner.schema.plan_machines import pool_names

    counts = [pool.count for pool in plan.cluster.pools]
    named = enumerate(zip(counts, pool_names(plan.cluster), strict=True), 1)
    render.labelled("Pools", "; ".join(f"{i}: {count:,} x {name}" for i, (count, name) in named))
    groups = []
    for number, g in enumerate(plan.parallelism.groups, 1):
        stages = [s.pool for s in g.stages]
        on = " + ".join(f"{stages.count(pool)} on pool {pool + 1}" for pool in dict.fromkeys(stages))
        groups.append(
            f"{number}: {g.copies * g.width:,} of {len(stages)} {'stage' if len(stages) == 1 else 'stages'}, {on}"
        )
    render.labelled("Pipelines", "; ".join(groups))


# ---- tables ----------------------------------------------------------------------------------------------------------


def table_document(found: TimesTable) -> dict[str, object]:
    """A table's cells as a document."""
    return {
        "kind": "communication-table",
        "schema_version": 1,
        "cells": [
            {
                "op": op,
                "ranks": ranks,
                "bytes": size,
                **asdict(who),
                "seconds": cell.seconds,
                "spread": cell.spread,
                "rounds": len(cell.rounds),
            }
            for (op, ranks, size), each in found.cells.items()
            for who, cell in each.items()
        ],
    }


def show_table(found: TimesTable, file: Path) -> None:
    """Times by call, a column for each candidate; the fastest, where the measurements can distinguish it."""
    from planner.comm.routing.rules import spelt

    names = [spelt(who.backend, who.algorithm, who.protocol) for who in found.candidates]
    rows = []
    for (op, ranks, size), each in found.cells.items():
        times = [_time(each.get(who)) for who in found.candidates]
        rows.append([op, f"{ranks:,}", format_bytes(size), *times, _fastest(each)])
    render.table(("call", "ranks", "bytes", *names, "fastest"), rows, align="lrr" + "r" * len(names) + "l")
    render.text()
    render.labelled(
        "Rounds", f"{len(found.rounds)}; trimmed means, ± half of the 95 % interval (noisy: more than the mean itself)"
    )
    render.labelled("Next", f"clusterwright comm choose PLAN.json --table {file} -o FILE")


def _time(cell: TableCell | None) -> str:
    if cell is None:
        return "-"
    if cell.spread is None:
        return format_seconds(cell.seconds)
    return f"{format_seconds(cell.seconds)} {f'±{100 * cell.spread:.0f} %' if cell.spread <= 1 else 'noisy'}"


def _fastest(each: Mapping[CollectiveMethod, TableCell]) -> str:
    """The fastest, if its interval does not overlap with the next one's."""
    ranked = sorted(each.items(), key=lambda item: item[1].seconds)
    if len(ranked) < 2:
        return "-"
    (who, first), (_, second) = ranked[0], ranked[1]
    high, low = first.seconds * (1 + (first.spread or 0.0)), second.seconds * (1 - (second.spread or 0.0))
    return who.backend if high < low else "not distinguishable"


# ---- choices ---------------------------------------------------------------------------------------------------------


def _on(cluster: Sequence[Path]) -> str:
    """The flag that the next command takes again."""
    return "".join(f" --cluster {each}" for each in cluster)


def show_choice(plan: Plan, found: Chosen, output: Path | None, cluster: Sequence[Path] = ()) -> None:
    """What each call uses, and what that gains over the best single back end."""
    choice = plan.communication_choice
    assert choice is not None
    rows = [
        [
            call.op,
            call.group,
            *(["-".join(str(i + 1) for i in call.pools)] if call.pools else []),
            f"{call.ranks:,}",
            format_bytes(call.bytes),
            call.choice,
            format_seconds(call.alone_s),
            format_seconds(call.base_s),
            format_seconds(call.saved_s) if call.saved_s else "0 s",
            "yes" if call.extrapolated else "",
            call.runner_up or "-",
        ]
        for call in sorted(choice.calls, key=lambda call: -call.saved_s)
    ]
    pooled = any(call.pools for call in choice.calls)
    heads = (
        "call",
        "group",
        *(["pools"] if pooled else []),
        "ranks",
        "bytes",
        "choice",
        "per call",
        f"by {choice.base}",
        "saves",
        "extrapolated",
        "runner-up",
    )
    align = "lllrrlrrrll" if pooled else "llrrlrrrll"
    render.table(heads, rows, align=align, priority=["runner-up", "extrapolated", "ranks", f"by {choice.base}"])
    render.text()
    step = plan.prediction.step_time_s
    gain = format_percent(step / choice.step_time_s - 1.0, 2)
    render.labelled(
        "Step time",
        f"{format_seconds(step)} with {choice.base} alone, {format_seconds(choice.step_time_s)} with this choice: "
        f"{format_seconds(choice.saved_s) if choice.saved_s > 0 else '0 s'} saved ({gain})",
    )
    if pooled:
        _show_pools(plan)
    render.labelled(
        "Back ends", f"{', '.join(choice.live)} (at most {choice.most}); gap {format_percent(choice.gap, 2)}"
    )
    for label, line in _trust(plan, found):
        render.labelled(label, line)
    if output is None:
        render.labelled("Next", "-o FILE saves the plan with its rules")
    else:
        render.labelled("Next", f"clusterwright comm show {output}{_on(cluster)}")


def _trust(plan: Plan, found: Chosen) -> list[tuple[str, str]]:
    """Label and line of everything that says how reliable the gain is."""
    choice = plan.communication_choice
    assert choice is not None
    lines = []
    if found.fell_back:
        worst = format_percent(found.held_back or 0.0, 0)
        lines.append(
            (
                "Choice",
                f"{choice.base} for every call: on held-out rounds a mixture took up to {worst} of its time (95 %)",
            )
        )
    elif found.off_critical_path:
        lines.append(("Choice", f"{choice.base} for every call: a mixture saves time only off the critical path"))
    elif choice.modelled:
        lines.append(
            ("Confidence", "not measured: times are the plan's, with the algorithms that a model of NCCL prefers")
        )
    elif found.held_back is None:
        lines.append(("Confidence", "too few rounds to validate the choice on held-out rounds (comm tune --rounds 5)"))
    elif choice.saved_s > 0:
        worst = format_percent(found.held_back, 0)
        lines.append(("Confidence", f"on held-out rounds at most {worst} of {choice.base}'s time (95 %)"))
    beyond = sum(call.extrapolated for call in choice.calls)
    if beyond:
        total = len(choice.calls)
        lines.append(
            ("Assumes", f"{beyond} of {total} calls are outside the table: its nearest ranks and sizes are used")
        )
    if not choice.modelled:
        lines.append(
            ("Assumes", "exposed time shrinks with a call's time; the plan's own times are the base back end's")
        )
    return lines
