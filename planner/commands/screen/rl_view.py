"""Post-training on one screen: the recommended placement, its timeline by role, and the other placements."""

from __future__ import annotations

from pathlib import Path

from planner.base.units import format_bytes, format_count, format_many, format_seconds
from planner.commands.screen import hand_over, render
from planner.report import measured_step
from planner.report.post_training import MOVED, NAMES, TRAINED, proof
from planner.report.rl_evidence import evidence, in_short
from planner.schema.measured_step import MeasuredStep
from planner.schema.rl import PLACED, RLPlan, RLPlanSet, RolloutSide, TrainerSide

WIDTH = 48
"""Characters of a timeline."""


def deliver(answer: RLPlanSet, *, as_json: bool, output: Path | None, verbose: bool) -> None:
    """Prints the report or the document, and writes the document where asked."""

    def whole(shown: RLPlanSet) -> None:
        show(shown, verbose=verbose)

    kept = f"clusterwright explain {output}" if output else "-o FILE keeps the answer; explain FILE shows it again"
    after = kept if verbose else f"-v says what each side holds, and how near the nearest step is; {kept}"
    hand_over.hand_over(answer, whole, as_json=as_json, output=output, after=after)


def show(answer: RLPlanSet, *, verbose: bool = False) -> None:
    """The whole report."""
    work = answer.work
    best = answer.plans[0]
    render.text(
        f"{work.task.upper()} of {work.model} on {' + '.join(answer.pools)}: {work.prompts:,} prompts x {work.samples} "
        f"responses of {work.response_mean:,.0f} tokens (at most {work.response_cap:,.0f}), "
        f"{format_many(work.updates, 'update')} a step"
    )
    render.text()
    _recommended(answer, best)
    render.text()
    _timeline(best)
    render.text()
    render.labelled("Phases", _phases(best), best.waits)
    render.text()
    if verbose:
        _in_detail(best)
    if answer.measured:
        _measured(answer.measured)
    if answer.fits is None:
        _searched(answer)
    hand_over.assumed(answer.assumptions, verbose)


def _searched(answer: RLPlanSet) -> None:
    """The other placements, and how sure it is that none is better."""
    _others(answer)
    search = answer.search
    render.labelled(
        "Search",
        f"{search.trainers:,} layouts of trainers, {search.replicas} of replicas, {search.programs} integer programs; "
        + proof(answer),
    )


def _measured(step: MeasuredStep) -> None:
    """A measured step beside the prediction, and what would explain it."""
    rows = [
        [
            phase.phase,
            format_seconds(phase.measured_s),
            format_seconds(phase.predicted_s),
            f"{format_seconds(phase.low_s)} to {format_seconds(phase.high_s)}",
            phase.verdict,
        ]
        for phase in step.phases
    ]
    render.table(["phase", "measured", "predicted", "80 %", ""], rows, align="lrrll", priority=["80 %"])
    render.text()
    for label, texts in measured_step.lines(step):
        render.labelled(label, *texts)


def _recommended(answer: RLPlanSet, best: RLPlan) -> None:
    ahead = f" (staleness {best.staleness:g})" if best.staleness else ""
    release = f" {answer.engine_release}" if answer.engine_release else ""
    engine = f", responses by {answer.engine}{release} in {best.rollout[0].precision}"
    render.labelled("Placement", f"{PLACED[best.placement]}{ahead}{engine}")
    render.labelled("Training", _training(best.trainer))
    if best.critic:
        render.labelled("Critic", _training(best.critic))
    for side in best.rollout:
        render.labelled("Rollout", _rollout(side))
    low = format_seconds(best.step_low_s)
    high = format_seconds(best.step_high_s)
    render.labelled("Step", f"{format_seconds(best.step_s)} (80 %: {low} to {high})")
    if best.nearest:
        render.labelled("Nearest", in_short(best.nearest))
    if answer.site:
        each = (
            f"{factor.phase} x{factor.factor:.2f} ({format_many(factor.runs, 'run')})" for factor in answer.site.factors
        )
        render.labelled("Site", f"{answer.site.name}: {', '.join(each) or 'no run of these accelerators and software'}")
    trained = best.trainer.tokens_per_s
    made = best.rollout[0].tokens_per_s
    render.labelled("Speed", f"{format_count(best.tokens_per_s)} tokens/s; a GPU trains {format_count(trained)} and "
                    f"generates {format_count(made)}")  # fmt: skip
    over = "" if answer.fits is not False else "; training does not fit at the accepted risk"
    render.labelled("Memory", f"{_memory(best)}{over}")
    if best.usd_per_step is None or best.usd is None:
        render.labelled("Cost", "no price in the catalog (--price)")
    else:
        more = best.steps_times or 1.0
        steps = format_many(round(answer.work.steps * more), "step")
        stated = f" ({more:g} times as many, as stated)" if more != 1.0 else ""
        run = f"{steps}{stated} take {best.days:.1f} d and ${best.usd:,.0f}"
        render.labelled("Cost", f"${best.usd_per_step:,.2f} a step; {run}")


