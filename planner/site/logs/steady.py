"""Which logged steps count, by rules that are stated: the median of what is left, its spread, and how many there are.

1. Lines of several ranks about one step are one: the slowest, which the others wait for.
2. Batches of different sizes (a ramp-up) are different measurements. So are regimes: where the step time changes for
   good by :data:`CHANGED`, what is before and what is behind it.
3. The first line is left out, and every one after it that takes more than :data:`SLOW` times the median of the second
   half: compilation, allocation, caches that fill.
4. Steps before which an evaluation or a checkpoint was reported are left out, unless that leaves too few.
5. Of the rest, steps beyond :data:`FAR` quartile ranges (and :data:`SLOW`) above the median are stragglers.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from planner.site.logs.records import LoggedStep, Steady

FEWEST = 3
"""Lines that must be left: of fewer, no spread says whether they agree."""
SLOW = 1.1
"""Times the median from which a step is called slow: steady steps of one configuration are within some 3 %."""
FAR = 3.0
"""Quartile ranges: in normally distributed times one step of 10,000 lies beyond (Tukey's outer fence)."""
CHANGED = 1.08
"""Times by which medians of two regimes differ at least."""
SEPARATE = 0.9
"""Share of each regime's lines that lie on its own side of a time between the two."""
UNSTEADY = 0.1
"""Spread above which slow lines at the beginning are warm-up and no regime."""
SHORTEST = 8
"""Lines of a regime at least, and a tenth of all."""
KINDS = 1.05
"""Times by which two kinds of steps differ at least: of less the median of all is within 2.5 % of either."""
FEWEST_OF_A_KIND = 2
"""Lines of one kind at least, and a quarter of all, for times to be of two kinds."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The lines of one regime that count, by their places."""

    counted: Sequence[int]
    left_out: Mapping[str, Sequence[int]]
    """Reason -> places of those that do not count."""
    regimes: int
    first: int
    last: int
    """Places of the regime's first line and its last."""


def steady(steps: Sequence[LoggedStep]) -> list[Steady]:
    """What the steps of a run say, for each batch and regime; nothing of one with fewer than :data:`FEWEST` lines."""
    by_batch: dict[int | None, list[LoggedStep]] = {}
    merged = _ranks_merged(steps)
    for step in merged:
        by_batch.setdefault(step.batch, []).append(step)
    return [one for batch in by_batch.values() for one in _of_one(batch, batch[0] is merged[0])]


def _of_one(steps: Sequence[LoggedStep], first: bool) -> Iterator[Steady]:
    times = [step.seconds for step in steps]
    before = 0.0
    for selection in selections(times, [step.disturbed for step in steps], first=first):
        counted = [times[place] for place in selection.counted]
        middle = median(counted)
        yield Steady(
            per=steps[0].per,
            batch=steps[0].batch,
            seconds=middle,
            spread=spread(counted),
            steps=len(counted),
            left_out={reason: len(places) for reason, places in selection.left_out.items()},
            rounding=median(steps[place].rounding for place in selection.counted),
            regime=regime_name(selection, [step.step for step in steps]),
            slower=0.0 < before < middle,
            mixed=of_two_kinds(counted),
        )
        before = middle


def regime_name(selection: Selection, numbers: Sequence[int]) -> str:
    """``steps 1 to 400``; empty where there is one regime."""
    if selection.regimes == 1:
        return ""
    return f"steps {numbers[selection.first]:,} to {numbers[selection.last]:,}"


def selections(times: Sequence[float], disturbed: Sequence[bool], *, first: bool) -> Iterator[Selection]:
    """The lines that count, regime after regime.

    Args:
        times: Seconds of each line.
        disturbed: Whether an evaluation or a checkpoint was reported before it.
        first: Whether the first line is the run's own.
    """
    begin = 1 if first else 0
    cuts = [begin, *(begin + cut for cut in _cuts(times[begin:])), len(times)]
    if first and len(cuts) > 2 and _warms_up(times[begin : cuts[1]], times[cuts[1] : cuts[2]]):
        cuts = cuts[1:]
        begin = cuts[0]
    for start, end in pairwise(cuts):
        places = list(range(start, end))
        warm = _warm(places, times) if first and start == begin else places
        calm = [place for place in warm if not disturbed[place]]
        calm = calm if len(calm) >= FEWEST else warm
        if len(calm) < FEWEST:
            continue
        counted = _without_stragglers(calm, times)
        left_out = {
            "warm-up": [*range(begin if start == begin else 0), *_without(places, warm)],
            "next to an evaluation or a checkpoint": _without(warm, calm),
            "straggling": _without(calm, counted),
        }
        left_out = {reason: leaves for reason, leaves in left_out.items() if leaves}
        yield Selection(counted, left_out, len(cuts) - 1, start, end - 1)


def _warms_up(before: Sequence[float], behind: Sequence[float]) -> bool:
    """Whether the first lines are slower than those behind them, and no regime of their own: they do not agree."""
    return median(before) > median(behind) and spread(before) > UNSTEADY


def _without(places: Sequence[int], kept: Sequence[int]) -> list[int]:
    """The places that are not kept."""
    return sorted(set(places) - set(kept))


def _cuts(times: Sequence[float]) -> list[int]:
    """The places at which the step time changes for good."""
    shortest = max(SHORTEST, len(times) // 10)
    if len(times) < 2 * shortest or (cut := _cut(times, shortest)) is None:
        return []
    return [*_cuts(times[:cut]), cut, *(cut + later for later in _cuts(times[cut:]))]


def _cut(times: Sequence[float], shortest: int) -> int | None:
    """The place before and behind which ranks of times differ most, if the two sides are regimes of their own.

    Ranks, as in the test of Mann and Whitney: single slow steps move them little. Equal times have one rank, the mean
    of theirs: else times of whole milliseconds would seem to grow.
    """
    order = sorted(times)
    rank = [(bisect_left(order, time) + bisect_right(order, time) - 1) / 2 for time in times]
    count = len(times)
    sums = 0.0
    best = 0.0
    cut = 0
    for place in range(1, count - shortest + 1):
        sums += rank[place - 1]
        apart = abs(sums - place * (count - 1) / 2) / (place * (count - place)) ** 0.5
        if place >= shortest and apart > best:
            best = apart
            cut = place
    return cut if cut and _differ(times[:cut], times[cut:]) else None


def _differ(before: Sequence[float], behind: Sequence[float]) -> bool:
    low, high = sorted((sorted(before), sorted(behind)), key=median)
    if median(high) < CHANGED * median(low):
        return False
    return low[math.ceil(SEPARATE * len(low)) - 1] < high[math.floor((1.0 - SEPARATE) * len(high))]


def _warm(places: Sequence[int], times: Sequence[float]) -> list[int]:
    """The places behind the slow ones with which a run begins."""
    usual = median([times[place] for place in places][(len(places)) // 2 :]) if places else 0.0
    begin = next((at for at, place in enumerate(places) if times[place] <= SLOW * usual), len(places))
    return list(places[begin:])


def _without_stragglers(places: Sequence[int], times: Sequence[float]) -> list[int]:
    values = [times[place] for place in places]
    low, high = quantiles(values, n=4)[::2]
    limit = max(SLOW * median(values), high + FAR * (high - low))
    return [place for place in places if times[place] <= limit]


def of_two_kinds(times: Sequence[float], rounding: float = 0.0) -> bool:
    """Whether times lie in two groups, with a gap between that is wider than the rest of the way from one to the other.

    Each has a quarter of the times or more: steps of two jobs that take turns, or of two sorts. No median is of either.

    `rounding` is the share of a time that lies between two that a clock can show.
    """
    order = sorted(times)
    fewest = max(FEWEST_OF_A_KIND, len(order) // 4)
    if len(order) < 2 * fewest:
        return False
    cut = max(range(fewest, len(order) - fewest + 1), key=lambda place: order[place] - order[place - 1])
    low = median(order[:cut])
    high = median(order[cut:])
    return high > (KINDS + rounding) * low and order[cut] - order[cut - 1] > (high - low) / 2.0


def spread(times: Sequence[float]) -> float:
    """The interquartile range over the median; 0 of a single time."""
    if len(times) < 2:
        return 0.0
    low, high = quantiles(times, n=4)[::2]
    return (high - low) / median(times)


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
        for done in sorted(window)[:-OPEN]:
            merged.append(window.pop(done))
    return merged + [window[at] for at in sorted(window)]


OPEN = 4
"""Steps of which lines of late ranks may still come."""
