"""The part of ``accuracy.md`` on peak memory: row by row, effect by effect, and what a risk leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.fit import peaks
from planner.calibration.fit.frame import Frame, FramePrediction
from planner.calibration.report import validation
from planner.calibration.runs import reading
from planner.calibration.runs.run import Run
from planner.catalog import Catalog
from planner.cost import memory, pipeline, risk
from planner.cost.figures import Stack
from planner.performance import intervals
from planner.performance.efficiency import Efficiencies

RISKS = (0.01, 0.05, 0.1, 0.2, 0.5)
GB = 1e9


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
    return replace(stack, logit_bytes=stack.logit_copies, logit_bytes_split=stack.logit_copies)


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
READINGS: dict[str, Callable[[Run], Sequence[reading.Variant]]] = {
    "an unstated ZeRO stage is 0": lambda run: _least(run, lambda v: v.options.sharding.zero),
    "selective recomputation of mixtures is attention alone": lambda run: _least(
        run, lambda v: v.options.recompute.modules
    ),
    "what a policy offloads is kept": lambda run: [
        replace(v, options=replace(v.options, recompute=replace(v.options.recompute, offloaded=0.0)))
        for v in run.variants
    ],
    "unstated recomputation is none": lambda run: _least(run, lambda v: v.options.recompute.layers),
}


def _least(run: Run, key: Callable[[reading.Variant], float]) -> Sequence[reading.Variant]:
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


def each(frame: Frame, using: Efficiencies, found: FramePrediction) -> list[list[str]]:
    """Every run whose peak was measured: what was predicted, and what it is made of."""
    grid = frame.grid(using)
    stages = memory.stages(grid, pipeline.split(grid.shape, grid.layout))
    totals = np.stack([np.broadcast_to(stage.total, frame.owner.shape) for stage in stages])
    readings = validation.readings(frame, found)
    rows = []
    for i, run in enumerate(frame.runs):
        if not (run.memory_measured and run.measured_bytes):
            continue
        row = found.row[i]
        stage = stages[int(totals[:, row].argmax())]
        parts = [
            float(np.broadcast_to(figure, frame.owner.shape)[row]) / GB
            for figure in (
                stage.parameters + stage.gradients + stage.optimizer,
                stage.activations,
                stage.buffers + stage.copies,
            )
        ]
        counted = "allocator" if run.in_allocator else "device"
        error = f"{100 * (readings[i] / run.measured_bytes - 1):+.1f} %"
        rows.append(
            [run.id, counted, f"{run.measured_bytes / GB:.1f}", f"{readings[i] / GB:.1f}", error]
            + [f"{part:.1f}" for part in parts]
        )
    return rows


def left_out(frame: Frame, using: Efficiencies) -> float:
    """Error of peaks, the allocator's factor fitted without each fifth of them in turn."""
    return float(np.abs(np.exp(peaks.left_out(frame, using)[1]) - 1).mean())


def per_source(known: Catalog, members: Sequence[Run], using: Efficiencies) -> float:
    """The same with each source left out, where the others' peaks are enough to fit the factor to."""
    measured = [run for run in members if run.memory_measured and run.covered and run.variants]
    errors = []
    for source in sorted({run.source for run in measured}):
        apart = Frame(known, [run for run in measured if run.source == source])
        fitted = peaks.fitted(Frame(known, [run for run in measured if run.source != source]), prior(using))
        _, residuals = validation.memory_residuals(apart, apart.predict(fitted))
        errors += list(np.abs(np.exp(residuals) - 1))
    return float(np.mean(errors))


def prior(using: Efficiencies) -> Efficiencies:
    """The allocator's factor as it was before any fit: what RuntimeEfficiency says."""
    return peaks.allocating(using, 1.05)


def at_risks(frame: Frame, found: FramePrediction, known: Catalog) -> list[list[str]]:
    """By risk: the share of an accelerator that a plan may hold, and the runs that ran it would have refused."""
    widths = intervals.read(known, intervals.MEMORY)
    half = np.array([intervals.found_memory(widths, run.runtime)[0] for run in frame.runs])
    capacity = frame.capacity[found.row]
    ran = np.array([run.measured is not None and not run.out_of_memory for run in frame.runs])
    rows = []
    for asked in RISKS:
        usable = np.array([risk.usable(c, w, asked) for c, w in zip(capacity, half, strict=True)])
        shares = [
            f"{100 * risk.usable(1.0, intervals.found_memory(widths, name)[0], asked):.0f} %"
            for name in ("fsdp2", "megatron-core")
        ]
        rows.append([f"{100 * asked:g} %", *shares, f"{int((ran & (found.memory > usable)).sum()):,}"])
    return rows


def coverage(frame: Frame, using: Efficiencies) -> float:
    """Share of the measured peaks inside the interval that the other runs give."""
    rows, residuals = peaks.left_out(frame, using)
    names, sources = [frame.runs[i].runtime for i in rows], [frame.runs[i].group for i in rows]
    inside = []
    for place in range(len(rows)):
        others = [i for i in range(len(rows)) if i != place]
        widths = intervals.memory_widths(residuals[others], [names[i] for i in others], [sources[i] for i in others])
        inside.append(abs(residuals[place]) <= intervals.found_memory(widths, names[place])[0])
    return float(np.mean(inside))
