"""The step's time, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.schema.plan import OwnRun, OwnRunsSection, Pool
from planner.verify.finding import TOLERANCE, Check, Claim, unless_same
from planner.verify.model import head, tower_work

LABELS = {"model", "generation", "precision", "recompute"}
COUNTS = {"accelerators", "tp", "pp", "cp", "ep", "micro"}
"""What plans differ in, as far as their errors do."""
SOLVED = 1e-6
"""Relative: how exactly weights solve their equations."""


def own_runs_are_near(c: Claim) -> Iterator[str]:
    """``near_factor = exp(near^2 sum w_i exp(-d_i))``; passes without own runs, times both factors, take as long."""
    section = c.plan.prediction.own_runs
    if section is None:
        return
    if section.other.keys() != LABELS or section.doubled.keys() != COUNTS:
        yield f"own_runs states distances of {', '.join([*section.other, *section.doubled])}"
        return
    plan_run = _stands(c, section)
    if section.model != plan_run.model:
        yield f"own_runs.model is {section.model}, and the plan's block {plan_run.model}"
    shift = section.near**2 * sum(run.weight * _closeness(section, plan_run, run) for run in section.runs)
    yield from unless_same("own_runs.near_factor", section.near_factor, math.exp(shift))
    parts = c.plan.prediction.breakdown
    fixed = parts.get("optimizer", 0.0) + parts.get("overhead", 0.0)
    passes = (section.without_s - fixed) * section.shared_factor * section.near_factor
    yield from unless_same("the step with own runs", c.plan.predicted_s, passes + fixed)


def own_runs_are_weighed(c: Claim) -> Iterator[str]:
    """``sum_j (site^2 + near^2 exp(-d_ij)) w_j + scatter_i^2 w_i = residual_i``."""
    section = c.plan.prediction.own_runs
    if section is None or section.other.keys() != LABELS or section.doubled.keys() != COUNTS:
        return
    for number, run in enumerate(section.runs):
        derived = sum(
            other.weight * (section.site**2 + section.near**2 * _closeness(section, run, other))
            for other in section.runs
        )
        derived += run.scatter**2 * run.weight
        if not math.isclose(derived, run.residual, rel_tol=SOLVED, abs_tol=SOLVED**2):
            yield f"own_runs.runs.{number}: its residual is {run.residual:g}, and {derived:g} follows from the weights"


def _stands(c: Claim, section: OwnRunsSection) -> OwnRun:
    """Where the plan stands among the runs."""
    p = c.plan.parallelism
    shape = c.model
    return OwnRun(
        model=f"{shape.hidden}x{shape.ffn}x{shape.heads}" + (f"x{shape.moe.experts}" if shape.moe else ""),
        generation=section.generation,
        precision=c.plan.precision,
        recompute=c.plan.recompute.policy,
        accelerators=c.plan.cluster.accelerators,
        tp=p.tp,
        pp=p.pp,
        cp=p.cp,
        ep=p.ep,
        micro=c.plan.batch.micro,
        residual=0.0,
        scatter=0.0,
        weight=0.0,
    )


def _closeness(section: OwnRunsSection, one: OwnRun, other: OwnRun) -> float:
    """``exp(-d)``, ``d = sum_k other_k [a_k != b_k] + sum_k doubled_k |log2(a_k / b_k)|``: 1 (the same) to 0."""
    far = sum(distance for name, distance in section.other.items() if getattr(one, name) != getattr(other, name))
    far += sum(
        distance * abs(math.log2(getattr(one, n) / getattr(other, n))) for n, distance in section.doubled.items()
    )
    return math.exp(-far)


OWN_RUNS_CHECKS: tuple[Check, ...] = (own_runs_are_near, own_runs_are_weighed)


PEAK_OF = {
    **{same: same for same in ("bf16", "fp16", "fp32", "tf32")},
    **dict.fromkeys(("fp8", "fp8-delayed", "fp8-blockwise", "mxfp8"), "fp8"),
    **dict.fromkeys(("mxfp4", "nvfp4"), "fp4"),
}
"""Precision -> the data type whose matrix rate it runs at."""


def time_adds_up(c: Claim) -> Iterator[str]:
    """``step_time = sum(breakdown)``, all causes at least 0; of a measured plan the predicted step time."""
    prediction, measured = c.plan.prediction, c.plan.measured
    predicted = ("measured.predicted_s", measured.predicted_s) if measured else ("step_time_s", prediction.step_time_s)
    yield from unless_same(*predicted, sum(prediction.breakdown.values()))
    yield from (f"{cause} takes {seconds:g} s" for cause, seconds in prediction.breakdown.items() if seconds < 0)


def measurement_is_the_step_time(c: Claim) -> Iterator[str]:
    """The step time of a plan that was run is the measurement, and its interval ``exp(+- half_width)`` around it."""
    prediction, measured = c.plan.prediction, c.plan.measured
    if measured is None:
        return
    yield from unless_same("step_time_s", prediction.step_time_s, measured.step_time_s)
    if interval := prediction.intervals.get("step_time_s"):
        yield from unless_same(
            "the interval's low end", interval.low, measured.step_time_s * math.exp(-measured.half_width)
        )
        yield from unless_same(
            "the interval's high end", interval.high, measured.step_time_s * math.exp(measured.half_width)
        )


def causes_have_a_reason(c: Claim) -> Iterator[str]:
    """Communication over a group of one rank, a bubble without stages and recomputing nothing take no time; weights of
    one rank are fetched from host memory.
    """
    p, prediction = c.plan.parallelism, c.plan.prediction
    copies_of_experts = p.tp * p.cp * p.dp // (p.ep * p.etp) if c.model.moe else 1
    reasons = {
        "tp": p.tp > 1,
        "cp": p.cp > 1,
        "ep": p.ep * p.etp > 1,
        "dp": p.dp * p.cp > 1 or copies_of_experts > 1 or c.plan.offload.get("weights", False),
        "p2p": p.pp > 1,
        "bubble": p.pp > 1,
        "recompute": c.plan.recompute.policy != "none",
        "offload": bool(c.plan.offloaded and c.plan.offloaded.activations),
    }
    for cause, seconds in prediction.breakdown.items():
        if not reasons.get(cause, True) and seconds > TOLERANCE * prediction.step_time_s:
            yield f"{cause} takes {seconds:g} s, and there is nothing that would take it"


def tokens_follow_from_time(c: Claim) -> Iterator[str]:
    """``tokens_per_s = batch sequence / step_time``."""
    prediction = c.plan.prediction
    yield from unless_same("tokens_per_s", prediction.tokens_per_s, c.step_tokens / prediction.step_time_s)


def flops_are_counted(c: Claim) -> Iterator[str]:
    """``6 tokens (products + scores)``: forward and twice that backward, two FLOPs a multiply-add, attention in full.

    For the GPT block ``72 B L s h^2 (1 + s / (6 h) + V / (12 h L))`` (Narayanan et al. 2021, arXiv 2104.04473). What
    fine-tuning leaves out of that or adds to it: :func:`training_flops`; a tower's backward pass is a
    trained one's alone.
    """
    per_token = c.work
    derived = c.step_tokens * training_flops(c, per_token.scores, per_token.states)
    passes = 3.0 if c.model.tower and c.model.tower.trained else 1.0
    derived += 2.0 * passes * c.step_tokens / c.plan.workload.sequence * tower_work(c.model)
    yield from unless_same("model_flops", c.plan.prediction.model_flops, derived)


def training_flops(c: Claim, scores: float, states: float) -> float:
    """FLOPs of a token, with so many multiply-adds of its scores and states forward.

    Weights that adapters freeze have no gradient: ``4 products``. Where the last n of L blocks are trained alone, those
    before have a forward pass only, ``(2 + 4 n / L) products``, and the head no weight gradient. DPO runs the reference
    forward, too: 2 more of all.
    """
    w = c.plan.workload
    kind = w.method["kind"]
    ends = head(c.model) * (1 + (w.mtp_layers or 0))
    products = c.work.products - ends
    back = int(w.method["layers"]) / c.model.layers if kind == "freeze" else 1.0
    of_layers = (2.0 + back * (2.0 if kind == "lora" else 4.0)) * products
    of_head = (4.0 if kind in ("lora", "freeze") else 6.0) * ends
    of_rest = (2.0 + 4.0 * back) * (scores + states)
    reference = 2.0 * (products + ends + scores + states) if w.task == "dpo" else 0.0
    return of_layers + of_head + of_rest + reference


def _peak(pool: Pool, precision: str) -> float:
    """The dense peak of the precision trained in."""
    return pool.peak_flops.get(PEAK_OF.get(precision, ""), 0.0)


def _all(c: Claim, peaks: list[float]) -> float:
    """FLOP/s of the whole cluster, given each pool's peak."""
    pools = c.plan.cluster.pools
    return sum(pool.count * pool.accelerators_per_node * peak for pool, peak in zip(pools, peaks, strict=True))


