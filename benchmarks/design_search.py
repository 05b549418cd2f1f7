"""How well and how fast designs are searched, on five studies whose optimum is proven first, and on those that ship.

Regret: how much worse the best feasible point after so many trials is than the best of all points, in per cent.
Nested: Optuna proposes an outer point and its best plan is searched exactly; flat: Optuna proposes outer point and plan
together, as one space. CMA-ES needs `pip install cmaes`, GP torch; they are left out where those are missing. `--write`
keeps the figures in benchmarks/data, from which docs/design-studies.md is made (`make docs`).

    python benchmarks/design_search.py [--json] [--tiny] [--write]
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from planner import catalog as catalogs
from planner.axes.table import RECOMPUTE
from planner.catalog.files import TomlDocument
from planner.question.search_problem import problem
from planner.search import costing
from planner.study import run
from planner.study.program import boxes, optuna_samplers, optuna_trials
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import Point, Study

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data" / "design_search.json"
SEEDS, TRIALS, FIRST = 10, 80, 10
"""Seeds from the tenth on: no setting was ever chosen with those."""
AT_ONCE = 8
"""Trials that are asked for before any of them is told, where they are evaluated side by side."""
SHIPPED = ("transformer-1t", "small-node", "rent-or-wait")
DRAWS = 100
"""Most random draws for each point that may be tried."""
MARK = 5
"""Of so many trials a curve has a point."""
ROUNDING = 1e-9
PLANS = ["micro=1|2", "cp=1", "vpp=1", "zero=1", "offload=none", "sequence_parallel=on", "tp_overlap=off",
         "dp_overlap=on", "rank_order=tp-cp-ep-dp-pp", "recompute=none|selective|full"]  # fmt: skip
"""What the studies' plans may be: a space small enough that flat search has a chance, and that enumeration is short."""
COSTS: dict[str, Any] = {
    "basis": "purchase",
    "accelerator": "$4,000",
    "node": "$30,000",
    "per": {
        "accelerator.peak.bf16": "$16 per TFLOP/s",
        "accelerator.memory": "$60 per GiB",
        "accelerator.memory_bandwidth": "$1.5 per GB/s",
        "node.scaleup_bandwidth": "$6 per GB/s",
        "fabric.nic_bandwidth": "$40 per GB/s",
    },
}


def _range(low: str, high: str, points: int) -> dict[str, Any]:
    return {"from": low, "to": high, "points": points, "log": True}


def figures(n: int, **more: Any) -> dict[str, Any]:
    """Axes of five figures with so many values each, and others."""
    return {
        "accelerator.peak.bf16": _range("156 TFLOP/s", "1248 TFLOP/s", n),
        "accelerator.memory": _range("24 GiB", "256 GiB", n),
        "accelerator.memory_bandwidth": _range("1 TB/s", "8 TB/s", n),
        "node.scaleup_bandwidth": _range("100 GB/s", "1200 GB/s", n),
        "fabric.nic_bandwidth": _range("50 Gbit/s", "1600 Gbit/s", n),
        **more,
    }


