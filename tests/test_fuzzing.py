"""The fuzzing itself: its right files are right, and what crashes or hangs is found. `make fuzz` runs it for long."""

import json
import pickle
import time
from pathlib import Path

import pytest

from planner.base.errors import ClusterwrightError
from tests import fuzzing


@pytest.mark.slow
def test_right_files_are_right(folder: Path) -> None:
    """Else only the first words of a reader would ever be tried."""
    wrong = []
    for reader in fuzzing.readers():
        for number, right in enumerate(reader.right):
            file = folder / f"{reader.name} {number}" / reader.file
            file.parent.mkdir(parents=True)
            file.write_text(right, encoding="utf-8")
            try:
                code = reader.ask(file)
            except ClusterwrightError as error:
                code = str(error)
            if code == 2 or isinstance(code, str):
                wrong.append(f"{reader.name} {number}: {code}")
    assert not wrong


def test_what_failed_once_is_refused_or_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = 0
    for reader in fuzzing.readers():
        for number, text in enumerate(fuzzing.saved(reader)):
            folder = tmp_path / f"{reader.name} {number}"
            folder.mkdir()
            fuzzing.once(reader, text, folder)
            asked += 1
    assert asked == sum(path.is_file() for path in fuzzing.SAVED.rglob("*")) >= 5


def test_what_fails_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SAVED", tmp_path)
    fuzzing.save({"reader": "broken", "error": "x", "file": "a = \ud800\n"})
    reader = fuzzing.Reader("broken", "x.toml", ["a = 1"], len)  # type: ignore[arg-type]
    assert fuzzing.saved(reader) == ["a = \ud800\n"]


def found(ask: object, right: str = "a = 1\n", file: str = "x.toml") -> dict[str, str]:
    reader = fuzzing.Reader("broken", file, [right], ask)  # type: ignore[arg-type]
    failures = fuzzing.fuzz(0, 0, [reader], most=300)["failures"]
    return failures[0] if failures else {}


def test_a_crash_is_found_with_the_simplest_file() -> None:
    def ask(file: Path) -> None:
        if "-1" in json.loads(file.read_text(encoding="utf-8"))["layers"]:
            raise ZeroDivisionError("of nothing")

    failure = found(ask, '{"layers": "5", "other": [1, {"x": 2}]}', "x.json")
    assert failure["reader"] == "broken"


def test_an_exit_code_of_70_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "main", lambda words: 70)
    assert "exit code 70" in found(fuzzing.command("explain", "FILE"))["error"]


@pytest.mark.slow
def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "HANGS_S", 0.2)
    assert "more than 0.2 s" in found(lambda file: time.sleep(60))["error"]


@pytest.mark.parametrize(("error", "told"), [(ZeroDivisionError("of nothing"), True), (fuzzing.Hang("late"), False)])
def test_what_fails_only_once_is_told_with_its_error_unless_it_was_the_clock(error: BaseException, told: bool) -> None:
    once = [error]

    def ask(file: Path) -> None:
        if once:
            raise once.pop()

    says = found(ask).get("error", "")
    assert ("once, not again" in says and "of nothing" in says) is told


def test_what_is_refused_is_no_failure() -> None:
    from planner.base.errors import WrongQuestion

    def ask(file: Path) -> None:
        raise WrongQuestion("not so")

    assert found(ask) == {}


def test_what_is_accepted_is_counted() -> None:
    """A reader of all text takes each input, one that refuses takes none; one without an answer has read it, too."""
    for answer, accepted, answered in ((0, 20, 20), (1, 0, 20), (2, 0, 0), (None, 20, 20)):
        reader = fuzzing.Reader("some", "x.toml", ["a = 1\n"], lambda file, answer=answer: answer)  # type: ignore[misc]
        result = fuzzing.fuzz(0, 0, [reader], most=20)
        assert (result["accepted"], result["answered"]) == (accepted, answered)


def test_mild_changes_are_what_a_person_writes() -> None:
    mild, right = fuzzing.HARD + 2, ["--on 4 GiB\n", "--on few\n"]
    assert fuzzing.spoilt_text(right[0], [(0, mild, 2)], right) == "--on 8 GiB\n"
    assert fuzzing.spoilt_text(right[0], [(1, mild, 2)], right) == "--on 4 GiB\n"
    assert fuzzing.spoilt_text(right[0], [(3, mild, 2)], right) == "--on few GiB\n"
    assert fuzzing.spoilt_json('{"a": [2, true]}', [(0, mild, 0.5)]) == '{"a": [1, true]}'
    assert fuzzing.spoilt_json('{"a": [2, true]}', [(1, mild, 0.5)]) == '{"a": [2, false]}'


def test_readers_shared_by_processes_see_what_they_see_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(file: Path) -> None:
        if "-1" in file.read_text(encoding="utf-8", errors="surrogatepass"):
            raise ZeroDivisionError("of nothing")

    two = [fuzzing.Reader(name, "x.toml", ["a = 1\n"], ask) for name in ("one", "two")]
    monkeypatch.setattr(fuzzing, "_known", lambda: two)
    whole = fuzzing.fuzz(0, 0, two, most=300)
    parts = fuzzing.side_by_side(fuzzing.Asked(0, 0, 300), ["one", "two"], 1)
    assert {name for name, value in parts.items() if value != whole[name]} <= {"seconds", "peak_bytes"}
    assert parts.keys() == whole.keys() and [each["reader"] for each in parts["failures"]] == ["one", "two"]
    assert pickle.loads(pickle.dumps(fuzzing.fuzzed)) is fuzzing.fuzzed, "other processes find it"
