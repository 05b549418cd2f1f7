"""Write ``accuracy.md``: how far predictions are from published measured runs, from the data alone.

``make accuracy`` runs it: it fits, leaves out each source and each model in turn, and puts what came out into tables.
About a minute on two cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docs import accuracy_collectives as alone
from docs import accuracy_memory as peaks
from docs import accuracy_plots as plots
from docs import accuracy_residuals as made_of
from planner import catalog, cost
from planner.base.resources import data
from planner.calibration.fit import calibrate, other_parameters
from planner.calibration.fit.frame import Frame
from planner.calibration.measuring import tables
from planner.calibration.report import metrics, validation
from planner.calibration.report.metrics import Errors
from planner.calibration.runs import other_families
from planner.calibration.runs import reading as runs
from planner.calibration.runs.run import Run
from planner.performance import intervals
from planner.performance.efficiency import Efficiencies
from planner.performance.profiles import importing, overlay

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "data" / "measured_runs.csv"
KERNELS = ROOT / "benchmarks" / "data" / "gemm_measured.csv"
PROFILES = ROOT / "benchmarks" / "data" / "sailor_profiles.csv"
SAILOR = ROOT / "benchmarks" / "data" / "sailor_runs.csv"
NVIDIA = ("volta", "ampere", "hopper", "blackwell")


def percent(value: float | None, places: int = 1) -> str:
    """A fraction as per cent."""
    return "-" if value is None else f"{100 * value:.{places}f} %"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def by_source(found: calibrate.Calibration, predictions: dict[str, np.ndarray]) -> str:
    """Errors by source and family under each way of fitting."""
    members = [found.frame.runs[i] for i in found.rows]
    measured = found.frame.measured[found.rows]
    groups: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(members):
        groups.setdefault((run.source, run.family), []).append(place)
    groups[("all dense", "dense")] = [i for i, r in enumerate(members) if r.family == "dense"]
    groups[("all mixtures", "moe")] = [i for i, r in enumerate(members) if r.family == "moe"]
    groups[("all", "")] = list(range(len(members)))
    rows = []
    for (source, family), places in groups.items():
        index = np.array(places)
        cells = []
        for times in predictions.values():
            errors = Errors.of(times[index], measured[index])
            assert errors is not None
            cells += [percent(errors.mape), percent(errors.median_ape), percent(errors.bias)]
        rows.append([source, family, str(len(places)), *cells])
    heads = [f"{name}: {what}" for name in predictions for what in ("MAPE", "median", "bias")]
    return table(["source", "family", "runs", *heads], rows)


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
        plan = " ".join([*degrees, f"micro {reading.layout['micro']}", reading.options.precision])
        on = f"{run.accelerators} x {run.accelerator}"
        rows.append([run.id, run.model, on, plan, run.release or "-", times_, error, told])
    return table(["run", "model", "on", "plan", "release", "predicted / measured", "error", "made of"], rows)


def reached(
    found: calibrate.Calibration,
    source: np.ndarray,
    model: np.ndarray,
    unfitted: np.ndarray,
    site: tuple[float, float],
    report: dict[str, Any],
    whole: Frame,
    using: Efficiencies,
    more: Sequence[list[str]],
) -> str:
    """What is asked of predictions, and what they reach."""
    members = [found.frame.runs[i] for i in found.rows]
    measured = found.frame.measured[found.rows]

    def mape(times: np.ndarray, family: str | None = None, name: str | None = None) -> float:
        index = [i for i, r in enumerate(members) if family in (None, r.family) and name in (None, r.source)]
        errors = Errors.of(times[index], measured[index])
        assert errors is not None
        return errors.mape

    worst_source = max((mape(source, None, name), name) for name in {r.source for r in members})
    vtrain = _choice(found, lambda r: r.source.startswith("vtrain"))
    others = _choice(found, lambda r: not r.source.startswith(("vtrain", "mlperf")) and r.grade in "AB")
    rank = metrics.spearman(source, measured)
    overall = report["overall"]
    rows = [
        ["Korthikanti Table 5, 8 rows, source left out", "3.5 %", percent(mape(source, None, "korthikanti-2022"))],
        ["dense on NVIDIA, model left out", "4.5 %", percent(mape(model, "dense"))],
        ["dense on NVIDIA, source left out", "7 %", percent(mape(source, "dense"))],
        ["mixtures on NVIDIA, model left out", "11 %", percent(mape(model, "moe"))],
        ["mixtures on NVIDIA, source left out", "13 %", percent(mape(source, "moe"))],
        ["worst single source, left out", "13 %", f"{percent(worst_source[0])} ({worst_source[1]})"],
        ["rank correlation over all, source left out", "0.995", f"{rank:.4f}" if rank else "-"],
        ["peak memory, measured rows, 5-fold", "7 %", percent(peaks.left_out(whole, using))],
        ["runs that ran called infeasible at a risk of 50 %", "0", f"{overall['oom']['called_infeasible']:,}"],
        ["after `calibrate --site` on 3 runs of a left-out source, mean over sources", "7 %", percent(site[1])],
        ["  the same before", "", percent(site[0])],
        ["no run fitted, dense", "12 %", percent(mape(unfitted, "dense"))],
        ["choice, vtrain-single: mean regret", "4 %", percent(vtrain.mean_regret)],
        ["choice, vtrain-single: pairs > 3 % apart in order", "93 %", percent(vtrain.pairwise)],
        ["choice, other groups: mean regret", "3 %", percent(others.mean_regret)],
        ["choice, other groups: pairs > 3 % apart in order", "93 %", percent(others.pairwise)],
        *more,
    ]
    return table(["figure", "asked", "reached"], rows)


def sureness(found: calibrate.Calibration, left_out: np.ndarray, known: Any) -> list[str]:
    """How many runs lie inside their 80 % interval, their source left out of the fit: all, and the worst source."""
    members = [found.frame.runs[i] for i in found.rows]
    half = np.array([intervals.found(known, *validation.described(run))[0] for run in members])
    inside = np.abs(np.log(left_out / found.frame.measured[found.rows])) <= half
    by = {name: inside[[run.source == name for run in members]] for name in {run.source for run in members}}
    share, name = min((float(each.mean()), name) for name, each in by.items() if len(each) >= 20)
    title = "80 % intervals, source left out: runs inside; least of a source of 20 runs"
    return [title, "75-85 %; 65 %", f"{percent(float(inside.mean()), 0)}; {percent(share, 0)} ({name})"]


def beyond(found: calibrate.Calibration, everything: Sequence[Run], judgement: validation.Judged) -> list[list[str]]:
    """Figures of families beyond transformers, and of accelerators that transformers were not fitted on."""
    known = [r for r in everything if r.covered and r.measured and r.family in other_families.FAMILIES]
    frame = other_families.OtherFrame(found.frame.catalog, known)
    timed = other_parameters.timed(frame)
    members = [frame.runs[i] for i in timed]
    apart = other_parameters.cross_validated(frame, found.prior) / frame.measured[timed] - 1
    families = [
        percent(float(np.abs(apart[[r.family == name for r in members]]).mean())) for name in other_families.FAMILIES
    ]
    shipped = judgement.time / judgement.measured - 1
    transformers = np.array([r.family in ("dense", "moe") for r in judgement.predicted]) & np.isfinite(shipped)

    def on(name: str, runs_: Sequence[Run]) -> np.ndarray:
        return np.array([name in r.accelerator for r in runs_])

    old = np.abs(shipped[on("V100", judgement.predicted) & transformers])
    v100 = np.concatenate([old, np.abs(apart[on("V100", members)])])
    tpu = on("TPU", judgement.predicted) & transformers
    inside = (judgement.low <= judgement.measured) & (judgement.measured <= judgement.high)
    title = f"V100, source left out ({len(v100)} runs; the {len(old)} of transformers: {percent(float(old.mean()))})"
    return [
        ["encoder, CNN, DLRM: a fifth of the sources left out", "15 %", " · ".join(families)],
        [title, "15 %", percent(float(v100.mean()))],
        [
            "TPU, nothing fitted: error; inside their interval",
            "reported",
            f"{percent(float(np.abs(shipped[tpu]).mean()))}; {int(inside[tpu].sum())} of {int(tpu.sum())}",
        ],
    ]


def _choice(found: calibrate.Calibration, wanted: Any) -> metrics.GroupChoice:
    frame = found.frame
    index = [i for i, run in enumerate(frame.runs) if wanted(run) and run.task == "pretrain"]
    times = frame.predict(found.fit.efficiencies).time
    groups = metrics.job_groups([frame.runs[i] for i in index], times[index], frame.measured[index])
    chosen = metrics.choice(groups)
    assert chosen is not None
    return chosen


def drawn(source: made_of.Judged, judgement: validation.Judged, missed: Sequence[made_of.Judged]) -> None:
    """Writes the page's plots beside it."""
    folder = ROOT / "docs" / plots.FOLDER
    runs_ = source.runs
    families, measured = [run.family for run in runs_], source.measured
    names, accelerators = [run.source for run in runs_], [run.cluster.accelerator.id for run in runs_ if run.cluster]
    known = np.flatnonzero(np.isfinite(judgement.measured))
    every = [plots.FAMILIES[judgement.predicted[i].family] for i in known]
    panels = [
        ("Fitted runs, each source left out of its fit", source.times, measured, names),
        ("Every run in the file, as shipped", judgement.time[known], judgement.measured[known], every),
    ]
    plots.save(folder, "predicted-measured", lambda: plots.scatter(panels))
    title = "Each source left out of its fit"
    plots.save(folder, "by-source", lambda: plots.strips(title, source.times, measured, names, families))
    plots.save(folder, "by-accelerator", lambda: plots.strips(title, source.times, measured, accelerators, families))
    scales = []
    for family in ("dense", "moe"):
        kept = source.only(family, None, family)
        counts = np.array([run.accelerators for run in kept.runs])
        scales.append((plots.FAMILIES[family], kept.times, kept.measured, counts))
    plots.save(folder, "by-scale", lambda: plots.by_scale(scales))
    parts = {judged.title: dict.fromkeys(made_of.KINDS, 0.0) for judged in missed}
    for judged in missed:
        parts[judged.title] |= {part.name: part.share for part in made_of.by_group(judged)}
    plots.save(folder, "residual-parts", lambda: plots.components(parts))