STUDIES: tuple[dict[str, Any], ...] = (
    {
        "name": "transformer-1t, $/token",
        "objectives": ["cost"],
        "base": {"node": "dgx-a100-80gb", "accelerators": 1024},
        "workloads": [{"model": "megatron-1t", "pins": [*PLANS, "tp=8|16|32"]}],
        "axes": {"node.accelerators": [8, 16, 32], **figures(7)},
        "costs": COSTS,
    },
    {
        "name": "llama3-70b, time within $3M",
        "objectives": ["step-time"],
        "base": {"node": "dgx-h100", "count": 16},
        "workloads": [{"model": "llama3-70b", "batch": 512, "pins": PLANS}],
        "axes": {"fabric.oversubscription": [1, 2, 4], **figures(7)},
        "costs": COSTS,
        "constraints": [{"of": "capital", "at_most": "$3M"}],
    },
    {
        "name": "8b and mixture, J/token",
        "objectives": ["energy"],
        "base": {"node": "dgx-h100", "count": 8},
        "workloads": [
            {"model": "llama3-8b", "batch": 512, "pins": PLANS},
            {"model": "mixtral-8x7b", "batch": 512, "weight": 2, "pins": [*PLANS, "ep=1|8", "etp=1"]},
        ],
        "axes": {"node.accelerators": [4, 8, 16], **figures(7)},
        "costs": COSTS,
        "power": {
            "accelerator.peak.bf16": "0.7 W per TFLOP/s",
            "accelerator.memory_bandwidth": "0.05 W per GB/s",
            "accelerator.memory": "0.4 W per GiB",
            "node.scaleup_bandwidth": "0.2 W per GB/s",
            "fabric.nic_bandwidth": "1 W per GB/s",
        },
    },
    {
        "name": "13b, $/token, a million points",
        "objectives": ["cost"],
        "base": {"node": "dgx-h100", "count": 4},
        "workloads": [{"model": "llama2-13b", "batch": 512, "pins": PLANS}],
        "axes": figures(16),
        "costs": COSTS,
    },
    {
        "name": "70b, $/token, eight axes",
        "objectives": ["cost"],
        "base": {"node": "dgx-h100", "count": 16},
        "workloads": [{"model": "llama3-70b", "batch": 512, "pins": PLANS}],
        "axes": {
            "node.accelerators": [8, 16, 32],
            "fabric.oversubscription": [1, 2, 4],
            "cluster.count": [8, 16, 32],
            **figures(6),
        },
        "costs": COSTS,
    },
)


def study(given: Mapping[str, Any], tiny: bool) -> Study:
    """One of the studies; tiny: two values of every axis."""
    data = {**given, "trials": TRIALS}
    if tiny:
        data["axes"] = {
            path: values[:2] if isinstance(values, list) else {**values, "points": 2}
            for path, values in given["axes"].items()
        }
    return reading.study(TomlDocument(Path("benchmark.toml"), "", data), catalogs.load())


# ---- every point -----------------------------------------------------------------------------------------------------


class Table:
    """Outer points of a study, each evaluated when it is first asked for, and the proven optimum."""

    def __init__(self, asked: Study) -> None:
        self.study, self.evaluator = asked, Evaluator(catalogs.load(), asked)
        started = time.process_time()
        self.proof = boxes.search(Evaluator(catalogs.load(), asked), asked.size)
        self.cpu_s = time.process_time() - started
        assert self.proof.complete
        self._known: dict[Point, tuple[float, dict[str, float]]] = {}

    def outcome(self, point: Point) -> tuple[float, dict[str, float]]:
        """The objective (infinite where it is not feasible) and the violations at a point."""
        return self.outcomes([point])[0]

    def outcomes(self, points: Sequence[Point]) -> list[tuple[float, dict[str, float]]]:
        """The same of several points, side by side."""
        for found in self.evaluator.many([point for point in dict.fromkeys(points) if point not in self._known]):
            value = next(iter(found.objectives.values())) if found.feasible else float("inf")
            self._known[found.point] = value, found.violations
        return [self._known[point] for point in points]

    def allowed(self, point: Point) -> bool:
        """What is known of a point before plans are searched for."""
        return self.evaluator.allowed(point)

    @property
    def best(self) -> float:
        return self.proof.best


# ---- ways to search --------------------------------------------------------------------------------------------------

Curve = list[float]
"""Regret after each trial; infinite while no feasible point is found."""


def ours(table: Table, wanted: int, seed: int) -> Curve:
    """Nested TPE as `design --trials` runs it: limits known beforehand, nothing tried twice, sweeps."""
    known = optuna_samplers.KnownPoints(table.allowed, table.evaluator.plan_key)
    return sampled(table, wanted, optuna_samplers.sampler(table.study, seed, known))


def sampled(table: Table, wanted: int, sampler: Any, at_once: int = 1) -> Curve:
    """Of the best feasible point that a sampler of Optuna's finds: it is told by how much limits are exceeded."""
    import optuna

    found = optuna.create_study(sampler=sampler)
    spread, values = optuna_samplers.distributions(table.study), []
    for start in range(0, wanted, at_once):
        trials = [found.ask(spread) for _ in range(min(at_once, wanted - start))]
        outcomes = table.outcomes([optuna_samplers.point(table.study, trial.params) for trial in trials])
        for trial, (value, violations) in zip(trials, outcomes, strict=True):
            trial.set_constraint("limits", max([0.0, *violations.values()]))  # of all trials alike, as GP asks
            found.tell(trial, value)
            values.append(value)
    return _curve(table, values)


