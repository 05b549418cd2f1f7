"""A password that somebody gives, anywhere, is shown nowhere: not on the screen, in a log, a journal or a document."""

import json
import os
from pathlib import Path

import pytest

from planner.base.secrets import scrubbed, shown
from planner.commands.command_line import COMMANDS, main
from tests.asking import ask
from tests.sweeps import sweep

CANARY = "c4nary-5ecret"
OF_ENVIRONMENT = "t0ken-0f-the-environment"
"""Another one: what the environment holds is hidden wherever it stands, and would hide that nothing else is."""
KEPT = Path(__file__).parent / "golden" / "plans" / "1" / "dense.json"
URLS = [
    f"postgresql://me:{CANARY}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1:1/db?user=me&password={CANARY}",
    f"postgresql+psycopg2://me:{CANARY}%40x@127.0.0.1:1/db",
    f"mysql://me:{CANARY}@@127.0.0.1:1/db",
    f"sqlite:////nowhere/of/{CANARY[:0]}x.db?password={CANARY}",
    f"nonsense://me:{CANARY}@[::1/db",
    f"postgresql://me:{CANARY}@127.0.0.1:not-a-port/db",
]
SIGNED = f"https://me:{CANARY}@127.0.0.1/x?X-Amz-Signature={CANARY}&sig={CANARY}"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPASSWORD", OF_ENVIRONMENT)
    monkeypatch.setenv("HF_TOKEN", OF_ENVIRONMENT)
    return tmp_path


def nowhere(folder: Path) -> bool:
    """Whether no file that was written holds a canary."""
    return not any(leaks(path.read_text(errors="replace")) for path in folder.rglob("*") if path.is_file())


def leaks(text: str) -> bool:
    """Whether a canary is in a text."""
    return CANARY in text or OF_ENVIRONMENT in text


@pytest.mark.slow
@sweep(("url", "debug"), [(URLS[0], "1"), *((url, str(number % 2)) for number, url in enumerate(URLS))])
def test_a_database_s_password(
    url: str, debug: str, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTERWRIGHT_DEBUG", debug)
    (folder / "s.toml").write_text(study(), encoding="utf-8")
    for more in ("", "--resume", "--trials 3 --workers 2", "--trials 3"):
        answer = ask(capsys, f"design s.toml --storage {url} {more}")
        assert answer.code == 2, answer.err
        assert not leaks(answer.out + answer.err)
    assert nowhere(folder)


@pytest.mark.slow
@sweep(
    "words",
    [
        "design s.toml --engine {}",
        "calibrate train.log --engine {} -o own",
        "learn {} --plan plan.json --site lab",
        "learn {} --site lab",
        "learn train.log --site {}",
        "report {} -o page.html",
        "report plan.json -o {}",
        "serve --port {}",
        "explain plan.json --trace {}",
        "comm choose plan.json --table {}",
    ],
)
@sweep("url", [f"dask://me:{CANARY}@127.0.0.1:1", URLS[1], SIGNED])
def test_a_login_in_place_of_what_a_command_reads(
    words: str, url: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "s.toml").write_text(study(), encoding="utf-8")
    (folder / "plan.json").write_bytes(KEPT.read_bytes())
    (folder / "train.log").write_text("no step\n", encoding="utf-8")
    answer = ask(capsys, words.format(url))
    assert answer.code in (1, 2), answer.err
    assert not leaks(answer.out + answer.err)
    assert nowhere(folder)


def study() -> str:
    """One of the shipped ones."""
    return next((Path(__file__).parents[1] / "examples" / "studies").glob("*.toml")).read_text(encoding="utf-8")


@sweep("command", COMMANDS)
def test_no_command_shows_a_login_that_it_does_not_understand(
    command: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for words in (URLS[0], f"--storage {URLS[1]} --nonsense", f"{URLS[0]} --cluster {URLS[1]}", f"--catalog {URLS[0]}",
                  f"check {URLS[0]}", f"import {SIGNED}", f"llama3-8b --cluster dgx-h100:1 -o {URLS[0]}"):  # fmt: skip
        answer = ask(capsys, f"{command} {words}")
        assert answer.code != 70, answer.err
        assert not leaks(answer.out + answer.err), (command, words)
    assert nowhere(folder)


def test_the_environment_stays_out_of_what_is_written(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "plan.json").write_bytes(KEPT.read_bytes())
    for command in (
        "plan llama3-8b --cluster dgx-h100:1 --top 1 -o new.json",
        "export plan.json --to megatron+slurm -o out",
        "explain plan.json --json",
        "init site lab",
    ):
        answer = ask(capsys, command)
        assert answer.code == 0, answer.err
        assert not leaks(answer.out + answer.err)
    assert nowhere(folder)


def test_what_is_not_caught_is_told_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from planner.api import answers

    def broken(*_: object) -> None:
        raise RuntimeError(f"{URLS[0]} {URLS[1]} {os.environ['PGPASSWORD']}")

    monkeypatch.setattr(answers, "plan", broken)
    for debug in ("0", "1"):
        monkeypatch.setenv("CLUSTERWRIGHT_DEBUG", debug)
        assert main("plan llama3-8b --cluster dgx-h100:1".split()) == 70
        said = capsys.readouterr().err
        assert not leaks(said)
        assert ("Traceback" in said) == (debug == "1")


@sweep(
    ("url", "as_shown"),
    [
        ("postgresql://me:x@y@host:5/db?sslmode=1&password=z", "postgresql://host:5/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("study.journal", "study.journal"),
        ("a@b.journal", "a@b.journal"),
    ],
)
def test_a_url_is_shown_without_login_and_parameters(url: str, as_shown: str) -> None:
    assert shown(url) == as_shown


@sweep(
    "text",
    [f"https://{CANARY}@host/x", f"https:/{CANARY}@host/x", f"https://host/x?AWSAccessKeyId={CANARY}&x=1",
     f"https://{CANARY}:x@host", f"see git+https://{CANARY}@host#y"],
)  # fmt: skip
def test_a_token_in_a_url_is_hidden_wherever_it_stands(text: str) -> None:
    assert CANARY not in scrubbed(text)
    assert "host" in scrubbed(text)


def test_plain_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("tokens=5 and 8 tokens/s", "see https://example.org/a?b=c", "a:b@c", json.dumps({"tokens": 5})):
        assert scrubbed(text) == text
    monkeypatch.setenv("SOME_TOKEN", "ab")
    assert scrubbed("about") == "about"
