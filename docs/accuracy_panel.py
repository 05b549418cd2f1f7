"""Known jobs in ``accuracy-details.md``: published configurations and our best plans beside what was measured.

``python -m docs.accuracy_panel`` makes it anew between its marks and leaves the rest of the page as it is (seconds).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from docs import panel
from docs.panel import JobPlan, JudgedJob, KnownJob
from planner import catalog, cost
from planner.axes.table import ATTENTION_KERNEL, GRAPHS, OFFLOAD, PRECISION, RECOMPUTE, ZERO
from planner.base import writing
from planner.calibration.runs import reading
from planner.catalog import Catalog
from planner.figures.efficiency import Efficiencies
from planner.planning import ranked
from planner.question.request import Request
from planner.question.search_problem import prepare
from planner.space.cost_grid import single_grid
from planner.space.pins import parse_pins

ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "benchmarks" / "data" / "known_jobs.csv"
RUNS = ROOT / "benchmarks" / "data" / "measured_runs.csv"
PAGE = ROOT / "docs" / "accuracy-details.md"
BEGIN, END = "<!-- known jobs: made by docs/accuracy_panel.py -->", "<!-- end of known jobs -->"
ASKED = {"dense": (0.97, 1.04), "moe": (0.95, 1.05)}
"""What the geometric mean of a family is asked to be in."""
NAMES = {"dense": "dense", "moe": "mixtures"}


def our_plan(known: Catalog, job: KnownJob, precision: str) -> JobPlan:
    """The planner's best plan for a job: same model, machines, batch, sequence, precision and release."""
    run = job.run
    assert run.workload is not None and run.cluster is not None
    request = Request(
        workload=run.workload,
        cluster=run.cluster,
        counts=(run.cluster.count,),
        batches=(run.workload.batch,),
        runtime=known.runtime(run.runtime).at(run.year),
        release=run.year,
        pins=parse_pins([f"precision={precision}", job.held]),
        top=1,
    )
    prepared = prepare(known, request)
    best = ranked.search(known, prepared, top=1).found.best[0]
    parts = cost.breakdown(single_grid(prepared.figures, best.layout, best.options))
    terms = {name: float(np.max(part)) for name, part in parts.items()}
    return JobPlan(best.layout, best.options, best.time, terms)


def judged(known: Catalog, every: int = 1) -> list[JudgedJob]:
    """Every known job, or every so manieth, with its predictions."""
    jobs = panel.read(JOBS, known)[::every]
    plans = panel.published(known, jobs, Efficiencies.of(known))
    best = panel.best_rates(jobs, reading.read(RUNS, known))
    return [
        JudgedJob(job, plan, our_plan(known, job, plan.options[PRECISION]), rate)
        for job, plan, rate in zip(jobs, plans, best, strict=True)
    ]


def words(plan: JobPlan) -> str:
    """A plan in short: ``tp 8, pp 16, vpp 4, micro 1, ZeRO 1, no recomputation``."""
    degrees = [f"{axis} {plan.layout[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep") if plan.layout[axis] > 1]
    options = plan.options
    again = {"none": "no recomputation"}.get(options[RECOMPUTE].name, f"recompute {options[RECOMPUTE].name}")
    moved = ["optimizer on the host"] if options[OFFLOAD] else []
    named = [options[axis] for axis in (GRAPHS, ATTENTION_KERNEL) if options[axis] != axis.neutral]
    return ", ".join([*degrees, f"micro {plan.layout['micro']}", f"ZeRO {options[ZERO]}", again, *moved, *named])


def table(headers: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _seen(job: KnownJob) -> str:
    if job.shaped:
        return " (not fitted, but known when its software was described)"
    return "" if job.fitted else " (not fitted)"


def _row(each: JudgedJob) -> list[str]:
    run = each.job.run
    assert run.workload is not None
    return [
        f"{run.model}, {run.lab}" + _seen(each.job),
        f"{run.accelerators:,} {run.accelerator}, {each.published.options[PRECISION]}",
        f"{run.workload.batch:,} x {run.workload.sequence:,}",
        words(each.published),
        f"{each.measured:.2f}",
        f"{each.published.time:.2f} ({each.error:.2f})",
        words(each.ours),
        f"{each.ours.time:.2f} ({each.tuned:.2f})",
        f"{panel.rate(run, each.ours.time):,.0f} / {each.best.tokens_per_s:,.0f} ({each.claim:.2f})",
    ]


def _claim(each: JudgedJob) -> list[str]:
    saved = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in each.cheaper())
    return [
        f"{each.job.run.model}, {each.job.run.accelerators:,} {each.job.run.accelerator} ({each.job.run.id})",
        f"{each.claim:.2f} x {each.best.id}",
        f"{each.error:.2f}",
        saved or "-",
        each.job.reason or "not looked at",
    ]


