"""A pipeline under 1F1B, event by event: the second opinion on what a stage waits for (no model of ours is read).

A transfer begins when both ends have come to it and the link between them is free, one at a time. Who receives waits
for it; who sends goes on computing.
"""

from __future__ import annotations

from collections.abc import Sequence

Step = tuple[str, int]


def program(stages: int, stage: int, micro_batches: int) -> list[Step]:
    """What a stage does, in order, with the micro-batch: ``F``, ``B``, and takes and gives on both sides."""
    warm = min(stages - 1 - stage, micro_batches)
    order = [("F", m) for m in range(warm)]
    for m in range(warm, micro_batches):
        order += [("F", m), ("B", m - warm)]
    order += [("B", m) for m in range(micro_batches - warm, micro_batches)]
    found: list[Step] = []
    for what, m in order:
        ahead = stage < stages - 1 if what == "B" else stage > 0
        after = stage > 0 if what == "B" else stage < stages - 1
        found += [("take" + what, m)] * ahead + [(what, m)] + [("give" + what, m)] * after
    return found


def seconds(forward: Sequence[float], backward: Sequence[float], links: Sequence[float], micro_batches: int) -> float:
    """From the first forward pass to the end of the last backward one; `links` are seconds of a transfer, one way."""
    stages = len(forward)
    todo = [program(stages, i, micro_batches) for i in range(stages)]
    clock, at, free = [0.0] * stages, [0] * stages, [0.0] * (stages - 1)
    came: dict[tuple[int, Step], float] = {}
    ended: dict[tuple[int, Step], float] = {}
    while any(at[i] < len(todo[i]) for i in range(stages)):
        for i in range(stages):
            while at[i] < len(todo[i]):
                what, m = todo[i][at[i]]
                if what in ("F", "B"):
                    clock[i] += forward[i] if what == "F" else backward[i]
                else:
                    transfer = (i if what in ("giveF", "takeB") else i - 1, (what[-1], m))
                    if transfer not in ended:
                        came.setdefault((i, (what, m)), clock[i])
                    if what.startswith("take"):
                        if transfer not in ended:
                            break
                        clock[i] = max(clock[i], ended[transfer])
                at[i] += 1
        ready = []
        for (i, (what, m)), given in came.items():
            other, link = (i + 1, i) if what == "giveF" else (i - 1, i - 1)
            taken = came.get((other, ("take" + what[-1], m)))
            if what.startswith("give") and taken is not None:
                ready.append((max(given, taken, free[link]), link, (what[-1], m)))
        if ready:
            start, link, which = min(ready)
            ended[link, which] = free[link] = start + links[link]
            giver, taker = (link, link + 1) if which[0] == "F" else (link + 1, link)
            del came[giver, ("give" + which[0], which[1])], came[taker, ("take" + which[0], which[1])]
    return max(clock)
