"""Trials: proposed, resumed, killed, shared by workers; the journals that keep them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.study import run as designing
from planner.study.program import optuna_samplers, trial_storage
from planner.study.program.evaluation import Evaluator
from tests.designing import LONG, ROOT, TINY, TWO, Tried, _limited, by_trials, known, searched, study, whole, whole_with

__all__ = ["searched"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [TINY, TWO], ids=["TPE", "NSGA-II"])
def test_a_resumed_study_ends_as_one_that_ran_through(searched, tmp_path, text):
    straight = by_trials(text, 16)
    journal = str(tmp_path / "a.journal")
    by_trials(text, 7, storage=journal)
    resumed = by_trials(text, 16, storage=journal, resume=True)
    assert resumed.trials == straight.trials
    assert resumed.best == straight.best


@pytest.mark.slow
def test_another_seed_tries_other_points(searched):
    assert by_trials(TINY, 8, seed=1).trials != by_trials(TINY, 8).trials


def test_a_changed_study_is_not_resumed(searched, tmp_path):
    journal = str(tmp_path / "a.journal")
    by_trials(TINY, 3, storage=journal)
    with pytest.raises(WrongQuestion, match="--resume continues"):
        by_trials(TINY, 3, storage=journal)
    changed = TINY.replace('"48 GiB"', '"40 GiB"').replace("$14 per", "$15 per")
    with pytest.raises(WrongQuestion, match=r"(?s)changed since.*axes\.accelerator\.memory\.values.*costs\.rates"):
        by_trials(changed, 3, storage=journal, resume=True)
    with pytest.raises(WrongQuestion, match="seed: 0 before, 5 now"):
        by_trials(TINY, 3, storage=journal, resume=True, seed=5)
    with pytest.raises(WrongQuestion, match="holds no study"):
        by_trials(TINY, 3, storage=str(tmp_path / "b.journal"), resume=True)


def test_what_is_no_journal_is_refused_and_left_alone(searched, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a journal\n")
    with pytest.raises(WrongQuestion, match="not a journal"):
        by_trials(TINY, 3, storage=str(path), resume=True)
    assert path.read_text() == "not a journal\n"
    for place in (tmp_path, tmp_path / "no" / "where.journal"):
        with pytest.raises(WrongQuestion, match="folder"):
            by_trials(TINY, 3, storage=str(place))


@pytest.mark.slow
def test_no_trial_is_spent_on_what_is_known_to_break_a_limit(searched):
    """What a cluster costs is known without a plan; and no point is tried twice while others are left."""
    text = _limited("$110k")
    asked = study(text)
    kept = [n for n in range(asked.size) if Evaluator(known(), asked).allowed(asked.point(n))]
    assert len(kept) == 22
    found = by_trials(text, 20)
    assert all(t.measures["capital"] <= 1.1e5 for t in found.trials)
    assert len({tuple(t.axes.values()) for t in found.trials}) == 20
    several = by_trials(
        text.replace('["cost"]', '["step-time", "cost"]'), 36
    )  # 4 children of NSGA-II after 32 at random
    assert sum(t.measures["capital"] <= 1.1e5 for t in several.trials) >= 22


def test_points_are_alike_where_what_differs_changes_nothing():
    axis = '"accelerator.memory" = ["24 GiB", "48 GiB", "80 GiB"]'
    asked = study(TINY.replace(axis, '"fabric.oversubscription" = [1, 2, 4]\nregion = ["us", "no"]'))
    evaluator, of = Evaluator(known(), asked), {}
    outcomes = evaluator.many([asked.point(number) for number in range(asked.size)])
    for each in outcomes:
        of.setdefault(evaluator.plan_key(each.point), set()).add((each.point[1:], tuple(each.objectives.values())))
    assert len(of) == asked.size // 3  # one node has no spine
    assert all(len(each) == 1 for each in of.values())  # and what a place costs is not alike


def test_sweeps_find_a_valley_behind_a_ridge_and_pay_for_one_thing_with_another():
    def worth(p):
        return float(sum(p))

    asked = study()
    best = (0, 1, 0, 0)
    found, place = Tried([best], worth), set()
    for seed in range(60):
        params = optuna_samplers.swept(asked, found, seed, optuna_samplers.KnownPoints())
        if params is None:
            break
        here = optuna_samplers.point(asked, params)
        place.add(here)
        found.trials += Tried([here], lambda p: 99.0).trials
    alone = {p for p in place if sum(a != b for a, b in zip(p, best, strict=True)) == 1}
    assert alone == {(1, 1, 0, 0), (2, 1, 0, 0), (0, 0, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert {(1, 2, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0), (0, 1, 1, 1)} <= place
    assert params is None and len(place) == 6 + 9
    only = optuna_samplers.swept(
        asked, Tried([best], worth), 3, optuna_samplers.KnownPoints(lambda p: p == (1, 2, 0, 0))
    )
    assert optuna_samplers.point(asked, only) == (1, 2, 0, 0)


def test_an_enumeration_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    place = tmp_path / "points.journal"
    monkeypatch.setattr(designing, "CHUNK", 5)
    many, seen = Evaluator.many, []

    def stopped(self, points, advance=None):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(len(points))
        return many(self, points, advance)

    monkeypatch.setattr(Evaluator, "many", stopped)
    with pytest.raises(KeyboardInterrupt):
        whole_with(place)
    with place.open("a") as end:
        end.write('{"number": 15, "outc')  # as if it had been killed while writing
    again = []
    monkeypatch.setattr(Evaluator, "many", lambda self, points: again.append(len(points)) or many(self, points))
    found = whole_with(place, resume=True)
    assert sum(again) == study().size - 15
    assert found.trials == whole().trials and found.search.exact
    assert len(place.read_text().splitlines()) == 1 + study().size
    again.clear()
    assert whole_with(place).trials == found.trials and not sum(again)


@pytest.mark.slow
def test_an_enumerations_journal_is_held_to_its_question(searched, tmp_path, monkeypatch):
    points, journal, notes = (tmp_path / name for name in ("points.journal", "trials.journal", "notes.txt"))
    by_trials(TINY, 3, storage=str(journal))
    monkeypatch.setattr(designing, "SMALL", 1500)
    whole_with(points)
    notes.write_text("not a journal\n")
    for place, text, more, says in [
        (points, TINY.replace("$14 per", "$15 per"), {}, r"(?s)another study.*costs\.rates"),
        (tmp_path / "none.journal", TINY, {"resume": True}, "leave it out to begin"),
        (journal, TINY, {}, "every point is evaluated; name another"),
        (notes, TINY, {}, "not a journal"),
        ("postgresql://me:secret@host/x", TINY, {}, "--storage postgresql://host/x: every point"),
    ]:
        before = Path(place).read_text() if Path(place).exists() else None
        with pytest.raises(WrongQuestion, match=says):
            whole_with(place, text, **more)
        assert before is None or Path(place).read_text() == before
    monkeypatch.setattr(designing, "SMALL", 0)
    with pytest.raises(WrongQuestion, match="not a journal of a study's trials"):
        by_trials(TINY, 3, storage=str(points))
    lines = points.read_text().splitlines()
    points.write_text("\n".join([lines[0], '{"number": "x", "outcome": {}}', *lines[2:]]) + "\n")
    monkeypatch.setattr(designing, "SMALL", 1500)
    with pytest.raises(WrongQuestion, match=r"points.journal:2: not a line"):
        whole_with(points)


@pytest.mark.slow
def test_a_killed_study_loses_at_most_the_trial_it_was_in(searched, tmp_path):
    file, journal = tmp_path / "study.toml", tmp_path / "a.journal"
    file.write_text(TWO)
    worker = subprocess.Popen([sys.executable, "-c", LONG, str(file), str(journal)], cwd=ROOT)
    while not journal.exists() or journal.read_bytes().count(b'"outcome"') < 6:
        assert worker.poll() is None
        time.sleep(0.02)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    with journal.open("ab") as end:
        end.write(b'{"op_code": 4, "wor')  # as if it had been killed while writing
    finished = journal.read_bytes().count(b'"outcome"')
    resumed = by_trials(TWO, finished + 4, storage=str(journal), resume=True)
    straight = by_trials(TWO, finished + 4)
    assert len(resumed.trials) == finished + 4
    # A lost trial's number is not used again; the points are those of a study that ran through.
    assert [t.axes for t in resumed.trials] == [t.axes for t in straight.trials]
    assert resumed.trials[-1].number - straight.trials[-1].number in (0, 1)
    store = trial_storage.storage(str(journal))
    assert sum(t.state.name == "RUNNING" for t in store.get_all_trials(0)) == 0


@pytest.mark.slow
def test_two_workers_share_a_journal(searched, tmp_path):
    found = by_trials(TINY, 10, storage=str(tmp_path / "a.journal"), workers=2)
    assert len(found.trials) == 10
    assert found.meta["workers"] == 2
    with pytest.raises(WrongQuestion, match="--storage"):
        by_trials(TINY, 10, workers=2)
