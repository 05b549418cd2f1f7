"""Which logged steps count, by rules that are stated: the median of what is left, its spread, and how many there are.

1. Lines of several ranks about one step are one: the slowest, which the others wait for.
2. The first line is left out, and every one after it that takes more than :data:`SLOW` times the median of the second
   half: compilation, allocation, caches that fill.
3. Steps before which an evaluation or a checkpoint was reported are left out, unless that leaves too few.
4. Of the rest, steps beyond :data:`FAR` quartile ranges (and :data:`SLOW`) above the median are stragglers.
5. Batches of different sizes (a ramp-up) are different measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from planner.site.logs.records import LoggedStep, Steady

FEWEST = 3
"""Lines that must be left: of fewer, no spread says whether they agree."""
SLOW = 1.1
"""Times the median from which a step is called slow: steady steps of one configuration are within some 3 %."""
FAR = 3.0
"""Quartile ranges: in normally distributed times one step of 10,000 lies beyond (Tukey's outer fence)."""


def steady(steps: Sequence[LoggedStep]) -> list[Steady]:
    """What the steps of a run say, for each size of batch; nothing of a batch with fewer than :data:`FEWEST`."""
    by_batch: dict[int | None, list[LoggedStep]] = {}
    merged = _ranks_merged(steps)
    for step in merged:
        by_batch.setdefault(step.batch, []).append(step)
    summaries = (_of_one(batch, step, step[0] is merged[0]) for batch, step in by_batch.items())
    return [step for step in summaries if step is not None]


def _ranks_merged(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """One line for each step, though ranks may print theirs later than another prints the next. A step that was done
    again, from a checkpoint, counts twice.
    """
    window: dict[int, LoggedStep] = {}
    merged: list[LoggedStep] = []
    newest = -1
    for step in steps:
        if step.step <= newest and step.step not in window:
            merged += [window[at] for at in sorted(window)]  # a restart: what was open is done
            window = {}
            newest = -1
        known = window.get(step.step)
        window[step.step] = step if known is None or step.seconds > known.seconds else known
        newest = max(newest, step.step)
        for done in sorted(window)[:-_OPEN]:
            merged.append(window.pop(done))
    return merged + [window[at] for at in sorted(window)]


_OPEN = 4
"""Steps of which lines of late ranks may still come."""


def _of_one(batch: int | None, steps: Sequence[LoggedStep], first: bool) -> Steady | None:
    left_out: dict[str, int] = {}
    kept = _warm(steps) if first else list(steps)
    if dropped := len(steps) - len(kept):
        left_out["warm-up"] = dropped
    calm = [step for step in kept if not step.disturbed]
    if FEWEST <= len(calm) < len(kept):
        left_out["next to an evaluation or a checkpoint"] = len(kept) - len(calm)
        kept = calm
    if len(kept) < FEWEST:
        return None
    times = [step.seconds for step in kept]
    middle, low, high = median(times), *quantiles(times, n=4)[::2]
    limit = max(SLOW * middle, high + FAR * (high - low))
    counted = [time for time in times if time <= limit]
    if stragglers := len(times) - len(counted):
        left_out["straggling"] = stragglers
    low, high = quantiles(counted, n=4)[::2]
    middle = median(counted)
    return Steady(
        per=kept[0].per,
        batch=batch,
        median=middle,
        spread=(high - low) / middle,
        steps=len(counted),
        left_out=left_out,
    )


def _warm(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """The steps behind the first, and behind the slow ones that follow it."""
    usual = median(step.seconds for step in steps[len(steps) // 2 :])
    first = next((at for at, each in enumerate(steps) if at and each.seconds <= SLOW * usual), len(steps))
    return list(steps[first:])
