"""How sure a prediction is: 80 % intervals from cross-validated residuals of comparable runs (split conformal).

Comparable runs share the accelerator's generation and the kind of model (dense, mixture); where too few were
measured the
next wider set stands in, and the interval widens. The half-width of a set of n residuals ``r = |log(predicted /
measured)|`` is its ``ceil(0.8 (n + 1)) / n`` quantile; residuals come from fits that left the run's source out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.figures import Array

LEVEL = 0.8
FEWEST = 8
"""Residuals that make a set of its own."""
UNKNOWN = 1.5
"""Factor on the widest set's half-width where nothing comparable was measured."""


@dataclass(frozen=True, slots=True)
class Width:
    """Half-width of a set, on a log scale, and how many residuals it rests on."""

    half: float
    runs: int


def width(residuals: Array) -> Width:
    """The conformal quantile of some absolute log residuals."""
    n = len(residuals)
    rank = min(math.ceil(LEVEL * (n + 1)), n)
    return Width(float(np.sort(residuals)[rank - 1]), n)


def keys(generation: str, kind: str, runtime: str) -> tuple[str, ...]:
    """Sets that a prediction belongs to, the narrowest first."""
    return (f"{generation}/{kind}/{runtime}", f"{generation}/{kind}", kind, "all")


def widths(residuals: Array, described: Sequence[tuple[str, str, str]]) -> dict[str, Width]:
    """Every set's width; `described` gives (generation, kind, runtime) of each residual."""
    sets: dict[str, list[float]] = {}
    for residual, what in zip(np.abs(residuals), described, strict=True):
        for key in keys(*what):
            sets.setdefault(key, []).append(float(residual))
    return {key: width(np.array(found)) for key, found in sets.items() if len(found) >= FEWEST or key == "all"}


def found(known: Mapping[str, Width], generation: str, kind: str, runtime: str) -> tuple[float, str]:
    """Half-width for a prediction, and the set that it comes from; wider where nothing comparable was measured."""
    names = keys(generation, kind, runtime)
    for index, name in enumerate(names):
        if name in known:
            beyond = UNKNOWN if index >= 2 else 1.0
            return known[name].half * beyond, name
    return 0.5, "nothing"