def mfu_follows_from_time(c: Claim) -> Iterator[str]:
    """``mfu = model_flops / (step_time accelerators peak)`` over the dense peak of the precision."""
    prediction = c.plan.prediction
    peak = _all(c, [_peak(pool, c.plan.precision) for pool in c.plan.cluster.pools])
    if peak <= 0:
        yield f"the accelerators have no peak in {c.plan.precision}"
        return
    yield from unless_same("mfu", prediction.mfu, prediction.model_flops / prediction.step_time_s / peak)


def precision_exists(c: Claim) -> Iterator[str]:
    """Every pool's accelerator has a matrix rate in the plan's precision."""
    if c.plan.precision not in PEAK_OF:
        yield f"no precision {c.plan.precision}"
        return
    for pool in c.plan.cluster.pools:
        if pool.peak_flops.get(PEAK_OF[c.plan.precision], 0.0) <= 0:
            yield f"{pool.accelerator} does not compute in {c.plan.precision}"


def hardware_is_not_beaten(c: Claim) -> Iterator[str]:
    """``step_time >= least FLOPs / peak`` of the precision, an older release's too: an MFU is above 1 only by scores
    that no kernel computes.

    The least: LoRA computes no gradients of the base weights (a third less in products), and a kernel may skip what a
    causal mask hides (half of the scores); of a run that was measured, what the borders of documents hide (all scores).
    """
    older = c.plan.runtime.older
    seconds = min(c.plan.prediction.step_time_s, (older and older.step_time_s) or math.inf)
    flops = least_flops(c, scores=c.plan.measured is None)
    peak = peak_rate(c)
    if flops > seconds * peak * (1 + TOLERANCE):
        yield f"{flops:.4g} FLOPs in {seconds:g} s; the peak in {c.plan.precision} is {peak:.4g} FLOP/s"


