"""Plans kept from one question to the next: the same answers without a search, no harm by what the folder has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.catalog import load
from planner.procurement import run
from planner.procurement.program.instance import Settings
from planner.procurement.question import flags
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.throughput import kept_plans
from planner.question.purchase_options import ProcureQuestion

KNOWN = load()
NODES = ("nebius-8x-h100", "akash-rtx3090")


def _asked(model: str = "llama3-8b", budget: str = "$1M") -> Portfolio:
    return flags.asked(
        KNOWN, None, ProcureQuestion(model=model, tokens="20B", budget=budget, deadline="60d", node=NODES)
    )


def test_a_second_question_searches_nothing_and_is_answered_alike(tmp_path: Path) -> None:
    kept = Settings(cache=tmp_path / "plans")
    fresh = run.pose(KNOWN, _asked())
    first = run.pose(KNOWN, _asked(), settings=kept)
    second = run.pose(KNOWN, _asked(budget="$900k"), settings=kept)
    assert first.speeds.searches == fresh.speeds.searches > 0 and second.speeds.searches == 0
    assert fresh.whole.columns == first.whole.columns == second.whole.columns
    column = second.whole.columns[0]
    assert second.speeds.plan(column, 2e10) == fresh.speeds.plan(column, 2e10)
    assert second.speeds.why_not(second.instance.jobs[0]) == fresh.speeds.why_not(fresh.instance.jobs[0])
    assert run.pose(KNOWN, _asked("llama3.2-3b"), settings=kept).speeds.searches > 0
    assert len(list(kept.cache.iterdir() if kept.cache else ())) == 2


@pytest.mark.parametrize("broken", ["", "[]", "{", '"a"', "[" * 100_000])
def test_a_file_that_is_none_of_ours_is_written_again(tmp_path: Path, broken: str) -> None:
    kept = Settings(cache=tmp_path)
    columns = run.pose(KNOWN, _asked(), settings=kept).whole.columns
    (file,) = tmp_path.iterdir()
    whole = file.read_text(encoding="utf-8")
    file.write_text(broken, encoding="utf-8")
    again = run.pose(KNOWN, _asked(), settings=kept)
    assert again.whole.columns == columns and again.speeds.searches > 0
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(whole)


@pytest.mark.parametrize("value", [None, 3, [], {}, {"time": 0.0}, {"time": 1e999}, {"time": "1"}])
def test_an_entry_that_is_no_plan_is_searched_again(tmp_path: Path, value: object) -> None:
    kept = Settings(cache=tmp_path)
    columns = run.pose(KNOWN, _asked(), settings=kept).whole.columns
    (file,) = tmp_path.iterdir()
    book = json.loads(file.read_text(encoding="utf-8"))
    name = next(name for name, plan in book.items() if isinstance(plan, dict))
    changed = {**book[name], **value} if isinstance(value, dict) and value else value
    file.write_text(json.dumps({**book, name: changed}), encoding="utf-8")
    assert run.pose(KNOWN, _asked(), settings=kept).whole.columns == columns


def test_the_folder_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_plans, "MOST_FILES", 2)
    for number in range(4):
        (tmp_path / f"{number}.json").write_text("{}", encoding="utf-8")
    run.pose(KNOWN, _asked(), settings=Settings(cache=tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "plans").write_text("a file", encoding="utf-8")
    assert run.pose(KNOWN, _asked(), settings=Settings(cache=tmp_path / "plans")).whole.columns
