"""Figures not reached, in ``accuracy-details.md``: how far, where it comes from, what would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from docs import accuracy_labs as by_lab
from docs import labs, panel
from docs.accuracy_labs import COUNTED, Found, percent
from docs.accuracy_panel import ASKED, NAMES, table
from docs.accuracy_residuals import Judged
from docs.panel import JudgedJob
from planner.axes.table import ZERO
from planner.calibration.fit.frame import Frame
from planner.calibration.runs.measured_run import Run
from planner.figures.efficiency import Efficiencies

OWN_MEAN, OWN_MOST = 0.06, 0.10
"""Errors that are asked for after three own runs: mean over sites, and of any."""
HOLDS = (0.75, 0.88)
"""Share of runs that 80 % intervals are asked to hold."""
ALIKE = 250
"""Residuals drawn of every site, so that each weighs alike."""
BEHIND = 0.10
"""Regret from which on a choice is listed."""
STALL = 0.2
"""Seconds more than predicted from which on a transfer between stages has stalled."""
FEW, MANY = 128, 4
"""Accelerators up to which stalls are told by plan, and replicas that are many."""
NARROW = 2
"""Tensor-parallel degree up to which nanotron's steps over several nodes are told as they are: above, its runs with
stages take longer by the degree, too."""


@dataclass(frozen=True)
class Shortfall:
    """A figure that is asked for."""

    figure: str
    required: str
    reached: str
    missed: bool
    why: str
    settles: str


WHY = {
    "own": "a lab's runs scatter around its own bias, and three do not say which way the rest will go; one factor on "
    "the step, a factor with traits of the runtime, and runs that weigh more the nearer they are were tried, and the "
    "last is shipped ([learning.md](learning.md))",
    "intervals": "on purpose: three narrower rules were tried ('How wide?')",
    "rule": "single runs that took a multiple of what like runs took, below; 'Choices' has the risk that `plan` takes",
    "dense": "plans that save recomputation by a memory that nobody measured (TPUs); buckets as calls of their own, "
    "in Megatron's sizes, were tried, and labs left out were predicted worse by them",
    "moe": "our plans save exchanges of experts, which the published ones are predicted to pay more for than they did "
    "(by part under 'Known jobs'), and the recipes of gpt-oss are predicted too fast; heads of 64 that wait for "
    "exponentials, and biases and clamped functions as kernels of their own, are in and did not explain that",
}
"""Where a shortfall comes from, and what was tried."""
SETTLES = {
    "own": "step times of one site's own models, with their breakdown from a profiler",
    "intervals": "step times of five labs or more that nobody here has seen, of mixtures among them",
    "rule": "those runs again, with a trace of one that stalls (which call waits) and its allocator's statistics",
    "dense": "one measured peak of a TPU run; timings of reduce-scatter and all-gather over 48 to 512 ranks",
    "moe": "the dispatcher and the overlap that each recipe ran with; a profile of one layer of gpt-oss",
}


def shortfalls(f: Found, jobs: Sequence[JudgedJob]) -> list[Shortfall]:
    """Every figure that may be missed here, missed or not."""
    after, most = float(np.mean([s.few for s in f.sites])), max(f.sites, key=lambda s: s.few)
    share = float(np.mean([c.share for c in f.covered if c.runs >= COUNTED]))
    rows = [
        ("after 3 own runs, mean over sites", percent(OWN_MEAN, 0), percent(after), after > OWN_MEAN, "own"),
        ("the most", percent(OWN_MOST, 0), f"{percent(most.few)} ({most.name})", most.few > OWN_MOST, "own"),
        ("80 % intervals hold", "75-88 %", percent(share, 0), not HOLDS[0] <= share <= HOLDS[1], "intervals"),
    ]
    for r in f.regrets:
        asked = f"no more than the naive rule's {percent(r.naive)}"
        rows.append((f"regret: {r.name} ({r.groups} groups)", asked, percent(r.mean), r.mean > r.naive, "rule"))
    for family, (low, high) in ASKED.items():
        mean = panel.geometric(jobs, family)
        missed = not low <= mean <= high
        what = f"our best plans over the measured ones, {NAMES[family]}"
        rows.append((what, f"{low:.2f}-{high:.2f}", f"{mean:.4f}", missed, family))
    return [Shortfall(*row, WHY[key], SETTLES[key]) for *row, key in rows]


def judged(f: Found, left_out: Judged, jobs: Sequence[JudgedJob], shipped: Frame, using: Efficiencies) -> list[Judged]:
    """The runs that missed figures are about, for residuals by effect and by group.

    Arguments:
        f: what leaving labs out shows.
        left_out: the runs that count, each lab left out.
        jobs: known jobs.
        shipped: their published configurations as a frame.
        using: the efficiencies that are shipped.
    """
    frame, chance = left_out.frame, np.random.default_rng(0)
    drawn = [chance.choice(len(s.rows), min(ALIKE, len(s.rows)), replace=False) for s in f.sites]
    rows = np.concatenate([s.rows[k] for s, k in zip(f.sites, drawn, strict=True)])
    times = np.concatenate([s.times[k] for s, k in zip(f.sites, drawn, strict=True)])
    own = [Judged("after 3 own runs, all sites", OWN_MEAN, frame, left_out.using, rows, times)]
    for site in f.sites:
        title = f"after 3 own runs: {site.name}"
        own.append(Judged(title, OWN_MOST, frame, left_out.using, site.rows, site.times))
    few = [k for k, run in enumerate(left_out.runs) if by_lab.regret_kind(run) == "nanotron, up to 8 nodes"]
    plans = Judged("nanotron, up to 8 nodes", None, frame, left_out.using, left_out.rows[few], left_out.times[few])
    time = shipped.predict(using).time
    known = [
        Judged(f"known jobs as published, {NAMES[family]}", None, shipped, using, np.array(of, dtype=np.intp), time[of])
        for family, (low, high) in ASKED.items()
        if not low <= panel.geometric(jobs, family) <= high
        for of in [[k for k, run in enumerate(shipped.runs) if run.family == family]]
    ]
    return [each for each in (*own, plans, *known) if each.missed]


def waits(run: Run) -> float:
    """Times in a step that a stage waits for others: of each micro-batch twice at an end of the pipeline, four times
    within; once without stages.
    """
    layout = run.variants[0].layout
    assert run.workload is not None
    return run.workload.batch / (layout["dp"] * layout["micro"]) * {1: 1, 2: 2}.get(layout["pp"], 4)


def longer(run: Run, seconds: float) -> float:
    """Seconds by which each of these would have to take longer than predicted."""
    return (run.measured - seconds) / waits(run) if run.measured is not None else float("nan")


def _plan(run: Run) -> str:
    layout = run.variants[0].layout
    degrees = " ".join(f"{axis}{layout[axis]}" for axis in ("tp", "pp", "dp") if layout[axis] > 1)
    return f"{degrees} micro {layout['micro']} ZeRO {run.variants[0].options[ZERO]} ({run.id})"


def behind(f: Found, frame: Frame) -> list[list[str]]:
    """Choices far behind the best plan where the naive rule does better than ours: a row each."""
    kinds = {r.name for r in f.regrets if r.mean > r.naive}
    found = labs.choices(frame, f.every, f.share <= 1.0, by_lab.regret_kind)
    told = []
    for each in found:
        regret = float(frame.measured[each.plan] / frame.measured[each.best]) - 1.0
        if each.kind not in kinds or regret < BEHIND:
            continue
        run = frame.runs[each.plan]
        cells = [f"{frame.measured[i]:.2f} / {f.every[i]:.2f} s" for i in (each.plan, each.best)]
        filled = percent(float(f.share[each.plan]), 0)
        wait = f"{longer(run, float(f.every[each.plan])):.2f} s"
        best = [_plan(frame.runs[each.best]), cells[1]]
        told.append([f"{run.model}, {run.accelerators}", percent(regret), _plan(run), cells[0], filled, wait, *best])
    return told


def stalls(f: Found, frame: Frame) -> tuple[list[list[str]], list[list[str]]]:
    """Of nanotron's runs with stages, in how many every wait took a stall longer than predicted: by size; and of those
    on few accelerators by model, ZeRO stage and replicas.
    """
    by_size: dict[int, list[float]] = {}
    by_plan: dict[tuple[str, ...], list[float]] = {}
    for run, seconds in zip(frame.runs, f.every, strict=True):
        if run.runtime != "nanotron" or by_lab.regret_kind(run) is None or not run.variants:
            continue
        layout, wait = run.variants[0].layout, longer(run, float(seconds))
        if layout["pp"] == 1 or layout["tp"] > NARROW or not np.isfinite(wait):
            continue
        by_size.setdefault(run.accelerators, []).append(wait)
        if run.accelerators <= FEW:
            replicas = f"{MANY} and more" if layout["dp"] >= MANY else f"less than {MANY}"
            key = (run.model, str(run.variants[0].options[ZERO]), replicas)
            by_plan.setdefault(key, []).append(wait)
    sizes = [[str(size), *_counted(waits), *_spans(waits)] for size, waits in sorted(by_size.items())]
    return sizes, [[*key, *_counted(waits)] for key, waits in sorted(by_plan.items())]


def _counted(waits: Sequence[float]) -> list[str]:
    return [str(len(waits)), str(sum(wait > STALL for wait in waits))]


def _spans(waits: Sequence[float]) -> list[str]:
    """The shortest and the longest stall, and the longest wait that is none."""
    stalled, other = ([w for w in waits if (w > STALL) == long] for long in (True, False))
    span = f"{min(stalled):.2f} to {max(stalled):.2f} s" if stalled else "-"
    return [span, f"{max(other):.2f} s" if other else "-"]


def section(f: Found, frame: Frame, jobs: Sequence[JudgedJob]) -> str:
    """The section's text."""
    missed = [s for s in shortfalls(f, jobs) if s.missed]
    first = [not any(s.why == before.why for before in missed[:k]) for k, s in enumerate(missed)]
    asked = table(
        ["figure", "required", "reached", "where it comes from, what was tried", "what would settle it"],
        [
            [s.figure, s.required, s.reached, *((s.why, s.settles) if new else ("as above", "as above"))]
            for s, new in zip(missed, first, strict=True)
        ],
    )
    both = "measured / predicted"
    choices = table(["job", "regret", "chosen", both, "filled", "a wait longer", "best", both], behind(f, frame))
    sizes, plans = stalls(f, frame)
    return SECTION.format(
        asked=asked,
        choices=choices,
        sizes=table(["accelerators", "runs", "stalled", "by", "others by at most"], sizes),
        plans=table(["model", "ZeRO", "replicas", "runs", "stalled"], plans),
        narrow=NARROW,
        stall=STALL,
        few=FEW,
    )


