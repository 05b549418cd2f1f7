"""One step of a pipeline, block by block: which micro-batch each stage works on, and when.

1F1B (Narayanan et al. 2019, PipeDream-Flush) and its interleaved form (Narayanan et al. 2021, arXiv 2104.04473, as
Megatron-LM's ``forward_backward_pipelining_with_interleaving`` orders it: warm-up of ``2 (p - i - 1) + (v - 1) p``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Pass = Literal["forward", "backward"]
Key = tuple[Pass, int, int, int]
"""Pass, micro-batch, chunk and stage, from 0."""


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
    forward: Sequence[float], backward: Sequence[float], micro_batches: int, *, chunks: int = 1, transfer: float = 0.0
) -> list[Work]:
    """All blocks of a step, in the order in which they begin.

    `forward` and `backward` are seconds of a micro-batch on each stage, all chunks of it together; `transfer` those
    between two chunks. With several chunks, `micro_batches` are a multiple of the stages.
    """
    stages = len(forward)
    todo = [_order(stage, stages, chunks, micro_batches) for stage in range(stages)]
    clock, done, at = [0.0] * stages, dict[Key, float](), [0] * stages
    found: list[Work] = []
    while any(at[stage] < len(todo[stage]) for stage in range(stages)):
        for stage in range(stages):
            while at[stage] < len(todo[stage]):
                kind, micro, chunk = todo[stage][at[stage]]
                before = _before(kind, micro, chunk, stage, stages, chunks)
                if before is not None and before not in done:
                    break
                came = 0.0 if before is None else done[before] + transfer * (before[3] != stage)
                start = max(clock[stage], came)
                clock[stage] = start + (forward if kind == "forward" else backward)[stage] / chunks
                done[kind, micro, chunk, stage] = clock[stage]
                found.append(Work(stage, kind, micro, chunk, start, clock[stage]))
                at[stage] += 1
    return sorted(found, key=lambda each: (each.start, each.stage))


def _before(kind: Pass, micro: int, chunk: int, stage: int, stages: int, chunks: int) -> Key | None:
    """The pass whose result another one takes in; None of the first."""
    if kind == "forward":
        if stage > 0:
            return "forward", micro, chunk, stage - 1
        return None if chunk == 0 else ("forward", micro, chunk - 1, stages - 1)
    if stage < stages - 1:
        return "backward", micro, chunk, stage + 1
    if chunk < chunks - 1:
        return "backward", micro, chunk + 1, 0
    return "forward", micro, chunk, stage


def _order(stage: int, stages: int, chunks: int, micro_batches: int) -> list[tuple[Pass, int, int]]:
    """What a stage does in turn: warm-up, one forward and one backward pass by turns, the rest backward."""
    ahead = stages - stage - 1
    warm = min(ahead if chunks == 1 else 2 * ahead + (chunks - 1) * stages, micro_batches * chunks)
    forward = list(_passes("forward", stages, chunks, micro_batches))
    backward = list(_passes("backward", stages, chunks, micro_batches))
    order = forward[:warm]
    for one, other in zip(forward[warm:], backward, strict=False):
        order += [one, other]
    return order + backward[len(forward) - warm :]


def _passes(kind: Pass, stages: int, chunks: int, micro_batches: int) -> Iterator[tuple[Pass, int, int]]:
    """Passes of one kind: groups of as many micro-batches as stages, each through one chunk after the other."""
    size = stages if chunks > 1 else 1
    for group in range(0, micro_batches, size):
        for chunk in range(chunks) if kind == "forward" else reversed(range(chunks)):
            yield from ((kind, micro, chunk) for micro in range(group, min(group + size, micro_batches)))
