"""A site's journal as what it knows of plans: which were run, how fast they were, and which ran out of memory."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median, pstdev

from planner.base.errors import WrongQuestion
from planner.question.request import Request
from planner.schema.plan import MeasuredSection, Plan
from planner.site import cells, journal
from planner.site.folder import Site
from planner.space.pins import Pins, parse_pins

_AXES = {
    **{axis: axis for axis in ("tp", "pp", "vpp", "cp", "ep", "etp")},
    "micro": "micro_batch",
    "zero": "zero_stage",
    "precision": "precision",
}
"""Axis of a plan -> column."""
UNSTATED = 0.03
"""Spread of a run that states none (interquartile range over median): that far apart, published repetitions count as
equal (calibration/report/prediction_errors.py, APART).
"""
WITHIN = 1.28
"""Standard deviations of a normal variable that 80 % lie within, on either side."""


def of_site(site: Site) -> SiteRuns:
    """What a site's journal holds.

    Raises:
        WrongQuestion: the journal cannot be read.
    """
    return SiteRuns(tuple(journal.read(site.runs)))


@dataclass(frozen=True)
class SiteRuns:
    """The rows of a journal by the plan that they are of."""

    rows: tuple[journal.Row, ...]

    @cached_property
    def _by_key(self) -> Mapping[Hashable, Sequence[journal.Row]]:
        by_key: dict[Hashable, list[journal.Row]] = {}
        for row in self.rows:
            by_key.setdefault(cells.key(row), []).append(row)
        return by_key

    def key(self, plan: Plan) -> Hashable:
        """What plans share that one run measures."""
        return cells.key(cells.of_plan(plan))

    def measured(self, plan: Plan) -> MeasuredSection | None:
        """The runs that followed the plan."""
        rows = self._by_key.get(self.key(plan), ())
        times = _times(rows)
        if not times:
            return None
        peaks = [peak * 1e9 for row in rows if (peak := _number(row, "memory_gb_per_gpu"))]
        return MeasuredSection(
            runs=len(times),
            ran_out=sum(row.get("metric") == "oom" for row in rows),
            step_time_s=median(times),
            predicted_s=plan.prediction.step_time_s,
            half_width=_half_width([row for row in rows if _number(row, "step_time_s")]),
            memory_bytes=max(peaks, default=None),
        )

    def ran_out(self, plan: Plan) -> bool:
        """Whether the plan ran out of memory, and never ran."""
        return _only_ran_out(self._by_key.get(self.key(plan), ()))

    def out_of_memory(self, request: Request) -> list[journal.Row]:
        """The configurations that would answer a request, and ran out of memory whenever they were run."""
        return [row for row in self.relevant(request) if _only_ran_out(self._by_key[cells.key(row)])]

    def fastest(self, request: Request) -> tuple[journal.Row, float] | None:
        """The configuration that answers a request and trains on most sequences per second, and seconds of its step."""
        times = {cells.key(row): _times(self._by_key[cells.key(row)]) for row in self.relevant(request)}
        known = [(row, median(times[cells.key(row)])) for row in self.relevant(request) if times[cells.key(row)]]
        return min(known, key=lambda entry: entry[1] / float(entry[0]["global_batch_seqs"]), default=None)

    def relevant(self, request: Request) -> list[journal.Row]:
        """The rows that answer a request, the first of each configuration."""
        return [
            rows[0]
            for rows in self._by_key.values()
            if _answers(rows[0], request)
            and all(request.pins.allow(axis, rows[0][column]) for axis, column in _AXES.items() if rows[0].get(column))
        ]

    def pins(self, request: Request) -> list[Pins]:
        """The configurations of runs that answer the request."""
        pins = []
        for row in self.relevant(request):
            texts = [f"{axis}={row[column]}" for axis, column in _AXES.items() if row.get(column)]
            try:
                pins.append(parse_pins([*texts, *_recompute(row)]))
            except WrongQuestion:
                continue  # a row with a value that no plan has is told by `validate`
        return pins


def _only_ran_out(rows: Sequence[journal.Row]) -> bool:
    return any(row.get("metric") == "oom" for row in rows) and not _times(rows)


def _times(rows: Sequence[journal.Row]) -> list[float]:
    return [time for row in rows if (time := _number(row, "step_time_s"))]


def _half_width(rows: Sequence[journal.Row]) -> float:
    """Half width of the 80 % interval of a step, on a log scale: variances of steps and of the runs' medians add up.

    A normal variable has an interquartile range of 1.349 standard deviations.
    """
    steps = [(_number(row, "step_time_spread") or UNSTATED) / 1.349 for row in rows]
    runs = pstdev(math.log(float(row["step_time_s"])) for row in rows)
    return WITHIN * math.hypot(math.sqrt(fmean(step**2 for step in steps)), runs)


def _number(row: journal.Row, column: str) -> float | None:
    try:
        value = float(row.get(column, ""))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _recompute(row: journal.Row) -> list[str]:
    """``block:N`` layers of a stage as the share that a plan states."""
    stated = row.get("activation_recompute", "")
    if not stated.startswith("block:"):
        return [f"recompute={stated}"] if stated else []
    blocks = stated.removeprefix("block:")
    chunks = float(row.get("pp", 1)) * float(row.get("vpp", 1))
    return [f"recompute=block:{min(1.0, float(blocks) * chunks / float(row['layers'])):g}"] if "layers" in row else []


def _answers(row: journal.Row, request: Request) -> bool:
    """Whether a row is of the work, the machines and the framework of a request."""
    work, cluster = request.workload, request.cluster
    shape = {"layers": work.model.layers, "hidden": work.model.hidden, "heads": work.model.heads}
    same = all(row.get(column, str(value)) == str(value) for column, value in shape.items())
    same = same and not cells.no_column(work.method, work.task, work.optimizer.id, work.texts)
    counts = {str(count * cluster.node.accelerators) for count in request.counts}
    return (
        same
        and (row.get("model") == work.model.id or "layers" in row)
        and row.get("task", "pretrain") == work.method.kind
        and row.get("accelerator") == cluster.accelerator.id
        and row.get("num_accelerators") in counts
        and row.get("seq_len") == str(work.sequence)
        and row.get("global_batch_seqs") in {str(batch) for batch in request.batches}
        and row.get("runtime", "").partition("@")[0] == request.runtime.id
    )
