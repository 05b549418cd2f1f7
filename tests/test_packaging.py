"""An installation claims two top-level names, carries the data, and starts the same program as a checkout."""

import importlib
import re
import tomllib
from pathlib import Path

import planner

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_holds_the_package_and_the_data() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["clusterwright", "planner"]
    folders = ("hardware_catalog", "models", "examples", "benchmarks/data")
    assert {path.suffixes[-2] for path in (ROOT / "docs" / "schemas").iterdir()} == {".schema"}
    assert wheel["force-include"] == {name: f"planner/data/{name}" for name in folders} | {
        "docs/schemas": "planner/data/schemas"
    }
    assert not [name for name in wheel["force-include"].values() if (ROOT / name).exists()], (
        "data stands beside planner"
    )
    assert all((ROOT / name / "py.typed").exists() for name in wheel["packages"])


def test_the_console_script_is_the_program() -> None:
    module, _, attribute = PROJECT["project"]["scripts"]["clusterwright"].partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_every_library_is_declared() -> None:
    declared = {re.split(r"[<>=\[]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert declared >= {"numpy", "pandas", "pulp", "highspy", "optuna", "click", "pydantic", "rich"}


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    """`make test-matrix` installs the pins; a library without a lower bound would claim to work with any."""
    lines = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["docs"]
    bounds = {line: re.fullmatch(r"([a-z]+)>=([\d.]+)(?:,<[\d.]+)?", line) for line in lines}
    assert all(bounds.values()), f"no lower bound: {[line for line, found in bounds.items() if not found]}"
    pins = (ROOT / "tests" / "requirements-lowest.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert sorted(f"{found[1]}=={found[2]}" for found in bounds.values() if found) == pins


def test_the_changelog_covers_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog or f"## [{planner.__version__}]" in changelog
