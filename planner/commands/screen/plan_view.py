"""A set of plans on one screen: the answer, then why, then what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from planner.base.units import (
    format_bytes,
    format_count,
    format_many,
    format_percent,
    format_power,
    format_risk,
    format_seconds,
    format_usd,
)
from planner.commands.screen import mixed_view, render
from planner.commands.screen.hand_over import hand_over
from planner.planning.comparison import stated
from planner.planning.shortlist import LOOKED_AT
from planner.report import quantities, recommendation
from planner.report.quantities import days, degrees, seconds, term, took
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan import Plan, PlanSet


def deliver(found: PlanSet, *, as_json: bool, output: Path | None, verbose: bool = False) -> None:
    """Prints the report or the document, and writes the document where asked; verbose: with every assumption."""
    written = f"clusterwright explain {output}     (the plan is in {output})"
    unwritten = "-o plan.json saves the plan; clusterwright export plan.json --to list shows the launchers"
    after = written if output else unwritten
    hand_over(found, partial(show, verbose=verbose), as_json=as_json, output=output, after=after)


def show(found: PlanSet, *, verbose: bool = False) -> None:
    """The whole report of a set: the plan to run, the ranking, why, and what all rests on."""
    best = found.plans[0]
    if any(each.parallelism.groups or each.cluster != best.cluster for each in found.plans) and not found.front:
        _mixed(found, verbose)
        return
    _heading(best)
    render.text()
    _counts(found)
    _labelled(recommendation.lines(found))
    render.text()
    _ranking(found.plans)
    _how_sure(found)
    if found.search.near_duplicates > 1:
        render.text(
            f"  equivalent variants grouped: #1 is the best of {found.search.near_duplicates:,} with the same degrees "
            "(--all lists them)"
        )
    render.text()
    _time(found.plan_to_run)
    _memory(found.plan_to_run)
    _reasons(found)
    if verbose:
        _nearest(found.plan_to_run)
    _contingency(found)
    _shortlist(found)
    _site(found)
    _search(found)
    _assumes(found.plan_to_run, verbose, found.plans)


def _labelled(lines: recommendation.Lines) -> None:
    for label, texts in lines:
        render.labelled(label, *texts)


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
    from planner.api.learning import judgement

    if found.site is None:
        return
    lines = [judgement(found.site)]
    if len(found.plans[0].cluster.pools) > 1:
        lines.append("its runs rank no plan over several pools: a row of its journal describes one pool")
    lines += [f"excluded, ran out of memory: {each}" for each in found.site.out_of_memory]
    lines += [f"fastest run, none of these plans: {found.site.fastest_run}"] if found.site.fastest_run else []
    if found.site.next_rank is not None:
        lines.append(f"next to run: #{found.site.next_rank}, the first that has not been")
    render.labelled("Site", *lines)


def _mixed(found: PlanSet, verbose: bool) -> None:
    """The report of a set of plans over several pools."""
    best = found.plans[0]
    _heading(best)
    render.text()
    render.labelled("Configuration", mixed_view.configuration(best))
    _labelled(recommendation.expected(best, found.reasons.binds))
    render.text()
    mixed_view.ranking(found.plans)
    _how_sure(found)
    render.text()
    if best.parallelism.groups:
        mixed_view.groups(best)
        render.text()
    _time(best)
    _memory(best)
    _reasons(found)
    mixed_view.depends(found)
    if best.parallelism.groups:
        mixed_view.starts(best)
    mixed_view.search(found)
    _site(found)
    _assumes(best, verbose, found.plans)


def printed(found: PlanSet | Plan, chosen: Plan) -> tuple[Plan, ...]:
    """The plans that a report on `chosen` prints: the whole set for its first plan, else that plan alone."""
    return found.plans if isinstance(found, PlanSet) and chosen == found.plans[0] else (chosen,)


def explained(found: PlanSet | Plan, chosen: Plan, *, verbose: bool = False) -> None:
    """A plan from a file, as :func:`printed`."""
    if isinstance(found, PlanSet) and chosen == found.plans[0]:
        show(found, verbose=verbose)
        return
    _heading(chosen)
    render.text()
    if chosen.parallelism.groups:
        mixed_view.ranking((chosen,))
        render.text()
        mixed_view.groups(chosen)
        mixed_view.starts(chosen)
    else:
        _ranking((chosen,))
    render.text()
    _time(chosen)
    _memory(chosen)
    _nearest(chosen)
    _assumes(chosen, verbose)


def _how_sure(found: PlanSet) -> None:
    """The plans that are not distinguishable from the one to run; where there is none, the interval of that one."""
    chosen = found.plan_to_run
    # On more or fewer of the same nodes a rate alone does not say which is better.
    rivals = [p for p in found.plans if _nodes(p) == _nodes(chosen) or len(chosen.cluster.pools) > 1]
    by_rank = {difference.rank: difference for difference in stated(found)}
    close = [by_rank[p.rank] for p in rivals if p.rank in by_rank and not by_rank[p.rank].distinguishable]
    if close:
        errors = sorted(math.sqrt(each.interval.high / each.interval.low) - 1.0 for each in close)
        span = f"{100 * errors[0]:.1f} to {format_percent(errors[-1])}" if len(close) > 1 else format_percent(errors[0])
        render.text(
            f"  {_ranks([each.rank for each in close])} {'are' if len(close) > 1 else 'is'} not distinguishable from "
            f"#{chosen.rank}: the error of a difference is {span} (80 %)"
        )
    elif (interval := chosen.prediction.intervals.get("step_time_s")) is not None:
        reasons = interval.basis.removeprefix("80 %: ").partition("; from ")[0]
        span = f"{seconds(interval.low)} to {seconds(interval.high)}, {'in' if chosen.measured else 'as for'} {reasons}"
        render.text(f"  80 % interval of #{chosen.rank}: {span}")


def _nodes(plan: Plan) -> list[tuple[str, int]]:
    return [(pool.node, pool.count) for pool in plan.cluster.pools]


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
    nics = ""
    if pool.nics_per_node and cluster.accelerators > pool.accelerators_per_node:
        gbit = (pool.nic_bytes_per_s or cluster.fabric.nic_bytes_per_s) * 8 / 1e9
        nics = f", {pool.nics_per_node} x {gbit:g} Gbit/s {cluster.fabric.id} {cluster.fabric.topology}"
    if cluster.fabric.dimensions:
        along = (f"{d.topology} {d.size} at {d.bytes_per_s / 1e9:g} GB/s" for d in cluster.fabric.dimensions)
        nics = ", " + ", ".join(along)
    render.text(f"{cluster.accelerators:,} x {pool.accelerator} in {pool.count:,} x {pool.node}{nics}")
    _changed(plan)
    render.text(f"{plan.runtime.name} {plan.runtime.release}, {plan.precision}, {w.optimizer['id']}")


def _texts(plan: Plan) -> None:
    """Texts that are packed, and what they would take in other batches."""
    texts, found = plan.workload.texts, plan.prediction.text_batches
    if texts is None or found is None:
        return
    mean, seconds = sum(texts) / len(texts), plan.prediction.step_time_s
    cut = "; longer ones are cut" if texts[-1] >= plan.workload.sequence else ""
    render.text(
        f"texts of {mean:,.0f} tokens (longest {texts[-1]:,.0f}{cut}), packed: {found.per_step:,.0f} a step, "
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


def _ranking(plans: Sequence[Plan]) -> None:
    shown = [name for name in ("vpp", "cp", "ep", "etp") if any(getattr(p.parallelism, name) > 1 for p in plans)]
    several = len({p.cluster.pools[0].count for p in plans}) > 1
    batches = len({p.batch.global_ for p in plans}) > 1
    precisions = len({p.precision for p in plans}) > 1
    headers = ["#", *(["nodes"] if several else []), *(["batch"] if batches else []), *(["prec"] if precisions else [])]
    schedules = any(p.parallelism.schedule in SPLIT_SCHEDULES for p in plans)
    headers += ["TP", "PP", *(name.upper() for name in shown), *(["schedule"] if schedules else [])]
    headers += ["DP", "micro", "ZeRO", "recompute"]
    measured = any(p.measured for p in plans)
    headers += [
        "step",
        *(["runs"] if measured else []),
        "tokens/s",
        "MFU",
        "memory",
        "time",
        "cost",
    ]
    rows = [[*_degrees(p, shown, several, batches, precisions, schedules), *_figures(p, measured)] for p in plans]
    behind = 6 + measured
    align = "r" * (len(headers) - behind - 1) + "l" + "r" * behind
    render.table(headers, rows, align=align, priority=["MFU", "tokens/s"])


def _degrees(
    plan: Plan, shown: Sequence[str], several: bool, batches: bool, precisions: bool, schedules: bool
) -> list[str]:
    p = plan.parallelism
    cells = [str(plan.rank), *([f"{plan.cluster.pools[0].count:,}"] if several else [])]
    cells += [f"{plan.batch.global_:,}"] if batches else []
    cells += [plan.precision] if precisions else []
    cells += [str(p.tp), str(p.pp), *(str(getattr(p, name)) for name in shown), *([p.schedule] if schedules else [])]
    return [*cells, f"{p.dp:,}", str(plan.batch.micro), str(p.zero_stage), plan.recompute.policy]


def _figures(plan: Plan, measured: bool) -> list[str]:
    """What is known of a plan, and in how many runs its step was measured where any plan of the table was."""
    found, money = plan.prediction, plan.money
    return [
        seconds(found.step_time_s),
        *([f"{plan.measured.runs:,}" if plan.measured else "-"] if measured else []),
        format_count(found.tokens_per_s),
        format_percent(found.mfu),
        f"{found.memory.total_bytes / 2**30:.1f} GiB",
        days(money.days),
        format_usd(money.usd_total) if money.usd_total is not None else "-",
    ]


def _time(plan: Plan) -> None:
    step = plan.predicted_s
    parts = sorted(plan.prediction.breakdown.items(), key=lambda item: -item[1])
    listed = [f"{term(name)} {format_percent(s / step)}" for name, s in parts if s / step >= 0.0005]
    predicted = " predicted" if plan.measured else ""
    render.labelled("Step time", *_measured(plan), f"{seconds(step)}{predicted}: {'  '.join(listed)}")
    if (own := plan.prediction.own_runs) is not None:
        runs, framework = format_many(len(own.runs), "run"), plan.runtime.name
        render.labelled(
            "Own runs",
            f"x{own.shared_factor * own.near_factor:.3f} on {seconds(own.without_s)}: x{own.shared_factor:.3f} on "
            f"any plan under {framework}, x{own.near_factor:.3f} by how near this one is to {runs}",
        )


def _nearest(plan: Plan) -> None:
    """The measured runs that a plan is nearest to: what each took, what is predicted for it, and what both share."""
    lines = [
        f"{recommendation.measured_elsewhere(run)}; {run.model} under {run.runtime}, "
        f"{' '.join(filter(None, (run.degrees, run.precision)))} ({run.run}): {run.how_near}"
        for run in plan.nearest_runs or ()
    ]
    render.labelled("Nearest runs", *lines)


def _measured(plan: Plan) -> list[str]:
    """What the runs of a plan were; nothing of one that was not run."""
    known = plan.measured
    if known is None:
        return []
    off = known.predicted_s / known.step_time_s - 1.0
    line = f"{seconds(known.step_time_s)} measured in {format_many(known.runs, 'run')} (prediction {100 * off:+.0f} %)"
    peak = f"; peak {format_bytes(known.memory_bytes)}" if known.memory_bytes else ""
    out = f"; {format_many(known.ran_out, 'further run')} ran out of memory" if known.ran_out else ""
    return [f"{line}{peak}{out}"]


def _memory(plan: Plan) -> None:
    m = plan.prediction.memory
    parts = {
        "parameters": m.parameters_bytes,
        "gradients": m.gradients_bytes,
        "optimizer": m.optimizer_bytes,
        "activations": m.activations_bytes,
        "buffers": m.buffers_bytes,
        "runtime": m.resident_bytes,
    }
    where = f" on stage {m.stage + 1} of {plan.parallelism.pp}" if plan.parallelism.pp > 1 else ""
    listed = "  ".join(f"{name} {format_bytes(value)}" for name, value in parts.items() if value > 0)
    render.labelled("Memory", f"{format_bytes(m.total_bytes)}{where}: {listed}")
    _expanded(plan)
    _headroom(plan)
    _hosted(plan)
    if plan.waived:
        listed = f"{', '.join(plan.waived)}: costed as if all parts were equal; no launcher can run this plan"
        render.labelled("Waived", listed)


def _expanded(plan: Plan) -> None:
    """What lies in expanded memory."""
    there = plan.prediction.memory.expanded
    if there is None:
        return
    shares = {kind: share for kind, share in (plan.placement or {}).items() if share}
    listed = "  ".join(
        kind if share == 1 else f"{format_percent(share, 0)} of {kind}" for kind, share in shares.items()
    )
    filled = f"{format_bytes(there.total_bytes)} of {format_bytes(there.capacity_bytes)}" if shares else "empty"
    render.labelled("Expanded", f"{filled}{': ' if listed else ''}{listed}")


def _hosted(plan: Plan) -> None:
    """What lies in host memory."""
    if (host := plan.prediction.memory.host) is None:
        return
    capacity = "unknown capacity" if host.capacity_bytes is None else format_bytes(host.capacity_bytes)
    parts = {"optimizer": host.optimizer_bytes, "activations": host.activations_bytes}
    listed = "  ".join(f"{name} {format_bytes(value)}" for name, value in parts.items() if value)
    render.labelled("Host", f"{format_bytes(host.total_bytes)} of {capacity} a node; of each accelerator: {listed}")


def _headroom(plan: Plan) -> None:
    """How sure the memory is, and what the risk asked for leaves of it."""
    m, interval = plan.prediction.memory, plan.prediction.intervals.get("memory_bytes")
    if interval is not None and m.oom_chance is not None and m.oom_risk is not None:
        span = f"80 %: {format_bytes(interval.low)} to {format_bytes(interval.high)}"
        asked = f"--oom-risk {format_risk(m.oom_risk)}"
        render.labelled("", f"{span}; OOM probability {format_risk(m.oom_chance)} ({asked})")
    limit = recommendation.usable_bytes(plan)
    if m.total_bytes > m.capacity_bytes:
        over = (
            f"{format_bytes(m.total_bytes - m.capacity_bytes)} more than the {format_bytes(m.capacity_bytes)} available"
        )
        render.labelled("", f"does not fit: {over}")
    elif m.total_bytes > limit:
        over = f"{format_bytes(m.total_bytes - limit)} more than the {format_bytes(limit)} usable at this risk"
        render.labelled("", f"OOM risk too high: {over} (capacity {format_bytes(m.capacity_bytes)})")


def _reasons(found: PlanSet) -> None:
    reasons = found.reasons
    listed = [f"{name} {100 * change:+.1f} %" for name, change in reasons.gains.items() if abs(change) >= 0.0005]
    if reasons.gains:
        render.labelled("Sensitivity", f"step time at +10 %: {'  '.join(listed) or 'no resource changes it'}")
    lost = len(found.plans) > 1 or any(line.startswith("excluded:") for line in reasons.why_not)
    label = "Why not" if lost else "Suggested fix"
    render.labelled(label, *reasons.why_not)


def _counts(found: PlanSet) -> None:
    """Over several counts: the best of each."""
    if len({point.accelerators for point in found.front}) < 2:
        return
    per_node = found.plans[0].cluster.pools[0].accelerators_per_node
    tried = [point.accelerators // per_node for point in found.front]
    rows = []
    for nodes, point in zip(tried, found.front, strict=True):
        cost = format_usd(point.usd_total) if point.usd_total is not None else "-"
        rows.append([f"{nodes:,}", point.label, seconds(point.step_time_s), days(point.days), cost])
    render.table(["nodes", "best plan", "step", "time to train", "cost"], rows, align="rlrrr")
    gaps = "; a range of at most 16 counts is tried whole" if tried[-1] - tried[0] >= 16 else ""
    render.text(f"  smallest count tried that fits: {tried[0]:,}{gaps}")
    render.text()


def _search(found: PlanSet) -> None:
    s = found.search
    proven = ", proven" if s.proven_optimal and (found.question or found.asked) else ""
    cpu = took(found.meta, "cpu_s")
    if s.candidates == 1 or not s.feasible:
        return
    render.labelled(
        "Search", f"optimum of {s.candidates:,} candidates ({s.feasible:,} feasible) by {s.objective}{proven}{cpu}"
    )


_IN_WORDS = ("calibrate", "profile import")
"""What may change an assumption that needs its reason to be understood."""


def _assumes(plan: Plan, verbose: bool, listed: Sequence[Plan] = ()) -> None:
    """Options that the question left open; verbose: what was taken for each, money, failures and unverified figures."""
    asked = [a for a in plan.assumptions if a.flag not in ("--catalog", "--fabric", *_IN_WORDS)]
    lines = [a.why for a in plan.assumptions if a.flag in _IN_WORDS]
    if verbose:
        lines += [f"{a.what} ({a.flag})" for a in asked] + _rests_on(plan)
    else:
        flags = ", ".join(dict.fromkeys(a.flag for a in asked))
        usual = f"what is usual for {flags}; " if flags else ""
        lines.append(f"{usual}-v says what, and failures, prices, power and unverified figures")
    render.labelled("Assumes", *lines)
    _release(plan, verbose, listed)


def _rests_on(plan: Plan) -> list[str]:
    """Money, failures and figures behind a prediction that no question asks for."""
    g, price, energy = plan.money.goodput, plan.money.price, plan.energy
    lines = [f"goodput {format_percent(g.fraction)}: an interruption every {format_seconds(g.mtbf_s)}; {g.basis}"]
    if price is not None:
        lines += [f"{quantities.line(each)} (--price, --basis, --vendor)" for each in quantities.of_money(plan.money)]
    else:
        lines.append("no price in the catalog for this node (--price)")
    if energy.power_w is not None and energy.usd is not None:
        drawn, paid = format_power(energy.power_w), format_usd(energy.usd)
        lines.append(f"{drawn} while training, {paid} of electricity: {energy.basis}")
    figures = [a.what for a in plan.assumptions if a.flag == "--catalog"]
    if figures:
        lines.append(f"unverified defaults: {', '.join(figures)} (--catalog)")
    return lines


SAME = 0.0005
"""Relative difference that no figure on the screen shows."""


def _release(plan: Plan, verbose: bool, listed: Sequence[Plan]) -> None:
    """Which release was taken where none was asked for, and what an older one makes of the plan; where it cannot run
    that, of the first listed plan on the same nodes that it can.
    """
    own, old = plan.runtime, plan.runtime.older
    if old is None:
        return
    note = f"has no {', '.join(old.lacks)}"
    if old.step_time_s is None:
        there = ((each, each.runtime.older) for each in listed if _nodes(each) == _nodes(plan))
        able = next(((each.rank, was.step_time_s) for each, was in there if was and was.step_time_s), None)
        note += f"; #{able[0]} takes {_older_time(able[1], plan)}" if able else ""
    else:
        change = old.step_time_s / plan.predicted_s - 1.0
        note = f"this plan takes {_older_time(old.step_time_s, plan)}"
        if abs(change) < SAME:
            if not verbose:
                return
            note = "this plan takes as long"
    render.labelled("Release", f"{own.name} {own.release}, the newest; {old.release}: {note} (--runtime NAME@RELEASE)")


def _older_time(older: float, plan: Plan) -> str:
    """Seconds by an older release, and how much more than a plan's by its own that is."""
    change = older / plan.predicted_s - 1.0
    return f"{seconds(older)} ({'+' if change >= 0 else ''}{format_percent(change)})"


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
