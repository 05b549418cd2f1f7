"""``plan --site``: plans that a site has run are ranked by that, those that ran out of memory are left out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clusterwright as cw
from planner.commands import main
from planner.schema.plan import Plan, PlanSet
from planner.site import cells

ASKED = ["llama3-8b", "--cluster", "dgx-h100:1", "--batch", "128"]
Answers = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answers:
    """Asks for plans with the site ``lab``, in an empty folder, and gives the document."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "site", "lab"]) == 0

    def asked(*more: str, site: bool = True) -> dict[str, Any]:
        assert (
            main(["plan", *ASKED, *more, "--json", "-o", "plans.json", "--force", *(["--site", "lab"] if site else [])])
            == 0
        )
        text = capsys.readouterr().out
        found: dict[str, Any] = json.loads(text[text.index("{\n") :])
        return found

    return asked


def learn(rank: int, *measured: str, plan: str = "plans.json") -> None:
    assert main(["learn", "--site", "lab", "--plan", plan, "--rank", str(rank), *measured]) == 0


def degrees(plan: dict[str, Any]) -> tuple[Any, ...]:
    cut = plan["parallelism"]
    micro = plan["batch"]["micro"]
    return (*(cut[axis] for axis in ("tp", "pp", "vpp", "cp")), micro, cut["zero_stage"], plan["recompute"]["policy"])


def test_a_site_without_runs_changes_no_plan(ask: Answers) -> None:
    plain, sited = ask(site=False), ask()
    assert [degrees(p) for p in sited["plans"]] == [degrees(p) for p in plain["plans"]]
    assert "site" not in plain and "measured" not in plain["plans"][0]
    assert sited["site"]["runs"] == 0 and sited["site"]["next_rank"] == 1


