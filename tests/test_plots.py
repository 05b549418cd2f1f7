"""What ``.plot()`` draws is what the answer holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import planner
from planner.base.errors import WrongQuestion
from planner.schema import notebook
from planner.schema.plan import PlanSet

PLANS = Path(__file__).parent / "golden" / "plans" / "1"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_bars_of_plans_add_up_to_their_steps() -> None:
    found = planner.load(PLANS / "dense.json")
    assert isinstance(found, PlanSet)
    drawn = found.plot()
    ends = [max(bars[row].get_x() + bars[row].get_width() for bars in drawn.containers) for row in range(len(found))]
    assert ends == pytest.approx([plan.prediction.step_time_s for plan in found])
    assert drawn.get_xlabel() == "seconds"


def test_a_comparison_has_a_bar_for_each() -> None:
    drawn = planner.compare(PLANS / "fsdp.json", PLANS / "dense.json").plot()
    assert [label.get_text() for label in drawn.get_yticklabels()] == ["first", "second"]


def test_points_of_the_front_are_marked() -> None:
    drawn = notebook.points([1.0, 2.0, 3.0], [3.0, 2.0, 4.0], [True, True, False], ("cost", "time"))
    assert [len(each.get_offsets()) for each in drawn.collections] == [1, 2]  # type: ignore[arg-type]
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("cost", "time")


def test_a_missing_library_is_a_plain_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(WrongQuestion, match=r"matplotlib.*clusterwright\[plot\]"):
        notebook.drawing(1)
