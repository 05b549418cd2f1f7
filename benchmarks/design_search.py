"""How well and how fast designs are searched, on five studies whose optimum is proven first.

Regret: how much worse the best feasible point after so many trials is than the best of all points, in per cent.
Nested: Optuna proposes an outer point and its best plan is searched exactly; flat: Optuna proposes outer point and plan
together, as one space. CMA-ES needs `pip install cmaes`, GP torch; they are left out where those are missing. Then
trials per CPU-second on Transformer-1T as shipped, and what a second worker brings.

    python benchmarks/design_search.py [--json] [--tiny]
"""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import measure
from planner import catalog as catalogs
from planner.catalog.files import TomlDocument
from planner.question.search_problem import problem
from planner.search import costing
from planner.study import run
from planner.study.answer import document as answer
from planner.study.answer import front
from planner.study.program import boxes, optuna_samplers, optuna_storage, optuna_trials
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import Point, Study

ROOT = Path(__file__).resolve().parent.parent
SEEDS, TRIALS = 10, 150
"""Seeds from 0 on, and as many fresh ones after them that no setting was ever chosen with."""
WITHOUT_PLAN = ("capital", "power", "accelerators")
WARM = 30
"""Trials before those whose speed is measured."""
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


def _axes(n: int, **more: Any) -> dict[str, Any]:
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
        "axes": {"node.accelerators": [8, 16, 32], **_axes(7)},
        "costs": COSTS,
    },
    {
        "name": "llama3-70b, time within $3M",
        "objectives": ["step-time"],
        "base": {"node": "dgx-h100", "count": 16},
        "workloads": [{"model": "llama3-70b", "batch": 512, "pins": PLANS}],
        "axes": {"fabric.oversubscription": [1, 2, 4], **_axes(7)},
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
        "axes": {"node.accelerators": [4, 8, 16], **_axes(7)},
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
        "axes": _axes(16),
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
            **_axes(6),
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
        if point not in self._known:
            found = self.evaluator.one(point)
            value = next(iter(found.objectives.values())) if found.feasible else float("inf")
            self._known[point] = value, found.violations
        return self._known[point]

    def allowed(self, point: Point) -> bool:
        """What is known of a point before plans are searched for."""
        return self.evaluator.allowed(point)

    @property
    def best(self) -> float:
        return self.proof.best


# ---- ways to search --------------------------------------------------------------------------------------------------


def regret(table: Table, seed: int, wanted: int, make: Callable[[int], Any] | None) -> float:
    """Of the best feasible point that a sampler finds on the table; each trial's plan is the exact best."""
    known = optuna_samplers.KnownPoints(table.allowed, table.evaluator.plan_key)
    return sampled(table, wanted, optuna_samplers.sampler(table.study, seed, known, make))


def sampled(table: Table, wanted: int, sampler: Any) -> float:
    """Of the best feasible point that a sampler of Optuna's finds: it is told what limits are exceeded."""
    import optuna

    found = optuna.create_study(sampler=sampler)
    spread, best = optuna_samplers.distributions(table.study), np.inf
    for _ in range(wanted):
        trial = found.ask(spread)
        value, violations = table.outcome(optuna_samplers.point(table.study, trial.params))
        for name, exceeded in violations.items():
            trial.set_constraint(name, exceeded)
        found.tell(trial, value)
        best = min(best, value)
    return best / table.best - 1.0


def peers(table: Table, wanted: int) -> dict[str, Callable[[int], float]]:
    """Optuna's own samplers as they are, by name: those whose packages are installed."""
    from optuna import samplers

    made: dict[str, tuple[str, Callable[[int], Any]]] = {
        "nested TPE, Optuna's own": ("optuna", lambda seed: samplers.TPESampler(seed=seed, multivariate=True)),
        "nested CMA-ES": ("cmaes", lambda seed: samplers.CmaEsSampler(seed=seed)),
        "nested GP": ("torch", lambda seed: samplers.GPSampler(seed=seed)),
    }
    return {
        name: partial(_of_seed, table, wanted, make)
        for name, (package, make) in made.items()
        if importlib.util.find_spec(package)
    }


def _of_seed(table: Table, wanted: int, make: Callable[[int], Any], seed: int) -> float:
    return sampled(table, wanted, make(optuna_samplers.seeded(seed, 0)))


def random_regret(table: Table, seed: int, wanted: int) -> float:
    """Of points at random that keep the limits known without a plan, none twice: what that knowledge alone brings."""
    rng, before, best = random.Random(optuna_samplers.seeded(seed, 0)), set(), np.inf
    known = optuna_samplers.KnownPoints(table.allowed, table.evaluator.plan_key)
    while len(before) < wanted:
        point = table.study.point(rng.randrange(table.study.size))
        if known.fresh(point, before):
            before.add(known.plan_key(point))
            best = min(best, table.outcome(point)[0])
    return best / table.best - 1.0


def flat_regret(table: Table, seed: int, wanted: int) -> float:
    """Of TPE over outer point and plan together: one candidate is costed in a trial."""
    import optuna
    from optuna.distributions import CategoricalDistribution, IntDistribution
    from optuna.samplers import TPESampler

    asked, best = table.study, np.inf
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
        if broken <= 0:
            best = min(best, value)
    return best / table.best - 1.0


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
            names = [policy.name for policy in block.axes.recompute]
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


def _random(number: int, seed: int) -> Any:
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=optuna_samplers.seeded(seed, number))


