"""Elasticities and importances of three studies against differences and means of points evaluated one by one."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from planner.schema.study import Axis
from planner.study import run as designing
from planner.study.answer import sensitivity
from planner.study.answer.importance import importance
from planner.study.program.evaluation import Evaluator
from planner.study.question.study import Study
from tests.designing import TINY, known, study
from tests.sweeps import sweep

MIXTURE = (
    TINY.replace('["cost"]', '["step-time"]')
    .replace('model = "llama3-8b"\nbatch = 64', 'model = "mixtral-8x7b"\nbatch = 64')
    .replace("count = 1", "count = 4")
    .replace('"24 GiB", "48 GiB", "80 GiB"', '"80 GiB", "141 GiB"')
    .replace('"node.accelerators" = [4, 8]', '"fabric.nic_bandwidth" = ["200 Gbit/s", "400 Gbit/s", "800 Gbit/s"]')
)
LARGE = TINY.replace('"24 GiB", "48 GiB", "80 GiB"', '"80 GiB", "96 GiB", "141 GiB"')
"""Everything trains."""
ENERGY = LARGE.replace('["cost"]', '["energy"]') + '[power]\n"accelerator.peak.bf16" = "0.7 W per TFLOP/s"\n'
STUDIES = {"cost of a dense model": LARGE, "time of a mixture on four nodes": MIXTURE, "energy": ENERGY}


def value(asked: Study, point: tuple[int, ...]) -> float | None:
    """The objective at one point, by an evaluator that has seen no other."""
    found = Evaluator(known(), replace(asked, constraints=())).one(point).objectives
    return found.get(asked.objectives[0])


@cache
def best(text: str) -> dict[str, float | int | str]:
    return dict(designing.design(known(), study(text), designing.How(explained=False)).best[0].axes)


def among(text: str, axis: Axis, values: tuple[float, ...]) -> Study:
    """The study at its best point, with one axis taking some values and the others one each."""
    here = best(text)
    axes = [replace(each, values=values if each is axis else (here[each.path],)) for each in study(text).axes]
    return replace(study(text), axes=tuple(axes))


@sweep("text", STUDIES.values(), ids=list(STUDIES), every=3)
def test_elasticities_are_differences_of_points_evaluated_alone(text: str) -> None:
    asked, evaluator, compared = study(text), Evaluator(known(), study(text)), 0
    for axis in asked.axes:
        now = best(text)[axis.path]
        if not isinstance(now, float):
            continue
        ends = (0.99 * now, 1.01 * now)
        low, high = (value(among(text, axis, ends), tuple(n if e is axis else 0 for e in asked.axes)) for n in (0, 1))
        assert low and high
        found = sensitivity.elasticities(evaluator, axis, best(text))[asked.objectives[0]]
        assert found == pytest.approx(math.log(high / low) / math.log(ends[1] / ends[0]), abs=1e-12)
        compared += abs(found) > 1e-3
    assert compared >= 2


@pytest.mark.slow
@sweep("text", STUDIES.values(), ids=list(STUDIES), ci=2)
def test_importances_are_variances_of_means_over_the_other_axes(text: str) -> None:
    asked = study(text)
    sizes = [len(axis.values) for axis in asked.axes]
    table = {point: value(asked, point) for point in itertools.product(*map(range, sizes))}
    assert all(table.values())  # values with which something does not train are left out: see test_design_evaluation.py
    logs = {point: math.log(each) for point, each in table.items() if each}
    total = float(np.var([*logs.values()]))
    found = importance(Evaluator(known(), asked), 0)
    assert found.method == f"fANOVA, exact: all {asked.size} points"
    for n, axis in enumerate(asked.axes):
        means = [np.mean([each for point, each in logs.items() if point[n] == at]) for at in range(sizes[n])]
        assert found.alone[axis.path] == pytest.approx(float(np.var(means)) / total, abs=1e-9)