def _curve(table: Table, values: Sequence[float]) -> Curve:
    return [float(best) / table.best - 1.0 for best in np.minimum.accumulate(values)]


class Way(NamedTuple):
    """A way to search, and what it needs installed."""

    search: Callable[[Table, int, int], Curve]
    package: str = "optuna"


def _peer(make: Callable[[int], Any], at_once: int = 1) -> Callable[[Table, int, int], Curve]:
    return lambda table, wanted, seed: sampled(table, wanted, make(optuna_samplers.seeded(seed, 0)), at_once)


def _random(table: Table, wanted: int, seed: int) -> Curve:
    """Points at random that keep the limits known without a plan, none twice: what that knowledge alone brings."""
    rng, before, values = random.Random(optuna_samplers.seeded(seed, 0)), set(), []
    known = optuna_samplers.KnownPoints(table.allowed, table.evaluator.plan_key)
    for _ in range(DRAWS * wanted):
        if len(before) == wanted:
            break
        point = table.study.point(rng.randrange(table.study.size))
        if known.fresh(point, before):
            before.add(known.plan_key(point))
            values.append(table.outcome(point)[0])
    return _curve(table, values)


def flat(table: Table, wanted: int, seed: int) -> Curve:
    """Of TPE over outer point and plan together: one candidate is costed in a trial."""
    import optuna
    from optuna.distributions import CategoricalDistribution, IntDistribution
    from optuna.samplers import TPESampler

    asked = table.study
    values = []
    found = optuna.create_study(sampler=TPESampler(seed=optuna_samplers.seeded(seed, 0)))
    spread = optuna_samplers.distributions(asked)
    for n in range(len(asked.workloads)):
        for name, most in (("tp", 5), ("pp", 7), ("micro", 1), ("ep", 3)):
            spread[f"{n}.{name}"] = IntDistribution(0, most)
        spread[f"{n}.recompute"] = CategoricalDistribution(("none", "selective", "full"))
    for _ in range(wanted):
        trial = found.ask(spread)
        point = optuna_samplers.point(asked, trial.params)
        value, broken = _pinned(table, point, trial.params)
        trial.set_constraint("legal and within limits", broken)
        found.tell(trial, value)
        values.append(value if broken <= 0 else np.inf)
    return _curve(table, values)


def _pinned(table: Table, point: Point, params: Mapping[str, Any]) -> tuple[float, float]:
    """The objective with a plan that was proposed, and by how much it breaks anything."""
    values, evaluator = table.study.values(point), table.evaluator
    limits = max([*table.outcome(point)[1].values(), 0.0])
    if limits > 0:
        return np.inf, limits
    candidates = []
    for n, job in enumerate(table.study.workloads):
        here = evaluator.prepared(job, values)
        if isinstance(here, str):
            return np.inf, 1.0
        asked = problem(here, 1)
        degrees = {name: 2 ** params[f"{n}.{name}"] for name in ("tp", "pp", "micro", "ep")}
        for index, block in enumerate(asked.blocks):
            mask = np.all([block.rows[name] == value for name, value in degrees.items()], axis=0)
            rows = np.flatnonzero(mask)
            names = [policy.name for policy in block.axes[RECOMPUTE]]
            if not len(rows) or params[f"{n}.recompute"] not in names:
                continue
            cost = costing.cost(costing.table(asked, index), rows[:1])
            shape = (*block.axes.shape, 1)
            at = names.index(params[f"{n}.recompute"])
            time_ = np.broadcast_to(cost.time, shape)[:, at].reshape(-1)
            held = np.broadcast_to(cost.memory, shape)[:, at].reshape(-1)
            if float(held[0]) > asked.capacity:
                return np.inf, float(held[0]) / asked.capacity - 1.0
            candidates.append((job, float(time_[0]), rows[0], block))
            break
        else:
            return np.inf, 1.0
    total = 0.0
    exact = evaluator.one(point).candidates
    for (job, seconds, _, _), best in zip(candidates, exact, strict=True):
        assert best is not None
        share = job.weight / sum(each.weight for each in table.study.workloads)
        name = table.study.objectives[0]
        total += share * evaluator._value(name, job, replace(best, time=seconds), values)
    return total, 0.0


