"""A set of plans on one screen: the answer, then why, then what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from planner.base.units import (
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_usd,
)
from planner.commands.screen import mixed_view, plan_evidence, render
from planner.commands.screen.hand_over import hand_over
from planner.launchers.own_launcher import without_own_launcher
from planner.planning import order
from planner.planning.comparison import in_short, stated
from planner.planning.shortlist import LOOKED_AT
from planner.report import measured_step, quantities, recommendation
from planner.report.quantities import days, degrees, seconds, took
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan import Plan, PlanSet, SearchSection
from planner.schema.plan_machines import node_counts
from planner.schema.workload import MOST_TEXTS


def deliver(found: PlanSet, *, as_json: bool, output: Path | None, verbose: bool = False) -> None:
    """Prints the report or the document, and writes the document where asked; verbose: with every assumption."""
    written = f"clusterwright explain {output} says why; report and export take {output}, too"
    unwritten = f"{'' if verbose else '-v says why; '}-o plan.json keeps it for explain, report, export"
    after = written if output else unwritten
    if found.measured is not None:
        keep = "" if output else "-o plan.json keeps it\n"
        after = f"{keep}{measured_step.following(found, str(output or 'plan.json'))}"
    hand_over(found, partial(show, full=verbose, verbose=verbose), as_json=as_json, output=output, after=after)


def show(plan_set: PlanSet, *, full: bool = False, verbose: bool = False) -> None:
    """A set: the plan to run and the ranking; full: with what both rest on; verbose: with every assumption, too."""
    run = plan_set.plan_to_run
    _heading(run)
    render.text()
    block = dict(recommendation.lines(plan_set))
    needs = block.pop("Needs", [])
    _labelled(block.items())
    plan_evidence.deadline(run)
    render.text()
    if plan_set.measured is not None:
        _labelled(measured_step.lines(plan_set.measured))
        render.text()
    _counts(plan_set)
    if len(plan_set.plans) > 1:
        _ranking(plan_set)
        _how_sure(plan_set)
    if edge := recommendation.at_an_edge(plan_set):
        render.text(f"  at an edge: {edge}")
    if edge or len(plan_set.plans) > 1:
        render.text()
    if full:
        _evidence(plan_set, run)
    else:
        plan_evidence.fixes(plan_set)
    beyond = plan_set.reasons.beyond_launchers
    if run.parallelism.groups or beyond:
        mixed_view.starts(run, beyond)
    elif without := without_own_launcher(run):
        render.labelled("Launchers", without)
    _contingency(plan_set)
    _shortlist(plan_set)
    _site(plan_set)
    (mixed_view.search if _over_pools(plan_set) else _search)(plan_set)
    if not full:
        render.labelled("Prices", *recommendation.prices(run))
    render.labelled("Needs", *needs)
    plan_evidence.assumes(run, verbose)
    if full:
        plan_evidence.release(run, plan_set.plans)


def _over_pools(plan_set: PlanSet) -> bool:
    """Whether the plans use several pools, or each another."""
    first = plan_set.plans[0].cluster
    return not plan_set.front and any(plan.parallelism.groups or plan.cluster != first for plan in plan_set.plans)


def _evidence(plan_set: PlanSet, run: Plan) -> None:
    """Why a set recommends what it does."""
    _of_plan(run)
    plan_evidence.usual(plan_set)
    plan_evidence.reasons(plan_set)
    mixed_view.depends(plan_set)
    variants = plan_set.search.near_duplicates
    if variants > 1:
        best = f"#1 is the best of {variants:,} with the same degrees (--all lists them)"
        render.labelled("Variants", f"equivalent ones are grouped: {best}")


def _of_plan(plan: Plan) -> None:
    """What a plan's figures are made of."""
    if plan.parallelism.groups:
        mixed_view.groups(plan)
        render.text()
    plan_evidence.time(plan)
    plan_evidence.overlaps(plan)
    plan_evidence.memory(plan)
    plan_evidence.network(plan)
    plan_evidence.nearest(plan)
    plan_evidence.prices(plan)


def _labelled(lines: Iterable[tuple[str, list[str]]]) -> None:
    """The block, with the heading at most 12 lines of 80 columns; the rest stands below, or in ``explain``."""
    for label, texts in lines:
        render.labelled(label, *(texts[:1] if label in recommendation.IN_SHORT else texts))


