"""From evaluated points to the document of a study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from planner import verify
from planner.base.errors import ClusterwrightError, NoAnswer
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.models.workload import find_model
from planner.planning import answer
from planner.rl import job as job_of_rl
from planner.rl.steps import STEP_KEYS
from planner.schema.plan import Assumption, Generator, Plan
from planner.schema.rl import RLPlan
from planner.schema.study import (
    UNITS,
    Brief,
    DesignPoint,
    Interaction,
    StudyResult,
    StudySearch,
    StudySection,
    Trial,
    Value,
)
from planner.study.answer import per_dollar, sensitivity
from planner.study.answer.importance import Importance, importance
from planner.study.answer.pareto import share, undominated
from planner.study.program.evaluation import Evaluator
from planner.study.question.study import LARGER_IS_BETTER, Study

SHOWN = 5
"""Best points of a study with one objective."""
WRITTEN = {"seq": "sequence", "pin": "pins", "all": "all_switches", "link": "links"}
"""Option -> its key in a document, where that is another one."""
MOST_FRONT = 40
"""Points of a front whose plans are written in full."""


@dataclass(frozen=True, kw_only=True)
class SearchMethod:
    """How the trials came about."""

    name: Any
    exact: bool
    seed: int | None = None
    shards: tuple[int, ...] = ()
    of_shards: int = 0
    evaluated: int | None = None
    bounded_away: int = 0
    bound: float | None = None
    """What no point is better than (less is better); None where that is not known."""
    enumeration_s: float | None = None


def question(study: Study) -> StudySection:
    """The question, as a document and a journal carry it."""
    inputs = {
        name: digest for name, digest in study.inputs.items() if name.startswith(("catalog", "lengths ", "site "))
    }
    return StudySection(
        name=study.name,
        base=asdict(study.base),
        axes=study.axes,
        workloads=tuple(
            {
                "model": job.model,
                "weight": job.weight,
                "asked": {WRITTEN.get(key, key): value for key, value in _without_empty(asdict(job.asked)).items()},
                **({} if job.post_training is None else {"step": _without_empty(asdict(job.post_training))}),
            }
            for job in study.workloads
        ),
        objectives=study.objectives,
        units={name: UNITS[name] for name in study.objectives},
        constraints=tuple(_without_empty(asdict(limit)) for limit in study.constraints),
        costs=_without_empty(asdict(study.costs)),
        power=study.power,
        inputs=inputs,
    )


def _without_empty(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says: no empty fields, no limits that are none, lists for tuples."""
    kept: dict[str, Any] = {}
    for key, value in record.items():
        if value in (None, (), float("inf"), float("-inf")):
            continue
        kept[key] = list(value) if isinstance(value, tuple) else value
    return kept


def trial(study: Study, number: int, values: Mapping[str, Value], kept: Mapping[str, Any]) -> Trial:
    """A trial from what is stored of it (see :func:`planner.study.program.optuna_trials.stored`)."""
    violations = dict(kept["violations"])
    plans = [
        Brief(model=job.model, **plan) for job, plan in zip(study.workloads, kept["plan"] or [], strict=False) if plan
    ]
    return Trial(
        number=number,
        axes=dict(values),
        objectives=dict(kept["objectives"]),
        measures=dict(kept["measures"]),
        violations=violations,
        feasible=bool(kept["objectives"]) and all(value <= 0 for value in violations.values()),
        plan=tuple(plans),
        why=kept["why"],
    )


def costs(study_objectives: Sequence[str], trials: Iterable[Trial]) -> Any:
    """Objectives as columns of which less is better, shape (trials, objectives)."""
    signs = [-1.0 if name in LARGER_IS_BETTER else 1.0 for name in study_objectives]
    rows = [[s * t.objectives[n] for s, n in zip(signs, study_objectives, strict=True)] for t in trials]
    return np.array(rows, dtype=float).reshape(-1, len(signs))


def result(
    catalog: Catalog, evaluator: Evaluator, trials: Sequence[Trial], method: SearchMethod, meta: Mapping[str, Any],
    *, explained: bool = True,
) -> StudyResult:  # fmt: skip
    """The document.

    Raises:
        NoAnswer: no point trains every workload within the constraints; the message says which came closest.
    """
    study = evaluator.study
    feasible = [trial for trial in trials if trial.feasible]
    if not feasible:
        raise NoAnswer(_nothing(study, trials))
    table = costs(study.objectives, feasible)
    several = len(study.objectives) > 1
    nondominated = [feasible[int(n)] for n in undominated(table)]
    leading = _leading(study, feasible, table)
    best = leading[0].axes
    seed = method.seed or 0
    around, pairs = sensitivity.around(evaluator, best) if explained else ((), ())
    matters = importance(evaluator, seed) if explained else Importance({}, {}, "not asked for")
    points = {trial.number: _point(evaluator, trial) for trial in [*leading, *nondominated[:MOST_FRONT]]}
    return StudyResult(
        generator=Generator(version=__version__, seed=seed, inputs=dict(study.inputs)),
        question=question(study),
        search=StudySearch(
            method=method.name,
            outer_points=study.size,
            tried=len(trials),
            feasible=len(feasible),
            exact=method.exact,
            seed=method.seed,
            shards=method.shards,
            of_shards=method.of_shards,
            evaluated=method.evaluated,
            bounded_away=method.bounded_away,
            regret_at_most=_regret(method, float(table[:, 0].min())),
            enumeration_s=method.enumeration_s,
        ),
        trials=tuple(trials),
        best=tuple(points[trial.number] for trial in leading),
        pareto=tuple(points[trial.number] for trial in nondominated[:MOST_FRONT]),
        hypervolume=share(costs(study.objectives, nondominated), table) if several else None,
        sensitivity=around,
        pairs=pairs,
        next_million=sensitivity.next_million(evaluator, best) if explained else (),
        per_dollar=per_dollar.per_dollar(evaluator, best) if explained else None,
        importance=matters.alone,
        interactions=tuple(Interaction(axes=pair, share=share) for pair, share in matters.pairs.items()),
        importance_method=matters.method,
        assumptions=_assumptions(study, [p for point in points.values() for p in point.plan]),
        asked=study.stated and replace(study.stated, explained=explained),
        meta=dict(meta),
    )


