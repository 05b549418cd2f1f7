"""Studies whose optimum is proven without a look at every point: bounds hold, and nothing better is lost."""

import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.study import merge
from planner.study import run as designing
from planner.study.program import boxes
from planner.study.program.evaluation import Evaluator
from planner.study.question import reading
from planner.study.question.study import LARGER_IS_BETTER, Study
from tests.designing import STUDIES as SHIPPED
from tests.designing import TINY, known, study
from tests.sweeps import sweep

WIDE = TINY.replace('"24 GiB", "48 GiB", "80 GiB"', '"24 GiB", "40 GiB", "48 GiB", "64 GiB", "80 GiB"').replace(
    "points = 3", "points = 6"
)
"""120 points."""
WITHIN = WIDE.replace('["cost"]', '["step-time"]') + '[[constraints]]\nof = "capital"\nat_most = "$90k"\n'
RETURN = WIDE.replace('["cost"]', '["performance-per-dollar"]')
ENERGY = WIDE.replace('["cost"]', '["energy"]') + '[power]\n"accelerator.peak.bf16" = "0.7 W per TFLOP/s"\n'
LIMITED = (
    WIDE + '[[constraints]]\nof = "step-time"\nat_most = "8 s"\n[[constraints]]\nof = "capital"\nat_least = "$110k"\n'
)
STUDIES = [WIDE, WITHIN, RETURN, ENERGY, LIMITED]
NAMES = ["cost", "time within capital", "performance per dollar", "energy", "cost within time and above capital"]


@cache
def values(text: str) -> dict[Any, float]:
    """Every feasible point of a study and its objective, less being better."""
    asked, evaluator = study(text), Evaluator(known(), study(text))
    sign = -1.0 if asked.objectives[0] in LARGER_IS_BETTER else 1.0
    found = evaluator.many([asked.point(n) for n in range(asked.size)])
    return {each.point: sign * each.objectives[asked.objectives[0]] for each in found if each.feasible}


def proof(text: str, most: int = 10_000, **more: Any) -> boxes.Proof:
    return boxes.search(Evaluator(known(), study(text)), most, **more)


@sweep("text", STUDIES, ids=NAMES, every=3)
def test_what_is_proven_is_the_optimum_of_every_point(text: str) -> None:
    found = proof(text)
    assert 0 < len(values(text)) and found.complete and found.monotone
    assert found.best == min(values(text).values())
    assert found.evaluated + found.bounded_away == study(text).size and found.bounded_away > 0
    assert all(values(text).get(point, math.inf) >= found.best for point in found.points)


@pytest.mark.slow
@sweep("text", STUDIES, ids=NAMES)
def test_no_point_of_a_box_is_better_than_its_bound(text: str) -> None:
    asked, rng = study(text), random.Random(5)
    tree, wide = boxes._Tree(Evaluator(known(), asked)), boxes.axes(asked)
    made = []
    for _ in range(40):
        low = list(asked.point(rng.randrange(asked.size)))
        high = [
            rng.randrange(at, len(axis.values)) if n in wide else at
            for n, (at, axis) in enumerate(zip(low, asked.axes, strict=True))
        ]
        made.append(boxes.PointBox(tuple(low), tuple(high)))
    for box, (bound,) in zip(made, tree._bounded(boxes.Proof(), made), strict=True):
        inside = [
            value
            for point, value in values(text).items()
            if all(a <= at <= b for a, at, b in zip(box.low, point, box.high, strict=True))
        ]
        assert bound <= min(inside, default=math.inf) * (1 + math.copysign(1e-12, bound))


DEAR = WIDE.replace("$14 per", "$140 per").replace("$5 per", "$100 per").replace("$3,000", "$300")
"""Speed that costs more than it saves."""
FRONTS = {
    "cost, time": DEAR.replace('["cost"]', '["cost", "step-time"]'),
    "time, cost within a limit": DEAR.replace('["cost"]', '["step-time", "cost"]')
    + '[[constraints]]\nof = "step-time"\nat_most = "14 s"\n',
    "return, time": DEAR.replace('["cost"]', '["performance-per-dollar", "step-time"]'),
}


