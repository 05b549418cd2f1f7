"""What comes back from the Python functions, and documents that are read again."""

import json
import pickle
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import clusterwright as cw
from planner.base import resources
from planner.base.errors import DocumentChanged
from planner.planning import document
from tests import right_files
from tests.api_questions import ROOT, sets
from tests.asking import ask
from tests.sweeps import sweep
from tests.test_plan_schema import wrong as against_the_schema


def test_a_plan_set_is_a_sequence_and_a_table() -> None:
    found = sets()
    assert len(found) == 3 and found[0] == next(iter(found)) == found.plans[0] and found[1:] == found.plans[1:]
    assert repr(found).startswith("<PlanSet: 3 plans; recommended: llama3-8b on 2 x dgx-h100: TP")
    assert len(repr(found)) < 150
    shown = found._repr_html_()
    assert shown.count("<tr>") == 4 and "GiB" in shown and "step_matrix_s" not in shown
    frame = found.to_frame()
    assert list(frame["rank"]) == [1, 2, 3] and frame["step_time_s"][1:].is_monotonic_increasing
    assert pickle.loads(pickle.dumps(found)) == found
    assert json.loads(found.to_json()) == document.stamped(found)


def test_a_report_is_plain_and_in_keywords(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as notebooks have it
    said = cw.explain(sets())
    assert capsys.readouterr().out == "" and repr(said) == said
    assert "\x1b" not in said and "--" not in said and "the usual seq, tokens" in said
    assert "verbose=True says what" in said and "8,192 tokens per sequence (seq)" in cw.explain(sets(), verbose=True)


def test_html_is_escaped() -> None:
    odd = replace(sets(), plans=(replace(sets()[0], precision="<b>"),))
    assert "<b>" not in odd._repr_html_() and "&lt;b&gt;" in odd._repr_html_()


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import clusterwright as cw\nfrom planner.procurement.throughput import job_days\n"
        "print('begins')\njob_days.MANY = 2\n"
        "print(cw.procure(model='gpt2', tokens=1e9, node=['p4d.24xlarge', 'p5.48xlarge'], quick=True)[0])\n",
        encoding="utf-8",
    )
    shown = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=90)
    assert shown.returncode == 0 and shown.stdout.count("begins") == 1, shown.stderr


@sweep(
    ("line", "kind"),
    [
        ("plan llama3-8b --cluster dgx-h100:1 --batch 64 --tp 2 --micro 1 --top 1", "plan-set"),
        ("plan resnet50 --accelerators A100:4,V100:4 --batch 256", "image-plan"),
        ("compare plan.json plan.json", "comparison"),
        ("comm show plan.json", "communication"),
        ("comm import times.csv --from csv -o table.csv", "communication-table"),
        ("validate runs.csv", "validation"),
        ("learn --step-time 4.31s --plan plan.json --rank 1 --site lab", "lesson"),
        ("procure --model gpt2 --tokens 1B --node p5.48xlarge --quick --sweep budget=1k..100k", "procurement-sweep"),
        ("explain plan.json", "plan"),
    ],
    every=3,
)
def test_whatever_json_prints_is_loaded(
    line: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(sets().to_json(), encoding="utf-8")
    (tmp_path / "times.csv").write_text(right_files.COLLECTIVES, encoding="utf-8")
    some = resources.runs().read_text(encoding="utf-8").splitlines(keepends=True)[:4]
    (tmp_path / "runs.csv").write_text("".join(some), encoding="utf-8")
    ask(capsys, "init site lab")
    answer = ask(capsys, f"{line} --json")
    assert answer.code == 0, answer.err
    written = answer.out
    assert against_the_schema(json.loads(written), kind) == []
    (tmp_path / "answer.json").write_text(written, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cw.load("answer.json")
    assert json.loads(found.to_json())["kind"] == kind
    assert len(found.to_frame()) >= 1
    if kind == "comparison":
        assert found == cw.compare(sets(), sets())
    (tmp_path / "answer.json").write_text(re.sub('("schema_version": .)', r'\1.0, "of": 2', written, count=1))
    with pytest.warns(DocumentChanged, match="edited"), suppress(cw.WrongQuestion):
        cw.load("answer.json")


def test_a_report_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "validation.json"
    report = {"kind": "validation", "schema_version": 1, "groups": [{"name": "all", "n": 3}]}
    file.write_text(json.dumps(report), encoding="utf-8")
    assert [*cw.load(file)] == [{"name": "all", "n": 3}]
    for wrong, says in (
        ({"schema_version": 9}, "schema_version is 9"),
        ({"groups": 3}, "groups: must be a list of tables"),
    ):
        file.write_text(json.dumps({**report, **wrong}), encoding="utf-8")
        with pytest.raises(cw.WrongQuestion, match=says):
            cw.load(file)
    file.write_text(json.dumps({"kind": "valdation", "schema_version": 1}), encoding="utf-8")
    with pytest.raises(cw.WrongQuestion, match=r"kind is 'valdation'; expected plan, .*validation"):
        cw.load(file)
