"""Known jobs: what is predicted for the configuration that was published, and for our best plan, beside what was
measured.

A job is a row of a runs file (:mod:`planner.calibration.runs.reading`) with four more columns: `fitted`, whether the
efficiencies were fitted to it; `shaped`, which entry of a catalog was written with its figure at hand, so that it tests
nothing although no fit read it; `held`, pins for what software of its time could not do; `ours`, what a person says of
a plan of ours that claims more than anybody measured. Where plans come from is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner import cost
from planner.axes.options import OptionValues
from planner.axes.table import PRECISION
from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.calibration.fit.frame import Frame
from planner.calibration.runs import reading
from planner.calibration.runs.measured_run import Run
from planner.catalog import Catalog
from planner.figures.efficiency import Efficiencies

CLAIM = 1.08
"""Throughput over the best measured one from which a plan needs a reason to be believed."""
ANSWERS = ("believed: ", "not believed: ")
"""How a reason begins."""
COLUMNS = ("fitted", "shaped", "held", "ours")


@dataclass(frozen=True, slots=True)
class KnownJob:
    """One published job."""

    run: Run
    fitted: bool
    shaped: str
    """Which entry was written by someone who knew what was measured, and why; empty: none."""
    held: str
    """Pins, as ``cp=1,offload=none``; empty: nothing."""
    reason: str
    """Why a claim of ours is believed or not; empty where nobody said."""

    @property
    def unseen(self) -> bool:
        """Whether neither a fit nor an entry of the catalog rests on it: only then does it test anything."""
        return not self.fitted and not self.shaped


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A plan for a job, predicted."""

    layout: Mapping[str, int]
    options: OptionValues
    time: float
    """Seconds per step."""
    terms: Mapping[str, float]
    """Seconds of the step by cause."""


@dataclass(frozen=True, slots=True)
class BestRate:
    """The most that anybody measured of a model on machines of one kind, in one precision."""

    tokens_per_s: float
    """Per accelerator."""
    id: str
    """The row that says so."""


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """A job with what is predicted of it."""

    job: KnownJob
    published: JobPlan
    ours: JobPlan
    best: BestRate

    @property
    def measured(self) -> float:
        """Seconds per step."""
        assert self.job.run.measured is not None
        return self.job.run.measured

    @property
    def error(self) -> float:
        """Predicted over measured time of the published configuration."""
        return self.published.time / self.measured

    @property
    def tuned(self) -> float:
        """Predicted time of our best plan over the measured time of the published one."""
        return self.ours.time / self.measured

    @property
    def claim(self) -> float:
        """Throughput of our best plan over the best that anybody measured."""
        return rate(self.job.run, self.ours.time) / self.best.tokens_per_s

    def cheaper(self, most: int = 3) -> list[tuple[str, float]]:
        """Terms in which our plan is cheaper than the published one, and by how many seconds, most first."""
        saved = {name: self.published.terms.get(name, 0.0) - seconds for name, seconds in self.ours.terms.items()}
        first = sorted(saved.items(), key=lambda item: -item[1])[:most]
        return [(name, seconds) for name, seconds in first if seconds > 0.01 * self.measured]


def read(path: Path, catalog: Catalog) -> list[KnownJob]:
    """Every job of a file.

    Raises:
        WrongQuestion: no such file or not CSV, a column is missing, or a job cannot be predicted; the message says why.
    """
    runs = reading.read(path, catalog)
    rows = list(csv_rows.table(path, "a file of jobs"))
    jobs = []
    for row, run in zip(rows, runs, strict=True):
        if missing := [name for name in COLUMNS if name not in row]:
            raise WrongQuestion(f"{path}: no column {', '.join(missing)}")
        if row["fitted"] not in ("yes", "no"):
            raise WrongQuestion(f"{path}: {run.id}: fitted {row['fitted']!r} is neither yes nor no")
        if run.reason or run.measured is None or not run.variants:
            raise WrongQuestion(f"{path}: {run.id}: {run.reason or 'nothing was measured'}")
        jobs.append(KnownJob(run, row["fitted"] == "yes", row["shaped"], row["held"], row["ours"]))
    return jobs


def published(catalog: Catalog, jobs: Sequence[KnownJob], using: Efficiencies) -> list[JobPlan]:
    """The configuration of every job as it was published, predicted."""
    frame = Frame(catalog, [job.run for job in jobs])
    prediction = frame.predict(using)
    parts = cost.breakdown(frame.grid(using))
    columns = {name: np.broadcast_to(np.asarray(part, dtype=float), frame.owner.shape) for name, part in parts.items()}
    plans = []
    for time, row in zip(prediction.time, prediction.row, strict=True):
        taken = frame.reading(int(row))
        terms = {name: float(column[row]) for name, column in columns.items()}
        plans.append(JobPlan(taken.layout, taken.options, float(time), terms))
    return plans


def rate(run: Run, seconds: float) -> float:
    """Tokens per second and accelerator of a step that takes so long."""
    assert run.workload is not None
    return run.workload.batch * run.workload.sequence / (seconds * run.accelerators)


def _same_machine(run: Run) -> tuple[object, ...]:
    """What runs share whose rates compare: the model's shape, sequence, accelerator and precision; not how many."""
    assert run.workload is not None and run.cluster is not None
    model = run.workload.model
    shape = (model.layers, model.hidden, model.ffn, model.heads, model.kv_heads, model.moe)
    return (shape, run.workload.sequence, run.cluster.accelerator.id, run.variants[0].options[PRECISION])


def best_rates(jobs: Sequence[KnownJob], runs: Sequence[Run]) -> list[BestRate]:
    """The highest rate of every job in a file of runs, or among the jobs themselves."""
    best: dict[tuple[object, ...], BestRate] = {}
    for run in [*(job.run for job in jobs), *runs]:
        if run.covered and run.measured and run.variants and run.workload and run.workload.method.kind == "pretrain":
            rates = BestRate(rate(run, run.measured), run.id)
            known = best.get(_same_machine(run))
            if known is None or rates.tokens_per_s > known.tokens_per_s:
                best[_same_machine(run)] = rates
    return [best[_same_machine(job.run)] for job in jobs]


def geometric(judged: Sequence[JudgedJob], family: str) -> float:
    """Geometric mean over a family's jobs of our best plan's time over the time measured of the published one."""
    return float(np.exp(np.mean([np.log(row.tuned) for row in judged if row.job.run.family == family])))


def claims(judged: Sequence[JudgedJob]) -> list[JudgedJob]:
    """Jobs whose plan claims much more than anybody measured, most first."""
    return sorted((row for row in judged if row.claim > CLAIM), key=lambda row: -row.claim)