@cache
def front_of(text: str) -> frozenset[tuple[float, ...]]:
    """What the points are worth that no other beats, of all points, by looking at each pair."""
    asked = study(text)
    signs = [-1.0 if name in LARGER_IS_BETTER else 1.0 for name in asked.objectives]
    found = Evaluator(known(), asked).many([asked.point(n) for n in range(asked.size)])
    worth = {
        tuple(s * o.objectives[n] for s, n in zip(signs, asked.objectives, strict=True)) for o in found if o.feasible
    }
    return frozenset(
        a for a in worth if not any(b != a and all(x <= y for x, y in zip(b, a, strict=True)) for b in worth)
    )


@pytest.mark.slow
@sweep("text", FRONTS.values(), ids=FRONTS)
def test_what_is_proven_of_several_objectives_is_the_whole_front(text: str) -> None:
    found = proof(text)
    assert found.complete and frozenset(found.front) == front_of(text) and len(found.front) > 1
    assert found.evaluated + found.bounded_away == study(text).size and found.bounded_away > 0
    cut = proof(text, 1)
    assert not cut.complete and cut.left
    told = designing.design(known(), study(text), designing.How(way="bounded", explained=False))
    assert told.search.exact and {tuple(p.objectives.values()) for p in told.pareto} == {
        tuple(abs(x) for x in each) for each in front_of(text)
    }
    assert merge.again(known(), told, "a.json").pareto == told.pareto


@cache
def whole_proof() -> boxes.Proof:
    return proof(WITHIN)


@sweep("most", [1, 5, 20])
def test_a_proof_that_is_cut_short_bounds_the_optimum(most: int) -> None:
    found, best = proof(WITHIN, most), min(values(WITHIN).values())
    assert found.bound <= best <= found.best and not found.complete
    assert found.bounded_away <= whole_proof().bounded_away


@pytest.mark.slow
def test_what_is_known_to_be_feasible_spares_boxes() -> None:
    best = min(values(WIDE).values())
    assert proof(WIDE, best=best).evaluated <= proof(WIDE).evaluated
    assert proof(WIDE, best=best * 0.9).bound == best * 0.9  # better than all: every box is bounded away


def test_a_figure_that_slows_a_plan_down_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Evaluator.worth

    def worth(self: Evaluator, candidates: Any, values: Any) -> dict[str, float]:
        """The more memory a point's own price is of, the better: its box's cheapest point bounds nothing."""
        found = plain(self, candidates, values)
        return {name: value / values["accelerator.memory"] ** 3 for name, value in found.items()}

    monkeypatch.setattr(Evaluator, "worth", worth)
    found = proof(WIDE)
    assert not found.monotone and not found.complete


def test_boxes_are_wide_along_figures_that_speed_up_and_cost_something() -> None:
    paths = [study().axes[n].path for n in boxes.axes(study())]
    assert paths == ["accelerator.memory", "accelerator.peak.bf16", "node.scaleup.bandwidth"]
    cheaper = TINY.replace('"$5 per GB/s"', '"$-5 per GB/s"')
    try:
        falling = study(cheaper)
    except WrongQuestion:  # prices below nothing may be refused
        return
    assert "node.scaleup.bandwidth" not in [falling.axes[n].path for n in boxes.axes(falling)]


@cache
def large() -> Study:
    """A million points."""
    ranges = {
        '["24 GiB", "48 GiB", "80 GiB"]': '{ from = "24 GiB", to = "192 GiB", points = 80, log = true }',
        "points = 3": "points = 80",
        '["100 GB/s", "450 GB/s"]': '{ from = "100 GB/s", to = "900 GB/s", points = 80, log = true }',
    }
    text = TINY
    for old, new in ranges.items():
        text = text.replace(old, new)
    return study(text)


