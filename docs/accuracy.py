"""Write ``accuracy-details.md``: how far predictions are from published measured runs, from the data alone.

``make accuracy`` runs it: it fits, leaves out each lab and each framework in turn, and puts what came out into tables.
Some minutes on two cores.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docs import accuracy_collectives as alone
from docs import accuracy_intervals as how_wide
from docs import accuracy_labs as by_lab
from docs import accuracy_memory as peaks
from docs import accuracy_panel as panel
from docs import accuracy_plots as plots
from docs import accuracy_residuals as made_of
from docs import accuracy_shortfalls as short
from docs import blind, labs
from planner import catalog, cost
from planner.axes.table import PRECISION
from planner.base.resources import data
from planner.calibration.fit import calibrate
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import Fit
from planner.calibration.measuring import measure
from planner.calibration.report import validation
from planner.calibration.report.prediction_errors import errors
from planner.calibration.runs import other_families
from planner.calibration.runs import reading as runs
from planner.calibration.runs.measured_run import Run
from planner.figures import conformal_intervals
from planner.figures.efficiency import Efficiencies
from planner.figures.profiles import importing, overlay
from planner.schema.reports import FitErrors

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "data" / "measured_runs.csv"
KERNELS = ROOT / "benchmarks" / "data" / "gemm_measured.csv"
PROFILES = ROOT / "benchmarks" / "data" / "sailor_profiles.csv"
SAILOR = ROOT / "benchmarks" / "data" / "sailor_runs.csv"


def percent(value: float | None, places: int = 1) -> str:
    """A fraction as per cent."""
    return "-" if value is None else f"{100 * value:.{places}f} %"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def worst(found: calibrate.Calibration, times: np.ndarray, most: int = 10) -> str:
    """The runs furthest off, with what their predicted step is made of."""
    frame = found.frame
    grid = frame.grid(found.fit.efficiencies)
    parts = cost.breakdown(grid)
    predicted = frame.predict(found.fit.efficiencies)
    measured = frame.measured[found.rows]
    order = np.argsort(-np.abs(np.log(times / measured)))[:most]
    rows = []
    for place in order:
        index = found.rows[place]
        run, row = frame.runs[index], predicted.row[index]
        shares = {
            name: float(np.broadcast_to(value, frame.owner.shape)[row]) / predicted.time[index]
            for name, value in parts.items()
        }
        largest = sorted(shares.items(), key=lambda item: -item[1])[:5]
        told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in largest)
        error = percent(times[place] / measured[place] - 1)
        times_ = f"{times[place]:.1f} / {measured[place]:.1f} s"
        reading = frame.reading(row)
        degrees = [f"{a}{reading.layout[a]}" for a in ("tp", "pp", "cp", "ep", "dp") if reading.layout[a] > 1]
        plan = " ".join([*degrees, f"micro {reading.layout['micro']}", reading.options[PRECISION]])
        on = f"{run.accelerators} x {run.accelerator}"
        rows.append([run.id, run.model, on, plan, run.release or "-", times_, error, told])
    return table(["run", "model", "on", "plan", "release", "predicted / measured", "error", "made of"], rows)


def beyond(found: calibrate.Calibration, everything: Sequence[Run], judgement: validation.Judged) -> list[list[str]]:
    """Figures of families beyond transformers, and of TPUs, whose efficiencies nothing was fitted to."""
    known = [r for r in everything if r.covered and r.measured and r.family in other_families.FAMILIES]
    frame = other_families.OtherFrame(found.frame.catalog, known)
    timed = other_families.timed(frame)
    members = [frame.runs[i] for i in timed]
    apart = other_families.cross_validated(frame, found.prior) / frame.measured[timed] - 1
    families = [
        percent(float(np.abs(apart[[r.family == name for r in members]]).mean())) for name in other_families.FAMILIES
    ]
    return [["encoder, CNN, DLRM: a fifth of the sources left out", "-", "15 %", " · ".join(families)]]


def drawn(held: made_of.Judged, judgement: validation.Judged, missed: Sequence[made_of.Judged]) -> None:
    """Writes the page's plots beside it."""
    folder = ROOT / "docs" / plots.FOLDER
    runs_ = held.runs
    families, measured = [run.family for run in runs_], held.measured
    names, accelerators = [lab(run) for run in runs_], [run.cluster.accelerator.id for run in runs_ if run.cluster]
    known = np.flatnonzero(np.isfinite(judgement.measured))
    every = [plots.FAMILIES[judgement.predicted[i].family] for i in known]
    panels = [
        ("Runs that count, each lab left out of its fit", held.times, measured, [plots.FAMILIES[f] for f in families]),
        ("Every run in the file, as shipped", judgement.time[known], judgement.measured[known], every),
    ]
    plots.save(folder, "predicted-measured", lambda: plots.scatter(panels))
    title = "Each lab left out of its fit"
    plots.save(folder, "by-lab", lambda: plots.strips(title, held.times, measured, names, families))
    plots.save(folder, "by-accelerator", lambda: plots.strips(title, held.times, measured, accelerators, families))
    scales = []
    for family in ("dense", "moe"):
        kept = held.only(family, None, family)
        counts = np.array([run.accelerators for run in kept.runs])
        scales.append((plots.FAMILIES[family], kept.times, kept.measured, counts))
    plots.save(folder, "by-scale", lambda: plots.by_scale(scales))
    parts = {judged.title: dict.fromkeys(made_of.KINDS, 0.0) for judged in missed}
    for judged in missed:
        parts[judged.title] |= {part.name: part.share for part in made_of.by_group(judged)}
    plots.save(folder, "residual-parts", lambda: plots.components(parts))