def breakdown(source: made_of.Judged, missed: Sequence[made_of.Judged], reached: Sequence[str], every: Any) -> str:
    """What the residuals of figures that are not reached are made of."""
    kinds = [f"{kind} (number)" if kind in made_of.KINDS[1:-1] else kind for kind in made_of.KINDS]
    return BREAKDOWN.format(
        reached=f"Reached, and so not taken apart: {'; '.join(reached)}." if reached else "",
        groups=table(["figure", "runs", "asked", "error", *kinds], made_of.groups_table(missed)),
        effects=table(["figure", "effect", "of the step", "asks for", "explains"], made_of.effects_table(missed)),
        repeats=table(
            ["family", "rows differ in", "configurations", "runs", "apart from their mean"],
            made_of.repeats_table(every),
        ),
        ranks=table(["runs of", "number", "of squared rank differences"], made_of.ranks_table(source)),
        sites=table(["source", "runs", "error", "best factor", "error after it"], made_of.sites_table(source)),
    )


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
        cells = [Errors.of(each[at], frame.measured[at]) for each in times]
        rows.append([f"micro-batch {micro}, {pp} stage{'s' if pp > 1 else ''}", str(len(at)), *_cells(cells)])
    whole = [Errors.of(each, frame.measured) for each in times]
    rows.append(["all", str(len(frame.runs)), *_cells(whole)])
    return table(["runs", "number", "modelled: MAPE", "bias", "measured layers: MAPE", "bias"], rows)