def ways() -> dict[str, Way]:
    """By name, those whose packages are installed: ours first, then Optuna's samplers as they are."""
    from optuna import samplers

    found = {
        "nested TPE, ours": Way(ours),
        "nested TPE": Way(_peer(lambda seed: samplers.TPESampler(seed=seed, multivariate=True))),
        f"nested TPE, {AT_ONCE} at once": Way(
            _peer(lambda seed: samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True), AT_ONCE)
        ),
        "nested GP": Way(_peer(lambda seed: samplers.GPSampler(seed=seed)), "torch"),
        "nested CMA-ES": Way(_peer(lambda seed: samplers.CmaEsSampler(seed=seed)), "cmaes"),
        "nested NSGA-II": Way(_peer(lambda seed: samplers.NSGAIISampler(population_size=20, seed=seed))),
        "random, limits known": Way(_random),
        "flat TPE": Way(flat),
    }
    return {name: way for name, way in found.items() if importlib.util.find_spec(way.package)}


def compared(asked: Study, seeds: int, wanted: int) -> list[dict[str, Any]]:
    """One row for each way to search a study, the proof's first."""
    table = Table(asked)
    rows = [_proven(table)]
    for name, way in ways().items():
        started = time.process_time()
        curves = [way.search(table, wanted, FIRST + seed) for seed in range(seeds)]
        spent = (time.process_time() - started) / len(curves)
        rows.append({"study": asked.name, "points": asked.size, "way": name, **_row(curves), "cpu_s": round(spent, 2)})
        print(f"{asked.name}: {name}, {spent:.1f} CPU s a seed", file=sys.stderr, flush=True)
    return rows


def _row(curves: Sequence[Curve]) -> dict[str, Any]:
    """What a way's curves say: regret in per cent, None where no feasible point was found."""
    ends = sorted(curve[-1] for curve in curves)
    marks = [*range(MARK, len(curves[0]) + 1, MARK)]
    return {
        "trials": len(curves[0]),
        "seeds": len(curves),
        "found": sum(end <= ROUNDING for end in ends),
        "median": _percent(statistics.median(ends)),
        "p90": _percent(ends[-(-9 * len(ends) // 10) - 1]),
        "curve": [_percent(statistics.median(curve[mark - 1] for curve in curves)) for mark in marks],
    }


def _proven(table: Table) -> dict[str, Any]:
    """The row of the proof: what it evaluated, and its time."""
    return {
        "study": table.study.name,
        "points": table.study.size,
        "way": "proof",
        "trials": table.proof.evaluated,
        "seeds": 0,
        "found": 0,
        "median": 0.0,
        "p90": 0.0,
        "curve": [],
        "cpu_s": round(table.cpu_s, 2),
    }


def _percent(regret: float) -> float | None:
    return round(100 * max(regret, 0.0), 3) if np.isfinite(regret) else None


# ---- as shipped ------------------------------------------------------------------------------------------------------


def shipped(name: str) -> dict[str, Any]:
    """A study that ships: how its optimum is proven, in which no seed has a say."""
    asked = reading.read(ROOT / "examples" / "studies" / f"{name}.toml", catalogs.load())
    found = run.design(catalogs.load(), asked, run.How(explained=False))
    search = found.search
    evaluated = search.evaluated or len(found.trials)
    return {
        "study": name, "points": asked.size, "method": search.method, "exact": search.exact, "evaluated": evaluated,
        "cpu_s": round(found.meta["cpu_s"], 2),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    parser = measure.parser(__doc__)
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/design-studies.md is made of")
    options = parser.parse_args(argv)
    optuna_trials.quiet()
    seeds, wanted = (2, 10) if options.tiny else (SEEDS, TRIALS)
    document: dict[str, Any] = {"machine": measure.machine() | {"load": round(os.getloadavg()[0], 1)}, "mark": MARK}
    document |= {"shipped": [shipped(name) for name in SHIPPED[2 * options.tiny :]], "compared": []}
    for given in STUDIES:
        document["compared"] += compared(study(given, options.tiny), seeds, wanted)
        _kept(document, options.write)
    measure.show(document, document["compared"], options.json)


def _kept(document: Mapping[str, Any], write: bool) -> None:
    """A run that is stopped keeps what it measured."""
    if write:
        DATA.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
