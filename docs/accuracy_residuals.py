"""The part of ``accuracy-details.md`` that says what residuals are made of, for every figure that is not reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from docs import residuals
from docs.residuals import Component
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.report.prediction_errors import errors
from planner.calibration.runs.measured_run import Run
from planner.figures.efficiency import Efficiencies

KINDS = ("all runs", "lab", "release", "accelerator", "model", "scatter")


FEWEST = 5
"""Runs of a lab from which on it can be the worst."""


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
        found = errors(self.times, self.measured)
        assert found is not None
        return found.mape

    @property
    def missed(self) -> bool:
        """Whether the figure asked for is not reached."""
        return self.asked is None or self.error > self.asked

    def only(self, title: str, asked: float | None, family: str) -> Judged:
        """Its runs of one family."""
        kept = [i for i, r in enumerate(self.runs) if r.family == family]
        return Judged(title, asked, self.frame, self.using, self.rows[kept], self.times[kept])

    def of_lab(self, name: str) -> Judged:
        """Its runs of one lab."""
        kept = [i for i, r in enumerate(self.runs) if lab(r) == name]
        return Judged(f"worst lab: {name}", 0.20, self.frame, self.using, self.rows[kept], self.times[kept])


def figures(left_out: Judged) -> list[Judged]:
    """What is asked of step times with labs left out, by family and for the worst lab."""
    names = sorted({lab(run) for run in left_out.runs})
    each = [left_out.of_lab(name) for name in names if sum(lab(run) == name for run in left_out.runs) >= FEWEST]
    worst = max(each, key=lambda judged: judged.error)
    return [
        left_out.only("mixtures, lab left out", 0.12, "moe"),
        left_out.only("dense, lab left out", 0.12, "dense"),
        worst,
    ]


def by_group(judged: Judged) -> list[Component]:
    """Its squared residual by what runs have in common."""
    runs = judged.runs
    labels = {
        "lab": [lab(run) for run in runs],
        "release": [f"{lab(run)} {run.runtime} {run.year}" for run in runs],
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
        for across, what in ((False, "nothing that the row states"), (True, "at most the release")):
            found = residuals.repeats(chosen, across)
            cells = [str(found.configurations), str(found.runs), f"{100 * found.error:.1f} %"] if found else ["-"] * 3
            rows.append([name, what, *cells])
    return rows
