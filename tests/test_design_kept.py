"""What is kept of a study: changes in it are seen, no trial is lost or made twice, shards share out all points."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalog
from planner.api import plan_sources, rechecking
from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.locking import this_process
from planner.planning import document
from planner.study import merge
from planner.study import run as designing
from planner.study.answer import document as answer
from planner.study.program import optuna_samplers, optuna_trials, trial_storage
from planner.study.program.evaluation import Evaluator
from planner.verify.finding import Inconsistent
from tests.altering import altered
from tests.designing import TINY, TWO, Tried, _limited, by_trials, run, study, whole, whole_with
from tests.sweeps import sweep

known = cache(catalog.load)
GONE = "4194304"
"""No process: Linux counts up to 4,194,304 of them, the last not among them."""


def dead() -> str:
    return f"{this_process().rsplit(':', 2)[0]}:{GONE}:0"


# ---- changed studies -------------------------------------------------------------------------------------------------

JOB = TINY[TINY.index("[[workloads]]") : TINY.index("[costs]")]
CHANGED = {
    "base.count": TINY.replace("count = 1", "count = 2"),
    "base.accelerators": TINY.replace("count = 1", "accelerators = 8"),
    "base.node": TINY.replace("dgx-h100", "dgx-a100-80gb"),
    "base.region": TINY.replace("count = 1", 'count = 1\nregion = "no"'),
    "axes.node.accelerators.values": TINY.replace("[4, 8]", "[4, 8, 16]"),
    "axes.fabric.oversubscription": TINY.replace("[[workloads]]", '"fabric.oversubscription" = [1, 2]\n[[workloads]]'),
    "workloads.0.weight": TINY.replace("batch = 64", "batch = 64\nweight = 2"),
    "workloads.0.model": TINY.replace("llama3-8b", "mistral-7b"),
    "workloads.0.asked.batch": TINY.replace("batch = 64", "batch = 32"),
    "workloads.0.asked.pins": TINY.replace('"micro=1", ', ""),
    "workloads.0.asked.sequence": TINY.replace("batch = 64", "batch = 64\nsequence = 4096"),
    "workloads.1": TINY.replace(JOB, JOB + JOB.replace("llama3-8b", "mistral-7b")),
    "objectives": TINY.replace('["cost"]', '["energy"]'),
    "constraints.0": _limited("$110k"),
    "costs.accelerator_usd": TINY.replace("$3,000", "$3,001"),
    "costs.node_usd": TINY.replace("$20,000", "$20,001"),
    "costs.rates.accelerator.memory.per_unit": TINY.replace("$50 per", "$51 per"),
    "costs.ownership.life_years": TINY.replace("[costs.per]", '[costs.ownership]\nlife = "4 y"\n[costs.per]'),
    "power.accelerator.memory": TINY + '[power]\n"accelerator.memory" = "1 W per GiB"\n',
}


def asked(text: str = TINY) -> Any:
    return json.loads(json.dumps(document.dump(answer.question(study(text)))))


@sweep(("key", "text"), CHANGED.items(), ids=list(CHANGED))
def test_whatever_changed_in_a_study_is_seen(key, text):
    """Added, taken away or another: in the study that was kept, or in the one that is asked now."""
    assert not list(trial_storage.differences(asked(), asked()))
    for before, now in ((asked(), asked(text)), (asked(text), asked())):
        said = list(trial_storage.differences(before, now))
        assert any(line.startswith(key) for line in said), said


def test_another_catalog_is_another_study(tmp_path):
    own = study()
    assert any(name.startswith("catalog") for name in own.inputs)
    changed = replace(own, inputs={name: f"{digest[:-1]}x" for name, digest in own.inputs.items()})
    place = str(tmp_path / "a.journal")
    how = designing.How(storage=place, explained=False)
    designing.design(known(), own, how)
    with pytest.raises(WrongQuestion, match=r"another study.*\n.*inputs\.catalog"):
        designing.design(known(), changed, how)


def test_a_journal_of_another_version_is_not_gone_on_with(tmp_path):
    place = tmp_path / "points.journal"
    whole_with(place)
    lines = place.read_text().splitlines()
    for key, value in (("schema_version", 2), ("kind", "study")):
        place.write_text("\n".join([json.dumps({**json.loads(lines[0]), key: value}), *lines[1:]]) + "\n")
        with pytest.raises(WrongQuestion, match=r"points\.journal:1: not a line of an enumeration"):
            whole_with(place)


# ---- trials ----------------------------------------------------------------------------------------------------------


def begun(text: str = TINY) -> tuple[Any, Any]:
    optuna_trials.quiet()
    return trial_storage.opened(trial_storage.storage(None), study(text), {}, 0, "memory", resume=False), study(text)


def ask(found: Any, of: Any, worker: str | None) -> int:
    """A trial that is begun and not ended."""
    trial = found.ask(optuna_samplers.distributions(of))
    if worker is not None:
        trial.set_user_attr("worker", worker)
    return int(trial.number)


def states(found: Any) -> list[str]:
    return [trial.state.name for trial in found.get_trials()]


def test_trials_of_workers_that_are_no_more_are_given_up(monkeypatch):
    monkeypatch.setattr(optuna_trials, "NAMELESS_S", 0.0)
    found, of = begun()
    for worker in (dead(), this_process(), "elsewhere:1", None):
        ask(found, of, worker)
    assert optuna_trials.release(found) == 2 and states(found) == ["FAIL", "RUNNING", "RUNNING", "FAIL"]
    assert optuna_trials.counted(found) == 2
    monkeypatch.setattr(optuna_trials, "STALE_S", 0.0)
    assert optuna_trials.release(found) == 2 and states(found) == ["FAIL"] * 4 and optuna_trials.counted(found) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("text", "count"), [(TINY, 26), (TWO, 44)], ids=["TPE", "NSGA-II"])
def test_lost_trials_are_made_again_and_no_other(text, count, monkeypatch):
    """Killed at three places, two of them at once: the points are those of a study that nothing happened to."""
    monkeypatch.setattr(optuna_samplers, "SWEEP_FROM", 18)
    monkeypatch.setattr(optuna_trials, "NAMELESS_S", 0.0)

    def made(stops: tuple[int, ...]) -> Any:
        found, of = begun(text)
        for target in (*stops, count):
            optuna_trials.release(found)  # as --resume does
            optuna_trials.run(found, Evaluator(known(), of), target, 0, lambda n, note: None, lambda: True)
            if target < count:
                ask(found, of, dead())
                ask(found, of, None if target == stops[0] else dead())
        return found

    straight, stopped = made(()), made((5, 14, count - 3))
    assert states(straight) == ["COMPLETE"] * count
    assert states(stopped).count("COMPLETE") == count and "RUNNING" not in states(stopped)
    points = [[t.params for t in found.get_trials() if t.state.name == "COMPLETE"] for found in (straight, stopped)]
    assert points[0] == points[1]


@pytest.mark.slow
@pytest.mark.parametrize("text", [TINY, TWO], ids=["TPE", "NSGA-II"])
def test_a_study_is_resumed_without_what_was_lost(text, tmp_path, monkeypatch):
    """Two trials that a killed process had begun: resumed, and resumed again, the study has none of them."""
    monkeypatch.setattr(designing, "SMALL", 0)
    journal = str(tmp_path / "a.journal")
    by_trials(text, 7, storage=journal)
    for target in (11, 16):
        stored = optuna.load_study(study_name=study(text).name, storage=trial_storage.storage(journal))
        ask(stored, study(text), dead())
        ask(stored, study(text), dead())
        resumed = by_trials(text, target, storage=journal, resume=True)
        straight = by_trials(text, target)
        assert [(t.axes, t.objectives) for t in resumed.trials] == [(t.axes, t.objectives) for t in straight.trials]


def test_who_is_left_makes_what_another_worker_lost():
    """Another process begins a trial and is killed while this one goes on: all trials are made in the end."""
    found, of = begun()

    def lose(n: int, note: str) -> None:
        if states(found).count("COMPLETE") == 3 and "RUNNING" not in states(found):
            ask(found, of, dead())

    optuna_trials.run(found, Evaluator(known(), of), 6, 0, lose, lambda: True)
    assert sorted(states(found)) == ["COMPLETE"] * 6 + ["FAIL"]


def test_places_are_not_taken_from_who_is_at_work():
    found, of = begun()
    for _ in range(3):
        ask(found, of, "elsewhere:1")
    optuna_trials.run(found, Evaluator(known(), of), 4, 0, lambda n, note: None, lambda: True)
    assert states(found) == ["RUNNING"] * 3 + ["COMPLETE"]


def test_no_more_trials_are_made_than_were_asked_for(monkeypatch):
    """Where another worker takes the last place between the look and the asking."""
    found, of = begun()
    monkeypatch.setattr(optuna_trials, "counted", lambda found: 0)
    optuna_trials.run(found, Evaluator(known(), of), 3, 0, lambda n, note: None, lambda: len(states(found)) < 9)
    assert states(found) == ["COMPLETE"] * 3 + ["FAIL"]


@pytest.mark.slow
def test_trials_are_those_of_their_seed(monkeypatch):
    monkeypatch.setattr(optuna_samplers, "SWEEP_FROM", 14)
    found = []
    for seed in (0, 0, 1):
        each, of = begun()
        optuna_trials.run(each, Evaluator(known(), of), 18, seed, lambda n, note: None, lambda: True)
        found.append([t.params for t in each.get_trials()])
    assert found[0] == found[1] != found[2]


def test_seeds_are_by_study_and_number_wherever_they_are_made():
    """The first four bytes of SHA-256 of ``seed:number``."""
    assert optuna_samplers.seeded(0, 0) == 0xAC72368A
    assert optuna_samplers.seeded(7, 41) == 0x483B5440
    many = {optuna_samplers.seeded(seed, number) for seed in range(20) for number in range(50)}
    assert len(many) == 1000 and all(0 <= each < 2**32 for each in many)


@pytest.mark.parametrize("make", [optuna_samplers.swept, optuna_samplers.drawn])
def test_a_seed_says_where_sweeps_and_draws_go(make):
    tried = Tried([(1, 1, 0, 0)], lambda p: 1.0)
    once, again = ([make(study(), tried, seed, optuna_samplers.KnownPoints()) for seed in range(12)] for _ in range(2))
    assert once == again and len({tuple(params.values()) for params in once}) > 3


# ---- shards ----------------------------------------------------------------------------------------------------------


def shard(n: int, of: int, **more: Any) -> Any:
    return designing.design(known(), study(), designing.How(shard=(n, of), explained=False, **more))


@sweep("of", [1, 5, 7, 36])
def test_shards_share_out_all_points(of):
    """Every point once, however the number of shards divides them, and as many each as can be."""
    numbers: list[list[int]] = []
    asked = replace(study(), constraints=())
    evaluator = Evaluator(known(), asked)
    kept = {
        n: optuna_trials.stored(outcome)
        for n, outcome in enumerate(evaluator.many([asked.point(n) for n in range(36)]))
    }

    class Kept:
        study = asked

        def seconds(self, at_once: int) -> float:
            return 0.0

        def many(self, points: Any) -> Any:
            return points

    for n in range(1, of + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(designing, "CHUNK", 4)
            patch.setattr(optuna_trials, "stored", lambda point: kept[[asked.point(i) for i in range(36)].index(point)])
            found, method = designing._enumerated(Kept(), designing.How(shard=(n, of)), None)  # type: ignore[arg-type]
        assert method.exact is (of == 1) and method.shards == (n,) and method.of_shards == of
        assert [t.axes for t in found] == [asked.values(asked.point(t.number)) for t in found]
        numbers.append([t.number for t in found])
    assert sorted(n for each in numbers for n in each) == list(range(36))
    assert max(map(len, numbers)) - min(map(len, numbers)) <= 1


@given(st.data())
def test_points_are_numbered_without_gaps(data):
    asked = study()
    made = [asked.point(n) for n in range(asked.size)]
    assert made == sorted(set(made)) and len(made) == asked.size
    n = data.draw(st.integers(0, asked.size - 1))
    assert list(asked.values(made[n])) == [axis.path for axis in asked.axes]


@cache
def halves(folder: Any) -> list[Any]:
    paths = [folder / f"{n}.json" for n in (1, 2)]
    for n, path in enumerate(paths, 1):
        path.write_text(document.as_json(shard(n, 2)))
    return paths


def test_a_merged_answer_is_whole_only_if_no_point_is_missing(tmp_path):
    first, second = halves(tmp_path)
    cut = tmp_path / "cut.json"
    text = json.loads(second.read_text())
    lost = text["trials"].pop(3)
    cut.write_text(json.dumps(text))
    found = merge.merge(known(), study(), [first, cut], explained=False)
    assert not found.search.exact and found.search.method == "merged" and found.search.tried == 35
    assert lost["number"] not in {t.number for t in found.trials}
    assert [t.number for t in found.trials] == sorted(t.number for t in found.trials)


@pytest.mark.slow
def test_a_point_of_two_documents_is_merged_once(tmp_path):
    first, second = halves(tmp_path)
    everything = tmp_path / "all.json"
    everything.write_text(document.as_json(whole()))
    for paths in ([first, second], [second, first], [everything, first], [second, everything]):
        found = merge.merge(known(), study(), paths, explained=False)
        assert found.search.exact and found.search.tried == 36
        assert found.trials == whole().trials and found.best == whole().best


@pytest.mark.slow
def test_what_was_searched_in_part_is_merged_by_its_points(tmp_path):
    """Trials have numbers of their own, which in a shard are those of other points."""
    paths = [tmp_path / "trials.json", tmp_path / "shard.json"]
    paths[0].write_text(document.as_json(by_trials(TINY, 6, way="trials")))
    paths[1].write_text(document.as_json(shard(1, 3)))
    for some in (paths[:1], paths):
        found = merge.merge(known(), study(), some, explained=False)
        assert all(trial.axes == study().values(study().point(trial.number)) for trial in found.trials)
        assert rechecking.check(found, "merged") > 100
    table = json.loads(paths[0].read_text())
    table["trials"][0]["axes"]["node.accelerators"] = 5
    paths[0].write_text(json.dumps(table))
    with pytest.raises(NoAnswer, match=r"trials\.json: trial 0 is no point of the study"):
        merge.merge(known(), study(), paths, explained=False)


def test_shards_of_unlike_numbers_and_of_another_study_are_not_merged(tmp_path):
    first, _ = halves(tmp_path)
    third = tmp_path / "third.json"
    third.write_text(document.as_json(shard(2, 3)))
    with pytest.raises(WrongQuestion, match="different numbers of shards: 2, 3"):
        merge.merge(known(), study(), [first, third], explained=False)
    with pytest.raises(WrongQuestion, match=r"another study.*\n  costs\.node_usd"):
        merge.merge(known(), study(CHANGED["costs.node_usd"]), [first], explained=False)


def test_every_shard_keeps_its_own_journal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(designing, "SMALL", 5)
    (tmp_path / "study.toml").write_text(TINY)
    for n in ("1/3", "2/3"):
        assert run("design", "study.toml", "--shard", n, "--quick") == 0
    assert "shard 2 of 3: 12 of 36 points" in capsys.readouterr().out
    journals = {path.name: path.read_text() for path in tmp_path.glob("*.journal")}
    assert set(journals) == {"tiny.shard-1-of-3.journal", "tiny.shard-2-of-3.journal"}
    numbers = [[json.loads(line)["number"] for line in text.splitlines()[1:]] for _, text in sorted(journals.items())]
    assert numbers == [list(range(0, 36, 3)), list(range(1, 36, 3))]
    for wrong in ("0/3", "4/3", "1/0", "1", "-1/3"):
        assert run("design", "study.toml", "--shard", wrong) == 2
        assert f"--shard {wrong}" in capsys.readouterr().err


# ---- checked from the document alone ---------------------------------------------------------------------------------

CONTRADICTIONS: dict[str, Any] = {
    "search.feasible": lambda count: count + 1,
    "search.outer_points": lambda count: count - 1,
    "trials.0.feasible": lambda feasible: not feasible,
    "trials.0.axes": lambda axes: {**axes, "accelerator.memory": 1.0},
    "best.0.objectives": lambda objectives: {name: 2 * value for name, value in objectives.items()},
    "best.0.plan.0.nearest_runs.0.lab": "nobody",
    "sensitivity.0.elasticity": 17.0,
    "sensitivity.0.sweep.0.value": 17.0,
    "pairs.0.columns.0": 17.0,
    "pairs.0.objective": "energy",
}


@sweep("path", CONTRADICTIONS)
def test_a_study_that_contradicts_itself_is_refused(path: str) -> None:
    plan_sources.consistent(whole())
    with pytest.raises(Inconsistent):
        plan_sources.consistent(altered(whole(), {path: CONTRADICTIONS[path]}))