SECTION = """What is not reached, and what would settle it ("What the residuals are made of" has effects and groups):

{asked}
**Choices behind the naive rule's**, at a risk of 50 %, predicted with the lab left out. `filled` is the share of the
card that the plan is predicted to hold; `a wait longer` is what each wait for other stages took more than predicted, if
all of them did: two for each micro-batch with two stages, four with more, one without stages.

{choices}
nanotron's runs with stages are of two sorts. Most wait as long as predicted; in the others every wait takes a quarter
of a second or more on top, whatever the micro-batch, the bytes or the memory held, on one node as on many. Of runs with
TP {narrow} and less, where more than {stall} s is a stall:

{sizes}
And of those on {few} accelerators and less:

{plans}
nanotron sends a transfer as three messages, and the host reads two of them before the third (p2p.py of its pipelines),
so that a wait is one of latency, not of bytes; but no latency of a link or a host is a quarter of a second, and no wait
of that length was found in that source. There is no price for it, and none was fitted.

The two labs on AMD run AMD's own recipe on MI355X and MI350X in fp8: each is predicted by what kernels reach as fitted
to the other, and the third row of the first table leaves both out at once. Meta's 405 B runs are predicted to fill more
than their cards: their schedule keeps fewer micro-batches in flight than Megatron's, and frees tensors early (arXiv
2407.21783, 3.3.2).
"""
