"""The measured step of RL post-training that a plan is nearest to: what it took, and what is predicted for it.

``measured_steps.csv`` beside this module holds the steps of ``benchmarks/data/rl_runs.csv`` with their predictions;
``python -m benchmarks.rl_sources --write`` writes it. The distance is that of plans of pre-training
(:mod:`planner.figures.nearest_runs`): a figure for each label in which two differ, and for each doubling of a count.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from planner.figures.nearest_runs import DOUBLED, OTHER
from planner.models.parameters import parameters
from planner.rl.problem import PostTraining
from planner.schema.rl import RLPlan
from planner.schema.rl_nearest import RLNearestStep

TABLE = Path(__file__).parent / "measured_steps.csv"
COLUMNS = (
    *("id", "source", "reference", "model", "kind", "parameters", "accelerator", "trains", "rolls_out", "placement"),
    *("staleness", "trainer", "engine", "responses", "response_mean", "response_cap", "measured_s", "predicted_s"),
)
LABELS = {
    "model": OTHER["model"],
    "kind": OTHER["kind"],
    "accelerator": OTHER["accelerator"],
    "placement": 0.6,
    "trainer": OTHER["runtime"],
    "engine": 0.4,
}
"""Label -> distance of steps that differ in it. Those of placement and engine are assumed."""
COUNTS = {"parameters": DOUBLED["parameters"], "accelerators": DOUBLED["accelerators"], "response_cap": 0.1}
"""Count -> distance of steps of which one has twice as many; that of the cap is assumed."""
Described = Mapping[str, str | float]


@lru_cache(maxsize=1)
def measured_steps() -> Sequence[Mapping[str, str]]:
    """The measured steps, as written."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def nearest(asked: PostTraining, plan: RLPlan) -> RLNearestStep:
    """The measured step nearest to a plan; of equals the first of the table."""
    model = asked.work.model
    described: Described = {
        "model": model.id,
        "kind": "mixture" if model.moe else "dense",
        "parameters": float(parameters(model).total),
        "accelerator": plan.trainer.accelerator,
        "placement": plan.placement,
        "trainer": plan.trainer.runtime.partition("@")[0],
        "engine": asked.work.engine.id,
        "accelerators": float(plan.accelerators),
        "responses": asked.work.demand.sequences,
        "response_mean": asked.work.demand.lengths.mean,
        "response_cap": asked.work.demand.lengths.cap,
    }
    row = min(measured_steps(), key=lambda step: _distance(step, described))
    mean = row["response_mean"]
    return RLNearestStep(
        id=row["id"],
        source=row["source"],
        reference=row["reference"],
        model=row["model"],
        accelerator=row["accelerator"],
        trains=int(row["trains"]),
        rolls_out=int(row["rolls_out"]),
        placement=row["placement"],  # type: ignore[arg-type]
        staleness=float(row["staleness"]),
        trainer=row["trainer"],
        engine=row["engine"],
        responses=int(row["responses"]),
        response_mean=float(mean) if mean else None,
        response_cap=float(row["response_cap"]),
        measured_s=float(row["measured_s"]),
        predicted_s=float(row["predicted_s"]),
        distance=_distance(row, described),
        differs=tuple(_differences(row, described)),
    )


def _count(row: Mapping[str, str], name: str) -> float:
    if name != "accelerators":
        return float(row[name])
    return float(row["trains"]) + (0.0 if row["placement"] == "colocated" else float(row["rolls_out"]))


def _distance(row: Mapping[str, str], plan: Described) -> float:
    labels = sum(far for name, far in LABELS.items() if row[name] != plan[name])
    return labels + sum(far * abs(math.log2(_count(row, name) / float(plan[name]))) for name, far in COUNTS.items())


def _differences(row: Mapping[str, str], plan: Described) -> Sequence[str]:
    """In what a plan is another step, most telling first; what no measured step has is said so."""
    rows = measured_steps()
    words = []
    for name in LABELS:
        if not any(step[name] == plan[name] for step in rows):
            words.append(f"no measured step has {name} {plan[name]}")
        elif row[name] != plan[name]:
            words.append(f"{name} {row[name]}")
    times = float(plan["accelerators"]) / _count(row, "accelerators")
    if times != 1.0:
        more = f"{times:.3g} times the" if times > 1.0 else f"1/{1.0 / times:.3g} of its"
        words.append(f"{more} accelerators")
    for name, unit in (("responses", "responses a step"), ("response_mean", "tokens a response")):
        if row[name] and float(row[name]) != round(float(plan[name])):
            words.append(f"{float(row[name]):,.0f} {unit}")
    if _count(row, "response_cap") != plan["response_cap"]:
        words.append(f"responses up to {_count(row, 'response_cap'):,.0f}")
    return words