def _cells(errors: Sequence[Errors | None]) -> list[str]:
    return [percent(value) for each in errors if each for value in (each.mape, each.bias)]


def peaks_factor(using: Efficiencies) -> float:
    """The allocator's factor of frameworks that allocate as they go."""
    return max(entry.activation_factor for entry in using.runtimes.values())


def memory(
    frame: Frame,
    found: Any,
    using: Efficiencies,
    shipped: catalog.Catalog,
    everything: Sequence[Run],
    report: dict[str, Any],
) -> str:
    """The section on peak memory."""
    heads = ["run", "counted by", "measured GB", "predicted", "error", "states", "activations", "buffers"]
    overall = report["overall"]
    return MEMORY.format(
        mape=percent(overall["memory"]["mape"]),
        ran=f"{overall['oom']['ran']:,}",
        infeasible=f"{overall['oom']['called_infeasible']:,}",
        n=overall["oom"]["n"],
        each=table(heads, peaks.each(frame, using, found)),
        effects=table(["changed", "MAPE", "called infeasible"], peaks.effects(shipped, everything, using)),
        risks=table(
            ["risk", "FSDP2 may hold", "Megatron Core", "ran, and refused"], peaks.at_risks(frame, found, shipped)
        ),
        covered=percent(peaks.coverage(frame, using), 0),
        fitted=percent(peaks.left_out(frame, using)),
        factor=f"{peaks_factor(using):.2f}",
        apart=percent(peaks.per_source(shipped, everything, using)),
    )


