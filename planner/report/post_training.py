"""A plan of RL post-training as a page: what a step is, who does what in it, memory of both sides, other placements."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.units import format_bytes, format_many, format_percent, format_seconds, format_usd
from planner.report import plans, vega_lite
from planner.report.html_page import Chart, Content, KeyFigure, Lines, Section, TextTable
from planner.report.rl_evidence import evidence
from planner.schema.rl import PLACED, RLPlan, RLPlanSet, layout, replicas

GIB = 2.0**30
TRAINED = ("log_probabilities_s", "reference_s", "critic_s", "reward_s", "update_s")
MOVED = ("sync_s", "other_s")
NAMES = {"generation_s": "generation", "log_probabilities_s": "log-probabilities", "sync_s": "weights",
         "reference_s": "reference", "critic_s": "critic", "reward_s": "reward", "update_s": "update",
         "other_s": "other"}  # fmt: skip
"""Phase -> its name, in the order of the colours."""
Span = tuple[str, str, float, float]
"""Role, phase, first and last second."""


def of_post_training(answer: RLPlanSet, origin: str) -> Content:
    """The recommended placement in full, and the others."""
    best = answer.plans[0]
    sections = [
        Section("Recommendation", (_best(answer, best),)),
        Section("A step by role", (_gantt(best),)),
        Section("Memory", (_memory(best),)),
        Section("Placements", (_placements(answer),)),
        Section("Assumptions", (plans.assumed(answer.assumptions),)),
    ]
    title = f"{answer.work.task.upper()} of {answer.work.model} on {' + '.join(answer.pools)}"
    return Content(title, origin, sections, [*_figures(answer, best)])


def _figures(answer: RLPlanSet, best: RLPlan) -> Iterator[KeyFigure]:
    ends = f"80 %: {format_seconds(best.step_low_s)} to {format_seconds(best.step_high_s)}"
    yield KeyFigure(format_seconds(best.step_s), "a step", ends)
    run = f"{format_many(answer.work.steps, 'step')}: {best.days:,.1f} d"
    if best.usd_per_step is None or best.usd is None:
        yield KeyFigure(f"{best.days:,.1f} d", format_many(answer.work.steps, "step"), "no such price in the catalog")
    else:
        yield KeyFigure(format_usd(best.usd_per_step), "a step", f"{run}, {format_usd(best.usd)}")
    fullest = max(best.trainer.memory_bytes / best.trainer.capacity_bytes, *(
        (side.weight_bytes + side.cache_bytes) / side.capacity_bytes for side in best.rollout))  # fmt: skip
    over = "does not fit at the accepted risk" if answer.fits is False else "of the fuller side"
    yield KeyFigure(format_percent(fullest, 0), "of an accelerator's memory", over)


def proof(answer: RLPlanSet) -> str:
    """How sure it is that no placement is better: of the least cost at each of the step's lengths that were tried."""
    sure = "proven" if answer.search.proven else "not proven"
    if answer.objective == "cost":
        return f"{sure} over the splits and lengths of a step tried"
    return f"{sure} over the splits tried, to {format_percent(answer.search.gap)}"


def _best(answer: RLPlanSet, best: RLPlan) -> Lines:
    stale = f" (staleness {best.staleness:g})" if best.staleness else ""
    rows = [
        ("Placement", [f"{PLACED[best.placement]}{stale}"]),
        ("Training", [f"{layout(best)}, {best.trainer.precision}, {best.trainer.runtime}"]),
        ("Rollout", [f"{replicas(best)}, {best.rollout[0].precision}, {answer.engine}"]),
        ("Nearest", evidence(best.nearest) if best.nearest else []),
        ("Waits", [best.waits]),
        ("Search", [proof(answer)] if answer.fits is None else []),
    ]
    return Lines([row for row in rows if row[1]])