@pytest.mark.slow
def test_a_million_points_are_proven() -> None:
    assert large().size > 1e6
    found = designing.design(known(), large(), designing.How(explained=False))
    assert found.search.exact and found.search.method == "bounded" and found.search.regret_at_most == 0.0
    assert found.search.evaluated is not None and found.search.evaluated < 0.01 * large().size
    assert found.search.evaluated + found.search.bounded_away == large().size
    assert found.search.enumeration_s is not None and found.search.enumeration_s > designing.TIME_S


@pytest.mark.slow
def test_a_proof_is_made_again() -> None:
    found = designing.design(known(), study(WITHIN), designing.How(explained=False, way="bounded"))
    assert found.asked is not None
    made = merge.again(known(), found, "a.json")
    assert made.search == found.search and made.best == found.best and made.trials == found.trials


def test_the_way_follows_from_what_a_proof_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(known(), large())
    two = Evaluator(known(), study(TINY.replace('["cost"]', '["step-time", "cost"]')))
    small = Evaluator(known(), study())

    def way(of: Evaluator, **how: Any) -> str:
        return designing.way(of, designing.How(**how))

    assert (way(small), way(small, time_s=0.0), way(small, trials=9)) == ("enumerated", "bounded", "enumerated")
    assert (way(evaluator), way(evaluator, trials=9), way(evaluator, storage="a")) == ("bounded", "trials", "trials")
    assert (way(two), way(two, time_s=0.0), way(two, storage="a", time_s=0.0)) == ("enumerated", "bounded", "trials")
    monkeypatch.setattr(designing, "SMALL", 0)
    assert (way(two), way(two, time_s=0.0)) == ("enumerated", "bounded")
    assert (way(small), way(small, workers=2), way(small, engine="dask://a:1")) == (
        "bounded",
        "enumerated",
        "enumerated",
    )
    assert way(evaluator, workers=2) == "trials"
    assert way(evaluator, shard=(1, 9)) == "enumerated"


@sweep("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_are_proven_whatever_the_seed(path: Path) -> None:
    """No seed has a say: all are enumerated or bounded (what that finds: benchmarks/design_search.py)."""
    evaluator = Evaluator(known(), reading.read(path, known()))
    ways = {designing.way(evaluator, designing.How(seed=seed)) for seed in range(20)}
    assert len(ways) == 1 and ways <= {"enumerated", "bounded"}
    assert evaluator.study.size <= designing.SMALL or ways == {"bounded"}


def test_trials_say_how_far_they_may_be_from_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designing, "SMALL", 0)
    found = designing.design(known(), study(WITHIN), designing.How(trials=6, explained=False))
    best, regret = found.best[0].objectives["step-time"], found.search.regret_at_most
    assert regret is not None and min(values(WITHIN).values()) == pytest.approx(best * (1 - regret))
    assert found.search.exact is (regret == 0.0)
    cut = designing.design(known(), study(WITHIN), designing.How(time_s=0.0, trials=6, explained=False))
    assert cut.search.regret_at_most is None and cut.search.enumeration_s


def test_an_unproven_study_goes_on_by_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the points that boxes met and those of the trials are in the answer, each under a number of its own."""
    monkeypatch.setattr(designing, "_affordable", lambda evaluator, how: 3)
    found = designing.design(known(), study(WITHIN), designing.How(explained=False, way="bounded"))
    assert (found.search.method, found.search.exact) == ("TPE", False)
    assert found.search.regret_at_most is not None and found.search.regret_at_most > 0.0
    assert len({each.number for each in found.trials}) == len(found.trials) >= 20


def test_the_command_proves(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(designing, "SMALL", 0)
    (tmp_path / "s.toml").write_text(WIDE)
    assert main(["design", "s.toml", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "proven by bounds" in said and "all others bounded away: this is the optimum" in said
    assert "plans are without levers" in said
    assert not [*tmp_path.glob("*.journal")]
    assert main(["design", "s.toml", "--quick", "--trials", "5"]) == 0
    said = capsys.readouterr().out
    assert "5 trials by TPE" in said and "an enumeration would take about" in said
    for wrong in ("7", "soon", "-1 s", "1000 h"):
        assert main(["design", "s.toml", "--time", wrong]) == 2
        assert "--time" in capsys.readouterr().err