MEMORY = """One figure of memory is fitted to runs: a framework holds {factor} times the live bytes that are counted
(alignment, freed blocks of other sizes; 1.05 before the fit). MAPE {mape} with it, {fitted} with each fifth of the runs
left out of its fit in turn, {apart} with each source left out. Of {ran} runs that ran, {infeasible} are called
infeasible at a risk of 50 %. The file holds {n} rows that ran out of memory: earlier versions of this page counted
eight, whose notes say "not OOM-tested". A framework's own count (peak reserved) leaves out context and communicators;
a device's (nvidia-smi) holds them.

{each}
What each effect is worth: one taken out at a time, everything else as it is. The lower half are readings of what a
run leaves open; each is tried, the fastest that fits is taken, and `validate` says so.

{effects}
Two ways were tried against the error: to count what is alive at the peak, effect by effect, and to fit the
allocator's factor. Each alone leaves more (the table); both are kept. A third, a share of the device that the allocator
holds whatever is counted, predicts the V100s better and is not kept: it calls runs infeasible that ran.

What is left: on V100s PyTorch of 2021 holds 8 to 30 % more than is counted. `nvidia-smi` sees the allocator's
cache, which fills a device that is nearly full; DeepSpeed's communication buckets and the 32-bit states that 8-bit
Adam keeps for embeddings are not counted. With tensor parallelism FSDP2's loss holds some 4 % more than its
tensors.

The 80 % interval of a peak is that of runs under the same runtime, but no narrower than that of all where only one
source measured it; one and a half times that of all where nobody did. Leaving out each run in turn, {covered} lie
inside theirs. What a risk leaves, as a share of an accelerator:

{risks}
Beyond its interval a peak is taken to spread as a logistic variable: nineteen rows cannot show its tails. People
tune a run until it just fits, so that a lower risk refuses some that did run.
"""