def _group_rows(each: Sequence[labs.GroupError]) -> list[list[str]]:
    return [[e.name, f"{e.runs:,}", percent(e.mape), percent(e.bias), percent(e.scatter)] for e in each]


def _choice(r: labs.Regret) -> list[str]:
    return [percent(r.mean), percent(r.largest), percent(r.naive), str(r.better)]


def memory(
    frame: Frame, everything: Sequence[Run], using: Efficiencies, f: by_lab.Found, report: dict[str, Any]
) -> str:
    """The section on peak memory."""
    oom = report["overall"]["oom"]
    return MEMORY.format(
        labs=table(["lab", "runs", "MAPE", "bias (log)", "scatter"], _group_rows(f.memory)),
        infeasible=f"{f.infeasible[0]:,} of {f.infeasible[1]:,}",
        foreseen=f"{oom['foreseen']:,} of {oom['n']:,}",
        effects=table(
            ["changed", "MAPE over rows", "called infeasible"], peaks.effects(frame.catalog, everything, using)
        ),
    )


MEMORY = """Frameworks hold more than they allocate: freed blocks of other sizes, buffers of their own. How much more
is a trait of a framework; one factor on it is fitted to the runs whose peak was measured, equal weight a lab. With each
lab left out of that fit:

{labs}
Of runs that ran, {infeasible} are called infeasible at a risk of 50 % by fits that left their lab out; of rows that ran
out of memory, {foreseen} are foreseen as shipped. A framework's own count (peak reserved) leaves out context and
communicators; a device's (nvidia-smi) holds them.

What each effect is worth: one taken out at a time, everything else as it is. The lower rows are readings of what a run
leaves open; the default of its runtime is taken, or the middle of those that fit, and `validate` says so.

{effects}
The 80 % interval of a peak is that of runs under the same runtime, equal weight a lab, but no narrower than that of all
where only one lab measured it; one and a half times that of all where nobody did. Beyond its interval a peak is taken
to spread as a logistic variable.
"""


def with_profile() -> str:
    """Errors on runs that a profile of layer times holds for, with it and without."""
    with tempfile.TemporaryDirectory() as folder:
        for profile in importing.imported(PROFILES, catalog.load(), model="opt-350m").profiles:
            overlay.write(Path(folder), profile)
        layered = catalog.load(Path(folder))
        frame = Frame(layered, runs.read(SAILOR, layered), overlay.read(layered))
    using = Efficiencies.of(layered)
    times = [frame.predict(using, profiled).time for profiled in (False, True)]
    rows = []
    for micro, pp in sorted({(r.variants[0].layout["micro"], r.variants[0].layout["pp"]) for r in frame.runs}):
        at = [
            i
            for i, r in enumerate(frame.runs)
            if (r.variants[0].layout["micro"], r.variants[0].layout["pp"]) == (micro, pp)
        ]
        cells = [errors(each[at], frame.measured[at]) for each in times]
        rows.append([f"micro-batch {micro}, {pp} stage{'s' if pp > 1 else ''}", str(len(at)), *_cells(cells)])
    whole = [errors(each, frame.measured) for each in times]
    rows.append(["all", str(len(frame.runs)), *_cells(whole)])
    return table(["runs", "number", "modelled: MAPE", "bias", "measured layers: MAPE", "bias"], rows)


def _cells(rows: Sequence[FitErrors | None]) -> list[str]:
    return [percent(value) for each in rows if each for value in (each.mape, each.bias)]


