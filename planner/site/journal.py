"""A site's journal: rows added from logs, a fit to all of them with its errors, and what they say of plans."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.calibration import run as calibration
from planner.calibration.runs import reading
from planner.catalog import Catalog, load
from planner.question.request import Request
from planner.schema.plan import MeasuredSection, Plan
from planner.site import cells, folder, forecasts
from planner.site.folder import Site
from planner.site.forecasts import RunForecast
from planner.site.log_rows import Measured
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
    return SiteRuns(tuple(folder.read(site.runs)))


@dataclass(frozen=True)
class SiteRuns:
    """The rows of a journal by the plan that they are of."""

    rows: tuple[folder.Row, ...]

    @cached_property
    def _by_key(self) -> Mapping[Hashable, Sequence[folder.Row]]:
        by_key: dict[Hashable, list[folder.Row]] = {}
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

    def out_of_memory(self, request: Request) -> list[folder.Row]:
        """The configurations that would answer a request, and ran out of memory whenever they were run."""
        return [row for row in self.relevant(request) if _only_ran_out(self._by_key[cells.key(row)])]

    def fastest(self, request: Request) -> tuple[folder.Row, float] | None:
        """The configuration that answers a request and trains on most sequences per second, and seconds of its step."""
        times = {cells.key(row): _times(self._by_key[cells.key(row)]) for row in self.relevant(request)}
        known = [(row, median(times[cells.key(row)])) for row in self.relevant(request) if times[cells.key(row)]]
        return min(known, key=lambda entry: entry[1] / float(entry[0]["global_batch_seqs"]), default=None)

    def relevant(self, request: Request) -> list[folder.Row]:
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


def _only_ran_out(rows: Sequence[folder.Row]) -> bool:
    return any(row.get("metric") == "oom" for row in rows) and not _times(rows)


def _times(rows: Sequence[folder.Row]) -> list[float]:
    return [time for row in rows if (time := _number(row, "step_time_s"))]


def _half_width(rows: Sequence[folder.Row]) -> float:
    """Half width of the 80 % interval of a step, on a log scale: variances of steps and of the runs' medians add up.

    A normal variable has an interquartile range of 1.349 standard deviations.
    """
    steps = [(_number(row, "step_time_spread") or UNSTATED) / 1.349 for row in rows]
    runs = pstdev(math.log(float(row["step_time_s"])) for row in rows)
    return WITHIN * math.hypot(math.sqrt(fmean(step**2 for step in steps)), runs)


def _number(row: folder.Row, column: str) -> float | None:
    try:
        value = float(row.get(column, ""))
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _recompute(row: folder.Row) -> list[str]:
    """``block:N`` layers of a stage as the share that a plan states."""
    stated = row.get("activation_recompute", "")
    if not stated.startswith("block:"):
        return [f"recompute={stated}"] if stated else []
    blocks = stated.removeprefix("block:")
    chunks = float(row.get("pp", 1)) * float(row.get("vpp", 1))
    return [f"recompute=block:{min(1.0, float(blocks) * chunks / float(row['layers'])):g}"] if "layers" in row else []


def _answers(row: folder.Row, request: Request) -> bool:
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


FITTED = ("site.toml", "site.csv", "memory-site.csv")
"""Names of the files in a site's catalog that its fit writes (:func:`planner.calibration.run.fit_site`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRow:
    """One measured row next to what was predicted of it before."""

    measured: Measured
    new: bool
    """Whether the journal did not have it."""
    predicted: RunForecast | None
    """Before it was learned; None: it cannot be predicted."""
    now: RunForecast | None
    """With it."""
    reason: str
    """Why it cannot be predicted, and so teaches nothing yet; empty if it can."""

    @property
    def predicted_s(self) -> float | None:
        """Seconds of a step that were predicted."""
        return None if self.predicted is None else self.predicted.step_time_s


