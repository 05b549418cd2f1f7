"""Finds the data folders: inside the package once installed, beside it in a checkout; and the user's own."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
EXAMPLES = ("examples/portfolios", "examples/studies", "benchmarks/data")


def data(name: str) -> Path:
    """The folder `name` (``models``, ``benchmarks/data``): packaged if present, else beside the package."""
    packaged = _PACKAGE / "data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def examples() -> dict[str, Path]:
    """Files to try commands with, by the names that the pages call them: ``examples/portfolios/pretrain-8b.toml``."""
    return {
        f"{folder}/{path.name}": path
        for folder in EXAMPLES
        for path in sorted(data(folder).iterdir())
        if path.suffix in (".toml", ".csv")
    }


def runs() -> Path:
    """Published runs, to hold predictions against."""
    return data("benchmarks/data") / "measured_runs.csv"


def own(name: str) -> Path | None:
    """The user's folder ``clusterwright/NAME`` in ``$XDG_CONFIG_HOME`` or ``~/.config``; none need be there.

    A home that belongs to somebody else (``sudo -u``, containers), or that nobody knows, has none.
    """
    try:
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        folder = config / "clusterwright" / name
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError):
        return None
