"""What a study says matters, where the answer is known: figures whose effect is a law, and the exact search itself."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner import catalog
from planner.commands.screen import design_view
from planner.schema.study import Axis, NextMillion
from planner.study import run
from planner.study.answer import importance, sensitivity
from planner.study.program.evaluation import Evaluator, PointOutcome
from planner.study.question.study import Costs
from tests.designing import TINY, TWO, _limited, study, whole
from tests.sweeps import sweep

known = cache(catalog.load)


class Law:
    """Objectives and capital as stated functions of figures; where there are limits, they allow none."""

    def __init__(self, axes: dict[str, tuple[Any, ...]], usd: dict[str, float], *, limited: bool = False, **laws: Any):
        made = (Axis(path=p, values=v) for p, v in axes.items())
        objectives = tuple(name.replace("_", "-") for name in laws)
        costs = Costs(basis="purchase")
        self.study = SimpleNamespace(axes=tuple(made), objectives=objectives, costs=costs)
        self.clusters = SimpleNamespace(capital=lambda at: 1e7 + sum(usd.get(p, 0.0) * at[p] for p in usd))
        self.laws, self.limited = dict(zip(objectives, laws.values(), strict=True)), limited
        self.given = (axes, usd, laws)

    def loosened(self) -> "Law":
        axes, usd, laws = self.given
        return Law(axes, usd, **laws)

    def valued(self, values: Any, points: Any) -> list[PointOutcome]:
        return [
            PointOutcome((), {} if self.limited else {name: law(at) for name, law in self.laws.items()}, {}, {}, ())
            for at in values
        ]


# ---- elasticities ----------------------------------------------------------------------------------------------------

SLOPE, BEND = -0.8, 0.15


def bent(x: float) -> float:
    """``exp(k ln x + c (ln x)^2)``: its elasticity is ``k + 2 c ln x``, from x to y on average ``k + c ln(x y)``."""
    return math.exp(SLOPE * math.log(x) + BEND * math.log(x) ** 2)


@sweep("x", [0.03, 1.0, 40.0, 3e15])
def test_an_elasticity_is_the_slope_of_the_logarithms(x):
    law = Law(
        {"figure": (x / 7, x, 3 * x)}, {}, limited=True, cost=lambda at: bent(at["figure"]), energy=lambda at: 7.0
    )
    found = sensitivity.elasticities(law, law.study.axes[0], {"figure": x})
    assert found["cost"] == pytest.approx(SLOPE + 2 * BEND * math.log(x), abs=1e-4)
    assert found["energy"] == 0.0


@sweep(("now", "ends"), [(8, (4, 16)), (1, (1, 4)), (512, (16, 512)), (16, (8, 512))])
def test_an_elasticity_of_counts_is_that_between_the_neighbours(now, ends):
    law = Law({"count": (1, 4, 8, 16, 512)}, {}, cost=lambda at: bent(at["count"]))
    found = sensitivity.elasticities(law, law.study.axes[0], {"count": now})["cost"]
    assert found == pytest.approx(SLOPE + BEND * math.log(ends[0] * ends[1]))


def test_names_and_single_counts_have_no_elasticity():
    law = Law({"node": ("a", "b"), "count": (8,)}, {}, cost=lambda at: 1.0)
    assert [sensitivity.elasticities(law, axis, {"node": "a", "count": 8}) for axis in law.study.axes] == [{}, {}]


def test_the_first_objective_is_the_one_that_is_told():
    for each in whole(TWO).sensitivity:
        assert each.elasticity == each.elasticities["step-time"] != each.elasticities["cost"]
    first = TINY.replace('["cost"]', '["step-time"]')
    assert whole(TWO).importance == pytest.approx(whole(first).importance)
    assert whole(TWO).importance != pytest.approx(whole().importance)


@cache
def tight() -> Any:
    """The tiny study where its best point is just within a limit that 1 % more of a figure breaks."""
    return whole(_limited("$206,010"))


def test_a_limit_bounds_no_sensitivity():
    assert tight().best[0].axes == whole().best[0].axes
    assert [each.elasticities for each in tight().sensitivity] == [each.elasticities for each in whole().sensitivity]
    assert tight().next_million == whole().next_million and tight().next_million
    assert tight().importance == whole().importance and tight().pairs == whole().pairs


def test_sweeps_mark_what_breaks_a_limit():
    found = whole(_limited("$110k"))
    capital, best = Evaluator(known(), study()).clusters.capital, found.best[0].axes
    marks = [
        (each.feasible, bool(each.objectives), capital({**best, swept.axis: each.value}) <= 1.1e5)
        for swept in found.sensitivity
        for each in swept.sweep
    ]
    assert all(feasible == (trains and cheap) for feasible, trains, cheap in marks)
    assert (False, True, False) in marks and (True, True, True) in marks


def test_sweeps_of_two_are_read_by_row_and_column():
    evaluator, best = Evaluator(known(), study()), whole().best[0].axes
    slopes = {each.axis: abs(each.elasticity) for each in whole().sensitivity}
    firsts = [pair.axes for pair in whole().pairs]
    assert firsts[0] == tuple(sorted(slopes, key=lambda path: -slopes[path])[:2])
    for pair in whole().pairs:
        for row, values in zip(pair.rows, pair.values, strict=True):
            for column, value in zip(pair.columns, values, strict=True):
                at = {**best, pair.axes[0]: row, pair.axes[1]: column}
                assert value == evaluator.valued([at], [()])[0].objectives.get("cost")


# ---- the next million ------------------------------------------------------------------------------------------------

BEST = {"fast": 100.0, "wide": 20.0, "nodes": 4, "kind": "a", "free": 3.0, "last": 2}
USD = {"fast": 25e3, "wide": 5e5, "nodes": 5e5, "last": 1e4}
AXES: dict[str, tuple[Any, ...]] = {
    "free": (1.0, 3.0), "fast": (50.0, 100.0), "kind": ("a", "b"), "wide": (10.0, 20.0), "nodes": (2, 4, 8),
    "last": (1, 2),
}  # fmt: skip


def speed(at: Any) -> float:
    return float(at["fast"] ** 0.5 * at["wide"] ** 0.25 * at["nodes"] ** 0.9)


def test_the_next_million_goes_where_it_brings_most():
    """40 of ``fast``, 2 of ``wide``; four more nodes are 2 millions, so that half of what they bring counts."""
    law = Law(AXES, USD, limited=True, performance_per_dollar=speed, step_time=lambda at: 1 / speed(at))
    found = sensitivity.next_million(law, BEST)
    assert [(each.axis, each.value) for each in found] == [
        ("nodes", pytest.approx(6.0)), ("fast", pytest.approx(140.0)), ("wide", pytest.approx(22.0))
    ]  # fmt: skip
    gains = [(2**0.9 - 1) / 2, 1.4**0.5 - 1, 1.1**0.25 - 1]
    assert [each.changes["performance-per-dollar"] for each in found] == pytest.approx(gains)
    losses = [(2**-0.9 - 1) / 2, 1.4**-0.5 - 1, 1.1**-0.25 - 1]
    assert [each.changes["step-time"] for each in found] == pytest.approx(losses)


def test_of_what_should_be_small_the_largest_fall_is_first():
    law = Law(AXES, USD, step_time=lambda at: 1 / speed(at), performance_per_dollar=speed)
    assert [each.axis for each in sensitivity.next_million(law, BEST)] == ["nodes", "fast", "wide"]


@pytest.mark.parametrize(("first", "good"), [("cost", -0.125), ("performance-per-dollar", 0.125)])
def test_the_report_names_only_what_betters_the_objective(first, good, capsys):
    text = TINY.replace('["cost"]', f'["{first}"]')
    found = whole(text)
    paths = ["accelerator.memory", "accelerator.peak.bf16"]
    told = [
        NextMillion(axis=path, value=9e10, changes={first: change}, basis="")
        for path, change in zip(paths, (good, -good), strict=True)
    ]
    object.__setattr__(found, "next_million", tuple(told))
    design_view.show(found)
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if line.startswith("Next $1M"))
    assert f"memory to 83.8 GiB: {first} {good:+.2%}" in line and f"{-good:+.2%}" not in line
    known = [each.elasticity for each in found.sensitivity if each.elasticity is not None]
    assert known and all(f"{elasticity:+.2f} %" in said for elasticity in known)


# ---- importances -----------------------------------------------------------------------------------------------------


def axes_of(found: Any) -> list[str]:
    return [axis.path for axis in found.question.axes]


def test_importances_are_named_by_their_axes_the_largest_first():
    """By the variance that is left in the logarithm of every cost when an axis is averaged over, point by point."""
    found = whole()
    fails = {t.axes["accelerator.memory"] for t in found.trials if not t.objectives}
    trains = [t for t in found.trials if t.axes["accelerator.memory"] not in fails]
    assert found.importance_method == f"fANOVA, exact: {len(trains)} of 36 points, values with which everything trains"
    logs = np.array([math.log(t.objectives["cost"]) for t in trains])

    def between(*paths: str) -> float:
        """Variance of the means over everything but some axes, as a share."""
        groups: dict[Any, list[float]] = {}
        for t, value in zip(trains, logs, strict=True):
            groups.setdefault(tuple(t.axes[path] for path in paths), []).append(value)
        return float(np.var([np.mean(each) for each in groups.values()]) / np.var(logs))

    assert found.importance == pytest.approx({path: between(path) for path in axes_of(found)})
    assert list(found.importance.values()) == sorted(found.importance.values(), reverse=True)
    for each in found.interactions:
        assert each.share == pytest.approx(between(*each.axes) - sum(map(between, each.axes)), abs=1e-9)
    shares = [each.share for each in found.interactions]
    assert shares == sorted(shares, reverse=True)


def test_points_of_a_sample_are_spread_along_every_axis_by_itself():
    n = 256
    found = importance.spread(4, n, seed=3)
    assert all(sorted(np.floor(column * n).astype(int)) == list(range(n)) for column in found.T)
    assert np.abs(np.corrcoef(found.T) - np.eye(4)).max() < 0.3
    assert not np.array_equal(found, importance.spread(4, n, seed=4))


@sweep("share", [0.0, 0.1, 0.6])
def test_a_share_of_a_sample_is_corrected_for_the_number_of_groups(share):
    """Noise is explained by no axis: on average over draws of 32 points in 8 groups, a share is what it is."""
    rng, found = np.random.default_rng(1), []
    for _ in range(400):
        groups = rng.integers(0, 8, 32)
        effect = (groups - 3.5) / math.sqrt(5.25)
        values = math.sqrt(share) * effect + math.sqrt(1 - share) * rng.normal(size=32)
        found.append(importance.explained(groups, values))
    assert np.mean(found) == pytest.approx(share, abs=0.12 if share < 0.2 else 0.04)


def sampled(monkeypatch: Any, values: Any) -> Any:
    """The tiny study's importances from a sample, with worths of its points made up."""
    monkeypatch.setattr(importance, "WHOLE", 0)
    evaluator = Evaluator(known(), study())

    def many(points: Any) -> list[PointOutcome]:
        return [PointOutcome(p, {} if values(p) is None else {"cost": values(p)}, {}, {}, ()) for p in points]

    monkeypatch.setattr(evaluator, "many", many)
    return importance.importance(evaluator, 0)