def _training(side: TrainerSide) -> str:
    degrees = " ".join(f"{axis}={value}" for axis, value in side.layout.items() if value != 1 or axis in ("tp", "dp"))
    away = ", states in host memory meanwhile" if side.offloads else ""
    return (
        f"{side.accelerators:,} x {side.accelerator}: {degrees} zero={side.zero} recompute={side.recompute}, "
        f"{side.precision}, {side.runtime}{away}"
    )


def _rollout(side: RolloutSide) -> str:
    wide = f"tp={side.tp}" + (f" x {side.groups} attention groups" if side.groups > 1 else "")
    graphs = ", without CUDA graphs" if side.eager else ""
    return (
        f"{side.accelerators:,} x {side.accelerator}: {format_many(side.replicas, 'replica')} of {wide}, "
        f"{side.sequences:,.0f} responses each{graphs}"
    )


def _phases(plan: RLPlan) -> str:
    phases = ("generation_s", *TRAINED, *MOVED)
    seconds = {NAMES[phase]: took for phase in phases if (took := getattr(plan.phases, phase))}
    by = {"weights": f" by {plan.weights.replace('-', ' ')}"} if plan.weights else {}
    parts = [f"{name} {format_seconds(took)}{by.get(name, '')}" for name, took in seconds.items()]
    hidden = f"; {format_seconds(plan.phases.hidden_s)} of them overlap" if plan.phases.hidden_s > 0.005 else ""
    return ", ".join(parts) + hidden


def _memory(plan: RLPlan) -> str:
    trainer = f"training {format_bytes(plan.trainer.memory_bytes)} of {format_bytes(plan.trainer.capacity_bytes)}"
    sides = (
        f"{format_bytes(side.weight_bytes + side.cache_bytes)} of {format_bytes(side.capacity_bytes)}"
        for side in plan.rollout
    )
    return f"{trainer}, rollout {', '.join(sides)}"


def _in_detail(best: RLPlan) -> None:
    """What the figures of a plan are made of, and how near the nearest step is."""
    for side in best.rollout:
        held = f"{format_bytes(side.weight_bytes)} of weights and {format_bytes(side.cache_bytes)} of cache"
        render.labelled("Rollout", f"{side.accelerator}: {held}, {side.in_flight:,.0f} responses at a time")
    if best.nearest:
        render.labelled("Nearest", *evidence(best.nearest))
    if lost := best.failures:
        away = (
            f"a step without one takes {format_seconds(lost.step_without_s)}"
            if lost.step_without_s
            else "all wait then"
        )
        if lost.again_s is not None:
            again = f"{lost.responses_lost:,.0f} responses in flight"
            away += f"; up to {again} are generated again, for {format_seconds(lost.again_s)} more"
        replicas = f"{lost.replica_losses:,.2g} replicas are lost ({away})" if lost.replica_losses else ""
        stops = f"{lost.interruptions:,.2g} interruptions of training"
        render.labelled(
            "Failures", f"{lost.days:,.2f} d with {', '.join(filter(None, (stops, replicas)))}, as expected"
        )


def _timeline(plan: RLPlan) -> None:
    """A step by role: g generation, t training, w weights, o other, . waiting."""
    phases = plan.phases
    train = sum(getattr(phases, phase) for phase in TRAINED)
    moved = sum(getattr(phases, phase) for phase in MOVED)
    scale = WIDTH / plan.step_s

    def bar(*parts: tuple[str, float]) -> str:
        text = "".join(mark * round(seconds * scale) for mark, seconds in parts)
        return text[:WIDTH].ljust(WIDTH, ".")

    render.text(f"One step of {format_seconds(plan.step_s)} (g generation, t training, w weights and other, . waits):")
    if plan.placement == "colocated":
        render.text(f"  both     {bar(('g', phases.generation_s), ('t', train), ('w', moved))}")
        return
    late = max(plan.step_s - moved - train, 0.0) if plan.placement == "in-step" else 0.0
    render.text(f"  rollout  {bar(('g', min(phases.generation_s, plan.step_s - moved)))}")
    render.text(f"  trainer  {bar(('.', late), ('t', min(train, plan.step_s - moved - late)), ('w', moved))}")


def _others(answer: RLPlanSet) -> None:
    """The best of every placement."""
    rows = []
    for plan in answer.plans:
        split = "all" if plan.placement == "colocated" else (
            f"{plan.trainer.accelerators} : {sum(side.accelerators for side in plan.rollout)}"
        )  # fmt: skip
        usd = "" if plan.usd_per_step is None else f"${plan.usd_per_step:,.2f}"
        of_run = "" if plan.usd is None else f"${plan.usd:,.0f}"
        rows.append([
            str(plan.rank), PLACED[plan.placement], f"{plan.staleness:g}", split, format_seconds(plan.step_s), usd,
            f"{plan.days:,.1f} d", of_run, format_seconds(plan.phases.generation_s),
        ])  # fmt: skip
    ruled = any(plan.steps_times for plan in answer.plans)
    run = "the run" if ruled else format_many(answer.work.steps, "step")
    headers = ["#", "placement", "staleness", "train : rollout", "step", "a step", run, "", "generation"]
    render.table(headers, rows, align="rlrlrrrrr", priority=["staleness", "train : rollout", "generation"])
    render.text()
