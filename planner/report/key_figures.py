"""The three figures that lead a page: what a reader came for, and how sure each is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.base.units import format_count, format_percent, format_risk, format_usd
from planner.report import offer_evidence, per_dollar, quantities, recommendation
from planner.report.html_page import KeyFigure
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan
from planner.schema.procurement import Alternative, JobDone, Procurement
from planner.schema.reports import Comparison
from planner.schema.study import StudyResult

LATE = 0.2
"""Chance to be late above which a job is a warning ..."""
BY_DAYS = 0.1
"""... if its slow end is late by more than this: a job of minutes that ends on its last day is not."""
NAMED = 4
"""Jobs that warnings name."""
RARELY = 0.5
"""Share of its days in use below which a bought machine is a warning: half of what is paid for it stands idle."""


def of_plan(plan: Plan) -> Iterator[KeyFigure]:
    """A step, the price of the run (its days where there is no price), and memory."""
    memory = plan.prediction.memory
    money = plan.money
    interval = plan.prediction.intervals.get("step_time_s")
    span = "" if interval is None else f"80 %: {recommendation.from_to(interval)}"
    took = quantities.days(money.days)
    tokens = f"for {format_count(plan.workload.tokens)} tokens"
    yield KeyFigure(quantities.seconds(plan.prediction.step_time_s), "a step", span)
    if money.usd_total is None:
        yield KeyFigure(took, tokens, "no such price in the catalog")
    else:
        yield KeyFigure(format_usd(money.usd_total), tokens, took)
    held = f"{recommendation.peak_bytes(plan) / 2**30:.1f} of {memory.capacity_bytes / 2**30:.0f} GiB"
    risk = "" if memory.oom_chance is None else f"OOM probability {format_risk(memory.oom_chance)}"
    yield KeyFigure(held, "of an accelerator's memory", risk)


def of_offer(found: Procurement) -> Iterator[KeyFigure]:
    """What is paid, when all is done, and how much of its time the machines are in use."""
    best = found.alternatives[0]
    cost = best.cost
    yield KeyFigure(format_usd(cost.total_usd), "in all", f"{format_usd(cost.capital_usd)} of it capital")
    low = max(job.finish_low for job in best.workloads)
    high = max(job.finish_high for job in best.workloads)
    yield KeyFigure(f"day {best.done_day:,.0f}", "done", f"80 %: day {low:,.0f} to {high:,.0f}")
    working = [offer_evidence.at_a_time(best, pool) for pool in best.pools]
    used = sum(count * pool.utilisation for count, pool in zip(working, best.pools, strict=True)) / max(sum(working), 1)
    most = offer_evidence.accelerators(found, best)
    yield KeyFigure(format_percent(used, 0), f"of the days of {most:,} accelerators in use")


def late(best: Alternative) -> Iterator[str]:
    """Jobs that are late with a chance above :data:`LATE`, the likeliest first, of one that recurs the likeliest time;
    and the deadline that the slow end of such an answer would keep.
    """
    worst: dict[str, JobDone] = {}
    for job in sorted(best.workloads, key=lambda job: -(job.late_chance or 0.0)):
        if (job.late_chance or 0.0) > LATE and job.finish_high > job.deadline_day + BY_DAYS:
            worst.setdefault(job.name.partition("#")[0], job)
    for job in [*worst.values()][:NAMED]:
        start = job.start_day()
        slower = max(job.finish_high - start, 1e-9) / max(job.finish_day - start, 1e-9)
        sure = math.floor(start + (job.deadline_day - start) / slower)
        yield (
            f"{job.name} is late with a chance of {quantities.late(job.late_chance)}: done day {job.finish_day:,.1f}, "
            f"due {job.deadline_day:,.0f} (80 %: {job.finish_low:,.1f} to {job.finish_high:,.1f}); "
            f"a deadline on day {sure:,} keeps it at the slow end"
        )
    if len(worst) > NAMED:
        yield f"and {len(worst) - NAMED} more jobs may be late (late_chance, in JSON)"


def idle(best: Alternative) -> Iterator[str]:
    """Bought machines that stand idle for most of the time."""
    for pool in best.pools:
        if pool.way == "buy" and pool.utilisation < RARELY:
            yield (
                f"{pool.id}: bought, and in use {format_percent(pool.utilisation, 0)} of the time; "
                "rent it (--ways), sell it earlier, or give it more work"
            )


def of_comparison(found: Comparison) -> Iterator[KeyFigure]:
    """Tokens a second, days and US dollars of the second plan against the first."""
    interval = found.interval
    ends = "" if interval is None else f"80 %: {_more(interval.low)} to {_more(interval.high)}"
    words = "" if found.distinguishable else "; not distinguishable"
    yield KeyFigure(_more(found.tokens), "tokens a second", f"{ends}{words}".removeprefix("; "))
    sooner = "sooner" if found.days <= 0 else "later"
    yield KeyFigure(quantities.days(abs(found.days)), sooner, "the first plan's tokens on both")
    if found.usd is not None:
        yield KeyFigure(format_usd(abs(found.usd)), "saved" if found.usd <= 0 else "more")


def of_images(plan: ImagePlan) -> Iterator[KeyFigure]:
    """A step, images a second, and the fullest accelerator's memory."""
    less = "" if plan.even_step_s is None else f"{format_percent(1.0 - plan.step_time_s / plan.even_step_s)} less"
    yield KeyFigure(quantities.seconds(plan.step_time_s), "a step", f"{less} than with even shares" if less else "")
    yield KeyFigure(format_count(plan.images_per_s), "images/s")
    fullest = max(pool.memory_bytes / pool.capacity_bytes for pool in plan.pools)
    yield KeyFigure(format_percent(fullest, 0), "of an accelerator's memory", "of the fullest pool")


def of_study(study: StudyResult) -> Iterator[KeyFigure]:
    """The best of each of the first two objectives, and how many points stand behind them."""
    for name, point in zip(study.question.objectives[:2], study.best, strict=False):
        note = "no figure is priced" if per_dollar.unpriced(study) else ""
        yield KeyFigure(quantities.objective(name, point.objectives[name]), f"best {name}", note)
    yield KeyFigure(f"{len(study.trials):,}", "points tried", f"{len(study.pareto):,} of them beaten by no other")


def _more(ratio: float) -> str:
    return f"{100.0 * (ratio - 1.0):+.1f} %" if math.isfinite(ratio) else "–"