def test_a_sample_finds_the_axis_that_matters(monkeypatch):
    """One axis is all, the next is nothing: `accelerator.peak.bf16` and the others."""
    found = sampled(monkeypatch, lambda p: math.exp(p[1] + 0.5 * p[3]))
    paths = [axis.path for axis in study().axes]
    parts = np.array([0.0, np.var([0, 1, 2]), 0.0, np.var([0, 0.5])])
    assert [found.alone[path] for path in paths] == pytest.approx(list(parts / parts.sum()), abs=0.06)
    assert next(iter(found.alone)) == paths[1] and not found.pairs


def test_few_points_that_train_tell_nothing(monkeypatch):
    found = sampled(monkeypatch, lambda p: 1.0 + p[1] if p == (2, p[1], 1, 1) and p[1] else None)
    assert not found.alone and found.method.startswith("not known: of 256 points")


def test_what_trains_on_a_minority_of_values_is_estimated(monkeypatch):
    """Where the values with which everything trains hold less than half of what trains, the whole is looked at."""
    monkeypatch.setattr(importance, "LEAST", 4)
    evaluator = Evaluator(known(), study())
    odd = {(0, 0), (1, 1), (2, 2)}  # no value of either axis trains with all of the other

    def many(points: Any) -> list[PointOutcome]:
        return [PointOutcome(p, {"cost": 2.0 + p[2]} if p[:2] in odd else {}, {}, {}, ()) for p in points]

    monkeypatch.setattr(evaluator, "many", many)
    found = importance.importance(evaluator, 0)
    assert found.method == "fANOVA, main effects estimated from 12 points evaluated exactly"
    assert found.alone[study().axes[2].path] == pytest.approx(1.0) and not found.pairs


def test_limits_change_no_importance():
    asked = study(_limited("$110k"))
    found = importance.importance(Evaluator(known(), asked), 0)
    assert found.alone == pytest.approx(whole().importance)
    assert run.SMALL == importance.WHOLE
