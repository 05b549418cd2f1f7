"""One step of a pipeline, block by block: which micro-batch each stage works on, and when.

1F1B is of Narayanan et al. 2019 (PipeDream-Flush), its interleaved form of Narayanan et al. 2021 (arXiv 2104.04473), as
Megatron-LM's ``forward_backward_pipelining_with_interleaving`` orders it: warm-up of ``2 (p - i - 1) + (v - 1) p``.

Three schedules compute weight gradients (W) apart from those of inputs (I). ZB-H1, with chunks too, is of Qi et al.
2023 (arXiv 2401.10241, section 2.1), ZB-V of its section 6; DualPipeV is eight steps of deepseek-ai/DualPipe. All three
are ordered as by torch 2.13.0 (distributed/pipelining/schedules.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Pass = Literal["forward", "backward", "weight"]
Step = tuple[Pass, int, int]
"""Pass, micro-batch and chunk, from 0."""
Order = list[tuple[Step, ...]]
"""Passes one behind the other; those in one tuple send their results together."""
FOLDED = ("zbv", "dualpipe-v")
ChunkPass = tuple[Pass, int]
F0: ChunkPass = ("forward", 0)
F1: ChunkPass = ("forward", 1)
B0: ChunkPass = ("backward", 0)
B1: ChunkPass = ("backward", 1)
W0: ChunkPass = ("weight", 0)
W1: ChunkPass = ("weight", 1)


def passes(kind: Pass, stages: int, chunks: int, micro_batches: int) -> Iterator[Step]:
    """Passes of one kind: groups of as many micro-batches as stages, each through one chunk after the other."""
    size = stages if chunks > 1 else 1
    for group in range(0, micro_batches, size):
        for chunk in range(chunks) if kind == "forward" else reversed(range(chunks)):
            yield from ((kind, micro, chunk) for micro in range(group, min(group + size, micro_batches)))


@dataclass(slots=True)
class _Rank:
    """What a rank of a V does, and the next micro-batch of each pass through either of its chunks."""

    order: Order = field(default_factory=list)
    next: dict[ChunkPass, int] = field(default_factory=dict)

    def _step(self, kind: Pass, chunk: int) -> Step:
        micro = self.next.get((kind, chunk), 0)
        self.next[kind, chunk] = micro + 1
        return kind, micro, chunk

    def does(self, *passes: ChunkPass) -> None:
        """Passes one behind the other, sent as they come."""
        self.order += [(self._step(*each),) for each in passes]

    def together(self, *passes: ChunkPass) -> None:
        """Passes whose results are sent together."""
        self.order.append(tuple(self._step(*each) for each in passes))

    def waiting(self, chunk: int) -> int:
        """How many W of a chunk are put off."""
        return self.next.get(("backward", chunk), 0) - self.next.get(("weight", chunk), 0)


def zero_bubble(rank: int, ranks: int, chunks: int, micro_batches: int) -> Order:
    """1F1B with half of its warm-up, ``p - r - 1 + (v - 1) p``; W of r chunks is put off."""
    forward, backward, weight = (
        list(passes(kind, ranks, chunks, micro_batches)) for kind in ("forward", "backward", "weight")
    )
    warm = ranks - rank - 1 + (chunks - 1) * ranks
    order, ahead = forward[:warm], iter(forward[warm:])
    for number, step in enumerate(backward):
        order += [*([one] if (one := next(ahead, None)) else []), step]
        order += weight[number - rank : number - rank + 1] if number >= rank else []
    return [(step,) for step in order + weight[len(weight) - rank :]]


def zbv(rank: int, ranks: int, chunks: int, micro_batches: int) -> Order:
    """ZB-V where F, I and W take as long as each other, of at least ``2 p - 1`` micro-batches."""
    del chunks
    own = _Rank()
    own.does(*[F0] * (2 * (ranks - rank) - 1))
    own.does(*[F1, F0] * rank)
    for _ in range(ranks - rank):
        own.does(F1, B1, W1)
    while own.next.get(F1, 0) < micro_batches:
        if own.next[F0] < micro_batches:
            own.does(F0)
        own.does(B0, W0, F1, B1, W1)
    own.does(*[B0, B1] * rank, *[B0, W0] * (ranks - rank))
    own.does(*[W1] * own.waiting(1), *[W0] * own.waiting(0))
    return own.order


def dualpipe_v(rank: int, ranks: int, chunks: int, micro_batches: int) -> Order:
    """The eight steps of DualPipeV, of at least ``2 p`` micro-batches; a pair's passes are sent together."""
    del chunks
    own, left, put_off = _Rank(), ranks - rank - 1, list[int]()

    def backward(chunk: int, apart: bool) -> None:
        if apart:
            own.does(("backward", chunk))
            put_off.append(chunk)
        else:
            own.together(("backward", chunk), ("weight", chunk))

    def weight() -> None:
        if put_off:
            own.does(("weight", put_off.pop(0)))

    def pair(ahead: int) -> None:
        own.together(("forward", ahead), ("backward", 1 - ahead), ("weight", 1 - ahead))

    own.does(*[F0] * (2 * left), *[F0, F1] * (rank + 1))
    for _ in range(left):
        own.does(B1, W1, F1)
    for number in range(micro_batches - 2 * ranks + rank + 1):
        if number == 0 and left == 0:
            own.does(F0)
            backward(1, apart=False)
        else:
            pair(0)
        pair(1)
    for _ in range(left):
        backward(1, apart=False)
        pair(1)
    for number in range(2 * (rank + 1)):
        backward(1 - number % 2, apart=number > rank)
    for _ in range(left):
        weight()
        backward(0, apart=True)
    for _ in range(rank + 1):
        weight()
    return own.order


ORDERS: dict[str, Callable[[int, int, int, int], Order]] = {
    "zero-bubble": zero_bubble,
    "interleaved-zero-bubble": zero_bubble,
    "zbv": zbv,
    "dualpipe-v": dualpipe_v,
}
"""Schedule -> the passes of a rank, of so many ranks, chunks and micro-batches."""


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
    split = name in ORDERS
    each = {
        "forward": forward,
        "weight": apart,
        "backward": [b - w * split for b, w in zip(backward, apart, strict=True)],
    }
    todo = [
        ORDERS[name](stage, stages, chunks, micro_batches)
        if split
        else [(step,) for step in _order(stage, stages, chunks, micro_batches)]
        for stage in range(stages)
    ]
    folded, last = name in FOLDED, stages * chunks - 1
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
    forward = list(passes("forward", stages, chunks, micro_batches))
    backward = list(passes("backward", stages, chunks, micro_batches))
    order = forward[:warm]
    for one, other in zip(forward[warm:], backward, strict=False):
        order += [one, other]
    return order + backward[len(forward) - warm :]
