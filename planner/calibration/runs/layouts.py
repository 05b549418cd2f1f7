"""Layouts that a row's run may have had, and what its software does where the row does not say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from planner.axes.values import FOLDED
from planner.calibration.runs.columns import Unpredictable, whole
from planner.schema.hardware import Runtime
from planner.schema.workload import Workload

LABELS = {"zero": "ZeRO stage", "sequence_parallel": "sequence parallelism", "micro": "micro-batch"}
"""What axes are called where something is inferred of them, where not by their name."""
MICRO_BATCHES = (1, 2, 4, 8, 16)
"""Sequences of a micro-batch that are tried where none is stated."""


@dataclass(frozen=True, slots=True)
class RunSoftware:
    """What ran a run."""

    runtime: Runtime
    date: str
    """When its release was made, YYYY or YYYY.MM."""
    late: Collection[str]
    """What of the runtime, as `since` names it, the run was too early for: nothing unstated is taken to be that."""


@dataclass(frozen=True, slots=True)
class StatedRun:
    """A row, with what is read in it and of it."""

    row: Mapping[str, str]
    says: Mapping[str, object]
    """What its words say."""
    software: RunSoftware
    inferred: list[str]
    """What is inferred is added."""


class AxisReading(NamedTuple):
    """A value that a run may have had on one axis."""

    value: object
    rank: int = 0
    """0: as stated, or as the runtime does by default; above: only where nothing of a lower rank fits."""
    likely: bool = True
    """Whether it is the one of its rank to predict by: others of the rank only widen the interval."""


def by_default(
    axis: str, known: Runtime, date: str, inferred: list[str], others: Iterable[object] = ()
) -> list[AxisReading] | None:
    """What a runtime's release of a date does about an axis that a row leaves open, what its recipes do beside that,
    and `others` where neither fits; None where its sources do not say.
    """
    default = known.default(axis, date)
    if default is None:
        return None
    also = f" (or {', '.join(map(_spelled, default.also))})" if default.also else ""
    inferred.append(f"{LABELS.get(axis, axis)}: {_spelled(default.value)}, {known.id}'s default{also}")
    kept = (default.value, *default.also)
    readings = [AxisReading(default.value), *(AxisReading(value, likely=False) for value in default.also)]
    return readings + [AxisReading(value, 1) for value in others if value not in kept]


def _spelled(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def degrees(run: StatedRun, work: Workload, n: int) -> Iterator[tuple[dict[str, int], int, bool]]:
    """Layouts that what is stated allows, each with its rank and whether it is likely."""
    row = run.row
    tp, pp, cp = (whole(row, name) for name in ("tp", "pp", "cp"))
    if tp is None or pp is None:
        raise Unpredictable("tp and pp are not stated")
    unstated = ("cp", *(("ep",) if work.model.moe else ()))
    run.inferred.extend(f"{name}: 1" for name in unstated if whole(row, name) is None)
    cp = cp or 1
    dp = n // (tp * pp * cp)
    if dp * tp * pp * cp != n:
        raise Unpredictable(f"tp {tp} x pp {pp} x cp {cp} does not divide {n} accelerators")
    if whole(row, "dp", dp) != dp:
        raise Unpredictable(f"dp {whole(row, 'dp')}, but {n} accelerators by tp {tp} x pp {pp} x cp {cp} are {dp}")
    if work.batch % dp:
        raise Unpredictable(f"batch {work.batch} does not divide by dp {dp}")
    ep = whole(row, "ep", 1) or 1
    etp = whole(row, "etp") or (1 if ep > 1 or not work.model.moe else tp)
    if work.model.moe and whole(row, "etp") is None:
        run.inferred.append("etp: 1" if ep > 1 else "etp: as tp")
    micros = _micro_batches(run, work.batch // dp, tp * cp)
    chunks = _chunks(run, work, pp)
    stated = len(chunks) == 1
    for micro, chunk in product(micros, chunks):
        m, v = int(str(micro.value)), int(str(chunk.value))
        per_rank = work.batch // dp
        if per_rank % m == 0 and (v == 1 or (per_rank // m) % pp == 0 or stated):
            layout = {
                "tp": tp, "pp": pp, "vpp": v, "cp": cp, "ep": ep, "etp": etp, "dp": dp, "micro": m, "batch": work.batch
            }  # fmt: skip
            yield layout, micro.rank + chunk.rank, micro.likely and chunk.likely


def _micro_batches(run: StatedRun, per_rank: int, sharing: int) -> list[AxisReading]:
    """Sequences of a micro-batch: as stated, or what accumulation leaves; by default a number, all of a rank's, or the
    largest that fits; without a default any.

    Args:
        run: What is stated of it.
        per_rank: Sequences of a step on each replica.
        sharing: Accelerators that share one sequence.
    """
    row, software, inferred = run.row, run.software, run.inferred
    if micro := whole(row, "micro_batch"):
        return [AxisReading(micro * sharing if software.runtime.micro_batch_per_device else micro)]
    steps = run.says.get("accumulation")
    if isinstance(steps, int) and steps and per_rank % steps == 0:
        inferred.append("micro-batches: by the steps that gradients are accumulated over")
        return [AxisReading(per_rank // steps)]
    tried = [m for m in MICRO_BATCHES if per_rank % m == 0]
    default = software.runtime.default("micro", software.date)
    if default is not None and isinstance(default.value, int) and per_rank % default.value == 0:
        known = by_default("micro", software.runtime, software.date, inferred, tried) or []
        return [reading for reading in known if reading.value in tried]
    if default is None or isinstance(default.value, int) or whole(row, "pp", 1) != 1:
        inferred.append(f"micro-batch: any of {', '.join(map(str, tried))}")
        return [AxisReading(m) for m in tried]
    # Halved until it fits: from all that a rank has, or from the largest that is tried.
    smaller = [m for m in reversed(tried) if m < per_rank]
    halves = [per_rank, *smaller] if default.value == "all" or per_rank in tried else smaller
    inferred.append(f"micro-batch: {default.value}, halved until it fits, {software.runtime.id}'s default")
    return [AxisReading(m, place) for place, m in enumerate(halves)]


def _chunks(run: StatedRun, work: Workload, pp: int) -> list[AxisReading]:
    """Chunks of layers on a pipeline rank: as stated in a cell or in words, else the default; interleaved without a
    number, any.
    """
    says, known, date = run.says, run.software.runtime, run.software.date
    if says.get("schedule") in FOLDED:
        return [AxisReading(2)]  # a stage from either end
    if stated := whole(run.row, "vpp"):
        return [AxisReading(stated)]
    interleaved, chunks = says.get("interleaved"), says.get("chunks")
    if pp == 1 or interleaved is False:
        return [AxisReading(1)]
    if isinstance(chunks, int) and chunks:
        run.inferred.append("chunks: as words say")
        return [AxisReading(chunks)]
    layers = -(-work.model.layers // pp) if known.uneven_stages else work.model.layers / pp
    depths = [v for v in range(2, 13) if layers / v >= 1 and layers % v == 0]
    if interleaved and depths:
        run.inferred.append("vpp: interleaved, by any number of chunks")
        return [AxisReading(v) for v in depths]
    readings = by_default("vpp", known, date, run.inferred)
    if readings is None and date >= "2023" and known.axes.get("vpp") == "any":
        run.inferred.append("vpp: any")
        readings = [AxisReading(v) for v in (1, *depths)]
    return readings or [AxisReading(1)]
