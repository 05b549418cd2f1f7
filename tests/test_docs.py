"""The documentation says what the program does: pages are current, commands and make targets exist."""

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import pytest

import planner
from planner.commands import command_line
from tests.sources import syntax
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generator()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _examples(page: Path) -> dict[str, str]:
    """The examples of a page one by one, so that they run side by side; together where one reads what another wrote."""
    text = page.read_text(encoding="utf-8")
    found = [each[0] for each in generate.EXAMPLE.finditer(text)]
    apart = not any(" -o " in each.partition("\n")[0] for each in found)
    return {f"{page.name}-{n}": each for n, each in enumerate(found if apart else [text], 1)}


EXAMPLES = {name: each for page in PAGES for name, each in _examples(page).items()}


@pytest.mark.skipif(
    tuple(map(int, version("click").split(".")[:2])) < (8, 5),
    reason="before 8.5, click writes `COMMAND` where none may be given, too",
)
def test_the_command_line_page_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == generate.cli_page(), "run `make docs`"


def _run_here(command: str, folder: Path) -> str:
    """What `generate.run` makes, without a process for it."""
    private = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config"), "NO_COLOR": "1"}
    private["SOURCE_DATE_EPOCH"] = generate.MADE_ON
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLUSTERWRIGHT_", "FORCE_COLOR"))}
    printed = io.StringIO()
    streams = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with mock.patch.dict(os.environ, kept | private, clear=True), contextlib.chdir(folder), streams[0], streams[1]:
        assert command_line.main(shlex.split(command)[1:]) in (0, 1, 2), printed.getvalue()
    return printed.getvalue()


SLOW = ("procurement.md", "design-studies.md", "tutorial-mixed-lab.md")
"""Pages whose examples search for seconds."""


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(shown, id=name, marks=[pytest.mark.slow] if name.startswith(SLOW) else [])
        for name, shown in EXAMPLES.items()
    ],
)
def test_examples_print_what_the_page_shows(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "run", _run_here)
    assert generate.without_timings(shown) == generate.without_timings(generate.refreshed(shown)), "run `make docs`"


