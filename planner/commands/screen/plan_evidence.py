"""What a recommended plan rests on: time and memory by part, sensitivity, other plans, measured runs, assumptions."""

from __future__ import annotations

from collections.abc import Sequence

from planner.axes import AXES
from planner.axes.axis import on_or_off
from planner.base.units import (
    format_bytes,
    format_many,
    format_percent,
    format_power,
    format_risk,
    format_seconds,
    format_usd,
)
from planner.commands.screen import mixed_view, render
from planner.report import quantities, recommendation
from planner.report.quantities import seconds
from planner.schema.plan import Plan, PlanSet
from planner.schema.plan_machines import node_counts
from planner.schema.plan_prediction import called

OVERLAPS = ("tp_overlap", "dp_overlap", "p2p_overlap", "ep_overlap")
"""Switches of communication that computing hides; who says nothing gets the faster value of the first and third."""


def time(plan: Plan) -> None:
    """The step by cause; of a plan that was run, what was measured, too."""
    step = plan.predicted_s
    parts = sorted(plan.prediction.breakdown.items(), key=lambda item: -item[1])
    listed = [f"{called(name)} {format_percent(s / step)}" for name, s in parts if s / step >= 0.0005]
    predicted = " predicted" if plan.measured else ""
    render.labelled("Step time", *_measured(plan), f"{seconds(step)}{predicted}: {'  '.join(listed)}")
    if (own := plan.prediction.own_runs) is not None:
        runs, framework = format_many(len(own.runs), "run"), plan.runtime.name
        render.labelled(
            "Own runs",
            f"x{own.shared_factor * own.near_factor:.3f} on {seconds(own.without_s)}: x{own.shared_factor:.3f} on "
            f"any plan under {framework}, x{own.near_factor:.3f} by how near this one is to {runs}",
        )


def deadline(plan: Plan) -> None:
    """How sure a deadline is: the days of the run at both ends of the step's interval."""
    asked = next((limit for limit in plan.constraints if limit.name == "deadline"), None)
    interval = plan.prediction.intervals.get("step_time_s")
    if asked is None or interval is None:
        return
    a_second = plan.money.days / plan.prediction.step_time_s
    low, high = (quantities.days(a_second * end, plan.money.days) for end in (interval.low, interval.high))
    surely = a_second * interval.high <= asked.limit / 86400.0
    sure = "kept at both ends" if surely else "kept by the median, not at the slow end"
    render.labelled("Deadline", f"{quantities.days(asked.limit / 86400.0)}: {sure} (80 %: {low} to {high})")


def nearest(plan: Plan) -> None:
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


def memory(plan: Plan) -> None:
    """The fullest stage by what it holds, and how sure that is."""
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


def overlaps(plan: Plan) -> None:
    """Which communication the prediction hides behind computing, as far as there is any."""
    named = [name for name in OVERLAPS if not plan.parallelism.groups and AXES[name].matters(plan.axes)]
    stated = [f"{called(name.partition('_')[0])} {on_or_off(bool(plan.axes[name]))}" for name in named]
    if named:
        render.labelled("Overlap", f"{', '.join(stated)} ({named[0]}=on|off)")


def network(plan: Plan) -> None:
    """What joins the accelerators of a plan on one pool, or its pools; the heading says a pool's own network."""
    cluster = plan.cluster
    pool = cluster.pools[0]
    along = [f"{d.topology} {d.size} at {d.bytes_per_s / 1e9:g} GB/s" for d in cluster.fabric.dimensions or ()]
    if plan.parallelism.groups:
        render.labelled("Network", *mixed_view.links(plan))
        return
    if pool.nics_per_node and cluster.accelerators > pool.accelerators_per_node and not along:
        gbit = (pool.nic_bytes_per_s or cluster.fabric.nic_bytes_per_s) * 8 / 1e9
        along = [f"{pool.nics_per_node} x {gbit:g} Gbit/s a node, {cluster.fabric.id} {cluster.fabric.topology}"]
    render.labelled("Network", *([", ".join(along)] if along else []))


