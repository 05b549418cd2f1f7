"""How few runs find a fast plan: jobs of the published runs, their lab left out of every fit, plans run in turn.

    python -m benchmarks.learning            # JSON
    python -m benchmarks.learning --page     # and keeps them, with the table of docs/learning.md

A job is one model, batch, cluster and framework of one source with at least five measured plans. A policy runs one plan
after another; its regret after k runs is how much slower the best plan run is than the best of the job. The nearest
plan that was measured stands for what Optuna proposes. Plans that ran out of memory are there to be chosen, too: such
a run is spent, and counts as the slowest plan that ran.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import catalog as catalogs
from planner.axes.table import PRECISION, RECOMPUTE, ZERO
from planner.base.resources import data
from planner.calibration.fit import calibrate as fitting
from planner.calibration.fit import counted_runs, site_correction
from planner.calibration.fit.calibrate import parameters
from planner.calibration.fit.counted_runs import cell, lab, weights
from planner.calibration.fit.frame import Frame
from planner.calibration.fit.least_squares import fit
from planner.calibration.report.prediction_errors import plan_of, same_job
from planner.calibration.runs import reading
from planner.calibration.runs.measured_run import Run
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies
from planner.planning.order import TIED
from planner.planning.shortlist import MANY_NODES

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "data" / "measured_runs.csv"
FIGURES = ROOT / "benchmarks" / "data" / "learning.json"
PAGE = ROOT / "docs" / "learning.md"
TABLE = re.compile(r"(<!-- regret -->\n).*?(<!-- end of regret -->\n)", re.DOTALL)
FEWEST = 5
"""Plans of a job: of fewer, three runs are most of them."""
AFTER = (1, 2, 3, 5)
SEEDS = 5
"""Of policies that draw."""
AXES = ("tp", "pp", "vpp", "cp", "ep", "micro", "zero", "recompute", "precision")


@dataclass(frozen=True)
class Job:
    """The plans of one job, and what is known of them before any is run."""

    kind: str
    frame: Frame
    using: Efficiencies
    """Of fits that saw nothing of the lab."""
    order: NDArray[np.intp]
    """Plans by predicted time, those predicted to fit (at a risk of 50 %) first."""

    @property
    def taken(self) -> Array:
        """Seconds of a step of each plan; of one that ran out of memory those of the slowest."""
        measured = self.frame.measured
        return np.where(np.isfinite(measured), measured, np.nanmax(measured))


Policy = Callable[[Job, int], Iterator[int]]
"""Given a job and a seed, plans in the order in which they are run."""


def jobs(file: Path = RUNS) -> Iterator[Job]:
    """Every job of a file of runs."""
    priors = catalogs.load(data("hardware_catalog") / "priors")
    frame = Frame(priors, reading.read(file, priors))
    calibration = fitting.calibrate(frame, Efficiencies.of(priors))
    groups: dict[Hashable, dict[Hashable, Run]] = {}
    for run in frame.runs:
        if run.measured is not None or run.out_of_memory:
            plans = groups.setdefault((lab(run), *same_job(run)), {})
            if plan_of(run) not in plans or plans[plan_of(run)].measured is None:
                plans[plan_of(run)] = run
    large = {key: list(plans.values()) for key, plans in groups.items() if _ran(plans.values()) >= FEWEST}
    for name in sorted({lab(runs[0]) for runs in large.values()}):
        using = _without(calibration, name)
        for runs in (each for each in large.values() if lab(each[0]) == name):
            alone = Frame(priors, runs)
            yield Job(_kind(runs[0]), alone, using, _order(alone, using))


def _ran(runs: Iterable[Run]) -> int:
    return sum(run.measured is not None for run in runs)


def _without(calibration: fitting.Calibration, name: str) -> Efficiencies:
    """What is fitted to the runs of all other labs."""
    frame = calibration.frame
    kept = np.array([row for row in calibration.rows if lab(frame.runs[row]) != name], dtype=np.intp)
    weight = weights([cell(frame.runs[i]) for i in kept])
    found = fit(frame, calibration.prior, parameters(), kept, weight, calibration.fit.theta, 6)
    others = Frame(frame.catalog, [run for run in frame.runs if lab(run) != name])
    return counted_runs.with_fitted_peaks(others, found.efficiencies)


def _kind(run: Run) -> str:
    assert run.cluster is not None
    if run.cluster.count == 1:
        return "one node"
    return f"{MANY_NODES} nodes and more" if run.cluster.count >= MANY_NODES else f"2 to {MANY_NODES - 1} nodes"


def _order(frame: Frame, using: Efficiencies) -> NDArray[np.intp]:
    found = frame.predict(using)
    return np.lexsort((found.time, ~found.fits))


# ---- policies --------------------------------------------------------------------------------------------------------


def ranking(job: Job, seed: int) -> Iterator[int]:
    """The top of the ranking, simply run."""
    yield from (int(i) for i in job.order)


def shortlisted(job: Job, seed: int) -> Iterator[int]:
    """As ``plan --shortlist``: of twins the first, and among plans predicted within 3 % of one another the simplest."""
    times = job.frame.predict(job.using).time
    firsts: dict[Hashable, int] = {}
    for index in (int(i) for i in job.order):
        firsts.setdefault(_family(job.frame.runs[index]), index)
    tied: dict[int, list[int]] = {}
    for index in firsts.values():
        first = next(reversed(tied), index)
        tied.setdefault(first if times[index] <= (1 + TIED) * times[first] else index, []).append(index)
    chosen = [index for group in tied.values() for index in sorted(group, key=lambda i: _kinds(job.frame.runs[i]))]
    yield from chosen
    yield from (int(i) for i in job.order if i not in chosen)


def _family(run: Run) -> Hashable:
    cut = run.variants[0].layout
    degrees = (cut.get(axis, 1) for axis in ("tp", "pp", "cp", "ep", "etp"))
    return (*degrees, cut.get("vpp", 1) > 1, run.variants[0].options[ZERO])


def _kinds(run: Run) -> int:
    first = run.variants[0]
    degrees = sum(first.layout.get(axis, 1) > 1 for axis in ("tp", "pp", "vpp", "cp", "ep"))
    return degrees + (first.options[ZERO] > 1)


def drawing(job: Job, seed: int) -> Iterator[int]:
    """Any."""
    yield from (int(i) for i in np.random.default_rng(seed).permutation(len(job.frame.runs)))


def tree(job: Job, seed: int, warm: bool = False) -> Iterator[int]:
    """Optuna's TPE over the axes of the plans; warm: after all predictions were told to it as if they were runs."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values = [_axes(run) for run in job.frame.runs]
    choices = {axis: sorted({each[axis] for each in values}, key=str) for axis in AXES}
    space = {axis: optuna.distributions.CategoricalDistribution(found) for axis, found in choices.items()}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    if warm:
        found = job.frame.predict(job.using)
        times = np.where(found.fits, found.time, np.max(found.time))
        study.add_trials(
            [
                optuna.trial.create_trial(params=dict(each), distributions=space, value=float(time))
                for each, time in zip(values, times, strict=True)
            ]
        )
    left = list(range(len(values)))
    while left:
        trial = study.ask(space)
        nearest = min(left, key=lambda i: sum(values[i][axis] != trial.params[axis] for axis in AXES))
        left.remove(nearest)
        study.tell(trial, float(job.taken[nearest]))
        yield nearest


