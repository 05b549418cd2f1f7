"""Plans over several pools on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.base.units import format_bytes, format_percent, format_usd
from planner.commands.screen import render
from planner.report import recommendation
from planner.report.quantities import days, seconds, took
from planner.schema.plan import BeyondLaunchers, Group, Plan, PlanSet
from planner.schema.plan_machines import nodes_used


def pools(plan: Plan) -> None:
    """The pools that a plan uses."""
    for i, pool in enumerate(plan.cluster.pools):
        of = f" of {pool.offered:,}" if pool.offered is not None and pool.offered > pool.count else ""
        nics = (
            f", {pool.nics_per_node} x {(pool.nic_bytes_per_s or 0) * 8 / 1e9:g} Gbit/s" if pool.nics_per_node else ""
        )
        zone = f" in {pool.zone}" if pool.zone else ""
        total = pool.count * pool.accelerators_per_node
        render.text(f"{_letter(i)}  {total:,} x {pool.accelerator} in {pool.count:,}{of} x {pool.node}{zone}{nics}")


def links(plan: Plan) -> list[str]:
    """What joins the pools."""
    return [
        f"{'-'.join(map(_letter, link.pools))}: {link.bytes_per_s * 8 / 1e9:g} Gbit/s per node, {link.basis}"
        for link in plan.cluster.links
    ]


def _letter(index: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26]


def ranking(plans: Sequence[Plan], gain: str, against: Mapping[int, str]) -> None:
    """One line a plan: where it stands, how it is cut, what it takes, and how much more than the first, by rank."""
    rows, first = [], plans[0]
    for p in plans:
        money, found = p.money, p.prediction
        used = " + ".join(nodes_used(p.cluster))
        memory = f"{100 * found.memory.total_bytes / found.memory.capacity_bytes:.0f} %"
        step = seconds(found.step_time_s, first.prediction.step_time_s)
        cost = "-" if money.usd_total is None else format_usd(money.usd_total)
        rows.append([
            str(p.rank), used, _cut(p), p.precision, step, format_percent(found.mfu), memory,
            days(money.days, first.money.days), cost, against.get(p.rank),
        ])  # fmt: skip
    headers = ["#", "nodes", "pipelines", "prec", "step", "MFU", "memory", "time", "cost", gain]
    render.table(headers, rows, align="rlllrrrrrr", priority=["prec", "MFU", "memory", gain], folded="nodes")


def _cut(plan: Plan) -> str:
    p = plan.parallelism
    if p.groups:
        return f"{p.dp} in {len(p.groups)} group{'s' if len(p.groups) > 1 else ''}"
    return f"{p.dp} x TP{p.tp} PP{p.pp}"


def groups(plan: Plan) -> None:
    """Every group of identical pipelines: how many, their share of the batch, and their stages."""
    rows = []
    for g in plan.parallelism.groups:
        recompute = {s.recompute for s in g.stages}
        memory = max(s.memory_bytes for s in g.stages)
        rows.append([
            f"{g.copies * g.width:,}", _stages(g), str(g.micro), str(g.micro_batches), f"{g.sequences:,}",
            "/".join(sorted(recompute)), format_bytes(memory), f"{100 * g.time_s / plan.prediction.step_time_s:.1f} %",
        ])  # fmt: skip
    stages = "stages: pool layers TP"
    headers = ["pipelines", stages, "micro", "number", "batch", "recompute", "memory", "of step"]
    render.table(headers, rows, align="rlrrrlrr", folded=stages)


def _stages(group: Group) -> str:
    """``A 12 TP2, 2 x B 6 TP8``: consecutive identical stages written once."""
    runs: list[tuple[str, int]] = []
    for s in group.stages:
        extra = f" CP{s.cp}" if s.cp > 1 else ""
        extra += f" EP{s.ep}" if s.ep > 1 else ""
        text = f"{_letter(s.pool)} {s.layers} TP{s.tp}{extra}"
        if runs and runs[-1][0] == text:
            runs[-1] = (text, runs[-1][1] + 1)
        else:
            runs.append((text, 1))
    return ", ".join(f"{n} x {text}" if n > 1 else text for text, n in runs)


def starts(plan: Plan, beyond: BeyondLaunchers | None = None) -> None:
    """The launchers that can run the plan, or why none can; and what a plan `beyond` those of launchers gains."""
    from planner.launchers.bundle import starts_alike, trainers

    p = plan.parallelism
    able, why = trainers(plan)
    if able:
        launchers = f"{', '.join(able)} (clusterwright export)"
    elif max(p.tp, p.pp, p.cp, p.ep) == 1:
        launchers = "planner.rebalancing.training in your own training script: data parallelism with uneven batches"
    else:
        instead = "; --launchable restricts the search to plans that one can" if starts_alike(plan) else ""
        launchers = f"no supported launcher can run this plan ({why}){instead}"
    lines = [launchers]
    if beyond:
        lines.append(
            f"a plan that none of them starts would gain {format_percent(beyond.less)}: "
            f"{seconds(beyond.step_time_s)} a step on {' + '.join(beyond.uses)} (--any-pipelines)"
        )
    render.labelled("Launchers", *lines)


def depends(found: PlanSet) -> None:
    """The software under which other pools than the first plan's are the better choice, with both figures."""
    lost = {"time": "time", "energy": "energy"}.get(found.search.objective, "cost")
    lines = []
    for each in found.reasons.other_software or ():
        then, own = " + ".join(each.uses), " + ".join(each.own_uses)
        steps = f"{then} {seconds(each.step_time_s)}, {own} {seconds(each.own_step_time_s)}"
        lines.append(f"{each.supposed}: {steps} ({format_percent(each.own_more)} more {lost})")
    if lines:
        render.labelled("Depends on", *lines)


def search(found: PlanSet) -> None:
    """How the answer was found and how much better another could be."""
    s = found.search
    if s.candidates == 1:
        return
    cpu = took(found.meta, "cpu_s")
    how = f"best of {s.candidates:,} candidates by {s.objective}, gap {format_percent(s.gap)}"
    render.labelled("Search", (recommendation.stopped(s) or how) + cpu)
