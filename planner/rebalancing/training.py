"""Uneven batches under PyTorch's DistributedDataParallel: weights, measurements, the noise scale, a plan each epoch.

    shares = UnevenBatches(DistributedDataParallel(net), batch=256)
    for epoch in range(epochs):
        for samples, labels in loader(shares.mine, shares.first):      # this rank's slice of every global batch
            with shares.step():
                shares.weighted(criterion(shares.model(samples), labels)).backward()
            optimizer.step()
            optimizer.zero_grad()
        shares.next_epoch()

`criterion` averages over its samples. Works with any process group; measured and tested with Gloo between CPUs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.rebalancing import batch_choice
from planner.rebalancing.node_models import Epoch, NodeModel
from planner.rebalancing.shares import evenly, none_idle

if TYPE_CHECKING:
    import torch
    from torch.nn.parallel import DistributedDataParallel

MEASURES = ("load", "backward", "ready", "synchronising", "waiting")


@dataclass
class _Step:
    """The clock of one step, and squared norms of its gradients."""

    started: float = 0.0
    turned: float = 0.0
    """When the backward pass began."""
    handed: list[float] = field(default_factory=list)
    """When each bucket was handed over."""
    returned: list[float] = field(default_factory=list)
    own: float = 0.0
    """``|g_r|^2`` of this rank's mean gradient."""
    whole: float = 0.0
    """``|g|^2`` of the whole batch's."""


class UnevenBatches:
    """A model under DistributedDataParallel whose ranks work on unequal parts of one batch.

    DistributedDataParallel averages over ranks; a loss weighted by ``B_r world / B`` makes that the mean over samples.

    Args:
        model: The wrapped model; a communication hook is registered on it.
        batch: Samples of a step on all ranks together.
        batches: Samples of each rank to start with (:func:`planner.rebalancing.shares.of_plan`); even if left out.
        caps: Most samples that each rank's memory holds.
        largest: The most that the whole batch may grow to, by goodput; it stays as it is if left out.
        keep: Weight of the past in the smoothed noise scale, per step.
        estimator: How the noise scale is estimated: ``pooled`` (analysis of variance) or ``cannikin`` (its weights).
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        batch: int,
        *,
        batches: Sequence[int] | None = None,
        caps: Sequence[float] | None = None,
        largest: int | None = None,
        keep: float = 0.99,
        estimator: str = "pooled",
    ) -> None:
        import torch.distributed as dist

        self.model = model
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.reference = self.batch = batch
        self.batches = none_idle(evenly(batch, self.world) if batches is None else batches)
        if len(self.batches) != self.world or sum(self.batches) != batch:
            raise ValueError(f"{len(self.batches)} shares of {sum(self.batches)} for {self.world} ranks of {batch}")
        self.nodes = NodeModel(n=self.world, cap=None if caps is None else np.asarray(caps, dtype=float))
        self.largest, self.keep = largest, keep
        self.estimate = batch_choice.estimator(estimator)
        self.noise = batch_choice.Smoothed()
        self._steps: list[_Step] = []
        self._now = _Step()
        # A lambda, since PyTorch refuses hooks whose annotations are text.
        model.register_comm_hook(self, lambda shares, bucket: _reduce(shares, bucket))

    # ---- in every step -----------------------------------------------------------------------------------------------

    @property
    def mine(self) -> int:
        """Samples of this rank in every step."""
        return int(self.batches[self.rank])

    @property
    def first(self) -> int:
        """Where this rank's samples start in the whole batch."""
        return sum(self.batches[: self.rank])

    def weighted(self, loss: torch.Tensor) -> torch.Tensor:
        """The mean loss of this rank's samples times ``B_r world / B``. Call it right before ``backward``."""
        self._now.turned = self._clock()
        return loss * (self.mine * self.world / self.batch)

    @contextmanager
    def step(self) -> Iterator[None]:
        """A context around the forward and backward pass of one step, which measures its seconds."""
        self._now = _Step(started=self._clock())
        yield
        self._clock()
        if self._now.handed:
            self._steps.append(self._now)

    def _clock(self) -> float:
        """Seconds, once the accelerator has done what it was given."""
        device = next(self.model.parameters()).device
        if device.type == "cuda":
            import torch

            torch.cuda.synchronize(device)
        return time.perf_counter()

    # ---- after every epoch -------------------------------------------------------------------------------------------

    def next_epoch(self) -> tuple[int, ...]:
        """Shares what was measured, learns from it, and returns the next epoch's samples of every rank.

        The first two epochs split evenly and by speed; from the third on the split is the optimum of the fitted nodes.
        """
        measured, squares = self._gathered()
        self.nodes = self.nodes.seen(
            Epoch(batches=np.asarray(self.batches, dtype=float), ready_deviation=measured[:, -1],
                  **{name: measured[:, i] for i, name in enumerate(MEASURES)})
        )  # fmt: skip
        if self.world > 1:
            for node_squares, whole in zip(squares[:, 0].T, squares[:, 1].T, strict=True):
                gradient, spread = self.estimate(self.batches, node_squares, whole[0])
                self.noise = self.noise.seen(float(gradient), float(spread), keep=self.keep)
        if self.largest is not None and len(self.nodes.epochs) > 1:
            fitted = self.nodes.fitted()
            choice = batch_choice.choose(fitted, self.reference, self.largest, self.noise.scale, current=self.batch)
            self.batch = choice.batch
        self.batches = none_idle(self.nodes.split(self.batch).tolist())
        self._steps = []
        return self.batches

    def _own(self) -> tuple[list[float], list[list[float]]]:
        """Medians of this rank's times and the error of its ratio; squared norms of every step, own and whole."""
        rows = np.array(
            [
                (
                    s.turned - s.started,
                    s.handed[-1] - s.turned,
                    s.handed[0] - s.turned,
                    s.returned[-1] - s.handed[0],
                    s.returned[-1] - s.handed[-1],
                )
                for s in self._steps
            ]
        )
        ratio = rows[:, 2] / np.maximum(rows[:, 1], 1e-12)
        error = float(np.std(ratio) / np.sqrt(len(ratio)))
        return [*np.median(rows, axis=0), error], [[s.own for s in self._steps], [s.whole for s in self._steps]]

    def _gathered(self) -> tuple[Any, Any]:
        """Everybody's times, shape (ranks, measures + 1), and squared norms, shape (ranks, 2, steps)."""
        import torch
        import torch.distributed as dist

        if not self._steps:
            raise ValueError("no step was taken in this epoch (use `with shares.step():`)")
        times, squares = self._own()
        device = next(self.model.parameters()).device
        gathered = []
        for tensor in (times, squares):
            mine = torch.tensor(tensor, dtype=torch.float64, device=device)
            everybody = [torch.empty_like(mine) for _ in range(self.world)]
            dist.all_gather(everybody, mine)
            gathered.append(torch.stack(everybody).cpu().numpy())
        return gathered[0], gathered[1]


def _reduce(shares: UnevenBatches, bucket: Any) -> Any:
    """The communication hook: notes when a bucket comes and goes, and the squared norms before and after."""
    import torch.distributed as dist

    now = shares._now
    now.handed.append(time.perf_counter())
    buffer = bucket.buffer()
    weight = shares.mine * shares.world / shares.batch
    now.own += float(buffer.square().sum()) / weight**2
    future = dist.all_reduce(buffer.div_(shares.world), async_op=True).get_future()

    def back(done: Any) -> Any:
        reduced = done.value()[0]
        now.returned.append(time.perf_counter())
        now.whole += float(reduced.square().sum())
        return reduced

    return future.then(back)
