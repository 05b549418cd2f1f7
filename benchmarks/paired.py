"""Ratios of two ways to do the same, measured in launches of their own: the centre, its 95 % interval, when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.calibration.measuring.timing import TRIMMED, trimmed_mean
from planner.comm.tables.measured_times import student

LEAST = 8
"""Launches before an interval may stop anything: with fewer, a lucky few look alike."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio and the ends of its 95 % interval."""

    centre: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of its width, relative to the centre."""
        return (self.high - self.low) / (2.0 * self.centre)


def interval(ratios: Sequence[float]) -> Interval | None:
    """Trimmed mean of the logarithms and Student's t on winsorised values (Tukey and McLaughlin 1963); None of fewer
    than two kept.

    ``exp(m +- t(h - 1) s_w / ((1 - 2 g) sqrt(n)))``, with g the share trimmed at either end and h = n - 2 floor(0.2 n)
    kept.
    """
    logs = sorted(math.log(ratio) for ratio in ratios)
    n, cut = len(logs), int(TRIMMED * len(logs))
    kept = n - 2 * cut
    if kept < 2:
        return None
    pulled = [min(max(value, logs[cut]), logs[n - 1 - cut]) for value in logs]
    mean = sum(pulled) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in pulled) / (n - 1))
    half = student(kept - 1) * deviation / ((1.0 - 2.0 * cut / n) * math.sqrt(n))
    centre = trimmed_mean(logs)
    return Interval(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def narrow(ratios: Sequence[float], until: float) -> bool:
    """Whether the interval's half-width is below what is wanted, on at least :data:`LEAST` launches.

    An interval that is looked at until it is narrow covers 95 % only asymptotically (Chow and Robbins 1965).
    """
    found = interval(ratios)
    return len(ratios) >= LEAST and found is not None and found.half <= until