def _nsga(number: int, seed: int) -> Any:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(population_size=20, seed=optuna_samplers.seeded(seed, number))


def compared(asked: Study, seeds: int, wanted: int) -> list[dict[str, Any]]:
    """One row for each way to search a study."""
    table = Table(asked)
    ways: dict[str, Callable[[int], float]] = {
        "nested TPE": lambda seed: regret(table, seed, wanted, None),
        "nested NSGA-II": lambda seed: regret(table, seed, wanted, lambda n: _nsga(n, seed)),
        "nested random, limits known": lambda seed: random_regret(table, seed, wanted),
        "nested random": lambda seed: regret(table, seed, wanted, lambda n: _random(n, seed)),
        "flat TPE": lambda seed: flat_regret(table, seed, wanted),
        **peers(table, wanted),
    }
    rows = [_proven(table)]
    for way, search in ways.items():
        started = time.process_time()
        found, fresh = (sorted(100 * search(first + seed) for seed in range(seeds)) for first in (0, seeds))
        rows.append(
            {
                "study": asked.name,
                "points": asked.size,
                "way": way,
                "trials": wanted,
                "seeds": seeds,
                "median_regret_percent": _percent(statistics.median(found)),
                "p90_regret_percent": _percent(_p90(found)),
                "median_fresh_percent": _percent(statistics.median(fresh)),
                "p90_fresh_percent": _percent(_p90(fresh)),
                "search_cpu_s": round((time.process_time() - started) / seeds / 2, 2),
            }
        )
    return rows


def _proven(table: Table) -> dict[str, Any]:
    """The row of the proof: what it evaluated, and its time."""
    return {
        "study": table.study.name,
        "points": table.study.size,
        "way": "bounds",
        "trials": table.proof.evaluated,
        "median_regret_percent": 0.0,
        "p90_regret_percent": 0.0,
        "search_cpu_s": round(table.cpu_s, 2),
    }


def _p90(ordered: Sequence[float]) -> float:
    return ordered[-(-9 * len(ordered) // 10) - 1]


def _percent(regret: float) -> float | None:
    """None where no feasible point was found."""
    return round(regret, 3) if np.isfinite(regret) else None


# ---- speed -----------------------------------------------------------------------------------------------------------


def speed(wanted: int, warm: int) -> dict[str, Any]:
    """Trials per CPU-second on Transformer-1T as shipped, with its journal on disk, after a warm-up."""
    known = catalogs.load()
    asked = reading.read(ROOT / "examples" / "studies" / "transformer-1t.toml", known)
    optuna_trials.quiet()
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "a.journal")
        evaluator = Evaluator(known, asked)
        found = optuna_storage.opened(optuna_storage.storage(place), asked, {}, 0, place, resume=False)
        marks: list[tuple[float, int]] = []

        def note(n: int, text: str) -> None:
            marks.append((time.process_time(), evaluator.searches))

        optuna_trials.run(found, evaluator, warm + wanted, 0, note, lambda: True)
    cpu = marks[-1][0] - marks[warm - 1][0]
    return {
        "study": asked.name,
        "trials": wanted,
        "searches": marks[-1][1] - marks[warm - 1][1],
        "trials_per_cpu_s": round(wanted / cpu, 2),
    }


def workers(wanted: int) -> dict[str, Any]:
    """What a second worker brings: trials per second on the clock, and the front's hypervolume."""
    known = catalogs.load()
    asked = reading.read(ROOT / "examples" / "studies" / "transformer-1t.toml", known)
    asked = replace(asked, name="two objectives", objectives=("step-time", "cost"), constraints=())
    rates, fronts = [], []
    load = os.getloadavg()[0]
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "a.journal")
            how = run.How(trials=wanted, workers=count, storage=place, explained=False)
            before = _cpu()
            evaluator = Evaluator(known, asked)
            found, _ = run._searched(known, evaluator, wanted, how, None)
            done = sorted(
                t.datetime_complete for t in optuna_storage.storage(place).get_all_trials(0) if t.datetime_complete
            )
            # Without the time that processes take to begin: from a tenth of the trials on.
            first = len(done) // 10
            rates.append(((len(done) - 1 - first) / (done[-1] - done[first]).total_seconds(), _cpu() - before))
            fronts.append(answer.costs(asked.objectives, [each for each in found if each.feasible]))
    everything = np.concatenate(fronts)
    volumes = [front.share(costs[front.undominated(costs)], everything) for costs in fronts]
    return {
        "trials": wanted,
        "load_before": round(load, 1),
        "trials_per_s": [round(rate, 2) for rate, _ in rates],
        "cpu_s": [round(cpu, 1) for _, cpu in rates],
        "speedup": round(rates[1][0] / rates[0][0], 2),
        "hypervolume": [round(volume, 4) for volume in volumes],
    }


def _cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    options = measure.arguments(__doc__, argv)
    optuna_trials.quiet()
    seeds, wanted = (2, 12) if options.tiny else (SEEDS, TRIALS)
    rows = [row for given in STUDIES for row in compared(study(given, options.tiny), seeds, wanted)]
    document = {
        "regret": rows,
        "speed": speed(*((6, 2) if options.tiny else (100, WARM))),
        "workers": workers(8 if options.tiny else 150),
        "machine": measure.machine(),
    }
    measure.show(document, rows, options.json)


if __name__ == "__main__":
    main()