def test_what_ran_out_of_memory_is_no_plan_any_more(ask: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    before = ask()
    learn(1, "--oom")
    after = ask()
    assert degrees(before["plans"][0]) not in [degrees(p) for p in after["plans"]]
    assert len(after["plans"]) == len(before["plans"]) == 5
    assert len(after["site"]["out_of_memory"]) == 1
    assert main(["plan", *ASKED, "--site", "lab"]) == 0
    assert "excluded, ran out of memory: llama3-8b on 8 x H100-SXM5-80GB" in capsys.readouterr().out


def test_a_measured_plan_is_ranked_by_its_measurement(ask: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    before = ask()
    slow, fast = degrees(before["plans"][0]), degrees(before["plans"][3])
    best = before["plans"][0]["prediction"]["step_time_s"]
    learn(1, "--step-time", f"{1.3 * best:.3f}")
    learn(4, "--step-time", f"{0.8 * best:.3f}")
    after = ask()
    assert degrees(after["plans"][0]) == fast
    assert after["plans"][0]["measured"] == {
        "runs": 1,
        "step_time_s": pytest.approx(0.8 * best, rel=1e-3),
        "memory_bytes": None,
    }
    assert slow not in [degrees(p) for p in after["plans"]]
    assert after["site"]["next_rank"] == 2
    assert main(["plan", *ASKED, "--site", "lab"]) == 0
    out = capsys.readouterr().out
    assert (
        "measured  tokens/s" in out and "#1 was measured:" in out and "Site           lab: 2 runs, 1 framework" in out
    )


def test_a_run_beyond_the_best_plans_comes_in_when_it_is_fast(ask: Answers) -> None:
    ask("--pin", "tp=8,pp=1,micro=1,recompute=full,cp=1", "--top", "1")
    learn(1, "--step-time", "5s")
    found = ask()
    assert degrees(found["plans"][0]) == (8, 1, 1, 1, 1, *degrees(found["plans"][0])[5:])
    assert found["plans"][0]["measured"]["step_time_s"] == 5.0
    assert [p["rank"] for p in found["plans"]] == [1, 2, 3, 4, 5]


def test_pins_hold_for_what_was_run_too(ask: Answers) -> None:
    ask("--pin", "tp=8", "--top", "1")
    learn(1, "--step-time", "5s")
    found = ask("--pin", "tp=1..4")
    assert not any(p["parallelism"]["tp"] == 8 for p in found["plans"])


def test_runs_of_other_work_say_nothing_of_these_plans(ask: Answers) -> None:
    ask("--top", "1")
    learn(1, "--step-time", "5s")
    assert (
        main(["plan", "llama3-8b", "--cluster", "dgx-h100:2", "--batch", "128", "--site", "lab", "-o", "two.json"]) == 0
    )
    assert not any("measured" in p for p in json.loads(Path("two.json").read_text())["plans"])


def test_several_runs_of_a_plan_count_by_their_median(ask: Answers) -> None:
    ask("--top", "1")
    for time in ("5s", "9s", "6s"):
        learn(1, "--step-time", time)
    assert ask()["plans"][0]["measured"] == {"runs": 3, "step_time_s": 6.0, "memory_bytes": None}


def test_a_plan_that_ran_once_has_not_run_out_of_memory(ask: Answers) -> None:
    ask("--top", "1")
    learn(1, "--oom")
    learn(1, "--step-time", "5s", plan="plans.json")
    found = ask()
    assert found["plans"][0]["measured"]["runs"] == 1
    assert found["site"]["out_of_memory"] == []


def test_nothing_left_is_no_answer(ask: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    pins = ("--pin", "tp=1,pp=1,vpp=1,cp=1,micro=1,zero=3,recompute=full,offload=none")
    ask(*pins, "--top", "1")
    learn(1, "--oom")
    capsys.readouterr()
    assert main(["plan", *ASKED, *pins, "--site", "lab"]) == 1
    assert "has run out of memory at this site" in capsys.readouterr().err


def test_the_environment_names_a_site(ask: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERWRIGHT_SITE", "lab")
    assert ask(site=False)["site"]["name"] == "lab"


def test_python_asks_the_same(ask: Answers) -> None:
    ask("--top", "2")
    report = cw.learn(plan="plans.json", rank=2, step_time="5s", site="lab")
    assert report.rows()[0]["step_time_s"] == "5"
    found = cw.plan("llama3-8b", "dgx-h100:1", batch=128, site="lab")
    assert found[0].measured is not None and found[0].measured.step_time_s == 5.0
    again = cw.load("plans.json")
    assert isinstance(again, PlanSet) and isinstance(again[0], Plan)
    assert cells.key(cells.of_plan(found[0])) == cells.key(cells.of_plan(again[1]))


def test_a_changed_journal_is_fitted_again(ask: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    ask("--top", "1")
    learn(1, "--step-time", "14s")
    path = Path("lab/runs.csv")
    path.write_text(path.read_text().replace(",14,", ",15,"))
    assert ask()["site"]["error_before"] is None
    assert main(["calibrate", "--site", "lab"]) == 0
    assert "--site lab" in capsys.readouterr().out
    assert ask()["site"]["error_before"] is not None
    assert main(["validate", "--site", "lab"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate", "--site", "none"], "--site none: no such folder"),
        (["calibrate", "--site", "lab"], "runs.csv: no run that can be predicted"),
        (["calibrate", "--site", "lab", "-o", "x"], "--site DIR fits that folder's journal"),
        (["calibrate", "x.csv"], "missing option '-o'"),
        (["validate"], "missing argument 'FILE'"),
        (["plan", *ASKED, "--site", "none"], "--site none: no such folder; make a site with: clusterwright init site"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_questions(ask: Answers, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    capsys.readouterr()
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("field", "value"), [("step_time_s", 0.0), ("step_time_s", -1.0), ("runs", 0)])
def test_an_impossible_measurement_in_a_file_is_refused(
    ask: Answers, capsys: pytest.CaptureFixture[str], field: str, value: float
) -> None:
    ask("--top", "1")
    learn(1, "--step-time", "5s")
    found = ask("--top", "1")
    found["plans"][0]["measured"][field] = value
    Path("edited.json").write_text(json.dumps(found))
    capsys.readouterr()
    assert main(["explain", "edited.json"]) == 2
    assert f"plans.0.measured.{field}: Input should be greater than" in capsys.readouterr().err
