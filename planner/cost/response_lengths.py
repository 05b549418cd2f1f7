"""Lengths of responses: from a mean and a cap, a mean and a 95th percentile, or a file.

Responses are log-normal and cut at the cap. With a mean and a cap alone, the width of the logarithm is :data:`WIDTH`
and the middle is solved for, so that the mean of the cut lengths is the one stated. Lengths are kept as equally likely
values, shortest first; a step of N sequences has its longest at the quantile ``1 - 1 / (2 N)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.base.errors import WrongQuestion

WIDTH = 1.0
"""Standard deviation of a response's logarithm: assumed between the widths that published histograms of reasoning
models show (0.6 of short answers to 1.3 of mathematics), told among the assumptions of an answer."""
MOST_MEAN = 0.98
"""Largest mean over the cap that has a distribution: at 1 every response is cut, and no width is left to solve for."""
POINTS = 4000
"""Quantiles of a distribution: its longest ten-thousandth still counts for itself."""


@dataclass(frozen=True, eq=False)
class Lengths:
    """Response lengths in tokens as equally likely values, ascending."""

    values: NDArray[np.float64]
    cap: float
    measured: bool = False
    """Whether each was measured, or only their mean and cap are known."""

    @property
    def mean(self) -> float:
        """Tokens of a response."""
        return float(self.values.mean())

    def longest(self, sequences: float) -> float:
        """Tokens of the longest of so many, in the middle of what it may be."""
        return float(np.quantile(self.values, 1.0 - 0.5 / max(sequences, 1.0)))

    def above(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share of the responses that are longer."""
        return 1.0 - np.searchsorted(self.values, tokens, side="right") / len(self.values)


def of_mean(mean: float, cap: float) -> Lengths:
    """Log-normal lengths cut at the cap whose mean is the one stated.

    Raises:
        WrongQuestion: a mean that lengths up to the cap cannot have.
    """
    if not 1.0 <= mean <= cap:
        raise WrongQuestion(f"--response {mean:g}/{cap:g}: write the mean and then the cap, with 1 <= mean <= cap")
    return Lengths(_cut(round(mean / cap, 6)) * cap, cap)


@lru_cache(maxsize=64)
def _cut(share: float) -> NDArray[np.float64]:
    """Quantiles over the cap of the distribution whose mean is that share of it."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((i + 0.5) / POINTS) for i in range(POINTS)])
    low = -12.0
    high = 8.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        short = float(np.minimum(np.exp(middle + WIDTH * scores), 1.0).mean()) < share
        low, high = (middle, high) if short else (low, middle)
    return np.minimum(np.exp(high + WIDTH * scores), 1.0)


def of_values(values: NDArray[np.float64], cap: float) -> Lengths:
    """Measured lengths, cut at the cap.

    Raises:
        WrongQuestion: none, or one below a token.
    """
    if not len(values) or values.min() < 1 or not np.all(np.isfinite(values)):
        raise WrongQuestion("--response FILE: one length of at least 1 token a line")
    return Lengths(np.sort(np.minimum(values, cap)), cap, measured=True)