def usual(plan_set: PlanSet) -> None:
    """What the gain of the plan to run is over."""
    run = plan_set.usual
    if run is not None and run.step_time_s is not None:
        render.labelled("Usual run", f"{run.runtime}, {run.configuration}: {seconds(run.step_time_s)} a step")


def prices(plan: Plan) -> None:
    """Price of an hour of each node, who states it, and the range over comparable offers."""
    render.labelled("Prices", *map(quantities.line, quantities.of_money(plan.money)))


def reasons(plan_set: PlanSet) -> None:
    """What more of each resource would bring, and why the other plans are not the one to run."""
    gains = plan_set.reasons.gains
    listed = [f"{name} {100 * change:+.1f} %" for name, change in gains.items() if abs(change) >= 0.0005]
    if gains:
        render.labelled("Sensitivity", f"step time at +10 %: {'  '.join(listed) or 'no resource changes it'}")
    if len(plan_set.plans) > 1:
        render.labelled("Why not", *plan_set.reasons.why_not)
    else:
        fixes(plan_set)


def fixes(plan_set: PlanSet) -> None:
    """What would let a configuration fit that was given, or why pools were excluded."""
    refused = [line for line in plan_set.reasons.why_not if line.startswith("excluded:")]
    if refused:
        render.labelled("Why not", *refused)
    elif len(plan_set.plans) == 1:
        render.labelled("Suggested fix", *plan_set.reasons.why_not)


_IN_WORDS = ("calibrate", "profile import")
"""What may change an assumption that needs its reason to be understood."""


def assumes(plan: Plan, verbose: bool) -> None:
    """Options that the question left open; verbose: what was taken for each, money, failures, unverified figures."""
    asked = [a for a in plan.assumptions if a.flag not in ("--catalog", "--fabric", *_IN_WORDS)]
    lines = [a.why for a in plan.assumptions if a.flag in _IN_WORDS]
    if verbose:
        lines += [f"{a.what} ({a.flag})" for a in asked] + _rests_on(plan)
    elif asked:
        lines.append(f"the usual {', '.join(dict.fromkeys(a.flag for a in asked))}; -v says what")
    render.labelled("Assumes", *lines)


def _rests_on(plan: Plan) -> list[str]:
    """Failures, power and figures behind a prediction that no question asks for."""
    g, energy = plan.money.goodput, plan.energy
    lines = [f"goodput {format_percent(g.fraction)}: an interruption every {format_seconds(g.mtbf_s)}; {g.basis}"]
    if energy.power_w is not None and energy.usd is not None:
        drawn, paid = format_power(energy.power_w), format_usd(energy.usd)
        lines.append(f"{drawn} while training, {paid} of electricity: {energy.basis}")
    figures = [a.what for a in plan.assumptions if a.flag == "--catalog"]
    if figures:
        lines.append(f"unverified defaults: {', '.join(figures)} (--catalog)")
    return lines


SAME = 0.0005
"""Relative difference that no figure on the screen shows."""


def release(plan: Plan, listed: Sequence[Plan]) -> None:
    """Which release was taken where none was asked for, and what an older one makes of the plan; where it cannot run
    that, of the first listed plan on the same nodes that it can.
    """
    own, old = plan.runtime, plan.runtime.older
    if old is None:
        return
    note = f"has no {', '.join(old.lacks)}"
    if old.step_time_s is None:
        here = node_counts(plan.cluster)
        there = ((each, each.runtime.older) for each in listed if node_counts(each.cluster) == here)
        able = next(((each.rank, was.step_time_s) for each, was in there if was and was.step_time_s), None)
        note += f"; #{able[0]} takes {_older_time(able[1], plan)}" if able else ""
    else:
        change = old.step_time_s / plan.predicted_s - 1.0
        note = f"this plan takes {'as long' if abs(change) < SAME else _older_time(old.step_time_s, plan)}"
    render.labelled("Release", f"{own.name} {own.release}, the newest; {old.release}: {note} (--runtime NAME@RELEASE)")


def _older_time(older: float, plan: Plan) -> str:
    """Seconds by an older release, and how much more than a plan's by its own that is."""
    change = older / plan.predicted_s - 1.0
    return f"{seconds(older)} ({'+' if change >= 0 else ''}{format_percent(change)})"