def test_the_readme_answers_five_questions_as_its_tutorials_do() -> None:
    """Each tutorial's commands are run above; what README shows of them is theirs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    excerpts = [*generate.EXCERPT.finditer(readme)]
    assert len({found["page"] for found in excerpts}) == 5
    assert all(f"]({found['page']})**" in readme for found in excerpts)
    assert readme == generate.excerpted(readme, lambda name: (ROOT / name).read_text(encoding="utf-8")), (
        "run `make docs`"
    )


def test_the_picture_is_what_the_program_prints() -> None:
    picture = generate.terminal_picture
    lines = picture.printed(generate.MADE_ON)
    assert max(len(picture.STYLE.sub("", line)) for line in lines) <= 80
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.drawn(lines), "run `make docs`"


@sweep("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_the_pages_exist(page: Path) -> None:
    known = dict(generate.all_commands())
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"```.*?```|`[^`\n]+`|<!-- example:[^\n]*-->", text, re.DOTALL)
    for line in re.findall(r"(?<!import )clusterwright (?=[a-z])[^`\n]*", "\n".join(code)):
        words = line.rstrip(")").split()
        path = max((name for name in known if words[: len(name.split())] == name.split()), key=len)
        assert len(path.split()) > 1, f"{page.name}: no such command: {line}"
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", line):
            assert option in known[path], f"{page.name}: {path} has no {option}: {line}"


def test_make_targets_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert (target[0] or target[1]) in targets, f"{page.name}: make {target}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_command_has_a_summary_and_explains_its_options() -> None:
    for path, text in generate.all_commands():
        assert re.search(r"Usage:.*\n\n  \S", text), f"{path} says nothing about itself"


def test_the_picture_of_the_layers_is_current() -> None:
    shown = generate.DESIGN.read_text(encoding="utf-8")
    assert generate.LAYERS.search(shown), "docs/design.md draws no layers"
    assert shown == generate.layers(shown), "run `make docs`"


def test_the_equations_page_is_current() -> None:
    assert (ROOT / "docs" / "equations.md").read_text(encoding="utf-8") == generate.equations.page(), "run `make docs`"


@sweep("path", sorted((ROOT / "planner" / "cost").glob("*.py")), ids=lambda path: path.stem)
def test_every_equation_of_the_cost_model_is_on_the_page(path: Path) -> None:
    texts = generate.equations.documented(path)
    found = {name for name, text in texts.items() if "=" in text or generate.equations.formulas(text)}
    sections = [each for each in generate.equations.modules() if ROOT / each["path"] == path]
    assert found <= {row.name for section in sections for row in generate.equations.rows(section)}


@sweep("module", generate.equations.modules(), ids=lambda module: module["path"])
def test_every_name_on_the_equations_page_exists(module: dict[str, Any]) -> None:
    known = generate.equations.documented(ROOT / module["path"])
    rows = generate.equations.rows(module)
    assert {*module.get("functions", {}), *module.get("whole", ())} <= set(known)
    assert {*module.get("functions", {}), *module.get("whole", ())} <= {row.name for row in rows}
    assert all(row.what and row.equations and row.source for row in rows)


def test_commit_subjects_fit_a_line() -> None:
    """Of commits that are not shared yet: what is pushed cannot be mended."""
    shown = subprocess.run(
        ["git", "log", "--format=%s", "@{upstream}..HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        pytest.skip("no commits to compare with")
    assert [subject for subject in shown.stdout.splitlines() if len(subject) > 72] == []


# ---- docstrings ------------------------------------------------------------------------------------------------------

PYTHON = [name for name in planner.__all__ if isinstance(inspect.unwrap(getattr(planner, name)), FunctionType)]
ERRORS = {"WrongQuestion", "NoAnswer"}


@sweep("name", PYTHON)
def test_a_python_function_says_what_comes_in_and_what_is_raised(name: str) -> None:
    function = inspect.unwrap(getattr(planner, name))
    said = inspect.getdoc(function) or ""
    elsewhere = "is as in :func:`" in said.replace("\n", " ")
    unsaid = [each for each in inspect.signature(function).parameters if not re.search(rf"\b{each}\b", said)]
    assert elsewhere or not unsaid, unsaid
    assert "Raises:" in said and ">>> " in said


def test_public_functions_say_what_they_raise() -> None:
    """A command's docstring is its help: its errors are the messages that a user sees."""
    files = [path for path in sorted((ROOT / "planner").rglob("*.py")) if path.parent.name != "commands"]
    assert not [f"{path.relative_to(ROOT)}: {function}" for path in files for function in _silent(path)]


def _silent(path: Path) -> list[str]:
    """Functions of a file that raise one of the program's errors themselves, and do not say so."""
    public = [each for each in syntax(path).body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return [each.name for each in public if _raised(each) and not re.search("[Rr]aises", ast.get_docstring(each) or "")]


def _raised(function: ast.FunctionDef) -> set[str]:
    found = [each.exc for each in ast.walk(function) if isinstance(each, ast.Raise)]
    return ERRORS & {ast.unparse(each.func) for each in found if isinstance(each, ast.Call)}


# ---- what the pages for developers name ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/design.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    """Paths from the root, from `planner/`, or a package's own file (`processes.py`); capitals stand for any name."""
    named = re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml|txt|json)))`", (ROOT / page).read_text(encoding="utf-8"))
    named = [each for each in named if each != "config.json" and not re.search(r"\bNAME\b", each)]
    assert len(named) > 10
    assert not [each for each in named if not _is_there(each)]


def _is_there(path: str) -> bool:
    if (ROOT / path).exists() or (ROOT / "planner" / path).exists():
        return True
    return any(str(each).endswith(f"/{path.rstrip('/')}") for each in (ROOT / "planner").rglob("*"))