def page() -> str:
    """The whole page; its plots are written beside it."""
    priors = catalog.load(data("hardware_catalog") / "priors")
    frame = Frame(priors, runs.read(RUNS, priors))
    found = calibrate.calibrate(frame, measure.informed(Efficiencies.of(priors), priors, KERNELS)[0])
    f = by_lab.found(found)
    shipped = catalog.load()
    everything = runs.read(RUNS, shipped)
    whole = Frame(shipped, everything)
    using, others = Efficiencies.of(shipped), other_families.without_layouts(everything)
    known, times = conformal_intervals.read(shipped), other_families.predict(others, using)
    predicted, held = whole.predict(using), conformal_intervals.read(shipped, conformal_intervals.MEMORY)
    judgement = validation.judged(everything, whole, predicted, known, validation.OtherRuns(others, times), held)
    report = validation.report(judgement, "source")
    left_out = made_of.Judged("", None, frame, found.fit.efficiencies, found.rows, f.time)
    figures = made_of.figures(left_out)
    jobs = panel.judged(shipped)
    published = Frame(shipped, [each.job.run for each in jobs])
    missed = [
        *([figure for figure in figures if figure.missed] or figures[-1:]),
        *short.judged(f, left_out, jobs, published, using),
    ]
    drawn(left_out, judgement, missed)
    groups = [
        [
            *(str(g[key]) for key in ("name", "n", "covered")),
            *(percent(g[key]) for key in ("mape", "median_ape", "bias")),
            percent(g["interval80_coverage"], 0),
        ]
        for g in sorted(report["groups"], key=lambda g: -g["covered"])
        if g["covered"]
    ]
    coverage = [
        [each["rows"], f"{each['n']:,}", f"{each['covered']:,} ({percent(each['covered'] / max(each['n'], 1))})"]
        for each in report["coverage"]
    ]
    return PAGE.format(
        rows=f"{len(found.rows):,}",
        parameters=len(found.fit.parameters),
        freedom=f"{found.fit.freedom:.1f}",
        asked=table(
            ["figure", "before", "required", "reached"], [*by_lab.asked(f), *beyond(found, everything, judgement)]
        ),
        shortfalls=short.section(f, frame, jobs),
        labs=table(["lab left out", "runs", "MAPE", "bias (log)", "scatter"], _group_rows(f.by_lab)),
        frameworks=table(["framework left out", "runs", "MAPE", "bias (log)", "scatter"], _group_rows(f.by_framework)),
        covered=table(
            ["left out", "runs", "inside", "median half-width (log)"],
            [
                [c.name, f"{c.runs:,}", percent(c.share, 0), f"{c.half:.2f}"]
                for c in (*f.covered, *f.covered_frameworks)
            ],
        ),
        wide=how_wide.section(found, shipped),
        sites=table(
            ["lab, framework", "runs", "before", "after 3 own runs", "after 24"],
            [[s.name, f"{s.runs:,}", percent(s.before), percent(s.few), percent(s.many)] for s in f.sites],
        ),
        regrets=table(
            ["plans of one job", "groups", *(f"{what} ({at})" for at in ("50 %", "plan's") for what in by_lab.CHOICE)],
            [
                [r.name, str(r.groups), *(cell for each in (r, s) for cell in _choice(each))]
                for r, s in zip(f.regrets, f.careful, strict=True)
            ],
        ),
        panel=panel.section(jobs),
        guesses=table(
            ["guessed", "rows"], [[what, f"{n:,}"] for what, n in list(validation.inferred(everything).items())[:12]]
        ),
        components=table(
            [
                "figure",
                "runs",
                "required",
                "error",
                *(f"{k} (number)" if k in made_of.KINDS[1:-1] else k for k in made_of.KINDS),
            ],
            made_of.groups_table(missed),
        ),
        effects=table(["figure", "effect", "of the step", "asks for", "explains"], made_of.effects_table(missed)),
        repeats=table(
            ["family", "rows differ in", "configurations", "runs", "apart from their mean"],
            made_of.repeats_table(whole.runs),
        ),
        groups=table(["source", "rows", "predicted", "MAPE", "median", "bias", "in 80 % interval"], groups),
        coverage=table(["rows", "state enough", "predicted"], coverage),
        worst=worst(found, f.time),
        profiled=with_profile(),
        collectives=alone.section(ROOT / "docs" / plots.FOLDER),
        memory=memory(whole, everything, using, f, report),
        moved=moved(found.fit),
        candidates=len(calibrate.CANDIDATES),
    )


def moved(fit: Fit) -> str:
    """Every fitted parameter, and by how much labs left out are predicted worse without it (`benchmarks/data`)."""
    now, worse = {"dense": 0.0, "moe": 0.0}, {}
    for step in json.loads((ROOT / "benchmarks" / "data" / "fitted_parameters.json").read_text("utf-8"))["steps"]:
        then = {kind: step[kind] for kind in now}
        if step.get("kept"):
            worse[step["without"]] = [f"{100 * (then[kind] - now[kind]):+.2f}" for kind in now]
        else:
            now = then
    return table(
        ["parameter", "factor on its prior", "spread (log)", "dense without it", "mixtures without it"],
        [
            [p.name, f"x{np.exp(t):.3f}", f"{x:.2f}", *worse[p.name]]
            for p, t, x in zip(fit.parameters, fit.theta, fit.spread, strict=True)
        ],
    )


