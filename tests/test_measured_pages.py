"""Pages of what was measured: their tables are the kept figures, and counts are those of today's program."""

import json
from typing import Any

import pytest

from planner.study.program import evaluation
from tests.sweeps import sweep
from tests.test_docs import ROOT, generate

SPEED = json.loads((ROOT / "benchmarks" / "data" / "speed.json").read_text(encoding="utf-8"))
POINTS = json.loads((ROOT / "benchmarks" / "data" / "design_points.json").read_text(encoding="utf-8"))
SEARCHES = json.loads((ROOT / "benchmarks" / "data" / "design_search.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@sweep(
    "made", [generate.benchmarks_page, generate.design_search_page, generate.runs_page], ids=lambda made: made.__name__
)
def test_tables_are_the_kept_figures(made: Any) -> None:
    shown = made.PAGE.read_text(encoding="utf-8")
    assert shown == made.filled(shown), "run `make docs`"
    assert made.PART.search(shown)


@pytest.mark.slow
@sweep("kept", SPEED["problems"], ids=lambda kept: kept["name"])
def test_candidates_are_counted_as_the_page_says(kept: dict[str, Any]) -> None:
    assert kept | generate.benchmarks_page.counted(kept["name"]) == kept, "stale: python -m docs.benchmarks_page"


def test_shipped_studies_are_proven_in_the_table() -> None:
    assert [row["exact"] for row in SEARCHES["shipped"]] == [True] * 3
    assert {row["study"] for row in SEARCHES["shipped"]} == {
        p.stem for p in (ROOT / "examples" / "studies").glob("*.toml")
    }


@sweep("name", ["POINT_S", "ROW_S", "TABLE_ROW_S"])
def test_studies_are_estimated_by_what_was_measured(name: str) -> None:
    assert getattr(evaluation, name) == pytest.approx(POINTS["machine"][name], rel=0.3)