def warm_tree(job: Job, seed: int) -> Iterator[int]:
    """TPE that knows the predictions."""
    return tree(job, seed, warm=True)


def _axes(run: Run) -> dict[str, str | int]:
    first = run.variants[0]
    options = first.options
    more = {"zero": options[ZERO], "recompute": options[RECOMPUTE].name, "precision": options[PRECISION]}
    return {**{axis: first.layout.get(axis, 1) for axis in AXES[:6]}, **more}


POLICIES: dict[str, tuple[Policy, int]] = {
    "our ranking": (ranking, 1),
    "our shortlist": (shortlisted, 1),
    "TPE, given our predictions": (warm_tree, SEEDS),
    "TPE": (tree, SEEDS),
    "random": (drawing, SEEDS),
}
"""Name -> policy, and how many seeds it is drawn with."""


# ---- what comes out --------------------------------------------------------------------------------------------------


def regrets(job: Job, policy: Policy, seeds: int) -> Array:
    """Mean regret after each of :data:`AFTER` runs."""
    best = float(job.taken.min())
    found = []
    for seed in range(seeds):
        order = [index for index, _ in zip(policy(job, seed), range(max(AFTER)), strict=False)]
        found.append([float(job.taken[order[:k]].min()) / best - 1.0 for k in AFTER])
    return np.mean(np.array(found), axis=0)


