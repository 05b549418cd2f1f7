"""Whether a measured step is normal: its phases beside their predictions, and what would explain those that are not.

A phase is slow where it is beyond the interval of its prediction, whose half widths (log scale) are what left-out
published phases were off by (``fitted.toml``). A cause is a change of the question, a longer response, a smaller cache,
whose price is the measured time: the phase is priced again with it, and a cause that does not reach what was measured
is not named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.base.errors import ClusterwrightError
from planner.base.units import format_bytes, format_seconds
from planner.cost import response_lengths
from planner.models.parameters import parameters
from planner.planning import measured_step
from planner.question.given import texts
from planner.rl import stated
from planner.rl.constants import phase_widths
from planner.rl.phase_names import PHASES, TRAINING, PhaseSeconds
from planner.rl.problem import PostTraining
from planner.schema.measured_step import MeasuredPhase, MeasuredStep
from planner.schema.rl import RLPlan, RLPlanSet

Changed = Callable[[float], PostTraining]
"""A question with something longer, smaller or slower by a factor."""
ROUNDS = 12
"""Halvings of a factor on a log scale."""
MOST = 1e3
"""Largest factor that is looked at."""
ALIKE = 1.3
"""Phases whose factors over their predictions are this near may share a cause: assumed, an update's width."""
MARGIN = 0.05
"""Share of the step by which phases of a few seconds may be off, whatever their factor: assumed, no published step has
these phases apart."""


def compared(asked: PostTraining, answer: RLPlanSet, taken: PhaseSeconds) -> MeasuredStep:
    """A measured step beside the one that was priced."""
    plan = answer.plans[0]
    seconds = dict(taken.seconds)
    if plan.placement in ("one-step-off", "async") and "wait" not in seconds and "generation" in seconds:
        # Trainers of such steps time how long they wait for responses, and call it generation.
        seconds["wait"] = seconds.pop("generation")
    rows = [_row(asked, plan, phase, seconds) for phase in seconds]
    rows.sort(key=lambda row: row.predicted_s - row.measured_s)
    return MeasuredStep(
        source=taken.source, phases=tuple(rows), unread=taken.unread, verdict=_verdict(plan, rows, seconds)
    )


def _row(asked: PostTraining, plan: RLPlan, phase: str, taken: dict[str, float]) -> MeasuredPhase:
    measured_s = taken[phase]
    predicted = predicted_s(plan, phase)
    width = math.log(plan.step_high_s / plan.step_s) if phase == "step" else phase_widths()[phase]
    margin = MARGIN * plan.step_s if phase in ("wait", "other", "weights") else 0.0
    low = max(predicted * math.exp(-width) - margin, 0.0)
    row = measured_step.phase(phase, measured_s, predicted, low, predicted * math.exp(width) + margin)
    if row.verdict == "slow":
        return replace(row, causes=tuple(_slow(asked, plan, phase, taken)))
    return replace(row, causes=tuple(_fast(phase))) if row.verdict == "fast" else row


def predicted_s(plan: RLPlan, phase: str) -> float:
    """Seconds of a phase as predicted; of a wait, those that training waits for responses."""
    seconds = vars(plan.phases)
    if phase == "step":
        return plan.step_s
    if phase == "wait":
        others_s = sum(float(seconds[name]) for name in (*TRAINING, "sync_s", "other_s"))
        return max(plan.step_s - others_s, 0.0)
    return float(sum(seconds[name] for name in PHASES[phase]))


def _verdict(plan: RLPlan, rows: list[MeasuredPhase], taken: dict[str, float]) -> str:
    """The slow phases, and how much of the step they are over their predictions."""
    slow = [row for row in rows if row.verdict == "slow" and row.phase != "step"]
    whole = next((row for row in rows if row.phase == "step"), None)
    parts = [
        f"{row.phase} is slow: {row.measured_s / max(row.predicted_s, 1e-9):.1f} times its prediction, "
        f"{format_seconds(row.measured_s - row.high_s)} beyond its interval"
        for row in slow
    ]
    if slow:
        return "; ".join(parts)
    if whole is None:
        return "every phase that was given is within its interval"
    says = measured_step.in_words(whole, plan.step_s)
    if whole.verdict != "slow":
        return says
    inside = sum(value for phase, value in taken.items() if phase != "step")
    if inside and plan.placement == "colocated":
        rest = whole.measured_s - inside
        return f"{says}; no phase given is slow: {format_seconds(max(rest, 0.0))} of it are in none of them"
    return f"{says}; give its phases to see which (generation=, log-probabilities=, update=, weights=)"


def _fast(phase: str) -> Iterator[str]:
    if phase in ("generation", "wait", "step"):
        yield "responses may be shorter than --response says"


def _slow(asked: PostTraining, plan: RLPlan, phase: str, taken: dict[str, float]) -> Iterator[str]:
    """What would take as long, most telling first."""
    measured_s = taken[phase]
    over = measured_s / max(predicted_s(plan, phase), 1e-9)
    if phase in ("generation", "wait"):
        yield from _slow_generation(asked, plan, phase, measured_s)
    elif phase == "weights":
        yield from _slow_weights(asked, plan, measured_s)
    elif phase == "other":
        yield "rewards computed in one Python process, sandboxes, data, checkpoints or validation inside the step"
    elif phase != "step":
        yield from _slow_training(asked, plan, phase, over, taken)


