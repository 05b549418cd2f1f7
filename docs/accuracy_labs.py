"""The first section of ``accuracy-details.md``: predictions of labs and frameworks that no fit has seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from docs import labs
from docs.labs import Covered, GroupError, Regret, framework
from planner import catalog
from planner.calibration.fit import site_correction
from planner.calibration.fit.calibrate import Calibration, held_out
from planner.calibration.fit.counted_runs import PRETRAINING, lab, recipe
from planner.calibration.fit.frame import Frame
from planner.calibration.runs.measured_run import Run
from planner.cost import stage_memory
from planner.figures import conformal_intervals
from planner.figures.efficiency import Efficiencies
from planner.question.request import OOM_RISK

DRAWS = 8
"""Times that a site's own runs are drawn at random."""
COUNTED = 3
"""Runs of a lab from which on its coverage is counted."""
SMALLEST = 8
"""Runs of one lab and framework from which on a site is imitated."""


def regret_kind(run: Run) -> str | None:
    """Under which head a group of plans of one job is counted; None where plans are not compared."""
    if run.family not in ("dense", "moe") or run.task not in PRETRAINING or run.grade not in ("A", "B"):
        return None
    if run.runtime == "nanotron":
        nodes = run.accelerators // 8
        return (
            "nanotron, up to 8 nodes"
            if nodes <= 8
            else "nanotron, 16-32 nodes"
            if nodes <= 32
            else "nanotron, 64 nodes"
        )
    return {"KAIST": "vTrain, A100", "BigScience (Jean Zay)": "BLOOM, A100"}.get(lab(run), f"{lab(run)}")


@dataclass(frozen=True)
class Site:
    """A lab's runs under one framework as if they were one site's. Errors are fractions."""

    name: str
    runs: int
    before: float
    few: float
    """After 3 own runs."""
    many: float | None
    """After 24."""
    rows: np.ndarray
    """Of the frame: what was predicted after three own runs, of every draw."""
    times: np.ndarray
    """Predicted so, seconds."""


@dataclass(frozen=True)
class Found:
    """What leaving out whole labs, and whole frameworks, shows."""

    by_lab: list[GroupError]
    by_framework: list[GroupError]
    by_recipe: list[GroupError]
    covered: list[Covered]
    covered_frameworks: list[Covered]
    memory: list[GroupError]
    sites: list[Site]
    regrets: list[Regret]
    """Among plans that are predicted to fit at a risk of 50 %."""
    careful: list[Regret]
    """The same at the risk that `plan` takes by default."""
    infeasible: tuple[int, int]
    """Runs that ran and are called infeasible at a risk of 50 %, and runs that ran; lab left out."""
    prior: list[GroupError]
    """With no run fitted."""
    time: np.ndarray
    """Seconds of the core's runs, lab left out."""
    every: np.ndarray
    """The same of every run of the frame."""
    share: np.ndarray
    """Of its accelerator that a peak is predicted to fill, of every run of the frame."""


def found(calibration: Calibration) -> Found:
    """Fits without each lab, and without each framework, and what they predict."""
    frame, rows = calibration.frame, calibration.rows
    members = [frame.runs[i] for i in rows]
    time, memory, share = labs.held_out(calibration, lab)
    fits, careful = share <= 1.0, share <= usable_shares(frame)
    other_time, _, _ = labs.held_out(calibration, framework)
    whose_time, _, _ = labs.held_out(calibration, recipe)
    residual = np.log(time[rows] / frame.measured[rows])
    other = np.log(other_time[rows] / frame.measured[rows])
    whose = np.log(whose_time[rows] / frame.measured[rows])
    unfitted = np.log(frame.predict(calibration.prior).time[rows] / frame.measured[rows])
    ran = [i for i, r in enumerate(frame.runs) if r.measured and not r.out_of_memory and r.family in ("dense", "moe")]
    return Found(
        labs.errors(residual, [lab(run) for run in members]),
        labs.errors(other, [framework(run) for run in members]),
        labs.errors(whose, [recipe(run) for run in members]),
        labs.coverage(calibration, residual, lab),
        labs.coverage(calibration, other, framework),
        labs.errors(memory, [lab(run) for run in frame.runs]),
        sites(calibration),
        labs.regrets(frame, time, fits, regret_kind),
        labs.regrets(frame, time, careful, regret_kind),
        (sum(not fits[i] for i in ran), len(ran)),
        labs.errors(unfitted, [lab(run) for run in members]),
        time[rows],
        time,
        share,
    )


def usable_shares(frame: Frame) -> np.ndarray:
    """Share of an accelerator's memory that a predicted peak may reach at the risk of running out that `plan` takes."""
    known = conformal_intervals.read(catalog.load(), conformal_intervals.MEMORY)
    halves = [conformal_intervals.found_memory(known, run.runtime)[0] for run in frame.runs]
    return np.array([stage_memory.usable(1.0, half, OOM_RISK) for half in halves])