def _shortlist(found: PlanSet) -> None:
    """What makes a list worth running, in which order, and what running some of it brought elsewhere."""
    about = found.shortlist
    if about is None:
        return
    starts = f"started by {about.target}" if about.target else "started by a trainer that export knows"
    predicted = found.plans[0].runtime.name
    if about.runtime not in (None, predicted):
        starts += f", which runs {about.runtime}: predicted is {predicted} (--runtime {about.runtime})"
    each = (f"of {runs} {format_percent(share)}" for runs, share in about.regret.items())
    render.labelled(
        "Shortlist",
        f"with other degrees or schedules, of the best {LOOKED_AT}, {starts}",
        f"plans within {format_percent(about.tied, 0)}: nearest to a measured one, simplest, cheapest first",
        f"run in turn, published jobs of the kind were slower than their best plan by: best {', '.join(each)}",
    )


def _site(found: PlanSet) -> None:
    """What the site's own runs say: of predictions, of plans that ran out of memory, of what to run next."""
    if found.site is None:
        return
    from planner.api.learning import judgement

    lines = [judgement(found.site)]
    if len(found.plans[0].cluster.pools) > 1:
        lines.append("its runs rank no plan over several pools: a row of its journal describes one pool")
    lines += [f"excluded, ran out of memory: {each}" for each in found.site.out_of_memory]
    lines += [f"fastest run, none of these plans: {found.site.fastest_run}"] if found.site.fastest_run else []
    if found.site.next_rank is not None:
        lines.append(f"next to run: #{found.site.next_rank}, the first that has not been")
    render.labelled("Site", *lines)


def printed(document: PlanSet | Plan, chosen: Plan) -> tuple[Plan, ...]:
    """The plans that a report on `chosen` prints: the whole set for its first plan, else that plan alone."""
    return document.plans if isinstance(document, PlanSet) and chosen == document.plans[0] else (chosen,)


def explained(document: PlanSet | Plan, chosen: Plan, *, verbose: bool = False) -> None:
    """A plan from a file, as :func:`printed`."""
    if isinstance(document, PlanSet) and chosen == document.plans[0]:
        show(document, full=True, verbose=verbose)
        return
    _heading(chosen)
    render.text()
    _labelled(recommendation.of_plan(chosen))
    render.text()
    _of_plan(chosen)
    if chosen.parallelism.groups:
        mixed_view.starts(chosen)
    plan_evidence.assumes(chosen, verbose)
    plan_evidence.release(chosen, ())


def _how_sure(plan_set: PlanSet) -> None:
    """The plans that are not distinguishable from the one to run, and which of them are faster."""
    chosen = plan_set.plan_to_run
    # On more or fewer of the same nodes a rate alone does not say which is better.
    nodes, several = node_counts(chosen.cluster), _over_pools(plan_set)
    rivals = {p.rank for p in plan_set.plans if several or node_counts(p.cluster) == nodes}
    close = [
        difference for difference in stated(plan_set) if difference.rank in rivals and not difference.distinguishable
    ]
    faster = [difference.rank for difference in close if difference.time < 1.0 and difference.rank in rivals]
    costs = [plan.money.usd_total or 0.0 for plan in plan_set.plans if plan.rank in faster]
    dearer = max(costs, default=0.0) / (chosen.money.usd_total or math.inf)
    most = "up to " * (len(faster) > 1)
    paid = f" at {most}{dearer:.1f} times the cost" if several and dearer > 1.0 else ""
    note = f"; {_ranks(faster)} {_are(faster)} faster{paid}, and more complex" if faster else ""
    if ranks := [difference.rank for difference in close]:
        render.text(f"  {_ranks(ranks)} {_are(ranks)} not distinguishable from #{chosen.rank} (80 %){note}")
    for plan in plan_set.plans:
        if plan is not chosen and (with_levers := recommendation.levers(plan)):
            unseen = ": few measured runs keep this in host memory" if order.seldom_measured(plan) else ""
            render.text(f"  #{plan.rank} takes {with_levers}{unseen}")
    if risky := [plan for plan in plan_set.plans if plan is not chosen and order.stalls(plan)]:
        render.text(f"  {_ranks([plan.rank for plan in risky])}: {order.stalls(risky[0])}")


def _are(ranks: Sequence[int]) -> str:
    return "are" if len(ranks) > 1 else "is"


