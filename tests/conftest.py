"""Fixtures that several files of tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.answered_once import FOLDER
from tests.sweeps import QUICK


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


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lab (:mod:`tests.procuring_lab`) whose answers are kept."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
