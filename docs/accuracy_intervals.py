"""The part of ``accuracy-details.md`` on how wide intervals should be: the shipped rule beside three others.

    python -m docs.accuracy_intervals

Every rule gets the residuals of some labs and gives half-widths for runs of another one, or under another framework.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from docs import panel
from docs.accuracy_panel import JOBS, table
from docs.labs import framework
from planner import catalog
from planner.axes.table import PRECISION
from planner.base import writing
from planner.base.resources import data
from planner.calibration.fit import calibrate
from planner.calibration.fit.calibrate import Calibration
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.measuring import measure
from planner.calibration.report.validation import situation
from planner.calibration.runs import reading
from planner.catalog import Catalog
from planner.cost.figures import Array
from planner.figures import step_time_interval
from planner.figures.conformal_intervals import LEVEL, quantile
from planner.figures.efficiency import Efficiencies
from planner.figures.step_time_interval import Situation

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy-details.md"
BEGIN, END = "<!-- how wide: made by docs/accuracy_intervals.py -->", "<!-- end of how wide -->"
NORMAL = 1.28
"""Standard deviations of a normal variable that 80 % lie within."""
FEWEST_LABS = 3
"""Labs that a class of runs is judged by itself from."""
COUNTED = 3
"""Runs of a group from which on its coverage is counted."""
FAR = 0.5
"""Log residuals beyond which a run says no more about variances than that it is far off."""

Rule = Callable[[Array, Sequence[Situation], Sequence[str]], Callable[[Situation], float]]
"""Residuals (log), what they are of and who ran them -> half-width of a further run (log)."""


@dataclass(frozen=True)
class Judged:
    """Residuals of runs (log of predicted over measured), what each is of, and who ran it under what."""

    by_lab: Array
    """Each by a fit that left its lab out."""
    by_framework: Array
    """Each by a fit that left its framework out."""
    situations: list[Situation]
    labs: list[str]
    frameworks: list[str]


def judged(found: Calibration) -> Judged:
    """The core runs of a calibration, each lab and each framework left out in turn."""
    frame, rows = found.frame, found.rows
    members = [frame.runs[i] for i in rows]
    labs, frameworks = [lab(run) for run in members], [framework(run) for run in members]
    left_out = [np.log(calibrate.cross_validated(found, names) / frame.measured[rows]) for names in (labs, frameworks)]
    read = frame.predict(found.fit.efficiencies).row[rows]
    of = [situation(run, frame.reading(row).options[PRECISION]) for run, row in zip(members, read, strict=True)]
    return Judged(*left_out, of, labs, frameworks)


# ---- rules -----------------------------------------------------------------------------------------------------------


def shipped(residuals: Array, situations: Sequence[Situation], labs: Sequence[str]) -> Callable[[Situation], float]:
    """The rule that this program has."""
    known = step_time_interval.fitted(residuals, situations, labs)
    return lambda each: step_time_interval.half_width(known, each)[0]


def bare(residuals: Array, situations: Sequence[Situation], labs: Sequence[str]) -> Callable[[Situation], float]:
    """The same with nothing assumed of labs or of the level: residuals alone, so that it holds for a further lab if
    that comes as these did.
    """
    with (
        patch.dict(step_time_interval.ASSUMED, {step_time_interval.LAB: 0.0}),
        patch.object(step_time_interval, "LEAST_LEVEL", 0.0),
    ):
        return shipped(residuals, situations, labs)


def by_class(residuals: Array, situations: Sequence[Situation], labs: Sequence[str]) -> Callable[[Situation], float]:
    """The 80 % quantile of residuals of the same class (dense, mixture, new to the other labs), every lab alike; of all
    where too few labs have any.
    """
    names = np.array(labs)
    weight = np.array([1.0 / np.sum(names == name) for name in labs])
    others = {name: step_time_interval.support([s for s, own in zip(situations, labs, strict=True) if own != name])
              for name in set(labs)}  # fmt: skip
    classes = np.array([_class(s, others[name]) for s, name in zip(situations, labs, strict=True)])
    half = {"all": quantile(np.abs(residuals), weight, LEVEL)}
    for name in sorted(set(classes)):
        own = classes == name
        if len(set(names[own])) >= FEWEST_LABS:
            half[name] = quantile(np.abs(residuals[own]), weight[own], LEVEL)
    known = step_time_interval.support(situations)
    return lambda each: half.get(_class(each, known), half["all"])


def _class(each: Situation, known: dict[str, step_time_interval.Width]) -> str:
    terms = step_time_interval.added(each, known)
    return "new" if {step_time_interval.NEW_PART, step_time_interval.FRAMEWORK} & set(terms) else each.kind


def by_components(
    residuals: Array, situations: Sequence[Situation], labs: Sequence[str]
) -> Callable[[Situation], float]:
    """Variances between labs and of runs by restricted maximum likelihood over dense models, what mixtures have beyond
    them, and the assumed terms of what is new; nothing for how mechanisms were chosen.
    """
    names, clipped = np.array(labs), np.clip(residuals, -FAR, FAR)
    dense = np.array([each.kind == "dense" for each in situations])
    groups = [clipped[dense & (names == name)] for name in sorted(set(labs))]
    between, run = max(
        product(np.linspace(0.0, 0.25, 26), np.linspace(0.04, 0.20, 33)),
        key=partial(_likelihood, [group for group in groups if len(group)]),
    )
    weight = np.array([1.0 / np.sum(names == name) for name in labs])
    squares = np.average(clipped[~dense] ** 2, weights=weight[~dense]) if np.any(~dense) else 0.0
    known, mixture = step_time_interval.support(situations), max(float(squares) - between**2 - run**2, 0.0)

    def half(each: Situation) -> float:
        terms = step_time_interval.added(each, known)
        new = sum(
            step_time_interval.ASSUMED[name] ** 2
            for name in (step_time_interval.NEW_PART, step_time_interval.FRAMEWORK)
            if name in terms
        )
        return float(NORMAL * math.sqrt(between**2 + run**2 + new + mixture * (each.kind == "moe")))

    return half


def _likelihood(groups: Sequence[Array], spreads: tuple[float, float]) -> float:
    """Restricted log likelihood of one mean, a variance between groups and one within them (Patterson and Thompson
    1971), up to a constant.
    """
    between, within = (each**2 for each in spreads)
    information = first = second = logs = 0.0
    for group in groups:
        n, total = len(group), float(group.sum())
        shared = between / (within * (within + n * between))
        logs += (n - 1) * math.log(within) + math.log(within + n * between)
        information += n / within - n * n * shared
        first += total / within - n * total * shared
        second += float(group @ group) / within - total * total * shared
    return -0.5 * (logs + second - first * first / information + math.log(information))


RULES: dict[str, Rule] = {
    "shipped: variances add, the labs' at least 0.12": shipped,
    "the same with nothing assumed; holds for a lab more, drawn as these": bare,
    "quantiles of labs left out, by class": by_class,
    "variances by restricted likelihood, nothing assumed of labs": by_components,
}


# ---- the part --------------------------------------------------------------------------------------------------------


def left_out(rule: Rule, given: Judged, residuals: Array, groups: Sequence[str]) -> Array:
    """Half-widths of every run, by the residuals of the other groups alone."""
    names, half = np.array(groups), np.zeros(len(groups))
    for name in sorted(set(groups)):
        own = np.flatnonzero(names == name)
        rest = np.flatnonzero(names != name)
        of = rule(residuals[rest], [given.situations[i] for i in rest], [given.labs[i] for i in rest])
        half[own] = [of(given.situations[i]) for i in own]
    return half


def _coverage(inside: Array, groups: Sequence[str]) -> float:
    """Share inside, every group of some runs alike."""
    names = np.array(groups)
    shares = [float(np.mean(inside[names == n])) for n in sorted(set(groups)) if np.sum(names == n) >= COUNTED]
    return float(np.mean(shares))


def _rows(given: Judged, unfitted: Sequence[tuple[float, Situation]]) -> Iterator[list[str]]:
    kinds = np.array([each.kind for each in given.situations])
    for name, rule in RULES.items():
        lab_half = left_out(rule, given, given.by_lab, given.labs)
        inside = np.abs(given.by_lab) <= lab_half
        other_half = left_out(rule, given, given.by_framework, given.frameworks)
        other = np.abs(given.by_framework) <= other_half
        of = rule(given.by_lab, given.situations, given.labs)
        held = sum(abs(error) <= of(each) for error, each in unfitted)
        yield [
            name,
            f"{100 * _coverage(inside, given.labs):.0f} %",
            f"{100 * _coverage(other, given.frameworks):.0f} %",
            *(
                f"{100 * np.mean(inside[kinds == k]):.0f} % at {np.median(lab_half[kinds == k]):.2f}"
                for k in ("dense", "moe")
            ),
            f"{held} of {len(unfitted)}",
        ]


def _of_kind(inside: Array, half: Array) -> str:
    return f"{100 * np.mean(inside):.0f} % at {np.median(half):.2f}" if len(half) else "-"


def unfitted_jobs(known: Catalog) -> list[tuple[float, Situation]]:
    """Published jobs that neither a fit nor an entry of the catalog rests on: log of predicted over measured, and what
    each is of.
    """
    jobs = [job for job in panel.read(JOBS, known) if job.unseen]
    plans = panel.published(known, jobs, Efficiencies.of(known))
    return [
        (math.log(plan.time / (job.run.measured or math.nan)), situation(job.run, plan.options[PRECISION]))
        for job, plan in zip(jobs, plans, strict=True)
    ]


def section(found: Calibration, known: Catalog) -> str:
    """The part's text."""
    given, unfitted = judged(found), unfitted_jobs(known)
    labs = sorted(set(given.labs))
    biases = [float(np.mean(given.by_lab[np.array(given.labs) == name])) for name in labs]
    kinds = ["dense rows, half-width", "mixtures, half-width"]
    heads = ["rule", "lab left out", "framework left out", *kinds, "jobs that nothing rests on"]
    return TEXT.format(
        counted=COUNTED,
        rules=table(heads, list(_rows(given, unfitted))),
        labs=len(labs),
        bias=f"{math.sqrt(np.mean(np.square(biases))):.2f}",
    )


