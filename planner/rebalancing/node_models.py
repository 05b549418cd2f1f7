"""Node models learned while training: each epoch's times in, the next epoch's batches out.

Epoch 1 splits evenly, epoch 2 in proportion to the measured speeds, so that every node has been seen at two batches;
from epoch 3 on the split is the optimum of the fitted models (Cannikin, arXiv 2402.05302).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.rebalancing import batch_split
from planner.rebalancing.batch_split import Array, Nodes, nodes

LEAST_SPREAD = 0.02
"""Batches that differ by less than this share of their mean say nothing of a slope."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """What every node measured in one epoch, means over its steps. Columns of one number a node; seconds."""

    batches: Array
    load: Array
    """Loading, forward pass and update."""
    backward: Array
    ready: Array
    """Seconds from the start of the backward pass until the first bucket was handed over."""
    ready_deviation: Array
    """Standard error of ``ready / backward``."""
    synchronising: Array
    """From the first bucket handed over to the last one returned, waiting for others included."""
    waiting: Array
    """From the last bucket handed over to its return, waiting for others included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeModel:
    """All nodes of a job as known so far; frozen: :meth:`seen` returns the next one."""

    n: int
    cap: Array | None = None
    """Most samples a node holds, shape (n,)."""
    epochs: tuple[Epoch, ...] = ()

    def seen(self, epoch: Epoch) -> NodeModel:
        """The model with one more epoch of measurements."""
        if len(epoch.batches) != self.n:
            raise ValueError(f"{len(epoch.batches)} nodes measured, {self.n} known")
        return replace(self, epochs=(*self.epochs, epoch))

    def split(self, batch: int) -> Array:
        """Whole samples of every node in the next epoch, shape (n,): even, then by speed, then the optimum."""
        cap = np.inf if self.cap is None else self.cap
        if not self.epochs:
            return batch_split.whole(nodes(np.ones(self.n), 0.0, 0.0, 0.0, cap=cap), batch).batches
        if len(self.epochs) == 1:
            first = self.epochs[0]
            per_sample = (first.load + first.backward) / np.maximum(first.batches, 1.0)
            return batch_split.whole(nodes(per_sample, 0.0, 0.0, 0.0, cap=cap), batch).batches
        return batch_split.whole(self.fitted(), batch).batches

    def fitted(self) -> Nodes:
        """Least-squares lines through all epochs, the merged overlap ratio and the shortest synchronisation.

        Raises:
            ValueError: nothing has been measured.
        """
        if not self.epochs:
            raise ValueError("nothing has been measured yet")
        batches = np.array([e.batches for e in self.epochs])
        load = [line(batches[:, i], np.array([e.load[i] for e in self.epochs])) for i in range(self.n)]
        back = [line(batches[:, i], np.array([e.backward[i] for e in self.epochs])) for i in range(self.n)]
        last = min(float(np.min(e.waiting)) for e in self.epochs)
        whole = min(float(np.min(e.synchronising)) for e in self.epochs)
        return nodes(
            [x[0] for x in load],
            [x[1] for x in load],
            [x[0] for x in back],
            [x[1] for x in back],
            gamma=overlap_ratio(self.epochs),
            overlapped=max(whole - last, 0.0),
            last=last,
            cap=np.inf if self.cap is None else self.cap,
        )


def line(batches: Array, times: Array) -> tuple[float, float]:
    """Slope and intercept of ``time = slope b + intercept``, both at least 0, least squares of relative errors.

    Where batches hardly differ, or the line would fall or start below 0, it goes through 0.
    """
    used = batches > 0
    batches, times = batches[used], times[used]
    if not len(batches):
        return 1e-9, 0.0
    weight = 1.0 / np.maximum(times, 1e-12) ** 2
    through_zero = float(np.sum(weight * batches * times) / np.sum(weight * batches**2))
    mean_b, mean_t = (float(np.average(x, weights=weight)) for x in (batches, times))
    centred = batches - mean_b
    if np.ptp(batches) < LEAST_SPREAD * mean_b:
        return through_zero, 0.0
    slope = float(np.sum(weight * centred * (times - mean_t)) / np.sum(weight * centred**2))
    intercept = mean_t - slope * mean_b
    if slope <= 0 or intercept < 0:
        return through_zero, 0.0
    return slope, intercept


def overlap_ratio(epochs: Sequence[Epoch]) -> float:
    """``gamma = sum(gamma_i / sd_i^2) / sum(1 / sd_i^2)`` over all nodes and epochs, between 0 and 1."""
    measured = np.concatenate([e.ready / np.maximum(e.backward, 1e-12) for e in epochs])
    weight = 1.0 / np.maximum(np.concatenate([e.ready_deviation for e in epochs]), 1e-6) ** 2
    return float(np.clip(np.average(measured, weights=weight), 1e-6, 1.0))