def sites(calibration: Calibration) -> list[Site]:
    """Every lab's runs under one framework as a site: error on its other runs before and after few of its own."""
    frame, rows = calibration.frame, calibration.rows
    chance, told = np.random.default_rng(0), []
    left = {name: using for name, using in _left_out(calibration)}
    keys = [(lab(frame.runs[i]), framework(frame.runs[i])) for i in rows]
    for key in sorted(set(keys)):
        own = np.array([i for i, each in zip(rows, keys, strict=True) if each == key])
        if len(own) < SMALLEST:
            continue
        alone, using = Frame(frame.catalog, [frame.runs[i] for i in own]), left[key[0]]
        before = float(np.abs(alone.predict(using).time / alone.measured - 1).mean())
        after: list[tuple[float | None, np.ndarray, np.ndarray]] = []
        for few in (3, 24):
            drawn = [_after(alone, using, few, chance) for _ in range(DRAWS if len(own) > few + 4 else 0)]
            errors = [float(np.abs(times / alone.measured[rest] - 1).mean()) for rest, times in drawn]
            rest, times = (np.concatenate([each[k] for each in drawn] or [np.zeros(0, int)]) for k in (0, 1))
            after.append((float(np.mean(errors)) if errors else None, own[rest], times))
        (three, *judged), (many, *_) = after
        assert three is not None
        told.append(Site(f"{key[0]}, {key[1]}", len(own), before, three, many, *judged))
    return told


def _after(alone: Frame, using: Efficiencies, few: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of a site's runs those that were not drawn, and their predicted seconds by a fit to those that were."""
    picked = chance.choice(len(alone.runs), few, replace=False)
    rest = np.setdiff1d(np.arange(len(alone.runs)), picked)
    fitted = site_correction.adapted(alone, using, picked).efficiencies
    return rest, alone.predict(fitted).time[rest]


def _left_out(calibration: Calibration) -> Iterator[tuple[str, Efficiencies]]:
    """Efficiencies fitted without each lab."""
    names = [lab(calibration.frame.runs[i]) for i in calibration.rows]
    for name, _, fit in held_out(calibration, names):
        yield name, fit.efficiencies


def _mean(errors: Sequence[GroupError], key: str) -> float:
    return float(np.mean([getattr(each, key) for each in errors]))


def _over_groups(regrets: Sequence[Regret]) -> float:
    return sum(r.mean * r.groups for r in regrets) / max(sum(r.groups for r in regrets), 1)


def percent(value: float | None, places: int = 1) -> str:
    """A fraction as per cent."""
    return "-" if value is None else f"{100 * value:.{places}f} %"


CHOICE = ("mean regret", "largest", "of the naive rule", "no worse")
"""What is said of groups of plans of one job."""
BEFORE = {
    "mape": "17-33 %",
    "worst": "28-92 %",
    "bias": "-14 %",
    "holds": "31-54 %",
    "site": "5-36 %",
    "memory": "28 %",
    "infeasible": "38 of 81 LoRA runs",
    "regret": "7-50 %",
}
"""What the model of 2026-11-21 reached on labs and frameworks outside the file that it was fitted to."""


def asked(f: Found) -> list[list[str]]:
    """Figure, before this round, required, reached."""
    old = BEFORE
    whole = [c for c in f.covered if c.runs >= COUNTED]
    regret = [r for r in f.regrets if not r.name.endswith("64 nodes")]
    groups, mean = sum(r.groups for r in regret), _over_groups(regret)
    larger = next((r for r in f.regrets if "16-32" in r.name), None)
    safe = _over_groups([r for r in f.careful if not r.name.endswith("64 nodes")])
    at_larger = next((r.mean for r in f.careful if "16-32" in r.name), None)
    worst, most = (max(each, key=lambda e: e.mape) for each in (f.by_lab, f.by_recipe))
    strictly = f"{percent(_mean(f.by_recipe, 'mape'))}; {percent(most.mape)} ({most.name}, {most.runs} runs)"
    share = float(np.mean([c.share for c in whole]))
    half = float(np.median([c.half for c in f.covered]))
    after = [s.few for s in f.sites]
    many = [s.many for s in f.sites if s.many is not None and "nanotron" in s.name]
    no, ran = f.infeasible
    own = f"{percent(float(np.mean(after)))}; {percent(max(after))}"
    memory = percent(_mean(f.memory, "mape"))
    refused = f"{no:,} of {ran:,} ({percent(no / max(ran, 1))})"
    return [
        ["step time, lab left out, equal weight a lab: MAPE", old["mape"], "12 %", percent(_mean(f.by_lab, "mape"))],
        ["worst lab", old["worst"], "20 %", f"{percent(worst.mape)} ({worst.name}, {worst.runs} runs)"],
        ["a vendor and who runs its recipes left out together: MAPE; worst", "-", "-", strictly],
        ["bias, equal weight a lab (log)", old["bias"], "within 4 %", percent(_mean(f.by_lab, "bias"))],
        ["framework left out, equal weight a framework: MAPE", "-", "-", percent(_mean(f.by_framework, "mape"))],
        ["no run fitted at all, equal weight a lab: MAPE", "-", "-", percent(_mean(f.prior, "mape"))],
        ["80 % intervals, lab left out: hold (mean over labs)", old["holds"], "75-88 %", percent(share, 0)],
        ["  median half-width (log)", "-", "0.30", f"{half:.2f}"],
        ["after 3 own runs: mean over sites; most", old["site"], "6 %; 10 %", own],
        ["after 24 runs of a new framework (nanotron)", "-", "8 %", percent(many[0]) if many else "-"],
        ["peak memory, lab left out, equal weight a lab: MAPE", old["memory"], "10 %", memory],
        ["runs that ran called infeasible at 50 % risk", old["infeasible"], "1 %", refused],
        ["regret, every group of 2 plans or more: mean", old["regret"], "3 %", f"{percent(mean)} ({groups} groups)"],
        ["  at 16-32 nodes", "-", "8 %", percent(larger.mean) if larger else "-"],
        ["  the same two at plan's own risk of running out", "-", "-", f"{percent(safe)}; {percent(at_larger)}"],
    ]  # fmt: skip