def parts(every: Sequence[JudgedJob]) -> list[list[str]]:
    """Of mixtures, why our plans take another time than was measured, furthest first: what the published plan is
    mispredicted by, and by which parts of a step ours differs from it. Logarithms, which add up to the whole:
    ``ln(ours / measured) = ln(published / measured) + sum_k (ours_k - published_k) / L``, L the logarithmic mean of
    both steps (Ang 2005, decomposition by logarithmic mean Divisia index).
    """
    rows, whole = [], []
    for each in sorted((one for one in every if one.job.run.family == "moe"), key=lambda one: one.tuned):
        found = _gap(each)
        whole.append(found)
        rows.append(
            [f"{each.job.run.model}, {each.job.run.accelerators:,} {each.job.run.accelerator}", *_signed(found)]
        )
    mean = {name: float(np.mean([found[name] for found in whole])) for name in whole[0]}
    return [["mean", *_signed(mean)], *rows]


PARTS = ("matrix", "attention", "vector", "logits", "recompute", "bubble", "ep", "tp", "dp")
"""Parts of a step that have a column of their own; `other` holds the rest."""


def _gap(each: JudgedJob) -> dict[str, float]:
    ours, published = each.ours, each.published
    apart = ours.time - published.time
    mean = apart / np.log(ours.time / published.time) if abs(apart) > 1e-9 * ours.time else ours.time
    by = {name: (ours.terms.get(name, 0.0) - published.terms.get(name, 0.0)) / mean for name in PARTS}
    found = {"all": float(np.log(each.tuned)), "published": float(np.log(each.error)), **by}
    return found | {"other": found["all"] - found["published"] - sum(by.values())}


def _signed(found: Mapping[str, float]) -> list[str]:
    return [f"{100 * value:+.0f} %" if abs(value) >= 0.005 else "" for value in found.values()]


def section(every: Sequence[JudgedJob]) -> str:
    """The section's text."""
    shaped = sum(bool(each.job.shaped) for each in every)
    means = [
        [
            NAMES[family],
            str(sum(each.job.run.family == family for each in every)),
            f"{low:.2f}-{high:.2f}",
            f"{panel.geometric(every, family):.3f}",
        ]
        for family, (low, high) in ASKED.items()
    ]
    heads = ["job", "on", "batch", "published", "measured, s", "predicted", "our best plan", "predicted", "claim"]
    why = ["job", "claims", "published plan, predicted / measured", "cheaper than published in", "why"]
    return f"""## Known jobs

{len(every)} published jobs (`benchmarks/data/known_jobs.csv`), with what is predicted of the published configuration
and of the planner's own best plan for the same model, machines, batch, precision and release (pins hold what software
of its time could not do). Times in seconds a step; in brackets predicted over measured, of our plans over the time
measured of the published one. The claim is our plan's tokens per second and accelerator over the most that anybody
measured of that model on that accelerator in that precision. Means are of all jobs. Those that are not fitted say so;
of these, {shaped} was known to those who described its software (`shaped` says why), and counts nowhere as unseen.

{table(["family", "jobs", "asked", "our best plan over measured, geometric mean"], means)}
{table(heads, [_row(each) for each in every])}
Mixtures, by part: how much longer (+) or shorter our plan is predicted to take than was measured of the published one
(logarithms, in per cent, which add up), the part of that by which the published plan itself is predicted so, and the
parts of a step in which ours differs from it:

{table(["job", "our plan", "as published", *PARTS, "other"], parts(every))}
Where our plan claims more than {panel.CLAIM:.2f} of what anybody measured:

{table(why, [_claim(each) for each in panel.claims(every)])}"""


def refreshed(page: str, told: str) -> str:
    """The page with the section between its marks, or at its end."""
    marked = f"{BEGIN}\n{told}\n{END}\n"
    if BEGIN in page:
        return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END) + "\n", lambda _: marked, page, flags=re.DOTALL)
    return page.rstrip("\n") + "\n\n" + marked


def main() -> int:
    """Make the section anew."""
    told = section(judged(catalog.load()))
    writing.write(PAGE, refreshed(PAGE.read_text(encoding="utf-8"), told), replace=True)
    print("wrote: docs/accuracy-details.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