def least_flops(c: Claim, *, scores: bool) -> float:
    """FLOPs of a step that no kernel can leave out; without `scores`, of attention's none."""
    per_token = c.work
    seen = (0.5 if c.model.causal else 1.0) * per_token.scores if scores else 0.0
    return c.step_tokens * training_flops(c, seen, 0.5 * per_token.states if scores else 0.0)


def peak_rate(c: Claim) -> float:
    """FLOP/s of the whole cluster in the plan's precision."""
    return _all(c, [_peak(pool, c.plan.precision) for pool in c.plan.cluster.pools])


def older_release_is_told(c: Claim) -> Iterator[str]:
    """It is another release than the plan's; it has a time, at which the hardware is not beaten, or lacks something."""
    runtime = c.plan.runtime
    if (old := runtime.older) is None:
        return
    if old.release == runtime.release:
        yield f"the older release is {old.release}, the plan's own"
    if (old.step_time_s is None) != bool(old.lacks):
        yield f"release {old.release} lacks {', '.join(old.lacks) or 'nothing'} and takes {old.step_time_s} s"


def texts_are_all_trained_on(c: Claim) -> Iterator[str]:
    """As many as fill their share of a step's positions; in order of length they take no longer than padded."""
    texts = c.plan.workload.texts
    batches = c.plan.prediction.text_batches
    if texts and batches:
        yield from unless_same(
            "per_step", batches.per_step, batches.filled * c.step_tokens * len(texts) / math.fsum(texts)
        )
        if not 0 < batches.filled <= 1 or not 0 < batches.sorted_s <= batches.padded_s * (1 + TOLERANCE):
            times = f"{batches.sorted_s:g} s sorted, {batches.padded_s:g} s padded"
            yield f"{batches.filled:g} of positions is text; {times}"


def intervals_are_ordered(c: Claim) -> Iterator[str]:
    """``low <= high``, and the figure of that name lies between."""
    for name, interval in c.plan.prediction.intervals.items():
        total = c.plan.prediction.memory.total_bytes
        value = total if name == "memory_bytes" else getattr(c.plan.prediction, name, interval.low)
        if not interval.low <= value <= interval.high:
            yield f"{name} {value:g} in {interval.low:g}..{interval.high:g}"


def measured_times_are_told(c: Claim) -> Iterator[str]:
    """Each profile of layer times among the inputs stands, by its hash, in an assumption on layer times."""
    reasons = " ".join(assumption.why for assumption in c.plan.assumptions if assumption.what == "layer times")
    for name, digest in c.plan.generator.inputs.items():
        if name.startswith("profile ") and digest not in reasons:
            yield f"{name} is an input, but no assumption states that layer times were measured"


CHECKS: tuple[Check, ...] = (
    time_adds_up,
    measurement_is_the_step_time,
    causes_have_a_reason,
    tokens_follow_from_time,
    flops_are_counted,
    mfu_follows_from_time,
    precision_exists,
    hardware_is_not_beaten,
    older_release_is_told,
    texts_are_all_trained_on,
    intervals_are_ordered,
    measured_times_are_told,
)