def errors(job: Job) -> list[float]:
    """Mean error on the plans that are not run, before any run and after each of :data:`AFTER` of the ranking."""
    found, order = [], job.order[np.isfinite(job.frame.measured[job.order])]
    for k in (0, *AFTER):
        run, rest = order[:k], order[k:]
        using = site_correction.adapted(job.frame, job.using, run).efficiencies if k else job.using
        time = job.frame.predict(using).time[rest]
        found.append(float(np.mean(np.abs(time / job.frame.measured[rest] - 1.0))) if len(rest) else np.nan)
    return found


def report(found: Sequence[Job]) -> dict[str, object]:
    """All figures, by kind of job; and of the shortlist over all jobs on several nodes, with and without the worst."""
    kinds = {}
    for kind in sorted({job.kind for job in found}, key=_first_number):
        own = [job for job in found if job.kind == kind]
        kinds[kind] = {
            "jobs": len(own),
            "plans": sum(len(job.frame.runs) for job in own),
            "regret": {
                name: _after(_mean([regrets(job, policy, seeds) for job in own]))
                for name, (policy, seeds) in POLICIES.items()
            },
            "error": dict(zip(map(str, (0, *AFTER)), _mean([errors(job) for job in own]), strict=True)),
        }
    document = {"kind": "learning", "schema_version": 1, "after": list(AFTER), "kinds": kinds}
    return document | {"several": _several([job for job in found if job.kind != "one node"])}


def _first_number(kind: str) -> int:
    return int(kind.replace("one", "1").split()[0])


def _several(found: Sequence[Job]) -> dict[str, object]:
    """The shortlist over all of some jobs, and without the one that it does worst on after three runs."""
    each = sorted((regrets(job, shortlisted, 1) for job in found), key=lambda regret: float(regret[AFTER.index(3)]))
    return {"jobs": len(each), "regret": _after(_mean(each)), "without_worst": _after(_mean(each[:-1]))}


def _after(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(map(str, AFTER), values, strict=True))


def _mean(rows: Sequence[Sequence[float] | Array]) -> list[float]:
    return [round(float(value), 4) for value in np.nanmean(np.array(rows), axis=0)]


def table(document: Mapping[str, Any]) -> str:
    """The figures as a table of Markdown."""
    lines = [
        f"| | runs | {' | '.join(f'after {k}' for k in AFTER)} |",
        f"|---|---|{'---|' * len(AFTER)}",
    ]
    for kind, found in document["kinds"].items():
        lines += [_line(name, f"{found['jobs']} jobs on {kind}", each) for name, each in found["regret"].items()]
        before = f"{100 * found['error']['0']:.1f} %"
        lines.append(_line(f"error on plans not run yet, {before} before", "the same", found["error"]))
    several = document["several"]
    lines.append(_line("our shortlist", f"all {several['jobs']} jobs on several nodes", several["regret"]))
    lines.append(_line("our shortlist", "the same without its worst job", several["without_worst"]))
    return "\n".join(lines) + "\n"


def _line(name: str, runs: str, shares: Mapping[str, float]) -> str:
    return f"| {name} | {runs} | {' | '.join(f'{100 * shares[str(k)]:.1f} %' for k in AFTER)} |"


def page() -> str:
    """The page with the figures that are kept."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    return TABLE.sub(lambda found: found[1] + table(figures) + found[2], PAGE.read_text(encoding="utf-8"))


def main() -> None:
    """Prints the figures, or writes the page's table."""
    text = json.dumps(report(list(jobs())), indent=2) + "\n"
    print(text, end="")
    if "--page" in sys.argv[1:]:
        FIGURES.write_text(text, encoding="utf-8")
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
