"""The kernels of a rank as shares of its time: every instant belongs to one cause, so that the causes add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.trace.kernels import COMMUNICATION, KINDS, Kind
from planner.trace.ranks import RankTrace

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds between the first kernel's start and the last one's end."""

    total: float
    alone: Mapping[Kind, float]
    """Of each kind: its own instants, those that nothing before it in :data:`planner.trace.kernels.KINDS` fills."""
    hidden: Mapping[Kind, float]
    """Of each kind of communication: under what computes, or other communication."""
    idle: float
    """In which nothing runs: the host is late."""

    @property
    def computing(self) -> float:
        """Seconds in which something computes."""
        return sum(seconds for what, seconds in self.alone.items() if what not in COMMUNICATION)


def shares(trace: RankTrace) -> Shares:
    """Shares out the time of a rank.

    Where several kernels run at once, the instant belongs to the first of their kinds in the order of
    :data:`planner.trace.kernels.KINDS`: what computes hides what communicates.
    """
    starts, ends = np.frombuffer(trace.starts), np.frombuffer(trace.ends)
    kinds = np.frombuffer(trace.kinds, dtype=np.int8)
    instants = np.unique(np.concatenate((starts, ends)))
    lengths = np.diff(instants)
    taken = np.zeros(len(lengths), dtype=np.bool_)
    alone: dict[Kind, float] = {}
    hidden: dict[Kind, float] = {}
    for place, what in enumerate(KINDS):
        own = kinds == place
        running = _running(np.searchsorted(instants, starts[own]), np.searchsorted(instants, ends[own]), len(lengths))
        alone[what] = float(lengths[running & ~taken].sum())
        if what in COMMUNICATION:
            hidden[what] = float(lengths[running & taken].sum())
        taken |= running
    return Shares(float(instants[-1] - instants[0]), alone, hidden, float(lengths[~taken].sum()))


def _running(first: NDArray[np.intp], behind: NDArray[np.intp], count: int) -> Flags:
    """In which of `count` intervals any kernel runs, given the intervals at which each begins and has ended."""
    change = np.bincount(first, minlength=count + 1).astype(np.int64) - np.bincount(behind, minlength=count + 1)
    return np.asarray(np.cumsum(change[:count]) > 0)