def page() -> str:
    """The whole page; its plots are written beside it."""
    priors = catalog.load(data("hardware_catalog") / "priors")
    frame = Frame(priors, runs.read(RUNS, priors))
    found = calibrate.calibrate(frame, tables.informed(Efficiencies.of(priors), priors, KERNELS)[0])
    members = [frame.runs[i] for i in found.rows]
    fitted = frame.predict(found.fit.efficiencies).time[found.rows]
    unfitted = frame.predict(found.prior).time[found.rows]
    source = calibrate.cross_validated(found, [run.group for run in members])
    model = calibrate.cross_validated(found, [run.base for run in members])
    site = calibrate.after_site(found, [run.group for run in members])
    shipped = catalog.load()
    everything = runs.read(RUNS, shipped)
    whole = Frame(shipped, everything)
    using, others = Efficiencies.of(shipped), other_families.without_layouts(everything)
    known, times = intervals.read(shipped), other_families.predict(others, using)
    predicted, held = whole.predict(using), intervals.read(shipped, intervals.MEMORY)
    judgement = validation.judged(everything, whole, predicted, known, others, times, held)
    report = validation.report(judgement, "source")
    left_out = [
        made_of.Judged("", None, frame, found.fit.efficiencies, found.rows, times_) for times_ in (source, model)
    ]
    timed = np.flatnonzero(np.isfinite(whole.measured))
    as_shipped = made_of.Judged("", None, whole, using, timed, whole.predict(using).time[timed])
    figures = made_of.figures(*left_out, as_shipped)
    missed = [figure for figure in figures if figure.missed]
    drawn(left_out[0], judgement, missed)
    covered = table(
        ["rows", "state enough", "predicted"],
        [
            [each["rows"], f"{each['n']:,}", f"{each['covered']:,} ({percent(each['covered'] / max(each['n'], 1))})"]
            for each in report["coverage"]
        ],
    )
    groups = [
        [
            *(str(g[key]) for key in ("name", "n", "covered")),
            *(percent(g[key]) for key in ("mape", "median_ape", "bias")),
            percent(g["interval80_coverage"], 0),
        ]
        for g in sorted(report["groups"], key=lambda g: -g["covered"])
        if g["covered"]
    ]
    fit = found.fit
    moved = [
        [p.name, f"x{np.exp(t):.3f}", f"{s:.2f}"]
        for p, t, s in zip(fit.parameters, fit.theta, fit.spread, strict=True)
        if abs(np.exp(t) - 1) > 0.02
    ]
    return PAGE.format(
        runs=len(members),
        parameters=len(fit.parameters),
        freedom=f"{fit.freedom:.1f}",
        reached=reached(
            found,
            source,
            model,
            unfitted,
            site,
            report,
            whole,
            using,
            [sureness(found, source, known), *beyond(found, everything, judgement)],
        ),
        sources=by_source(
            found, {"no runs": unfitted, "fitted": fitted, "source left out": source, "model left out": model}
        ),
        covered=covered,
        groups=table(["source", "rows", "predicted", "MAPE", "median", "bias", "in 80 % interval"], groups),
        worst=worst(found, source),
        breakdown=breakdown(left_out[0], missed, [f.title for f in figures if not f.missed], whole.runs),
        profiled=with_profile(),
        collectives=alone.section(ROOT / "docs" / plots.FOLDER),
        memory=memory(whole, predicted, using, shipped, everything, report),
        moved=table(["parameter", "factor on its prior", "spread (log)"], moved),
    )


BREAKDOWN = """
## What the residuals are made of

For every figure above that is not reached, the squared residuals (logarithm of predicted over measured) are taken apart
in two ways. {reached}

**By what runs have in common** (crossed random effects; shares of the squared residual, and in brackets how many
groups there are). "All runs" is a common bias. A share of a source, release, accelerator or model is a bias that its
runs share, so that one factor a group would fix it; scatter is the rest: runs equal in all of these, predicted
differently well.

![Squared residuals by what runs have in common](figures/residual-parts.svg)

{groups}
**By effect** (the share of each effect in the predicted step, regressed on; Shapley values, which add up over effects).
"Asks for" is the factor on the effect's time, held to 1 within about 30 %, with which residuals would be least. A large
remainder says that no kind of time is wrong by the same factor everywhere. Effects whose shares go together cannot be
distinguished, and what they explain is split between them.

{effects}
**Runs of one configuration** differ by what no model of that configuration can know.

{repeats}
**Rank correlation**: which runs stand at another rank than measured, source left out.

{ranks}
**Adapting to a site** can fix a source's own bias, not the scatter about it: what the best single factor on all of a
source's runs, known from all of them, would leave.

{sites}"""