TEXT = """**How wide?** Asked for is that 75 to 88 % hold; more do, and the shipped rule stays. Three narrower ones
were tried on the same residuals, the first of them written down before its figures were seen. Shares are means over
labs (frameworks) of {counted} runs or more, of rows by kind, and of the published jobs that neither a fit nor a
framework's entry rests on ("Known jobs" below).

{rules}
Biases of these {labs} labs are {bias} (rms, log) when left out, but their tables were known when mechanisms were
chosen; labs that nobody had seen were 0.148 off then, and 0.12, about two thirds of that variance, is assumed to stay.
Rules that fit these labs (the second by hierarchical conformal prediction, arXiv 2306.06342) make intervals narrower,
hold fewer of the jobs in the last column, the only evidence from outside, and one lab more or less of a run each moves
the second from 0.20 to 0.11. Of the jobs outside the shipped intervals two are one mixture under Megatron Core with
DeepEP, a dispatcher that a row cannot state; two are one baseline on 3,072 and 12,288 A100, whose micro-batch its
authors leave open. So intervals hold more than they say of labs like these; elsewhere, expect half to two thirds. What
would settle it: step times of five labs or more that nobody here has seen, of mixtures among them.
"""


def refreshed(page: str, text: str) -> str:
    """The page with the part between its marks.

    Raises:
        ValueError: the page has no such marks.
    """
    if BEGIN not in page:
        raise ValueError(f"no {BEGIN} in the page")
    marked = f"{BEGIN}\n{text}{END}\n"
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END) + "\n", lambda _: marked, page, flags=re.DOTALL)


def main() -> int:
    """Make the part anew."""
    from docs.accuracy import KERNELS, RUNS

    priors = catalog.load(data("hardware_catalog") / "priors")
    frame = Frame(priors, reading.read(RUNS, priors))
    found = calibrate.calibrate(frame, measure.informed(Efficiencies.of(priors), priors, KERNELS)[0])
    text = section(found, catalog.load())
    writing.write(PAGE, refreshed(PAGE.read_text(encoding="utf-8"), text), replace=True)
    print("wrote: docs/accuracy-details.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
