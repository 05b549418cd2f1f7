"""Step times of lines that say how much time has passed: bars of progress, dates.

A bar prints whole seconds, rounded down, and its own seconds of a step are a moving average, which follows the last
steps. So differences of elapsed time are taken, over blocks that are long next to what rounding loses, and which blocks
count follows the rules of steps (:mod:`planner.site.logs.steady`). The mean of those that count is the step time.

Symbols: ``T`` seconds that count, ``m`` pieces of them that lie together, ``r`` resolution of the clock. Each piece has
lost ``r`` at most: a normal error of ``0.41 r`` (of two uniform ones at its ends). So ``r m^(1/2) / T`` is the share
that rounding may have lost, at most of one piece, at 2.4 standard deviations of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from statistics import fmean, median

from planner.site.logs.records import Steady, Tick
from planner.site.logs.steady import (
    CHANGED,
    FAR,
    FEWEST,
    Selection,
    of_two_kinds,
    regime_name,
    selections,
    spread,
)  # fmt: skip

BLOCK = 10.0
"""Resolutions of the clock that a block lasts at least: rounding moves it by some 4 %."""
LONG_BLOCK = 30.0
"""Resolutions that a block lasts at most where there are more than :data:`BLOCKS`: rounding moves it by some 1.4 %."""
DRIFT = 1.06
"""Times by which the ends of a regime may differ: its mean is then 3 % off at most at either."""
BLOCKS = 48
"""Blocks of a run from which on they need not be short."""
LOST = 1.0
"""Resolutions that a piece of time has lost at most."""
MOST_WRITERS = 16
"""Jobs and ranks that write to one file at once."""
SMOOTHED = 10
"""Lines of a moving average (tqdm's weighs the newest by 0.3) after which the first ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """Time between two lines, and the steps in it."""

    at: int
    """Number of the last step."""
    steps: int
    seconds: float
    disturbed: bool
    bar: int
    """Number of the bar that it is of."""


def training_bar(ticks: Sequence[Tick], total: int) -> list[Tick]:
    """The ticks of the bar of steps: that of as many as the run has, else the one that lasts longest."""
    totals = {tick.total for tick in ticks}
    if len(totals) < 2:
        return list(ticks)
    if total not in totals:
        lasts = {bar: max(_lasts([tick for tick in ticks if tick.total == bar]), default=0.0) for bar in totals}
        total = max(lasts, key=lambda bar: lasts[bar])
    return [tick for tick in ticks if tick.total == total]


def _lasts(ticks: Sequence[Tick]) -> Iterator[float]:
    """Seconds of each time that a bar ran."""
    begin = 0
    for place in range(1, len(ticks) + 1):
        if place == len(ticks) or ticks[place].clock_s < ticks[place - 1].clock_s:
            yield ticks[place - 1].clock_s - ticks[begin].clock_s
            begin = place


def steady(ticks: Sequence[Tick]) -> list[Steady]:
    """What elapsed time says of steps, for each regime; nothing where there are too few blocks of it.

    Bars that take different times are of different runs: each is a regime of its own.
    """
    lapses = list(_lapses(ticks))
    bars = [[lapse for lapse in lapses if lapse.bar == bar] for bar in dict.fromkeys(lapse.bar for lapse in lapses)]
    resolution = max((tick.resolution_s for tick in ticks), default=0.0)
    if not _differ(bars, resolution):
        return _regimes(lapses, ticks)
    turns = sum(behind.bar != before.bar for before, behind in pairwise(lapses))
    return [
        # Where lines of bars take turns, nobody knows whose end each of them goes on.
        replace(one, regime=f"{one.regime or 'steps'} of bar {number}", mixed=one.mixed or turns >= len(bars))
        for number, bar in enumerate(bars, 1)
        for one in _regimes(bar, ticks)
    ]


def _differ(bars: Sequence[Sequence[Lapse]], resolution: float) -> bool:
    """Whether the second halves of bars take times that differ by more than the clock's rounding explains."""
    ranges = []
    for bar in bars:
        calm = [lapse for lapse in bar[len(bar) // 2 :] if not lapse.disturbed]
        if (seconds := sum(lapse.seconds for lapse in calm)) > 2.0 * resolution:
            times = [block.seconds / block.steps for block in _blocks(calm, BLOCK * resolution)]
            usual = median(times) if len(times) > FEWEST else seconds / sum(lapse.steps for lapse in calm)
            ranges.append((usual * (1.0 - resolution / seconds), usual * (1.0 + resolution / seconds)))
    return len(ranges) > 1 and max(low for low, _ in ranges) > CHANGED * min(high for _, high in ranges)


def _regimes(lapses: Sequence[Lapse], ticks: Sequence[Tick]) -> list[Steady]:
    if not lapses:
        return []
    resolutions = sum(lapse.seconds for lapse in lapses) / max(tick.resolution_s for tick in ticks)
    long = min(max(BLOCK, resolutions / BLOCKS), LONG_BLOCK)
    blocks = list(_blocks(lapses, long * max(tick.resolution_s for tick in ticks)))
    times = [block.seconds / block.steps for block in blocks]
    disturbed = [block.disturbed for block in blocks]
    started = lapses[0].at - lapses[0].steps <= 1
    regimes: list[Steady] = []
    for selection in selections(times, disturbed, first=started):
        regime = _of_one(selection, blocks, ticks)
        regimes.append(replace(regime, slower=bool(regimes) and regime.seconds > regimes[-1].seconds))
    return regimes


def _of_one(selection: Selection, blocks: Sequence[Lapse], ticks: Sequence[Tick]) -> Steady:
    resolution = max(tick.resolution_s for tick in ticks)
    times = {place: blocks[place].seconds / blocks[place].steps for place in selection.counted}
    middle = median(times.values())
    # A block in which the step time changes belongs to neither side, and a mean would take it in.
    rounding = resolution / median(blocks[at].seconds for at in times)
    apart = max(CHANGED - 1.0 + rounding, FAR * spread([*times.values()])) * middle
    counted = [place for place, time in times.items() if abs(time - middle) <= apart]
    kept = [blocks[place] for place in counted]
    seconds = sum(block.seconds for block in kept)
    steps = sum(block.steps for block in kept)
    pieces = 1 + sum(behind - before > 1 for before, behind in pairwise(counted))
    lost = LOST * resolution * pieces**0.5 / seconds if seconds else 1.0
    return Steady(
        per=ticks[0].per,
        batch=None,
        seconds=seconds / steps,
        spread=spread([block.seconds / block.steps for block in kept]),
        steps=steps,
        left_out={reason: sum(blocks[at].steps for at in places) for reason, places in selection.left_out.items()},
        rounding=lost + max(tick.step_resolution for tick in ticks) / steps,
        regime=regime_name(selection, [block.at for block in blocks]),
        mixed=of_two_kinds([*times.values()], rounding) or _drifts([blocks[at] for at in times], resolution),
    )


def _drifts(blocks: Sequence[Lapse], resolution: float) -> bool:
    """Whether the last third of blocks takes another step time than the first, by more than rounding explains.

    Of too few blocks no change can be placed, and the mean of all is of neither side.
    """
    third = len(blocks) // 3
    if not third:
        return False
    ends = blocks[:third], blocks[-third:]
    seconds = [sum(block.seconds for block in end) for end in ends]
    rates = sorted(total / sum(block.steps for block in end) for total, end in zip(seconds, ends, strict=True))
    return rates[1] > (DRIFT + LOST * resolution * hypot(*(1.0 / total for total in seconds))) * rates[0]


def by_average(ticks: Sequence[Tick]) -> Steady | None:
    """The mean of a bar's moving averages, where each step prints one: that the last steps weigh more cancels out."""
    shown = [tick for tick in ticks if tick.average_s]
    consecutive = all(behind.step - before.step == 1 for before, behind in pairwise(shown))
    averages = [tick.average_s for tick in shown[SMOOTHED:] if tick.average_s]
    if not consecutive or len(averages) < SMOOTHED or any(tick.disturbed for tick in shown[SMOOTHED:]):
        return None
    third = len(averages) // 3
    slow_last = fmean(averages[-third:]) / fmean(averages[:third])
    return Steady(
        per="step",
        batch=None,
        seconds=fmean(averages),
        spread=spread(averages),
        steps=len(averages),
        left_out={"warm-up": SMOOTHED},
        rounding=0.005 / fmean(averages),
        mixed=max(slow_last, 1.0 / slow_last) > CHANGED,
    )


def _lapses(ticks: Sequence[Tick]) -> Iterator[Lapse]:
    """The time from each step to the next that is printed; a bar is drawn again at the same step, and that says no more
    than when it was reached.

    Jobs that write to one file are told apart by their steps and clocks: a line goes on what is nearest before it.
    """
    open_ends: list[tuple[Tick, int]] = []
    bars = 0
    for tick in ticks:
        able = [end for end in open_ends if end[0].step <= tick.step and end[0].clock_s <= tick.clock_s]
        nearest = max([] if tick.begins else able, key=lambda end: (end[0].step, end[0].clock_s), default=None)
        if nearest is None:
            bars += not tick.begins  # another bar, or a restart
            open_ends = [*open_ends[1 - MOST_WRITERS :], (replace(tick, disturbed=False), bars)]
            continue
        open_ends.remove(nearest)
        before = nearest[0]
        if tick.step == before.step:
            open_ends.append((replace(before, disturbed=before.disturbed or tick.disturbed), nearest[1]))
            continue
        disturbed = tick.disturbed or before.disturbed
        yield Lapse(tick.step, tick.step - before.step, tick.clock_s - before.clock_s, disturbed, nearest[1])
        open_ends.append((replace(tick, disturbed=False), nearest[1]))


def _blocks(lapses: Iterable[Lapse], least_s: float) -> Iterator[Lapse]:
    """Intervals put together until they last long enough; the first one and disturbed ones stay by themselves."""
    block: Lapse | None = None
    for place, lapse in enumerate(lapses):
        if place == 0 or lapse.disturbed:
            if block is not None:
                yield block
            yield lapse
            block = None
            continue
        if block is not None:
            lapse = replace(lapse, steps=block.steps + lapse.steps, seconds=block.seconds + lapse.seconds)
        block = lapse
        if block.seconds >= least_s:
            yield block
            block = None
    if block is not None and block.seconds >= least_s / 2.0:
        yield block