def spans(plan: RLPlan) -> Iterator[Span]:
    """Who does what in a step, and when; gaps are waits."""
    phases = plan.phases
    moved = sum(getattr(phases, name) for name in MOVED)
    training = sum(getattr(phases, name) for name in TRAINED)
    together = plan.placement == "colocated"
    rollout = "both" if together else "rollout"
    trainer = "both" if together else "trainer"
    made = phases.generation_s if together else min(phases.generation_s, plan.step_s - moved)
    yield rollout, "generation", 0.0, made
    start = made if together else 0.0
    if plan.placement == "in-step":
        start = max(plan.step_s - moved - training, 0.0)
    for name in (*TRAINED, *MOVED):
        if name == MOVED[0] and not together:
            start = max(start, plan.step_s - moved)
        end = start + getattr(phases, name)
        if name in MOVED and not together:
            end = min(end, plan.step_s)
        if end > start:
            yield trainer, NAMES[name], start, end
        start = end


def _gantt(plan: RLPlan) -> Chart:
    values = [
        {"row": role, "part": part, "start": start, "end": end, "text": format_seconds(end - start)}
        for role, part, start, end in spans(plan)
    ]
    rows = [(str(v["row"]), str(v["part"]), f"{v['start']:,.1f} s", f"{v['end']:,.1f} s") for v in values]
    table = TextTable("A step by role", ("role", "phase", "from", "to"), rows)
    roles = list(dict.fromkeys(str(value["row"]) for value in values))
    summary = f"Seconds of a step of {format_seconds(plan.step_s)}; where a role has no bar it waits."
    parts = [name for name in NAMES.values() if any(value["part"] == name for value in values)]
    return Chart("Who does what in a step", summary, vega_lite.spans(values, "s", parts, roles), table)


def _memory(plan: RLPlan) -> Chart:
    held = [("training", "weights, states, activations", plan.trainer.memory_bytes, plan.trainer.capacity_bytes)]
    if plan.critic:
        held.append(("critic", "weights, states, activations", plan.critic.memory_bytes, plan.critic.capacity_bytes))
    for index, side in enumerate(plan.rollout):
        name = f"rollout {index + 1}" if len(plan.rollout) > 1 else "rollout"
        held += [(name, "weights", side.weight_bytes, side.capacity_bytes),
                 (name, "keys and values", side.cache_bytes, side.capacity_bytes)]  # fmt: skip
    values = [
        {"row": row, "part": part, "value": size / GIB, "text": format_bytes(size)} for row, part, size, _ in held
    ]
    rows = [(row, part, format_bytes(size), format_bytes(most)) for row, part, size, most in held]
    capacities = {most for *_, most in held}
    limit = capacities.pop() / GIB if len(capacities) == 1 else None
    table = TextTable("Memory of an accelerator", ("side", "holds", "bytes", "of"), rows)
    return Chart("Memory of an accelerator, by side", "The dashed line is the capacity, where sides have the same.",
                 vega_lite.bars(values, "GiB", vega_lite.parts_of(values), limit=limit), table)  # fmt: skip


def _placements(answer: RLPlanSet) -> TextTable:
    rows = []
    for plan in answer.plans:
        rollout = sum(side.accelerators for side in plan.rollout)
        split = "all" if plan.placement == "colocated" else f"{plan.trainer.accelerators} : {rollout}"
        usd = "" if plan.usd_per_step is None else format_usd(plan.usd_per_step)
        of_run = f"{plan.days:,.1f} d" + ("" if plan.usd is None else f", {format_usd(plan.usd)}")
        ends = f"{format_seconds(plan.step_low_s)} to {format_seconds(plan.step_high_s)}"
        rows.append((PLACED[plan.placement], format_seconds(plan.step_s), usd, of_run, ends, split,
                     f"{plan.staleness:g}", format_seconds(plan.phases.generation_s),
                     format_seconds(plan.phases.update_s)))  # fmt: skip
    ruled = any(plan.steps_times for plan in answer.plans)
    steps = "the run" if ruled else format_many(answer.work.steps, "step")
    headers = ("placement", "step", "a step", steps, "80 %", "train : rollout", "staleness", "generation", "update")
    return TextTable("Placements, best first", headers, rows)