def _ranks(ranks: Sequence[int]) -> str:
    """``#1, #3-#5``: neighbours as a range."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"#{run[0]}" if len(run) == 1 else f"#{run[0]}-#{run[-1]}" for run in runs)


def _heading(plan: Plan) -> None:
    w, cluster, pool = plan.workload, plan.cluster, plan.cluster.pools[0]
    modules = f" with {w.mtp_layers} MTP module{'s' * (w.mtp_layers > 1)}" if w.mtp_layers else ""
    uneven = f", {w.imbalance:g} x an even share on the busiest expert rank" if w.imbalance else ""
    trained, pairs = f"{w.name}{modules}, {_method(plan)}", " (pairs: half as many)" if w.task else ""
    render.text(f"{trained}, {w.sequence:,} tokens/sequence, batch {plan.batch.global_:,} sequences{pairs}{uneven}")
    _texts(plan)
    if plan.parallelism.groups:
        mixed_view.pools(plan)
        _changed(plan)
        render.text(f"{plan.runtime.name} {plan.runtime.release}, {plan.precision}, {w.optimizer['id']}")
        return
    machines = f"{cluster.accelerators:,} x {pool.accelerator} in {pool.count:,} x {pool.node}"
    render.text(f"{machines}, {plan.runtime.name} {plan.runtime.release}, {plan.precision}, {w.optimizer['id']}")
    _changed(plan)


def _texts(plan: Plan) -> None:
    """Texts that are packed, and what they would take in other batches."""
    texts, found = plan.workload.texts, plan.prediction.text_batches
    if texts is None or found is None:
        return
    mean, seconds = sum(texts) / len(texts), plan.prediction.step_time_s
    of_all = plan.workload.tokens * found.filled / mean
    shortened = sum(text >= plan.workload.sequence for text in texts) / len(texts)
    cut = f"; about {format_percent(shortened, 0)} are cut" if shortened else ""
    longest = "longest" if len(texts) < MOST_TEXTS else "longest hundredth"
    in_all = f"{found.per_step:,.0f} a step and {of_all:,.0f} in all"
    render.text(
        f"texts of {mean:,.0f} tokens ({longest} {texts[-1]:,.0f}{cut}), packed: {in_all}, "
        f"{format_percent(found.filled)} of positions; sorted by length {found.sorted_s / seconds:.2f} x as long, "
        f"padded {found.padded_s / seconds:.2f} x"
    )


def _changed(plan: Plan) -> None:
    """What of its accelerators is not as in the catalog."""
    for pool in plan.cluster.pools:
        if pool.changed:
            listed = ", ".join(map(str, pool.changed))
            render.text(f"changed {pool.accelerator} in {pool.node}: {listed}; no price changes with it (--price)")


def _method(plan: Plan) -> str:
    """What is trained, and how, in words."""
    w = plan.workload
    adapters = f"{'DoRA' if w.method.get('magnitude') else 'LoRA'} rank {w.method['rank']}"
    last = f"training of the last {w.method.get('layers', 0)} layers"
    method = {"pretrain": "pre-training", "finetune": "full fine-tuning", "lora": adapters, "freeze": last}
    bases = {"nf4": " over 4-bit weights (QLoRA)", "int8": " over 8-bit weights", "fp8": " over FP8 weights"}
    task = {"dpo": ", DPO", "reward": ", a reward model"}.get(w.task or "", "")
    return method[w.method["kind"]] + bases.get(w.method.get("base", ""), "") + task


def _ranking(plan_set: PlanSet) -> None:
    plans = plan_set.plans
    against = {difference.rank: in_short(difference.interval) for difference in stated(plan_set)}
    gain = f"time vs #{plan_set.plan_to_run.rank}"
    if _over_pools(plan_set):
        mixed_view.ranking(plans, gain, against)
        return
    by_energy = plan_set.search.objective == "energy"
    rows = [{**_cells(plan, plan_set.plan_to_run, by_energy), gain: against.get(plan.rank, "-")} for plan in plans]
    same = {name for name in VARIED if len({row[name] for row in rows}) == 1}
    neutral = {name for name, cell in NEUTRAL.items() if all(row[name] == cell for row in rows)}
    if all(plan.parallelism.schedule not in SPLIT_SCHEDULES for plan in plans):
        neutral.add("schedule")
    headers = [name for name in rows[0] if name not in same | neutral]
    align = "".join("l" if name == "recompute" else "r" for name in headers)
    lost_first = ["MFU", "tokens/s", "time", "memory" if plan_set.search.objective == "cost" else "cost"]
    table = [[row[name] for name in headers] for row in rows]
    render.table(headers, table, align=align, priority=[name for name in lost_first if name in headers])


VARIED = ("nodes", "batch", "prec")
"""Columns that are left out where all plans say the same."""
NEUTRAL = {"VPP": "1", "CP": "1", "EP": "1", "ETP": "1", "runs": "-"}
"""Columns that are left out where every plan has this."""


def _cells(plan: Plan, run: Plan, by_energy: bool) -> dict[str, str]:
    """A row by column, in the units of the plan to run; with energy in place of money where plans are ranked by it."""
    cut, predicted, money, joules = plan.parallelism, plan.prediction, plan.money, plan.energy.energy_j
    cost = "-" if money.usd_total is None else format_usd(money.usd_total)
    return {
        "#": str(plan.rank),
        "nodes": f"{plan.cluster.pools[0].count:,}",
        "batch": f"{plan.batch.global_:,}",
        "prec": plan.precision,
        **{axis.upper(): str(getattr(cut, axis)) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp")},
        "schedule": cut.schedule,
        "DP": f"{cut.dp:,}",
        "micro": str(plan.batch.micro),
        "ZeRO": str(cut.zero_stage),
        "recompute": plan.recompute.policy.replace("selective:", "selective ").partition(" ")[0],
        "step": seconds(predicted.step_time_s, run.prediction.step_time_s),
        "runs": f"{plan.measured.runs:,}" if plan.measured else "-",
        "tokens/s": format_count(predicted.tokens_per_s, run.prediction.tokens_per_s),
        "MFU": format_percent(predicted.mfu),
        "memory": f"{recommendation.peak_bytes(plan) / 2**30:.1f} GiB",
        "time": days(money.days, run.money.days),
        **({"energy": quantities.energy(joules)} if by_energy and joules is not None else {"cost": cost}),
    }


def _counts(found: PlanSet) -> None:
    """Over several counts: the best of each."""
    if len({point.accelerators for point in found.front}) < 2:
        return
    per_node = found.plans[0].cluster.pools[0].accelerators_per_node
    tried = [point.accelerators // per_node for point in found.front]
    rows, run = [], found.plan_to_run
    for nodes, point in zip(tried, found.front, strict=True):
        cost = format_usd(point.usd_total) if point.usd_total is not None else "-"
        step = seconds(point.step_time_s, run.prediction.step_time_s)
        rows.append([f"{nodes:,}", point.label, step, days(point.days, run.money.days), cost])
    render.table(["nodes", "best plan", "step", "time to train", "cost"], rows, align="rlrrr")
    gaps = "; a range of at most 16 counts is tried whole" if tried[-1] - tried[0] >= 16 else ""
    render.text(f"  smallest count tried that fits: {tried[0]:,}{gaps}")
    if quicker := recommendation.quicker_than_least(found):
        render.text(f"  recommended: {quicker}")
    render.text()


def _search(found: PlanSet) -> None:
    s = found.search
    proven = ", proven" if s.proven_optimal and (found.question or found.asked) else ""
    cpu = took(found.meta, "cpu_s")
    if s.candidates == 1 or not s.feasible:
        return
    near = "; #1 is the quickest near it" if recommendation.quicker_than_least(found) else ""
    unknown = s.objective == "energy" and found.plan_to_run.energy.energy_j is None
    by = "node-hours: energy is not known without max_power in a cluster's [node]" if unknown else s.objective
    is_near = bool(s.gap) and s.levers is None  # a pool alone before a faster plan over several
    sure = f", gap {format_percent(s.gap)}" if is_near else "" if unknown else proven
    what = "best" if is_near else "optimum"
    found_by = recommendation.stopped(s) or f"{what} of {s.candidates:,} candidates by {by}{sure}{near}"
    render.labelled("Search", found_by + cpu, *_levers(s))


def _levers(search: SearchSection) -> Iterator[str]:
    """What was searched beyond that, and how much better what was left out could be."""
    if (levers := search.levers) is not None:
        tie = levers.gained <= order.TIED / (1.0 - order.TIED)
        why = "a tie" if tie else "which a longer list has (--top 5)"
        best = f"the best {format_percent(levers.gained)} better, {why}" if levers.gained else "the best is listed"
        left = f"at most {format_percent(levers.left_out)} better" if levers.left_out else "none"
        yield f"{levers.looked_at:,} more with other {', '.join(levers.axes)}: {best}; left out: {left}"


def _contingency(found: PlanSet) -> None:
    """A line for each number of lost nodes; nothing where none were asked for."""
    if not found.contingency:
        return
    run = found.plan_to_run
    rows = []
    for each in found.contingency:
        plan = each.plan
        rows.append(
            [
                each.lost_nodes,
                plan.cluster.pools[0].count,
                degrees(plan.parallelism),
                format_seconds(plan.prediction.step_time_s),
                f"{plan.prediction.step_time_s / run.prediction.step_time_s:.2f}x",
                format_count(plan.prediction.tokens_per_s),
                format_bytes(plan.prediction.memory.total_bytes),
                format_seconds(each.reshard_s),
            ]
        )
    render.text()
    headers = ["lost", "nodes", "continues as", "step", f"of #{run.rank}", "tokens/s", "memory", "resumes in"]
    render.table(headers, rows, align="rrlrrrrr", priority=["tokens/s"])
    each = found.contingency[0]
    render.text(
        f"  resumes in: restart {format_seconds(each.plan.money.goodput.restart_s)}, and a checkpoint of "
        f"{format_bytes(each.checkpoint_bytes)} read at {format_bytes(each.read_bytes_per_s)}/s a node, as Llama 3's "
        "storage sustained; export --lost N writes the plan for N lost nodes"
    )