PAGE = """# How accurate is it?

<!-- Generated by docs/accuracy.py from benchmarks/data/measured_runs.csv. Do not edit: run `make accuracy`. -->

What counts is the error on labs and frameworks that no fit has seen. {parameters} physical parameters, what kernels
of a generation reach, each tied to a prior ({freedom} effective degrees of freedom), are fitted to {rows} published
runs: pre-training of transformers of grades A and B with a step time. Every lab has the same weight, whatever the
number of its rows. A lab's rows, or a framework's, are then left out whole, and predicted by a fit to the others.
Overlaps, fusions and host times are traits of frameworks (`hardware_catalog/priors/runtime_efficiencies`): they are
not fitted.

Three cautions. The priors and traits were written by people who had seen most of these tables; leaving a lab out of the
fit does not take that knowledge away, so labs elsewhere will be further off than this page says, and intervals hold
less there than here ("How wide?" below). Where a lab swept twenty plans or more of one job, only those within 1.5 times
the fastest count here: of nanotron's sweep 250 of 1,022 rows, the others (frameworks that break in ways of their own)
are in "everything in the file" below. And nothing was left out by hand.

## What is required, and what is reached

"Before" is the model of 2026-11-21 on labs outside the file that it was fitted to.

{asked}
{shortfalls}
## Labs

{labs}
![Residuals by lab](figures/by-lab.svg)

![Predicted against measured step times](figures/predicted-measured.svg)

The line is a perfect prediction, the dotted ones 20 % to either side.

![Residuals by accelerator](figures/by-accelerator.svg)

![Residuals by number of accelerators](figures/by-scale.svg)

## Frameworks

{frameworks}
## Intervals

By the residuals of the other labs (frameworks) alone.

{covered}
<!-- how wide: made by docs/accuracy_intervals.py -->
{wide}<!-- end of how wide -->

## A site's own runs

Each lab's runs under one framework as if they were one site's: three, and 24, of them drawn at random, the others
predicted; the lab was left out of the fit before.

{sites}
## Choices

Every group of at least two different plans of one job, the lab left out. The naive rule is least TP, then least PP,
then the largest micro-batch that fits; in how many groups ours is no worse is the last figure. Both choose among plans
that are predicted to fit: at a risk of 50 % of running out of memory (the median), and at the risk that `plan` takes
by default. In brackets which.

{regrets}
<!-- known jobs: made by docs/accuracy_panel.py -->
{panel}
<!-- end of known jobs -->
## What rows leave open

Every guess is listed by `validate`; the most frequent here:

{guesses}
## What the residuals are made of

For the figures that are furthest from what is required, squared residuals (logarithm of predicted over measured) by
what runs have in common (crossed random effects, in brackets how many groups there are):

{components}
![Squared residuals by what runs have in common](figures/residual-parts.svg)

By effect: its share of the predicted step, the factor on it with which residuals would be least, and what that
explains.

{effects}
Runs of one configuration differ by what no model of that configuration can know:

{repeats}
## Everything in the file, as shipped

`clusterwright validate benchmarks/data/measured_runs.csv`: rows of every grade and family that can be predicted.

{groups}
{coverage}
## Peak memory

{memory}
## The ten runs furthest off, lab left out

{worst}
## With layer times measured elsewhere

OPT 350M on 4 to 128 GH200 under Megatron-DeepSpeed, as Sailor's authors measured it, predicted from datasheets and from
their per-layer profile (`benchmarks/data/sailor_profiles.csv`, see [profiles.md](profiles.md)). Recomputation, sequence
parallelism and precision are inferred.

{profiled}
{collectives}## Measured on your own GPU

Not done: no GPU was at hand. `clusterwright calibrate --measure -o DIR` times kernels;
`python benchmarks/measured_steps.py -o steps.csv` trains seven transformers at two lengths each, with and without
recomputation, for `clusterwright validate steps.csv --catalog DIR` to judge.

## What was moved from its prior

Of {candidates} parameters that could be fitted {parameters} are: those without which labs left out are predicted worse,
of dense models or of mixtures, by more than 0.1 points of mean log error (in turn, the least moved first:
`python -m benchmarks.fitted_parameters`). The last columns say by how many points.

{moved}
## What is not modelled

Clocks that fall under power limits, stragglers beyond a growth with scale, data loading, network congestion by other
jobs, kernels' differences between library versions but for attention's, expert imbalance beyond a constant.
"""


def main() -> int:
    """Write the page; ``--check`` only compares."""
    path = ROOT / "docs" / "accuracy-details.md"
    path.write_text(page(), encoding="utf-8")
    print("wrote: docs/accuracy-details.md")
    blind.write_pages()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
