"""Batches of unseen runs: their page and README's sentence follow from the record; a commit is judged once."""

import json

import pytest

from docs import blind

RECORD = json.loads(blind.RECORD.read_text(encoding="utf-8"))


def test_the_page_is_what_the_record_says() -> None:
    assert blind.PAGE.read_text(encoding="utf-8") == blind.page(RECORD)


def test_the_short_page_is_what_the_record_and_the_detailed_page_say() -> None:
    details = blind.DETAILS.read_text(encoding="utf-8")
    assert blind.SHORT.read_text(encoding="utf-8") == blind.short_page(RECORD, details)


def test_readme_says_what_the_record_says_of_models_that_no_batch_had_shaped() -> None:
    said = blind.SENTENCE.search(blind.README.read_text(encoding="utf-8"))
    assert said is not None
    assert said[2].split() == blind.sentence(RECORD).split()


def test_every_batch_has_one_judgement_that_is_evidence() -> None:
    judged = [each["batch"] for each in RECORD["judgements"] if each["of"] == blind.BLIND]
    assert sorted(judged) == sorted(set(judged)) == sorted({each["batch"] for each in RECORD["judgements"]})


def test_a_later_judgement_is_no_evidence(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    record = tmp_path / "blind.json"
    record.write_text('{"judgements": []}')
    answers = {"status": "", "rev-parse": "first"}
    monkeypatch.setattr(blind, "RECORD", record)
    monkeypatch.setattr(blind, "_git", lambda *words: answers[words[0]])
    monkeypatch.setattr(blind, "judged", lambda file: {"sources": {}, "classes": {}})
    blind.judge(1, tmp_path)
    with pytest.raises(SystemExit, match="batch 1 has been judged from first"):
        blind.judge(1, tmp_path)
    answers["rev-parse"] = "second"
    blind.judge(1, tmp_path)
    assert [each["of"] for each in json.loads(record.read_text())["judgements"]] == [blind.BLIND, blind.KNOWN]
    answers["status"] = " M planner/cost/overlap.py"
    with pytest.raises(SystemExit, match="commit first"):
        blind.judge(2, tmp_path)
