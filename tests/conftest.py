"""Fixtures that several files of tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lab (:mod:`tests.procuring_lab`) whose answers are kept."""
    return tmp_path_factory.mktemp("lab")