def _regret(method: SearchMethod, best: float) -> float | None:
    """By what share the optimum may be better than the best: of what should be small, or large (negative here)."""
    if method.exact:
        return 0.0
    if method.bound is None or not math.isfinite(method.bound) or not best:
        return None
    return max(0.0, (best - method.bound) / abs(best))


def _leading(study: Study, feasible: Sequence[Trial], table: Any) -> list[Trial]:
    """The best points: of one objective the first few, of several the best in each."""
    if len(study.objectives) == 1:
        order = np.lexsort((np.array([point.number for point in feasible]), table[:, 0]))
        leading: dict[tuple[Any, ...], Trial] = {}
        for n in order.tolist():
            leading.setdefault(tuple(feasible[n].axes.values()), feasible[n])
            if len(leading) == SHOWN:
                break
        return list(leading.values())
    winners = [feasible[int(np.lexsort((table.sum(axis=1), table[:, k]))[0])] for k in range(table.shape[1])]
    return list({winner.number: winner for winner in winners}.values())


def _point(evaluator: Evaluator, point: Trial) -> DesignPoint:
    """A point with its plans, each as ``clusterwright plan`` would write it for that cluster, and verified."""
    clusters, values = evaluator.clusters, point.axes
    outcome = evaluator.valued([values], [()])[0]
    plans = []
    placed = []
    for job, candidate in zip(evaluator.study.workloads, outcome.candidates, strict=True):
        assert candidate is not None
        if isinstance(candidate, RLPlan):
            placed.append(candidate)
            continue
        priced = evaluator.priced(job, values)
        plans.append(answer.plan(priced, candidate, 1))
    for plan in plans:
        try:
            verify.check(plan)
        except verify.Inconsistent as error:
            raise AssertionError(f"point {point.number} does not hold: {error}") from error
    return DesignPoint(
        number=point.number,
        axes=dict(values),
        objectives=point.objectives,
        measures=point.measures,
        capital_usd=_known(lambda: clusters.capital(values)),
        usd_per_hour=_known(lambda: clusters.hourly_usd(values)),
        power_w=_known(lambda: clusters.power(values)),
        plan=tuple(plans),
        post_training=tuple(placed) or None,
    )


def _known(ask: Any) -> float | None:
    try:
        value: float | None = ask()
    except ClusterwrightError:
        return None
    return value


def _nothing(study: Study, trials: Sequence[Trial]) -> str:
    """Why no point is an answer: what stands in the way most often, and the one that came closest."""
    searched = f"none of {len(trials):,} points (of {study.size:,}) trains every workload within the constraints"
    if not trials:
        return f"{searched}."
    names = [name for trial in trials for name, value in trial.violations.items() if value > 0]
    counts = sorted({name: names.count(name) for name in names}.items(), key=lambda item: -item[1])
    limiting = ", ".join(f"{name} ({count:,} points)" for name, count in counts[:3])
    closest = min(trials, key=lambda candidate: (bool(candidate.why), max([*candidate.violations.values(), 0.0])))
    short = ", ".join(f"{name} by {100 * value:,.1f} %" for name, value in closest.violations.items() if value > 0)
    why = next((trial.why for trial in trials if trial.why), "")
    return (
        f"{searched}.\nIn the way: {limiting or 'nothing'}.{f' {why}.' if why else ''}\n"
        f"Closest: it misses {short or 'nothing'}. Relax that limit, or widen the axes."
    )


def _key(flag: str) -> str:
    """Where a study says what a flag of ``plan --task`` does; the flag where it cannot."""
    name = flag.removeprefix("--").replace("-", "_")
    return "workloads.step" if name in STEP_KEYS else "workloads" if name == "runtime" else f"plan {flag}"


def _assumptions(study: Study, plans: Sequence[Plan]) -> tuple[Assumption, ...]:
    """What the answer rests on: the study's own statements, and what its plans assume, each once."""
    assumptions = [
        Assumption(what=assumption.what, why=assumption.why, flag=assumption.flag)
        for plan in plans
        for assumption in plan.assumptions
    ]
    steps = [(job, job.post_training) for job in study.workloads if job.post_training]
    for job, step in steps:
        left_open = job_of_rl.left_open(step, job_of_rl.work(find_model(job.model), step))
        assumptions += [Assumption(what=what, why=why, flag=_key(flag)) for what, why, flag in left_open]
    if study.costs.basis == "purchase":
        owner = study.costs.ownership
        stated = "as stated" if study.costs.accelerator_usd is not None else "of the catalog and rates from it on"
        assumptions.insert(
            0,
            Assumption(
                what=f"machines are bought at prices {stated}",
                why=f"{owner.interest:.0%} interest, {owner.life_years:g} years, {owner.maintenance:.0%} maintenance",
                flag="[costs]",
            ),
        )
    assumptions.append(
        Assumption(
            what="software reaches the same shares of changed figures",
            why="efficiencies are those fitted to the base's accelerator",
            flag="[base]",
        )
    )
    return tuple({(assumption.what, assumption.why): assumption for assumption in assumptions}.values())