def learn(
    site: Site, measured: Sequence[Measured], catalog: Catalog, stated: Collection[str] = (), *, accept: bool = True
) -> tuple[list[LearntRow], dict[str, Any] | None]:
    """Adds measured rows to a site's journal and fits its catalog to all of them.

    Arguments:
        site: Whose journal it is.
        measured: Rows, of one or several logs.
        catalog: What the site's runs were predicted with until now.
        stated: Columns that a person stated: a row that they make impossible is refused, not kept.
        accept: Whether runs more than :data:`~planner.site.forecasts.DOUBTFUL` times off are learned, too.

    Returns:
        Each row with its prediction until now, and the fit's document (None: no run of the journal can be predicted).

    Raises:
        WrongQuestion: the journal or the catalog cannot be written, what was stated cannot be of a run, or a run is so
            far off that it is another one.
    """
    runs = [reading.run_of_cells(measured_run.row, catalog) for measured_run in measured]
    for run in runs:
        if blamed := [column for column in stated if re.search(rf"\b{column}\b", run.reason)]:
            raise WrongQuestion(f"--set {blamed[0]}: {run.reason}; nothing was written")
    before = forecasts.predicted(runs, catalog)
    if not accept:
        for measured_run, forecast in zip(measured, before, strict=True):
            time = _number(measured_run.row, "step_time_s")
            forecasts.refuse_doubtful(described(measured_run.row), time, forecast)
    added = {row["id"] for row in folder.add(site.runs, [measured_run.row for measured_run in measured])}
    fit = fitted(site, catalog)
    now = forecasts.predicted(runs, load(site=site.folder))
    rows = [
        LearntRow(
            measured=measured_run,
            new=measured_run.row["id"] in added,
            predicted=forecast,
            now=later,
            reason=run.reason,
        )
        for measured_run, run, forecast, later in zip(measured, runs, before, now, strict=True)
    ]
    return rows, fit


def fitted(site: Site, catalog: Catalog) -> dict[str, Any] | None:
    """A fit of the site's catalog to its whole journal; None where the journal holds nothing to fit to: what an
    earlier fit has left is taken back.
    """
    digest = _digest(site.runs)  # before the fit: rows that others add meanwhile are not in it
    runs = reading.read(site.runs, catalog)
    if not any(run.measured and run.covered and run.variants for run in runs):
        for path in (path for name in FITTED for path in site.catalog.glob(f"*/{name}")):
            path.unlink(missing_ok=True)
        ran_out = sum(run.out_of_memory and run.covered and bool(run.variants) for run in runs)
        if ran_out:
            calibration.fit_site_memory(site.runs, site.catalog, catalog)
        nothing = {"rows": 0, "frameworks": 0, "before": None, "left_out": None, "journal": digest, "memory": ran_out}
        writing.write(site.fit, json.dumps(nothing, indent=2) + "\n", replace=True)
        return None
    report = {**calibration.fit_site(site.runs, site.catalog, catalog), "journal": digest}
    writing.write(site.fit, json.dumps(report, indent=2) + "\n", replace=True)
    return report


def latest(site: Site) -> dict[str, Any] | None:
    """The document of the last fit to the journal; None where there is none."""
    try:
        report = json.loads(site.fit.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(report, dict) and {"rows", "frameworks", "before", "left_out", "journal"} <= report.keys()
    return report if whole else None


def changed(site: Site, fit: Mapping[str, Any] | None) -> bool:
    """Whether the journal has changed since a fit to it, so that predictions follow what it no longer says."""
    return bool(fit["journal"] != _digest(site.runs) if fit else folder.read(site.runs))


def _digest(path: Path) -> str:
    return short_hash(path.read_bytes())


def described(row: Mapping[str, str]) -> str:
    """A row's configuration in a few words: ``llama3-8b on 8 x H100-SXM5-80GB, TP2, micro-batch 1, bf16``."""
    degrees = [f"{axis.upper()}{row[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep") if row.get(axis, "1") != "1"]
    more = [f"micro-batch {row['micro_batch']}"] if row.get("micro_batch") else []
    more += [f"recompute {row['activation_recompute']}"] if row.get("activation_recompute", "none") != "none" else []
    parts = [f"{row['model']} on {row['num_accelerators']} x {row['accelerator']}", *degrees, *more]
    return ", ".join([*parts, *([row["precision"]] if row.get("precision") else [])])
