"""The command and what it refuses."""

import json

from planner.planning import document
from planner.study.answer import document as answer
from planner.study.program import trial_storage
from tests.designing import TINY, run, study


def test_the_command_prints_a_report_and_a_document(tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    assert run("design", str(file)) == 0
    said = capsys.readouterr().out
    assert "enumerated exactly" in said and "from dgx-h100 up" in said and "pays" in said and "Search" in said
    assert run("design", str(file), "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert written["kind"] == "study" and written["schema_version"] == 1
    assert {"trials", "best", "pareto", "sensitivity", "importance"} <= set(written)
    assert all(len(trial["axes"]) == 4 for trial in written["trials"])
    assert written["best"][0]["plan"][0]["kind"] == "plan"


def test_the_command_refuses_kindly(tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    for args, says in [
        (["--shard", "4/3"], "--shard 4/3"),
        (["other.toml"], "one study at a time"),
        (["--trials", "0"], "--trials"),
        (["--resume"], "nothing was kept"),
        (["--storage", "postgresql://host/x"], "every point"),
    ]:
        assert run("design", str(file), *args) == 2
        assert says in capsys.readouterr().err
    assert run("design", "merge", str(file)) == 2
    assert "merge what" in capsys.readouterr().err
    assert run("design", "merge", str(file), str(file)) == 2
    assert "a document is JSON" in capsys.readouterr().err


def test_questions_differ_line_by_line():
    before = document.dump(answer.question(study()))
    now = document.dump(answer.question(study(TINY.replace("count = 1", "count = 2"))))
    assert list(trial_storage.differences(before, now)) == ["base.count: 1 before, 2 now"]
