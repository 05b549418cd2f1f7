"""The Python functions: their surface, what their docstrings say, and the flags they share names with."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import clusterwright as cw
import planner
from planner.axes import PINNED
from planner.commands.command_line import cli
from planner.question.option import asked
from planner.question.rl_options import RLOptions
from planner.schema.plan import PlanSet
from tests.api_questions import ROOT
from tests.sweeps import sweep

SURFACE = [
    *("Accelerator", "Axes", "Cluster", "ClusterwrightError", "Inconsistent", "Model", "NoAnswer", "Node"),
    *("Plan", "PlanSet", "SiteJournal", "WrongQuestion", "__version__"),
    *("accelerator", "calibrate", "cluster", "compare", "design", "estimate", "estimate_rl"),
    *("evaluate_many", "explain"),
    *("export", "fit", "fit_rl", "learn"),
    *("list_accelerators", "list_fabrics", "list_models", "list_nodes", "list_regions", "list_runtimes"),
    "list_targets",
    "load",
    *("model", "node", "page", "plan", "plan_images", "plan_rl", "procure", "validate"),
]
ASKED = ("plan", "estimate", "procure", "design", "compare", "explain", "export", "validate", "calibrate", "load")


def test_the_surface_is_what_it_was() -> None:
    assert sorted(planner.__all__) == SURFACE and sorted(cw.__all__) == SURFACE and dir(cw) == SURFACE
    assert all(getattr(cw, name) is getattr(planner, name) for name in SURFACE)


def test_every_axis_is_a_keyword() -> None:
    assert {*cw.Axes.__annotations__, "precision"} == {*PINNED}


def test_no_package_takes_a_functions_name() -> None:
    for name in SURFACE:
        assert not (ROOT / "planner" / name).exists() and not (ROOT / "planner" / f"{name}.py").exists()


def test_importing_loads_nothing_heavy() -> None:
    said = "import clusterwright, sys; print({'numpy', 'pydantic', 'pandas', 'click'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


@sweep("name", [name for name in SURFACE if name[0].islower()])
def test_every_function_says_what_it_takes_gives_and_raises(name: str) -> None:
    function = getattr(cw, name)
    said = inspect.getdoc(function) or ""
    assert "Raises:" in said and ">>> " in said
    if "Args:" in said:
        missing = [each for each in inspect.signature(function).parameters if f"{each}:" not in said]
        assert not missing or name in ("estimate", "evaluate_many", "plan_images")


@sweep("name", ["entry", "records", "listing", "plans", "buying", "documents", "runs"])
def test_examples_in_the_functions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert doctest.testmod(importlib.import_module(f"planner.api.{name}")).failed == 0


@pytest.mark.slow
@sweep("module", ["planner", "clusterwright", "planner.commands.screen.explained"])
def test_examples_in_the_packages(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/python.md", marks=pytest.mark.slow)])
def test_examples_in_the_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").partition("<!-- functions -->")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert isinstance(names["plans"], PlanSet)


FLAGS_ONLY = {"json", "help", "verbose"}
"""Flags that say how the terminal shows an answer."""
PYTHON_ONLY = {"progress", "targets", "merge"}
"""What is no flag on a command line: ``design merge`` is a word there."""


@sweep("name", ASKED[:-1])
def test_flags_and_keywords_are_called_the_same(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    spelt = [{o[2:].replace("-", "_") for o in p.opts if o.startswith("--")} for p in command.params]
    taken = inspect.signature(getattr(cw, name)).parameters
    keywords = {*taken, *(planner.api.Axes.__annotations__ if "axes" in taken else ())} - {"axes"}
    flags = set().union(*(names & keywords or names for names in spelt))  # of two spellings, Python has one
    flags -= FLAGS_ONLY - keywords
    flags -= {"force"} - keywords  # of -o, which Python has not
    flags -= {"cross_validate"} if name != "calibrate" else set()
    beside = {"sweep", "bom"} if name == "procure" else {"launchable", "objective"} if name == "estimate" else set()
    beside |= set(asked(RLOptions)) if name in ("plan", "estimate") else set()  # plan_rl and estimate_rl ask these
    beside |= {"measured"} if name == "estimate" else set()
    assert flags - keywords <= beside, "a flag that Python lacks"
    positional = {"model", "cluster", "settings", "portfolio", "study", "mine", "best", "plans", "runs", "output"}
    axes = set(planner.api.Axes.__annotations__) if name == "estimate" else set()
    assert keywords - flags <= positional | PYTHON_ONLY | axes, "a keyword that the command line lacks"
