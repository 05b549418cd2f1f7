"""The part of ``accuracy.md`` that says what residuals are made of, for every figure that is not reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fit.frame import Frame
from planner.calibration.report import residuals
from planner.calibration.report.metrics import Errors
from planner.calibration.report.residuals import Component
from planner.calibration.runs.run import Run
from planner.performance.efficiency import Efficiencies

KINDS = ("all runs", "source", "release", "accelerator", "model", "scatter")


@dataclass(frozen=True)
class Judged:
    """Runs that one figure is about."""

    title: str
    asked: float | None
    """Mean error that is asked for; None: an error is only reported."""
    frame: Frame
    using: Efficiencies
    """With which steps are taken apart."""
    rows: np.ndarray
    """Indices of the frame's runs."""
    times: np.ndarray
    """Predicted, seconds, of those."""

    @property
    def runs(self) -> list[Run]:
        """The runs."""
        return [self.frame.runs[i] for i in self.rows]

    @property
    def measured(self) -> np.ndarray:
        """Seconds."""
        return self.frame.measured[self.rows]

    @property
    def residual(self) -> np.ndarray:
        """Logarithm of predicted over measured."""
        return np.asarray(np.log(self.times / self.measured))

    @property
    def error(self) -> float:
        """Mean absolute error, a fraction."""
        errors = Errors.of(self.times, self.measured)
        assert errors is not None
        return errors.mape

    @property
    def missed(self) -> bool:
        """Whether the figure asked for is not reached."""
        return self.asked is None or self.error > self.asked

    def only(self, title: str, asked: float | None, family: str = "", source: str = "") -> Judged:
        """Its runs of one family or source."""
        kept = [i for i, r in enumerate(self.runs) if family in ("", r.family) and source in ("", r.source)]
        return Judged(title, asked, self.frame, self.using, self.rows[kept], self.times[kept])


def figures(source: Judged, model: Judged, shipped: Judged) -> list[Judged]:
    """What is asked of step times, by runs; `source` and `model` are left-out predictions, `shipped` all as shipped."""
    names = sorted({run.source for run in source.runs})
    worst = max((source.only(name, 0.13, source=name) for name in names), key=lambda judged: judged.error)
    return [
        model.only("mixtures, model left out", 0.11, "moe"),
        source.only("mixtures, source left out", 0.13, "moe"),
        model.only("dense, model left out", 0.045, "dense"),
        source.only("dense, source left out", 0.07, "dense"),
        worst.only(f"worst source: {worst.title}", 0.13),
        shipped.only("V100, no run fitted", 0.15, source="bigscience-v100"),
        shipped.only("TPU, no run fitted", None, source="maxtext-tpu"),
    ]


def by_group(judged: Judged) -> list[Component]:
    """Its squared residual by what runs have in common."""
    runs = judged.runs
    labels = {
        "source": [run.source for run in runs],
        "release": [f"{run.source} {run.release}" for run in runs],
        "accelerator": [run.cluster.accelerator.id if run.cluster else "" for run in runs],
        "model": [run.base for run in runs],
    }
    return residuals.by_group(judged.residual, labels)


def groups_table(sets: Sequence[Judged]) -> list[list[str]]:
    """A row a set: runs, error, and the shares of the squared residual in the order of :data:`KINDS`."""
    rows = []
    for judged in sets:
        found = {part.name: part for part in by_group(judged)}
        cells = [_group(found.get(kind)) for kind in KINDS]
        asked = "-" if judged.asked is None else f"{100 * judged.asked:g} %"
        rows.append([judged.title, str(len(judged.rows)), asked, f"{100 * judged.error:.1f} %", *cells])
    return rows


def _group(part: Component | None) -> str:
    if part is None:
        return "-"
    return f"{100 * max(part.share, 0.0):.0f} %" + (f" ({part.levels})" if part.name in KINDS[1:-1] else "")


def effects_table(sets: Sequence[Judged], most: int = 5) -> list[list[str]]:
    """A row a set and effect: share of the step, factor that residuals ask for, share of the squared residual."""
    rows = []
    for judged in sets:
        row = judged.frame.predict(judged.using).row[judged.rows]
        names, share = residuals.shares(judged.frame, judged.using, row)
        effects, rest = residuals.by_effect(judged.residual, names, share)
        label = judged.title
        for effect in effects[:most]:
            if effect.explained < 0.01:
                break
            told = (f"{100 * effect.share:.0f} %", f"x{effect.factor:.2f}", f"{100 * effect.explained:.0f} %")
            rows.append([label, effect.name, *told])
            label = ""
        rows.append([label, "no factor on any effect", "", "", f"{100 * rest:.0f} %"])
    return rows


def repeats_table(runs: Sequence[Run]) -> list[list[str]]:
    """How far runs of the same configuration are apart, with the same release and whatever the release."""
    rows = []
    for family, name in (("dense", "dense"), ("moe", "mixtures")):
        chosen = [r for r in runs if r.family == family and r.task == "pretrain" and r.grade in "AB"]
        chosen = [r for r in chosen if not r.source.startswith(("mlperf", "vtrain"))]
        for across, what in ((False, "nothing that the row states"), (True, "at most the release")):
            found = residuals.repeats(chosen, across)
            cells = [str(found.configurations), str(found.runs), f"{100 * found.error:.1f} %"] if found else ["-"] * 3
            rows.append([name, what, *cells])
    return rows


def ranks_table(judged: Judged, most: int = 6) -> list[list[str]]:
    """Which runs keep the rank correlation from 1."""
    labels = [f"{run.source}, {'mixtures' if run.family == 'moe' else run.family}" for run in judged.runs]
    found = residuals.displaced(judged.times, judged.measured, labels)
    return [[name, str(runs), f"{100 * share:.0f} %"] for name, runs, share in found[:most]]


def sites_table(judged: Judged) -> list[list[str]]:
    """By source: the error, and what is left of it once one factor is taken off all its runs."""
    rows = []
    for name in sorted({run.group for run in judged.runs}):
        inside = np.array([i for i, run in enumerate(judged.runs) if run.group == name])
        residual = judged.residual[inside]
        off = np.abs(np.expm1(residual - np.median(residual))).mean()
        factor = float(np.exp(-np.median(residual)))
        before = np.abs(np.expm1(residual)).mean()
        rows.append([name, str(len(inside)), f"{100 * before:.1f} %", f"x{factor:.3f}", f"{100 * off:.1f} %"])
    means = [np.mean([float(row[column].split()[0]) for row in rows]) for column in (2, 4)]
    return [*rows, ["mean over sources", "", f"{means[0]:.1f} %", "", f"{means[1]:.1f} %"]]
