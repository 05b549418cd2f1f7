"""One step of a pipeline, block by block: which micro-batch each stage works on, and when.

1F1B (Narayanan et al. 2019, PipeDream-Flush) and its interleaved form (Narayanan et al. 2021, arXiv 2104.04473, as
Megatron-LM's ``forward_backward_pipelining_with_interleaving`` orders it: warm-up of ``2 (p - i - 1) + (v - 1) p``);
those with weight gradients apart as :mod:`planner.report.split_schedules` orders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.report import split_schedules
from planner.report.split_schedules import Pass, Step

Key = tuple[Pass, int, int]
"""Pass, micro-batch and chunk of the model, from 0."""


@dataclass(frozen=True, slots=True)
class Work:
    """A pass of one micro-batch through one chunk of one stage. Seconds from the start of the step."""

    stage: int
    kind: Pass
    micro_batch: int
    chunk: int
    start: float
    end: float


def run(
    forward: Sequence[float],
    backward: Sequence[float],
    micro_batches: int,
    *,
    chunks: int = 1,
    transfer: float = 0.0,
    weight: Sequence[float] | None = None,
    name: str = "1f1b",
) -> list[Work]:
    """All blocks of a step, in the order in which they begin.

    `forward` and `backward` are seconds of a micro-batch on each stage, all chunks of it together; `transfer` those
    between two chunks. With several chunks, `micro_batches` are a multiple of the stages. `weight` is of the backward
    passes what a schedule that does so, by its name in a plan, computes apart; a rank is a stage here.
    """
    stages, apart = len(forward), weight or [0.0] * len(forward)
    split = name in split_schedules.ORDERS
    each = {
        "forward": forward,
        "weight": apart,
        "backward": [b - w * split for b, w in zip(backward, apart, strict=True)],
    }
    todo = [
        split_schedules.ORDERS[name](stage, stages, chunks, micro_batches)
        if split
        else [(step,) for step in _order(stage, stages, chunks, micro_batches)]
        for stage in range(stages)
    ]
    folded, last = name in split_schedules.FOLDED, stages * chunks - 1
    clock, done, at = [0.0] * stages, dict[Key, tuple[float, int]](), [0] * stages
    found: list[Work] = []

    def part(stage: int, chunk: int) -> int:
        return 2 * stages - 1 - stage if folded and chunk else chunk * stages + stage

    def came(stage: int, step: Step) -> float | None:
        """When what a pass takes in is there; None before."""
        before = _before(*step[:2], part(stage, step[2]), last)
        if before is None:
            return 0.0
        when, where = done.get(before, (None, stage))
        return None if when is None else when + transfer * (where != stage)

    def do(stage: int) -> bool:
        """The next passes of a stage, whose results leave together; False where they cannot begin."""
        steps, made = todo[stage][at[stage]], list[Work]()
        for step in steps:
            kind, micro, chunk = step
            ready = clock[stage] if kind == "weight" and made else came(stage, step)
            if ready is None:
                return False
            start = max(made[-1].end if made else clock[stage], ready)
            made.append(Work(stage, kind, micro, chunk, start, start + each[kind][stage] / chunks))
        clock[stage] = made[-1].end
        done.update({(work.kind, work.micro_batch, part(stage, work.chunk)): (clock[stage], stage) for work in made})
        found.extend(made)
        at[stage] += 1
        return True

    while any(at[stage] < len(todo[stage]) for stage in range(stages)):
        for stage in range(stages):
            while at[stage] < len(todo[stage]) and do(stage):
                pass
    return sorted(found, key=lambda work: (work.start, work.stage))


def _before(kind: Pass, micro: int, part: int, last: int) -> Key | None:
    """The pass whose result another one takes in; None of the first. `part` is the chunk's place in the model."""
    if kind == "weight":
        return "backward", micro, part
    if kind == "forward":
        return ("forward", micro, part - 1) if part else None
    return ("backward", micro, part + 1) if part < last else ("forward", micro, part)


def _order(stage: int, stages: int, chunks: int, micro_batches: int) -> list[Step]:
    """What a stage does in turn: warm-up, one forward and one backward pass by turns, the rest backward."""
    ahead = stages - stage - 1
    warm = min(ahead if chunks == 1 else 2 * ahead + (chunks - 1) * stages, micro_batches * chunks)
    forward = list(split_schedules.passes("forward", stages, chunks, micro_batches))
    backward = list(split_schedules.passes("backward", stages, chunks, micro_batches))
    order = forward[:warm]
    for one, other in zip(forward[warm:], backward, strict=False):
        order += [one, other]
    return order + backward[len(forward) - warm :]
