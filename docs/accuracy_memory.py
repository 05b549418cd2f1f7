"""The part of ``accuracy-details.md`` on peak memory: effect by effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.axes.table import RECOMPUTE, ZERO
from planner.calibration.fit.frame import Frame
from planner.calibration.report import validation
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.variants import RunVariant
from planner.catalog import Catalog
from planner.cost.figures import Stack
from planner.figures.cost_inputs import LOGIT_BYTES, LOSS_TRAFFIC
from planner.figures.efficiency import Efficiencies


class Changed(Frame):
    """A frame whose framework figures are changed: what an effect is worth."""

    change: Callable[[Stack, Frame], Stack] = staticmethod(lambda stack, _: stack)

    def _stack(self, using: Efficiencies) -> Stack:
        return type(self).change(super()._stack(using), self)


def changed(change: Callable[[Stack, Frame], Stack]) -> type[Changed]:
    """The kind of frame with that change."""
    return type("Changed", (Changed,), {"change": staticmethod(change)})


@dataclass(frozen=True)
class Found:
    """Errors of peaks under one set of effects."""

    mape: float
    refused: int
    """Runs that ran and are called infeasible at a risk of 50 %."""


def judged(kind: type[Frame], known: Catalog, members: Sequence[Run], using: Efficiencies) -> Found:
    """The errors of some runs."""
    frame = kind(known, members)
    found = frame.predict(using)
    _, residuals = validation.memory_residuals(frame, found)
    ran = np.array([run.measured is not None and not run.out_of_memory for run in frame.runs])
    return Found(float(np.abs(np.exp(residuals) - 1).mean()), int((ran & ~found.fits).sum()))


def _slack(stack: Stack, frame: Frame) -> Stack:
    return replace(stack, resident_bytes=stack.resident_bytes + 1.5e9 + 0.075 * frame.capacity)


def _plain_loss(stack: Stack, _: Frame) -> Stack:
    bytes_ = np.where(stack.loss_traffic <= LOSS_TRAFFIC[0], *LOGIT_BYTES)
    return replace(stack, logit_bytes=bytes_, logit_bytes_split=bytes_)


def _without(**figures: float) -> Callable[[Stack, Frame], Stack]:
    return lambda stack, _: replace(stack, **figures)


STACKS: dict[str, Callable[[Stack, Frame], Stack]] = {
    "no factor fitted: 5 % more than the tensors": _without(activation_factor=1.05),
    "a fixed allocator slack, 7.5 % of the device and 1.5 GB more, in place of a risk": _slack,
    "inputs of 8-bit products kept in 16 bit": _without(keeps_cast_inputs=0.0),
    "6 or 10 bytes a logit whatever the loss": _plain_loss,
    "no output kept in vain without a compiler": _without(unread_outputs=0.0),
    "whole layers gathered where the compiler gathers matrices": _without(gathers_matrices=0.0),
    "MaxText's hidden states held whole by every tensor-parallel rank": _without(shards_hidden=0.0),
    "its attention kernels' outputs kept": _without(drops_kernel=0.0),
    "no flat gradient copies in DeepSpeed's update": _without(update_bytes=0.0),
}
READINGS: dict[str, Callable[[Run], Sequence[RunVariant]]] = {
    "an unstated ZeRO stage is 0": lambda run: _least(run, lambda v: v.options[ZERO]),
    "selective recomputation of mixtures is attention alone": lambda run: _least(
        run, lambda v: v.options[RECOMPUTE].modules
    ),
    "what a policy offloads is kept": lambda run: [
        replace(v, options=v.options.replaced(recompute=replace(v.options[RECOMPUTE], offloaded=0.0)))
        for v in run.variants
    ],
    "unstated recomputation is none": lambda run: _least(run, lambda v: v.options[RECOMPUTE].layers),
}


def _least(run: Run, key: Callable[[RunVariant], float]) -> Sequence[RunVariant]:
    least = min(key(v) for v in run.variants)
    return [v for v in run.variants if key(v) == least]


def effects(known: Catalog, members: Sequence[Run], using: Efficiencies) -> list[list[str]]:
    """Each effect taken out alone: the error, and how many runs are called infeasible."""
    frames = [(what, changed(change), list(members)) for what, change in STACKS.items()]
    for what, pick in READINGS.items():
        frames.append(
            (what, changed(lambda s, _: s), [replace(r, variants=tuple(pick(r))) if r.variants else r for r in members])
        )
    rows = [["everything as it is", Frame, list(members)], *[list(x) for x in frames]]
    told = []
    for what, kind, own in rows:
        found = judged(kind, known, own, using)
        told.append([str(what), f"{100 * found.mape:.1f} %", f"{found.refused:,}"])
    return told
