"""Fixtures that several files of tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests import sweeps
from tests.answered_once import FOLDER
from tests.sweeps import QUICK, THOROUGH

LEFT_OUT = [0, 0, 0]
"""Tests, and cases of sweeps, that this run leaves to `make test-thorough`; slow tests that it leaves to other runs."""
SLOW_PART = "CLUSTERWRIGHT_SLOW_PART"
"""Environment variable: `0/5` to `4/5` are the slow tests of a fifth of the files each, and all quick ones."""


def pytest_configure(config: pytest.Config) -> None:
    """A folder for answers that workers share, whose names they inherit; one day to count the ages of prices to.

    Catalogs, models and sites of the person who tests are not read.
    """
    os.environ["SOURCE_DATE_EPOCH"] = str(int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()))
    if "not slow" in config.getoption("markexpr"):
        os.environ[QUICK] = "1"
    if not hasattr(config, "workerinput"):
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="answers")
    os.environ["CLUSTERWRIGHT_PROGRESS"] = "off"  # however slow the machine
    os.environ["XDG_CONFIG_HOME"] = str(Path(os.environ[FOLDER], "nobody"))
    os.environ["XDG_CACHE_HOME"] = str(Path(os.environ[FOLDER], "cache"))
    for name in ("CLUSTERWRIGHT_CATALOG", "CLUSTERWRIGHT_MODELS", "CLUSTERWRIGHT_SITE", "FORCE_COLOR"):
        os.environ.pop(name, None)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing of it is left."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked thorough are left to `make test-thorough`, unless asked for by their marker or their name."""
    by_name = any("::" in str(argument) for argument in config.args)
    if os.environ.get(THOROUGH) or "thorough" in config.getoption("markexpr") or by_name:
        return
    thorough = [item for item in items if item.get_closest_marker("thorough")]
    part, of = (int(number) for number in os.environ.get(SLOW_PART, "0/1").split("/"))
    others = [item for item in items if item.get_closest_marker("slow") and crc32(item.path.name.encode()) % of != part]
    left = {*thorough, *others}
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))
    LEFT_OUT[:] = [len(thorough), sweeps.left_out, len(left) - len(thorough)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells how much it left out; all of them leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = list(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker told."""
    LEFT_OUT[:] = getattr(node, "workeroutput", {}).get("left_out", LEFT_OUT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How much of the tests this run was not."""
    if any(LEFT_OUT):
        tests, cases, others = LEFT_OUT
        terminalreporter.write_line(f"Left to make test-thorough: {tests} tests, and {cases} cases of others")
    if LEFT_OUT[2]:
        terminalreporter.write_line(f"Left to other runs ({SLOW_PART}): {others} slow tests")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lab (:mod:`tests.procuring_lab`) whose answers are kept."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