def _slow_generation(asked: PostTraining, plan: RLPlan, phase: str, measured_s: float) -> Iterator[str]:
    work = asked.work
    mean = work.demand.lengths.mean
    cap = work.demand.lengths.cap
    longest = response_lengths.MOST_MEAN * cap
    trained = stated.training(asked)

    def seconds(changed: PostTraining) -> float:
        return predicted_s(stated.with_training(changed, trained).plans[0], phase)

    def longer(factor: float) -> PostTraining:
        lengths = response_lengths.of_mean(min(mean * factor, longest), cap)
        return replace(asked, work=replace(work, demand=replace(work.demand, lengths=lengths)))

    def fewer(factor: float) -> PostTraining:
        figures = replace(work.engine, sequences=max(plan.rollout[0].in_flight / plan.rollout[0].groups / factor, 1.0))
        return replace(asked, work=replace(work, engine=figures))

    def later(factor: float) -> PostTraining:
        return replace(asked, work=replace(work, engine=replace(work.engine, host=work.engine.host * factor)))

    if (factor := _reaching(longer, seconds, measured_s, longest / mean)) is not None:
        yield (
            f"responses of {mean * factor:,.0f} tokens in the mean (--response says {mean:,.0f}) take as long: look at "
            "the mean response length that the trainer prints"
        )
    if (factor := _reaching(fewer, seconds, measured_s, plan.rollout[0].in_flight)) is not None:
        yield (
            f"{plan.rollout[0].in_flight / factor:,.0f} responses at a time on a replica (predicted "
            f"{plan.rollout[0].in_flight:,.0f}) take as long: look at the engine's running and preempted requests, its "
            "share of the memory and its limit of sequences"
        )
    if (factor := _reaching(later, seconds, measured_s, MOST)) is not None:
        yield (
            f"{work.engine.host * factor * 1e3:,.1f} ms between iterations (assumed {work.engine.host * 1e3:,.1f}) "
            "take as long: eager mode without captured graphs, detokenising or a busy host"
        )
    if work.engine.prefix_caching:
        plain = replace(asked, work=replace(work, engine=replace(work.engine, prefix_caching=False)))
        if seconds(plain) >= measured_s:
            yield "without prefix caching, every sample reads its prompt again: switch it on"
    yield "one replica slower than the others holds all up: compare the replicas' tokens/s"


def _slow_training(
    asked: PostTraining, plan: RLPlan, phase: str, over: float, taken: dict[str, float]
) -> Iterator[str]:
    demand = asked.work.demand
    passes = ("log-probabilities", "reference", "log-probabilities+reference", "update", "training")
    alike = [
        name
        for name in passes
        if name in taken and name != phase and taken[name] / max(predicted_s(plan, name), 1e-9) > over / ALIKE
    ]
    padded = (demand.prompt + demand.lengths.cap) / (demand.prompt + demand.lengths.mean)
    width = math.exp(phase_widths()[phase])
    if padded * width >= over:
        yield (
            f"responses padded to the cap are {padded:.1f} times as many tokens: pack them (verl use_remove_padding "
            "and use_dynamic_bsz, NeMo-RL sequence_packing)"
        )
    pins = texts(asked.training.pin)
    for change, why in (
        ("recompute=full", "recomputing all activations: less of it if memory is left"),
        ("micro=1", "micro-batches of one packed sequence: more tokens in each"),
        ("offload=optimizer", "the optimizer's states in host memory: keep them on the accelerators"),
    ):
        name = change.partition("=")[0]
        rest = [text for text in pins if not text.startswith(f"{name}=")]
        other = replace(asked, training=replace(asked.training, pin=(*rest, change)))
        if change not in pins and _priced(other, phase) * width >= over * predicted_s(plan, phase):
            yield f"{change} would explain it: {why}"
    if alike:
        yield f"{', '.join(alike)} is as slow: clocks, links (comm bench times them) or another job on the machines"
    elif phase in ("log-probabilities", "reference", "log-probabilities+reference"):
        yield (
            "small micro-batches of forward passes (verl log_prob_micro_batch_size_per_gpu, NeMo-RL "
            "logprob_batch_size), or states that come back from host memory before them"
        )


def _slow_weights(asked: PostTraining, plan: RLPlan, measured_s: float) -> Iterator[str]:
    weights = 2.0 * parameters(asked.work.model).total
    yield (
        f"{format_bytes(weights)} of weights arrive at {format_bytes(weights / measured_s)}/s: sent tensor by tensor "
        "rather than in buckets, through host memory, or over another network than the accelerators' own (NCCL_DEBUG "
        "says which)"
    )
    if plan.placement == "colocated":
        yield "the engine is started anew, or captures its graphs again, rather than sleeping"


def _reaching(
    changed: Changed, seconds: Callable[[PostTraining], float], measured_s: float, most: float
) -> float | None:
    """The factor at which a changed question takes so long; None where none up to `most` does."""
    if most <= 1.0 or seconds(changed(most)) < measured_s:
        return None
    low = 1.0
    high = most
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        if seconds(changed(middle)) >= measured_s:
            high = middle
        else:
            low = middle
    return high


def _priced(asked: PostTraining, phase: str) -> float:
    """Seconds of a phase of another question; none where it cannot be asked."""
    try:
        return predicted_s(stated.stated(asked).plans[0], phase)
    except ClusterwrightError:
        return 0.0
