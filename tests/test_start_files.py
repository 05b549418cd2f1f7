"""Files to begin with: what ``init`` writes is read and answered, and ``examples`` has what pages and helps show."""

import re
import tomllib
from pathlib import Path

import pytest

from planner import catalog
from planner.base import resources
from planner.commands.command_line import main
from planner.commands.init_and_examples import USED_BY
from planner.procurement.question import reading as portfolio
from planner.study.question import reading as study
from tests.asking import ask
from tests.sweeps import sweep
from tests.test_docs import PAGES, generate

ROOT = Path(__file__).parents[1]
KNOWN = catalog.load()
READ = {
    "portfolio": lambda path: portfolio.read(path, KNOWN),
    "study": lambda path: study.read(path, KNOWN),
    "cluster": lambda path: catalog.cluster_from_file(path, KNOWN),
}
COMMENT = re.compile(r"^# (?=\w+ = |\[|\")", re.MULTILINE)
"""A line that holds once its # is dropped."""


@sweep("kind", USED_BY, every=3)
def test_a_file_that_init_writes_is_answered(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask(capsys, f"init {kind} mine.toml").code == 0
    quick = "" if kind == "cluster" else " --quick"
    command = USED_BY[kind][1].format("mine.toml").removeprefix("clusterwright ")
    assert ask(capsys, f"{command}{quick}").code == 0
    again = ask(capsys, f"init {kind} mine.toml")
    assert (again.code, "mine.toml: exists already; --force replaces it" in again.err) == (2, True)
    assert ask(capsys, f"init {kind} mine.toml --force").code == 0


@sweep("kind", USED_BY)
def test_what_is_commented_out_holds_too(kind: str, tmp_path: Path) -> None:
    text = (resources.data("examples") / "templates" / f"{kind}.toml").read_text(encoding="utf-8")
    assert len(COMMENT.findall(text)) >= 5
    file = tmp_path / "mine.toml"
    file.write_text(COMMENT.sub("", text), encoding="utf-8")
    assert len(tomllib.loads(COMMENT.sub("", text))) > len(tomllib.loads(text)) or kind == "study"
    READ[kind](file)


def test_examples_are_what_the_pages_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written below a folder, files of commands in the pages and the helps are where these look for them."""
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "--all", "."]) == 0
    shown = [page.read_text(encoding="utf-8") for page in PAGES] + [text for _, text in generate.all_commands()]
    commands = re.findall(r"clusterwright [a-z][^`\n]*", "\n".join(shown))
    files = {word for line in commands for word in re.findall(r"(?:examples|benchmarks)/[\w./-]*\.(?:toml|csv)", line)}
    assert len(files) >= 5
    assert [file for file in sorted(files) if not Path(file).is_file()] == []


def test_an_example_is_printed_written_and_not_guessed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "examples/portfolios/pretrain-8b.toml").read_text(encoding="utf-8")
    for name in ("pretrain-8b", "pretrain-8b.toml", "examples/portfolios/pretrain-8b.toml"):
        assert ask(capsys, f"examples {name}").out == text
    assert ask(capsys, "examples pretrain-8b -o lab.toml").code == 0
    assert Path("lab.toml").read_text(encoding="utf-8") == text
    assert ask(capsys, "examples pretrain-8c").err.endswith("no example 'pretrain-8c'; did you mean pretrain-8b?\n")
    for line in ("examples -o x", "examples pretrain-8b --all .", "examples --all . -o x"):
        assert ask(capsys, line).code == 2
    assert not Path("benchmarks").exists() and not Path("x").exists()
    listed = ask(capsys, "examples").out
    assert "or rent by the hour?" in listed, "whole sentences"
    assert all(name in listed for name in resources.examples())


def test_all_examples_are_written_or_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("examples/studies").mkdir(parents=True)
    Path("examples/studies/small-node.toml").write_text("mine", encoding="utf-8")
    answer = ask(capsys, "examples --all .")
    assert (answer.code, "small-node.toml: exists already; --force replaces it" in answer.err) == (2, True)
    assert [path.name for path in Path().rglob("*.*")] == ["small-node.toml"]
    assert ask(capsys, "examples --all . --force").code == 0
    assert ask(capsys, "examples --all .").out == "Wrote          nothing: all are there\n"


def test_validate_without_a_file_takes_the_published_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few = tmp_path / "runs.csv"
    few.write_text(
        "".join(resources.runs().read_text(encoding="utf-8").splitlines(keepends=True)[:9]), encoding="utf-8"
    )
    monkeypatch.delenv("CLUSTERWRIGHT_SITE", raising=False)
    monkeypatch.setattr(resources, "runs", lambda: few)
    assert ask(capsys, "validate --json").document["overall"]["n"] == 8
