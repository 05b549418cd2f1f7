"""``runs``: a site's runs are listed, corrected, removed and merged, and each of that is undone."""

import json
from pathlib import Path

import pytest

import clusterwright as cw
from planner.commands.command_line import main

RAN = (
    *("model=llama3-8b", "family=dense", "accelerator=H100-SXM5-80GB", "num_accelerators=8", "seq_len=8192"),
    *("global_batch_seqs=128", "tp=2", "pp=1", "micro_batch=1", "runtime=megatron-core", "precision=bf16"),
)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of a site ``lab`` with two runs."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "site", "lab"]) == 0
    cells = [text for cell in RAN for text in ("--set", cell)]
    for time in ("14.1s", "14.9s"):
        assert main(["learn", "--step-time", time, *cells, "--site", "lab"]) == 0
    return tmp_path / "lab" / "runs.csv"


def runs(*arguments: str) -> int:
    return main(["runs", *arguments, "--site", "lab"])


def ids() -> list[str]:
    return [run.row["id"] for run in cw.SiteJournal("lab").runs()]


def test_each_change_is_undone(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = journal.read_text(encoding="utf-8")
    first, second = ids()

    assert runs("edit", first, "step_time_s=14.3", "tp=4") == 0
    edited, other = ids()
    assert edited != first and other == second
    assert "edited" in capsys.readouterr().out
    assert runs("remove", second.removeprefix("lab-")) == 0
    assert ids() == [edited] and json.loads((journal.parent / "fit.json").read_text(encoding="utf-8"))["rows"] == 1

    assert runs("undo") == 0
    assert ids() == [edited, second]
    assert runs("undo") == 0
    assert journal.read_text(encoding="utf-8") == learned
    assert runs("undo") == 2
    assert "no change is left to undo" in capsys.readouterr().err


def test_shared_rows_are_merged_once(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", "other"]) == 0
    assert main(["learn", "--share", "rows.csv", "--yes", "--site", "lab"]) == 0
    assert main(["runs", "merge", "rows.csv", "--site", "other", "--json"]) == 0
    text = capsys.readouterr().out
    document = json.loads(text[text.rindex('{\n  "kind"') :])
    assert document["change"] == "merged 2 runs of 2 of rows.csv"
    assert [run["row"]["step_time_s"] for run in document["runs"]] == ["14.1", "14.9"]

    assert runs("merge", "rows.csv") == 0
    assert "merged 0 runs of 2" in capsys.readouterr().out and len(ids()) == 2
    assert runs("merge", "other") == 0
    assert len(ids()) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("show", "lab-0"), "no such run"),
        (("show", "lab"), "no such run"),
        (("edit", "", "tp=2"), "no such run"),
        (("edit", "FIRST", "tp=3"), "tp"),
        (("edit", "FIRST", "precison=bf16"), "did you mean precision?"),
        (("edit", "FIRST", "tp="), "does not say tp"),
        (("edit", "FIRST", "id=lab-1"), "no such column"),
        (("merge", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_wrong_questions(asked: tuple[str, ...], said: str, journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = journal.read_text(encoding="utf-8")
    assert runs(*(ids()[0] if word == "FIRST" else word for word in asked)) == 2
    assert said in capsys.readouterr().err
    assert journal.read_text(encoding="utf-8") == before


def test_a_history_that_is_no_history_is_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (journal.parent / "history.jsonl").write_text('{"what": 1}\n', encoding="utf-8")
    assert runs("undo") == 2
    assert "history.jsonl:1: is no change of a journal" in capsys.readouterr().err