PAGE = """# How accurate is it?

<!-- Generated by docs/accuracy.py from benchmarks/data/measured_runs.csv. Do not edit: run `make accuracy`. -->

Predictions are held against published measured runs. {parameters} named physical parameters, each tied to a prior
({freedom} effective degrees of freedom), are fitted to {runs} runs: grade A pre-training of transformers on NVIDIA
parts with a step time, the newest software release of each configuration. What counts is the error on what a fit has
not seen: each source, or each model, left out in turn. Sources that share configurations are left out together.

One caution. The priors were written by people who had seen these tables, and effects were added to the model because
rows showed them. Leaving a source out of the fit does not take that knowledge away, so runs from elsewhere may be
further off.

## What is asked, and what is reached

{reached}
What is left over is taken apart below. With models left out, most of the dense figure's error is on
torchtitan's Llama 3 rows, whose compiler settings stand only in notes. The transformers on V100s are one model of
hidden size 11,600 with heads of 145, which tensor cores of that generation cannot align; their source says that some
rows had a wrong MLP width besides. TPU figures rest on assumed efficiencies, chosen by people who had seen these rows.

![Predicted against measured step times](figures/predicted-measured.svg)

The line is a perfect prediction, the dotted ones 20 % to either side.
{breakdown}
## By source

"no runs" are the priors alone: datasheets, kernel and collective tables (and see the caution above).

{sources}
![Residuals by source](figures/by-source.svg)

![Residuals by accelerator](figures/by-accelerator.svg)

![Residuals by number of accelerators](figures/by-scale.svg)

## Everything in the file, as shipped

`clusterwright validate benchmarks/data/measured_runs.csv`, rows of every grade and family that can be predicted. TPU
rows have no fit at all; long-sequence and MLPerf rows leave out micro-batch, recomputation or both. A count of model
FLOPs that does not say whether it halves attention is read as counting it in full. Fine-tuning, full and LoRA, which no
fit saw, has an interval from its own runs; sequences beyond 262,144 tokens one half as wide again as others.

{groups}
{covered}
## Peak memory

{memory}
## The ten runs furthest off, source left out

{worst}
## With layer times measured elsewhere

OPT 350M on 4 to 128 GH200 under Megatron-DeepSpeed, as Sailor's authors measured it, predicted from datasheets and from
their per-layer profile (`benchmarks/data/sailor_profiles.csv`, see [profiles.md](profiles.md)). Recomputation, sequence
parallelism and precision are inferred.

{profiled}
What is left. Two stages: the runs split 11 layers and 13, the second with the head, here they are split evenly; by the
profile 13 layers and the head take 129 ms a micro-batch, 12 and the head 120 ms: 7.7 %, all of the bias. Micro-batch 1:
by the profile 24 layers alone take 99 ms, and the run of 32 micro-batches took 71 ms each in all: the two do not agree.
Four stages, and micro-batches 2 and 4, are not accounted for.

{collectives}## Measured on your own GPU

Not done: no GPU was at hand. `clusterwright calibrate --measure -o DIR` times kernels;
`python benchmarks/measured_steps.py -o steps.csv` trains seven transformers at two lengths each, with and without
recomputation, for `clusterwright validate steps.csv --catalog DIR` to judge. On a CPU both run at a tiny size in the
tests. On a part that training runs were fitted on, a table of kernels changes what shapes cost; rates of products,
attention and memory stay as the runs showed: with H100's table its runs are off by 6.3 % before and after, with the
kernels' own rates by 13 %.

## What was moved from its prior

{moved}
## What is not modelled

Clocks that fall under power limits, stragglers beyond a growth with scale, data loading, network congestion by other
jobs, kernels' differences between library versions beyond a generation's drift, CUDA graphs, activation offload,
expert imbalance beyond a constant.
"""


def main() -> int:
    """Write the page; ``--check`` only compares."""
    path = ROOT / "docs" / "accuracy.md"
    path.write_text(page(), encoding="utf-8")
    print("wrote: docs/accuracy.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
