"""The fewest accelerators of a kind on which a step of post-training fits, or is as short as wanted.

Counts are doubled until one is enough, then halved between that and the last that is not, so that the next smaller
count was tried, too. Below the first lie counts that no placement can reach: too little memory for the weights, or,
for a step time, less arithmetic at peak than the updates have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from planner.base.errors import NoAnswer
from planner.models.parameters import parameters
from planner.rl import run
from planner.rl.problem import PostTraining
from planner.schema.choices import Placement
from planner.schema.rl import RLPlan
from planner.schema.rl_fit import FittingStep

Question = Callable[[int], PostTraining]
"""The question on so many accelerators of the kind."""


def counts(unit: int, most: int) -> Iterator[int]:
    """Counts of accelerators that may be asked for: powers of two of a node of `unit`, then whole nodes."""
    count = 1
    while count < min(unit, most + 1):
        yield count
        count *= 2
    yield from range(unit, most + 1, unit)


def fewest(ascending: Sequence[int], enough: Callable[[int], bool]) -> int | None:
    """Place of the first of ascending counts that is enough, if more never are too few; None where none is."""
    low = -1
    high = 0
    step = 1
    while not enough(ascending[high]):
        low = high
        if high == len(ascending) - 1:
            return None
        high = min(high + step, len(ascending) - 1)
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(ascending[middle]) else (middle, high)
    return high


def fitting(question: Question, unit: int, most: int, step_s: float | None) -> FittingStep | None:
    """The fewest of a kind with the best step there; None where no count up to `most` does.

    Args:
        question: What is asked, by accelerators of the kind.
        unit: Accelerators of one node.
        most: Accelerators that are tried together.
        step_s: Longest step that is wanted.

    Raises:
        WrongQuestion: a value that cannot be.
    """
    answers: dict[int, RLPlan | None] = {}

    def best(count: int) -> RLPlan | None:
        if count not in answers:
            answers[count] = _best(question(count))
        return answers[count]

    work = question(1).work
    memory = question(1).machines[0].cluster.accelerator.memory
    able = [count for count in counts(unit, most) if count * memory >= 2.0 * parameters(work.model).total]
    if not able:
        return None
    place = fewest(able, lambda count: _holds(question(count)))
    if place is None:
        return None
    holds_from = able[place]
    if step_s is not None:
        wanted = step_s
        tried = [count for count in able[place:] if _least_seconds(question(count)) <= wanted]
        if not tried:
            return None

        def short(count: int) -> bool:
            plan = best(count)
            return plan is not None and plan.step_s <= wanted

        first = fewest(tried, short)
        if first is None:
            return None
        place = able.index(tried[first])
    plan = best(able[place])
    assert plan is not None, "a step that fits has a plan"
    below = able[place - 1] if place else None
    return _described(question(able[place]), plan, holds_from, below)


def _best(asked: PostTraining) -> RLPlan | None:
    """The best plan; None where nothing fits."""
    try:
        return run.plan(asked).plans[0]
    except NoAnswer:
        return None


def _holds(asked: PostTraining) -> bool:
    """Whether any placement fits. Roles that take turns have most memory each, so they are tried first."""
    if "colocated" in asked.tried and _best(replace(asked, tried={"colocated": (0.0,)})):
        return True
    apart: dict[Placement, tuple[float, ...]] = {
        name: values for name, values in asked.tried.items() if name != "colocated"
    }
    return bool(apart) and _best(replace(asked, tried=apart)) is not None


def _least_seconds(asked: PostTraining) -> float:
    """Seconds that no step is below: the updates' products by weights, 6 a parameter, at the accelerators' highest
    rate; embeddings are looked up and left out.
    """
    cluster = asked.machines[0].cluster
    counted = parameters(asked.work.model)
    products = max(counted.active - counted.embedding, 0)
    rates = cluster.accelerator.peak
    wide = asked.training.precision is None
    rate = max(value for name, value in rates.items() if not wide or name in ("bf16", "fp16", "tf32", "fp32"))
    return 6.0 * products * asked.work.tokens / (cluster.accelerators * rate)


def _described(asked: PostTraining, plan: RLPlan, holds_from: int, below: int | None) -> FittingStep:
    cluster = asked.machines[0].cluster
    together = plan.placement == "colocated"
    rolls_out = sum(side.accelerators for side in plan.rollout)
    return FittingStep(
        accelerator=cluster.accelerator.id,
        accelerators=cluster.accelerators,
        node=cluster.node.id,
        nodes=cluster.count,
        holds_from=holds_from,
        below=below,
        placement=plan.placement,
        staleness=plan.staleness,
        trains=plan.trainer.accelerators,
        rolls_out=plan.trainer.accelerators if together else rolls_out,
        step_s=plan.step_s,
        step_low_s=plan.step_low_s,
        step_high_s=plan.step_high_s,
        tokens_per_s=plan.tokens_per_s,
        memory_bytes=plan.trainer.memory_bytes,
        capacity_bytes=plan.trainer.capacity_bytes,
        usd_per_step=plan.usd_per_step,
        usd=plan.usd,
        days=plan.days,
    )
